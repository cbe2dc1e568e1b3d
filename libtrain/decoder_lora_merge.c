/* SPDX-License-Identifier: Apache-2.0
 * decoder_lora_merge.c - weights with what their adapters add, as a model without
 * adapters has them: of files, or of the decoder itself where it is */
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"

/* Element 0 of the weight that adapter [k] is beside. */
static size_t weight_of (const train_decoder_t *m, size_t l, int k)
{
    const struct decoder_block *b = &m->blocks[l];
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    const size_t fused[TRAIN_LORA_N] = {b->qkv,     b->qkv,     b->qkv, b->out,
                                        b->gate_up, b->gate_up, b->down};

    return fused[k] + o.col * o.in;
}

/* Row [i] of W + scale B A; sum (in) is room. */
static void merge_row (const train_decoder_t *m, size_t l, int k, size_t i,
                       const double *A, double *sum, const void *x, void *y,
                       train_dtype_t to)
{
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    size_t R = (size_t)m->dims.lora.rank, b = m->blocks[l].lora_b[k] + i * R;
    size_t w = weight_of (m, l, k) + i * o.in;
    double scale = m->dims.lora.alpha / m->dims.lora.rank;
    train_dtype_t from = m->config.dtype;

    for (size_t j = 0; j < o.in; j++)
        sum[j] = 0;
    for (size_t r = 0; r < R; r++) {
        double f = elem_get (from, x, b + r);

        for (size_t j = 0; j < o.in; j++)
            sum[j] += f * A[r * o.in + j];
    }
    for (size_t j = 0; j < o.in; j++)
        elem_put (to, y, w + j, elem_get (from, x, w + j) + scale * sum[j]);
}

train_status_t decoder_lora_merge (const train_decoder_t *m, const void *x,
                                   void *y, train_dtype_t to,
                                   train_error_t *err)
{
    size_t R = (size_t)m->dims.lora.rank, most = decoder_lora_widest (&m->dims);
    double *A = malloc ((R + 1) * most * sizeof (*A));

    if (!A)
        return err_set (err, TRAIN_ENOMEM, "no memory to merge adapters");
    for (size_t l = 0; l < m->dims.L; l++)
        for (int k = 0; k < TRAIN_LORA_N; k++) {
            struct decoder_lora o = decoder_lora_of (&m->dims, k);

            if (!(m->dims.lora.targets & 1 << k))
                continue;
            for (size_t e = 0; e < R * o.in; e++)
                A[e] =
                    elem_get (m->config.dtype, x, m->blocks[l].lora_a[k] + e);
            for (size_t i = 0; i < o.out; i++)
                merge_row (m, l, k, i, A, A + R * most, x, y, to);
        }
    free (A);
    return TRAIN_OK;
}

/* What adapter [k] adds to its weight is added in [w], the weights of unit
 * l + 1. [tmp] has room for it. */
static train_status_t add_one (train_decoder_t *m, size_t l, int k, char *w,
                               void *tmp, train_error_t *err)
{
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    size_t R = (size_t)m->dims.lora.rank, first = m->units[l + 1].first;
    size_t size = m->kern->elem_size;
    const void *A = w + (m->blocks[l].lora_a[k] - first) * size;
    const void *B = w + (m->blocks[l].lora_b[k] - first) * size;

    TRY (m->work->linear_dx (m, tmp, B, A, o.out, o.in, R, err));
    m->kern->cols_add (w + (weight_of (m, l, k) - first) * size, tmp, o.out,
                       o.in, o.in, 0, m->dims.lora.alpha / m->dims.lora.rank,
                       m->stream);
    return TRAIN_OK;
}

static train_status_t make_tmp (train_decoder_t *m, void **ret,
                                train_error_t *err)
{
    size_t most = 1;

    for (int k = 0; k < TRAIN_LORA_N; k++) {
        struct decoder_lora o = decoder_lora_of (&m->dims, k);

        if (m->dims.lora.targets & 1 << k && o.out * o.in > most)
            most = o.out * o.in;
    }
    return m->ops->alloc (m->device, most * m->kern->elem_size, ret, err);
}

