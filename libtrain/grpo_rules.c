/* SPDX-License-Identifier: Apache-2.0
 * grpo_rules.c - check the options of a policy loss and fill in its defaults */
#include "grpo.h"

#include <math.h>

#include "err.h"
#include "opts.h"

static const struct {
    int term, mean, by_row;
} kinds[] = {
    [TRAIN_GRPO] = {GRPO_CLIP, GRPO_ROW_MEAN, 0},
    [TRAIN_GRPO_BNPO] = {GRPO_CLIP, GRPO_TOKEN_MEAN, 0},
    [TRAIN_GRPO_DR] = {GRPO_CLIP, GRPO_CONSTANT, 0},
    [TRAIN_GRPO_DAPO] = {GRPO_CLIP, GRPO_TOKEN_MEAN, 0},
    [TRAIN_GRPO_GSPO] = {GRPO_CLIP, GRPO_ROW_MEAN, 1},
    [TRAIN_GRPO_CISPO] = {GRPO_CAP, GRPO_TOKEN_MEAN, 0},
    [TRAIN_GRPO_CISPO_CLIP] = {GRPO_CAP_BOTH, GRPO_TOKEN_MEAN, 0},
    [TRAIN_GRPO_SAPO] = {GRPO_SOFT, GRPO_ROW_MEAN, 0},
};

static double or_else (double x, double otherwise)
{
    return x == 0 ? otherwise : x;
}

/* The first that is wrong: what it is called, and what it must be. */
static train_status_t bad (const char *name, double value, const char *must,
                           train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL, "grpo: %s %g is not %s", name, value,
                    must);
}

static train_status_t check_clip (const struct kern_grpo *o, train_error_t *err)
{
    if (!(o->low >= 0 && o->low < 1))
        return bad ("low", o->low, "within 0 and below 1", err);
    if (!(o->high >= 0 && isfinite (o->high)))
        return bad ("high", o->high, "a number of at least 0", err);
    if (!(o->cap > 0 && isfinite (o->cap)))
        return bad ("cap", o->cap, "a number above 0", err);
    if (o->two_sided != 0 && !(o->two_sided > 1 + o->high))
        return bad ("delta", o->two_sided, "above 1 + high, or 0 for none",
                    err);
    if (o->dual != 0 && !(o->dual > 1))
        return bad ("dual", o->dual, "above 1, or 0 for none", err);
    if (!(o->soft_pos > 0 && isfinite (o->soft_pos)))
        return bad ("tau_positive", o->soft_pos, "a number above 0", err);
    if (!(o->soft_neg > 0 && isfinite (o->soft_neg)))
        return bad ("tau_negative", o->soft_neg, "a number above 0", err);
    return TRAIN_OK;
}

static train_status_t check_rest (const struct kern_grpo *o,
                                  const train_grpo_options_t *opts,
                                  train_error_t *err)
{
    if (!(o->beta >= 0 && isfinite (o->beta)))
        return bad ("beta", o->beta, "a number of at least 0", err);
    if ((unsigned)opts->correct > TRAIN_GRPO_SEQUENCE_MASK)
        return bad ("correct", (double)opts->correct, "one of the five ways",
                    err);
    if (!(o->least >= 0 && o->least <= o->most))
        return bad ("least", o->least, "within 0 and most", err);
    if (opts->off_policy_mask && !(opts->off_policy >= 0))
        return bad ("off_policy", opts->off_policy, "at least 0", err);
    return TRAIN_OK;
}

static train_status_t check_whole (const train_grpo_whole_t *w, bool constant,
                                   train_error_t *err)
{
    if (w->rows < 0)
        return bad ("rows", (double)w->rows, "at least 0", err);
    if (w->tokens < 0)
        return bad ("tokens", (double)w->tokens, "at least 0", err);
    if (constant && w->longest < 1)
        return bad ("longest", (double)w->longest,
                    "the longest completion that could be (at least 1)", err);
    return TRAIN_OK;
}

static void fill (struct kern_grpo *o, const train_grpo_options_t *opts,
                  const train_grpo_whole_t *whole)
{
    static const int kl[] = {GRPO_K3, GRPO_K2, GRPO_K1};
    double low = or_else (opts->low, 0.2);

    *o = (struct kern_grpo){
        .term = kinds[opts->kind].term,
        .mean = kinds[opts->kind].mean,
        .by_row = kinds[opts->kind].by_row || opts->sequence_ratio,
        .kl = kl[opts->kl],
        .kl_straight = opts->kl_gradient,
        .correct = (int)opts->correct,
        .low = low,
        .high = or_else (opts->high, low),
        .cap = or_else (opts->cap, 5),
        .two_sided = opts->delta,
        .dual = opts->dual,
        .soft_pos = or_else (opts->tau_positive, 1),
        .soft_neg = or_else (opts->tau_negative, 1.05),
        .beta = opts->beta,
        .least = opts->least,
        .most = or_else (opts->most, 3),
        .off_policy = opts->off_policy_mask ? opts->off_policy : -1,
        .rows = (double)whole->rows,
        .tokens = (double)whole->tokens,
        .longest = (double)whole->longest,
    };
}

train_status_t grpo_rules (const train_grpo_options_t *given,
                           const train_grpo_whole_t *given_whole,
                           struct kern_grpo *ret, train_error_t *err)
{
    train_grpo_options_t opts;
    train_grpo_whole_t whole;

    TRY (opts_read (&opts, sizeof (opts), given, "grpo options", err));
    TRY (opts_read (&whole, sizeof (whole), given_whole, "grpo whole", err));
    if ((unsigned)opts.kind >= sizeof (kinds) / sizeof (kinds[0]))
        return bad ("kind", (double)opts.kind, "one of the losses", err);
    if ((unsigned)opts.kl > TRAIN_GRPO_K1)
        return bad ("kl", (double)opts.kl, "one of the three estimates", err);
    fill (ret, &opts, &whole);
    TRY (check_clip (ret, err));
    TRY (check_rest (ret, &opts, err));
    return check_whole (&whole, ret->mean == GRPO_CONSTANT, err);
}
