/* SPDX-License-Identifier: Apache-2.0
 * generate_impl.h - the cache of keys and values, and the draw, for
 * generate.c and its test. Inside libtrain only. */
#ifndef TRAIN_GENERATE_IMPL_H
#define TRAIN_GENERATE_IMPL_H

#include <train/generate.h>

struct kv_cache;

/* kv_create - room for [B] texts of [T] tokens. TRAIN_ENOTSUP, TRAIN_ENOMEM. */
train_status_t kv_create (train_decoder_t *decoder, int B, int T,
                          struct kv_cache **ret, train_error_t *err);
void kv_destroy (struct kv_cache *cache); /* NULL is fine */

/* kv_feed - logits of new tokens; their keys and values are kept.
 *   logits   (N,V) of the decoder's dtype, written; lives in the cache
 *   tokens   (N) in the vocabulary
 *   text, at (N) which text a token is of, and where it stands: in rising order
 *            within a text, behind all that was fed before
 * TRAIN_ENOMEM; TRAIN_ESTATE of decoder_enter. */
train_status_t kv_feed (struct kv_cache *cache, const void **logits,
                        const int32_t *tokens, const int *text, const int *at,
                        size_t N, train_error_t *err);

/* generate_draw - a token by a row of logits; -1 where one is no number.
 *   p, order   (V) scratch
 *   u          in (0,1) */
int32_t generate_draw (const double *logits, double *p, int32_t *order,
                       size_t V, const train_generate_options_t *opts,
                       double u);

#endif
