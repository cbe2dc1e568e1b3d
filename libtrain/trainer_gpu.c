/* SPDX-License-Identifier: Apache-2.0
 * trainer_gpu.c - passes, norm and update of one GPU, enqueued together */
#include "trainer_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"
#include "gpu_step.h"
#include "hf_impl.h"
#include "optim.h"
#include "trainer.h"

struct trainer_gpu {
    train_shard_plan_t *plan; /* of one rank */
    bool *no_decay, *frozen;  /* (parameters) */
    struct gpu_step *step;
    train_decoder_t *decoder;
};

static bool always;

void trainer_gpu_always (bool on)
{
    always = on;
}

bool trainer_gpu_serves (const train_trainer_t *t)
{
    const train_decoder_config_t *c = train_decoder_config (t->decoder);

    return (c->device.device_type == kDLCUDA
            || (always && c->dtype != TRAIN_F64))
           && train_group_size (t->group) == 1
           && t->opts.strategy < TRAIN_SHARD_GRAD_OP;
}

static train_status_t make_plan (const train_trainer_t *t,
                                 train_shard_plan_t **ret, train_error_t *err)
{
    train_shard_layout_t layout = {.size = sizeof (layout), .world = 1};
    size_t n = train_decoder_n_params (t->decoder);
    train_shard_param_t *params = calloc (n, sizeof (*params));
    train_status_t status;

    if (!params)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = train_decoder_param (t->decoder, i);

        params[i] = (train_shard_param_t){
            .name = p->name, .count = p->count, .tied = -1};
    }
    status = train_shard_plan_create (&layout, params, n, ret, err);
    free (params);
    return status;
}

static size_t grad_at (const void *decoder, size_t offset)
{
    return decoder_grad_at (decoder, offset);
}

static train_status_t make_adamw (train_trainer_t *t,
                                  const struct trainer_gpu *g,
                                  train_error_t *err)
{
    const train_decoder_config_t *c = train_decoder_config (t->decoder);
    size_t n = train_decoder_n_params (t->decoder), k = 0;
    train_param_t *params = calloc (n, sizeof (*params));
    train_adamw_options_t o = t->opts.adamw;
    train_status_t status;

    if (!params)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters", n);
    for (size_t i = 0; i < n; i++) {
        if (g->frozen[i])
            continue;
        params[k] = *train_decoder_param (t->decoder, i);
        params[k++].decay &= !g->no_decay[i];
    }
    o.device = c->device;
    o.offload = t->opts.offload;
    status = adamw_create_at (&o, c->dtype, train_decoder_numel (t->decoder),
                              params, NULL, k, ADAMW_OWN, &t->adamw, err);
    free (params);
    if (status == TRAIN_OK)
        adamw_place_grads (t->adamw, t->decoder->grad_numel, grad_at,
                           t->decoder);
    return status;
}

/* Masters are there from the beginning, so that they can be saved. The
 * decoder's own stream may still be filling its weights. */
static train_status_t make_masters (train_trainer_t *t, train_error_t *err)
{
    const train_decoder_t *m = t->decoder;

    TRY (m->ops->sync (m->stream, err));
    return adamw_widen (t->adamw, train_decoder_weights (t->decoder), err);
}

train_status_t trainer_gpu_create (train_trainer_t *t, struct trainer_gpu **ret,
                                   train_error_t *err)
{
    const train_trainer_options_t *o = &t->opts;
    struct trainer_gpu *g = calloc (1, sizeof (*g));
    train_status_t status;

    if (!g)
        return err_set (err, TRAIN_ENOMEM, "no memory for a trainer");
    g->decoder = t->decoder;
    status = make_plan (t, &g->plan, err);
    if (status == TRAIN_OK)
        status = fsdp_match (g->plan, o->no_decay, o->frozen, &g->no_decay,
                             &g->frozen, err);
    if (status == TRAIN_OK)
        status = decoder_freeze (t->decoder, g->frozen, true, err);
    if (status == TRAIN_OK)
        status = decoder_want_grads (t->decoder, err);
    if (status == TRAIN_OK)
        status = make_adamw (t, g, err);
    if (status == TRAIN_OK)
        status = make_masters (t, err);
    if (status == TRAIN_OK)
        status = gpu_step_create (t->decoder, t->adamw, &g->step, err);
    if (status == TRAIN_OK)
        *ret = g;
    else
        trainer_gpu_destroy (g);
    return status;
}

void trainer_gpu_destroy (struct trainer_gpu *g)
{
    if (!g)
        return;
    gpu_step_destroy (g->step);
    (void)decoder_freeze (g->decoder, NULL, false, NULL);
    train_shard_plan_destroy (g->plan);
    free (g->no_decay);
    free (g->frozen);
    free (g);
}

