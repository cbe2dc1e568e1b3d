/* SPDX-License-Identifier: Apache-2.0
 * grpo.c - set a run of GRPO up, take its steps, save it
 *
 * What is shared with other tasks is run.c's. */
#include "config.h"

#include "grpo.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/err.h"
#include "libtrain/trainer.h"
#include "device.h"
#include "grpo_faults.h"
#include "grpo_log.h"
#include "grpo_rows.h"
#include "heard.h"
#include "model_dir.h"
#include "oom.h"
#include "run_impl.h"

struct grpo {
    struct run run;
    struct grpo_judge judge;
    struct grpo_rows *rows, *held; /* held: NULL: none */
    train_reference_t *reference;  /* NULL: none */
    train_grpo_trainer_t *trainer;
    struct metrics *completions; /* rank 0's; NULL: no file */
    double first, last;          /* rewards; NaN: none */
    bool begun;                  /* a step was made */
    const volatile sig_atomic_t *stop;
    struct heard *heard; /* the other ranks' */
};

static bool is_stopped (void *arg)
{
    const struct grpo *g = arg;

    return *g->stop != 0 || heard_stop (g->heard);
}

static train_status_t open_rows (struct grpo *g, train_error_t *err)
{
    const struct settings *set = g->run.set;

    TRY (grpo_judge_open (&g->judge, set, is_stopped, g, err));
    TRY (grpo_rows_open (&g->rows, &g->judge, "data", set->files, err));
    grpo_stop_add (g->judge.stop,
                   train_prompts_end (grpo_rows_prompts (g->rows)));
    if (set->eval.every == 0)
        return TRAIN_OK;
    return grpo_rows_open (&g->held, &g->judge, "eval", set->eval.files, err);
}

/* Has no rank the whole policy? */
static bool is_bare (const struct grpo *g)
{
    return g->run.set->strategy >= TRAIN_SHARD_GRAD_OP;
}

static bool has_adapters (const struct grpo *g)
{
    return g->run.config.lora.rank > 0;
}

static enum settings_reference which_reference (const struct grpo *g,
                                                bool *ret_parts)
{
    const struct run *r = &g->run;

    return settings_grpo_reference (r->set, has_adapters (g),
                                    train_group_size (r->group), ret_parts);
}

static train_status_t open_units (struct grpo *g, bool parts,
                                  train_error_t *err)
{
    const struct run *r = &g->run;
    const train_reference_units_options_t o = {
        .size = sizeof (o),
        .group = !parts    ? NULL
                 : r->gpus ? r->gpus
                           : r->group,
        .offload = r->set->grpo.ref_offload,
        .dir = r->model_dir,
        .seed = (uint64_t)r->set->seed,
    };

    return model_named (
        r->set, train_reference_open_units (&r->config, &o, &g->reference, err),
        err);
}

/* A node's first rank speaks: of its node alone the way there may be shut. */
static void say_wait (void *arg, const char *why, double seconds)
{
    const struct grpo *g = arg;
    const train_group_t *group = g->run.group;
    char who[RUN_WHO];

    if (train_group_local_rank (group) > 0)
        return;
    run_who (train_group_rank (group), train_group_size (group), who);
    if (why)
        fprintf (stderr,
                 "rv-train%s: reference %s does not answer (%s); waiting for "
                 "it, up to %.0f s\n",
                 who, g->run.set->grpo.url, why, seconds);
    else
        fprintf (stderr, "rv-train%s: reference %s answers, after %.1f s\n",
                 who, g->run.set->grpo.url, seconds);
}

