/* SPDX-License-Identifier: Apache-2.0
 * decoder.c - a Llama-shaped decoder: life, arenas, checked passes */
#include "config.h"

#include <train/decoder.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "kernels/gemm.h"
#include "opts.h"

static const struct kern_ops *kernels_of (const train_decoder_t *m)
{
    switch (m->config.dtype) {
#if HAVE_CUDA
    case TRAIN_F32:
        return m->gpu ? &kern_ops_f32_cuda : &kern_ops_f32_host;
    case TRAIN_BF16:
        return m->gpu ? &kern_ops_bf16_cuda : &kern_ops_bf16_host;
    case TRAIN_F16:
        return m->gpu ? &kern_ops_f16_cuda : &kern_ops_f16_host;
#else
    case TRAIN_F32:
        return &kern_ops_f32_host;
    case TRAIN_BF16:
        return &kern_ops_bf16_host;
    case TRAIN_F16:
        return &kern_ops_f16_host;
#endif
    default:
        return &kern_ops_f64_host;
    }
}

static const struct decoder_work *work_of (const train_decoder_t *m)
{
#if HAVE_CUDA
    if (m->gpu)
        return &decoder_work_cuda;
#endif
    (void)m;
    return &decoder_work_host;
}

/* The host's products take their memory before weights do. */
static train_status_t make_ready (const train_decoder_t *m, train_error_t *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool ready; /* of this process */
    bool now;

    pthread_mutex_lock (&mutex);
    now = m->gpu || ready || (ready = gemm_ready ());
    pthread_mutex_unlock (&mutex);
    return now ? TRAIN_OK
               : err_set (err, TRAIN_ENOMEM,
                          "no memory for the %zu MiB that OpenBLAS works in; a "
                          "higher limit of address space (ulimit -v) would do",
                          GEMM_ROOM >> 20);
}

/* Memory, kernels and a stream of the device that the configuration names. */
static train_status_t open_device (train_decoder_t *m, train_error_t *err)
{
    void *memory = NULL, *stream = NULL;

    m->gpu = m->config.device.device_type == kDLCUDA;
    m->device = m->gpu ? m->config.device.device_id : 0;
#if !HAVE_CUDA
    if (m->gpu)
        return err_set (err, TRAIN_ENOTSUP,
                        "decoder on a GPU: libtrain was built without CUDA");
#endif
    TRY (backend_find (m->gpu ? "cuda" : "host", &m->ops, err));
    m->kern = kernels_of (m);
    m->work = work_of (m);
    TRY (make_ready (m, err));
    TRY (m->ops->alloc (m->device, sizeof (*m->sum), &memory, err));
    m->sum = memory;
    TRY (m->ops->pin (m->device, sizeof (*m->read), &memory, err));
    m->read = memory;
    if (m->gpu)
        TRY (m->ops->stream_create (m->device, &stream, err));
    m->stream = stream;
    return m->ops->fill (m->device, m->sum, 0, sizeof (*m->sum), m->stream,
                         err);
}

/* [beside]: elements that nobody sees. */
static train_status_t make_arena (train_decoder_t *m, train_dtype_t dtype,
                                  size_t n, size_t beside, const char *what,
                                  train_tensor_t *t, train_error_t *err)
{
    size_t bytes = (n + beside) * train_dtype_size (dtype);
    int64_t shape[1] = {(int64_t)n};
    void *data = NULL;
    train_status_t status = m->ops->alloc (m->device, bytes, &data, err);

    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s of %zu parameters (%zu bytes)",
                           what, n, bytes);
    TRY (train_tensor_view (t, data, dtype, 1, shape, err));
    if (m->gpu)
        t->t.device = (DLDevice){kDLCUDA, m->device};
    return m->ops->fill (m->device, data, 0, bytes, m->stream, err);
}

