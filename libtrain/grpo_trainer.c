/* SPDX-License-Identifier: Apache-2.0
 * grpo_trainer.c - the loop of GRPO over the trainer's steps */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

#include "err.h"
#include "grpo.h"
#include "grpo_run.h"
#include "opts.h"

double grpo_now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static train_status_t wrong (const char *what, double value, const char *must,
                             train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL, "grpo: %s %g is not %s", what, value,
                    must);
}

static train_status_t check_sizes (const train_grpo_trainer_options_t *o,
                                   train_error_t *err)
{
    int64_t all = (int64_t)o->trainer.batch * o->steps;

    if (o->group < 2)
        return wrong ("group", o->group, "at least 2", err);
    if (o->steps < 1)
        return wrong ("steps", o->steps, "at least 1", err);
    if (o->iterations < 1)
        return wrong ("iterations", o->iterations, "at least 1", err);
    if (o->max_new < 1)
        return wrong ("max_new", o->max_new, "at least 1", err);
    if (o->rewards < 1)
        return wrong ("rewards", o->rewards, "at least 1", err);
    if (all < 1 || all > 1 << 24 || all % o->group != 0)
        return err_set (err, TRAIN_EINVAL,
                        "grpo: batch %d times steps %d is not a multiple of "
                        "group %d",
                        o->trainer.batch, o->steps, o->group);
    if (all * o->max_new > (int64_t)1 << 31)
        return err_set (err, TRAIN_EINVAL,
                        "grpo: %lld completions of %d tokens are too many",
                        (long long)all, o->max_new);
    return TRAIN_OK;
}

static train_status_t check (train_grpo_trainer_options_t *o,
                             const train_grpo_trainer_options_t *given,
                             train_error_t *err)
{
    TRY (opts_read (o, sizeof (*o), given, "grpo trainer", err));
    if (o->temperature == 0)
        o->temperature = 1;
    if (o->steps == 0)
        o->steps = 1;
    if (o->iterations == 0)
        o->iterations = 1;
    if (o->rewards == 0)
        o->rewards = 1;
    if (o->held < 0 || o->held_prompt < 0)
        return wrong ("held or held_prompt",
                      o->held < o->held_prompt ? o->held : o->held_prompt,
                      "at least 0", err);
    if (o->gather > TRAIN_GRPO_GATHER_UNIT)
        return wrong ("gather", o->gather, "one of the three", err);
    o->loss.size = sizeof (o->loss);
    TRY (check_sizes (o, err));
    if (!isfinite (o->temperature) || o->temperature <= 0)
        return wrong ("temperature", o->temperature, "above 0", err);
    if (o->trainer.dropout > 0)
        return wrong ("dropout", o->trainer.dropout,
                      "0: the policy that is trained would not be the one that "
                      "wrote",
                      err);
    return TRAIN_OK;
}

static train_status_t check_loss (const train_grpo_trainer_t *t,
                                  train_error_t *err)
{
    const train_decoder_config_t *c = train_decoder_config (t->decoder);
    const train_grpo_options_t *l = &t->o.loss;

    if (l->beta > 0 && !t->reference)
        return err_set (err, TRAIN_EINVAL,
                        "grpo: beta %g asks for a reference, and there is none",
                        l->beta);
    if (c->device.device_type == kDLCUDA
        && (c->dtype == TRAIN_F16 || t->o.trainer.scaler))
        return err_set (err, TRAIN_ENOTSUP,
                        "grpo: F16 and loss scales are not served on a GPU; "
                        "BF16 without one is");
    return TRAIN_OK;
}

/* Is the policy that is trained not, or not surely, the one that wrote? */
static bool wants_old (const train_grpo_trainer_t *t)
{
    return t->o.steps > 1 || t->o.iterations > 1 || t->o.old_is_sampler;
}

static train_status_t make_room (train_grpo_trainer_t *t, train_error_t *err)
{
    int M = t->o.trainer.batch * t->o.steps;
    size_t m = (size_t)M, all = m * (size_t)t->o.max_new;

    TRY (grpo_texts_init (&t->texts, M, t->o.max_new, t->o.rewards, err));
    t->adv = calloc (m, sizeof (*t->adv));
    t->mask = calloc (all, 1);
    t->lengths = calloc (m, sizeof (*t->lengths));
    t->lens = calloc (2 * m, sizeof (*t->lens));
    if (wants_old (t))
        t->old = calloc (all, sizeof (*t->old));
    if (t->o.loss.beta > 0)
        t->ref = calloc (all, sizeof (*t->ref));
    if (!t->adv || !t->mask || !t->lengths || !t->lens
        || (wants_old (t) && !t->old) || (t->o.loss.beta > 0 && !t->ref))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for %d completions of %d tokens", M,
                        t->o.max_new);
    return TRAIN_OK;
}

