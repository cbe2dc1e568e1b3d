/* SPDX-License-Identifier: Apache-2.0
 * decoder_impl.h - the parts of a decoder, for its own files and their tests.
 *
 * Legend: N = B T rows, C dim, F ffn, V vocab, H heads, G kv_heads, D head
 * width, Q = (H + 2 G) D columns of queries, keys and values together. */
#ifndef TRAIN_DECODER_IMPL_H
#define TRAIN_DECODER_IMPL_H

#include <train/decoder.h>

#include "backend.h"
#include "decoder_front.h"
#include "decoder_work.h"

#include "kernels/table.h"

#define DECODER_NAME_MAX 80

/* Widths of one decoder as the passes need them. */
struct decoder_dims {
    size_t L, C, F, V, H, G, D, Q;
    bool bias, norm; /* of q, k, v; of q, k */
    train_lora_t lora;
};

/* Where a block's weights start in the arena, in elements. q, k, v lie side by
 * side, and so do gate and up, so that one product serves them; so do their
 * biases. */
struct decoder_block {
    size_t norm1, qkv, out, norm2, gate_up, down;
    size_t bias, q_norm, k_norm; /* where there are such */
    size_t lora_a[TRAIN_LORA_N], lora_b[TRAIN_LORA_N]; /* likewise */
};

/* One array of every block: byte offset of block 0's, and from one block's to
 * the next; 0 where all blocks share one, which is made again in the backward.
 * [lent] not 0: it lies in the loan (decoder_spent.h), the shared one, or that of
 * the first block with a room, [lent] - 1 bytes from its start; of blocks without
 * a room at [at], [early] bytes apart. */
struct decoder_array {
    size_t at, step, lent, early;
};

/* One arena's use by a batch of (B,T), every array aligned to DECODER_ALIGN.
 * Statistics, cosines and sines are of the kernels' [real], the others of the
 * decoder's dtype. */
#define DECODER_ALIGN ((size_t)256)
struct decoder_acts {
    struct decoder_array x;            /* (L+1) of (N,C): stream into a block */
    struct decoder_array norm1, rstd1; /* (N,C), (N) */
    struct decoder_array qkv, att, lse; /* (N,Q), (N,H D), (B,H,T) */
    struct decoder_array raw, rstd_qk;  /* (N,(H+G) D), (N,H+G): q, k before
                                         their norm */
    struct decoder_array mid;           /* (N,C) stream after attention */
    struct decoder_array norm2, rstd2;  /* (N,C), (N) */
    struct decoder_array gate_up, act;  /* (N,2F), (N,F) */
    struct decoder_array norm_f,
        rstd_f;                        /* (N,C), (N); of no block, and below */
    struct decoder_array logits;       /* (N,V), or what head_loss works in */
    struct decoder_array cosine, sine; /* (T,D/2) */
    struct decoder_array starts;       /* (N) int32, of a GPU; with documents,
                                          as these: */
    struct decoder_array doc_cosine, doc_sine; /* (N,D/2) */
    struct decoder_array tmp;                  /* (N,C) */
    struct decoder_array dx;                   /* (N,C), in norm_f's place */
    struct decoder_array dqkv, datt;           /* (N,Q), (N,H D) */
    struct decoder_array dact;            /* (N,F), in the place of the two */
    struct decoder_array lora_u, lora_du; /* (N,rank) */
    struct decoder_array lora_wide;       /* (N, of the widest adapter) */
    struct decoder_array tokens, targets; /* (N) int32 */
    struct decoder_array front;           /* (4,N), of a GPU: decoder_front's */
    struct decoder_array attention; /* what it works in: gate_up's place */
    bool apart;                     /* its own, as that is smaller */
    struct decoder_array scratch;   /* of other kernels */
    bool whole;                     /* the logits are */
    size_t shared, ahead, room;     /* while it is laid out */
    size_t rest;                    /* where tables, ids and scratch begin */
    size_t bytes;                   /* of the arena */
    size_t lent;  /* bytes of the loan that are used, gaps included */
    size_t first; /* block with a room */
    bool lends;   /* decoder_need had a loan */
};

