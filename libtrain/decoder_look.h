/* SPDX-License-Identifier: Apache-2.0
 * decoder_look.h - find the first value of a pass that is not finite. Inside
 * libtrain only.
 *
 * It stands between a decoder and its hooks: before a visit it looks at the
 * unit's weights, after it at what the visit left of activations, their
 * gradients and the weights' gradients, in the order in which they were made.
 * Each look waits for the device, so this is for a pass that is made again
 * because the first gave no number. After the first finding it looks no more,
 * and the pass goes on as it would. */
#ifndef TRAIN_DECODER_LOOK_H
#define TRAIN_DECODER_LOOK_H

#include "decoder_impl.h"

struct decoder_look {
    train_decoder_t *decoder;
    struct decoder_hooks inner; /* the decoder's own */
    uint64_t *found_at;         /* (1) on the decoder's device */
    int64_t visit;              /* of the pass, forward and backward */
    bool backward;              /* the direction, */
    size_t heads;               /* and visits of unit 0 in it */
    bool found;
    int64_t when;   /* the visit in which it was found */
    char text[240]; /* "NaN in WHAT at WHERE" */
    /* Set after decoder_look_begin where the passes wait for other ranks on the
     * GPU: until all has ended that they were given, with a deadline. NULL: they
     * wait for nobody. */
    train_status_t (*settle) (void *arg, train_error_t *err);
    void *settle_arg;
};

/* decoder_look_begin - from now on it looks. End with decoder_look_end, also
 * after a failure; it settles first, as memory of a GPU is freed by waiting for
 * it. TRAIN_ENOMEM. */
train_status_t decoder_look_begin (struct decoder_look *look,
                                   train_decoder_t *decoder,
                                   train_error_t *err);
void decoder_look_end (struct decoder_look *look);
/* decoder_look_pass - a pass begins. */
void decoder_look_pass (struct decoder_look *look);

/* decoder_look_first - the least index of a value that is not finite.
 *   data    (n) of the decoder's device, compact
 *   ret     n: there is none
 *   inf     that one is Inf, not NaN; NULL = not wanted
 * What settle says, or the device. */
train_status_t decoder_look_first (const struct decoder_look *look,
                                   const void *data, train_dtype_t dtype,
                                   size_t n, size_t *ret, bool *ret_inf,
                                   train_error_t *err);

#endif
