/* SPDX-License-Identifier: Apache-2.0
 * decoder_spent.h - gradients that nobody reads any more, and a loan: memory that
 * holds activations until gradients come there. Part of decoder_impl.h.
 *
 * A loan is one piece, of which less and less is left as the backward goes:
 * [until][l] bytes from its start until that of block l, which is unit l + 1, is
 * over, and of L that of the last norm. There lie, from its start, what all blocks
 * work in, the rooms of the blocks 0..L-1, in which each keeps what its backward
 * reads, the stream into the last norm, and what the head works in. By default it
 * is the gradients: unit l's are written when block l's backward is over. Where
 * the head, whose backward is first, is tied, unit 0's are none of it; what is
 * frozen has none. The first blocks, until whose backward 0 bytes are left, have no
 * room. */
#ifndef TRAIN_DECODER_SPENT_H
#define TRAIN_DECODER_SPENT_H

#include "decoder_impl.h"

/* decoder_spend_grads - nobody reads the gradients any more: the next
 * decoder_step_add writes them, as if they were 0 now. Of a bare decoder, whose
 * hooks give it places for them, these need not be 0.
 *   lend   until then passes may use the loan; for a step of one
 *          decoder_step_add, as another one needs that memory elsewhere
 * decoder_settle_grads - if no decoder_step_add came since, they become 0 (a bare
 * decoder has none), and the loan is not used any more. */
void decoder_spend_grads (train_decoder_t *decoder, bool lend);
train_status_t decoder_settle_grads (train_decoder_t *decoder,
                                     train_error_t *err);
/* decoder_lendable - [until] (L + 1) of the loan. False: there is none.
 * decoder_loan - where it begins, with the decoder's own until; NULL: there is
 * none now. */
bool decoder_lendable (const train_decoder_t *decoder, size_t *until);
void *decoder_loan (train_decoder_t *decoder);
/* decoder_set_loan - this instead, which nobody else uses from the forward of a
 * unit to the end of its backward.
 *   at      of the decoder's memory, at a line of DECODER_ALIGN; borrowed until
 *           it is replaced. NULL: back to the gradients
 *   until   (L + 1), copied; not read where [at] is NULL */
void decoder_set_loan (train_decoder_t *decoder, void *at, const size_t *until);
/* decoder_clear_unit - in a backward that writes spent gradients, before it
 * comes to [unit]: what kernels add to becomes 0. */
train_status_t decoder_clear_unit (train_decoder_t *decoder, size_t unit,
                                   train_error_t *err);

#endif
