/* SPDX-License-Identifier: Apache-2.0
 * fsdp_fit.h - places for units that are whole for a while, one after another.
 * Inside libtrain only. */
#ifndef TRAIN_FSDP_FIT_H
#define TRAIN_FSDP_FIT_H

#include <stdbool.h>
#include <stddef.h>

/* fsdp_fit - where each of a row of units lies in one memory, as long as the
 * unit and at most [ahead] of its neighbours in the row are there at once.
 *   size    (n) elements or bytes; they are padded to lines of 256, where any
 *           kernel likes it
 *   ret_at  (n) likewise; may be [size]. NULL: only the total is asked for
 * Returns the size of the memory. With one neighbour that is the largest
 * sum of two: every other one begins at the front, the others end at the back,
 * so units that are no neighbours may share memory. Else units i and
 * i + ahead + 1 share theirs, and no others. Cannot fail. */
size_t fsdp_fit (const size_t *size, size_t n, size_t ahead, size_t *ret_at);

/* A pass of TRAIN_FULL_SHARD: stays 0..n-1 forth, then back. As one begins in the
 * backward its gradients get their place, which they keep until the next but one
 * does; weights come for it and, after that, for [ahead] stays behind it, and are
 * there until it is over. Those of the last stay are not let go where the pass
 * turns. */
struct fsdp_pass {
    const size_t *weights, *grads; /* (n) bytes */
    size_t n, ahead;
    bool bare; /* the backward of stay 0 has no weights */
    bool
        behind; /* weights may come where gradients of the stay before are being
                    reduced, once they are */
};

/* fsdp_fit_pass - one memory for both, as small as a short search finds.
 *   ret_forth, ret_back, ret_grads   (n) bytes, in lines: weights forth, weights
 *                                    back, gradients; or all NULL
 * Returns its bytes, 0 where the host has no memory to search. */
size_t fsdp_fit_pass (const struct fsdp_pass *pass, size_t *ret_forth,
                      size_t *ret_back, size_t *ret_grads);

#endif
