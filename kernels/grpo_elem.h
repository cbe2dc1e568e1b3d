/* SPDX-License-Identifier: Apache-2.0
 * grpo_elem.h - the policy loss of one token; one text for the host and for
 * kernels. All in double: there are few tokens beside the logits. */
#ifndef KERN_GRPO_ELEM_H
#define KERN_GRPO_ELEM_H

#include <math.h>

#include "kernels/grpo.h"
#include "kernels/half.h"

/* exp of a difference of log-probabilities; beyond, the ratio stands still. */
#define GRPO_FAR 20.0

/* A term's value and what it changes by: through the logarithm of the ratio, and
 * through the log-probability itself. */
struct grpo_slope {
    double value, ratio, direct;
};

HALF_FN double grpo_clamp (double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* exp (d), and by how much it moves with d: nothing where d is cut. */
HALF_FN double grpo_ratio (double d, double *moves)
{
    double cut = grpo_clamp (d, -GRPO_FAR, GRPO_FAR);
    double r = exp (cut);

    *moves = d < -GRPO_FAR || d > GRPO_FAR ? 0 : r; /* of NaN: NaN */
    return r;
}

HALF_FN struct grpo_slope grpo_clip (const struct kern_grpo *o, double r,
                                     double moves, double A)
{
    double arm = o->two_sided > 0 && r > o->two_sided ? o->two_sided : r;
    double clipped = grpo_clamp (r, 1 - o->low, 1 + o->high);
    struct grpo_slope s = {0, 0, 0};

    if (arm * A <= clipped * A) {
        s.value = -arm * A;
        s.ratio = arm < r ? 0 : -A * moves;
    } else {
        s.value = -clipped * A;
        s.ratio = clipped < r || clipped > r ? 0 : -A * moves;
    }
    if (o->dual > 0 && A < 0 && s.value > -o->dual * A) {
        s.value = -o->dual * A;
        s.ratio = 0;
    }
    return s;
}

HALF_FN struct grpo_slope grpo_soft (const struct kern_grpo *o, double r,
                                     double moves, double A)
{
    double tau = A > 0 ? o->soft_pos : o->soft_neg;
    double g = 1 / (1 + exp (-tau * (r - 1)));
    struct grpo_slope s = {-A * 4 / tau * g, -A * 4 * g * (1 - g) * moves, 0};

    return s;
}

/* r as it is weighs the log-probability and is not differentiated. */
HALF_FN struct grpo_slope grpo_weighed (double weight, double A, double logp)
{
    struct grpo_slope s = {-weight * A * logp, 0, -weight * A};

    return s;
}

HALF_FN struct grpo_slope grpo_term (const struct kern_grpo *o, double r,
                                     double moves, double A, double logp)
{
    switch (o->term) {
    case GRPO_CAP:
        return grpo_weighed (r < o->cap ? r : o->cap, A, logp);
    case GRPO_CAP_BOTH:
        return grpo_weighed (grpo_clamp (r, 1 - o->low, 1 + o->high), A, logp);
    case GRPO_SOFT:
        return grpo_soft (o, r, moves, A);
    default:
        return grpo_clip (o, r, moves, A);
    }
}

/* The estimate of KL and its slope, with ref - logp = d. K3 stands still where d
 * is too large for exp; below, exp (d) is 0 and no harm. */
HALF_FN double grpo_kl (const struct kern_grpo *o, double d, double *slope)
{
    double cut = d > GRPO_FAR ? GRPO_FAR : d, e = exp (cut);
    double value = o->kl == GRPO_K1   ? -d
                   : o->kl == GRPO_K2 ? d * d / 2
                                      : e - cut - 1;

    *slope = o->kl_straight || o->kl == GRPO_K2 ? -d
             : o->kl == GRPO_K1                 ? 1
             : d > GRPO_FAR                     ? 0
                                                : 1 - e;
    return value;
}

/* Does a ratio of an advantage [A] lie where the loss does not follow it? */
HALF_FN void grpo_count_clip (const struct kern_grpo *o, double r, double A,
                              struct kern_grpo_row *sums)
{
    int both = o->term == GRPO_CLIP || o->term == GRPO_CAP_BOTH;
    double high = o->term == GRPO_CAP ? o->cap : 1 + o->high;

    sums->clipped_low += both && r < 1 - o->low && A < 0;
    sums->clipped_high += o->term != GRPO_SOFT && r > high && A > 0;
}

/* The weight of a difference between who trains and who sampled. A sampler that
 * has no number for a token (NaN) says nothing against it. */
HALF_FN double grpo_correction (const struct kern_grpo *o, double d)
{
    double moves, w = grpo_ratio (d, &moves);

    if (o->correct == GRPO_TOKEN_TRUNCATE || o->correct == GRPO_ROW_TRUNCATE)
        return grpo_clamp (w, o->least, o->most);
    return w < o->least || w > o->most ? 0 : w;
}

HALF_FN double grpo_known (double x)
{
    return isnan (x) ? 0 : x;
}

HALF_FN int grpo_is_row (const struct kern_grpo *o)
{
    return o->correct == GRPO_ROW_TRUNCATE || o->correct == GRPO_ROW_MASK;
}

/* What a token of a row with [n] that count is divided by. */
HALF_FN double grpo_scale (const struct kern_grpo *o, double n)
{
    double by = o->mean == GRPO_ROW_MEAN     ? n * o->rows
                : o->mean == GRPO_TOKEN_MEAN ? o->tokens
                                             : o->rows * o->longest;

    return by > 0 ? 1 / by : 0;
}

/* What all tokens of a row share, from sums over those that count. */
struct grpo_row {
    double n, scale, A;
    double ratio, moves; /* of the row, where [by_row] */
    double weight;       /* of the correction, where it is a row's; else 1 */
    double keep;         /* 0 = off policy: no policy term */
};

/* [moved] is the sum of logp - old, [strayed] of old - sampled, [drifted] of
 * sampled (or old) - logp. */
HALF_FN struct grpo_row grpo_row_of (const struct kern_grpo *o, double A,
                                     double n, double moved, double strayed,
                                     double drifted)
{
    struct grpo_row row;

    row.n = n;
    row.A = A;
    row.scale = grpo_scale (o, n);
    row.ratio = grpo_ratio (n > 0 ? moved / n : 0, &row.moves);
    row.weight = grpo_is_row (o) ? grpo_correction (o, strayed) : 1;
    row.keep =
        o->off_policy >= 0 && A < 0 && n > 0 && drifted / n > o->off_policy ? 0
                                                                            : 1;
    return row;
}

/* One token: adds to [sums], returns its own slope and adds to [*shared] what
 * moves with the ratio of the row. */
HALF_FN double grpo_token (const struct kern_grpo *o,
                           const struct grpo_row *row, double logp, double old,
                           double ref, double sampled,
                           struct kern_grpo_row *sums, double *shared)
{
    double moves = row->moves, slope = 0, kl = 0, weight = row->weight;
    double r = o->by_row ? row->ratio : grpo_ratio (logp - old, &moves);
    struct grpo_slope t = grpo_term (o, r, moves, row->A, logp);

    if (o->correct != GRPO_NONE && !grpo_is_row (o))
        weight = grpo_correction (o, grpo_known (old - sampled));
    if (o->beta > 0)
        kl = grpo_kl (o, ref - logp, &slope);
    sums->policy += row->scale * row->keep * weight * t.value;
    sums->kl += row->scale * kl;
    sums->kl_sum += kl;
    sums->ratio += r;
    sums->correction += weight;
    grpo_count_clip (o, r, row->A, sums);
    if (o->by_row)
        *shared += row->scale * row->keep * weight * t.ratio;
    else
        t.direct += t.ratio;
    return row->scale * (row->keep * weight * t.direct + o->beta * slope);
}

#endif