static train_status_t open_reference (struct grpo *g, train_error_t *err)
{
    const struct settings_grpo *s = &g->run.set->grpo;
    const train_reference_http_options_t http = {
        .size = sizeof (http),
        .token_file = s->token_file,
        .vocab = train_decoder_config (g->run.decoder)->vocab,
        .ends = is_stopped,
        .ends_arg = g,
        .waits = say_wait,
        .waits_arg = g,
    };
    bool parts;

    switch (which_reference (g, &parts)) {
    case REFERENCE_SERVER:
        return train_reference_open_http (s->url, &http, &g->reference, err);
    case REFERENCE_BASE:
        return train_reference_open_base (g->run.decoder, &g->reference, err);
    case REFERENCE_COPY:
        return train_reference_open_copy (g->run.decoder, &g->reference, err);
    case REFERENCE_UNITS:
        return open_units (g, parts, err);
    default:
        return TRAIN_OK;
    }
}

/* Prompts of an evaluation. */
static int64_t count_held (const struct grpo *g)
{
    int64_t wanted = g->run.set->eval.samples, there;

    if (!g->held)
        return 0;
    there = (int64_t)train_prompts_count (grpo_rows_prompts (g->held));
    return wanted > 0 && wanted < there ? wanted : there;
}

static train_status_t open_trainer (struct grpo *g, train_error_t *err)
{
    const struct settings *set = g->run.set;
    train_grpo_trainer_options_t o = settings_grpo_options (set);
    train_grpo_prompts_t prompts = grpo_rows_view (g->rows);
    size_t row;

    o.trainer.device_group = g->run.gpus;
    grpo_stop_options (g->judge.stop, &o);
    o.rewards = (int)g->judge.n;
    o.weights = g->judge.weight;
    o.held = (int)count_held (g);
    if (g->held)
        o.held_prompt = (int)grpo_rows_longest (g->held, &row);
    TRY (train_grpo_trainer_create (&o, g->run.group, &prompts, grpo_rows_score,
                                    g->rows, g->run.decoder, g->reference,
                                    &g->trainer, err));
    g->run.trainer = train_grpo_trainer_base (g->trainer);
    return is_bare (g) || has_adapters (g) ? run_first_weights (&g->run, err)
                                           : TRAIN_OK;
}

/* A base model's folder has no template that would name its end. */
static void take_ends (struct grpo *g)
{
    int32_t eos[8];
    size_t n = g->run.model_dir ? model_eos (g->run.model_dir, eos, 8) : 0;

    for (size_t i = 0; i < n; i++)
        if (eos[i] < g->run.config.vocab)
            grpo_stop_add (g->judge.stop, eos[i]);
}

/* Weights that a trainer gives its model are read behind it. */
static train_status_t create_decoder (struct grpo *g, train_error_t *err)
{
    struct run *r = &g->run;

    if (is_bare (g))
        return train_decoder_create_bare (&r->config, &r->decoder, err);
    if (has_adapters (g))
        return train_decoder_create (&r->config, &r->decoder, err);
    return model_create (r->set, &r->config, r->model_dir, &r->decoder, err);
}

static train_status_t open_model (struct grpo *g, train_error_t *err)
{
    struct run *r = &g->run;
    train_status_t status;

    TRY (run_describe (r, err));
    take_ends (g);
    TRY (device_open (r->set, r->group, &r->config, r->device,
                      sizeof (r->device), &r->gpus, err));
    status = grpo_rows_fit (g->rows, g->held, &r->config, r->model_dir,
                            r->first, err);
    if (status == TRAIN_OK)
        status = create_decoder (g, err);
    if (status == TRAIN_OK)
        status = open_reference (g, err);
    TRY (trainer_agree (r->group, status, err));
    return open_trainer (g, err);
}

static const char *name_reference (const struct grpo *g)
{
    const struct settings_grpo *s = &g->run.set->grpo;
    bool parts;

    switch (which_reference (g, &parts)) {
    case REFERENCE_NONE:
        return "none";
    case REFERENCE_SERVER:
        return s->url;
    case REFERENCE_BASE:
        return "the policy without adapters";
    default:
        break;
    }
    if (s->ref_offload)
        return parts ? "a part a rank, in the host's memory"
                     : "a copy in the host's memory";
    return parts ? "a part a rank" : "a copy";
}

