/* SPDX-License-Identifier: Apache-2.0
 * gpu_step.h - a training step of one GPU: nothing is read back before its end.
 * Inside libtrain only. It serves a decoder of F32, BF16 or F16 on the host as
 * well, where nothing is asynchronous.
 *
 * Order: begin, decoder_step_add for each micro-batch, end. One thread. */
#ifndef TRAIN_GPU_STEP_H
#define TRAIN_GPU_STEP_H

#include <train/optim.h>

struct gpu_step;

/* gpu_step_create - both borrowed; of the same GPU. TRAIN_ENOMEM,
 * TRAIN_EDEVICE. */
train_status_t gpu_step_create (train_decoder_t *decoder, train_adamw_t *adamw,
                                struct gpu_step **ret_step, train_error_t *err);
void gpu_step_destroy (struct gpu_step *step); /* NULL is fine */

/* gpu_step_begin - gradients are none: see decoder_spend_grads.
 *   passes   of decoder_step_add that will come; with 1 their memory serves as
 *            room for activations */
void gpu_step_begin (struct gpu_step *step, int passes);

struct gpu_step_report {
    double loss;  /* sum since begin */
    double norm;  /* of the gradients, before clipping */
    bool skipped; /* the norm is not finite: nothing was updated */
};

/* gpu_step_end - norm and check in one read, clipping, AdamW; then waits.
 *   clip        largest norm; 0 = any
 *   inv_scale   1 / what the losses were multiplied by, beside their mean: the
 *               norm and the update are of the gradients times this */
train_status_t gpu_step_end (struct gpu_step *step, double lr, double clip,
                             double inv_scale, struct gpu_step_report *ret,
                             train_error_t *err);

/* gpu_step_sums - sums of squares of each parameter's gradient, after end.
 *   sums   (parameters of the decoder) host memory, written */
train_status_t gpu_step_sums (struct gpu_step *step, double *sums,
                              train_error_t *err);

#endif
