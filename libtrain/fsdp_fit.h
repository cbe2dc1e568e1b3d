/* SPDX-License-Identifier: Apache-2.0
 * fsdp_fit.h - places for units that are whole for a while, one after another.
 * Inside libtrain only. */
#ifndef TRAIN_FSDP_FIT_H
#define TRAIN_FSDP_FIT_H

#include <stddef.h>

/* fsdp_fit - where each of a row of units lies in one memory, as long as the
 * unit and at most [ahead] of its neighbours in the row are there at once.
 *   size    (n) elements; they are padded to lines, so that an element of two
 *           bytes or more begins where any kernel likes it
 *   ret_at  (n) elements; may be [size]. NULL: only the total is asked for
 * Returns the elements of the memory. With one neighbour that is the largest
 * sum of two: every other one begins at the front, the others end at the back,
 * so units that are no neighbours may share memory. Else units i and
 * i + ahead + 1 share theirs, and no others. Cannot fail. */
size_t fsdp_fit (const size_t *size, size_t n, size_t ahead, size_t *ret_at);

#endif
