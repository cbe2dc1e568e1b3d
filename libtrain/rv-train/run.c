/* SPDX-License-Identifier: Apache-2.0
 * run.c - set a run up, take its steps, save it
 *
 * Rank 0 alone writes files and progress. Whatever makes a rank do something
 * else than the others (a checkpoint found, a request to stop) is first made
 * common to all. */
#include "config.h"

#include "run_impl.h"

#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "libtrain/backend.h"
#include "libtrain/err.h"
#include "libtrain/mem_count.h"
#include "libtrain/trainer.h"
#include "device.h"
#include "eval.h"
#include "metrics.h"
#include "model_dir.h"
#include "oom.h"
#include "open_data.h"
#include "progress.h"
#include "slow.h"

double run_now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void run_who (int rank, int size, char who[RUN_WHO])
{
    char host[65] = "?";

    gethostname (host, sizeof (host) - 1);
    who[0] = '\0';
    if (size > 1)
        snprintf (who, RUN_WHO, "[rank %d on %s]", rank, host);
}

#ifdef HAVE_CBLAS
/* OpenBLAS's own; other libraries have it not, and read variables alone. */
extern void openblas_set_num_threads (int n) __attribute__ ((weak));
#endif

/* Ranks that share a node share its CPUs, unless a variable says how. More
 * threads than CPUs would spin against each other. */
void run_share_cpus (const train_group_t *group)
{
#ifdef HAVE_CBLAS
    cpu_set_t mask;
    int n;

    if (getenv ("OPENBLAS_NUM_THREADS") || getenv ("OMP_NUM_THREADS")
        || train_group_local_size (group) == 1 || !openblas_set_num_threads
        || sched_getaffinity (0, sizeof (mask), &mask) < 0)
        return;
    n = CPU_COUNT (&mask) / train_group_local_size (group);
    openblas_set_num_threads (n < 1 ? 1 : n);
#else
    (void)group;
#endif
}

/* Hours may pass until the first checkpoint; rank 0, which writes it, sees now
 * that it can be written. */
train_status_t run_prepare_ckpt (struct run *r, train_error_t *err)
{
    const char *dir = r->set->ckpt_dir;
    train_status_t status = TRAIN_OK;
    char where[256];

    if (r->first && dir && (status = train_ckpt_prepare (dir, err)) != TRAIN_OK)
        err_prefix (err, status, "%s",
                    settings_where (r->set, "checkpoint", "dir", where,
                                    sizeof (where)));
    return trainer_agree (r->group, status, err);
}

/* Rank 0 looks: while another run saves, or by what a file system remembers,
 * the latest of a folder of checkpoints is not the same to all. */
static train_status_t choose_model (struct run *r, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    char *dir = NULL;
    void *got = NULL;
    size_t n;

    if (!r->set->model_dir)
        return TRAIN_OK;
    if (r->first)
        status = model_choose (r->set, &dir, err);
    if ((status = trainer_agree (r->group, status, err)) == TRAIN_OK)
        status = train_broadcast_object (
            r->group, dir, dir ? strlen (dir) + 1 : 0, 0, &got, &n, err);
    free (dir);
    r->model_dir = got;
    return status;
}

train_status_t run_describe (struct run *r, train_error_t *err)
{
    TRY (choose_model (r, err));
    return trainer_agree (
        r->group, model_describe (r->set, r->model_dir, &r->config, err), err);
}

train_status_t run_first_weights (struct run *r, train_error_t *err)
{
    uint64_t seed = (uint64_t)r->set->seed;

    if (!r->model_dir)
        return train_trainer_init (r->trainer, seed, err);
    return model_named (
        r->set, train_trainer_init_hf (r->trainer, r->model_dir, seed, err),
        err);
}

static train_status_t open_model (struct run *r, train_error_t *err)
{
    train_trainer_options_t options = settings_trainer (r->set);
    bool bare = options.strategy == TRAIN_SHARD_GRAD_OP
                || options.strategy == TRAIN_FULL_SHARD;

    TRY (device_open (r->set, r->group, &r->config, r->device,
                      sizeof (r->device), &r->gpus, err));
    options.device_group = r->gpus;
    TRY (bare ? train_decoder_create_bare (&r->config, &r->decoder, err)
              : train_decoder_create (&r->config, &r->decoder, err));
    TRY (train_trainer_create (&options, r->group, r->data, r->decoder,
                               &r->trainer, err));
    return run_first_weights (r, err);
}

