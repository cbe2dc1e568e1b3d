/* SPDX-License-Identifier: Apache-2.0
 * decoder_hash.h - what tells one model from another. Inside libtrain only. */
#ifndef TRAIN_DECODER_HASH_H
#define TRAIN_DECODER_HASH_H

#include <train/decoder.h>

/* decoder_hash - XXH3 of the weights as they are used, in the order of the
 * parameters.
 *   weights    of the decoder's layout and device; NULL: its own
 *   adapters   with those of LoRA
 * Waits for the device. TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t decoder_hash (const train_decoder_t *decoder,
                             const void *weights, bool adapters,
                             uint64_t *ret_hash, train_error_t *err);

#endif
