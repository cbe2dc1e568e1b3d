/* SPDX-License-Identifier: Apache-2.0
 * grpo_cycle.c - what the steps of a cycle share: completions, rewards,
 * advantages, masks */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "grpo_run.h"
#include "permute.h"

/* Streams of the seed: of orders of prompts, of tokens, of shuffled advantages.
 */
enum { ORDER = 0x6f72, TOKENS = 0x746f, MIX = 0x6d69 };

static int64_t prompt_at (const train_grpo_trainer_t *t, int64_t position)
{
    uint64_t n = (uint64_t)t->prompts.count;
    uint64_t epoch = (uint64_t)position / n, index = (uint64_t)position % n;

    if (!t->o.shuffle)
        return (int64_t)index;
    return (int64_t)permute (index, n, t->o.seed ^ ORDER, epoch);
}

static train_status_t take_prompts (train_grpo_trainer_t *t, int64_t cycle,
                                    train_error_t *err)
{
    struct grpo_texts *x = &t->texts;
    int64_t groups = x->M / t->o.group;

    for (int k = 0; k < x->M; k++)
        TRY (grpo_texts_ask (x, k, &t->prompts,
                             prompt_at (t, cycle * groups + k / t->o.group),
                             err));
    return TRAIN_OK;
}

/* Each cycle draws by a seed of its own: a bijection of 64 bits (the finalizer
 * of Steele et al. 2014, "Fast splittable pseudorandom number generators"). */
static uint64_t seed_of (uint64_t seed, uint64_t cycle)
{
    uint64_t z = (seed ^ TOKENS) + (cycle + 1) * 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static train_status_t value (train_grpo_trainer_t *t,
                             train_grpo_advantage_report_t *ret,
                             train_error_t *err)
{
    const train_grpo_advantage_options_t a = {
        .size = sizeof (a),
        .group = t->o.group,
        .rewards = t->o.rewards,
        .weights = t->o.weights,
        .scale = t->o.scale,
        .base = t->o.base,
        .combine = t->o.combine,
    };
    struct grpo_texts *x = &t->texts;
    int64_t M = x->M;
    int64_t *n = t->lengths;

    for (int k = 0; k < x->M; k++)
        n[k] = x->n[k];
    TRY (train_grpo_mask (x->ids, n, M, x->L, t->o.ends, (int64_t)t->o.n_ends,
                          false, t->mask, t->lengths, err));
    for (int k = 0; t->o.drop_cut && k < x->M; k++)
        if (x->sample[k].cut) {
            memset (t->mask + (size_t)k * (size_t)x->L, 0, (size_t)x->L);
            n[k] = 0;
        }
    return train_grpo_advantages (&a, x->rewards, t->lengths, M, t->adv, ret,
                                  err);
}

static train_status_t mix (train_grpo_trainer_t *t, int64_t cycle,
                           train_error_t *err)
{
    size_t M = (size_t)t->texts.M;
    float *was = malloc (M * sizeof (*was));

    if (!was)
        return err_set (err, TRAIN_ENOMEM, "no memory for advantages");
    memcpy (was, t->adv, M * sizeof (*was));
    for (size_t k = 0; k < M; k++)
        t->adv[k] = was[permute (k, M, t->o.seed ^ MIX, (uint64_t)cycle)];
    free (was);
    return TRAIN_OK;
}

static bool no_reward (const train_grpo_trainer_t *t, int k)
{
    for (int r = 0; r < t->o.rewards; r++)
        if (!isnan (t->texts.sample[k].rewards[r]))
            return false;
    return true;
}

static void describe (train_grpo_trainer_t *t,
                      const train_grpo_advantage_report_t *report)
{
    struct grpo_texts *x = &t->texts;
    train_grpo_metrics_t *m = &t->m;

    m->reward = report->counted ? report->mean : NAN;
    m->reward_std = report->counted ? report->deviation : NAN;
    m->zero_spread = report->zero_spread;
    m->length_min = x->L;
    for (int k = 0; k < x->M; k++) {
        double n = x->n[k];

        x->sample[k].advantage = t->adv[k];
        m->length += n / x->M;
        m->length_min = n < m->length_min ? n : m->length_min;
        m->length_max = n > m->length_max ? n : m->length_max;
        m->cut += (double)x->sample[k].cut / x->M;
        m->none += no_reward (t, k);
        m->rollout_tokens += x->n[k];
    }
}

train_status_t grpo_cycle (train_grpo_trainer_t *t, int64_t cycle,
                           train_error_t *err)
{
    const struct grpo_pen pen = {seed_of (t->o.seed, (uint64_t)cycle),
                                 t->o.temperature, t->o.group};
    train_grpo_advantage_report_t report = {.size = sizeof (report)};
    double begin = grpo_now (), written;

    t->made = 0;
    t->m = (train_grpo_metrics_t){.cycle = cycle + 1};
    TRY (take_prompts (t, cycle, err));
    TRY (grpo_texts_write (t, &t->texts, &pen, err));
    written = grpo_now ();
    t->m.rollout_s = written - begin;
    TRY (grpo_texts_score (t, &t->texts, t->o.rewards, t->score, t->score_arg,
                           err));
    TRY (value (t, &report, err));
    if (t->o.mix)
        TRY (mix (t, cycle, err));
    describe (t, &report);
    t->m.reward_s = grpo_now () - written;
    t->made = cycle + 1;
    return TRAIN_OK;
}