/* How the model lies on the ranks, behind its sizes. */
void run_say_shard (const struct run *r)
{
    const train_shard_plan_t *plan = train_trainer_plan (r->trainer);
    size_t n = plan ? train_shard_n_units (plan) : 0;

    if (r->set->strategy >= TRAIN_SHARD_GRAD_OP)
        printf ("shard: %s, %zu unit%s, %zu parameters a rank\n",
                r->set->strategy == TRAIN_FULL_SHARD ? "full" : "grad_op", n,
                n == 1 ? "" : "s", train_shard_size (plan));
    else if (r->set->strategy == TRAIN_DDP)
        printf ("shard: ddp, gradients in %zu bucket%s\n", n,
                n == 1 ? "" : "s");
}

static void say_start (const struct run *r)
{
    const train_decoder_config_t *c = train_decoder_config (r->decoder);

    if (!r->first)
        return;
    model_say_reach (r->model_dir, "[data] seq", r->set->seq);
    printf ("rv-train " PACKAGE_VERSION ": %d rank%s (%s), device %s, %s\n",
            train_group_size (r->group),
            train_group_size (r->group) == 1 ? "" : "s",
            train_group_backend (r->gpus ? r->gpus : r->group), r->device,
            c->dtype == TRAIN_F64    ? "fp64"
            : c->dtype == TRAIN_BF16 ? "bf16"
            : c->dtype == TRAIN_F16  ? "fp16"
                                     : "fp32");
    printf ("model: %zu parameters, %d layers of %d, %d heads%s%s\n",
            train_decoder_numel (r->decoder), c->layers, c->dim, c->heads,
            r->model_dir ? ", of " : "", r->model_dir ? r->model_dir : "");
    run_say_shard (r);
    printf ("data: %zu file%s, %" PRId64 " bytes, %" PRId64
            " samples of %d tokens\n",
            train_data_n_files (r->data),
            train_data_n_files (r->data) == 1 ? "" : "s",
            train_data_bytes (r->data), train_data_n_samples (r->data),
            train_data_seq (r->data));
    eval_say (r->eval);
    fflush (stdout);
}

/* Has the folder checkpoints, though its `latest` names none of them? */
static bool unnamed (const char *where, train_status_t found)
{
    int64_t *steps = NULL;
    size_t n = 0;

    if (found != TRAIN_EFORMAT
        || train_ckpt_list (where, &steps, &n, NULL) != TRAIN_OK)
        return false;
    free (steps);
    return n > 0;
}

/* Is there a checkpoint to go on from? Only rank 0 looks. */
static train_status_t look (struct run *r, const char *where, bool may_lack,
                            int32_t *ret_found, train_error_t *err)
{
    int64_t shape[1] = {1};
    train_status_t status = TRAIN_OK;
    train_tensor_t view;
    char *path = NULL;

    if (r->first)
        status = train_ckpt_find (where, &path, err);
    *ret_found = path != NULL || unnamed (where, status);
    free (path);
    if (*ret_found || (status == TRAIN_ENOTFOUND && may_lack))
        status = TRAIN_OK;
    status = trainer_agree (r->group, status, err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&view, ret_found, TRAIN_I32, 1, shape, err);
    if (status == TRAIN_OK)
        status = train_broadcast (r->group, &view.t, 0, err);
    return status;
}

static train_status_t refuse_overwrite (const struct run *r, train_error_t *err)
{
    char where[256];

    return err_set (
        err, TRAIN_EINVAL,
        "%s: %s holds checkpoints of another run; resume = auto "
        "goes on from them, and another dir keeps them",
        settings_where (r->set, "checkpoint", "resume", where, sizeof (where)),
        r->set->ckpt_dir);
}

/* What a checkpoint of another run is good for. */
static train_status_t say_other (const struct run *r, train_error_t *err)
{
    train_error_t why = *err;

    return err_set (err, why.code,
                    "%s; the settings of the checkpoint go on from it, %s "
                    "begins anew",
                    why.text,
                    strcmp (r->set->resume, "auto") == 0
                        ? "and another [checkpoint] dir"
                        : "and resume = off with a new [checkpoint] dir");
}

train_status_t run_resume (struct run *r, train_error_t *err)
{
    bool off = strcmp (r->set->resume, "off") == 0;
    bool given = !off && strcmp (r->set->resume, "auto") != 0;
    const char *where = given ? r->set->resume : r->set->ckpt_dir;
    int32_t found = 0;
    train_status_t status;

    if (!where)
        return TRAIN_OK;
    status = look (r, where, !given, &found, err);
    if (status != TRAIN_OK || !found)
        return status;
    if (off)
        return refuse_overwrite (r, err);
    status = train_trainer_load (r->trainer, where, err);
    if (status == TRAIN_EINVAL)
        return say_other (r, err);
    if (status != TRAIN_OK)
        return status;
    if (!given)
        r->saved = train_trainer_steps (r->trainer);
    if (r->first)
        printf ("resumed at step %" PRId64 " from %s\n",
                train_trainer_steps (r->trainer), where);
    if (train_trainer_note (r->trainer))
        fprintf (stderr, "rv-train: %s\n", train_trainer_note (r->trainer));
    return TRAIN_OK;
}

