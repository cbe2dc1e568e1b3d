/* SPDX-License-Identifier: Apache-2.0
 * generate_impl.h - the cache of keys and values, and the draw, for
 * generate.c and its test. Inside libtrain only. */
#ifndef TRAIN_GENERATE_IMPL_H
#define TRAIN_GENERATE_IMPL_H

#include <train/generate.h>

struct kv_cache;

/* kv_create - room for texts in [slots] slots, each of up to [T] tokens.
 *   rows, wants   most tokens of a feed, and of them whose logits are wanted
 * TRAIN_ENOTSUP: rope is dynamic; TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t kv_create (train_decoder_t *decoder, size_t slots, size_t T,
                          size_t rows, size_t wants, struct kv_cache **ret,
                          train_error_t *err);
void kv_destroy (struct kv_cache *cache); /* NULL is fine */

/* What a feed is of; host memory of the cache, to be written by the caller. */
struct kv_rows {
    int32_t *tokens; /* (N) in the vocabulary */
    int32_t *slot;   /* (N) */
    int32_t *at;     /* (N) where in its text: in rising order within a text,
                      behind all that was fed before; -1: no token */
    int32_t *last;   /* (M) rows whose logits are wanted */
    int32_t *text;   /* (M) for draws: which text */
    int32_t *pos;    /* (M) and at[last[i]] */
};

struct kv_rows kv_rows (struct kv_cache *cache, size_t N, size_t M);

/* kv_feed - forward of N rows; their keys and values are kept.
 * TRAIN_ESTATE of decoder_enter, TRAIN_EDEVICE. */
train_status_t kv_feed (struct kv_cache *cache, size_t N, size_t M,
                        train_error_t *err);

/* kv_logits - of the last feed: (M,V) of the decoder's dtype in host memory
 * that lives in the cache until the next feed. kv_draw - a token by each of
 * them; -1 where one is no number, something undefined where pos is -1; and the
 * logarithm of its chance. They live as long. */
struct kv_drawn {
    const int32_t *ids; /* (M) */
    const float *logp;  /* (M) */
};

train_status_t kv_logits (struct kv_cache *cache, size_t M, const void **ret,
                          train_error_t *err);
train_status_t kv_draw (struct kv_cache *cache, size_t N, size_t M,
                        double temperature, uint64_t seed, struct kv_drawn *ret,
                        train_error_t *err);

/* kv_step - both, of N rows whose logits are all wanted. On a GPU a second step
 * of the same N is recorded as a graph, which the later ones launch. */
train_status_t kv_step (struct kv_cache *cache, size_t N, double temperature,
                        uint64_t seed, struct kv_drawn *ret,
                        train_error_t *err);

/* kv_share - copy the first n tokens of slots to others, for P <= slots pairs;
 * no slot is both. TRAIN_EDEVICE. */
struct kv_pairs {
    int32_t *from, *to, *n; /* (P) of the cache, written by the caller */
};

struct kv_pairs kv_pairs (struct kv_cache *cache);
train_status_t kv_share (struct kv_cache *cache, size_t P, train_error_t *err);

/* generate_draw - a token by a row of logits; -1 where one is no number.
 *   p, order   (V) scratch
 *   u          in (0,1) */
int32_t generate_draw (const double *logits, double *p, int32_t *order,
                       size_t V, const train_generate_options_t *opts,
                       double u);

/* generate_logp - what ret_logp has for token [id]. */
float generate_logp (const double *logits, size_t V, double temperature,
                     int32_t id);

#endif
