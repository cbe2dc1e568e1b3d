/* SPDX-License-Identifier: Apache-2.0
 * grpo_logps.c - log-probabilities that a cycle's steps share: of the policy
 * that wrote, and of the reference */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "grpo_run.h"

static train_status_t ref_of (train_grpo_trainer_t *t, int first, int n,
                              train_error_t *err)
{
    const struct grpo_texts *x = &t->texts;
    int32_t *ids, *P = t->lens, *total = t->lens + n;
    float *logp;
    int T = 1;
    train_status_t status;

    if (n == 0)
        return train_reference_join (t->reference, err);
    for (int k = first; k < first + n; k++)
        T = grpo_wide (t, k) > T ? grpo_wide (t, k) : T;
    ids = calloc ((size_t)n * (size_t)T, sizeof (*ids));
    logp = calloc ((size_t)n * (size_t)T, sizeof (*logp));
    for (int i = 0; ids && logp && i < n; i++) {
        int k = first + i;
        int32_t *row = ids + (size_t)i * (size_t)T;

        P[i] = x->n_prompt[k];
        total[i] = grpo_wide (t, k);
        memcpy (row, x->prompt[k], (size_t)P[i] * sizeof (*row));
        memcpy (row + P[i], x->ids + (size_t)k * (size_t)x->L,
                (size_t)x->n[k] * sizeof (*row));
    }
    status = !ids || !logp
                 ? err_set (err, TRAIN_ENOMEM, "no memory for %d rows", n)
                 : train_reference_logps (t->reference, ids, P, total, n, T,
                                          t->o.temperature, logp, err);
    for (int i = 0; status == TRAIN_OK && i < n; i++)
        memcpy (t->ref + (size_t)(first + i) * (size_t)x->L,
                logp + (size_t)i * (size_t)T + P[i],
                (size_t)x->n[first + i] * sizeof (*logp));
    free (ids);
    free (logp);
    return status;
}

/* This rank's rows of one step, in the passes that will train; all ranks ask a
 * reference equally often. */
static train_status_t of_step (train_grpo_trainer_t *t, int row,
                               train_error_t *err)
{
    const train_trainer_t *s = t->trainer;
    bool old = t->old && !t->o.old_is_sampler;

    for (int p = 0, i = 0; p < s->passes; p++, i += s->pass) {
        int n = s->rows - i < s->pass ? s->rows - i : s->pass;

        n = n < 0 ? 0 : n;
        if (old)
            TRY (n > 0 ? grpo_old (t, row + s->first + i, n, err)
                       : decoder_meet (t->decoder, 0, err));
        if (t->ref)
            TRY (ref_of (t, row + s->first + i, n, err));
    }
    return TRAIN_OK;
}

static train_status_t logps (train_grpo_trainer_t *t, train_error_t *err)
{
    size_t all = (size_t)t->texts.M * (size_t)t->texts.L;

    if (t->old && t->o.old_is_sampler)
        memcpy (t->old, t->texts.sampled, all * sizeof (*t->old));
    else if (t->old)
        memset (t->old, 0, all * sizeof (*t->old));
    if (t->ref)
        memset (t->ref, 0, all * sizeof (*t->ref));
    for (int k = 0; k < t->o.steps; k++)
        TRY (of_step (t, k * t->o.trainer.batch, err));
    return TRAIN_OK;
}

/* Each rank has its rows', which a checkpoint in mid-cycle needs of all. */
static train_status_t share (train_grpo_trainer_t *t, train_error_t *err)
{
    int64_t all = (int64_t)t->texts.M * t->texts.L;

    if (t->o.steps * t->o.iterations == 1)
        return TRAIN_OK;
    if (t->old && !t->o.old_is_sampler)
        TRY (grpo_sum (t, t->old, TRAIN_F32, all, err));
    return t->ref ? grpo_sum (t, t->ref, TRAIN_F32, all, err) : TRAIN_OK;
}

train_status_t grpo_logps (train_grpo_trainer_t *t, train_error_t *err)
{
    int before = t->decoder->ops->enter (t->decoder->device);
    struct grpo_alone alone;
    train_status_t status = grpo_alone (t, false, &alone, err);

    if (status == TRAIN_OK)
        status = logps (t, err);
    status = grpo_back (t, &alone, status, err);
    t->decoder->ops->leave (before);
    TRY (trainer_agree (t->group, status, err));
    return share (t, err);
}