static train_status_t set_up (struct run *r, struct who *ret_who,
                              train_error_t *err)
{
    train_status_t status = train_group_create (NULL, &r->group, err);

    if (status != TRAIN_OK)
        return status;
    ret_who->rank = train_group_rank (r->group);
    ret_who->size = train_group_size (r->group);
    r->first = ret_who->rank == 0;
    run_share_cpus (r->group);
    status =
        train_trace_open (r->set->trace, ret_who->rank, ret_who->size, err);
    if ((status = trainer_agree (r->group, status, err)) == TRAIN_OK)
        status = run_prepare_ckpt (r, err);
    if (status == TRAIN_OK)
        status = run_describe (r, err);
    if (status == TRAIN_OK)
        status = open_data (r->set, &r->config, r->first, &r->data, err);
    if (status == TRAIN_OK)
        status = eval_open (&r->eval, r->set, err);
    if (status == TRAIN_OK)
        status = open_model (r, err);
    if (status == TRAIN_OK)
        say_start (r);
    if (status == TRAIN_OK)
        status = run_resume (r, err);
    if (status == TRAIN_OK)
        status = run_open_file (r, r->set->log_file, &r->metrics, err);
    return status;
}

int64_t run_peak_bytes (const struct run *r)
{
    struct rusage use;

    if (r->config.device.device_type == kDLCUDA)
        return (int64_t)mem_count_peak (r->config.device.device_id);
    return getrusage (RUSAGE_SELF, &use) < 0 ? 0
                                             : (int64_t)use.ru_maxrss * 1024;
}

void run_say_skip (struct run *r, const train_metrics_t *m)
{
    const char *why = train_trainer_nonfinite (r->trainer);

    if (r->first && m->skipped && !r->skipping) {
        progress_clear (&r->progress);
        fprintf (stderr, "rv-train: a step is skipped: %s\n",
                 why ? why : "the loss scale was too large");
    }
    r->skipping = m->skipped;
}

/* Of a batch whose targets are all masked there is no loss: the last one stays. */
static void note_loss (struct run *r, const train_metrics_t *m)
{
    bool none = isnan (m->loss) && !m->skipped;

    if (!r->begun || isnan (r->loss_begin))
        r->loss_begin = m->loss;
    r->begun = true;
    if (!none)
        r->loss_end = m->loss;
    if (!none || r->aimless)
        return;
    r->aimless = true;
    if (!r->first)
        return;
    progress_clear (&r->progress);
    fprintf (stderr,
             "rv-train: step %" PRId64
             " has no target, as all of its batch follow an end: it has no "
             "loss, and no gradient; such steps are null in metrics\n",
             m->step);
}

/* [eval]: NULL where the step has none. */
static train_status_t report (struct run *r, const train_metrics_t *m,
                              const train_eval_t *eval, train_error_t *err)
{
    double tok_per_s = (double)r->set->batch * (double)r->set->seq
                       / (m->step_s > 0 ? m->step_s : 1e-9);
    struct rv_error e = {0};

    note_loss (r, m);
    if (!r->first)
        return TRAIN_OK;
    run_say_skip (r, m);
    if (r->metrics
        && metrics_write (r->metrics, m, eval, tok_per_s, run_peak_bytes (r),
                          &e)
               != RV_OK)
        return err_from (err, &e);
    run_say_file (r, r->metrics);
    progress_step (&r->progress, m, eval, tok_per_s, run_peak_bytes (r));
    return TRAIN_OK;
}

/* Written by a thread while the next steps are made; see run_save_last. */
train_status_t run_save (struct run *r, train_error_t *err)
{
    int64_t step = train_trainer_steps (r->trainer);
    train_status_t status;

    if (!r->set->ckpt_dir || r->saved == step)
        return TRAIN_OK;
    status = train_trainer_save_start (r->trainer, r->set->ckpt_dir,
                                       (int)r->set->ckpt_keep, err);
    if (status == TRAIN_OK)
        r->saved = step;
    return status;
}

train_status_t run_save_last (struct run *r, train_error_t *err)
{
    train_status_t status = run_save (r, err);

    return status == TRAIN_OK ? train_trainer_save_wait (r->trainer, err)
                              : status;
}

train_status_t run_stopped (struct run *r, bool *ret_stopped,
                            train_error_t *err)
{
    int64_t step = train_trainer_steps (r->trainer);
    train_status_t status;

    if (!r->set->ckpt_dir)
        return err_set (err, TRAIN_EABORTED,
                        "stopped on request after step %" PRId64
                        " and nothing is saved; [checkpoint] dir keeps a run",
                        step);
    if ((status = run_save_last (r, err)) != TRAIN_OK)
        return status;
    *ret_stopped = true;
    progress_clear (&r->progress);
    if (r->first)
        printf ("stopped on request after step %" PRId64 "; checkpoint in %s\n",
                step, r->set->ckpt_dir);
    return TRAIN_OK;
}