/* What may be and is seldom meant. */
static void say_doubts (const struct settings *set,
                        const struct grpo_stop *stop)
{
    if (grpo_stop_is_none (stop))
        fprintf (stderr,
                 "rv-train: nothing ends a completion but [grpo] "
                 "max_completion_length: no end is known; [data] end or "
                 "[grpo] stop would name one\n");
    if (set->model_dir && !settings_given (set, "optim", "lr"))
        fprintf (stderr,
                 "rv-train: [optim] lr is not set, so %g; a model that has "
                 "learnt already takes 1e-6 to 1e-4\n",
                 set->lr);
}

/* How sharded weights come to where completions are written. */
static void say_gather (const struct grpo *g)
{
    bool whole =
        train_grpo_trainer_gather (g->trainer) == TRAIN_GRPO_GATHER_WHOLE;

    if (is_bare (g))
        printf ("gather: %s%s\n", whole ? "whole, once a cycle" : "by units",
                whole || g->run.set->grpo.gather == TRAIN_GRPO_GATHER_UNIT
                    ? ""
                    : ", for a rank has no room for the whole policy");
}

static void say_start (const struct grpo *g)
{
    const struct run *r = &g->run;
    const train_decoder_config_t *c = train_decoder_config (r->decoder);
    int ranks = train_group_size (r->group);

    if (!r->first)
        return;
    printf ("rv-train " PACKAGE_VERSION ": %d rank%s (%s), device %s\n", ranks,
            ranks == 1 ? "" : "s",
            train_group_backend (r->gpus ? r->gpus : r->group), r->device);
    printf ("model: %zu parameters, %d layers of %d, %d heads\n",
            train_decoder_numel (r->decoder), c->layers, c->dim, c->heads);
    run_say_shard (r);
    say_gather (g);
    printf ("grpo: %zu prompts, %" PRId64 " completions of each, %" PRId64
            " a step, %zu reward%s, reference %s\n",
            train_prompts_count (grpo_rows_prompts (g->rows)),
            r->set->grpo.group, r->set->batch, g->judge.n,
            g->judge.n == 1 ? "" : "s", name_reference (g));
    fflush (stdout);
    say_doubts (r->set, g->judge.stop);
}

/* Is something of others waited for, maybe for long? */
static bool may_wait (const struct settings *set)
{
    for (size_t i = 0; i < set->rewards.n; i++)
        if (set->rewards.list[i].kind == TRAIN_REWARD_PROGRAM)
            return true;
    return set->grpo.url != NULL;
}

static train_status_t begin (struct grpo *g, struct who *ret_who,
                             train_error_t *err)
{
    struct run *r = &g->run;
    train_status_t status = train_group_create (NULL, &r->group, err);

    if (status != TRAIN_OK)
        return status;
    ret_who->rank = train_group_rank (r->group);
    ret_who->size = train_group_size (r->group);
    r->first = ret_who->rank == 0;
    run_share_cpus (r->group);
    if (may_wait (r->set))
        status = heard_open (&g->heard, r->group, g->stop, err);
    if (status == TRAIN_OK)
        status =
            train_trace_open (r->set->trace, ret_who->rank, ret_who->size, err);
    if (status == TRAIN_OK)
        status = open_rows (g, err);
    return trainer_agree (r->group, status, err);
}

static train_status_t set_up (struct grpo *g, struct who *ret_who,
                              train_error_t *err)
{
    struct run *r = &g->run;
    const struct settings *set = r->set;

    TRY (begin (g, ret_who, err));
    TRY (run_prepare_ckpt (r, err));
    TRY (open_model (g, err));
    say_start (g);
    TRY (run_resume (r, err));
    TRY (run_open_file (r, set->log_file, &r->metrics, err));
    return run_open_file (r, set->grpo.completions, &g->completions, err);
}

