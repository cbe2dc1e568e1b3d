/* SPDX-License-Identifier: Apache-2.0
 * grpo_advantage.c - how much better than its group each completion is */
#include <train/grpo.h>

#include <math.h>
#include <stdlib.h>

#include "err.h"
#include "grpo.h"
#include "opts.h"

#define NO_SPREAD 1e-8

/* Of the values that are not NaN. */
static train_grpo_spread_t spread_of (const double *x, int64_t n, int64_t step)
{
    train_grpo_spread_t s = {0, 0, 0};
    double first = NAN;
    bool differ = false;

    for (int64_t i = 0; i < n; i++)
        if (!isnan (x[i * step])) {
            first = s.n++ == 0 ? x[i * step] : first;
            differ = differ || x[i * step] != first;
            s.mean += x[i * step];
        }
    s.mean = !differ ? first : s.mean / (double)s.n;
    for (int64_t i = 0; i < n && differ; i++)
        if (!isnan (x[i * step]))
            s.deviation += (x[i * step] - s.mean) * (x[i * step] - s.mean);
    s.deviation = s.n > 1 ? sqrt (s.deviation / (double)(s.n - 1)) : 0;
    return s;
}

static train_status_t check_options (train_grpo_advantage_options_t *o,
                                     train_error_t *err)
{
    o->rewards = o->rewards == 0 ? 1 : o->rewards;
    o->eps = o->eps == 0 ? 1e-4 : o->eps;
    if (o->group < 2)
        return err_set (err, TRAIN_EINVAL,
                        "grpo advantages: a group of %lld; it takes 2 "
                        "completions to say which is better",
                        (long long)o->group);
    if (o->rewards < 1)
        return err_set (err, TRAIN_EINVAL, "grpo advantages: %lld rewards",
                        (long long)o->rewards);
    for (int64_t k = 0; o->weights && k < o->rewards; k++)
        if (!isfinite (o->weights[k]))
            return err_set (err, TRAIN_EINVAL,
                            "grpo advantages: weight %lld is %g", (long long)k,
                            o->weights[k]);
    if ((unsigned)o->scale > TRAIN_GRPO_SCALE_NONE
        || (unsigned)o->base > TRAIN_GRPO_BASE_OTHERS
        || (unsigned)o->combine > TRAIN_GRPO_NORMALIZE_THEN_SUM)
        return err_set (err, TRAIN_EINVAL,
                        "grpo advantages: unknown scale %d, base %d or combine "
                        "%d",
                        (int)o->scale, (int)o->base, (int)o->combine);
    if (!(o->eps > 0 && isfinite (o->eps)))
        return err_set (err, TRAIN_EINVAL,
                        "grpo advantages: eps %g is not a number above 0",
                        o->eps);
    return TRAIN_OK;
}

static train_status_t check_rewards (const train_grpo_advantage_options_t *o,
                                     const float *rewards,
                                     const int64_t *lengths, int64_t n,
                                     train_error_t *err)
{
    if (n < 0 || n % o->group != 0)
        return err_set (err, TRAIN_EINVAL,
                        "grpo advantages: %lld completions are no whole groups "
                        "of %lld",
                        (long long)n, (long long)o->group);
    for (int64_t i = 0; i < n * o->rewards; i++)
        if (isinf (rewards[i]))
            return err_set (err, TRAIN_EINVAL,
                            "grpo advantages: reward %lld of completion %lld "
                            "is infinite; NaN says that there is none",
                            (long long)(i % o->rewards),
                            (long long)(i / o->rewards));
    for (int64_t i = 0; lengths && i < n; i++)
        if (lengths[i] < 0)
            return err_set (err, TRAIN_EINVAL,
                            "grpo advantages: completion %lld has %lld tokens",
                            (long long)i, (long long)lengths[i]);
    return TRAIN_OK;
}

/* (n, R) in double, NaN where a completion counts for nothing. */
static double *widened (const train_grpo_advantage_options_t *o,
                        const float *rewards, const int64_t *lengths, int64_t n)
{
    double *wide = calloc ((size_t)(n * o->rewards) + 1, sizeof (*wide));

    for (int64_t i = 0; wide && i < n * o->rewards; i++)
        wide[i] =
            lengths && lengths[i / o->rewards] == 0 ? NAN : (double)rewards[i];
    return wide;
}

/* Each reward of a group: less its mean, over its deviation. */
static void normalize_each (const train_grpo_advantage_options_t *o,
                            double *wide, int64_t n)
{
    for (int64_t at = 0; at < n; at += o->group)
        for (int64_t k = 0; k < o->rewards; k++) {
            double *x = wide + at * o->rewards + k;
            train_grpo_spread_t s = spread_of (x, o->group, o->rewards);

            for (int64_t i = 0; i < o->group; i++)
                x[i * o->rewards] =
                    (x[i * o->rewards] - s.mean) / (s.deviation + o->eps);
        }
}

