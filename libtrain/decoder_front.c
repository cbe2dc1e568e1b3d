/* SPDX-License-Identifier: Apache-2.0
 * decoder_front.c - rows that have a target, at the front of their arrays
 *
 * Prompts and padding have none, and no product of the head needs them. Rows are
 * moved a piece at a time through a room, forwards to the front, where none is
 * written that is still to be read, and backwards from there. */
#include <stdlib.h>

#include "decoder_impl.h"
#include "err.h"

#define TILE       128                /* rows of a product's tile */
#define SIZES      16                 /* that a GPU's products see of a batch */
#define ROOM_BYTES ((size_t)64 << 10) /* of the host; or a row */

static size_t rows_of (const train_decoder_t *m)
{
    return (size_t)m->B * (size_t)m->T;
}

static size_t up (size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

size_t decoder_front_rows (const train_decoder_t *m, size_t counted)
{
    size_t N = rows_of (m), step = m->gpu ? up ((N - 1) / SIZES + 1, TILE) : 1;
    size_t n = up (counted, step), scratch = m->work->head_scratch (m, N);

    if (m->gpu && scratch < m->dims.C * m->kern->elem_size)
        return N; /* no room for a row */
    /* chunks of fewer rows may be larger */
    while (m->gpu && n < N && m->work->head_scratch (m, n) > scratch)
        n += step;
    return n < N ? n : N;
}

void decoder_front_fill (int32_t *to, const int32_t *targets, size_t N,
                         size_t n)
{
    int32_t *rows = to + N, *where = rows + N;
    size_t k = 0;

    for (size_t i = 0; i < N; i++) {
        where[i] = targets[i] < 0 ? -1 : (int32_t)k;
        if (targets[i] < 0)
            continue;
        to[k] = targets[i];
        rows[k++] = (int32_t)i;
    }
    for (; k < n; k++)
        to[k] = rows[k] = -1;
}

void decoder_front_use (train_decoder_t *m, size_t n, int32_t *at)
{
    struct decoder_front *f = &m->front;
    size_t N = rows_of (m);

    f->n = n;
    f->targets = at;
    f->rows = at + N;
    f->where = at + 2 * N;
    if (!m->gpu)
        return;
    f->dlogp = at + 3 * N;
    f->room = decoder_act (m, m->layout.logits, 0);
    f->room_bytes = m->work->head_scratch (m, N);
}

/* Memory for all of them; reals first, which ask for more alignment. */
static train_status_t need_own (struct decoder_front *f, size_t bytes,
                                train_error_t *err)
{
    if (bytes <= f->own_bytes)
        return TRAIN_OK;
    free (f->own);
    f->own_bytes = 0;
    if (!(f->own = malloc (bytes)))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for %zu bytes of rows with a target", bytes);
    f->own_bytes = bytes;
    return TRAIN_OK;
}

train_status_t decoder_front_host (train_decoder_t *m, train_error_t *err)
{
    struct decoder_front *f = &m->front;
    size_t N = rows_of (m), row = m->dims.C * m->kern->elem_size, counted = 0;
    size_t room = up (row > ROOM_BYTES ? row : ROOM_BYTES, sizeof (double));
    size_t reals = N * m->kern->real_size;
    int32_t *at;

    for (size_t i = 0; i < N; i++)
        counted += m->targets[i] >= 0;
    f->n = decoder_front_rows (m, counted);
    if (f->n == N)
        return TRAIN_OK;
    TRY (need_own (f, room + reals + 3 * N * sizeof (*at), err));
    f->room = f->own;
    f->room_bytes = room;
    f->dlogp = f->room + room;
    at = (int32_t *)(void *)(f->room + room + reals);
    decoder_front_fill (at, m->targets, N, f->n);
    decoder_front_use (m, f->n, at);
    return TRAIN_OK;
}

/* Rows [first, first + n) of [x] become those that [from] names. */
static train_status_t move (train_decoder_t *m, void *x, const int32_t *from,
                            size_t first, size_t n, size_t bytes,
                            train_error_t *err)
{
    m->kern->rows (m->front.room, x, from + first, n, bytes, m->stream);
    return m->ops->copy ((char *)x + first * bytes, m->front.room, n * bytes,
                         m->stream, err);
}

train_status_t decoder_front (train_decoder_t *m, void *x, size_t bytes,
                              train_error_t *err)
{
    const struct decoder_front *f = &m->front;
    size_t most = f->room_bytes / bytes, n;

    for (size_t i = 0; x && f->n < rows_of (m) && i < f->n; i += n) {
        n = f->n - i < most ? f->n - i : most;
        TRY (move (m, x, f->rows, i, n, bytes, err));
    }
    return TRAIN_OK;
}

train_status_t decoder_back (train_decoder_t *m, void *x, size_t bytes,
                             train_error_t *err)
{
    const struct decoder_front *f = &m->front;
    size_t most = f->room_bytes / bytes, n;

    if (!x || f->n == rows_of (m))
        return TRAIN_OK;
    for (size_t i = rows_of (m); i > 0; i -= n) {
        n = i < most ? i : most;
        TRY (move (m, x, f->where, i - n, n, bytes, err));
    }
    return TRAIN_OK;
}
