/* SPDX-License-Identifier: Apache-2.0
 * train/generate.h - continue texts with a decoder, several at once.
 *
 * Keys and values of the tokens so far are kept, so that a token costs one row
 * of each product and not the text again. Prompts may differ in length: rows of
 * a product are tokens, there is no padding. On the host, and on a GPU, where a
 * step is a CUDA graph, tokens are drawn there, and the host is told of some
 * steps at a time. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include <stdbool.h>
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
    double min_p;      /* then of those with at least min_p times the chance of
                        the likeliest (Nguyen et al. 2024, arXiv:2407.01082) */
    double repetition; /* logits of tokens that the text has are divided by it,
                        negative ones multiplied (Keskar et al. 2019,
                        arXiv:1909.05858); 0 or 1: as they are */
    int at_once;       /* most texts in the cache: others enter as these end; 0:
                        all */
    /* Called with each token, the texts in turn; false: the text ends behind
     * it. On a GPU some tokens of each come together. NULL: none. */
    bool (*on_token) (void *arg, int text, int32_t id);
    void *arg;
    float *ret_logp; /* (B,max_new) written where ids are: the logarithm of the
                        chance that the decoder alone gives the token at
                        [temperature], before top_k, top_p, min_p and
                        [repetition] change it: log softmax (logits /
                        temperature); at temperature 0 as at 1. NULL: none */
    int group;       /* each so many texts in a row have one prompt, which is
                        read once and its keys and values copied; the last
                        ones may be fewer. 0 or 1: each has its own */
    int first; /* >= 0: text b's tokens are drawn as those of text first + b, so
                        that calls may share texts among them */
    bool batch_invariant; /* a text's tokens and ret_logp are the same bits
                             whatever other texts there are, at_once and group:
                             products of one order of sums */
} train_generate_options_t;

/* train_generate - add tokens to texts.
 *   ret_ids   (B,max_new) written: what was added
 *   ret_n     (B) written: how many; a stop token is the last
 *   decoder   only its weights are used
 *   prompts   (B) of n[b] >= 1 ids each
 * Of equal logits the lower id counts as the likelier. TRAIN_EINVAL names the
 * text and place of an id outside the vocabulary, or the text whose prompt is
 * not that of its group; TRAIN_ENOTSUP: rope of kind dynamic, or
 * batch_invariant of a decoder on a GPU that has no products for it;
 * TRAIN_ENONFINITE: a logit that is no number, with text and position;
 * TRAIN_ENOMEM; TRAIN_EDEVICE. */
train_status_t train_generate (int32_t *ret_ids, int *ret_n,
                               train_decoder_t *decoder,
                               const int32_t *const *prompts, const int *n,
                               int B, const train_generate_options_t *opts,
                               train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
