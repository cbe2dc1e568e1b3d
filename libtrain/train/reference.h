/* SPDX-License-Identifier: Apache-2.0
 * train/reference.h - a frozen model that says how likely tokens are: the
 * reference policy of a KL penalty (train/grpo.h), here or behind a server.
 *
 * One thread uses a reference at a time. */
#ifndef TRAIN_REFERENCE_H
#define TRAIN_REFERENCE_H

#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_reference train_reference_t;

/* train_reference_open_decoder - a decoder of this process.
 *   decoder   borrowed until the reference is closed; its weights are what is
 *             asked, and must not change meanwhile
 * TRAIN_ESTATE: it was made bare. TRAIN_ENOMEM. */
train_status_t train_reference_open_decoder (train_decoder_t *decoder,
                                             train_reference_t **ret_reference,
                                             train_error_t *err);

void train_reference_close (train_reference_t *reference); /* NULL is fine */

/* train_reference_logps - log-probs of the tokens of texts.
 *   ids           (B,T) host: prompt, completion, anything behind
 *   prompt_len    (B) tokens of each that are not asked for; NULL: none
 *   total_len     (B) tokens of each, prompt_len..T
 *   temperature   > 0: logits are divided by it before the softmax
 *   ret           (B,T) host, written: log p (ids[b,t] | ids[b,0..t-1]) in nats;
 *                 0 at t = 0, where t < prompt_len[b] and where
 *                 t >= total_len[b]
 * TRAIN_EINVAL names the row, and the place of an id outside the vocabulary.
 * Else errors of the kind that it is. */
train_status_t train_reference_logps (train_reference_t *reference,
                                      const int32_t *ids,
                                      const int32_t *prompt_len,
                                      const int32_t *total_len, int B, int T,
                                      double temperature, float *ret,
                                      train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
