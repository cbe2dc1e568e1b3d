/* SPDX-License-Identifier: Apache-2.0
 * decoder_spent.h - gradients that nobody reads any more, and rooms: memory that
 * holds activations until gradients come there. Part of decoder_impl.h.
 *
 * Room l, of 0..L, holds what block l keeps from its forward to its backward,
 * which is unit l + 1, and of L the stream behind the last block. By default it
 * is the gradients of unit l, which the backward writes after that. Only unit 0's
 * are none where the head, whose backward is first, is tied. */
#ifndef TRAIN_DECODER_SPENT_H
#define TRAIN_DECODER_SPENT_H

#include "decoder_impl.h"

/* decoder_spend_grads - nobody reads the gradients any more: the next
 * decoder_step_add writes them, as if they were 0 now. Of a bare decoder, whose
 * hooks give it places for them, these need not be 0.
 *   lend   until then passes may keep activations in the rooms; for a step of one
 *          decoder_step_add, as another one needs that room elsewhere
 * decoder_settle_grads - if no decoder_step_add came since, they become 0 (a bare
 * decoder has none), and rooms are not used any more. */
void decoder_spend_grads (train_decoder_t *decoder, bool lend);
train_status_t decoder_settle_grads (train_decoder_t *decoder,
                                     train_error_t *err);
/* decoder_lendable - bytes of each room; 0: they do not lie so that they may
 * serve. decoder_roomless - the one of 0..L that there is none of; L + 1: all
 * are there. */
size_t decoder_lendable (const train_decoder_t *decoder);
size_t decoder_roomless (const train_decoder_t *decoder);
/* decoder_set_rooms - these instead: nobody else uses room l from the forward of
 * unit l + 1 to the end of its backward. Of a tied head, whose unit is small,
 * there is no room L.
 *   rooms   (L + 1) of the decoder's memory, in lines of DECODER_ALIGN; borrowed
 *           until they are replaced. Not read where [bytes] is 0
 *   bytes   of each; 0: back to the gradients */
void decoder_set_rooms (train_decoder_t *decoder, void *const *rooms,
                        size_t bytes);
/* decoder_clear_unit - in a backward that writes spent gradients, before it
 * comes to [unit]: what kernels add to becomes 0. */
train_status_t decoder_clear_unit (train_decoder_t *decoder, size_t unit,
                                   train_error_t *err);

#endif
