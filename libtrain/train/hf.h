/* SPDX-License-Identifier: Apache-2.0
 * train/hf.h - a decoder from a Hugging Face directory, and back.
 *
 * The directory holds config.json and model.safetensors, or its sharded form
 * with index. Served: LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM
 * with full attention and unquantized weights; rope types default, linear,
 * dynamic, llama3 and yarn, in "rope_scaling" or "rope_parameters". What a
 * file asks for beyond that is refused by name, never passed over. */
#ifndef TRAIN_HF_H
#define TRAIN_HF_H

#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum train_hf_arch {
    TRAIN_HF_LLAMA = 0,
    TRAIN_HF_QWEN2 = 1, /* bias on queries, keys and values */
    TRAIN_HF_QWEN3 = 2, /* norm of queries and keys, head_dim of its own */
} train_hf_arch_t;

typedef struct train_hf_model {
    size_t size;                    /* sizeof (train_hf_model_t), or that of
                                       an older release */
    train_hf_arch_t arch;           /* written, and all below */
    int positions;                  /* max_position_embeddings */
    train_decoder_config_t decoder; /* dtype TRAIN_F32: change it as wanted */
} train_hf_model_t;

/* train_hf_describe - read DIR/config.json.
 *   dir         the directory
 *   ret_model   size set by the caller; written on success alone
 * TRAIN_EINVAL, TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names the file and
 * the key that is wrong; TRAIN_ENOTSUP the key that asks for more than is
 * served, and what would work; or the model has what the caller's older, smaller
 * struct has no field for. */
train_status_t train_hf_describe (const char *dir, train_hf_model_t *ret_model,
                                  train_error_t *err);

/* train_hf_load - the weights of DIR's model.safetensors, or of the files that
 * its index names, into [decoder].
 * F32, BF16, F16 and F64 files become the decoder's type; what is wider is
 * rounded. All is checked before a weight is written: TRAIN_EFORMAT names
 * tensor and file, what was expected and what is there, when one is missing,
 * none of the model's, or of another shape; TRAIN_ENOTSUP when of another type.
 * Adapters stay as they are: a model's files have none.
 * Passed over: tables "...rotary_emb.inv_freq" of old files, and the head of a
 * tied model where it is the embedding's copy. */
train_status_t train_hf_load (const char *dir, train_decoder_t *decoder,
                              train_error_t *err);

/* train_hf_save - a directory that Hugging Face's tools load.
 *   from       a directory whose config.json describes [decoder] (else
 *              TRAIN_EINVAL names the field); it is kept but for the names of
 *              the weights' type, and so are the tokenizer's files beside it
 *   dir        made if needed; may be [from]
 *   dtype      of the files: TRAIN_F32, F64, BF16 or F16, rounded to nearest;
 *              other than the decoder's it takes that much memory meanwhile
 *   max_bytes  of a file, see train_safetensors_write_sharded; 0 = 5e9
 * Weights that have adapters are written with what those add. They are replaced
 * as train_safetensors_write_sharded says, config.json
 * after them. */
train_status_t train_hf_save (const char *from, const char *dir,
                              train_decoder_t *decoder, train_dtype_t dtype,
                              size_t max_bytes, train_error_t *err);

/* Adapters as PEFT (huggingface/peft) keeps them, in DIR: adapter_config.json and
 * adapter_model.safetensors.
 *
 * train_hf_lora_describe - rank, alpha and targets, for a configuration.
 *   ret_lora   written on success
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names file and line or key;
 * TRAIN_ENOTSUP the key that asks for more (DoRA, other ranks for some modules,
 * a bias, ...). */
train_status_t train_hf_lora_describe (const char *dir, train_lora_t *ret_lora,
                                       train_error_t *err);

/* train_hf_lora_load - the adapters of [decoder], which has their rank, alpha and
 * targets (else TRAIN_EINVAL), of any type, rounded to the decoder's.
 * TRAIN_EFORMAT names the tensor that is missing or of another shape; nothing
 * was written then. Other errors as of train_hf_lora_describe; TRAIN_ESTATE: the
 * decoder has no arena. */
train_status_t train_hf_lora_load (const char *dir, train_decoder_t *decoder,
                                   train_error_t *err);

/* train_hf_lora_save - both files, for PEFT and for train_hf_lora_load.
 *   dir     made if needed
 *   base    the model that they belong to, as PEFT shall find it; NULL = unsaid
 *   dtype   of the file: TRAIN_F32, F64, BF16 or F16, rounded to nearest
 * TRAIN_EINVAL: no adapters, or another dtype; TRAIN_ESTATE; TRAIN_EIO;
 * TRAIN_ENOMEM. */
train_status_t train_hf_lora_save (const char *dir, const char *base,
                                   train_decoder_t *decoder,
                                   train_dtype_t dtype, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
