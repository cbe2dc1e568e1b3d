/* SPDX-License-Identifier: Apache-2.0
 * grpo_rows.c - open prompts and rewards, and have completions scored */
#include "grpo_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/err.h"
#include "model_dir.h"

struct grpo_rows {
    struct grpo_judge *judge; /* borrowed */
    train_prompts_t *prompts;
};

/* With what of [how] is of a program's waits. */
static train_status_t open_one (const struct settings_reward *reward,
                                const train_reward_options_t *how,
                                train_reward_t **ret, train_error_t *err)
{
    train_reward_options_t o = settings_reward_options (reward);
    char name[80];

    snprintf (name, sizeof (name), "[reward %.64s]", o.name);
    o.name = name;
    o.ends = how->ends;
    o.ends_arg = how->ends_arg;
    o.later = how->later;
    return train_reward_open (&o, ret, err);
}

static train_status_t open_rewards (struct grpo_judge *j,
                                    const train_reward_options_t *how,
                                    train_error_t *err)
{
    const struct settings_rewards *all = &j->set->rewards;

    j->reward = calloc (all->n + 1, sizeof (*j->reward));
    j->weight = calloc (all->n + 1, sizeof (*j->weight));
    j->seen = calloc (all->n + 1, sizeof (*j->seen));
    if (!j->reward || !j->weight || !j->seen)
        return err_set (err, TRAIN_ENOMEM, "no memory for rewards");
    for (; j->n < all->n; j->n++) {
        TRY (open_one (&all->list[j->n], how, &j->reward[j->n], err));
        j->weight[j->n] = all->list[j->n].weight;
    }
    return TRAIN_OK;
}

static train_status_t open_all (struct grpo_judge *j,
                                const struct settings *set,
                                const train_reward_options_t *how,
                                train_error_t *err)
{
    char where[256];
    train_status_t status;

    *j = (struct grpo_judge){.set = set};
    status = train_tokenizer_open (set->tokenizer, &j->tokenizer, err);
    if (status != TRAIN_OK)
        return err_prefix (
            err, status, "%s",
            settings_where (set, "data", "tokenizer", where, sizeof (where)));
    TRY (grpo_stop_open (&j->stop, set, j->tokenizer, err));
    return open_rewards (j, how, err);
}

train_status_t grpo_judge_open (struct grpo_judge *j,
                                const struct settings *set,
                                bool (*ends) (void *arg), void *arg,
                                train_error_t *err)
{
    const train_reward_options_t how = {.ends = ends, .ends_arg = arg};

    return open_all (j, set, &how, err);
}

train_status_t grpo_judge_look (struct grpo_judge *j,
                                const struct settings *set, train_error_t *err)
{
    const train_reward_options_t how = {.later = true};

    return open_all (j, set, &how, err);
}

void grpo_judge_close (struct grpo_judge *j)
{
    for (size_t i = 0; i < j->n; i++)
        train_reward_close (j->reward[i]);
    free (j->reward);
    free (j->weight);
    free (j->seen);
    grpo_stop_close (j->stop);
    train_tokenizer_close (j->tokenizer);
}

train_status_t grpo_rows_open (struct grpo_rows **ret, struct grpo_judge *judge,
                               const char *section, const char *files,
                               train_error_t *err)
{
    struct grpo_rows *r = calloc (1, sizeof (*r));
    train_status_t status;

    if (!r)
        return err_set (err, TRAIN_ENOMEM, "no memory for prompts");
    r->judge = judge;
    status = settings_rows_open (judge->set, section, files, judge->tokenizer,
                                 &r->prompts, err);
    if (status == TRAIN_OK)
        *ret = r;
    else
        free (r);
    return status;
}

void grpo_rows_close (struct grpo_rows *r)
{
    if (!r)
        return;
    train_prompts_close (r->prompts);
    free (r);
}

const train_prompts_t *grpo_rows_prompts (const struct grpo_rows *r)
{
    return r->prompts;
}

int64_t grpo_rows_longest (const struct grpo_rows *r, size_t *ret_row)
{
    size_t most = 0, n;

    *ret_row = 0;
    for (size_t i = 0; i < train_prompts_count (r->prompts); i++) {
        (void)train_prompts_ids (r->prompts, i, &n);
        if (n > most) {
            most = n;
            *ret_row = i;
        }
    }
    return (int64_t)most;
}