/* All that decides what is learnt, for ranks and checkpoints to compare. */
static uint64_t hash_of (const train_grpo_trainer_t *t)
{
    const train_grpo_trainer_options_t *o = &t->o;
    const train_grpo_options_t *l = &o->loss;
    double v[] = {o->group,
                  o->steps,
                  o->iterations,
                  o->max_new,
                  o->temperature,
                  o->top_k,
                  o->top_p,
                  o->min_p,
                  o->repetition,
                  o->batch_invariant,
                  o->drop_cut,
                  o->old_is_sampler,
                  o->rewards,
                  o->scale,
                  o->base,
                  o->combine,
                  o->mix,
                  l->kind,
                  l->sequence_ratio,
                  l->low,
                  l->high,
                  l->cap,
                  l->delta,
                  l->dual,
                  l->tau_positive,
                  l->tau_negative,
                  l->beta,
                  l->kl,
                  l->kl_gradient,
                  l->correct,
                  l->least,
                  l->most,
                  l->off_policy_mask,
                  l->off_policy};
    uint64_t h = XXH3_64bits_withSeed (v, sizeof (v), t->prompts.hash);

    h = XXH3_64bits_withSeed (o->ends, o->n_ends * sizeof (*o->ends), h);
    h = XXH3_64bits_withSeed (&o->stops_hash, sizeof (o->stops_hash), h);
    if (o->weights)
        h = XXH3_64bits_withSeed (o->weights,
                                  (size_t)o->rewards * sizeof (*o->weights), h);
    return h;
}

/* Tokens of the longest prompt with a whole completion: what a checkpoint says
 * that its model goes to. */
static int longest (const train_grpo_trainer_t *t)
{
    size_t most = 0;

    for (int64_t i = 0; i < t->prompts.count; i++) {
        size_t n = 0;

        if (t->prompts.ids (t->prompts.arg, i, &n) && n > most)
            most = n;
    }
    return (int)(most < 1 << 24 ? most : 1 << 24) + t->o.max_new;
}

static train_status_t set_up (train_grpo_trainer_t *t, train_error_t *err)
{
    const struct trainer_source source = {
        .pass = grpo_pass,
        .beside = grpo_beside,
        .loaded = grpo_loaded,
        .arg = t,
        .seq = longest (t),
        .shuffle = t->o.shuffle,
        .seed = t->o.seed,
        .hash = hash_of (t),
        .hashed =
            "the prompts, of [grpo], and of the rewards' number and weights",
    };

    TRY (check_loss (t, err));
    TRY (make_room (t, err));
    TRY (trainer_create (&t->o.trainer, t->group, NULL, &source, t->decoder,
                         &t->trainer, err));
    return grpo_choose (t, source.seq, err);
}

