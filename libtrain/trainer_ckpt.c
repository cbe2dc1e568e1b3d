/* SPDX-License-Identifier: Apache-2.0
 * trainer_ckpt.c - each rank writes and reads what it has of a sharded model;
 * where all have the same, rank 0 does, and gives it to the others
 *
 * Every rank gets its status by an all-reduce before anything that follows
 * from it. */
#include "config.h"

#include "optim.h"
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/ckpt.h>

#include "ckpt_run.h"
#include "err.h"

/* Step [step] is safe in [where]. */
static void note_saved (train_trainer_t *t, const char *where, int64_t step)
{
    char *copy = strdup (where);

    if (!copy) /* a message says less then */
        return;
    free (t->saved_in);
    t->saved_in = copy;
    t->saved_step = step;
}

/* What was begun may have been completed, though no rank has asked yet. */
static void look_again (train_trainer_t *t)
{
    train_ckpt_t *ckpt = NULL;
    char *path = NULL;

    if (t->saving_in && train_ckpt_find (t->saving_in, &path, NULL) == TRAIN_OK
        && train_ckpt_open (path, &ckpt, NULL) == TRAIN_OK)
        note_saved (t, t->saving_in, train_ckpt_step (ckpt));
    train_ckpt_close (ckpt);
    free (path);
}

train_status_t trainer_name_saved (train_trainer_t *t, train_status_t status,
                                   train_error_t *err)
{
    char text[sizeof (err->text)];

    if (!err || !trainer_is_sharded (t)
        || (status != TRAIN_EPEER && status != TRAIN_ETIMEDOUT))
        return status;
    memcpy (text, err->text, sizeof (text));
    text[sizeof (text) - 1] = '\0';
    look_again (t);
    if (t->saved_in)
        return err_set (err, status,
                        "%s; its part of the model is lost, the newest "
                        "checkpoint is step %lld in %s",
                        text, (long long)t->saved_step, t->saved_in);
    return err_set (err, status,
                    "%s; its part of the model is lost and there is no "
                    "checkpoint",
                    text);
}

static train_ckpt_state_t state_of (const train_trainer_t *t)
{
    struct trainer_source source = trainer_source_of (t);
    train_scaler_state_t scaler = {0};

    if (t->scaler)
        train_scaler_get (t->scaler, &scaler);
    return (train_ckpt_state_t){
        .size = sizeof (train_ckpt_state_t),
        .step = t->step,
        .updates = train_adamw_updates (t->adamw),
        .skipped = t->n_skips,
        .skip_run = t->skip_run,
        .tokens = t->n_tokens,
        .position = t->step * t->opts.batch,
        .seq = source.seq,
        .batch = t->opts.batch,
        .shuffle = source.shuffle,
        .seed = source.seed,
        .data_hash = source.hash,
        .loss = t->loss,
        .scale = scaler.scale,
        .scale_good = scaler.good,
        .scale_budget = scaler.budget,
        .scale_stuck = scaler.stuck,
    };
}

static struct ckpt_run run_of (train_trainer_t *t)
{
    static const char *const name[] = {
        [TRAIN_NO_SHARD] = "no_shard",
        [TRAIN_DDP] = "ddp",
        [TRAIN_SHARD_GRAD_OP] = "grad_op",
        [TRAIN_FULL_SHARD] = "full",
    };

    return (struct ckpt_run){
        .decoder = t->decoder,
        .weights = train_trainer_weights (t),
        .m = train_adamw_m (t->adamw),
        .v = train_adamw_v (t->adamw),
        .plan = train_trainer_plan (t),
        .rank = train_trainer_place (t),
        .world = train_group_size (t->group),
        .strategy = name[t->opts.strategy],
    };
}

/* What is of what trains alone, as the weights lie. */
struct moments {
    struct adamw_wide wide; /* all NULL: it lies so already */
    train_tensor_t t[3];
};

static train_status_t moments_open (train_trainer_t *t, struct ckpt_run *run,
                                    struct moments *o, train_error_t *err)
{
    const DLTensor *m = train_adamw_m (t->adamw);
    DLTensor **to[3] = {&run->m, &run->v, &run->weights};
    int64_t shape[1] = {(int64_t)train_shard_size (run->plan)};
    train_dtype_t dtype;
    void *data[3];

    TRY (t->gpu ? adamw_spread (t->adamw, run->weights, &o->wide, err)
                : fsdp_spread (t->fsdp, t->adamw, &o->wide, err));
    TRY (train_dtype_of (m->dtype, &dtype, err));
    data[0] = o->wide.m, data[1] = o->wide.v, data[2] = o->wide.masters;
    for (int i = 0; i < 3; i++) {
        if (!data[i])
            continue;
        TRY (train_tensor_view (&o->t[i], data[i], dtype, 1, shape, err));
        *to[i] = &o->t[i].t;
    }
    return TRAIN_OK;
}

static train_status_t moments_take (train_trainer_t *t, const struct moments *o,
                                    train_error_t *err)
{
    return t->gpu ? adamw_gather (t->adamw, train_trainer_weights (t), &o->wide,
                                  err)
                  : fsdp_collect (t->fsdp, t->adamw, &o->wide, err);
}