/* Of the likeliest completions of what is held out. */
static train_status_t try_held (struct grpo *g, int64_t step, double *ret,
                                train_error_t *err)
{
    const struct settings *set = g->run.set;
    train_grpo_prompts_t prompts;

    *ret = NAN;
    if (!g->held
        || (step % set->eval.every != 0 && step != set->steps && step != 0))
        return TRAIN_OK;
    prompts = grpo_rows_view (g->held);
    return train_grpo_trainer_try (g->trainer, &prompts, count_held (g), 0,
                                   grpo_rows_score, g->held, ret, err);
}

/* A step that is made counts, also where a stop leaves it without a number. */
static train_status_t evaluate (struct grpo *g, train_metrics_t *m, double *ret,
                                train_error_t *err)
{
    train_status_t status = try_held (g, m->step, ret, err);

    if (status != TRAIN_EABORTED)
        return status;
    m->stop = true;
    *ret = NAN;
    if (g->run.first)
        fprintf (stderr,
                 "rv-train: step %" PRId64
                 ": its evaluation was ended on request\n",
                 m->step);
    return TRAIN_OK;
}

static void say_step (const struct grpo *g, const train_grpo_metrics_t *m,
                      double held)
{
    const struct settings *set = g->run.set;
    int64_t step = m->base.step, every = set->log_every;

    if (!g->run.first || every == 0
        || (step % every != 0 && step != 1 && step != set->steps
            && isnan (held)))
        return;
    printf ("step %" PRId64 "/%" PRId64 "  reward %.4f +- %.4f  loss %.4f  "
            "norm %.3f  entropy %.3f  length %.1f  %.2f s",
            step, set->steps, m->reward, m->reward_std, m->base.loss,
            m->base.grad_norm, m->entropy, m->length,
            m->rollout_s + m->reward_s + m->logps_s + m->update_s);
    if (set->grpo.beta > 0)
        printf ("  kl %.5f", m->kl);
    if (!isnan (held))
        printf ("  held-out reward %.4f", held);
    putchar ('\n');
    fflush (stdout);
}

/* A step's line of [log] file. */
static train_status_t write_metrics (struct grpo *g,
                                     const train_grpo_metrics_t *m, double held,
                                     const struct grpo_faults *faults,
                                     train_error_t *err)
{
    train_grpo_metrics_t known = *m;
    train_grpo_spread_t *rewards = calloc (g->judge.n, sizeof (*rewards));
    train_status_t status;

    if (!rewards)
        return err_set (err, TRAIN_ENOMEM, "no memory for metrics");
    if (g->run.set->grpo.beta == 0) /* there is no reference to be far from */
        known.kl = NAN;
    status = train_grpo_trainer_rewards (g->trainer, rewards, err);
    if (status == TRAIN_OK)
        status =
            grpo_log_metrics (g->run.metrics, &known, held, faults, &g->judge,
                              rewards, run_peak_bytes (&g->run), err);
    free (rewards);
    return status;
}

static train_status_t write_lines (struct grpo *g,
                                   const train_grpo_metrics_t *m, double held,
                                   const struct grpo_faults *faults,
                                   train_error_t *err)
{
    const struct settings_grpo *s = &g->run.set->grpo;
    const train_grpo_sample_t *samples;
    int n;

    if (g->run.metrics)
        TRY (write_metrics (g, m, held, faults, err));
    if (!g->completions || m->rollout_tokens == 0)
        return TRAIN_OK;
    samples = train_grpo_trainer_samples (g->trainer, &n);
    return grpo_log_completions (g->completions, m->base.step, g->rows,
                                 &g->judge, samples,
                                 n < s->shown ? n : (int)s->shown, err);
}

static train_status_t take_step (struct grpo *g, bool stop,
                                 train_grpo_metrics_t *m, train_error_t *err)
{
    struct grpo_faults faults;
    train_status_t status;
    double held;

    TRY (train_grpo_trainer_step (g->trainer, stop, m, err));
    g->begun = true;
    if (isnan (g->first))
        g->first = m->reward;
    if (!isnan (m->reward))
        g->last = m->reward;
    TRY (evaluate (g, &m->base, &held, err));
    run_say_skip (&g->run, &m->base);
    say_step (g, m, held);
    TRY (
        grpo_faults_take (&g->judge, g->run.group, m->base.step, &faults, err));
    status = write_lines (g, m, held, &faults, err);
    run_say_file (&g->run, g->run.metrics);
    run_say_file (&g->run, g->completions);
    TRY (trainer_agree (g->run.group, status, err));
    return run_say_slow (&g->run, err);
}