/* What sizes activations beside dims, B and T. */
struct decoder_need {
    size_t elem, real; /* bytes */
    int recompute;     /* train_recompute_t */
    bool whole;        /* logits of all rows at once */
    size_t head;       /* bytes that head_loss works in; 0 if whole */
    bool gpu;          /* ids are copied */
    bool docs;         /* rows hold documents */
    size_t attention;  /* bytes that it works in */
    size_t scratch;    /* bytes that some other kernel wants */
    const size_t
        *until; /* (L+1) what is lent (decoder_spent.h); NULL: nothing */
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
 *   before   the unit's weights are needed now, but in the embedding's own
 *            backward; [backward]: its gradients will be added to as well.
 *            decoder_set_unit may be called in it.
 *   after    the weights may go; [backward]: the gradients are whole
 * Forward: units 0, 1..L, L + 1; backward the other way. A tied head asks for
 * unit 0 once more: before L + 1 in the backward (what after says of its
 * gradients there is not so, they are whole after the second time), and after
 * L + 1 in a forward whose logits are made whole.
 * An error ends the pass, which returns it; no after follows. */
struct decoder_hooks {
    train_status_t (*before) (void *arg, size_t unit, bool backward,
                              train_error_t *err);
    train_status_t (*after) (void *arg, size_t unit, bool backward,
                             train_error_t *err);
    void *arg;
};

/* What train_decoder_dropout said; [cut] of 65536, 0: nothing is dropped. */
struct decoder_dropout {
    uint32_t cut;
    uint64_t seed, step, row;
};

struct train_decoder {
    train_decoder_config_t config;
    struct decoder_dims dims;
    train_param_t *params;
    char (*names)[DECODER_NAME_MAX];
    size_t n_params, numel;
    bool *still; /* of decoder_freeze; NULL: all train, or nobody said */
    size_t
        *grad_at; /* (n_params) of what trains, in the arena of gradients; NULL:
                        that is as the weights lie */
    bool in_rooms;     /* it is so in the gradients that each unit is given */
    size_t grad_numel; /* elements of the arena */
    struct decoder_block *blocks; /* (L) */
    size_t embed, norm_f, head;   /* offsets; head is embed's when tied */
    struct decoder_unit *units;   /* (L + 2) */
    struct decoder_place *places; /* (L + 2) */
    struct decoder_hooks hooks;
    const struct decoder_together *together; /* NULL: passes are its own */
    train_status_t (*wait) (void *arg, train_error_t *err); /* or NULL */
    void *wait_arg;
    train_tensor_t weights, grads; /* data is NULL where made bare */
    /* Where all that lies, and who works on it. */
    const struct backend_ops *ops;
    const struct kern_ops *kern;
    const struct decoder_work *work;
    void *engine; /* of [work] */
    int device;   /* as [ops] counts */
    bool gpu;
    void *stream; /* NULL on the host */
    void *acts;   /* grown when a batch needs more */
    size_t acts_bytes;
    struct decoder_acts layout; /* of the last B, T */
    int B, T;
    struct decoder_tables {
        struct decoder_array cosine, sine;
        int T;                       /* positions; 0: there are none */
    } tables;                        /* that stand at the arena's end */
    const int32_t *tokens, *targets; /* of this pass, where the kernels are */
    const int32_t *starts;    /* as these; NULL: each row is one document */
    const int32_t *documents; /* of the next passes, the caller's */
    bool docs;                /* the layout has room for them */
    struct decoder_dropout dropout;
    bool plain;   /* passes leave adapters out: they are merged, or the model
                     without them is meant */
    double inv_t; /* of decoder_logps, whose backward may follow; 0: may not */
    struct decoder_ids {
        int32_t *pinned; /* (6,N): tokens, targets, starts, and (3,N) of
                            decoder_front */
        size_t bytes;
        void *event; /* its copy has been made */
        bool used;
    } ids[2];
    struct decoder_front front;
    int turn; /* which of them is next */
    struct decoder_replay {
        bool on;
        void *graph; /* NULL: not recorded yet */
        void *acts;  /* of the pass before, as all below; NULL: none */
        int B, T;
        double scale;
        bool spent;
    } replay;
    bool spent, lend;   /* see decoder_spend_grads */
    void *given;        /* by decoder_set_loan; NULL: gradients are lent */
    size_t *until;      /* (L + 1) of what is lent */
    void *loan;         /* of this pass's layout */
    double *sum, *read; /* loss, summed over passes; on [device]; pinned */
};

/* decoder_check - TRAIN_EINVAL names the field that is wrong. */
train_status_t decoder_check (const train_decoder_config_t *config,
                              train_error_t *err);

/* decoder_layout - fill config-derived fields: dims, params, offsets.
 * TRAIN_EINVAL names the field, TRAIN_ENOMEM. On failure train_decoder_destroy
 * cleans up. */
train_status_t decoder_layout (train_decoder_t *decoder,
                               const train_decoder_config_t *config,
                               train_error_t *err);

/* decoder_kernel_scratch - bytes that a kernel of a GPU's table wants at most for
 * [N] rows; the host's want none. */
size_t decoder_kernel_scratch (const train_decoder_t *decoder, size_t N);

/* decoder_acts_layout - the one place that sizes activations.
 *   ret     written
 * TRAIN_EINVAL when B or T is below 1 or the sum overflows. */
train_status_t decoder_acts_layout (const struct decoder_dims *dims,
                                    const struct decoder_need *need, int B,
                                    int T, struct decoder_acts *ret,
                                    train_error_t *err);

/* decoder_acts_bytes - what decoder_prepare takes for a batch of (B,T) without
 * a loan.
 * decoder_prepare - room for a batch of (B,T), rope's tables and all that it
 * needs; keeps what is there when the shape is the last. TRAIN_EINVAL,
 * TRAIN_ENOMEM, TRAIN_EDEVICE, TRAIN_ENOTSUP.
 * decoder_open_products - products alone may be asked for now: on a GPU the first
 * pass opens their library, and there may be none yet.
 * decoder_take_ids - check ids and documents, and bring them to where the kernels
 * are.
 *   targets   NULL = none
 *   ret_n     counted targets; NULL = not wanted */
size_t decoder_acts_bytes (const train_decoder_t *decoder, int B, int T);
train_status_t decoder_prepare (train_decoder_t *decoder, int B, int T,
                                train_error_t *err);
train_status_t decoder_open_products (train_decoder_t *decoder,
                                      train_error_t *err);
train_status_t decoder_take_ids (train_decoder_t *decoder,
                                 const int32_t *tokens, const int32_t *targets,
                                 int64_t *ret_n, train_error_t *err);

/* decoder_drops - is anything dropped in passes now?
 * decoder_drop - of what [half] of block [layer] adds to the stream, or of its
 * gradient.
 *   y   (N,C) written; may be [x] */
enum decoder_half { DECODER_ATTENTION, DECODER_FFN };
bool decoder_drops (const train_decoder_t *decoder);
void decoder_drop (train_decoder_t *decoder, size_t layer,
                   enum decoder_half half, void *y, const void *x);

/* The products of a block, fused as they are. */
enum decoder_product {
    DECODER_QKV,
    DECODER_OUT,
    DECODER_GATE_UP,
    DECODER_DOWN
};

/* What adapter [k] is beside: a product of (N,in) to columns from [col] on of
 * rows of [pitch]. */
struct decoder_lora {
    size_t in, out, pitch, col;
};
struct decoder_lora decoder_lora_of (const struct decoder_dims *dims, int k);
size_t decoder_lora_widest (const struct decoder_dims *dims); /* 0: none */
const char *decoder_lora_module (int k); /* "self_attn.q_proj" */
bool decoder_is_lora (const char *name); /* of a parameter */
bool decoder_waits (const char *name); /* of an A: without gradient while its B
                                            is zero, as at first */
train_status_t decoder_lora_check (const train_decoder_config_t *config,
                                   train_error_t *err);

/* decoder_lora_merge - weights with what adapters add.
 *   x    an arena of the decoder's dtype, of the host
 *   y    an arena of [to], which has the other weights already: those that have
 *        adapters are written, rounded once
 * TRAIN_ENOMEM. */
train_status_t decoder_lora_merge (const train_decoder_t *decoder,
                                   const void *x, void *y, train_dtype_t to,
                                   train_error_t *err);

/* decoder_leave_out - passes leave adapters out, or have them again.
 * decoder_merge - until decoder_merge_end the blocks are used from copies that
 * have their adapters merged, rounded to the decoder's type, and adapters are
 * left out: as where texts are written (train/generate.h). Weights are where
 * their units are placed. Nothing without adapters. TRAIN_ENOMEM, TRAIN_EDEVICE.
 * decoder_merge_end - also after a failure. decoder_merge_bytes - of the copies.
 * decoder_merge_room - what decoder_merge_unit works in, to be freed; it merges
 * the adapters of [unit] where that is placed. */
struct decoder_merged {
    void *memory;
    struct decoder_place *places; /* where units were before; NULL: nothing is
                                     merged */
};
void decoder_leave_out (train_decoder_t *decoder, bool out);
train_status_t decoder_merge (train_decoder_t *decoder,
                              struct decoder_merged *merged,
                              train_error_t *err);
size_t decoder_merge_bytes (const train_decoder_t *decoder);
void decoder_merge_end (train_decoder_t *decoder,
                        struct decoder_merged *merged);
train_status_t decoder_merge_room (train_decoder_t *decoder, void **ret,
                                   train_error_t *err);
train_status_t decoder_merge_unit (train_decoder_t *decoder, size_t unit,
                                   void *room, train_error_t *err);

/* decoder_lora_fwd, _bwd - what block [l]'s adapters add to a product.
 *   y    its result, added to
 *   dx   its input's gradient, added to
 *   dy   its result's gradient, whole
 *   x    its input */
train_status_t decoder_lora_fwd (train_decoder_t *decoder, size_t l,
                                 enum decoder_product product, void *y,
                                 const void *x, train_error_t *err);
train_status_t decoder_lora_bwd (train_decoder_t *decoder, size_t l,
                                 enum decoder_product product, void *dx,
                                 const void *dy, const void *x,
                                 train_error_t *err);

/* Of decoder_take_ids:
 * decoder_check_docs - of the next pass: TRAIN_EINVAL names the place.
 * decoder_place_docs - where the kernels see them, with their tables.
 * decoder_turn_fwd, _bwd - rope of queries and keys, by positions in documents
 * where there are such. */
train_status_t decoder_check_docs (const train_decoder_t *decoder,
                                   train_error_t *err);
void decoder_place_docs (train_decoder_t *decoder);
void decoder_turn_fwd (train_decoder_t *decoder, void *qkv);
void decoder_turn_bwd (train_decoder_t *decoder, void *dqkv);

/* decoder_step_add - train_decoder_step without its end: on a GPU it enqueues,
 * and the loss is added to what decoder_loss_read gives.
 * decoder_loss_read - wait for all that is enqueued; the sum of losses since
 * the last time. */
train_status_t decoder_step_add (train_decoder_t *decoder,
                                 const int32_t *tokens, const int32_t *targets,
                                 int B, int T, double scale, int64_t *ret_n,
                                 train_error_t *err);
/* decoder_forward_add - train_decoder_forward without its end, as step_add. */
train_status_t decoder_forward_add (train_decoder_t *decoder, void *logits,
                                    const int32_t *tokens,
                                    const int32_t *targets, int B, int T,
                                    int64_t *ret_n, train_error_t *err);
/* decoder_set_replay - passes of decoder_step_add that are like the one before
 * (shape, scale, units where they were, no hooks, nothing dropped) become
 * launches of one CUDA graph. All else that a pass takes from the host, but for ids, must stay while
 * this is on. Off at first. TRAIN_ENOTSUP: not of a GPU.
 * decoder_replay_step - decoder_step, or the graph of it.
 * decoder_replay_forget - what was recorded is not so any more. */
train_status_t decoder_set_replay (train_decoder_t *decoder, bool on,
                                   train_error_t *err);
train_status_t decoder_replay_step (train_decoder_t *decoder, double scale,
                                    train_error_t *err);
void decoder_replay_forget (train_decoder_t *decoder);

train_status_t decoder_loss_read (train_decoder_t *decoder,
                                  double *ret_loss_sum, train_error_t *err);

/* decoder_logps - the forward of the batch whose ids and targets are in place.
 *   logp, entropy   (N) of the kernels' [real] and the decoder's memory,
 *                   written; 0 where the target is none. entropy NULL = not
 *                   wanted. logp NULL: both are left to the backward, which
 *                   makes the logits once then
 * decoder_logps_bwd - the backward, when no other pass was made in between:
 * gradients are added to the arena, or written where they are spent.
 * TRAIN_ESTATE: one was.
 *   dlogp   (N) of the same memory: d loss / d logp
 *   logp, entropy   (N) as above, written again; they may be those of before
 * Both enqueue on a GPU. Errors of the passes. */
train_status_t decoder_logps (train_decoder_t *decoder, void *logp,
                              void *entropy, double temperature,
                              train_error_t *err);
train_status_t decoder_logps_bwd (train_decoder_t *decoder, const void *dlogp,
                                  void *logp, void *entropy,
                                  train_error_t *err);

/* decoder_choices - which algorithms the products of a deterministic decoder
 * have, for a checkpoint.
 *   ret   malloc'ed bytes; NULL: there are none
 * decoder_take_choices - take them again, before the next pass.
 * TRAIN_EMISMATCH: they are another card's or library's, and the text names
 * both; TRAIN_EFORMAT: they are none. Then nothing changes. TRAIN_ENOMEM. */
train_status_t decoder_choices (const train_decoder_t *decoder, void **ret,
                                size_t *ret_bytes, train_error_t *err);
train_status_t decoder_take_choices (train_decoder_t *decoder, const void *from,
                                     size_t bytes, train_error_t *err);

/* decoder_freeze - from now on the backward makes no gradients of matrices all of
 * which is frozen, as one kernel writes them. What a kernel writes of a still
 * vector is nobody's.
 *   frozen   (n_params) copied; NULL: all train
 *   alone    this is who uses the gradients: where some are not made, these are
 *            made again with the others alone, side by side
 * TRAIN_ENOMEM.
 * decoder_is_still - is the parameter that begins at [offset] such?
 * decoder_grad_at - where its gradient begins in the arena.
 * decoder_own_grad - its gradient, of unit [u]; NULL: a still matrix.
 * decoder_sink - elements behind that arena that still vectors share.
 * decoder_place_grads - of a decoder without arenas, after decoder_freeze: the
 * gradients that a unit is given are a room with those of what is not still:
 * [at] (n_params) is where each begins, copied. Still vectors share
 * decoder_widest_vector elements at the room's beginning. TRAIN_ENOMEM. */
train_status_t decoder_freeze (train_decoder_t *decoder, const bool *frozen,
                               bool alone, train_error_t *err);
bool decoder_is_still (const train_decoder_t *decoder, size_t offset);
size_t decoder_grad_at (const train_decoder_t *decoder, size_t offset);
void *decoder_own_grad (const train_decoder_t *decoder, size_t u,
                        size_t offset);
size_t decoder_sink (const train_decoder_t *decoder);
size_t decoder_widest_vector (const train_decoder_t *decoder);
train_status_t decoder_place_grads (train_decoder_t *decoder, const size_t *at,
                                    train_error_t *err);

/* decoder_act - array of block [l]. decoder_weight, decoder_grad - what lies at
 * [offset] of the arena, which is of unit [u]; decoder_grad is NULL of a matrix
 * that is still. */
static inline void *decoder_act (const train_decoder_t *m,
                                 struct decoder_array a, size_t l)
{
    size_t first = m->layout.first;

