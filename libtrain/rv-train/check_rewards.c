/* SPDX-License-Identifier: Apache-2.0
 * check_rewards.c - whether rewards of a run that is checked have anything to say
 *
 * Whether a rule has does not hang on the completion, so rows are tried with an
 * empty one. A program is asked only where that was asked for: it may take a GPU. */
#include "check_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "libtrain/err.h"
#include "run_impl.h"

#define AT_ONCE 256

/* A reward before all rows. */
struct trial {
    const struct settings *set;
    const struct settings_reward *of;
    const train_prompts_t *prompts;
    size_t n, silent,
        first; /* rows; of which it says nothing; the first such */
};

static train_status_t try_some (struct trial *t, train_reward_t *reward,
                                size_t from, train_error_t *err)
{
    train_sample_t s[AT_ONCE] = {{0}};
    float said[AT_ONCE] = {0};
    size_t n = t->n - from < AT_ONCE ? t->n - from : AT_ONCE;

    for (size_t i = 0; i < n; i++)
        s[i] = (train_sample_t){
            .prompt = train_prompts_text (t->prompts, from + i),
            .completion = "",
            .row = train_prompts_row (t->prompts, from + i),
        };
    TRY (train_reward_score (reward, s, (int)n, said, err));
    for (size_t i = 0; i < n; i++)
        if (isnan (said[i]) && t->silent++ == 0)
            t->first = from + i;
    return TRAIN_OK;
}

static const char *field_of (const struct settings_reward *r)
{
    return r->field ? r->field : "answer";
}

/* What a row must have for the reward. */
static void say_need (const struct settings_reward *r, char *buf, size_t size)
{
    if (r->kind != TRAIN_REWARD_ARITHMETIC)
        snprintf (buf, size, "the field '%.64s', a text or a number",
                  field_of (r));
    else if (r->field)
        snprintf (buf, size,
                  "the field '%.64s', with an expression that has a result",
                  r->field);
    else
        snprintf (buf, size,
                  "an expression that has a result in the prompt, or [reward "
                  "%.64s] field",
                  r->name);
}

static train_status_t judge_of (const struct trial *t, train_error_t *err)
{
    char need[200], at[256], where[256], section[80];

    if (t->silent == 0)
        return TRAIN_OK;
    say_need (t->of, need, sizeof (need));
    train_prompts_where (t->prompts, t->first, at, sizeof (at));
    snprintf (section, sizeof (section), "reward %.64s", t->of->name);
    if (t->silent == t->n)
        return err_set (
            err, TRAIN_EINVAL,
            "%s: has nothing to say of any prompt, as that of %s; "
            "it needs %s",
            settings_where (t->set, section, "kind", where, sizeof (where)), at,
            need);
    fprintf (
        stderr,
        "rv-train: [reward %s] has nothing to say of %zu of %zu prompts, as "
        "that of %s; it needs %s\n",
        t->of->name, t->silent, t->n, at, need);
    return TRAIN_OK;
}

static train_status_t try_rule (struct trial *t, train_reward_t *reward,
                                train_error_t *err)
{
    if (t->of->kind == TRAIN_REWARD_PROGRAM)
        return TRAIN_OK;
    for (size_t at = 0; at < t->n; at += AT_ONCE)
        TRY (try_some (t, reward, at, err));
    return judge_of (t, err);
}

static train_status_t ask (train_reward_t *reward, const char *name,
                           const train_prompts_t *prompts,
                           struct check_reward *ret, train_error_t *err)
{
    const char *answer = train_prompts_answer (prompts, 0);
    const train_sample_t s = {
        .prompt = train_prompts_text (prompts, 0),
        .completion = answer ? answer : "",
        .row = train_prompts_row (prompts, 0),
    };
    double begin = run_now ();
    char at[256];
    float said;

    TRY (train_reward_score (reward, &s, 1, &said, err));
    if (train_reward_fault (reward))
        return err_set (
            err, TRAIN_EPEER,
            "[reward %.64s]: %s, asked for the prompt of %s with %s "
            "as the completion",
            name, train_reward_fault (reward),
            train_prompts_where (prompts, 0, at, sizeof (at)),
            answer ? "its answer" : "nothing");
    *ret = (struct check_reward){(double)said, run_now () - begin};
    return TRAIN_OK;
}

static train_status_t ask_all (struct check *c, struct grpo_judge *judge,
                               const train_prompts_t *prompts,
                               train_error_t *err)
{
    if (!(c->said = calloc (judge->n, sizeof (*c->said))))
        return err_set (err, TRAIN_ENOMEM, "no memory for rewards");
    for (size_t k = 0; k < judge->n; k++)
        TRY (ask (judge->reward[k], judge->set->rewards.list[k].name, prompts,
                  &c->said[k], err));
    return TRAIN_OK;
}

train_status_t check_rewards (struct check *c, struct grpo_judge *judge,
                              const struct grpo_rows *rows, train_error_t *err)
{
    const train_prompts_t *prompts = grpo_rows_prompts (rows);

    for (size_t k = 0; k < judge->n; k++) {
        struct trial t = {
            .set = &c->set,
            .of = &c->set.rewards.list[k],
            .prompts = prompts,
            .n = train_prompts_count (prompts),
        };

        TRY (try_rule (&t, judge->reward[k], err));
    }
    return c->rewards ? ask_all (c, judge, prompts, err) : TRAIN_OK;
}
