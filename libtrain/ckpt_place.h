/* SPDX-License-Identifier: Apache-2.0
 * ckpt_place.h - pieces of a checkpoint that lie on a GPU. Inside libtrain
 * only.
 */
#ifndef TRAIN_CKPT_PLACE_H
#define TRAIN_CKPT_PLACE_H

#include <train/ckpt_pieces.h>

#include "backend.h"

/* Host memory that a copy of pieces is made in. Zeros: none yet. */
struct ckpt_room {
    void *data;
    size_t bytes;
    const struct backend_ops *pinned; /* who pinned it; NULL: nobody */
};

bool ckpt_is_gpu (const train_ckpt_piece_t *piece);

/* ckpt_room_grow - at least [bytes]; what is there may go.
 *   near   a piece of the GPU that copies into it; NULL: none does. Where it
 *          cannot be pinned it is not.
 * TRAIN_ENOMEM; TRAIN_ENOTSUP: no GPU. */
train_status_t ckpt_room_grow (struct ckpt_room *room, size_t bytes,
                               const train_ckpt_piece_t *near,
                               train_error_t *err);
void ckpt_room_fini (struct ckpt_room *room);

/* ckpt_fetch - elements of [piece] to host memory [to].
 * ckpt_store - [bytes] of host memory into [piece], from byte [at] on.
 * Of a GPU they may still be under way until ckpt_settle. TRAIN_ENOTSUP:
 * another device than the host and GPUs, or built without CUDA; TRAIN_EDEVICE.
 */
train_status_t ckpt_fetch (void *to, const train_ckpt_piece_t *piece,
                           train_error_t *err);
train_status_t ckpt_store (const train_ckpt_piece_t *piece, size_t at,
                           const void *from, size_t bytes, train_error_t *err);
/* ckpt_settle - until all that of [n] pieces is made. */
train_status_t ckpt_settle (const train_ckpt_piece_t *pieces, size_t n,
                            train_error_t *err);

/* ckpt_replace_gpu - tests alone: another backend instead of CUDA; NULL: CUDA.
 */
void ckpt_replace_gpu (const struct backend_ops *gpu);

#endif
