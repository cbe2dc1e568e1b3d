/* SPDX-License-Identifier: Apache-2.0
 * decoder_unit.c - units of a decoder: where they lie, and who is told of their
 * use */
#include "decoder_impl.h"
#include "err.h"

size_t decoder_n_units (const train_decoder_t *m)
{
    return m->dims.L + 2;
}

const struct decoder_unit *decoder_unit (const train_decoder_t *m, size_t index)
{
    return index < decoder_n_units (m) ? &m->units[index] : NULL;
}

static void *in_arena (const train_tensor_t *arena, size_t first, size_t esize)
{
    return arena->t.data ? (char *)arena->t.data + first * esize : NULL;
}

void decoder_set_unit (train_decoder_t *m, size_t unit, void *weights,
                       void *grads)
{
    size_t first = m->units[unit].first;

    decoder_replay_forget (m);
    bool own = !grads && m->grad_at; /* as decoder_own_grad finds them */

    m->places[unit] = (struct decoder_place){
        weights ? weights : in_arena (&m->weights, first, m->kern->elem_size),
        grads ? grads
              : in_arena (&m->grads, own ? 0 : first, m->kern->real_size),
    };
}

void decoder_set_hooks (train_decoder_t *m, const struct decoder_hooks *hooks)
{
    m->hooks = hooks ? *hooks : (struct decoder_hooks){0};
}

void decoder_set_together (train_decoder_t *m,
                           const struct decoder_together *together)
{
    m->together = together;
}

void decoder_set_wait (train_decoder_t *m,
                       train_status_t (*wait) (void *arg, train_error_t *err),
                       void *arg)
{
    m->wait = wait;
    m->wait_arg = arg;
}

train_status_t decoder_meet (train_decoder_t *m, int n, train_error_t *err)
{
    const struct decoder_together *t = m->together;

    return t ? t->meet (t->arg, n, err) : TRAIN_OK;
}

train_status_t decoder_wait (train_decoder_t *m, train_error_t *err)
{
    const struct decoder_together *t = m->together;

    if (t)
        return t->wait (t->arg, err);
    return m->wait ? m->wait (m->wait_arg, err) : m->ops->sync (m->stream, err);
}

static train_status_t enter (train_decoder_t *m, size_t unit, bool backward,
                             bool reads, train_error_t *err)
{
    const struct decoder_hooks *h = &m->hooks;

    if (h->before)
        TRY (h->before (h->arg, unit, backward, err));
    if (backward)
        TRY (decoder_want_grads (m, err));
    reads &= !m->places[unit].weights;
    if (reads || (backward && !m->places[unit].grads))
        return err_set (err, TRAIN_ESTATE,
                        "decoder: unit %zu of %zu has no place for its %s: "
                        "decoder_set_unit gives it one",
                        unit, decoder_n_units (m),
                        reads ? "weights" : "gradients");
    return TRAIN_OK;
}

train_status_t decoder_enter (train_decoder_t *m, size_t unit, bool backward,
                              train_error_t *err)
{
    return enter (m, unit, backward, true, err);
}

train_status_t decoder_enter_embed_bwd (train_decoder_t *m, train_error_t *err)
{
    return enter (m, 0, true, false, err);
}

train_status_t decoder_leave (train_decoder_t *m, size_t unit, bool backward,
                              train_error_t *err)
{
    const struct decoder_hooks *h = &m->hooks;

    return h->after ? h->after (h->arg, unit, backward, err) : TRAIN_OK;
}

train_status_t decoder_turn (train_decoder_t *m, size_t from, size_t to,
                             bool backward, train_error_t *err)
{
    TRY (decoder_leave (m, from, backward, err));
    return decoder_enter (m, to, backward, err);
}
