/* SPDX-License-Identifier: Apache-2.0
 * test_hf.c - config.json: what is read, what is refused and by which words */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>

#include <cmocka.h>

#include <train/hf.h>

#include "own_dir.h"

#define LENGTH(a) (sizeof (a) / sizeof (a[0]))

/* The sizes of SmolLM2-135M, whose file is Llama's. */
#define SIZES                                                                  \
    "\"hidden_size\": 576, \"num_hidden_layers\": 30, "                        \
    "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, "                 \
    "\"intermediate_size\": 1536, \"vocab_size\": 49152"
#define LLAMA "\"architectures\": [\"LlamaForCausalLM\"], " SIZES
#define QWEN2 "\"architectures\": [\"Qwen2ForCausalLM\"], " SIZES
#define QWEN3 "\"architectures\": [\"Qwen3ForCausalLM\"], " SIZES

static int enter (void **state)
{
    return make_dir (state) == 0 ? chdir (dir) : -1;
}

static int leave (void **state)
{
    return chdir ("/") == 0 ? remove_dir (state) : -1;
}

static void put (const char *text)
{
    write_text ("config.json", text);
}

static train_hf_model_t good (const char *text)
{
    train_hf_model_t m = {.size = sizeof (m)};
    train_error_t err = {0};

    put (text);
    if (train_hf_describe (".", &m, &err) != TRAIN_OK)
        fail_msg ("%s: %s", text, err.text);
    return m;
}

