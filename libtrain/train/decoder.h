/* SPDX-License-Identifier: Apache-2.0
 * train/decoder.h - a Llama-shaped decoder with hand-written backward.
 *
 * Shape of a block: x + attn (rmsnorm (x)), x + swiglu (rmsnorm (x)); rotary
 * position embedding (half-split, as Hugging Face's Llama does it), causal
 * grouped-query attention, tied or untied head. (Touvron et al.
 * 2023, arXiv:2302.13971; Su et al. 2021, arXiv:2104.09864; Ainslie et al.
 * 2023, arXiv:2305.13245; Shazeer 2020, arXiv:2002.05202.) By options: biases
 * on queries, keys and values (Qwen2), a norm of each head's queries and keys
 * (Qwen3), heads of any even width, scaled rotary embedding.
 *
 * The weights and all work are on the host or on one GPU (config.device). There
 * the passes use cuBLASLt and cuDNN where they can be loaded, and kernels of
 * their own elsewhere.
 *
 * All parameters lie in one arena, all gradients in another of the same
 * layout, activations in a third that is sized at the first step; nothing is
 * allocated in later steps of the same shape. One thread uses a decoder. */
#ifndef TRAIN_DECODER_H
#define TRAIN_DECODER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_decoder train_decoder_t;

/* How the turning rates r_j = theta^(-2j/D) of rotary embedding are changed for
 * more positions than the model was first trained with. */
typedef enum train_rope_kind {
    TRAIN_ROPE_DEFAULT = 0, /* not at all */
    TRAIN_ROPE_LINEAR = 1,  /* all divided by factor (Chen et al. 2023,
                               arXiv:2306.15595) */
    TRAIN_ROPE_DYNAMIC = 2, /* theta grows with the batch's T where that is over
                               [original]; a T up to it is as the default. T of
                               this batch alone decides. */
    TRAIN_ROPE_LLAMA3 = 3,  /* slow ones divided, fast ones kept, a blend
                               between (Grattafiori et al. 2024,
                               arXiv:2407.21783) */
    TRAIN_ROPE_YARN = 4,    /* the same by a ramp over j, and cosines and sines
                               times [attention] (Peng et al. 2023,
                               arXiv:2309.00071) */
} train_rope_kind_t;

typedef struct train_rope {
    train_rope_kind_t kind;
    double factor;    /* all but default: > 0 */
    double original;  /* dynamic, llama3, yarn: positions; >= 1 */
    double low, high; /* llama3: low_freq_factor < high_freq_factor; yarn:
                         beta_slow <= beta_fast */
    double attention; /* yarn: > 0 */
    bool whole;       /* yarn: the ramp's ends are rounded outwards */
} train_rope_t;

/* Which activations the backward makes again instead of their being kept. */
typedef enum train_recompute {
    TRAIN_RECOMPUTE_NOTHING = 0,
    TRAIN_RECOMPUTE_CHEAP = 1,  /* norms and the feed-forward's product; on a
                                   GPU 1 % more time, 6 of 36 GiB less for 1.2
                                   G parameters and 16384 tokens in BF16 */
    TRAIN_RECOMPUTE_BLOCKS = 2, /* all but the stream into each block */
} train_recompute_t;

/* Adapters of low rank (Hu et al. 2021, arXiv:2106.09685) beside products of each
 * block: y = x W^T + alpha / rank (x A^T) B^T, where A (rank, in) is drawn as PEFT
 * draws it and B (out, rank) is zero at first. They are parameters
 * "model.layers.0.self_attn.q_proj.lora_A.weight" and so on, and have all that
 * parameters have; of the others no gradient is made, and what stands in the
 * arena for them is of no use. */
typedef struct train_lora {
    int rank;     /* 0: none, and then the others are 0 */
    int targets;  /* of train_lora_targets */
    double alpha; /* above 0 */
} train_lora_t;

#define TRAIN_LORA_N 7 /* products of a block that may have one */

/* train_lora_targets - from a list by commas: names q_proj, k_proj, v_proj,
 * o_proj, gate_proj, up_proj, down_proj, patterns (fnmatch(3)) of them, or
 * all-linear.
 *   ret   written on success
 * TRAIN_EINVAL names the word that fits nothing more. TRAIN_ENOMEM.
 * train_lora_target - name of number [k], which is bit k of targets; NULL:
 * there is no such. */
train_status_t train_lora_targets (const char *list, int *ret,
                                   train_error_t *err);
const char *train_lora_target (int k);

typedef struct train_decoder_config {
    size_t size;         /* sizeof (train_decoder_config_t) */
    int layers;          /* >= 1 */
    int dim;             /* hidden size */
    int heads;           /* query heads */
    int kv_heads;        /* key and value heads; divides heads */
    int ffn;             /* width of the feed-forward */
    int vocab;           /* tokens; 256 = bytes */
    bool tie;            /* head shares the embedding */
    double rope_theta;   /* 10000 in Llama 2 */
    double norm_eps;     /* 1e-5 */
    train_dtype_t dtype; /* of weights and activations: TRAIN_F32, BF16, F16;
                            on the host F64 too. Gradients of weights are F32
                            where that is BF16 or F16 */
    int head_dim;        /* even; 0 = dim / heads, and is that when read back */
    bool qkv_bias;       /* queries, keys, values get a bias (zero at first) */
    bool qk_norm;        /* RMSNorm of each head's queries and keys */
    train_rope_t rope;   /* zeros: none; theta is rope_theta */
    DLDevice device;     /* {kDLCUDA, k}: GPU k; zeros or kDLCPU: the host */
    bool deterministic;  /* on a GPU: the same bits every time */
    train_recompute_t recompute;
    train_lora_t lora;    /* zeros: no adapters */
    train_dtype_t buffer; /* TRAIN_BF16, TRAIN_F16: cosines and sines of the
                             rotation are rounded to it once, which is what
                             transformers computes in BF16; zero: they stay F32,
                             or F64 */
} train_decoder_config_t;

