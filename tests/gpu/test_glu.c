/* SPDX-License-Identifier: Apache-2.0
 * test_glu.c - SwiGLU in its products on a GPU beside products and SwiGLU on the
 * host: rows, depths and widths that tiles do not divide, tiles that are more than
 * the GPU has blocks for, in place, bits of the activation */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include "layer_set.h"

#include "kernels/gemm_glu.h"

#define AT(i) set_at (s, i)

/* Of gate, up or a gradient one step of rounding may differ, of what is made of
 * them three. */
#define ROOM 0.05f

static bool other_bits; /* than SwiGLU of the same gate and up */

/* Whether y is what SwiGLU makes of gu in [again], which is a third array. */
static void compare_bits (struct set *s, size_t bytes)
{
    char *y = malloc (bytes), *again = malloc (bytes);

    must (cudaMemcpy (y, AT (0), bytes, cudaMemcpyDeviceToHost));
    must (cudaMemcpy (again, AT (2), bytes, cudaMemcpyDeviceToHost));
    other_bits |= memcmp (y, again, bytes) != 0;
    free (y);
    free (again);
}

static bool run_on_gpu (struct set *s, bool back)
{
    size_t N = s->shape[0], C = s->shape[1], F = s->shape[2];
    uint16_t *y = AT (0), *gu = AT (1), *x = AT (3), *w = AT (4);

    if (back)
        return s->type == BF16 ? kern_gemm_glu_bwd_bf16_cuda (gu, y, x, w, gu,
                                                              N, C, F, NULL)
                               : kern_gemm_glu_bwd_f16_cuda (gu, y, x, w, gu, N,
                                                             C, F, NULL);
    return s->type == BF16
               ? kern_gemm_glu_fwd_bf16_cuda (y, gu, x, w, N, C, F, NULL)
               : kern_gemm_glu_fwd_f16_cuda (y, gu, x, w, N, C, F, NULL);
}

static void product_on_host (const struct set *s, uint16_t *y,
                             const uint16_t *x, const uint16_t *w, size_t in,
                             size_t out)
{
    if (s->type == BF16)
        kern_matmul_fwd_bf16_host (y, x, w, s->shape[0], in, out, NULL);
    else
        kern_matmul_fwd_f16_host (y, x, w, s->shape[0], in, out, NULL);
}

static void gradient_on_host (const struct set *s, uint16_t *dx,
                              const uint16_t *dy, const uint16_t *w, size_t in,
                              size_t out)
{
    if (s->type == BF16)
        kern_matmul_bwd_bf16_host (dx, NULL, dy, NULL, w, s->shape[0], in, out,
                                   NULL);
    else
        kern_matmul_bwd_f16_host (dx, NULL, dy, NULL, w, s->shape[0], in, out,
                                  NULL);
}

static void call_fwd (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1], F = s->shape[2];

    if (s->on_gpu && !run_on_gpu (s, false))
        other_bits = true;
    else if (!s->on_gpu)
        product_on_host (s, AT (1), AT (3), AT (4), C, 2 * F);
    if (!s->on_gpu)
        SET_CALL (s, swiglu_fwd, AT (0), AT (1), N, F, NULL);
    SET_CALL (s, swiglu_fwd, AT (2), AT (1), N, F, NULL);
    if (s->on_gpu)
        compare_bits (s, N * F * 2);
}

/* In place; the activation's bits are SwiGLU's. */
static void call_bwd (struct set *s)
{
    size_t N = s->shape[0], C = s->shape[1], F = s->shape[2];

    SET_CALL (s, swiglu_fwd, AT (2), AT (1), N, F, NULL);
    if (s->on_gpu) {
        other_bits |= !run_on_gpu (s, true);
        compare_bits (s, N * F * 2);
        return;
    }
    gradient_on_host (s, AT (0), AT (3), AT (4), F, C);
    SET_CALL (s, swiglu_again_bwd, AT (1), AT (0), AT (0), AT (1), N, F, NULL);
}

