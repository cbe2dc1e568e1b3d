/* SPDX-License-Identifier: Apache-2.0
 * decoder_batch.c - what stands ready before a pass: room, tables, ids
 *
 * On a GPU ids go through two pinned buffers in turn, so that the host may
 * write a batch while the one before is on its way. */
#include <stdint.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

#include "kernels/kernels.h"

static size_t larger (size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t decoder_kernel_scratch (const train_decoder_t *m, size_t N)
{
    const struct decoder_dims *d = &m->dims;
    size_t most;

    most = larger (kern_rmsnorm_scratch (N, d->C),
                   kern_embedding_scratch (N, d->V));
    if (d->norm)
        most = larger (most, kern_headnorm_scratch (N, d->H, d->G, d->D));
    if (d->bias)
        most = larger (most, kern_bias_scratch (N, d->Q));
    return most;
}

static train_status_t grow (train_decoder_t *m, size_t bytes,
                            train_error_t *err)
{
    train_status_t status;
    void *acts = NULL;

    if (bytes <= m->acts_bytes)
        return TRAIN_OK;
    /* what is there goes first: both together may not fit */
    m->ops->free (m->acts);
    m->acts = NULL;
    m->acts_bytes = 0;
    m->tables.T = 0;
    status = m->ops->alloc (m->device, bytes, &acts, err);
    if (status != TRAIN_OK)
        return status;
    m->acts = acts;
    m->acts_bytes = bytes;
    return TRAIN_OK;
}

static struct decoder_need need_of (const train_decoder_t *m, int B, int T)
{
    struct decoder_need need = {
        .elem = m->kern->elem_size,
        .real = m->kern->real_size,
        .recompute = (int)m->config.recompute,
        .whole = !m->gpu && m->kern->elem_size == m->kern->real_size,
        .gpu = m->gpu,
        .docs = m->documents != NULL,
    };

    if (!need.whole && B > 0 && T > 0)
        need.head = m->work->head_scratch (m, (size_t)B * (size_t)T);
    return need;
}

size_t decoder_acts_bytes (const train_decoder_t *m, int B, int T)
{
    struct decoder_need need = need_of (m, B, T);
    struct decoder_acts layout;

    if (m->gpu)
        need.scratch = decoder_kernel_scratch (m, (size_t)B * (size_t)T);
    if (m->work->foresee)
        need.attention = m->work->foresee (m, B, T);
    return decoder_acts_layout (&m->dims, &need, B, T, &layout, NULL)
                   == TRAIN_OK
               ? layout.bytes
               : SIZE_MAX / 4;
}

train_status_t decoder_prepare (train_decoder_t *m, int B, int T,
                                train_error_t *err)
{
    struct decoder_need need = need_of (m, B, T);
    struct decoder_acts layout;
    train_status_t status;

    m->loan = m->spent && m->lend ? decoder_loan (m) : NULL;
    if (m->loan)
        need.until = m->until;
    if (m->acts && m->B == B && m->T == T && m->docs == need.docs
        && m->layout.lends == (need.until != NULL))
        return TRAIN_OK;
    TRY (decoder_acts_layout (&m->dims, &need, B, T, &layout, err));
    /* What passes of the last shape still wait for may never come: from here on
     * the driver would wait, which knows no ranks. */
    if (m->acts)
        TRY (decoder_wait (m, err));
    m->B = m->T = 0;
    m->docs = need.docs;
    decoder_replay_forget (m);
    TRY (m->work->prepare (m, B, T, &need.attention, err));
    if (m->gpu)
        need.scratch = decoder_kernel_scratch (m, (size_t)B * (size_t)T);
    TRY (decoder_acts_layout (&m->dims, &need, B, T, &layout, err));
    status = grow (m, layout.bytes, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status,
                           "activations of %d sequences of %d tokens", B, T);
    m->layout = layout;
    m->B = B;
    m->T = T;
    return decoder_rope (m, err);
}

train_status_t decoder_open_products (train_decoder_t *m, train_error_t *err)
{
    size_t scratch;

    if (!m->gpu || m->engine)
        return TRAIN_OK;
    return m->work->prepare (m, 1, 128, &scratch, err);
}

/* Every id in low..vocab-1. */
static train_status_t check_ids (const train_decoder_t *m, const char *what,
                                 const int32_t *ids, int low,
                                 train_error_t *err)
{
    size_t T = (size_t)m->T, N = (size_t)m->B * T;
    int vocab = m->config.vocab;

    for (size_t n = 0; n < N; n++)
        if (ids[n] < low || ids[n] >= vocab)
            return err_set (err, TRAIN_EINVAL,
                            "%s %d of sequence %zu, position %zu: must be "
                            "in %d..%d",
                            what, (int)ids[n], n / T, n % T, low, vocab - 1);
    return TRAIN_OK;
}

/* A buffer of the host that no copy reads any more. */
static train_status_t free_ids (train_decoder_t *m, size_t bytes,
                                struct decoder_ids **ret, train_error_t *err)
{
    struct decoder_ids *i = &m->ids[m->turn];
    void *pinned = NULL;

    if (i->used)
        TRY (m->ops->event_sync (i->event, err));
    if (i->bytes < bytes) {
        if (i->pinned)
            m->ops->unpin (i->pinned, i->bytes);
        *i = (struct decoder_ids){.event = i->event};
        TRY (m->ops->pin (m->device, bytes, &pinned, err));
        i->pinned = pinned;
        i->bytes = bytes;
    }
    if (!i->event)
        TRY (m->ops->event_create (m->device, &i->event, err));
    m->turn = !m->turn;
    *ret = i;
    return TRAIN_OK;
}

/* Numbers of rows with a target, where not all have one. */
static train_status_t send_front (train_decoder_t *m, int32_t *pinned,
                                  const int32_t *targets, size_t n,
                                  train_error_t *err)
{
    size_t N = (size_t)m->B * (size_t)m->T;
    int32_t *to = decoder_act (m, m->layout.front, 0);

    if (n < N) {
        decoder_front_fill (pinned, targets, N, n);
        TRY (m->ops->copy (to, pinned, 3 * N * sizeof (*to), m->stream, err));
    }
    decoder_front_use (m, n, to);
    return TRAIN_OK;
}

static train_status_t send_ids (train_decoder_t *m, const int32_t *tokens,
                                const int32_t *targets, size_t n,
                                train_error_t *err)
{
    size_t N = (size_t)m->B * (size_t)m->T, bytes = N * sizeof (*tokens);
    int32_t *to = decoder_act (m, m->layout.tokens, 0);
    int32_t *aims = decoder_act (m, m->layout.targets, 0);
    struct decoder_ids *i = NULL;

    TRY (free_ids (m, 6 * bytes, &i, err));
    memcpy (i->pinned, tokens, bytes);
    TRY (m->ops->copy (to, i->pinned, bytes, m->stream, err));
    if (targets) {
        memcpy (i->pinned + N, targets, bytes);
        TRY (m->ops->copy (aims, i->pinned + N, bytes, m->stream, err));
        TRY (send_front (m, i->pinned + 3 * N, targets, n, err));
    }
    if (m->documents) {
        memcpy (i->pinned + 2 * N, m->documents, bytes);
        TRY (m->ops->copy (decoder_act (m, m->layout.starts, 0),
                           i->pinned + 2 * N, bytes, m->stream, err));
    }
    TRY (m->ops->event_record (i->event, m->device, m->stream, err));
    i->used = true;
    m->tokens = to;
    m->targets = targets ? aims : NULL;
    return TRAIN_OK;
}

train_status_t decoder_take_ids (train_decoder_t *m, const int32_t *tokens,
                                 const int32_t *targets, int64_t *ret_n,
                                 train_error_t *err)
{
    size_t N = (size_t)m->B * (size_t)m->T;
    int64_t counted = 0;

    m->inv_t = 0;
    TRY (decoder_check_docs (m, err));
    TRY (check_ids (m, "token", tokens, 0, err));
    if (targets)
        TRY (check_ids (m, "target", targets, -1, err));
    for (size_t n = 0; targets && n < N; n++)
        counted += targets[n] >= 0;
    if (m->gpu) {
        TRY (send_ids (m, tokens, targets,
                       decoder_front_rows (m, (size_t)counted), err));
    } else {
        m->tokens = tokens;
        m->targets = targets;
    }
    decoder_place_docs (m);
    if (ret_n)
        *ret_n = counted;
    return TRAIN_OK;
}