static void test_bad_arguments (void **state)
{
    train_hf_model_t m = {.size = sizeof (m)}, small = {.size = 7};
    train_error_t err = {0};

    (void)state;
    unlink ("config.json");
    assert_int_equal (train_hf_describe (NULL, &m, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_describe ("", &m, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_describe (".", NULL, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_describe (".", &small, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_describe (".", &m, &err), TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "./config.json"));
    assert_int_equal (m.decoder.dim, 0);
}

/* Programs of an older release, whose decoder ended before [rope]; and of a
 * newer one. */
static void test_other_sizes (void **state)
{
    size_t old = offsetof (train_hf_model_t, decoder)
                 + offsetof (train_decoder_config_t, rope);
    struct {
        train_hf_model_t m;
        int more;
    } t = {.m = {.size = old}, .more = 5};
    train_error_t err = {0};

    (void)state;
    memset (&t.m.decoder.rope, 0x77, sizeof (t.m.decoder.rope));
    put ("{" LLAMA "}");
    assert_int_equal (train_hf_describe (".", &t.m, &err), TRAIN_OK);
    assert_int_equal (t.m.size, old);
    assert_int_equal (t.m.decoder.size,
                      offsetof (train_decoder_config_t, rope));
    assert_int_equal (t.m.decoder.dim, 576);
    assert_int_equal (*(unsigned char *)&t.m.decoder.rope, 0x77);
    t.m.decoder.dim = 3;
    put ("{" LLAMA
         ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}}");
    assert_int_equal (train_hf_describe (".", &t.m, &err), TRAIN_ENOTSUP);
    assert_non_null (strstr (err.text, "an older release's result"));
    assert_int_equal (t.m.decoder.dim, 3);
    t.m.size = sizeof (t);
    assert_int_equal (train_hf_describe (".", &t.m, &err), TRAIN_OK);
    assert_int_equal (t.m.size, sizeof (t));
    assert_int_equal (t.more, 0);
}

static void test_sizes (void **state)
{
    train_hf_model_t m = good ("{" LLAMA "}");
    const train_decoder_config_t *c = &m.decoder;

    (void)state;
    assert_int_equal (m.arch, TRAIN_HF_LLAMA);
    assert_int_equal (c->layers, 30);
    assert_int_equal (c->dim, 576);
    assert_int_equal (c->heads, 9);
    assert_int_equal (c->kv_heads, 3);
    assert_int_equal (c->ffn, 1536);
    assert_int_equal (c->vocab, 49152);
    assert_int_equal (c->head_dim, 64);
    assert_int_equal (c->dtype, TRAIN_F32);
    /* what the classes of transformers have where nothing is said */
    assert_false (c->tie || c->qkv_bias || c->qk_norm);
    assert_true (c->rope_theta == 10000 && c->norm_eps == 1e-6);
    assert_int_equal (c->rope.kind, TRAIN_ROPE_DEFAULT);
    assert_int_equal (m.positions, 2048);

    m = good ("{" LLAMA ", \"model_type\": \"llama\", \"head_dim\": 32, "
              "\"rms_norm_eps\": 1e-05, \"rope_theta\": 500000, "
              "\"tie_word_embeddings\": true, "
              "\"max_position_embeddings\": 8192, \"rope_scaling\": null, "
              "\"quantization_config\": null, \"attention_bias\": false}");
    assert_true (m.decoder.tie && m.decoder.norm_eps == 1e-5);
    assert_true (m.decoder.rope_theta == 500000);
    assert_int_equal (m.decoder.head_dim, 32);
    assert_int_equal (m.positions, 8192);

    m = good ("{" QWEN2 ", \"use_sliding_window\": false, "
              "\"sliding_window\": 4096, \"max_window_layers\": 21}");
    assert_int_equal (m.arch, TRAIN_HF_QWEN2);
    assert_true (m.decoder.qkv_bias && !m.decoder.qk_norm);
    assert_int_equal (m.positions, 32768);
    assert_int_equal (m.decoder.head_dim, 64);

    m = good ("{" QWEN3 ", \"layer_types\": [\"full_attention\"]}");
    assert_int_equal (m.arch, TRAIN_HF_QWEN3);
    assert_true (m.decoder.qk_norm && !m.decoder.qkv_bias);
    assert_int_equal (m.decoder.head_dim, 128); /* its class's */

    m = good ("{\"model_type\": \"qwen3\", \"head_dim\": 10, " SIZES "}");
    assert_int_equal (m.arch, TRAIN_HF_QWEN3);
    assert_int_equal (m.decoder.head_dim, 10);
    good ("{" QWEN2 ", \"use_sliding_window\": true, "
          "\"sliding_window\": null}");
    good ("{" QWEN2 ", \"use_sliding_window\": true, "
          "\"max_window_layers\": 30}");
}

static void test_rope (void **state)
{
    train_rope_t r;
    train_hf_model_t m =
        good ("{" LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", "
              "\"rope_theta\": 250.5}}");

    (void)state;
    assert_true (m.decoder.rope_theta == 250.5);
    r = good ("{" LLAMA ", \"rope_scaling\": {\"type\": \"linear\", "
              "\"factor\": 4}}")
            .decoder.rope;
    assert_true (r.kind == TRAIN_ROPE_LINEAR && r.factor == 4);
    r = good ("{" LLAMA ", \"rope_scaling\": {\"rope_type\": \"dynamic\", "
              "\"type\": \"linear\", \"factor\": 2.0, "
              "\"original_max_position_embeddings\": 7}}")
            .decoder.rope;
    assert_true (r.kind == TRAIN_ROPE_DYNAMIC && r.original == 2048);
    m = good ("{" LLAMA ", \"rope_theta\": 500000.0, \"rope_scaling\": "
              "{\"rope_type\": \"llama3\", \"factor\": 32.0, "
              "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
              "\"original_max_position_embeddings\": 8192}}");
    r = m.decoder.rope;
    assert_true (r.kind == TRAIN_ROPE_LLAMA3 && r.factor == 32 && r.low == 1
                 && r.high == 4 && r.original == 8192);
    assert_true (m.decoder.rope_theta == 500000);
    r = good ("{" QWEN2 ", \"rope_scaling\": {\"type\": \"yarn\", \"factor\": "
              "4.0, \"original_max_position_embeddings\": 32768}}")
            .decoder.rope;
    assert_true (r.kind == TRAIN_ROPE_YARN && r.low == 1 && r.high == 32);
    assert_true (r.whole && fabs (r.attention - (0.1 * log (4) + 1)) < 1e-15);
    r = good ("{" QWEN2 ", \"rope_parameters\": {\"rope_type\": \"yarn\", "
              "\"attention_factor\": 1.5, \"truncate\": false, "
              "\"original_max_position_embeddings\": 8192}}")
            .decoder.rope;
    assert_true (r.factor == 4 && r.attention == 1.5 && !r.whole);
}

/* Configurations that are not read, and what is said of each. */
#define ROPE(text) "{" LLAMA ", \"rope_scaling\": {" text "}}"
static const struct {
    const char *text;
    train_status_t status;
    const char *say;
} wrong[] = {
    {"{", TRAIN_EFORMAT, "line 1: "},
    {"[]", TRAIN_EFORMAT, "not a JSON object"},
    {"{\"a\": 1, \"a\": 2}", TRAIN_EFORMAT, "duplicate"},
    {"{}", TRAIN_EFORMAT, "neither 'architectures' nor 'model_type'"},
    {"{\"architectures\": [\"MistralForCausalLM\"]}", TRAIN_ENOTSUP,
     "architecture 'MistralForCausalLM' is not served: LlamaForCausalLM, "
     "Qwen2ForCausalLM and Qwen3ForCausalLM work"},
    {"{\"model_type\": \"gemma3\"}", TRAIN_ENOTSUP, "model_type 'gemma3'"},
    {"{\"architectures\": [\"LlamaForCausalLM\", \"x\"]}", TRAIN_EFORMAT,
     "list of one name"},
    {"{\"architectures\": \"LlamaForCausalLM\"}", TRAIN_EFORMAT,
     "list of one name"},
    {"{\"model_type\": \"qwen2\", " LLAMA "}", TRAIN_EFORMAT,
     "'model_type' is 'qwen2': of LlamaForCausalLM it is 'llama'"},
    {"{\"model_type\": \"llama\"}", TRAIN_EFORMAT,
     "'num_hidden_layers' is missing"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 2.0}", TRAIN_EFORMAT,
     "'num_hidden_layers' is not a whole number"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 0}", TRAIN_EFORMAT,
     "'num_hidden_layers' is 0"},
    {"{\"model_type\": \"llama\", \"num_hidden_layers\": 9999999999}",
     TRAIN_EFORMAT, "'num_hidden_layers' is 9999999999"},
    {"{" LLAMA ", \"head_dim\": 3}", TRAIN_EFORMAT, "head_dim is 3"},
    {"{" LLAMA ", \"rms_norm_eps\": \"x\"}", TRAIN_EFORMAT,
     "'rms_norm_eps' is not a number"},
    {"{" LLAMA ", \"rms_norm_eps\": 0}", TRAIN_EFORMAT, "norm_eps is 0"},
    {"{" LLAMA ", \"tie_word_embeddings\": 1}", TRAIN_EFORMAT,
     "'tie_word_embeddings' is not true or false"},
    {"{" LLAMA ", \"attention_bias\": true}", TRAIN_ENOTSUP,
     "'attention_bias' is true: only false works"},
    {"{" LLAMA ", \"mlp_bias\": true}", TRAIN_ENOTSUP, "'mlp_bias'"},
    {"{" LLAMA ", \"attention_dropout\": 0.1}", TRAIN_ENOTSUP,
     "'attention_dropout' is 0.1: only 0 works"},
    {"{" LLAMA ", \"hidden_act\": \"gelu\"}", TRAIN_ENOTSUP,
     "'hidden_act' is gelu: only silu works"},
    {"{" LLAMA ", \"quantization_config\": {}}", TRAIN_ENOTSUP,
     "'quantization_config'"},
    {"{" QWEN2 ", \"use_sliding_window\": true}", TRAIN_ENOTSUP,
     "'use_sliding_window' is true and 'max_window_layers' 28 of 30"},
    {"{" QWEN3 ", \"layer_types\": [\"full_attention\", "
     "\"sliding_attention\"]}",
     TRAIN_ENOTSUP, "'layer_types' has 'sliding_attention' for layer 1"},
    {"{" LLAMA ", \"rope_theta\": -1}", TRAIN_EFORMAT, "rope_theta is -1"},
    {"{" LLAMA ", \"rope_scaling\": 2}", TRAIN_EFORMAT,
     "'rope_scaling' is not an object"},
    {ROPE ("\"rope_type\": \"longrope\""), TRAIN_ENOTSUP,
     "rope type 'longrope' (rope_scaling) is not served: default, linear, "
     "dynamic, llama3 and yarn work"},
    {ROPE ("\"rope_type\": 1"), TRAIN_EFORMAT, "'rope_type'"},
    {ROPE ("\"type\": \"linear\""), TRAIN_EFORMAT, "'factor' is missing"},
    {ROPE ("\"type\": \"linear\", \"factor\": 0"), TRAIN_EFORMAT,
     "rope factor is 0"},
    {ROPE ("\"type\": \"llama3\", \"factor\": 2"), TRAIN_EFORMAT,
     "'low_freq_factor' is missing"},
    {ROPE ("\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 4, "
           "\"high_freq_factor\": 4"),
     TRAIN_EFORMAT, "rope high is 4"},
    {ROPE ("\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": -1"),
     TRAIN_EFORMAT, "rope attention is -1"},
    {ROPE ("\"full_attention\": {\"rope_type\": \"default\"}"), TRAIN_ENOTSUP,
     "for 'full_attention' alone"},
    {ROPE ("\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5"),
     TRAIN_ENOTSUP, "'partial_rotary_factor' is 0.5"},
};

static void test_refused (void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH (wrong); i++) {
        train_hf_model_t m = {.size = sizeof (m)};
        train_error_t err = {0};
        train_status_t status;

        put (wrong[i].text);
        status = train_hf_describe (".", &m, &err);
        if (status != wrong[i].status || !strstr (err.text, wrong[i].say)
            || strncmp (err.text, "./config.json: ", 15) != 0)
            fail_msg ("%s: %s '%s'", wrong[i].text, train_status_name (status),
                      err.text);
        assert_int_equal (m.decoder.layers, 0); /* untouched */
        assert_int_equal (train_hf_describe (".", &m, NULL), wrong[i].status);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_other_sizes),
        cmocka_unit_test (test_sizes),
        cmocka_unit_test (test_rope),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, enter, leave);
}
