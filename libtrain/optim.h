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

/* adamw_enqueue_copy - the same for F32 weights, which also writes their BF16.
 *   copy   (numel) of the weights' memory; NULL: none */
train_status_t adamw_enqueue_copy (train_adamw_t *adamw, DLTensor *weights,
                                   uint16_t *copy, const DLTensor *grads,
                                   double lr, const float *factor, void *stream,
                                   train_error_t *err);

/* adamw_create_at - train_adamw_create of a part of a model.
 *   first   (n) number of each parameter's first element in the model; NULL: its
 *           offset
 *   own     where the parameters are half of [numel] or less, moments are of
 *           them alone, side by side: m and v have fewer elements. Not with
 *           offload
 * adamw_round - where rounding is stochastic: the BF16 of F32 weights as the
 * last update wrote it, enqueued; other elements stay.
 *   p, copy   (numel) of the optimizer's device */
train_status_t adamw_create_at (const train_adamw_options_t *opts,
                                train_dtype_t dtype, size_t numel,
                                const train_param_t *params,
                                const uint64_t *first, size_t n, bool own,
                                train_adamw_t **ret_adamw, train_error_t *err);
void adamw_round (train_adamw_t *adamw, const float *p, uint16_t *copy,
                  void *stream);

/* adamw_spread - of an optimizer whose moments are side by side: m and v as the
 * parameters lie, zero between them, in host memory that free(3) gives back, at
 * [m] and [v] (both NULL: they lie so already). What has no moments takes no
 * memory as long as it is only read. TRAIN_ENOMEM, TRAIN_EDEVICE.
 * adamw_gather - the moments become those. */
train_status_t adamw_spread (train_adamw_t *adamw, void **ret_m, void **ret_v,
                             train_error_t *err);
train_status_t adamw_gather (train_adamw_t *adamw, const void *m, const void *v,
                             train_error_t *err);

/* adamw_widen - masters that are not there yet become [weights].
 * adamw_narrow - [weights] become the masters, rounded; these are there from
 * now on. Both do nothing where the weights are their own masters, and wait for
 * what they enqueue. TRAIN_EINVAL, TRAIN_EDEVICE. */
train_status_t adamw_widen (train_adamw_t *adamw, const DLTensor *weights,
                            train_error_t *err);
train_status_t adamw_narrow (train_adamw_t *adamw, DLTensor *weights,
                             train_error_t *err);

#endif
