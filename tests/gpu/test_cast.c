/* SPDX-License-Identifier: Apache-2.0
 * test_cast.c - the cast kernels give the host's bits on a GPU */
#include "config.h"

#include "tap.h"

#include <stdint.h>

#include "backend.h"
#include "kernels/kernels.h"

#if HAVE_CUDA

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static void cast (bool narrow, bool f16, bool gpu, void *y, const void *x,
                  size_t n)
{
    void (*to[4]) (uint16_t *, const float *, size_t,
                   void *) = {kern_cast_f32_bf16_host, kern_cast_f32_bf16_cuda,
                              kern_cast_f32_f16_host, kern_cast_f32_f16_cuda};
    void (*from[4]) (float *, const uint16_t *, size_t, void *) = {
        kern_cast_bf16_f32_host, kern_cast_bf16_f32_cuda,
        kern_cast_f16_f32_host, kern_cast_f16_f32_cuda};

    if (narrow)
        to[2 * f16 + gpu](y, x, n, NULL);
    else
        from[2 * f16 + gpu](y, x, n, NULL);
}

/* [n] elements from [x] cast on both; every byte of y is compared, and the
 * bytes after it must stay. */
static bool same_bits (bool narrow, bool f16, const void *x, size_t n)
{
    size_t in = narrow ? 4 : 2, out = narrow ? 2 : 4, guard = 64;
    const struct backend_ops *gpu = &backend_cuda;
    unsigned char *want = malloc (n * out + guard);
    unsigned char *got = malloc (n * out + guard);
    void *dx = NULL, *dy = NULL;
    train_error_t err;
    bool good;

    memset (want, 0xa5, n * out + guard);
    need (gpu->alloc (0, n * in, &dx, &err), &err);
    need (gpu->alloc (0, n * out + guard, &dy, &err), &err);
    need (gpu->copy (dx, x, n * in, NULL, &err), &err);
    need (gpu->copy (dy, want, n * out + guard, NULL, &err), &err);
    cast (narrow, f16, false, want, x, n);
    cast (narrow, f16, true, dy, dx, n);
    need (gpu->copy (got, dy, n * out + guard, NULL, &err), &err);
    need (gpu->sync (NULL, &err), &err);
    good = memcmp (got, want, n * out + guard) == 0;
    gpu->free (dx);
    gpu->free (dy);
    free (want);
    free (got);
    return good;
}

/* All values of the upper half with the lower halves where rounding turns. */
static void cast_every_class (void)
{
    static const uint16_t low[] = {0,      1,      0x0fff, 0x1000, 0x1001,
                                   0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
    size_t n_low = sizeof (low) / sizeof (*low), n = 65536 * n_low;
    uint32_t *x = malloc (n * sizeof (*x));
    uint16_t *h = malloc (65536 * sizeof (*h));

    for (size_t i = 0; i < n; i++)
        x[i] = (uint32_t)(i / n_low) << 16 | low[i % n_low];
    for (size_t i = 0; i < 65536; i++)
        h[i] = (uint16_t)i;
    tap_ok (same_bits (true, false, x, n), "f32 to bf16, every upper half");
    tap_ok (same_bits (false, false, h, 65536), "bf16 to f32, every value");
    tap_ok (same_bits (true, true, x, n), "f32 to f16, every upper half");
    tap_ok (same_bits (false, true, h, 65536), "f16 to f32, every value");
    free (x);
    free (h);
}

static void cast_sizes (void)
{
    static const size_t sizes[] = {0, 1, 31, 255, 256, 257, 65535 * 256 + 3};
    size_t max = 65535 * 256 + 3;
    uint32_t *x = malloc (max * sizeof (*x));

    for (size_t i = 0; i < max; i++)
        x[i] = (uint32_t)(i * 2654435761u);
    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
        char name[64];

        snprintf (name, sizeof (name), "%zu elements both ways", sizes[i]);
        tap_ok (same_bits (true, false, x, sizes[i])
                    && same_bits (false, false, x, sizes[i])
                    && same_bits (true, true, x, sizes[i])
                    && same_bits (false, true, x, sizes[i]),
                name);
    }
    free (x);
}

/* A failure is reported once, with a name, and the device goes on. */
static void errors (void)
{
    void *memory = NULL;
    train_error_t err;

    tap_ok (backend_cuda.alloc (0, (size_t)1 << 50, &memory, &err)
                    == TRAIN_ENOMEM
                && !memory && strstr (err.text, "cudaErrorMemoryAllocation"),
            "a petabyte is refused");
    tap_ok (backend_cuda.alloc (99, 1, &memory, &err) == TRAIN_EINVAL,
            "GPU 99 is refused");
    tap_ok (backend_cuda.sync (NULL, &err) == TRAIN_OK,
            "the refusals left nothing behind");
}

int main (void)
{
    const struct backend_ops *ops = NULL;
    train_error_t err;

    if (backend_find ("cuda", &ops, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    cast_every_class ();
    cast_sizes ();
    errors ();
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