static bool shape (enum type type, bool back, size_t N, size_t C, size_t F)
{
    struct set s = {.type = type, .shape = {N, C, F}};

    set_elem (&s, N * F, 0, ROOM);
    set_elem (&s, N * 2 * F, back ? 3 : 0, back ? ROOM : 1e-4f);
    set_elem (&s, N * F, 0, ROOM);
    set_elem (&s, N * C, 1, 0);
    set_elem (&s, (back ? 1 : 2) * F * C, 0.2f, 0);
    return set_check (&s, back ? call_bwd : call_fwd);
}

static void test_shapes (bool back)
{
    static const size_t shapes[][3] = {{1, 8, 256},    {130, 72, 256},
                                       {300, 64, 512}, {700, 200, 768},
                                       {129, 8, 2816}, {5000, 136, 1024}};
    char text[80];

    for (enum type t = BF16; t <= F16; t++) {
        bool good = true;

        other_bits = false;
        for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++)
            good &= shape (t, back, shapes[i][0], shapes[i][1], shapes[i][2]);
        snprintf (text, sizeof (text), "%s, %s: beside the host, and its bits",
                  t == BF16 ? "bf16" : "f16", back ? "backward" : "forward");
        tap_ok (good && !other_bits, text);
    }
}

/* No activation is wanted, and gate and up stay. */
static void test_apart (void)
{
    size_t N = 300, C = 64, F = 512;
    struct set s = {.type = BF16, .shape = {N, C, F}};
    uint16_t *dgu, *got;
    bool same;

    set_elem (&s, N * F, 0, 0);
    set_elem (&s, N * 2 * F, 3, 0);
    set_elem (&s, 1, 0, 0);
    set_elem (&s, N * C, 1, 0);
    set_elem (&s, F * C, 0.2f, 0);
    s.on_gpu = true;
    set_load (&s);
    dgu = set_scratch (N * 4 * F);
    same =
        kern_gemm_glu_bwd_bf16_cuda (dgu, NULL, set_at (&s, 3), set_at (&s, 4),
                                     set_at (&s, 1), N, C, F, NULL);
    got = malloc (N * 4 * F);
    same &= set_store (&s, 1, (char *)got);
    same &= memcmp (got, s.a[1].start, N * 4 * F) == 0;
    same &= run_on_gpu (&s, true) && set_store (&s, 1, (char *)got);
    must (cudaMemcpy (s.a[1].start, dgu, N * 4 * F, cudaMemcpyDeviceToHost));
    same &= memcmp (got, s.a[1].start, N * 4 * F) == 0;
    tap_ok (same, "backward without activation, gate and up kept: same bits");
    free (got);
}

static void test_refused (void)
{
    uint16_t *at;
    bool good = !kern_gemm_glu_fits (0, 64, 256)
                && !kern_gemm_glu_fits (64, 60, 256)
                && !kern_gemm_glu_fits (64, 64, 128)
                && !kern_gemm_glu_fits ((size_t)1 << 32, 64, 256)
                && kern_gemm_glu_fits (1, 8, 256);

    must (cudaMalloc ((void **)&at, 1 << 20));
    good &=
        !kern_gemm_glu_fwd_bf16_cuda (at + 1, at, at, at, 8, 64, 256, NULL)
        && !kern_gemm_glu_fwd_bf16_cuda (at, at + 1, at, at, 8, 64, 256, NULL)
        && !kern_gemm_glu_bwd_bf16_cuda (at + 1, at, at, at, at, 8, 64, 256,
                                         NULL)
        && !kern_gemm_glu_bwd_bf16_cuda (at, at, at + 1, at, at, 8, 64, 256,
                                         NULL);
    must (cudaDeviceSynchronize ());
    must (cudaFree (at));
    tap_ok (good, "other shapes and addresses are refused");
}

int main (void)
{
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
        tap_skip_all ("no GPU");
    if (!kern_gemm_glu_served ())
        tap_skip_all ("the GPU, or this build, has no sm_90a");
    test_shapes (false);
    test_shapes (true);
    test_apart ();
    test_refused ();
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("libkern was built without CUDA");
}

#endif