static train_status_t make_weights (train_decoder_t *m, train_error_t *err)
{
    m->grad_numel = m->numel;
    TRY (make_arena (m, m->config.dtype, m->numel, 0, "weights", &m->weights,
                     err));
    TRY (m->ops->sync (m->stream, err)); /* other streams fill them, too */
    for (size_t u = 0; u < decoder_n_units (m); u++)
        decoder_set_unit (m, u, NULL, NULL);
    return TRAIN_OK;
}

/* Gradients of weights are f32 where those are shorter. */
train_status_t decoder_want_grads (train_decoder_t *m, train_error_t *err)
{
    train_dtype_t dtype = m->config.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;

    if (m->grads.t.data || !m->weights.t.data)
        return TRAIN_OK;
    TRY (make_arena (m, dtype, m->grad_numel, decoder_sink (m), "gradients",
                     &m->grads, err));
    for (size_t u = 0; u < decoder_n_units (m); u++)
        if (!m->places[u].grads)
            decoder_set_unit (m, u, m->places[u].weights, NULL);
    return TRAIN_OK;
}

static train_status_t create (const train_decoder_config_t *config, bool bare,
                              train_decoder_t **ret_decoder, train_error_t *err)
{
    train_decoder_config_t own;
    train_decoder_t *m;
    train_status_t status;

    if (!config || !ret_decoder)
        return err_set (err, TRAIN_EINVAL, "decoder: config or ret is NULL");
    TRY (opts_read (&own, sizeof (own), config, "decoder", err));
    m = calloc (1, sizeof (*m));
    if (!m)
        return err_set (err, TRAIN_ENOMEM, "no memory for a decoder");
    status = decoder_layout (m, &own, err);
    if (status == TRAIN_OK)
        status = open_device (m, err);
    if (status == TRAIN_OK && !bare)
        status = make_weights (m, err);
    if (status != TRAIN_OK) {
        train_decoder_destroy (m);
        return status;
    }
    *ret_decoder = m;
    return TRAIN_OK;
}

train_status_t train_decoder_create (const train_decoder_config_t *config,
                                     train_decoder_t **ret_decoder,
                                     train_error_t *err)
{
    return create (config, false, ret_decoder, err);
}

train_status_t decoder_create_bare (const train_decoder_config_t *config,
                                    train_decoder_t **ret_decoder,
                                    train_error_t *err)
{
    return create (config, true, ret_decoder, err);
}

static void close_device (train_decoder_t *m)
{
    if (m->stream)
        (void)m->ops->sync (m->stream, NULL);
    decoder_replay_forget (m);
    m->work->destroy (m);
    for (size_t i = 0; i < 2; i++) {
        if (m->ids[i].pinned)
            m->ops->unpin (m->ids[i].pinned, m->ids[i].bytes);
        if (m->ids[i].event)
            m->ops->event_destroy (m->ids[i].event);
    }
    free (m->front.own);
    m->ops->free (m->acts);
    m->ops->free (m->weights.t.data);
    m->ops->free (m->grads.t.data);
    m->ops->free (m->sum);
    if (m->read)
        m->ops->unpin (m->read, sizeof (*m->read));
    if (m->stream)
        m->ops->stream_destroy (m->stream);
}

void train_decoder_destroy (train_decoder_t *m)
{
    if (!m)
        return;
    if (m->ops)
        close_device (m);
    free (m->places);
    free (m->until);
    free (m->units);
    free (m->blocks);
    free (m->names);
    free (m->params);
    free (m->still);
    free (m->grad_at);
    free (m);
}

size_t train_decoder_n_params (const train_decoder_t *m)
{
    return m->n_params;
}

const train_param_t *train_decoder_param (const train_decoder_t *m,
                                          size_t index)
{
    return index < m->n_params ? &m->params[index] : NULL;
}

size_t train_decoder_numel (const train_decoder_t *m)
{
    return m->numel;
}

const train_decoder_config_t *train_decoder_config (const train_decoder_t *m)
{
    return &m->config;
}

DLTensor *train_decoder_weights (train_decoder_t *m)
{
    return &m->weights.t;
}

DLTensor *train_decoder_grads (train_decoder_t *m)
{
    (void)decoder_want_grads (m, NULL);
    return &m->grads.t;
}