/* Of the first step: a parameter without a gradient is seldom meant so. */
static train_status_t say_unused (struct run *r, train_error_t *err)
{
    char text[400];

    TRY (train_trainer_unused (r->trainer, text, sizeof (text), err));
    if (r->first && *text)
        printf ("unused: no gradient for %s\n", text);
    return TRAIN_OK;
}

train_status_t run_say_slow (struct run *r, train_error_t *err)
{
    char text[240];

    TRY (slow_step (&r->slow, r->trainer, r->set->log_slow, text, sizeof (text),
                    err));
    if (!r->first || !*text)
        return TRAIN_OK;
    progress_clear (&r->progress);
    fprintf (stderr, "rv-train: %s\n", text);
    return TRAIN_OK;
}

/* One step, its evaluation and its lines. */
static train_status_t take_step (struct run *r, bool stop, train_metrics_t *m,
                                 train_error_t *err)
{
    train_eval_t eval;
    bool due;

    TRY (train_trainer_step (r->trainer, stop, m, err));
    if (m->step == 1
        && m->tokens > 0) /* while the step's gradients are there */
        TRY (say_unused (r, err));
    due = eval_due (r->eval, m->step);
    if (due)
        TRY (eval_run (r->eval, r->trainer, &eval, err));
    TRY (report (r, m, due ? &eval : NULL, err));
    TRY (run_say_slow (r, err));
    return TRAIN_OK;
}

static train_status_t take_steps (struct run *r,
                                  const volatile sig_atomic_t *stop,
                                  bool *ret_stopped, train_error_t *err)
{
    int64_t every = r->set->ckpt_every;
    train_metrics_t m = {.step = train_trainer_steps (r->trainer)};

    while (m.step < r->set->steps) {
        train_status_t status = take_step (r, *stop != 0, &m, err);

        if (status != TRAIN_OK)
            return status;
        if (m.stop && m.step < r->set->steps)
            return run_stopped (r, ret_stopped, err);
        if (every > 0 && m.step % every == 0
            && (status = run_save (r, err)) != TRAIN_OK)
            return status;
    }
    return run_save_last (r, err);
}

void run_say_end (const struct run *r, bool begun, const char *what,
                  double first, double last)
{
    char from[PROGRESS_LOSS], to[PROGRESS_LOSS];

    if (!r->first)
        return;
    if (!begun)
        printf ("nothing to do: the checkpoint has %" PRId64 " steps\n",
                train_trainer_steps (r->trainer));
    else
        printf ("done: step %" PRId64 ", %s %s -> %s, %.1f s\n",
                train_trainer_steps (r->trainer), what,
                progress_loss (first, false, from),
                progress_loss (last, r->skipping, to), run_now () - r->begin_s);
    if (r->saved >= 0)
        printf ("checkpoint: %s/step-%08" PRId64 "\n", r->set->ckpt_dir,
                r->saved);
}

train_status_t run_training (const struct settings *set,
                             const volatile sig_atomic_t *stop,
                             struct who *ret_who, bool *ret_stopped,
                             train_error_t *err)
{
    struct run r = {.set = set,
                    .saved = -1,
                    .loss_begin = NAN,
                    .loss_end = NAN,
                    .config = settings_decoder (set),
                    .begin_s = run_now ()};
    train_status_t status;

    *ret_who = (struct who){0, 1};
    *ret_stopped = false;
    progress_begin (&r.progress, set->steps, set->log_every);
    status = set_up (&r, ret_who, err);
    if (status == TRAIN_OK)
        status = take_steps (&r, stop, ret_stopped, err);
    progress_clear (&r.progress);
    if (status == TRAIN_OK && !*ret_stopped)
        run_say_end (&r, r.begun, "loss", r.loss_begin, r.loss_end);
    if (status == TRAIN_OK)
        status = train_trace_close (err);
    if (status == TRAIN_OK)
        status = run_end_file (&r, r.metrics, *ret_stopped, err);
    if (status == TRAIN_ENOMEM && !strstr (err->text, "another rank failed"))
        oom_say (set, &r.config, ret_who->size, (int)set->seq);
    metrics_close (r.metrics);
    train_trainer_destroy (r.trainer);
    train_decoder_destroy (r.decoder);
    eval_close (r.eval);
    train_data_close (r.data);
    free (r.model_dir);
    train_group_destroy (r.gpus);
    train_group_destroy (r.group);
    return status;
}