/* One unit of what is drawn or in files, in f32, to the masters. */
static train_status_t init_unit (train_trainer_t *t,
                                 const train_decoder_t *draws,
                                 const train_safetensors_t *files, size_t unit,
                                 uint64_t seed, train_error_t *err)
{
    const train_decoder_t *m = t->decoder;
    const struct decoder_unit *u = decoder_unit (draws, unit);
    DLTensor *to = train_trainer_weights (t);
    float *drawn = malloc (u->count * sizeof (*drawn));
    train_status_t status;

    if (!drawn)
        return err_set (err, TRAIN_ENOMEM, "no memory to draw unit %zu", unit);
    if (files)
        hf_unit (draws, files, unit, seed, drawn);
    else
        decoder_init_unit (draws, unit, seed, drawn);
    if (adamw_is_own (t->adamw))
        status = adamw_put (t->adamw, to, drawn, u->first, u->count, err);
    else
        status = m->ops->copy ((float *)to->data + u->first, drawn,
                               u->count * sizeof (*drawn), m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (drawn);
    return status;
}

train_status_t trainer_gpu_init (train_trainer_t *t,
                                 const train_safetensors_t *files,
                                 uint64_t seed, train_error_t *err)
{
    train_decoder_config_t c = *train_decoder_config (t->decoder);
    train_decoder_t *draws = NULL; /* the same model, of the masters' type */
    train_status_t status;

    c.dtype = TRAIN_F32;
    c.device = (DLDevice){kDLCPU, 0};
    status = decoder_create_bare (&c, &draws, err);
    for (size_t u = 0; status == TRAIN_OK && u < decoder_n_units (draws); u++)
        status = init_unit (t, draws, files, u, seed, err);
    train_decoder_destroy (draws);
    return status == TRAIN_OK ? trainer_gpu_updated (t, err) : status;
}

train_status_t trainer_gpu_updated (train_trainer_t *t, train_error_t *err)
{
    return adamw_narrow (t->adamw, train_decoder_weights (t->decoder), err);
}

/* Of matrices nothing was made, and of vectors in nobody's memory, but where they
 * are written with others. */
static bool is_written (const train_decoder_t *m, const train_param_t *p)
{
    return !decoder_is_still (m, p->offset) || (!m->grad_at && p->ndim == 1);
}

/* Gradients of frozen parameters are none. */
static train_status_t still (const train_trainer_t *t, train_error_t *err)
{
    const train_decoder_t *m = t->decoder;

    for (size_t i = 0; i < m->n_params; i++)
        if (t->gpu->frozen[i] && is_written (m, &m->params[i]))
            TRY (m->ops->fill (m->device,
                               (float *)m->grads.t.data
                                   + decoder_grad_at (m, m->params[i].offset),
                               0, m->params[i].count * sizeof (float),
                               m->stream, err));
    return TRAIN_OK;
}

train_status_t trainer_gpu_pass (train_trainer_t *t, int p, int64_t *counted,
                                 train_error_t *err)
{
    int rows;
    int64_t n = 0;

    if (!t->data)
        return trainer_ask (t, p, &rows, counted, err);
    TRY (trainer_take_rows (t, p, &rows, err));
    if (rows <= 0)
        return TRAIN_OK;
    TRY (decoder_step_add (t->decoder, t->tokens, t->targets, rows,
                           train_data_seq (t->data), trainer_token_scale (t),
                           &n, err));
    *counted += n;
    return TRAIN_OK;
}

train_status_t trainer_gpu_begin (train_trainer_t *t, train_error_t *err)
{
    (void)err;
    gpu_step_begin (t->gpu->step, t->passes);
    return TRAIN_OK;
}

/* The loss of these passes is nobody's. */
train_status_t trainer_gpu_finish (train_trainer_t *t, train_error_t *err)
{
    double loss;

    TRY (decoder_settle_grads (t->decoder, err));
    TRY (still (t, err));
    return decoder_loss_read (t->decoder, &loss, err);
}

train_status_t trainer_gpu_step (train_trainer_t *t, double lr,
                                 struct trainer_gpu_report *ret,
                                 train_error_t *err)
{
    double factor = trainer_loss_scale (t);
    struct gpu_step_report report = {0};
    int64_t n = 0;

    TRY (trainer_gpu_begin (t, err));
    for (int p = 0; p < t->passes; p++)
        TRY (trainer_gpu_pass (t, p, &n, err));
    TRY (decoder_settle_grads (t->decoder, err));
    TRY (still (t, err));
    TRY (gpu_step_end (t->gpu->step, lr, t->opts.clip, 1 / factor, &report,
                       err));
    *ret = (struct trainer_gpu_report){report.loss, report.norm, n,
                                       report.skipped, ret->stop};
    return TRAIN_OK;
}

const train_shard_plan_t *trainer_gpu_plan (const struct trainer_gpu *g)
{
    return g->plan;
}

train_status_t trainer_gpu_unused (train_trainer_t *t, char *text, size_t size,
                                   train_error_t *err)
{
    size_t n = train_decoder_n_params (t->decoder), used = 0;
    double *sums = calloc (n, sizeof (*sums));
    train_status_t status;

    if (!sums)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu sums", n);
    status = gpu_step_sums (t->gpu->step, sums, err);
    if (size)
        text[0] = '\0';
    for (size_t i = 0; status == TRAIN_OK && i < n; i++)
        if (!t->gpu->frozen[i] && sums[i] == 0 && used < size
            && !decoder_waits (train_decoder_param (t->decoder, i)->name))
            used += (size_t)snprintf (
                text + used, size - used, "%s%s", used ? ", " : "",
                train_decoder_param (t->decoder, i)->name);
    free (sums);
    return status;
}
