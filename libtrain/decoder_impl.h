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

/* A decoder is a row of units, each one range of the arena: unit 0 is the
 * embedding, 1..L the blocks, L + 1 the last norm and the head, if that is not
 * tied. */
struct decoder_unit {
    size_t first, count; /* elements of the arena */
};

/* Where a unit's weights and gradients are now; each [count] elements. */
struct decoder_place {
    void *weights, *grads;
};

/* What a pass tells as it goes.
 *   before   the unit's weights are needed now; [backward]: its gradients will
 *            be added to as well. decoder_set_unit may be called in it.
 *   after    the weights may go; [backward]: the gradients are whole
 * Forward: units 0, 1..L, L + 1; backward the other way. A tied head asks for
 * unit 0 once more, after L + 1 forward and before it backward: what after says
 * of its gradients there is not so, they are whole after the second time.
 * An error ends the pass, which returns it; no after follows. */
struct decoder_hooks {
    train_status_t (*before) (void *arg, size_t unit, bool backward,
                              train_error_t *err);
    train_status_t (*after) (void *arg, size_t unit, bool backward,
                             train_error_t *err);
    void *arg;
};

struct train_decoder {
    train_decoder_config_t config;
    struct decoder_dims dims;
    train_param_t *params;
    char (*names)[DECODER_NAME_MAX];
    size_t n_params, numel;
    struct decoder_block *blocks; /* (L) */
    size_t embed, norm_f, head;   /* offsets; head is embed's when tied */
    struct decoder_unit *units;   /* (L + 2) */
    struct decoder_place *places; /* (L + 2) */
    struct decoder_hooks hooks;
    train_tensor_t weights, grads; /* data is NULL where made bare */
    void *acts;                    /* grown when a batch needs more */
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

/* decoder_create_bare - a decoder without arenas: names, shapes and offsets
 * alone. decoder_set_unit must say where weights (and gradients, for a step)
 * are before a pass comes to a unit, else the pass is TRAIN_ESTATE. Weights and
 * gradients as a whole (train_decoder_weights, _grads, _init, hf_load,
 * checkpoints) are not there to be asked for. Errors of train_decoder_create.
 */
train_status_t decoder_create_bare (const train_decoder_config_t *config,
                                    train_decoder_t **ret_decoder,
                                    train_error_t *err);

size_t decoder_n_units (const train_decoder_t *decoder); /* L + 2 */
/* Lives with the decoder; NULL where there is no such unit. */
const struct decoder_unit *decoder_unit (const train_decoder_t *decoder,
                                         size_t index);

/* decoder_set_unit - use these instead of the arenas.
 *   weights, grads   of the unit's elements, borrowed until they are replaced;
 *                    NULL: not there, or back to the arena where one is */
void decoder_set_unit (train_decoder_t *decoder, size_t unit, void *weights,
                       void *grads);

/* decoder_set_hooks - copied; NULL: none; either function may be NULL. */
void decoder_set_hooks (train_decoder_t *decoder,
                        const struct decoder_hooks *hooks);

/* decoder_init_unit - the unit's part of what train_decoder_init draws.
 *   weights   of the unit, of the decoder's dtype, written */
void decoder_init_unit (const train_decoder_t *decoder, size_t unit,
                        uint64_t seed, void *weights);

/* decoder_enter, decoder_leave - the hooks around a unit's use in a pass.
 * decoder_turn - leave one, enter the other. TRAIN_ESTATE: no weights, or in
 * the backward no gradients; else what a hook returns. */
train_status_t decoder_enter (train_decoder_t *decoder, size_t unit,
                              bool backward, train_error_t *err);
train_status_t decoder_leave (train_decoder_t *decoder, size_t unit,
                              bool backward, train_error_t *err);
train_status_t decoder_turn (train_decoder_t *decoder, size_t from, size_t to,
                             bool backward, train_error_t *err);

/* The passes; arguments are checked, activations are in place.
 * decoder_forward_* - everything up to the logits, which go to [logits] (N,V)
 *   or, when that is NULL, into the activations.
 * decoder_backward_* - from dL/dlogits in the activations; adds to grads.
 * Errors are those of decoder_enter and decoder_leave. */
train_status_t decoder_forward_f32 (train_decoder_t *decoder, float *logits,
                                    const int32_t *tokens, train_error_t *err);
train_status_t decoder_forward_f64 (train_decoder_t *decoder, double *logits,
                                    const int32_t *tokens, train_error_t *err);
train_status_t decoder_backward_f32 (train_decoder_t *decoder,
                                     const int32_t *tokens, train_error_t *err);
train_status_t decoder_backward_f64 (train_decoder_t *decoder,
                                     const int32_t *tokens, train_error_t *err);
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