train_status_t train_grpo_trainer_create (
    const train_grpo_trainer_options_t *opts, train_group_t *group,
    const train_grpo_prompts_t *prompts, train_grpo_score_t score,
    void *score_arg, train_decoder_t *decoder, train_reference_t *reference,
    train_grpo_trainer_t **ret, train_error_t *err)
{
    train_grpo_trainer_options_t o;
    train_grpo_trainer_t *t;
    train_status_t status;

    TRY (check (&o, opts, err));
    if (!group || !prompts || !score || !decoder || !ret || !prompts->ids
        || prompts->count < 1)
        return err_set (err, TRAIN_EINVAL,
                        "grpo: group, prompts, score, decoder or ret is "
                        "missing");
    if (!(t = calloc (1, sizeof (*t))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a trainer");
    t->o = o;
    t->group = group;
    t->prompts = *prompts;
    t->score = score;
    t->score_arg = score_arg;
    t->decoder = decoder;
    t->reference = reference;
    if ((status = set_up (t, err)) != TRAIN_OK)
        train_grpo_trainer_destroy (t);
    else
        *ret = t;
    return status;
}

void train_grpo_trainer_destroy (train_grpo_trainer_t *t)
{
    if (!t)
        return;
    train_trainer_destroy (t->trainer);
    grpo_work_fini (t);
    grpo_texts_fini (&t->texts);
    free (t->adv);
    free (t->mask);
    free (t->lengths);
    free (t->lens);
    free (t->old);
    free (t->ref);
    free (t);
}

train_trainer_t *train_grpo_trainer_base (train_grpo_trainer_t *t)
{
    return t->trainer;
}

struct grpo_place grpo_place (const train_grpo_trainer_t *t, int64_t step)
{
    int64_t length = (int64_t)t->o.steps * t->o.iterations;
    int at = (int)(step % length);

    return (struct grpo_place){step / length, at,
                               at % t->o.steps * t->o.trainer.batch};
}

bool train_grpo_trainer_between (const train_grpo_trainer_t *t)
{
    return grpo_place (t, train_trainer_steps (t->trainer)).at == 0;
}

const train_grpo_sample_t *train_grpo_trainer_samples (
    const train_grpo_trainer_t *t, int *ret_n)
{
    *ret_n = t->made ? t->texts.M : 0;
    return t->texts.sample;
}

train_status_t train_grpo_trainer_rewards (const train_grpo_trainer_t *t,
                                           train_grpo_spread_t *ret,
                                           train_error_t *err)
{
    if (!t->made)
        return err_set (err, TRAIN_ESTATE, "grpo: no cycle has been made");
    return grpo_spreads (t->texts.rewards, t->lengths, t->texts.M, t->o.rewards,
                         ret, err);
}

/* What the ranks' passes of a step add up to. */
static train_status_t sum_up (train_grpo_trainer_t *t, train_error_t *err)
{
    const train_grpo_report_t *r = &t->report;
    double v[] = {r->loss,      (double)r->tokens,      r->kl_sum,
                  r->ratio_sum, (double)r->clipped_low, (double)r->clipped_high,
                  t->entropy,   r->correction_sum,      (double)r->dropped};
    double n;

    TRY (grpo_sum (t, v, TRAIN_F64, sizeof (v) / sizeof (*v), err));
    n = v[1] > 0 ? v[1] : 1;
    t->trainer->loss = v[0];
    t->m.kl = v[2] / n;
    t->m.ratio = v[3] / n;
    t->m.clip_low = v[4] / n;
    t->m.clip_high = v[5] / n;
    t->m.entropy = v[6] / n;
    t->m.correction = v[7] / n;
    t->m.dropped = (int64_t)v[8];
    return TRAIN_OK;
}

/* With whole weights, which then go, or by units. */
static train_status_t begin_cycle (train_grpo_trainer_t *t, int64_t cycle,
                                   train_error_t *err)
{
    train_status_t status;
    double start;

    TRY (grpo_whole (t, err));
    status = grpo_cycle (t, cycle, err);
    start = grpo_now ();
    if (status == TRAIN_OK && (t->old || t->ref))
        status = grpo_logps (t, err);
    t->m.logps_s = grpo_now () - start;
    grpo_whole_end (t);
    return status;
}

static train_status_t begin (train_grpo_trainer_t *t, train_error_t *err)
{
    struct grpo_place p = grpo_place (t, train_trainer_steps (t->trainer));

    if (p.at != 0 && t->made != p.cycle + 1)
        return err_set (err, TRAIN_ESTATE,
                        "grpo: step %lld is in mid-cycle, and its completions "
                        "are not there, for a load or the cycle failed",
                        (long long)train_trainer_steps (t->trainer));
    t->m.rollout_s = t->m.reward_s = t->m.logps_s = 0;
    t->m.rollout_tokens = 0;
    return p.at == 0 ? begin_cycle (t, p.cycle, err) : TRAIN_OK;
}

train_status_t train_grpo_trainer_step (train_grpo_trainer_t *t, bool stop,
                                        train_grpo_metrics_t *ret,
                                        train_error_t *err)
{
    train_metrics_t base = {0};
    double start;

    TRY (begin (t, err));
    grpo_count_anew (t);
    start = grpo_now ();
    TRY (train_trainer_step (t->trainer, stop, &base, err));
    t->m.update_s = grpo_now () - start;
    TRY (sum_up (t, err));
    base.loss = t->trainer->loss;
    t->m.base = base;
    if (!ret)
        return TRAIN_OK;
    return opts_give (ret, &t->m, sizeof (t->m), "grpo metrics", err);
}

static double worth (const struct grpo_texts *x, const double *weights, int R,
                     int64_t *ret_n)
{
    double sum = 0;

    for (int k = 0; k < x->M; k++) {
        double one = 0;
        bool any = false;

        for (int r = 0; r < R; r++) {
            double v = (double)x->sample[k].rewards[r];

            if (isnan (v))
                continue;
            any = true;
            one += (weights ? weights[r] : 1) * v;
        }
        sum += one;
        *ret_n += any;
    }
    return sum;
}

train_status_t train_grpo_trainer_try (train_grpo_trainer_t *t,
                                       const train_grpo_prompts_t *prompts,
                                       int64_t n, double temperature,
                                       train_grpo_score_t score, void *arg,
                                       double *ret_reward, train_error_t *err)
{
    const struct grpo_pen pen = {t->o.seed, temperature, 1};
    struct grpo_texts x = {0};
    int64_t counted = 0;
    double sum;
    train_status_t status;

    if (n < 1 || n > prompts->count || n > 1 << 24)
        return wrong ("number of prompts", (double)n, "one that there are",
                      err);
    status = grpo_texts_init (&x, (int)n, t->o.max_new, t->o.rewards, err);
    for (int k = 0; status == TRAIN_OK && k < x.M; k++)
        status = grpo_texts_ask (&x, k, prompts, k, err);
    if (status == TRAIN_OK)
        status = grpo_whole (t, err);
    if (status == TRAIN_OK)
        status = grpo_texts_write (t, &x, &pen, err);
    grpo_whole_end (t);
    if (status == TRAIN_OK)
        status = grpo_texts_score (t, &x, t->o.rewards, score, arg, err);
    if (status == TRAIN_OK) {
        sum = worth (&x, t->o.weights, t->o.rewards, &counted);
        *ret_reward = counted ? sum / (double)counted : NAN;
    }
    grpo_texts_fini (&x);
    return status;
}
