/* SPDX-License-Identifier: Apache-2.0
 * decoder_frozen.c - weights that stay as they are: their gradients are not made
 * and have no memory
 *
 * Beside adapters nearly all weights are such. (Hu et al. 2021,
 * arXiv:2106.09685.) */
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

/* Is the parameter at [offset] written with the one before it? */
static bool is_fused (const train_decoder_t *m, size_t offset)
{
    const struct decoder_dims *d = &m->dims;

    for (size_t l = 0; l < d->L; l++) {
        const struct decoder_block *b = &m->blocks[l];

        if (offset > b->qkv && offset < b->qkv + d->Q * d->C)
            return true;
        if (offset > b->gate_up && offset < b->gate_up + 2 * d->F * d->C)
            return true;
        if (d->bias && offset > b->bias && offset < b->bias + d->Q)
            return true;
    }
    return false;
}

/* What one kernel writes is still where all of it is. */
static void find_still (train_decoder_t *m, const bool *frozen)
{
    for (size_t i = 0, end; i < m->n_params; i = end) {
        bool all = frozen[i];

        for (end = i + 1; end < m->n_params; end++) {
            if (!is_fused (m, m->params[end].offset))
                break;
            all &= frozen[end];
        }
        for (size_t k = i; k < end; k++)
            m->still[k] = all;
    }
}

/* Gradients side by side, without those that nobody makes. */
static train_status_t place_grads (train_decoder_t *m, train_error_t *err)
{
    size_t sum = 0;

    for (size_t i = 0; i < m->n_params; i++)
        sum += m->still[i] ? 0 : m->params[i].count;
    if (sum == m->numel)
        return TRAIN_OK;
    if (!(m->grad_at = calloc (m->n_params, sizeof (*m->grad_at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu places",
                        m->n_params);
    m->grad_numel = 0;
    for (size_t i = 0; i < m->n_params; i++) {
        m->grad_at[i] = m->grad_numel;
        m->grad_numel += m->still[i] ? 0 : m->params[i].count;
    }
    return TRAIN_OK;
}

static void drop_grads (train_decoder_t *m)
{
    m->ops->free (m->grads.t.data);
    m->grads = (train_tensor_t){0};
    for (size_t u = 0; u < decoder_n_units (m); u++)
        m->places[u].grads = NULL;
}

/* All train, as at first. */
static void thaw (train_decoder_t *m)
{
    decoder_replay_forget (m);
    if (m->grad_at)
        drop_grads (m);
    free (m->still);
    free (m->grad_at);
    m->still = NULL;
    m->grad_at = NULL;
    m->in_rooms = false;
    m->grad_numel = m->numel;
}

train_status_t decoder_freeze (train_decoder_t *m, const bool *frozen,
                               bool alone, train_error_t *err)
{
    bool any = false;

    thaw (m);
    for (size_t i = 0; frozen && i < m->n_params; i++)
        any |= frozen[i];
    if (!any)
        return TRAIN_OK;
    if (!(m->still = calloc (m->n_params, sizeof (*m->still))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu parameters",
                        m->n_params);
    find_still (m, frozen);
    if (alone)
        TRY (place_grads (m, err));
    if (m->grad_at)
        drop_grads (m);
    return TRAIN_OK;
}

static size_t param_at (const train_decoder_t *m, size_t offset)
{
    size_t low = 0, high = m->n_params;

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;

        if (m->params[mid].offset <= offset)
            low = mid;
        else
            high = mid;
    }
    return low;
}

bool decoder_is_still (const train_decoder_t *m, size_t offset)
{
    return m->still && m->still[param_at (m, offset)];
}

size_t decoder_grad_at (const train_decoder_t *m, size_t offset)
{
    return m->grad_at ? m->grad_at[param_at (m, offset)] : offset;
}

size_t decoder_widest_vector (const train_decoder_t *m)
{
    return m->dims.C > m->dims.Q ? m->dims.C : m->dims.Q;
}

size_t decoder_sink (const train_decoder_t *m)
{
    return !m->grad_at || m->in_rooms ? 0 : decoder_widest_vector (m);
}

train_status_t decoder_place_grads (train_decoder_t *m, const size_t *at,
                                    train_error_t *err)
{
    if (!(m->grad_at = calloc (m->n_params, sizeof (*m->grad_at))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu places",
                        m->n_params);
    memcpy (m->grad_at, at, m->n_params * sizeof (*at));
    m->in_rooms = true;
    return TRAIN_OK;
}

void *decoder_own_grad (const train_decoder_t *m, size_t unit, size_t offset)
{
    size_t i = param_at (m, offset);
    char *base = m->in_rooms ? m->places[unit].grads : m->grads.t.data;
    size_t sink = m->in_rooms ? 0 : m->grad_numel;

    if (m->still[i] && m->params[i].ndim == 2)
        return NULL;
    if (!m->grad_at)
        return decoder_grad_place (m, unit, offset);
    return base + (m->still[i] ? sink : m->grad_at[i]) * m->kern->real_size;
}
