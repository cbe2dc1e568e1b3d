/* SPDX-License-Identifier: Apache-2.0
 * train/schedule.h - the learning rate as a pure function of the step.
 *
 * Steps count from 0: lr(0) is the rate of the first update. With warmup W the
 * rate rises as lr * (s + 1) / W for s < W; then, with p = (s - W) / (N - W):
 *   constant   lr
 *   linear     lr + (min_lr - lr) * p
 *   cosine     min_lr + (lr - min_lr) * (1 + cos (pi p)) / 2
 * From step N on linear and cosine stay at min_lr. Nothing is carried from step
 * to step, so a resumed run needs its step number alone. */
#ifndef TRAIN_SCHEDULE_H
#define TRAIN_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum train_schedule_kind {
    TRAIN_SCHEDULE_CONSTANT = 0,
    TRAIN_SCHEDULE_LINEAR = 1,
    TRAIN_SCHEDULE_COSINE = 2,
} train_schedule_kind_t;

typedef struct train_schedule {
    size_t size; /* sizeof (train_schedule_t) */
    train_schedule_kind_t kind;
    double lr;      /* > 0, finite: the highest rate */
    double min_lr;  /* 0 <= min_lr <= lr: the last rate */
    int64_t warmup; /* W >= 0 steps; not more than steps */
    int64_t steps;  /* N >= 1 */
} train_schedule_t;

/* train_schedule_check - TRAIN_EINVAL names the field that is wrong. */
train_status_t train_schedule_check (const train_schedule_t *schedule,
                                     train_error_t *err);

/* train_schedule_lr - the rate of step [step] (0 = first; negative counts as
 * 0) of a schedule that passed the check. */
double train_schedule_lr (const train_schedule_t *schedule, int64_t step);

#ifdef __cplusplus
}
#endif
#endif
