/* SPDX-License-Identifier: Apache-2.0
 * decoder_hash.c - what tells one model from another
 *
 * A second copy of the weights may have no place: those of a GPU come to the host in
 * pieces. */
#include "decoder_hash.h"

#include <stdlib.h>

#include <xxhash.h>

#include "decoder_impl.h"
#include "err.h"

#define PIECE ((size_t)16 << 20)

/* [bytes] at [from] of the decoder's device; [room] has PIECE, on a GPU. */
static train_status_t add (const train_decoder_t *m, XXH3_state_t *state,
                           const char *from, size_t bytes, char *room,
                           train_error_t *err)
{
    if (!m->gpu) {
        XXH3_64bits_update (state, from, bytes);
        return TRAIN_OK;
    }
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        TRY (m->ops->copy (room, from + at, n, m->stream, err));
        TRY (m->ops->sync (m->stream, err));
        XXH3_64bits_update (state, room, n);
    }
    return TRAIN_OK;
}

static train_status_t add_params (const train_decoder_t *m, const char *weights,
                                  bool adapters, XXH3_state_t *state,
                                  char *room, train_error_t *err)
{
    size_t size = m->kern->elem_size;

    XXH3_64bits_reset (state);
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];

        if (adapters || !decoder_is_lora (p->name))
            TRY (add (m, state, weights + p->offset * size, p->count * size,
                      room, err));
    }
    return TRAIN_OK;
}

train_status_t decoder_hash (const train_decoder_t *m, const void *weights,
                             bool adapters, uint64_t *ret, train_error_t *err)
{
    XXH3_state_t *state = XXH3_createState ();
    char *room = m->gpu ? malloc (PIECE) : NULL;
    train_status_t status;

    if (!weights)
        weights = m->weights.t.data;
    if (state && (room || !m->gpu))
        status = add_params (m, weights, adapters, state, room, err);
    else
        status = err_set (err, TRAIN_ENOMEM, "no memory to sum the weights");
    if (status == TRAIN_OK)
        *ret = XXH3_64bits_digest (state);
    free (room);
    XXH3_freeState (state);
    return status;
}
