/* SPDX-License-Identifier: Apache-2.0
 * decoder_spent.c - gradients between their last use and the backward that
 * writes them anew
 *
 * Nothing is filled with zeros that a product writes whole. */
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

void decoder_spend_grads (train_decoder_t *m, bool lend)
{
    m->spent = true;
    m->lend = lend;
}

/* Where the gradients of unit [u] begin, or would: bytes. */
static size_t grads_at (const train_decoder_t *m, size_t u)
{
    return decoder_grad_at (m, m->units[u].first) * m->kern->real_size;
}

/* Bytes of the gradients before the first line of theirs that is lent. */
static size_t before_loan (const train_decoder_t *m)
{
    size_t first = m->config.tie ? grads_at (m, 1) : 0;
    size_t past = ((uintptr_t)m->grads.t.data + first) % DECODER_ALIGN;

    return first + (past ? DECODER_ALIGN - past : 0);
}

bool decoder_lendable (const train_decoder_t *m, size_t *until)
{
    size_t begin = before_loan (m);

    if (m->given && until != m->until)
        memcpy (until, m->until, (m->dims.L + 1) * sizeof (*until));
    if (m->given || m->in_rooms)
        return m->given;
    for (size_t l = 0; l <= m->dims.L; l++) {
        size_t end = grads_at (m, l + 1);

        until[l] = end > begin ? end - begin : 0;
    }
    return until[m->dims.L] > 0;
}

void *decoder_loan (train_decoder_t *m)
{
    if (m->given)
        return m->given;
    return m->grads.t.data && decoder_lendable (m, m->until)
               ? (char *)m->grads.t.data + before_loan (m)
               : NULL;
}

void decoder_set_loan (train_decoder_t *m, void *at, const size_t *until)
{
    decoder_replay_forget (m);
    m->B = m->T = 0; /* the layout is another's */
    m->given = at;
    if (at)
        memcpy (m->until, until, (m->dims.L + 1) * sizeof (*until));
}

train_status_t decoder_settle_grads (train_decoder_t *m, train_error_t *err)
{
    if (!m->spent)
        return TRAIN_OK;
    if (m->grads.t.data)
        TRY (m->ops->fill (m->device, m->grads.t.data, 0,
                           (size_t)train_tensor_bytes (&m->grads.t), m->stream,
                           err));
    m->spent = false;
    return TRAIN_OK;
}

/* Of a GPU, the weights of products but the head: those of the embedding are of
 * few rows, and the head's come in pieces. The host's products add. Beside
 * adapters those alone. */
static bool is_written (const train_decoder_t *m, const train_param_t *p)
{
    if (decoder_is_still (m, p->offset)
        || (m->dims.lora.rank > 0 && !decoder_is_lora (p->name)))
        return false; /* nobody writes it */
    return m->gpu && p->ndim == 2 && p->offset != m->embed
           && p->offset != m->head;
}

train_status_t decoder_clear_unit (train_decoder_t *m, size_t unit,
                                   train_error_t *err)
{
    const struct decoder_unit *u = &m->units[unit];
    size_t each = m->kern->real_size;
    void *at;

    if (!m->spent)
        return TRAIN_OK;
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];

        if (p->offset < u->first || p->offset >= u->first + u->count
            || is_written (m, p))
            continue;
        if (m->grad_at && decoder_is_still (m, p->offset))
            continue;
        at = m->grad_at ? decoder_own_grad (m, unit, p->offset)
                        : decoder_grad_place (m, unit, p->offset);
        TRY (m->ops->fill (m->device, at, 0, p->count * each, m->stream, err));
    }
    return TRAIN_OK;
}