/* train_decoder_create - allocate parameters and gradients (both zero).
 * TRAIN_EINVAL names the field that is wrong. */
train_status_t train_decoder_create (const train_decoder_config_t *config,
                                     train_decoder_t **ret_decoder,
                                     train_error_t *err);
void train_decoder_destroy (train_decoder_t *decoder); /* NULL is fine */

/* train_decoder_create_bare - the same without parameters and gradients: names,
 * shapes and offsets alone, for a trainer that shards (train/trainer.h), which
 * gives each unit its place while a pass needs it. Passes of its own, weights
 * as a whole, train_decoder_init, train_hf_load and checkpoints it has not. */
train_status_t train_decoder_create_bare (const train_decoder_config_t *config,
                                          train_decoder_t **ret_decoder,
                                          train_error_t *err);

/* train_decoder_merge - adapters are added to the weights that they are beside,
 * in place and rounded to the decoder's dtype, and passes leave them out from
 * now on: to write texts with, not to train. Nothing without adapters.
 * TRAIN_EINVAL: it is NULL or bare; TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t train_decoder_merge (train_decoder_t *decoder,
                                    train_error_t *err);

/* train_decoder_init - draw the weights: N(0, 0.02), output projections of
 * each block scaled by 1/sqrt(2 layers), norms 1, biases 0. Counter-based: the same for
 * any world size and dtype (f32 is the rounded f64). */
void train_decoder_init (train_decoder_t *decoder, uint64_t seed);

/* train_decoder_draw - the same, with what can fail on a GPU: TRAIN_ENOMEM of
 * the host, TRAIN_EDEVICE. */
train_status_t train_decoder_draw (train_decoder_t *decoder, uint64_t seed,
                                   train_error_t *err);

/* One parameter. Names are Hugging Face's ("model.layers.0.self_attn.
 * q_proj.weight"); shapes are row-major (out, in). */
typedef struct train_param {
    const char *name; /* lives with the decoder */
    int ndim;
    int64_t shape[2];
    size_t offset; /* elements from the start of the arena */
    size_t count;  /* elements */
    bool decay;    /* weight decay applies (matrices alone) */
} train_param_t;

size_t train_decoder_n_params (const train_decoder_t *decoder);
const train_param_t *train_decoder_param (const train_decoder_t *decoder,
                                          size_t index);
size_t train_decoder_numel (const train_decoder_t *decoder); /* of the arena */
const train_decoder_config_t *train_decoder_config (
    const train_decoder_t *decoder);
/* The arenas, as 1-D views that live with the decoder. That of gradients is made,
 * of zeros, by the first backward or the first question: data is NULL where there
 * is no room. */
DLTensor *train_decoder_weights (train_decoder_t *decoder);
DLTensor *train_decoder_grads (train_decoder_t *decoder);

/* train_decoder_documents - rows hold several documents, in all passes from now
 * on: attention does not cross their borders, and positions count from each
 * one's beginning. (Krell et al. 2021, arXiv:2107.02027.)
 *   starts   (B,T) of the host, borrowed until it is replaced, read when a pass
 *            begins: the position in its row where the document of each position
 *            begins. A pass with starts that are none is TRAIN_EINVAL. NULL:
 *            each row is one document again
 * What follows a document's last token is another's: its target is to be -1. On
 * a GPU such passes take our own kernels for attention, for cuDNN's graph has no
 * such mask. Rope's dynamic scaling goes by T, not by a document's length. */
void train_decoder_documents (train_decoder_t *decoder, const int32_t *starts);

/* train_decoder_dropout - drop elements of what attention and feed-forward of
 * each block add to the stream, in all passes from now on, forward alone too.
 * (Srivastava et al. 2014, JMLR 15.)
 *   rate   of elements that become 0, the others are scaled up; to 2^-16 and
 *          below 1; 0: none, and no cost
 *   seed, step, row   what the masks are a function of, beside block, half and
 *          element: the step's number, and the number of the pass's first row in
 *          the batch of that step. Equal for any split of the batch, recompute,
 *          dtype and device
 * TRAIN_EINVAL: rate or row. */
train_status_t train_decoder_dropout (train_decoder_t *decoder, double rate,
                                      uint64_t seed, uint64_t step, int64_t row,
                                      train_error_t *err);

/* train_decoder_forward - logits of a batch.
 *   logits   (B,T,V) dtype, written, memory of the decoder's device; NULL = not
 *            wanted
 *   tokens   (B,T) each in 0..vocab-1, else TRAIN_EINVAL with its place
 *   targets  (B,T) the next token; -1 = not counted; NULL = no loss
 *   ret_loss_sum, ret_n   sum over counted tokens of -log p (nats) in f64, and
 *            how many; NULL with targets NULL */
train_status_t train_decoder_forward (train_decoder_t *decoder, void *logits,
                                      const int32_t *tokens,
                                      const int32_t *targets, int B, int T,
                                      double *ret_loss_sum, int64_t *ret_n,
                                      train_error_t *err);

/* train_decoder_step - forward and backward of one micro-batch.
 *   scale   dL/d(loss_sum): 1/(tokens of the global batch) for a mean
 * Gradients are ADDED to the gradient arena: zero it once a step. Other
 * arguments as train_decoder_forward; targets are needed. */
train_status_t train_decoder_step (train_decoder_t *decoder,
                                   const int32_t *tokens,
                                   const int32_t *targets, int B, int T,
                                   double scale, double *ret_loss_sum,
                                   int64_t *ret_n, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
