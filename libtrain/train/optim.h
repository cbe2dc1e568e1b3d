/* SPDX-License-Identifier: Apache-2.0
 * train/optim.h - AdamW over a flat arena, and the norm of its gradients.
 *
 * Both moments have the dtype of the weights and lie in arenas of the same
 * layout; of BF16 and F16 weights they are F32, as the gradients are, and so are
 * masters: the weights as the update sees them, of which the others are the
 * rounded copy. Bias correction is computed in double from the number of updates
 * made, which a skipped step does not raise. (Loshchilov and Hutter 2019,
 * arXiv:1711.05101, in the order of operations of PyTorch's AdamW.)
 * One thread uses an optimizer at a time. */
#ifndef TRAIN_OPTIM_H
#define TRAIN_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_adamw train_adamw_t;

typedef struct train_adamw_options {
    size_t size;         /* sizeof (train_adamw_options_t) */
    double beta1;        /* [0,1), e.g. 0.9 */
    double beta2;        /* [0,1), e.g. 0.95 */
    double eps;          /* > 0, e.g. 1e-8 */
    double weight_decay; /* >= 0; only of parameters with [decay] */
    DLDevice device;     /* {kDLCUDA, k}: all tensors are GPU k's; zeros or
                            kDLCPU: the host's */
    bool offload;        /* of a GPU: moments and masters are pinned memory of
                            the host (and so kDLCPU), and pass through the GPU in
                            pieces at each step; 192 MiB there at most. F32
                            weights may lie on either side */
    bool stochastic;     /* the BF16 copy of a master is the one above or below
                            by chance in proportion, so without bias, and not the
                            nearest: a pure function of seed, update and the
                            element's number in the model, the same on host and
                            GPU and however the model is shared */
    uint64_t seed;       /* of that */
} train_adamw_options_t;

/* train_adamw_create - moments (zero) for an arena of [numel] elements.
 *   dtype    of the weights: TRAIN_F32, BF16, F16; on the host F64 too
 *   params   (n) copied but for the names; offset, count and decay are used;
 *            sorted by offset, they do not overlap. Elements in no parameter
 *            are never touched.
 * TRAIN_EINVAL names the field or parameter that is wrong. */
train_status_t train_adamw_create (const train_adamw_options_t *opts,
                                   train_dtype_t dtype, size_t numel,
                                   const train_param_t *params, size_t n,
                                   train_adamw_t **ret_adamw,
                                   train_error_t *err);
void train_adamw_destroy (train_adamw_t *adamw); /* NULL is fine */

/* train_adamw_step - one update.
 *   weights      (numel) in place
 *   grads        (numel) read; all finite, else so are weights no more
 *   lr           of this step, >= 0
 *   grad_scale   multiplies every gradient: train_clip_scale, or 1
 * Masters begin as the weights of the first step. On a GPU the call waits for
 * its end. TRAIN_EINVAL when a tensor has another dtype, size or device; nothing
 * is changed. TRAIN_EDEVICE. */
train_status_t train_adamw_step (train_adamw_t *adamw, DLTensor *weights,
                                 const DLTensor *grads, double lr,
                                 double grad_scale, train_error_t *err);

/* The moments, 1-D, and the number of updates made: for checkpoints. They
 * live with [adamw]; set_updates is for a load (>= 0). */
DLTensor *train_adamw_m (train_adamw_t *adamw);
DLTensor *train_adamw_v (train_adamw_t *adamw);
/* Masters, NULL where the weights are their own. set_masters - they are there
 * already: the first step leaves them as they are. */
DLTensor *train_adamw_masters (train_adamw_t *adamw);
void train_adamw_set_masters (train_adamw_t *adamw);
int64_t train_adamw_updates (const train_adamw_t *adamw);
void train_adamw_set_updates (train_adamw_t *adamw, int64_t updates);

/* train_norm - the Euclidean norm of all elements of a compact f32 or f64
 * tensor, summed in double in a fixed order; Inf or NaN where an element is,
 * and Inf where the sum of squares leaves the range of double.
 * TRAIN_ENOTSUP for another dtype or memory of a GPU. */
train_status_t train_norm (const DLTensor *t, double *ret_norm,
                           train_error_t *err);

/* train_clip_scale - min (1, max / (norm + 1e-6)); 1 when [max] is 0. */
double train_clip_scale (double norm, double max);

#ifdef __cplusplus
}
#endif
#endif
