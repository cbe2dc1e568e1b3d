/* SPDX-License-Identifier: Apache-2.0
 * grpo_log.c - metrics and completions of GRPO as lines of JSON */
#include "config.h"

#include "grpo_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "libtrain/err.h"

/* JSON has no NaN. */
static json_t *number (double x)
{
    return isfinite (x) ? json_real (x) : json_null ();
}

/* One line, which begins with the step; [o] is given away. */
static train_status_t put (struct metrics *to, json_t *o, train_error_t *err)
{
    struct rv_error e = {0};
    char *text = o ? json_dumps (o, JSON_COMPACT) : NULL;
    size_t n = text ? strlen (text) : 0;
    char *line = text ? realloc (text, n + 2) : NULL;
    int rc;

    json_decref (o);
    if (!line) {
        free (text);
        return err_set (err, TRAIN_ENOMEM, "no memory for a line");
    }
    memcpy (line + n, "\n", 2);
    rc = metrics_put (to, line, n + 1, &e);
    free (line);
    return rc == RV_OK ? TRAIN_OK : err_from (err, &e);
}

/* "rewards/NAME/mean", as TRL logs it. */
static bool add_reward (json_t *o, const char *name, const char *what,
                        double value)
{
    char *key;
    int rc;

    if (asprintf (&key, "rewards/%s/%s", name, what) < 0)
        return false;
    rc = json_object_set_new (o, key, number (value));
    free (key);
    return rc == 0;
}

static bool add_rewards (json_t *o, const struct grpo_judge *j,
                         const train_grpo_spread_t *of)
{
    bool done = o != NULL;

    for (size_t k = 0; k < j->n && done; k++) {
        const char *name = j->set->rewards.list[k].name;

        done = add_reward (o, name, "mean", of[k].mean)
               && add_reward (o, name, "std", of[k].deviation);
    }
    return done;
}

train_status_t grpo_log_metrics (struct metrics *to,
                                 const train_grpo_metrics_t *m, double held,
                                 const struct grpo_faults *faults,
                                 const struct grpo_judge *judge,
                                 const train_grpo_spread_t *rewards,
                                 int64_t mem_bytes, train_error_t *err)
{
    const train_metrics_t *b = &m->base;
    const struct {
        const char *name;
        double value;
    } v[] = {
        {"reward", m->reward},
        {"reward_std", m->reward_std},
        {"zero_spread", m->zero_spread},
        {"length", m->length},
        {"length_min", m->length_min},
        {"length_max", m->length_max},
        {"cut", m->cut},
        {"kl", m->kl},
        {"entropy", m->entropy},
        {"ratio", m->ratio},
        {"clip_low", m->clip_low},
        {"clip_high", m->clip_high},
        {"correction", m->correction},
        {"rollout_s", m->rollout_s},
        {"reward_s", m->reward_s},
        {"logps_s", m->logps_s},
        {"update_s", m->update_s},
        {"eval_reward", held},
    };
    const struct {
        const char *name;
        json_int_t value;
    } n[] = {
        {"dropped", m->dropped},
        {"reward_nothing", faults->nothing},
        {"reward_timeouts", faults->timeouts},
        {"reward_crashes", faults->crashes},
        {"reward_garbage", faults->garbage},
    };
    json_t *o = json_pack (
        "{s:I, s:o, s:o, s:o, s:I, s:I, s:b, s:I, s:I, s:I, s:I}", "step",
        (json_int_t)b->step, "loss", number (b->loss), "grad_norm",
        number (b->grad_norm), "lr", number (b->lr), "cycle",
        (json_int_t)m->cycle, "tokens", (json_int_t)b->tokens, "skipped",
        b->skipped, "none", (json_int_t)m->none, "rollout_tokens",
        (json_int_t)m->rollout_tokens, "n_skips", (json_int_t)b->n_skips,
        "mem_bytes", (json_int_t)mem_bytes);

    for (size_t i = 0; o && i < sizeof (v) / sizeof (*v); i++)
        json_object_set_new (o, v[i].name, number (v[i].value));
    for (size_t i = 0; o && i < sizeof (n) / sizeof (*n); i++)
        json_object_set_new (o, n[i].name, json_integer (n[i].value));
    if (!add_rewards (o, judge, rewards)) {
        json_decref (o);
        o = NULL; /* which is no memory */
    }
    return put (to, o, err);
}

static json_t *rewards_of (const struct grpo_judge *j,
                           const train_grpo_sample_t *s)
{
    json_t *o = json_object ();

    for (size_t k = 0; k < j->n; k++)
        json_object_set_new (o, j->set->rewards.list[k].name,
                             number ((double)s->rewards[k]));
    return o;
}

/* Bytes that are no UTF-8 are shown as U+FFFD. */
static json_t *text_of (const char *text, size_t size)
{
    json_t *o = json_stringn (text, size);

    return o ? o : json_string ("\xef\xbf\xbd");
}

static train_status_t one (struct metrics *to, int64_t step,
                           const struct grpo_rows *rows,
                           const struct grpo_judge *j,
                           const train_grpo_sample_t *s, train_error_t *err)
{
    const char *prompt =
        train_prompts_text (grpo_rows_prompts (rows), (size_t)s->prompt);
    size_t size;
    char *text;
    json_t *o;

    TRY (grpo_rows_text (rows, s, &text, &size, err));
    o = json_pack (
        "{s:I, s:o, s:o, s:i, s:b, s:o, s:o}", "step", (json_int_t)step,
        "prompt", text_of (prompt, strlen (prompt)), "completion",
        text_of (text, size), "tokens", s->n, "cut", s->cut, "rewards",
        rewards_of (j, s), "advantage", number ((double)s->advantage));
    free (text);
    return put (to, o, err);
}

train_status_t grpo_log_completions (struct metrics *to, int64_t step,
                                     const struct grpo_rows *rows,
                                     const struct grpo_judge *judge,
                                     const train_grpo_sample_t *samples, int n,
                                     train_error_t *err)
{
    for (int i = 0; i < n; i++)
        TRY (one (to, step, rows, judge, &samples[i], err));
    return TRAIN_OK;
}
