/* SPDX-License-Identifier: Apache-2.0
 * decoder_together.h - passes of a decoder that need other ranks, of which each
 * rank has as many as its own work takes. Inside libtrain only; part of
 * decoder_impl.h.
 *
 * The decoder's hooks bring a unit by calls that all ranks must make. Who makes
 * such passes says so before them, and the rest is up to the functions here. */
#ifndef TRAIN_DECODER_TOGETHER_H
#define TRAIN_DECODER_TOGETHER_H

struct decoder_together {
    /* meet - [n] passes of this rank come now, before it meets again; 0: none,
     * and it returns when the others' have been. Collective. */
    train_status_t (*meet) (void *arg, int n, train_error_t *err);
    /* wait - for all that the passes' stream was given, or for a rank that does
     * not come, with the ranks' deadline. */
    train_status_t (*wait) (void *arg, train_error_t *err);
    void *arg;
};

/* decoder_set_together - borrowed; NULL: passes are this rank's own, as at
 * first.
 * decoder_set_wait - how the stream is waited for where its passes need other
 * ranks, each as often; NULL: as any stream, without a look at them.
 * decoder_meet, decoder_wait - as above; without them nothing, and the stream. */
void decoder_set_together (train_decoder_t *decoder,
                           const struct decoder_together *together);
void decoder_set_wait (train_decoder_t *decoder,
                       train_status_t (*wait) (void *arg, train_error_t *err),
                       void *arg);
train_status_t decoder_meet (train_decoder_t *decoder, int n,
                             train_error_t *err);
train_status_t decoder_wait (train_decoder_t *decoder, train_error_t *err);

#endif