static train_status_t fit_vocab (const struct grpo_rows *r,
                                 const train_decoder_config_t *config,
                                 train_error_t *err)
{
    int need = train_tokenizer_vocab (r->judge->tokenizer);
    int32_t end = train_prompts_end (r->prompts);

    need = end >= need ? end + 1 : need;
    return model_fits (r->judge->set, config, need, true, err);
}

train_status_t grpo_rows_fit (const struct grpo_rows *rows,
                              const struct grpo_rows *held,
                              const train_decoder_config_t *config,
                              const char *dir, bool say, train_error_t *err)
{
    const struct settings *set = rows->judge->set;
    int64_t longest, of_held = 0;
    size_t row;

    TRY (fit_vocab (rows, config, err));
    longest = grpo_rows_longest (rows, &row);
    TRY (model_reach (set, "data", dir, longest, row, err));
    if (held)
        of_held = grpo_rows_longest (held, &row);
    TRY (model_reach (set, "eval", dir, of_held, row, err));
    if (say)
        model_say_reach (dir, "[grpo] max_completion_length",
                         (of_held > longest ? of_held : longest)
                             + set->grpo.max_new);
    return TRAIN_OK;
}

static const int32_t *ids_of (void *arg, int64_t i, size_t *ret_n)
{
    const struct grpo_rows *r = arg;

    return train_prompts_ids (r->prompts, (size_t)i, ret_n);
}

train_grpo_prompts_t grpo_rows_view (struct grpo_rows *r)
{
    return (train_grpo_prompts_t){
        .size = sizeof (train_grpo_prompts_t),
        .count = (int64_t)train_prompts_count (r->prompts),
        .ids = ids_of,
        .arg = r,
        .hash = train_prompts_hash (r->prompts),
    };
}

/* Ids that no token has are what a model may write whose vocabulary is padded:
 * such a text is no text. */
train_status_t grpo_rows_text (const struct grpo_rows *r,
                               const train_grpo_sample_t *s, char **ret,
                               size_t *ret_size, train_error_t *err)
{
    bool ended =
        s->n > 0 && grpo_stop_is_end (r->judge->stop, s->ids[s->n - 1]);
    size_t n = (size_t)(ended ? s->n - 1 : s->n);
    train_status_t status = train_tokenizer_decode (
        r->judge->tokenizer, ret, ret_size, s->ids, n, true, err);

    if (status != TRAIN_EINVAL)
        return status;
    if (!(*ret = strdup ("\xef\xbf\xbd")))
        return err_set (err, TRAIN_ENOMEM, "no memory for a text");
    *ret_size = strlen (*ret);
    return TRAIN_OK;
}

/* One column of what is asked for. */
static train_status_t column (const struct grpo_judge *j, size_t k,
                              const train_sample_t *samples, int n,
                              float *column, float *ret, train_error_t *err)
{
    TRY (train_reward_score (j->reward[k], samples, n, column, err));
    for (int i = 0; i < n; i++)
        ret[(size_t)i * j->n + k] = column[i];
    return TRAIN_OK;
}

static train_status_t fill (const struct grpo_rows *r,
                            const train_grpo_sample_t *s, int n,
                            train_sample_t *to, char **text, train_error_t *err)
{
    for (int i = 0; i < n; i++) {
        size_t row = (size_t)s[i].prompt, size;

        TRY (grpo_rows_text (r, &s[i], &text[i], &size, err));
        to[i] = (train_sample_t){
            .prompt = train_prompts_text (r->prompts, row),
            .completion = text[i],
            .row = train_prompts_row (r->prompts, row),
            .completion_size = size,
        };
    }
    return TRAIN_OK;
}

train_status_t grpo_rows_score (void *arg, const train_grpo_sample_t *s, int n,
                                float *ret, train_error_t *err)
{
    struct grpo_rows *r = arg;
    const struct grpo_judge *j = r->judge;
    train_sample_t *samples = calloc ((size_t)n, sizeof (*samples));
    char **text = calloc ((size_t)n, sizeof (*text));
    float *one = calloc ((size_t)n, sizeof (*one));
    train_status_t status = TRAIN_OK;

    if (!samples || !text || !one)
        status = err_set (err, TRAIN_ENOMEM, "no memory for %d samples", n);
    if (status == TRAIN_OK)
        status = fill (r, s, n, samples, text, err);
    for (size_t k = 0; k < j->n && status == TRAIN_OK; k++)
        status = column (j, k, samples, n, one, ret, err);
    for (int i = 0; text && i < n; i++)
        free (text[i]);
    free (text);
    free (samples);
    free (one);
    return status;
}
