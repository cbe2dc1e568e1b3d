/* SPDX-License-Identifier: Apache-2.0
 * optim.h - what the trainer's files ask of AdamW beyond train/optim.h. Inside
 * libtrain only. */
#ifndef TRAIN_OPTIM_IMPL_H
#define TRAIN_OPTIM_IMPL_H

#include <train/optim.h>

/* adamw_enqueue - one update on [stream] (of a GPU), without a wait, of halves
 * or on a GPU alone. train_adamw_set_updates counts it, once it is known that
 * [factor] was finite: where it is not nothing is written.
 *   factor   (1) of the weights' memory, multiplies every gradient
 * Others, and errors, as train_adamw_step. */
train_status_t adamw_enqueue (train_adamw_t *adamw, DLTensor *weights,
                              const DLTensor *grads, double lr,
                              const float *factor, void *stream,
                              train_error_t *err);

/* adamw_enqueue_copy - the same for F32 weights, which also writes their BF16,
 * or their F16 with ADAMW_FAR_F16.
 *   copy   (numel) of the GPU, or as adamw_create_at was told; NULL: none */
train_status_t adamw_enqueue_copy (train_adamw_t *adamw, DLTensor *weights,
                                   uint16_t *copy, const DLTensor *grads,
                                   double lr, const float *factor, void *stream,
                                   train_error_t *err);

/* Of adamw_create_at.
 * ADAMW_OWN - where the parameters are not all of [numel], moments and masters are
 * of them alone, side by side: m, v and masters have fewer elements.
 * ADAMW_ORDER - weights or their copy pass through the GPU as well: with offload
 * moments lie as these do, and end with the last parameter.
 * Of a GPU, ADAMW_FAR_F32, _BF16 and _F16 - the F32 weights, or the copy of that
 * type which adamw_enqueue_copy writes, are pinned memory of the host: at most
 * one of them is the copy's. */
#define ADAMW_OWN      1U
#define ADAMW_FAR_F32  2U
#define ADAMW_FAR_BF16 4U
#define ADAMW_FAR_F16  8U
#define ADAMW_ORDER    16U

/* adamw_create_at - train_adamw_create of a part of a model.
 *   first   (n) number of each parameter's first element in the model; NULL: its
 *           offset
 *   how     of the above; 0: none
 * adamw_round - where rounding is stochastic: the BF16 of F32 weights as the
 * last update wrote it, enqueued; other elements stay.
 *   p, copy   (numel) of the optimizer's device */
train_status_t adamw_create_at (const train_adamw_options_t *opts,
                                train_dtype_t dtype, size_t numel,
                                const train_param_t *params,
                                const uint64_t *first, size_t n, unsigned how,
                                train_adamw_t **ret_adamw, train_error_t *err);
/* adamw_place_grads - gradients are not laid out as the weights are: [n] of them, of
 * a parameter that begins at [offset] from [at] on. Neighbours that train are
 * neighbours there. */
void adamw_place_grads (train_adamw_t *adamw, size_t n,
                        size_t (*at) (const void *arg, size_t offset),
                        const void *arg);
/* adamw_far_arrays - what passes through a GPU, as 1 << each (optim_far.h). */
unsigned adamw_far_arrays (bool offload, unsigned how);
void adamw_round (train_adamw_t *adamw, const float *p, uint16_t *copy,
                  void *stream);

/* What an optimizer of what trains alone has, as the parameters lie: of the
 * host's memory, to be freed. */
struct adamw_wide {
    void *m, *v;    /* (numel) zero between the parameters: what nobody reads
                     there takes no memory */
    float *masters; /* (numel) the weights between them; NULL: those are it */
};

/* adamw_is_own - moments (and masters) are of the parameters alone, side by
 * side. adamw_spread - all NULL where they are not. weights   (numel) of the
 * optimizer TRAIN_ENOMEM, TRAIN_EDEVICE. adamw_gather - moments, masters and
 * weights become those. adamw_put - elements [first, first + n) of the weights
 * become [from], of the host's memory, and so do the masters of those that have
 * one. */
bool adamw_is_own (const train_adamw_t *adamw);
train_status_t adamw_spread (train_adamw_t *adamw, DLTensor *weights,
                             struct adamw_wide *ret, train_error_t *err);
train_status_t adamw_gather (train_adamw_t *adamw, DLTensor *weights,
                             const struct adamw_wide *wide, train_error_t *err);
void adamw_wide_free (struct adamw_wide *wide);
train_status_t adamw_put (train_adamw_t *adamw, DLTensor *weights,
                          const float *from, size_t first, size_t n,
                          train_error_t *err);

/* adamw_widen - masters that are not there yet become [weights].
 * adamw_narrow - [weights] become the masters, rounded, where they have one;
 * these are there from now on. Both do nothing where the weights are their own
 * masters, and wait for what they enqueue. TRAIN_EINVAL, TRAIN_EDEVICE. */
train_status_t adamw_widen (train_adamw_t *adamw, const DLTensor *weights,
                            train_error_t *err);
train_status_t adamw_narrow (train_adamw_t *adamw, DLTensor *weights,
                             train_error_t *err);

#endif