train_status_t decoder_merge_room (train_decoder_t *m, void **ret,
                                   train_error_t *err)
{
    TRY (decoder_open_products (m, err));
    return make_tmp (m, ret, err);
}

train_status_t decoder_merge_unit (train_decoder_t *m, size_t u, void *room,
                                   train_error_t *err)
{
    bool block = u > 0 && u <= m->dims.L;

    for (int k = 0; block && k < TRAIN_LORA_N; k++)
        if (m->dims.lora.targets & 1 << k)
            TRY (add_one (m, u - 1, k, m->places[u].weights, room, err));
    return TRAIN_OK;
}

/* In place. */
static train_status_t add_all (train_decoder_t *m, train_error_t *err)
{
    void *tmp = NULL;
    train_status_t status = decoder_merge_room (m, &tmp, err);

    for (size_t u = 0; u < decoder_n_units (m) && status == TRAIN_OK; u++)
        status = decoder_merge_unit (m, u, tmp, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    m->ops->free (tmp);
    return status;
}

void decoder_leave_out (train_decoder_t *m, bool out)
{
    decoder_replay_forget (m);
    m->plain = out;
}

train_status_t train_decoder_merge (train_decoder_t *m, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    int before;

    if (!m || !m->weights.t.data)
        return err_set (err, TRAIN_EINVAL,
                        "merge: there is no decoder, or it has no weights");
    before = m->ops->enter (m->device);
    if (!m->plain && m->dims.lora.rank > 0)
        status = add_all (m, err);
    m->ops->leave (before);
    if (status == TRAIN_OK)
        decoder_leave_out (m, true);
    return status;
}

#define ALIGN ((size_t)256)

static size_t room_of (const train_decoder_t *m, size_t u)
{
    size_t bytes = m->units[u].count * m->kern->elem_size;

    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

size_t decoder_merge_bytes (const train_decoder_t *m)
{
    size_t all = 0;

    for (size_t u = 1; m->dims.lora.rank > 0 && u <= m->dims.L; u++)
        all += room_of (m, u);
    return all;
}

/* Copies of the blocks, where they are used from now on. */
static train_status_t copy_blocks (train_decoder_t *m, struct decoder_merged *g,
                                   train_error_t *err)
{
    size_t all = decoder_merge_bytes (m);
    char *at;

    if (m->ops->alloc (m->device, all, &g->memory, err) != TRAIN_OK)
        return err_prefix (err, TRAIN_ENOMEM,
                           "blocks with their adapters merged, %zu bytes", all);
    at = g->memory;
    for (size_t u = 1; u <= m->dims.L; u++) {
        TRY (m->ops->copy (at, m->places[u].weights,
                           m->units[u].count * m->kern->elem_size, m->stream,
                           err));
        decoder_set_unit (m, u, at, NULL);
        at += room_of (m, u);
    }
    return TRAIN_OK;
}

train_status_t decoder_merge (train_decoder_t *m, struct decoder_merged *g,
                              train_error_t *err)
{
    size_t n = decoder_n_units (m);
    train_status_t status;
    int before;

    *g = (struct decoder_merged){0};
    if (m->dims.lora.rank == 0 || m->plain)
        return TRAIN_OK;
    if (!(g->places = malloc (n * sizeof (*g->places))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu units", n);
    memcpy (g->places, m->places, n * sizeof (*g->places));
    before = m->ops->enter (m->device);
    status = copy_blocks (m, g, err);
    if (status == TRAIN_OK)
        status = add_all (m, err);
    m->ops->leave (before);
    decoder_leave_out (m, true);
    if (status != TRAIN_OK)
        decoder_merge_end (m, g);
    return status;
}

void decoder_merge_end (train_decoder_t *m, struct decoder_merged *g)
{
    if (!g->places)
        return;
    for (size_t u = 0; u < decoder_n_units (m); u++)
        decoder_set_unit (m, u, g->places[u].weights, g->places[u].grads);
    decoder_leave_out (m, false);
    m->ops->free (g->memory);
    free (g->places);
    *g = (struct decoder_merged){0};
}