train_status_t decoder_choices (const train_decoder_t *m, void **ret,
                                size_t *ret_bytes, train_error_t *err)
{
    *ret = NULL;
    *ret_bytes = 0;
    if (!m->work->choices || !m->config.deterministic)
        return TRAIN_OK;
    return m->work->choices (m, ret, ret_bytes, err);
}

train_status_t decoder_take_choices (train_decoder_t *m, const void *from,
                                     size_t bytes, train_error_t *err)
{
    train_status_t status;
    int before;

    if (!m->work->take_choices || !m->config.deterministic)
        return TRAIN_OK;
    before = m->ops->enter (m->device);
    status = m->work->take_choices (m, from, bytes, err);
    m->ops->leave (before);
    return status;
}

/* Arguments, then room for the batch and its ids in place. */
static train_status_t take_batch (train_decoder_t *m, const int32_t *tokens,
                                  const int32_t *targets, int B, int T,
                                  int64_t *ret_n, train_error_t *err)
{
    if (!tokens)
        return err_set (err, TRAIN_EINVAL, "decoder: tokens is NULL");
    TRY (decoder_prepare (m, B, T, err));
    return decoder_take_ids (m, tokens, targets, ret_n, err);
}

train_status_t decoder_loss_read (train_decoder_t *m, double *ret_loss_sum,
                                  train_error_t *err)
{
    TRY (m->ops->copy (m->read, m->sum, sizeof (*m->sum), m->stream, err));
    TRY (m->ops->fill (m->device, m->sum, 0, sizeof (*m->sum), m->stream, err));
    TRY (m->ops->sync (m->stream, err));
    *ret_loss_sum = *m->read;
    return TRAIN_OK;
}

train_status_t decoder_forward_add (train_decoder_t *m, void *logits,
                                    const int32_t *tokens,
                                    const int32_t *targets, int B, int T,
                                    int64_t *ret_n, train_error_t *err)
{
    int before = m->ops->enter (m->device);
    train_status_t status = take_batch (m, tokens, targets, B, T, ret_n, err);

    if (status == TRAIN_OK)
        status = decoder_forward (m, logits, targets != NULL, err);
    m->ops->leave (before);
    return status;
}

train_status_t train_decoder_forward (train_decoder_t *m, void *logits,
                                      const int32_t *tokens,
                                      const int32_t *targets, int B, int T,
                                      double *ret_loss_sum, int64_t *ret_n,
                                      train_error_t *err)
{
    if (targets && (!ret_loss_sum || !ret_n))
        return err_set (err, TRAIN_EINVAL,
                        "decoder: targets without a place for the loss");
    TRY (decoder_forward_add (m, logits, tokens, targets, B, T, ret_n, err));
    if (targets)
        TRY (decoder_loss_read (m, ret_loss_sum, err));
    return m->ops->sync (m->stream, err);
}

train_status_t decoder_step_add (train_decoder_t *m, const int32_t *tokens,
                                 const int32_t *targets, int B, int T,
                                 double scale, int64_t *ret_n,
                                 train_error_t *err)
{
    int before = m->ops->enter (m->device);
    train_status_t status = decoder_want_grads (m, err);

    if (status == TRAIN_OK)
        status = take_batch (m, tokens, targets, B, T, ret_n, err);
    if (status == TRAIN_OK)
        status = decoder_replay_step (m, scale, err);
    m->ops->leave (before);
    return status;
}

train_status_t train_decoder_step (train_decoder_t *m, const int32_t *tokens,
                                   const int32_t *targets, int B, int T,
                                   double scale, double *ret_loss_sum,
                                   int64_t *ret_n, train_error_t *err)
{
    if (!targets || !ret_loss_sum || !ret_n)
        return err_set (err, TRAIN_EINVAL,
                        "decoder: targets or a place for the loss is NULL");
    TRY (decoder_step_add (m, tokens, targets, B, T, scale, ret_n, err));
    return decoder_loss_read (m, ret_loss_sum, err);
}