/* The weighted sum of a completion's rewards; NaN where all are. The sum goes to
 * the place of the first of them, packed: place i is read last by row i. */
static void combine (const train_grpo_advantage_options_t *o, double *wide,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = NAN;

        for (int64_t k = 0; k < o->rewards; k++) {
            double x = wide[i * o->rewards + k];

            if (!isnan (x))
                sum = (isnan (sum) ? 0 : sum)
                      + x * (o->weights ? o->weights[k] : 1);
        }
        wide[i] = sum;
    }
}

static double advantage (const train_grpo_advantage_options_t *o, double x,
                         const train_grpo_spread_t *group, double deviation)
{
    double base = group->mean;

    if (isnan (x) || group->n < 2 || group->deviation == 0)
        return 0;
    if (o->base == TRAIN_GRPO_BASE_OTHERS)
        base = (group->mean * (double)group->n - x) / (double)(group->n - 1);
    if (o->scale == TRAIN_GRPO_SCALE_NONE)
        return x - base;
    return (x - base) / (deviation + o->eps);
}

static void by_group (const train_grpo_advantage_options_t *o, const double *x,
                      int64_t n, const train_grpo_spread_t *all, float *ret,
                      int64_t *flat)
{
    bool batch = o->scale == TRAIN_GRPO_SCALE_BATCH;

    for (int64_t at = 0; at < n; at += o->group) {
        train_grpo_spread_t s = spread_of (x + at, o->group, 1);
        double deviation = batch ? all->deviation : s.deviation;

        *flat += deviation <= NO_SPREAD ? s.n : 0;
        for (int64_t i = at; i < at + o->group; i++)
            ret[i] = (float)advantage (o, x[i], &s, deviation);
    }
}

static void by_batch (const train_grpo_advantage_options_t *o, const double *x,
                      int64_t n, const train_grpo_spread_t *all, float *ret,
                      int64_t *flat)
{
    *flat = all->deviation <= NO_SPREAD ? all->n : 0;
    for (int64_t i = 0; i < n; i++)
        ret[i] = isnan (x[i])
                     ? 0
                     : (float)((x[i] - all->mean) / (all->deviation + o->eps));
}

/* Of the weighted sums of [wide], which become its first [n]. */
static train_grpo_spread_t spread_of_sums (
    const train_grpo_advantage_options_t *o, double *wide, int64_t n)
{
    combine (o, wide, n);
    return spread_of (wide, n, 1);
}

train_status_t train_grpo_advantages (
    const train_grpo_advantage_options_t *opts, const float *rewards,
    const int64_t *lengths, int64_t n, float *ret_adv,
    train_grpo_advantage_report_t *ret, train_error_t *err)
{
    train_grpo_advantage_options_t o;
    train_grpo_advantage_report_t report = {.size = sizeof (report)};
    bool each;
    train_grpo_spread_t all, sums;
    int64_t flat = 0;
    double *x, *as_given;

    TRY (opts_read (&o, sizeof (o), opts, "grpo advantage options", err));
    TRY (check_options (&o, err));
    TRY (check_rewards (&o, rewards, lengths, n, err));
    if (ret)
        TRY (opts_fits (ret, "grpo advantage report", err));
    each = o.combine == TRAIN_GRPO_NORMALIZE_THEN_SUM;
    x = widened (&o, rewards, lengths, n);
    as_given = each ? widened (&o, rewards, lengths, n) : NULL;
    if (!x || (each && !as_given)) {
        free (x);
        return err_set (err, TRAIN_ENOMEM,
                        "grpo advantages: no memory for %lld", (long long)n);
    }
    if (each)
        normalize_each (&o, x, n);
    all = spread_of_sums (&o, x, n);
    sums = each ? spread_of_sums (&o, as_given, n) : all;
    (each ? by_batch : by_group) (&o, x, n, &all, ret_adv, &flat);
    free (as_given);
    free (x);
    report.mean = sums.n > 0 ? sums.mean : 0;
    report.deviation = sums.deviation;
    report.counted = all.n;
    report.zero_spread = all.n > 0 ? (double)flat / (double)all.n : 0;
    return ret ? opts_give (ret, &report, sizeof (report),
                            "grpo advantage report", err)
               : TRAIN_OK;
}

train_status_t grpo_spreads (const float *rewards, const int64_t *lengths,
                             int64_t n, int R, train_grpo_spread_t *ret,
                             train_error_t *err)
{
    const train_grpo_advantage_options_t o = {.rewards = R};
    double *x = widened (&o, rewards, lengths, n);

    if (!x)
        return err_set (err, TRAIN_ENOMEM, "grpo rewards: no memory for %lld",
                        (long long)n);
    for (int k = 0; k < R; k++) {
        ret[k] = spread_of (x + k, n, R);
        ret[k].deviation = ret[k].n > 0 ? ret[k].deviation : NAN;
    }
    free (x);
    return TRAIN_OK;
}
