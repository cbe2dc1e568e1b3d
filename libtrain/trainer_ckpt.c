/* SPDX-License-Identifier: Apache-2.0
 * trainer_ckpt.c - rank 0 writes and reads, the others wait and are given
 *
 * Only rank 0 needs to see the files. Every rank gets its status by an
 * all-reduce before anything that follows from it. */
#include "trainer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/ckpt.h>

#include "err.h"

void trainer_note_saved (train_trainer_t *t, const char *where)
{
    char *copy = strdup (where);

    if (!copy) /* a message says less then */
        return;
    free (t->saved_in);
    t->saved_in = copy;
    t->saved_step = t->step;
}

train_status_t trainer_name_saved (const train_trainer_t *t,
                                   train_status_t status, train_error_t *err)
{
    char text[sizeof (err->text)];

    if (!err || !fsdp_is_sharded (t->fsdp)
        || (status != TRAIN_EPEER && status != TRAIN_ETIMEDOUT))
        return status;
    memcpy (text, err->text, sizeof (text));
    text[sizeof (text) - 1] = '\0';
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
    return (train_ckpt_state_t){
        .size = sizeof (train_ckpt_state_t),
        .step = t->step,
        .updates = train_adamw_updates (t->adamw),
        .skipped = t->n_skips,
        .skip_run = t->skip_run,
        .tokens = t->n_tokens,
        .position = t->step * t->opts.batch,
        .seq = train_data_seq (t->data),
        .batch = t->opts.batch,
        .shuffle = train_data_shuffle (t->data),
        .seed = train_data_seed (t->data),
        .data_hash = train_data_hash (t->data),
    };
}

train_status_t train_trainer_save (train_trainer_t *t, const char *dir,
                                   int keep, train_error_t *err)
{
    train_ckpt_state_t state = state_of (t);
    struct trainer_whole whole;
    train_status_t status = trainer_whole_open (t, &whole, err);

    if (status == TRAIN_OK)
        status = trainer_whole_fill (t, &whole, err);
    if (status == TRAIN_OK && train_group_rank (t->group) == 0)
        status = train_ckpt_save (dir, &state, whole.decoder, whole.adamw, keep,
                                  err);
    trainer_whole_close (&whole);
    status = trainer_agree (t->group, status, err);
    if (status != TRAIN_OK)
        return trainer_name_saved (t, status, err);
    trainer_note_saved (t, dir);
    return TRAIN_OK;
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
        {"the text's XXH3", there->data_hash, here.data_hash},
    };
    char list[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++)
        if (v[i].there != v[i].here && used < sizeof (list))
            used += (size_t)snprintf (list + used, sizeof (list) - used,
                                      "%s%s is %llu there and %llu here",
                                      used ? ", " : "", v[i].name, v[i].there,
                                      v[i].here);
    if (used)
        return err_set (err, TRAIN_EINVAL, "%s", list);
    if (there->position != there->step * there->batch)
        return err_set (err, TRAIN_EFORMAT,
                        "position %lld is not step %lld times batch %lld",
                        (long long)there->position, (long long)there->step,
                        (long long)there->batch);
    return TRAIN_OK;
}

static train_status_t read_on_first (train_trainer_t *t, const char *path,
                                     const struct trainer_whole *whole,
                                     train_ckpt_state_t *state,
                                     train_error_t *err)
{
    char *found = NULL;
    train_status_t status = train_ckpt_find (path, &found, err);

    if (status == TRAIN_OK)
        status =
            train_ckpt_load (found, whole->decoder, whole->adamw, state, err);
    if (status == TRAIN_OK && (status = same_run (t, state, err)) != TRAIN_OK)
        err_prefix (err, status, "checkpoint %s", found);
    free (found);
    return status;
}

static train_status_t spread (train_trainer_t *t, struct trainer_whole *whole,
                              train_ckpt_state_t *s, train_error_t *err)
{
    int64_t v[5] = {s->step, s->updates, s->skipped, s->skip_run, s->tokens};
    int64_t shape[1] = {5};
    train_tensor_t view;

    TRY (train_tensor_view (&view, v, TRAIN_I64, 1, shape, err));
    TRY (train_broadcast (t->group, &view.t, 0, err));
    TRY (trainer_whole_spread (t, whole, err));
    t->step = v[0];
    train_adamw_set_updates (t->adamw, v[1]);
    t->n_skips = v[2];
    t->skip_run = v[3];
    t->n_tokens = v[4];
    return TRAIN_OK;
}

train_status_t train_trainer_load (train_trainer_t *t, const char *path,
                                   train_error_t *err)
{
    train_ckpt_state_t state = {0};
    struct trainer_whole whole;
    train_status_t status = trainer_whole_open (t, &whole, err);

    if (status == TRAIN_OK) {
        if (train_group_rank (t->group) == 0)
            status = read_on_first (t, path, &whole, &state, err);
        status = trainer_agree (t->group, status, err);
    }
    if (status == TRAIN_OK)
        status = spread (t, &whole, &state, err);
    trainer_whole_close (&whole);
    if (status == TRAIN_OK)
        trainer_note_saved (t, path);
    return status;
}