/* Has this rank something of its own to write and read? */
static bool takes_part (const train_trainer_t *t)
{
    return trainer_is_sharded (t) || train_group_rank (t->group) == 0;
}

/* What a rank may fail at alone, before the saver's first call of the group. */
static train_status_t prepare (train_trainer_t *t, const char *dir,
                               struct ckpt_run *run, struct moments *moments,
                               train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!takes_part (t))
        return TRAIN_OK;
    if (!t->saver)
        status = train_ckpt_saver_create (
            trainer_is_sharded (t) ? t->group : NULL, &t->saver, err);
    if (status == TRAIN_OK)
        status = moments_open (t, run, moments, err);
    return status == TRAIN_OK
               ? TRAIN_OK
               : err_prefix (err, status, "cannot save to %s", dir);
}

static train_status_t begin (train_trainer_t *t, const char *dir, int keep,
                             train_error_t *err)
{
    train_ckpt_state_t state = state_of (t);
    train_ckpt_piece_t beside[TRAINER_BESIDE];
    struct ckpt_run run = run_of (t);
    struct moments moments = {0};
    train_status_t status;

    run.beside = beside;
    if (t->source.beside && train_group_rank (t->group) == 0)
        run.n_beside = t->source.beside (t->source.arg, beside);
    status = dir ? prepare (t, dir, &run, &moments, err)
                 : err_set (err, TRAIN_EINVAL,
                            "checkpoint: dir is missing, or memory for it");
    status = trainer_agree (t->group, status, err);
    if (status == TRAIN_OK && takes_part (t)) /* copies what it is given */
        status = ckpt_run_start (t->saver, dir, &state, &run, keep, err);
    adamw_wide_free (&moments.wide);
    return trainer_agree (t->group, status, err);
}

/* The one before is waited for here, so that its name is known when it ends. */
train_status_t train_trainer_save_start (train_trainer_t *t, const char *dir,
                                         int keep, train_error_t *err)
{
    train_status_t status;
    char *copy;

    TRY (train_trainer_save_wait (t, err));
    copy = dir ? strdup (dir) : NULL;
    if ((status = begin (t, copy, keep, err)) != TRAIN_OK) {
        free (copy);
        return trainer_name_saved (t, status, err);
    }
    t->saving_in = copy;
    t->saving_step = t->step;
    return TRAIN_OK;
}

train_status_t train_trainer_save_wait (train_trainer_t *t, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!t->saving_in)
        return TRAIN_OK;
    if (t->saver)
        status = train_ckpt_wait (t->saver, err);
    status = trainer_agree (t->group, status, err);
    if (status == TRAIN_OK)
        note_saved (t, t->saving_in, t->saving_step);
    else
        trainer_name_saved (t, status, err);
    free (t->saving_in);
    t->saving_in = NULL;
    return status;
}

train_status_t train_trainer_save (train_trainer_t *t, const char *dir,
                                   int keep, train_error_t *err)
{
    TRY (train_trainer_save_start (t, dir, keep, err));
    return train_trainer_save_wait (t, err);
}

/* Does the run go on with the samples that the checkpoint stopped at? */
static train_status_t same_run (const train_trainer_t *t,
                                const train_ckpt_state_t *there,
                                train_error_t *err)
{
    train_ckpt_state_t here = state_of (t);
    const struct {
        const char *name;
        unsigned long long there, here;
    } v[] = {
        {"seq", (unsigned long long)there->seq, (unsigned long long)here.seq},
        {"batch", (unsigned long long)there->batch,
         (unsigned long long)here.batch},
        {"seed", there->seed, here.seed},
        {"shuffle", there->shuffle, here.shuffle},
    };
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++)
        if (v[i].there != v[i].here && used < sizeof (list))
            used += (size_t)snprintf (list + used, sizeof (list) - used,
                                      "%s%s is %llu there and %llu here",
                                      used ? ", " : "", v[i].name, v[i].there,
                                      v[i].here);
    if (there->data_hash != here.data_hash && used < sizeof (list))
        used += (size_t)snprintf (list + used, sizeof (list) - used,
                                  "%sthe XXH3 of %s differs", used ? ", " : "",
                                  trainer_source_of (t).hashed);
    if (used)
        return err_set (err, TRAIN_EINVAL, "%s", list);
    if (there->position != there->step * there->batch)
        return err_set (err, TRAIN_EFORMAT,
                        "position %lld is not step %lld times batch %lld",
                        (long long)there->position, (long long)there->step,
                        (long long)there->batch);
    return TRAIN_OK;
}

