/* SPDX-License-Identifier: Apache-2.0
 * grpo_texts.c - completions of prompts: each rank writes and rewards its share,
 * then all have all */
#include <stdlib.h>
#include <string.h>

#include <train/generate.h>

#include "err.h"
#include "grpo_run.h"

train_status_t grpo_texts_init (struct grpo_texts *x, int M, int L, int R,
                                train_error_t *err)
{
    size_t m = (size_t)M, all = m * (size_t)L;

    x->M = M;
    x->L = L;
    x->which = calloc (m, sizeof (*x->which));
    x->prompt = calloc (m, sizeof (*x->prompt));
    x->n_prompt = calloc (m, sizeof (*x->n_prompt));
    x->ids = calloc (all, sizeof (*x->ids));
    x->n = calloc (m, sizeof (*x->n));
    x->sampled = calloc (all, sizeof (*x->sampled));
    x->rewards = calloc (m * (size_t)R, sizeof (*x->rewards));
    x->sample = calloc (m, sizeof (*x->sample));
    if (!x->which || !x->prompt || !x->n_prompt || !x->ids || !x->n
        || !x->sampled || !x->rewards || !x->sample)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for %d completions of %d tokens", M, L);
    return TRAIN_OK;
}

void grpo_texts_fini (struct grpo_texts *x)
{
    free (x->which);
    free (x->prompt);
    free (x->n_prompt);
    free (x->ids);
    free (x->n);
    free (x->sampled);
    free (x->rewards);
    free (x->sample);
}

train_status_t grpo_texts_ask (struct grpo_texts *x, int k,
                               const train_grpo_prompts_t *prompts, int64_t i,
                               train_error_t *err)
{
    size_t n = 0;

    x->which[k] = i;
    x->prompt[k] = prompts->ids (prompts->arg, i, &n);
    if (!x->prompt[k] || n < 1 || n > 1 << 24)
        return err_set (err, TRAIN_EINVAL, "grpo: prompt %lld has %zu ids",
                        (long long)i, n);
    x->n_prompt[k] = (int32_t)n;
    return TRAIN_OK;
}

train_status_t grpo_sum (train_grpo_trainer_t *t, void *data,
                         train_dtype_t dtype, int64_t n, train_error_t *err)
{
    train_tensor_t view;

    if (train_group_size (t->group) == 1)
        return TRAIN_OK;
    TRY (train_tensor_view (&view, data, dtype, 1, &n, err));
    return train_all_reduce (t->group, &view.t, TRAIN_SUM, err);
}

/* Which texts are this rank's: whole groups where that comes out even, so that
 * a group's prompt is read once. */
static void share (const train_grpo_trainer_t *t, const struct grpo_texts *x,
                   int group, int *ret_first, int *ret_count)
{
    int64_t size = train_group_size (t->group), M = x->M;
    int64_t rank = train_group_rank (t->group);
    int64_t unit = M % (group * size) == 0 ? group : 1;
    int64_t units = M / unit;

    *ret_first = (int)(rank * units / size * unit);
    *ret_count = (int)((rank + 1) * units / size * unit) - *ret_first;
}

/* Texts of this rank while they are written. */
struct writing {
    const train_grpo_trainer_t *t;
    const int32_t *ids; /* (count,L) */
    int *n;             /* (count) so far */
    int L;
};

static bool goes_on (void *arg, int text, int32_t id)
{
    struct writing *w = arg;
    const train_grpo_trainer_options_t *o = &w->t->o;

    (void)id; /* it is the last of [ids] already */
    return !o->stops (o->stops_arg, w->ids + (size_t)text * (size_t)w->L,
                      ++w->n[text]);
}

