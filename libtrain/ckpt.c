/* SPDX-License-Identifier: Apache-2.0
 * ckpt.c - checkpoints of a decoder that one process holds whole */
#include <train/ckpt.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt_dir.h"
#include "ckpt_job.h"
#include "ckpt_run.h"
#include "err.h"
#include "optim.h"
#include "opts.h"

/* Masters are what is kept of weights that are shorter. */
static struct ckpt_run run_of (train_decoder_t *decoder, train_adamw_t *adamw)
{
    DLTensor *masters = train_adamw_masters (adamw);

    return (struct ckpt_run){
        .decoder = decoder,
        .weights = masters ? masters : train_decoder_weights (decoder),
        .m = train_adamw_m (adamw),
        .v = train_adamw_v (adamw),
        .world = 1,
    };
}

/* Is the optimizer one of this decoder's weights? */
static train_status_t check_pair (train_decoder_t *decoder,
                                  train_adamw_t *adamw, train_error_t *err)
{
    const DLTensor *w = train_decoder_weights (decoder);
    const DLTensor *m = train_adamw_m (adamw);

    if (!w->data)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: the decoder has no arenas; "
                        "train_trainer_save serves a sharded one");
    if (w->shape[0] != m->shape[0]
        || w->device.device_type != m->device.device_type
        || w->device.device_id != m->device.device_id)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: adamw has %lld elements on device %d.%d, "
                        "the decoder %lld on %d.%d",
                        (long long)m->shape[0], (int)m->device.device_type,
                        m->device.device_id, (long long)w->shape[0],
                        (int)w->device.device_type, w->device.device_id);
    return TRAIN_OK;
}

static train_status_t check_save (const char *dir, const void *state,
                                  train_decoder_t *decoder,
                                  train_adamw_t *adamw, train_error_t *err)
{
    if (!dir || !*dir || !state || !decoder || !adamw)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: dir, state, decoder or adamw is missing");
    TRY (check_pair (decoder, adamw, err));
    return adamw_widen (adamw, train_decoder_weights (decoder), err);
}

/* What is on a GPU is written from a copy. */
static train_status_t run_job (struct ckpt_job *job, train_error_t *err)
{
    struct ckpt_room room = {0};
    train_status_t status = TRAIN_OK;

    if (ckpt_job_is_gpu (job))
        status = ckpt_job_copy (job, &room, err);
    if (status == TRAIN_OK)
        status = ckpt_dir_begin (job->dir, job->step, &job->temp, err);
    if (status == TRAIN_OK)
        status = ckpt_job_run (job, err);
    ckpt_room_fini (&room);
    return status;
}

train_status_t train_ckpt_save (const char *dir,
                                const train_ckpt_state_t *state,
                                train_decoder_t *decoder, train_adamw_t *adamw,
                                int keep, train_error_t *err)
{
    struct ckpt_save s = {0};
    struct ckpt_job job = {0};
    struct ckpt_run run;
    train_status_t status;

    TRY (check_save (dir, state, decoder, adamw, err));
    run = run_of (decoder, adamw);
    status = ckpt_save_init (&s, dir, state, &run, keep, err);
    if (status == TRAIN_OK)
        status = ckpt_job_init (&job, s.tensors.piece, 3 * s.tensors.n, &s.opts,
                                0, 1, err);
    if (status == TRAIN_OK)
        status = run_job (&job, err);
    ckpt_job_fini (&job);
    ckpt_save_fini (&s);
    return status;
}

train_status_t train_ckpt_save_start (train_ckpt_saver_t *saver,
                                      const char *dir,
                                      const train_ckpt_state_t *state,
                                      train_decoder_t *decoder,
                                      train_adamw_t *adamw, int keep,
                                      train_error_t *err)
{
    struct ckpt_run run;

    TRY (check_save (dir, state, decoder, adamw, err));
    run = run_of (decoder, adamw);
    return ckpt_run_start (saver, dir, state, &run, keep, err);
}

train_status_t train_ckpt_prepare (const char *dir, train_error_t *err)
{
    char *temp = NULL;
    train_status_t status;

    if (!dir || !*dir)
        return err_set (err, TRAIN_EINVAL, "checkpoint: dir is missing");
    if ((status = ckpt_dir_begin (dir, 0, &temp, err)) != TRAIN_OK)
        return status;
    if (rmdir (temp) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", temp, strerror (errno));
    free (temp);
    return status;
}

train_status_t train_ckpt_load (const char *path, train_decoder_t *decoder,
                                train_adamw_t *adamw,
                                train_ckpt_state_t *ret_state,
                                train_error_t *err)
{
    train_ckpt_state_t state = {.size = sizeof (state)};
    struct ckpt_run run;

    if (!path || !decoder || !adamw || !ret_state)
        return err_set (
            err, TRAIN_EINVAL,
            "checkpoint: path, decoder, adamw or ret_state is NULL");
    TRY (opts_fits (ret_state, "checkpoint", err));
    TRY (check_pair (decoder, adamw, err));
    run = run_of (decoder, adamw);
    TRY (ckpt_run_load (path, &run, &state, err));
    train_adamw_set_updates (adamw, state.updates); /* rounding goes by it */
    TRY (adamw_narrow (adamw, train_decoder_weights (decoder), err));
    return opts_give (ret_state, &state, sizeof (state), "checkpoint", err);
}
