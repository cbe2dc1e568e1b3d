/* SPDX-License-Identifier: Apache-2.0
 * decoder_impl.h - the parts of a decoder, for its own files and their tests.
 *
 * Legend: N = B T rows, C dim, F ffn, V vocab, H heads, G kv_heads, D head
 * width, Q = (H + 2 G) D columns of queries, keys and values together. */
#ifndef TRAIN_DECODER_IMPL_H
#define TRAIN_DECODER_IMPL_H

#include <train/decoder.h>

#define DECODER_NAME_MAX 64

/* Widths of one decoder as the passes need them. */
struct decoder_dims {
    size_t L, C, F, V, H, G, D, Q;
    bool bias, norm; /* of q, k, v; of q, k */
};

/* Where a block's weights start in the arena, in elements. q, k, v lie side by
 * side, and so do gate and up, so that one product serves them; so do their
 * biases. */
struct decoder_block {
    size_t norm1, qkv, out, norm2, gate_up, down;
    size_t bias, q_norm, k_norm; /* where there are such */
};

/* One arena's use by a batch of (B,T): byte offsets, every array aligned to
 * DECODER_ALIGN. [x] has L + 1 entries of (N,C) one after the other, the other
 * per-block arrays L of theirs. */
#define DECODER_ALIGN ((size_t)64)
struct decoder_acts {
    size_t x;             /* (L+1,N,C) residual stream into each block */
    size_t norm1, rstd1;  /* (L,N,C), (L,N) */
    size_t qkv, att, lse; /* (L,N,Q), (L,N,H D), (L,B,H,T) */
    size_t raw, rstd_qk;  /* (L,N,(H+G) D), (L,N,H+G): q, k before their norm */
    size_t mid;           /* (L,N,C) stream after attention */
    size_t norm2, rstd2;  /* (L,N,C), (L,N) */
    size_t gate_up, act;  /* (L,N,2F), (L,N,F) */
    size_t norm_f, rstd_f; /* (N,C), (N) */
    size_t logits;         /* (N,V) */
    size_t cosine, sine;   /* (T,D/2) */
    size_t scratch;        /* of attention */
    size_t tmp;            /* (N,C) */
    size_t dx, dqkv, datt; /* (N,C), (N,Q), (N,H D) */
    size_t dgate_up, dact; /* (N,2F), (N,F) */
    size_t bytes;          /* of the arena */
};

struct train_decoder {
    train_decoder_config_t config;
    struct decoder_dims dims;
    train_param_t *params;
    char (*names)[DECODER_NAME_MAX];
    size_t n_params, numel;
    struct decoder_block *blocks; /* (L) */
    size_t embed, norm_f, head;   /* offsets; head is embed's when tied */
    train_tensor_t weights, grads;
    void *acts; /* grown when a batch needs more */
    size_t acts_bytes;
    struct decoder_acts layout; /* of the last B, T */
    int B, T;
};

/* decoder_check - TRAIN_EINVAL names the field that is wrong. */
train_status_t decoder_check (const train_decoder_config_t *config,
                              train_error_t *err);

/* decoder_layout - fill config-derived fields: dims, params, offsets.
 * TRAIN_EINVAL names the field, TRAIN_ENOMEM. On failure decoder_destroy
 * cleans up. */
train_status_t decoder_layout (train_decoder_t *decoder,
                               const train_decoder_config_t *config,
                               train_error_t *err);

/* decoder_acts_layout - the one place that sizes activations.
 *   ret     written
 *   esize   bytes of an element, 4 or 8
 * TRAIN_EINVAL when B or T is below 1 or the sum overflows. */
train_status_t decoder_acts_layout (const struct decoder_dims *dims, int B,
                                    int T, size_t esize,
                                    struct decoder_acts *ret,
                                    train_error_t *err);

/* The passes; arguments are checked, activations are in place.
 * decoder_forward_* - everything up to the logits, which go to [logits] (N,V)
 *   or, when that is NULL, into the activations.
 * decoder_backward_* - from dL/dlogits in the activations; adds to grads. */
void decoder_forward_f32 (train_decoder_t *decoder, float *logits,
                          const int32_t *tokens);
void decoder_forward_f64 (train_decoder_t *decoder, double *logits,
                          const int32_t *tokens);
void decoder_backward_f32 (train_decoder_t *decoder, const int32_t *tokens);
void decoder_backward_f64 (train_decoder_t *decoder, const int32_t *tokens);
/* decoder_rope_* - fill the tables of cosines and sines for the layout. */
void decoder_rope_f32 (train_decoder_t *decoder);
void decoder_rope_f64 (train_decoder_t *decoder);

/* decoder_rope_check - TRAIN_EINVAL names the field of config->rope that is
 * wrong. head_dim is set.
 * decoder_rope_rate - angle a position of pair [j] of a head, in a batch of
 * sequences of T.
 * decoder_rope_scale - what cosines and sines are multiplied by. */
train_status_t decoder_rope_check (const train_decoder_config_t *config,
                                   train_error_t *err);
double decoder_rope_rate (const train_decoder_config_t *config, size_t T,
                          size_t j);
double decoder_rope_scale (const train_decoder_config_t *config);

#endif