/* One line of what is there and what was passed over. */
static train_status_t take_note (train_trainer_t *t, const char *path,
                                 const train_error_t *passed,
                                 train_error_t *err)
{
    struct ckpt_run run = run_of (t);
    bool damaged = passed->code != TRAIN_OK;
    char differs[512] = "";
    train_ckpt_t *ckpt = NULL;
    train_status_t status;

    TRY (train_ckpt_open (path, &ckpt, err));
    status = ckpt_run_differs (ckpt, &run, differs, sizeof (differs), err);
    train_ckpt_close (ckpt);
    if (status != TRAIN_OK)
        return status;
    free (t->note);
    t->note = NULL;
    if (!*differs && !damaged)
        return TRAIN_OK;
    if (asprintf (&t->note, "%s%s%s%s%s", path,
                  damaged ? " taken, for the latest is damaged: " : "",
                  damaged ? passed->text : "",
                  !*differs ? ""
                  : damaged ? "; "
                            : ": ",
                  differs)
        < 0)
        t->note = NULL;
    return t->note ? TRAIN_OK
                   : err_set (err, TRAIN_ENOMEM, "no memory for a line");
}

train_status_t trainer_add_note (train_trainer_t *t, const char *text,
                                 train_error_t *err)
{
    char *note = NULL;

    if (asprintf (&note, "%s%s%s", t->note ? t->note : "", t->note ? "; " : "",
                  text)
        < 0)
        return err_set (err, TRAIN_ENOMEM, "no memory for a line");
    free (t->note);
    t->note = note;
    return TRAIN_OK;
}

const char *train_trainer_note (const train_trainer_t *t)
{
    return t->note;
}

/* Rank 0 looks, and tells the others which one it is. */
static train_status_t find_path (train_trainer_t *t, const char *where,
                                 char **ret_path, train_error_t *err)
{
    train_error_t passed = {0};
    train_status_t status = TRAIN_OK;
    char *found = NULL;
    void *got = NULL;
    size_t n;

    if (train_group_rank (t->group) == 0)
        status = train_ckpt_find_good (where, &found, &passed, err);
    if (status == TRAIN_OK && found)
        status = take_note (t, found, &passed, err);
    if ((status = trainer_agree (t->group, status, err)) == TRAIN_OK)
        status = train_broadcast_object (
            t->group, found, found ? strlen (found) + 1 : 0, 0, &got, &n, err);
    free (found);
    if (status == TRAIN_OK)
        *ret_path = got;
    return status;
}

static train_status_t of_file (const char *path, train_status_t status,
                               train_error_t *err)
{
    return status == TRAIN_OK ? TRAIN_OK
                              : err_prefix (err, status, "checkpoint %s", path);
}

static train_status_t read_own (train_trainer_t *t, const char *path,
                                train_ckpt_state_t *state, train_error_t *err)
{
    struct ckpt_run run = run_of (t);
    struct moments moments = {0};
    train_status_t status;

    if (!takes_part (t))
        return TRAIN_OK;
    status = of_file (path, moments_open (t, &run, &moments, err), err);
    if (status == TRAIN_OK)
        status = ckpt_run_load (path, &run, state, err);
    if (status == TRAIN_OK && moments.wide.m)
        status = of_file (path, moments_take (t, &moments, err), err);
    adamw_wide_free (&moments.wide);
    return status == TRAIN_OK ? of_file (path, same_run (t, state, err), err)
                              : status;
}

/* What rank 0 read of the run; the loss scale as well where there is one there
 * and here. */
static train_status_t take_state (train_trainer_t *t,
                                  const train_ckpt_state_t *s,
                                  train_error_t *err)
{
    const train_scaler_state_t scaler = {sizeof (scaler), s->scale,
                                         s->scale_good, s->scale_budget,
                                         s->scale_stuck};

    t->step = s->step;
    train_adamw_set_updates (t->adamw, s->updates);
    t->n_skips = s->skipped;
    t->skip_run = s->skip_run;
    t->n_tokens = s->tokens;
    t->loss = s->loss;
    return t->scaler && s->scale > 0
               ? train_scaler_set (t->scaler, &scaler, err)
               : TRAIN_OK;
}

static train_status_t spread (train_trainer_t *t, train_ckpt_state_t *s,
                              train_error_t *err)
{
    int64_t shape[1] = {sizeof (*s)};
    struct ckpt_run run = run_of (t);
    DLTensor *all[4] = {run.weights, run.m, run.v,
                        train_adamw_masters (t->adamw)};
    train_tensor_t view;

    TRY (train_tensor_view (&view, s, TRAIN_U8, 1, shape, err));
    TRY (train_broadcast (t->group, &view.t, 0, err));
    for (int i = 0; i < 4 && !t->gpu && !trainer_is_sharded (t) && all[i]; i++)
        TRY (trainer_shard_spread (t, all[i], err));
    TRY (take_state (t, s, err)); /* the number of updates says how to round */
    return trainer_updated (t, err);
}

train_status_t train_trainer_load (train_trainer_t *t, const char *path,
                                   train_error_t *err)
{
    train_ckpt_state_t state = {.size = sizeof (state)};
    char *found = NULL;
    train_status_t status;

    TRY (train_trainer_save_wait (t, err));
    TRY (find_path (t, path, &found, err));
    status = read_own (t, found, &state, err);
    if ((status = trainer_agree (t->group, status, err)) == TRAIN_OK)
        status = spread (t, &state, err);
    if (status == TRAIN_OK && t->source.loaded)
        status = t->source.loaded (t->source.arg, found, err);
    free (found);
    if (status == TRAIN_OK)
        note_saved (t, path, t->step);
    return status;
}