    if (a.lent > 0 && (a.step == 0 || l >= first))
        return (char *)m->loan + a.lent - 1 + (l - first) * a.step;
    return (char *)m->acts + a.at + l * (a.lent > 0 ? a.early : a.step);
}

static inline const void *decoder_weight (const train_decoder_t *m, size_t u,
                                          size_t offset)
{
    return (const char *)m->places[u].weights
           + (offset - m->units[u].first) * m->kern->elem_size;
}

static inline void *decoder_grad_place (const train_decoder_t *m, size_t u,
                                        size_t offset)
{
    return (char *)m->places[u].grads
           + (offset - m->units[u].first) * m->kern->real_size;
}

static inline void *decoder_grad (const train_decoder_t *m, size_t u,
                                  size_t offset)
{
    return m->still ? decoder_own_grad (m, u, offset)
                    : decoder_grad_place (m, u, offset);
}

static inline void *decoder_scratch (const train_decoder_t *m)
{
    return decoder_act (m, m->layout.scratch, 0);
}

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

/* decoder_want_grads - the arena of gradients is made when it is first asked for:
 * a model that only looks has none. Nothing where it is there, or where there is
 * none of weights. TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t decoder_want_grads (train_decoder_t *decoder,
                                   train_error_t *err);

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
/* decoder_init_param - of parameter [index] alone, to [weights] of it. */
void decoder_init_param (const train_decoder_t *decoder, size_t index,
                         uint64_t seed, void *weights);

/* decoder_enter, decoder_leave - the hooks around a unit's use in a pass.
 * decoder_enter_embed_bwd - of the embedding's own backward, which reads no
 * weights.
 * decoder_turn - leave one, enter the other. TRAIN_ESTATE: no weights, or in
 * the backward no gradients; else what a hook returns. */
train_status_t decoder_enter (train_decoder_t *decoder, size_t unit,
                              bool backward, train_error_t *err);
train_status_t decoder_enter_embed_bwd (train_decoder_t *decoder,
                                        train_error_t *err);
train_status_t decoder_leave (train_decoder_t *decoder, size_t unit,
                              bool backward, train_error_t *err);
train_status_t decoder_turn (train_decoder_t *decoder, size_t from, size_t to,
                             bool backward, train_error_t *err);

/* The passes; arguments are checked, activations and ids are in place. Errors
 * are those of decoder_enter and decoder_leave, on a GPU also of its libraries.
 * decoder_forward - up to the last norm.
 *   logits    (N,V) of the decoder's memory, written; NULL = not wanted
 *   loss      the loss of m->targets is added to m->sum
 * decoder_step - forward and backward; the loss is added to m->sum, gradients
 *   to grads.
 * decoder_body, decoder_body_bwd - of these, the embedding and the blocks; the
 *   stream's gradient is in dx.
 * decoder_rope - the layout's tables of cosines and sines: those that stand at
 *   the arena's end where they serve and it leaves them there, else new ones.
 * decoder_head_unit - where the head's weights are.
 * decoder_last_norm - to norm_f; needs unit L + 1. decoder_last_norm_bwd - from
 *   tmp to dx; leaves that unit. */
train_status_t decoder_forward (train_decoder_t *decoder, void *logits,
                                bool loss, train_error_t *err);
train_status_t decoder_step (train_decoder_t *decoder, double scale,
                             train_error_t *err);
train_status_t decoder_body (train_decoder_t *decoder, train_error_t *err);
train_status_t decoder_body_bwd (train_decoder_t *decoder, train_error_t *err);
train_status_t decoder_rope (train_decoder_t *decoder, train_error_t *err);
size_t decoder_head_unit (const train_decoder_t *decoder);
void decoder_last_norm (train_decoder_t *decoder);
train_status_t decoder_last_norm_bwd (train_decoder_t *decoder,
                                      train_error_t *err);

/* decoder_rope_check - TRAIN_EINVAL names the field of config->rope that is
 * wrong. head_dim is set.
 * decoder_rope_rate - angle a position of pair [j] of a head, in a batch of
 * sequences of T.
 * decoder_rope_scale - what cosines and sines are multiplied by.
 * decoder_rope_tables - cosines and sines of T positions, (T,D/2) each in host
 * memory, in [real] of the kernels, rounded as config->buffer says. */
train_status_t decoder_rope_check (const train_decoder_config_t *config,
                                   train_error_t *err);
double decoder_rope_rate (const train_decoder_config_t *config, size_t T,
                          size_t j);
double decoder_rope_scale (const train_decoder_config_t *config);
void decoder_rope_tables (const train_decoder_t *decoder, size_t T,
                          void *cosine, void *sine);

#include "decoder_spent.h"
#include "decoder_together.h"

#endif
