/* SPDX-License-Identifier: Apache-2.0
 * test_optim.c - AdamW of a GPU that is not the thread's present one: its calls
 * come back when that GPU is through, and with the numbers they were given */
#include "config.h"

#include "sleeps.h"
#include "tap.h"

#include "backend.h"

#if HAVE_CUDA
#include <cuda_runtime_api.h>
#include <math.h>

#include <train/optim.h>

#include "libtrain/optim.h"

#define N ((size_t)64 << 20) /* an update takes most of a millisecond */

static const struct backend_ops *gpu = &backend_cuda;

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

/* Of all elements, so that one byte makes them. */
static void fill (train_tensor_t *t, int device, int byte, train_dtype_t dtype)
{
    size_t bytes = N * train_dtype_size (dtype);
    int64_t shape[1] = {(int64_t)N};
    void *data = NULL;
    train_error_t err;

    need (gpu->alloc (device, bytes, &data, &err), &err);
    need (gpu->fill (device, data, byte, bytes, NULL, &err), &err);
    need (train_tensor_view (t, data, dtype, 1, shape, &err), &err);
    t->t.device = (DLDevice){kDLCUDA, device};
}

static void settle (int device)
{
    int before = gpu->enter (device);
    train_error_t err;

    need (gpu->sync (NULL, &err), &err);
    gpu->leave (before);
}

/* Asked as soon as a call is back, which has waited if it is right. */
static bool is_through (int device)
{
    int before = gpu->enter (device);
    bool through = cudaStreamQuery (NULL) == cudaSuccess;

    (void)cudaGetLastError ();
    gpu->leave (before);
    return through;
}

/* The last moment of [m], which 0.1 of gradient and scale is after one step. */
static bool moved_by (const DLTensor *m, float scale)
{
    float g, last = 0;
    train_error_t err;

    memset (&g, 0x3f, sizeof (g));
    need (gpu->copy (&last, (const float *)m->data + N - 1, sizeof (last), NULL,
                     &err),
          &err);
    need (gpu->sync (NULL, &err), &err);
    return fabsf (last - 0.1f * scale * g) < 1e-6f;
}

static train_adamw_t *make (int device, train_dtype_t dtype)
{
    static const train_param_t all = {
        .name = "w", .ndim = 1, .shape = {(int64_t)N}, .count = N};
    const train_adamw_options_t o = {.size = sizeof (o),
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .device = {kDLCUDA, device}};
    train_adamw_t *a = NULL;
    train_error_t err;

    need (train_adamw_create (&o, dtype, N, &all, 1, &a, &err), &err);
    return a;
}

static void steps (int device)
{
    train_tensor_t w, g;
    bool through = true, moved = true;
    train_error_t err;

    fill (&w, device, 0, TRAIN_F32);
    fill (&g, device, 0x3f, TRAIN_F32);
    settle (device);
    for (int i = 0; i < 8; i++) {
        train_adamw_t *a = make (device, TRAIN_F32);
        float scale = 1.0f / (float)(i + 1);

        through &= is_through (device);
        need (train_adamw_step (a, &w.t, &g.t, 1e-3, scale, &err), &err);
        through &= is_through (device);
        moved &= moved_by (train_adamw_m (a), scale);
        train_adamw_destroy (a);
    }
    tap_ok (through, "a step has ended at its return");
    tap_ok (moved, "each step had its own scale");
    gpu->free (w.t.data);
    gpu->free (g.t.data);
}

static void masters (int device)
{
    train_adamw_t *a = make (device, TRAIN_BF16);
    train_tensor_t w;
    bool through = true;
    train_error_t err;

    fill (&w, device, 0x3f, TRAIN_BF16);
    settle (device);
    need (adamw_widen (a, &w.t, &err), &err);
    through &= is_through (device);
    for (int i = 0; i < 8; i++) {
        need (adamw_narrow (a, &w.t, &err), &err);
        through &= is_through (device);
    }
    tap_ok (through, "masters and weights are there at the return");
    train_adamw_destroy (a);
    gpu->free (w.t.data);
}

int main (void)
{
    train_error_t err = {0};
    int n = 0;

    if (gpu->probe (&n, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    if (n > 1) {
        (void)gpu->enter (n - 1);
        steps (n - 1);
        tap_ok (sleeps (0), "a thread of the last GPU leaves the first alone");
    }
    cudaSetDevice (0);
    printf ("# GPU %d of %d%s\n", n - 1, n,
            n > 1 ? "" : ", which is the present one: two would tell more");
    steps (n - 1);
    masters (n - 1);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
