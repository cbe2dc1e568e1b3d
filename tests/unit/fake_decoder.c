/* SPDX-License-Identifier: Apache-2.0
 * fake_decoder.c - a decoder on a made-up GPU */
#include "fake_decoder.h"

#include <stdlib.h>
#include <string.h>

#include "fake_nccl.h"

struct fake_decoder fake_decoder;

static void move_arena (const train_decoder_t *d, train_tensor_t *t)
{
    size_t bytes = (size_t)train_tensor_bytes (&t->t);
    void *there;

    if (!t->t.data)
        return;
    there = fake_alloc (d->device, bytes);
    memcpy (there, t->t.data, bytes);
    free (t->t.data);
    t->t.data = there;
    t->t.device = d->config.device;
}

train_status_t fake_decoder_move (train_decoder_t *d, int device,
                                  train_error_t *err)
{
    train_status_t status = backend_find ("cuda", &d->ops, err);

    fake_clock ();
    d->device = device;
    d->config.device = (DLDevice){kDLCUDA, device};
    if (status == TRAIN_OK)
        status = d->ops->stream_create (device, &d->stream, err);
    move_arena (d, &d->weights);
    move_arena (d, &d->grads);
    for (size_t u = 0; u < decoder_n_units (d); u++)
        decoder_set_unit (d, u, NULL, NULL);
    return status;
}

/* A kernel comes after what its stream has been given. */
static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    train_status_t status =
        fake_decoder.engine.before (arg, unit, backward, err);

    if (status == TRAIN_OK)
        fake_finish (fake_decoder.passes);
    return status;
}

void fake_decoder_hook (train_decoder_t *d)
{
    struct decoder_hooks own = d->hooks;

    d->ops = fake_at_once (d->ops);
    fake_decoder.engine = d->hooks;
    fake_decoder.passes = d->stream;
    own.before = before;
    decoder_set_hooks (d, &own);
}
