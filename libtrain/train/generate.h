/* SPDX-License-Identifier: Apache-2.0
 * train/generate.h - continue texts with a decoder, several at once.
 *
 * Keys and values of the tokens so far are kept, so that a token costs one row
 * of each product and not the text again. Prompts may differ in length: rows of
 * a product are tokens, there is no padding. On the host in f32 and f64. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_generate_options {
    size_t size;         /* sizeof (train_generate_options_t) */
    int max_new;         /* tokens to add to each text, >= 1 */
    double temperature;  /* logits are divided by it; 0: the likeliest token */
    int top_k;           /* of the k likeliest alone; 0: of all */
    double top_p;        /* then of the fewest likeliest whose probabilities are
                           together at least p (Holtzman et al. 2020,
                           arXiv:1904.09751); 0 or 1: of all */
    uint64_t seed;       /* the draw for text b's token at position t is a
                           function of (seed, b, t) alone */
    const int32_t *stop; /* (n_stop) a text ends behind such a token */
    size_t n_stop;
} train_generate_options_t;

/* train_generate - add tokens to texts.
 *   ret_ids   (B,max_new) written: what was added
 *   ret_n     (B) written: how many; a stop token is the last
 *   decoder   only its weights are used
 *   prompts   (B) of n[b] >= 1 ids each
 * Of equal logits the lower id counts as the likelier. TRAIN_EINVAL names the
 * text and place of an id outside the vocabulary; TRAIN_ENOTSUP: another device
 * or dtype, or rope of kind dynamic; TRAIN_ENONFINITE: a logit that is no
 * number, with text and position; TRAIN_ENOMEM. */
train_status_t train_generate (int32_t *ret_ids, int *ret_n,
                               train_decoder_t *decoder,
                               const int32_t *const *prompts, const int *n,
                               int B, const train_generate_options_t *opts,
                               train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
