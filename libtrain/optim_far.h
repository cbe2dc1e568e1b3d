/* SPDX-License-Identifier: Apache-2.0
 * optim_far.h - an optimizer's state, and weights, in host memory, which pass
 * through a GPU in pieces. Inside libtrain only.
 *
 * Copies in, the update and copies out have a stream each, over a few slots of
 * the GPU, so that the link is busy both ways. (Ren et al. 2021, ZeRO-Offload,
 * arXiv:2101.06840, updates on the host instead: that reads and writes the same
 * bytes there, and sends gradients out and weights in.) */
#ifndef TRAIN_OPTIM_FAR_H
#define TRAIN_OPTIM_FAR_H

#include <stdbool.h>
#include <stddef.h>

#include <train/status.h>

struct backend_ops;
struct adamw_far;

/* Arrays that may be in the host's memory: f32, the copy of 2 bytes. */
enum {
    ADAMW_FAR_P,
    ADAMW_FAR_M,
    ADAMW_FAR_V,
    ADAMW_FAR_COPY,
    ADAMW_FAR_ARRAYS
};

/* adamw_far_create - slots for an optimizer of [numel] elements on GPU [device]
 * of [ops].
 *   arrays   those that will be brought, as 1 << each
 * TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t adamw_far_create (const struct backend_ops *ops, int device,
                                 size_t numel, unsigned arrays,
                                 struct adamw_far **ret_far,
                                 train_error_t *err);
/* adamw_far_destroy - waits for what is under way; NULL is fine. */
void adamw_far_destroy (struct adamw_far *far);

/* adamw_far_bytes - of the GPU, for an optimizer of [numel] elements. */
size_t adamw_far_bytes (size_t numel, unsigned arrays);

/* adamw_far_piece - tests alone: most elements of a piece, of those that are
 * created from now on; 0: as ever. */
void adamw_far_piece (size_t elements);

/* adamw_far_run - for each piece of [n] elements: in, update, out; enqueued. The
 * pieces come after what [stream] has been given, and what it is given later
 * comes after them. The copy comes in, too: of what is not updated it goes back
 * as it was.
 *   host     arrays of pinned host memory, (n) each, of those that create was
 *            told of; NULL: not brought
 *   needs    does [first, first + count) hold what is updated? A piece that does
 *            not is not brought
 *   update   called with the piece's arrays on the GPU, NULL where it is not
 *            brought; enqueues on [stream] */
train_status_t adamw_far_run (
    struct adamw_far *far, void *const host[ADAMW_FAR_ARRAYS], size_t n,
    void *stream, bool (*needs) (const void *arg, size_t first, size_t count),
    void (*update) (void *arg, void *const at[ADAMW_FAR_ARRAYS], size_t first,
                    size_t count),
    void *arg, train_error_t *err);

#endif
