/* SPDX-License-Identifier: Apache-2.0
 * hf_impl.h - what the files that read a Hugging Face directory share. Inside
 * libtrain only. */
#ifndef TRAIN_HF_IMPL_H
#define TRAIN_HF_IMPL_H

#include <jansson.h>

#include <train/hf.h>
#include <train/safetensors.h>

/* hf_parse - describe a model by the text of a config.json.
 *   text, n     JSON
 *   ret_model   written on success; size as well
 * Texts name the key, not the file. */
train_status_t hf_parse (const char *text, size_t n,
                         train_hf_model_t *ret_model, train_error_t *err);

/* hf_config_text - the config.json of a model, malloc'ed; NULL where no class of
 * Hugging Face's transformers computes it (biases and norms in one).
 *   positions   max_position_embeddings */
train_status_t hf_config_text (const train_decoder_config_t *config,
                               int64_t positions, char **ret_text,
                               train_error_t *err);

/* hf_open - the files of [dir], held against the parameters of [decoder], as
 * train_hf_load does it. Adapters among them are TRAIN_EFORMAT.
 *   ret   end with train_safetensors_close
 * hf_unit - the unit's part of [files], which are of hf_open, its adapters as
 * decoder_init_unit draws them.
 *   weights   of the unit, of the decoder's dtype, in host memory, written */
train_status_t hf_open (const char *dir, const train_decoder_t *decoder,
                        train_safetensors_t **ret, train_error_t *err);
void hf_unit (const train_decoder_t *decoder, const train_safetensors_t *files,
              size_t unit, uint64_t seed, void *weights);

/* hf_get - member [key] of [root]; NULL where it is missing or null.
 * hf_int - a whole number in least..INT_MAX; [fallback] where it is missing,
 *   TRAIN_EFORMAT where that is below [least] (the key is needed).
 * hf_real - a number; *ret is left where it is missing.
 * hf_bool - true or false; *ret is left where it is missing. */
json_t *hf_get (const json_t *root, const char *key);
train_status_t hf_int (const json_t *root, const char *key, int least,
                       int fallback, int *ret, train_error_t *err);
train_status_t hf_real (const json_t *root, const char *key, double *ret,
                        train_error_t *err);
train_status_t hf_bool (const json_t *root, const char *key, bool *ret,
                        train_error_t *err);

/* hf_rope - rope_theta and rope of model->decoder, whose other fields and
 * model->positions are written. */
train_status_t hf_rope (const json_t *root, train_hf_model_t *model,
                        train_error_t *err);

#endif
