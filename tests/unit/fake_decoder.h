/* SPDX-License-Identifier: Apache-2.0
 * fake_decoder.h - a decoder on a made-up GPU (fake_nccl.h). For tests alone.
 *
 * Its kernels are the host's: they run at once, when the passes' stream has
 * come to where they stand in it. One decoder of a process at a time. */
#ifndef TESTS_UNIT_FAKE_DECODER_H
#define TESTS_UNIT_FAKE_DECODER_H

#include "libtrain/decoder_impl.h"

/* What the engine set, and the passes' stream: since fake_decoder_hook. */
struct fake_decoder {
    struct decoder_hooks engine;
    void *passes;
};
extern struct fake_decoder fake_decoder;

/* fake_decoder_move - its arenas go to GPU [device], and it gets a stream; the
 * process's streams go on by themselves from now on. */
train_status_t fake_decoder_move (train_decoder_t *d, int device,
                                  train_error_t *err);
/* fake_decoder_hook - once the engine has set its hooks: kernels wait for what
 * their stream was given. */
void fake_decoder_hook (train_decoder_t *d);

#endif
