/* SPDX-License-Identifier: Apache-2.0
 * schedule.c - learning rates: warmup, then constant, linear or cosine */
#include <train/schedule.h>

#include <math.h>

#include "err.h"
#include "opts.h"

train_status_t train_schedule_check (const train_schedule_t *schedule,
                                     train_error_t *err)
{
    train_schedule_t own, *s = &own;

    if (!schedule)
        return err_set (err, TRAIN_EINVAL, "schedule: there is none");
    TRY (opts_read (s, sizeof (*s), schedule, "schedule", err));
    if (s->kind < TRAIN_SCHEDULE_CONSTANT || s->kind > TRAIN_SCHEDULE_COSINE)
        return err_set (err, TRAIN_EINVAL, "schedule: unknown kind %d",
                        (int)s->kind);
    if (!isfinite (s->lr) || s->lr <= 0)
        return err_set (err, TRAIN_EINVAL,
                        "schedule: lr %g is not a number above 0", s->lr);
    if (!isfinite (s->min_lr) || s->min_lr < 0 || s->min_lr > s->lr)
        return err_set (err, TRAIN_EINVAL,
                        "schedule: min_lr %g is not within 0 and lr %g",
                        s->min_lr, s->lr);
    if (s->steps < 1)
        return err_set (err, TRAIN_EINVAL, "schedule: steps %lld is below 1",
                        (long long)s->steps);
    if (s->warmup < 0 || s->warmup > s->steps)
        return err_set (err, TRAIN_EINVAL,
                        "schedule: warmup %lld is not within 0 and steps %lld",
                        (long long)s->warmup, (long long)s->steps);
    return TRAIN_OK;
}

double train_schedule_lr (const train_schedule_t *s, int64_t step)
{
    double p;

    if (step < 0)
        step = 0;
    if (step < s->warmup)
        return s->lr * (double)(step + 1) / (double)s->warmup;
    if (s->kind == TRAIN_SCHEDULE_CONSTANT)
        return s->lr;
    if (step >= s->steps)
        return s->min_lr;
    p = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    if (s->kind == TRAIN_SCHEDULE_LINEAR)
        return s->lr + (s->min_lr - s->lr) * p;
    return s->min_lr + (s->lr - s->min_lr) * 0.5 * (1 + cos (M_PI * p));
}
