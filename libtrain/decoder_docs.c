/* SPDX-License-Identifier: Apache-2.0
 * decoder_docs.c - rows that hold several documents: where each begins, and
 * rotary embedding by the position in it */
#include "decoder_impl.h"
#include "err.h"

void train_decoder_documents (train_decoder_t *m, const int32_t *starts)
{
    m->documents = starts;
}

/* The one rule of docs.h: a position begins a document or goes on with that of
 * the position before. */
train_status_t decoder_check_docs (const train_decoder_t *m, train_error_t *err)
{
    size_t T = (size_t)m->T, N = (size_t)m->B * T;
    const int32_t *starts = m->documents;

    for (size_t n = 0; starts && n < N; n++) {
        size_t t = n % T;

        if (starts[n] != (int32_t)t && (t == 0 || starts[n] != starts[n - 1]))
            return err_set (err, TRAIN_EINVAL,
                            "document of sequence %zu, position %zu begins at "
                            "%d: it must begin there, or where that of the "
                            "position before does",
                            n / T, t, (int)starts[n]);
    }
    return TRAIN_OK;
}

void decoder_place_docs (train_decoder_t *m)
{
    const struct decoder_acts *a = &m->layout;
    size_t T = (size_t)m->T, N = (size_t)m->B * T, W = m->dims.D / 2;

    m->starts = m->documents;
    if (!m->starts)
        return;
    if (m->gpu)
        m->starts = decoder_act (m, a->starts, 0);
    m->kern->positions (decoder_act (m, a->doc_cosine, 0),
                        decoder_act (m, a->cosine, 0), m->starts, N, T, W,
                        m->stream);
    m->kern->positions (decoder_act (m, a->doc_sine, 0),
                        decoder_act (m, a->sine, 0), m->starts, N, T, W,
                        m->stream);
}

/* With documents the batch is one row to rope, whose tables have a line for
 * each of its positions. */
static void turn (const train_decoder_t *m, void *qkv,
                  void (*rope) (void *, const void *, const void *, size_t,
                                size_t, size_t, size_t, size_t, void *))
{
    const struct decoder_acts *a = &m->layout;
    const struct decoder_dims *d = &m->dims;
    size_t B = (size_t)m->B, T = (size_t)m->T;
    bool docs = m->starts != NULL;

    rope (qkv, decoder_act (m, docs ? a->doc_cosine : a->cosine, 0),
          decoder_act (m, docs ? a->doc_sine : a->sine, 0), docs ? 1 : B,
          docs ? B * T : T, d->H + d->G, d->D, d->Q, m->stream);
}

void decoder_turn_fwd (train_decoder_t *m, void *qkv)
{
    turn (m, qkv, m->kern->rope_fwd);
}

void decoder_turn_bwd (train_decoder_t *m, void *dqkv)
{
    turn (m, dqkv, m->kern->rope_bwd);
}
