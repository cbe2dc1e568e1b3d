/* SPDX-License-Identifier: Apache-2.0
 * train/scaler.h - loss scaling for F16: keep small gradients above zero.
 *
 * The loss is multiplied by a scale before the backward and the gradients are
 * divided by it before they are used. Where one of them is not finite on any
 * rank, all ranks skip the step and the scale shrinks; after [interval] steps
 * without, it grows. (Micikevicius et al. 2018, arXiv:1710.03740; the
 * arithmetic is that of PyTorch's GradScaler, with the hysteresis of Megatron
 * and a floor.) BF16 needs no scaler.
 *
 * Order of a step, each at most once: backward of loss * train_scaler_scale;
 * train_scaler_unscale; the update, if unscale says that nothing was found;
 * train_scaler_update. A caller who gives the step up after unscale for reasons
 * of its own calls train_scaler_cancel in place of update: the scale stays.
 * Ranks that make the same calls have the same scale at all times. One
 * thread. */
#ifndef TRAIN_SCALER_H
#define TRAIN_SCALER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/group.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_scaler train_scaler_t;

typedef struct train_scaler_options {
    size_t size;    /* sizeof (train_scaler_options_t) */
    double init;    /* the first scale; 0 = 65536 */
    double growth;  /* > 1; 0 = 2 */
    double backoff; /* above 0 and below 1; 0 = 0.5 */
    int64_t
        interval;   /* steps without anything found until it grows; 0 = 2000 */
    int hysteresis; /* the so manieth step with something found since the last
                         growth, and each one after it, shrinks; 0 = 1 */
    double floor;   /* it shrinks no further; 0 = 1 */
    int patience;   /* so many such steps in a row at the floor are
                         TRAIN_ENONFINITE; 0 = 10 */
} train_scaler_options_t;

/* All that a checkpoint has to keep. */
typedef struct train_scaler_state {
    size_t size;    /* sizeof (train_scaler_state_t) */
    double scale;   /* a float */
    int64_t good;   /* steps since it changed, or since something was found */
    int64_t budget; /* of hysteresis: steps until one shrinks it, >= 1 */
    int64_t stuck;  /* of patience: steps in a row at the floor */
} train_scaler_state_t;

/* TRAIN_EINVAL names the option that is wrong; NULL options are all 0. */
train_status_t train_scaler_create (const train_scaler_options_t *opts,
                                    train_scaler_t **ret_scaler,
                                    train_error_t *err);
void train_scaler_destroy (train_scaler_t *scaler); /* NULL is fine */

/* What the loss, or dL/d(loss), is multiplied by: a float. */
double train_scaler_scale (const train_scaler_t *scaler);

/* train_scaler_unscale - divide by the scale, look for Inf and NaN. Collective
 * in [group].
 *   group       of all ranks that share the gradients; NULL = this one
 *   grads       (n) F32 or F64, in host memory, in place: g * float (1 / scale),
 *               rounded once. When something was found their values are not for
 *               use
 *   ret_found   on all ranks the same: some rank found something
 * TRAIN_ESTATE: twice in a step; the text says what to call. TRAIN_EINVAL: F16,
 * in which unscaled gradients would vanish: widen them first. Else errors of
 * the group. */
train_status_t train_scaler_unscale (train_scaler_t *scaler,
                                     train_group_t *group,
                                     DLTensor *const *grads, size_t n,
                                     bool *ret_found, train_error_t *err);

/* train_scaler_update - the step is over: grow or shrink. TRAIN_ESTATE without
 * unscale before it. TRAIN_ENONFINITE: the scale has been at its floor for
 * [patience] steps that all found something; the state is updated. */
train_status_t train_scaler_update (train_scaler_t *scaler, train_error_t *err);

/* train_scaler_cancel - the step is over and does not count; legal at any
 * time. */
void train_scaler_cancel (train_scaler_t *scaler);

/* train_scaler_get, _set - the state between two steps. Set: TRAIN_EINVAL names
 * the value that no scaler has; TRAIN_ESTATE within a step. */
void train_scaler_get (const train_scaler_t *scaler,
                       train_scaler_state_t *ret_state);
train_status_t train_scaler_set (train_scaler_t *scaler,
                                 const train_scaler_state_t *state,
                                 train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
