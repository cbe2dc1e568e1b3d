/* SPDX-License-Identifier: Apache-2.0
 * decoder_spent.c - gradients between their last use and the backward that
 * writes them anew
 *
 * Nothing is filled with zeros that a product writes whole. */
#include "decoder_impl.h"
#include "err.h"

void decoder_spend_grads (train_decoder_t *m, bool lend)
{
    m->spent = true;
    m->lend = lend;
}

size_t decoder_lendable (const train_decoder_t *m)
{
    size_t least = SIZE_MAX, each = m->kern->real_size;

    if (m->room_bytes > 0)
        return m->room_bytes;
    if (m->grad_at)
        return 0;
    for (size_t u = m->config.tie ? 1 : 0; u <= m->dims.L; u++) {
        if (m->units[u].first * each % DECODER_ALIGN != 0)
            return 0;
        if (m->units[u].count * each < least)
            least = m->units[u].count * each;
    }
    return least;
}

size_t decoder_roomless (const train_decoder_t *m)
{
    if (!m->config.tie)
        return m->dims.L + 1;
    return m->room_bytes > 0 ? m->dims.L : 0;
}

void decoder_set_rooms (train_decoder_t *m, void *const *rooms, size_t bytes)
{
    m->room_bytes = bytes;
    for (size_t u = 0; u <= m->dims.L; u++)
        m->places[u].room = bytes == 0 ? m->places[u].grads : rooms[u];
    if (m->config.tie)
        m->places[decoder_roomless (m)].room = NULL;
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
