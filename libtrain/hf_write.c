/* SPDX-License-Identifier: Apache-2.0
 * hf_write.c - the config.json that describes a decoder */
#include "config.h"

#include "err.h"
#include "hf_impl.h"

static json_t *rope_json (const train_rope_t *r)
{
    switch (r->kind) {
    case TRAIN_ROPE_DEFAULT:
        return json_null ();
    case TRAIN_ROPE_LINEAR:
        return json_pack ("{s:s, s:f}", "rope_type", "linear", "factor",
                          r->factor);
    case TRAIN_ROPE_DYNAMIC:
        return json_pack ("{s:s, s:f}", "rope_type", "dynamic", "factor",
                          r->factor);
    case TRAIN_ROPE_LLAMA3:
        return json_pack (
            "{s:s, s:f, s:f, s:f, s:f}", "rope_type", "llama3", "factor",
            r->factor, "original_max_position_embeddings", r->original,
            "low_freq_factor", r->low, "high_freq_factor", r->high);
    case TRAIN_ROPE_YARN:
        return json_pack (
            "{s:s, s:f, s:f, s:f, s:f, s:f, s:b}", "rope_type", "yarn",
            "factor", r->factor, "original_max_position_embeddings",
            r->original, "beta_slow", r->low, "beta_fast", r->high,
            "attention_factor", r->attention, "truncate", (int)r->whole);
    }
    return NULL;
}

/* Which class of transformers computes this; NULL: none does. */
static json_t *arch_json (const train_decoder_config_t *c)
{
    if (c->qkv_bias && c->qk_norm)
        return NULL;
    return json_pack ("{s:[s], s:s}", "architectures",
                      c->qkv_bias  ? "Qwen2ForCausalLM"
                      : c->qk_norm ? "Qwen3ForCausalLM"
                                   : "LlamaForCausalLM",
                      "model_type",
                      c->qkv_bias  ? "qwen2"
                      : c->qk_norm ? "qwen3"
                                   : "llama");
}

static const char *type_text (train_dtype_t dtype)
{
    return dtype == TRAIN_F64    ? "float64"
           : dtype == TRAIN_BF16 ? "bfloat16"
           : dtype == TRAIN_F16  ? "float16"
                                 : "float32";
}

train_status_t hf_config_text (const train_decoder_config_t *c,
                               int64_t positions, char **ret_text,
                               train_error_t *err)
{
    json_t *root = arch_json (c), *more;

    *ret_text = NULL;
    if (!root)
        return TRAIN_OK;
    if (c->rope.kind == TRAIN_ROPE_DYNAMIC)
        positions = (int64_t)c->rope.original;
    more = json_pack (
        "{s:s, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:f, s:f, s:b, "
        "s:n, s:n, s:s, s:o}",
        "hidden_act", "silu", "mlp_bias", 0, "hidden_size", c->dim,
        "num_hidden_layers", c->layers, "num_attention_heads", c->heads,
        "num_key_value_heads", c->kv_heads, "head_dim", c->head_dim,
        "intermediate_size", c->ffn, "vocab_size", c->vocab,
        "max_position_embeddings", (json_int_t)positions, "rope_theta",
        c->rope_theta, "rms_norm_eps", c->norm_eps, "tie_word_embeddings",
        (int)c->tie, "bos_token_id", "eos_token_id", "torch_dtype",
        type_text (c->dtype), "rope_scaling", rope_json (&c->rope));
    if (more && json_object_update (root, more) == 0)
        *ret_text = json_dumps (root, JSON_INDENT (2));
    json_decref (more);
    json_decref (root);
    return *ret_text ? TRAIN_OK
                     : err_set (err, TRAIN_ENOMEM, "no memory for config.json");
}
