/* SPDX-License-Identifier: Apache-2.0
 * attention.h - causal attention on a GPU: of cuDNN and our kernels what is
 * faster, else what serves
 *
 * Layouts are attention_fwd's of kernels.h: qkv (B,T,H+2G,D), y (B,T,H,D), lse
 * (B,H,T) in f32 whatever the type; lse is the natural logarithm in both
 * engines, so that either may read what the other wrote. All pointers are of the
 * thread's current device and aligned to 16 bytes.
 *
 * A [struct attention] belongs to one device and one thread: the device that is
 * current when it is made. It keeps cuDNN's handle and the plans of the shapes
 * seen last. A plan is made at the first call with its shape (0.1 to 1 s), so
 * choose before a CUDA graph is captured; later calls only enqueue. */
#ifndef KERN_ATTENTION_H
#define KERN_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum attention_dtype {
    ATTENTION_F32,
    ATTENTION_BF16,
    ATTENTION_F16,
};

enum attention_engine {
    ATTENTION_OWN,   /* kernels/attention*.cu: always deterministic */
    ATTENTION_CUDNN, /* cuDNN's flash attention */
    /* kernels/attention_hopper*: backward alone, bf16 and f16, heads of 64, no
     * documents, on sm_90a; always deterministic, and reads the lse of either
     * engine. Only it: forward is OWN. */
    ATTENTION_HOPPER,
};

/* What the work is. Two shapes are one where every field but
 * [starts] is equal.
 *   dtype           of qkv, y and their gradients
 *   B, T, H, G, D   as in kernels.h: G divides H; D even, at most 256
 *   deterministic   the same bits every time: where ours do not serve, cuDNN's
 *                   backward then keeps a T x T matrix of each head in the
 *                   scratch, of as few sequences at a time as fill the GPU; see
 *                   scratch_bwd
 *   grad            the backward is wanted too: both engines must serve it
 *   documents       rows hold several documents (docs.h): our kernels serve it
 *   starts          then (B,T) as there, of the GPU, read by each call; no part
 *                   of the shape, attention_choose does not look at it */
struct attention_shape {
    enum attention_dtype dtype;
    size_t B, T, H, G, D;
    bool deterministic, grad, documents;
    const int32_t *starts;
};

/*   engine, bwd     that attention_fwd and attention_bwd use for the shape
 *   deterministic   whether its gradients are the same bits every time
 *   scratch_fwd     bytes that attention_fwd wants; 0: scratch may be NULL
 *   scratch_bwd     the same for attention_bwd; 0 without [grad]
 *   why             one line for a trace: the engine, and why it was taken */
struct attention_choice {
    enum attention_engine engine, bwd;
    bool deterministic;
    size_t scratch_fwd, scratch_bwd;
    char why[256];
};

struct attention;

/* attention_create - for the thread's current device. cuDNN is opened at the
 * first shape that it may serve, so this needs no GPU. NULL: out of memory. */
struct attention *attention_create (void);

/* attention_destroy - NULL is allowed. No call on [a] may still run on the
 * GPU. */
void attention_destroy (struct attention *a);

/* attention_engine_only - take this engine alone from now on; attention_choose
 * then fails where it cannot serve. For tests and measurements. */
void attention_engine_only (struct attention *a, enum attention_engine e);

/* attention_choose - which engine serves [s], how much scratch it wants, and why.
 * Asking again is cheap. False: none does, and attention_error says why. */
bool attention_choose (struct attention *a, const struct attention_shape *s,
                       struct attention_choice *ret);

/* attention_foresee - bytes of scratch that attention_choose would want for [s]
 * with cuDNN 9.19, where neither that nor a GPU need be: by arithmetic, as its
 * plans have been measured on an H200. Another library may want others.
 *   sm_90a   the GPU is one of that kind: an H100 or H200 is
 * attention_hopper_here - is the thread's current device one, and has this build
 * the kernels for it? */
size_t attention_foresee (const struct attention_shape *s, bool sm_90a);
bool attention_hopper_here (void);

/* attention_fwd - kern_attention_fwd through the engine chosen for [s].
 *   y         (B,T,H,D) written
 *   lse       (B,H,T)   written
 *   qkv       (B,T,H+2G,D)
 *   scale     of the logits
 *   scratch   scratch_fwd bytes, aligned to 256, garbage before and after
 *   stream    a cudaStream_t; the call enqueues and returns
 * False: nothing was enqueued or cuDNN failed half-way, attention_error says. */
bool attention_fwd (struct attention *a, const struct attention_shape *s,
                    void *y, float *lse, const void *qkv, double scale,
                    void *scratch, void *stream);

/* attention_bwd - kern_attention_bwd through the engine chosen for [s], which has
 * [grad].
 *   dqkv      (B,T,H+2G,D) written
 *   dy        (B,T,H,D)
 *   y, lse, qkv, scale   as attention_fwd had and gave them
 *   scratch   scratch_bwd bytes, aligned to 256, garbage before and after */
bool attention_bwd (struct attention *a, const struct attention_shape *s,
                    void *dqkv, const void *dy, const void *y, const float *lse,
                    const void *qkv, double scale, void *scratch, void *stream);

/* attention_error - why the last call on [a] that failed did; valid until the
 * next call on [a]. */
const char *attention_error (const struct attention *a);

#ifdef __cplusplus
}
#endif
#endif