static train_status_t write_own (train_grpo_trainer_t *t, struct grpo_texts *x,
                                 const struct grpo_pen *pen, int first,
                                 int count, train_error_t *err)
{
    const train_grpo_trainer_options_t *o = &t->o;
    size_t at = (size_t)first * (size_t)x->L;
    bool whole = x->M % (pen->group * train_group_size (t->group)) == 0;
    struct writing w = {.t = t, .ids = x->ids + at, .L = x->L};
    const train_generate_options_t g = {
        .size = sizeof (g),
        .max_new = x->L,
        .temperature = pen->temperature,
        .top_k = o->top_k,
        .top_p = o->top_p,
        .min_p = o->min_p,
        .repetition = o->repetition,
        .seed = pen->seed,
        .first = first,
        .stop = o->ends,
        .n_stop = o->n_ends,
        .at_once = o->at_once,
        .batch_invariant = o->batch_invariant,
        .on_token = o->stops ? goes_on : NULL,
        .arg = &w,
        .group = whole ? pen->group : 1,
        .ret_logp = x->sampled + at,
    };

    struct grpo_alone alone;
    train_status_t status;

    w.n = calloc ((size_t)count + 1, sizeof (*w.n));
    if (!w.n)
        return err_set (err, TRAIN_ENOMEM, "no memory for completions");
    status = grpo_alone (t, count > 0, &alone, err);
    if (status == TRAIN_OK && count > 0)
        status = train_generate (x->ids + at, x->n + first, t->decoder,
                                 x->prompt + first, x->n_prompt + first, count,
                                 &g, err);
    status = grpo_back (t, &alone, status, err);
    free (w.n);
    return status;
}

/* Nothing is behind a text, and nothing where another rank writes. */
static void clear (struct grpo_texts *x)
{
    size_t all = (size_t)x->M * (size_t)x->L;

    memset (x->ids, 0, all * sizeof (*x->ids));
    memset (x->sampled, 0, all * sizeof (*x->sampled));
    memset (x->n, 0, (size_t)x->M * sizeof (*x->n));
}

static bool is_over (const train_grpo_trainer_options_t *o, const int32_t *ids,
                     int n)
{
    for (size_t i = 0; n > 0 && i < o->n_ends; i++)
        if (o->ends[i] == ids[n - 1])
            return true;
    return n > 0 && o->stops && o->stops (o->stops_arg, ids, n);
}

static void describe (const train_grpo_trainer_t *t, struct grpo_texts *x)
{
    for (int k = 0; k < x->M; k++) {
        const int32_t *ids = x->ids + (size_t)k * (size_t)x->L;

        x->sample[k] = (train_grpo_sample_t){
            .prompt = x->which[k],
            .ids = ids,
            .n = x->n[k],
            .cut = !is_over (&t->o, ids, x->n[k]),
        };
    }
}

void grpo_texts_tell (const train_grpo_trainer_t *t, struct grpo_texts *x,
                      int R)
{
    describe (t, x);
    for (int k = 0; k < x->M; k++)
        x->sample[k].rewards = x->rewards + (size_t)k * (size_t)R;
}

/* A sampler may leave anything behind a text. */
static void wipe (struct grpo_texts *x, int first, int count)
{
    for (int k = first; k < first + count; k++)
        for (int j = x->n[k]; j < x->L; j++) {
            x->ids[(size_t)k * (size_t)x->L + (size_t)j] = 0;
            x->sampled[(size_t)k * (size_t)x->L + (size_t)j] = 0;
        }
}

train_status_t grpo_texts_write (train_grpo_trainer_t *t, struct grpo_texts *x,
                                 const struct grpo_pen *pen, train_error_t *err)
{
    int64_t all = (int64_t)x->M * x->L;
    int first, count;
    train_status_t status;

    share (t, x, pen->group, &first, &count);
    clear (x);
    status = write_own (t, x, pen, first, count, err);
    TRY (trainer_agree (t->group, status, err));
    wipe (x, first, count);
    TRY (grpo_sum (t, x->ids, TRAIN_I32, all, err));
    TRY (grpo_sum (t, x->n, TRAIN_I32, x->M, err));
    TRY (grpo_sum (t, x->sampled, TRAIN_F32, all, err));
    describe (t, x);
    return TRAIN_OK;
}

train_status_t grpo_texts_score (train_grpo_trainer_t *t, struct grpo_texts *x,
                                 int R, train_grpo_score_t score, void *arg,
                                 train_error_t *err)
{
    int64_t all = (int64_t)x->M * R;
    int first, count;
    train_status_t status = TRAIN_OK;

    share (t, x, 1, &first, &count);
    memset (x->rewards, 0, (size_t)all * sizeof (*x->rewards));
    if (count > 0)
        status = score (arg, x->sample + first, count,
                        x->rewards + (size_t)first * (size_t)R, err);
    TRY (trainer_agree (t->group, status, err));
    TRY (grpo_sum (t, x->rewards, TRAIN_F32, all, err));
    for (int k = 0; k < x->M; k++)
        x->sample[k].rewards = x->rewards + (size_t)k * (size_t)R;
    return TRAIN_OK;
}