/* A rank that was to stop while it waited for a reward or the reference: all
 * have heard it before anything was updated, and the cycle is made again. */
static bool waited_in_vain (const struct grpo *g, train_status_t status)
{
    return status == TRAIN_EABORTED && train_grpo_trainer_between (g->trainer);
}

static train_status_t take_steps (struct grpo *g, bool *ret_stopped,
                                  train_error_t *err)
{
    struct run *r = &g->run;
    int64_t every = r->set->ckpt_every;
    train_grpo_metrics_t m = {.size = sizeof (m)};

    m.base.step = train_trainer_steps (r->trainer);
    while (m.base.step < r->set->steps) {
        train_status_t status = take_step (g, *g->stop != 0, &m, err);

        if (waited_in_vain (g, status))
            return run_stopped (r, ret_stopped, err);
        if (status != TRAIN_OK)
            return status;
        if (m.base.stop && m.base.step < r->set->steps)
            return run_stopped (r, ret_stopped, err);
        if (every > 0 && m.base.step % every == 0)
            TRY (run_save (r, err));
    }
    return run_save_last (r, err);
}

static train_status_t check_reference (const struct grpo *g, train_error_t *err)
{
    train_status_t status =
        g->reference ? train_reference_check (g->reference, err) : TRAIN_OK;

    return trainer_agree (g->run.group, status, err);
}

static void close_all (struct grpo *g)
{
    heard_close (g->heard);
    metrics_close (g->run.metrics);
    metrics_close (g->completions);
    train_grpo_trainer_destroy (g->trainer);
    train_reference_close (g->reference);
    train_decoder_destroy (g->run.decoder);
    grpo_rows_close (g->held);
    grpo_rows_close (g->rows);
    grpo_judge_close (&g->judge);
    free (g->run.model_dir);
    train_group_destroy (g->run.gpus);
    train_group_destroy (g->run.group);
}

/* Prompts that are not open yet have one token at least. */
static int longest_row (const struct grpo *g)
{
    size_t row;
    int64_t prompt = g->rows ? grpo_rows_longest (g->rows, &row) : 1;

    return (int)(prompt + g->run.set->grpo.max_new);
}

train_status_t run_grpo (const struct settings *set,
                         const volatile sig_atomic_t *stop, struct who *ret_who,
                         bool *ret_stopped, train_error_t *err)
{
    struct grpo g = {.run = {.set = set,
                             .saved = -1,
                             .config = settings_decoder (set),
                             .begin_s = run_now ()},
                     .first = NAN,
                     .last = NAN,
                     .stop = stop};
    train_status_t status;

    *ret_who = (struct who){0, 1};
    *ret_stopped = false;
    status = set_up (&g, ret_who, err);
    if (status == TRAIN_OK)
        status = take_steps (&g, ret_stopped, err);
    if (status == TRAIN_OK)
        status = check_reference (&g, err);
    if (status == TRAIN_OK && !*ret_stopped)
        run_say_end (&g.run, g.begun, "reward", g.first, g.last);
    if (status == TRAIN_OK)
        status = train_trace_close (err);
    if (status == TRAIN_OK)
        status = run_end_file (&g.run, g.run.metrics, *ret_stopped, err);
    if (status == TRAIN_OK)
        status = run_end_file (&g.run, g.completions, *ret_stopped, err);
    if (status == TRAIN_ENOMEM && !strstr (err->text, "another rank failed"))
        oom_say (set, &g.run.config, ret_who->size, longest_row (&g));
    close_all (&g);
    return status;
}
