/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt.h - products of matrices on a GPU, by cuBLASLt's best algorithm or by
 * kernels of our own.
 *
 * All matrices are row-major. A weight is (out,in), several of one input lie
 * one below the other (qkv; gate and up), so that one product serves them.
 * bf16 and f16 are summed in f32 and rounded once at the store; f32 is true
 * f32 unless tf32 is asked for.
 *
 * The first product of a shape, dtype, layout, epilogue and alignment asks
 * cuBLASLt for candidates, times each on the device (it waits for the stream;
 * with beta not 0 it takes a second c for the time of this trial, at most a
 * quarter of the memory that is unused or 128 MiB) and keeps the best. During the capture of a graph nothing can be timed: the first
 * candidate serves until the product is seen outside. The kept choices can be
 * saved and loaded; the same choice on the same card and library gives the same
 * bits where the object is deterministic.
 *
 * An object belongs to one device, which is current at each call, and serves
 * one thread and one stream at a time: products share its workspace. */
#ifndef KERN_GEMM_LT_H
#define KERN_GEMM_LT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers as in train_status_t. */
enum gemm_lt_status {
    GEMM_LT_OK = 0,
    GEMM_LT_EINVAL = 1,
    GEMM_LT_ENOMEM = 2,
    GEMM_LT_EFORMAT = 4,
    GEMM_LT_ENOTSUP = 7,
    GEMM_LT_EDEVICE = 8,
    GEMM_LT_EMISMATCH = 10,
};

enum gemm_lt_dtype {
    GEMM_LT_F32 = 0,
    GEMM_LT_BF16 = 1,
    GEMM_LT_F16 = 2,
};

/* Room for one line that says why; every [why] below may be NULL. */
#define GEMM_LT_WHY 640

struct gemm_lt;

struct gemm_lt_opts {
    size_t size;     /* sizeof (struct gemm_lt_opts) */
    void *workspace; /* of the GPU, 256-aligned, outlives the object;
                             * NULL: the object has its own */
    size_t
        workspace_bytes; /* of [workspace]; 0 with NULL: as gemm_lt_workspace */
    bool deterministic;  /* no algorithm whose sums depend on timing */
    bool tf32;           /* f32 inputs may be rounded to tf32 */
    bool untimed;        /* cuBLASLt's first candidate without a trial */
    bool own;            /* our own kernels: no library is opened */
};

/* gemm_lt_workspace - bytes of workspace that serve well: 32 MiB. */
size_t gemm_lt_workspace (void);

/* gemm_lt_create - for the current device.
 *   ret    the object; gemm_lt_destroy. Written on GEMM_LT_OK only
 *   opts   NULL = all zero
 * GEMM_LT_ENOTSUP: no cuBLASLt ([why] names what was looked for; .own does
 * without); ENOMEM; EDEVICE: no GPU, or it failed. */
enum gemm_lt_status gemm_lt_create (struct gemm_lt **ret,
                                    const struct gemm_lt_opts *opts, char *why);

/* gemm_lt_destroy - waits for the device where the workspace is its own; NULL
 * is fine. */
void gemm_lt_destroy (struct gemm_lt *g);

/* One product: c = alpha op (a) op (b) + beta c (+ bias of each column),
 * op (x) = x or its transpose. */
struct gemm_lt_op {
    enum gemm_lt_dtype in, out; /* of a and b; of c and bias: [in] or f32 */
    bool ta, tb;
    size_t m, n, k;       /* op (a) is (m,k), op (b) is (k,n), c is (m,n) */
    size_t lda, ldb, ldc; /* elements between the rows of what is stored */
    const void *a, *b;
    void *c; /* overlaps neither a nor b; read only where beta is not 0 */
    const void *bias; /* (n), or NULL */
    float alpha, beta;
};

/* gemm_lt_run - enqueue the product on [stream] (a cudaStream_t).
 * m = 0 or n = 0 does nothing; k = 0 with beta = 1 neither.
 * GEMM_LT_EINVAL: a shape or dtype that makes no sense; ENOTSUP: cuBLASLt has no
 * algorithm for it; ENOMEM; EDEVICE: the launch failed. [why] names the
 * shape. */
enum gemm_lt_status gemm_lt_run (struct gemm_lt *g, const struct gemm_lt_op *op,
                                 void *stream, char *why);

/* gemm_lt_fwd - y = x w^T (+ bias).
 *   y      (N,out) written
 *   x      (N,in)
 *   w      (out,in)
 *   bias   (out), or NULL
 * All of [dtype]. This and the next two return what gemm_lt_run does. */
enum gemm_lt_status gemm_lt_fwd (struct gemm_lt *g, void *y, const void *x,
                                 const void *w, const void *bias,
                                 enum gemm_lt_dtype dtype, size_t N, size_t in,
                                 size_t out, void *stream, char *why);

/* gemm_lt_dx - dx = dy w.
 *   dx   (N,in) written
 *   dy   (N,out) */
enum gemm_lt_status gemm_lt_dx (struct gemm_lt *g, void *dx, const void *dy,
                                const void *w, enum gemm_lt_dtype dtype,
                                size_t N, size_t in, size_t out, void *stream,
                                char *why);

/* gemm_lt_dw - dw = or += dy^T x.
 *   dw      (out,in) of [dw_dtype]: f32, or [dtype]; written where [add] is
 *           false, else added to
 *   dy, x   (N,out), (N,in) of [dtype] */
enum gemm_lt_status gemm_lt_dw (struct gemm_lt *g, void *dw,
                                enum gemm_lt_dtype dw_dtype, bool add,
                                const void *dy, const void *x,
                                enum gemm_lt_dtype dtype, size_t N, size_t in,
                                size_t out, void *stream, char *why);

/* gemm_lt_report - one line for each choice that the object keeps: the product,
 * the algorithm, its time beside that of cuBLASLt's first candidate, and where
 * rows or addresses that are not multiples of 16 bytes keep the fast ones
 * away. */
void gemm_lt_report (const struct gemm_lt *g,
                     void (*line) (void *arg, const char *text), void *arg);

/* gemm_lt_choices_save - the choices as bytes, for a checkpoint.
 *   to   [room] bytes; NULL = only count
 * Returns their number; more than [room]: nothing was written. */
size_t gemm_lt_choices_save (const struct gemm_lt *g, void *to, size_t room);

/* gemm_lt_choices_load - take saved choices, before those kept already.
 * GEMM_LT_EMISMATCH: they are another library's or card's ([why] names both);
 * EFORMAT: not such bytes, or damaged; ENOMEM. Then nothing changes. */
enum gemm_lt_status gemm_lt_choices_load (struct gemm_lt *g, const void *from,
                                          size_t bytes, char *why);

#ifdef __cplusplus
}
#endif
#endif
