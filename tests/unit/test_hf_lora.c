/* SPDX-License-Identifier: Apache-2.0
 * test_hf_lora.c - adapters to PEFT's files and back, what is refused of them,
 * and the merged model */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <train/hf.h>
#include <train/safetensors.h>

#include "plan/fsio.h"

static const train_decoder_config_t small = {
    .size = sizeof (small),
    .layers = 2,
    .dim = 8,
    .heads = 2,
    .kv_heads = 1,
    .ffn = 6,
    .vocab = 16,
    .tie = true,
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .dtype = TRAIN_F32,
};

static const train_lora_t some = {4, 1 | 1 << 2 | 1 << 6, 12}; /* q, v, down */

static char dir[] = "/tmp/test_hf_lora.XXXXXX";

static train_decoder_t *make (const train_lora_t *lora, uint64_t seed)
{
    train_decoder_config_t config = small;
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (lora)
        config.lora = *lora;
    if (train_decoder_create (&config, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    train_decoder_init (m, seed);
    for (size_t i = 0; lora && i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);
        float *w = (float *)train_decoder_weights (m)->data + p->offset;

        for (size_t k = 0; k < p->count; k++)
            if (strstr (p->name, ".lora_B."))
                w[k] = (float)sin ((double)(k + i));
            else if (!strstr (p->name, ".lora_A."))
                w[k] *= 10;
    }
    return m;
}

/* 0: all weights of the two are equal; 1: adapters alone are; -1: neither. */
static int differ (train_decoder_t *a, train_decoder_t *b)
{
    const float *x = train_decoder_weights (a)->data;
    const float *y = train_decoder_weights (b)->data;
    int ret = 0;

    for (size_t i = 0; i < train_decoder_n_params (a); i++) {
        const train_param_t *p = train_decoder_param (a, i);

        if (memcmp (x + p->offset, y + p->offset, p->count * sizeof (*x)) == 0)
            continue;
        if (strstr (p->name, ".lora_"))
            return -1;
        ret = 1;
    }
    return ret;
}

static void test_round_trip (void **state)
{
    train_decoder_t *a = make (&some, 3), *b = make (&some, 4);
    train_safetensors_t *file = NULL;
    const train_st_entry_t *e;
    train_error_t err = {0};
    train_lora_t found;

    (void)state;
    assert_int_equal (train_hf_lora_save (dir, "some/base", a, TRAIN_F32, &err),
                      TRAIN_OK);
    assert_int_equal (train_hf_lora_describe (dir, &found, &err), TRAIN_OK);
    assert_true (found.rank == 4 && found.targets == some.targets
                 && fabs (found.alpha - 12) < 1e-12);
    assert_int_equal (differ (a, b), -1);
    assert_int_equal (train_hf_lora_load (dir, b, &err), TRAIN_OK);
    assert_int_equal (differ (a, b), 1);
    assert_int_equal (
        train_safetensors_open ("adapter_model.safetensors", &file, &err), 0);
    assert_int_equal (train_safetensors_count (file), 2 * 2 * 3);
    e = train_safetensors_find (file, "base_model.model.model.layers.1.self_"
                                      "attn.v_proj.lora_B.weight");
    assert_non_null (e);
    assert_true (e->ndim == 2 && e->shape[0] == 4 && e->shape[1] == 4);
    e = train_safetensors_find (
        file, "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight");
    assert_true (e && e->shape[0] == 4 && e->shape[1] == 6);
    train_safetensors_close (file);
    /* a half rounds each once */
    assert_int_equal (train_hf_lora_save (dir, NULL, a, TRAIN_BF16, &err), 0);
    assert_int_equal (train_hf_lora_load (dir, b, &err), TRAIN_OK);
    for (size_t i = 0; i < train_decoder_numel (a); i++) {
        float x = ((float *)train_decoder_weights (a)->data)[i];
        float y = ((float *)train_decoder_weights (b)->data)[i];

        assert_true (fabsf (x - y) <= 0.00391f * fabsf (x) || differ (a, b));
    }
    train_decoder_destroy (a);
    train_decoder_destroy (b);
}

static void put (const char *text)
{
    assert_int_equal (
        fsio_write ("adapter_config.json", text, strlen (text), 0600, NULL), 0);
}

static void test_refused (void **state)
{
    static const struct {
        const char *text, *says;
        train_status_t status;
    } bad[] = {
        {"{", "line 1", TRAIN_EFORMAT},
        {"{\"peft_type\":\"IA3\"}", "IA3", TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\",\"r\":0,\"target_modules\":[\"q_proj\"]}",
         "r", TRAIN_EFORMAT},
        {"{\"peft_type\":\"LORA\",\"use_dora\":true}", "use_dora",
         TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\",\"rank_pattern\":{\"q\":3}}", "rank_pattern",
         TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\",\"bias\":\"all\"}", "bias", TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\"}", "target_modules", TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\",\"target_modules\":[\"lm_head\"]}", "lm_head",
         TRAIN_ENOTSUP},
        {"{\"peft_type\":\"LORA\",\"target_modules\":\".*q\"}",
         "target_modules", TRAIN_ENOTSUP},
    };
    train_decoder_t *m = make (&some, 3), *none = make (NULL, 3);
    train_lora_t other = some, found;
    train_decoder_t *n;
    train_error_t err = {0};

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        put (bad[i].text);
        assert_int_equal (train_hf_lora_describe (dir, &found, &err),
                          bad[i].status);
        assert_non_null (strstr (err.text, bad[i].says));
        assert_non_null (strstr (err.text, "adapter_config.json"));
    }
    put ("{\"peft_type\":\"LORA\",\"target_modules\":\"all-linear\"}");
    assert_int_equal (train_hf_lora_describe (dir, &found, &err), TRAIN_OK);
    assert_true (found.rank == 8 && found.targets == 0x7f);
    assert_int_equal (train_hf_lora_load (dir, none, &err), TRAIN_EINVAL);
    assert_int_equal (train_hf_lora_save (dir, NULL, none, TRAIN_F32, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_hf_lora_load (dir, m, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "rank 8"));
    other.targets = 1;
    n = make (&other, 1);
    assert_int_equal (train_hf_lora_save (dir, NULL, n, TRAIN_F32, &err), 0);
    put ("{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":12,"
         "\"target_modules\":[\"v_proj\",\"q_proj\",\"down_proj\"]}");
    assert_int_equal (train_hf_lora_load (dir, m, &err), TRAIN_EFORMAT);
    assert_non_null (strstr (err.text, "adapter_model.safetensors: tensor"));
    assert_int_equal (unlink ("adapter_config.json"), 0);
    assert_int_equal (train_hf_lora_describe (dir, &found, &err),
                      TRAIN_ENOTFOUND);
    train_decoder_destroy (m);
    train_decoder_destroy (n);
    train_decoder_destroy (none);
}

static double loss_of (train_decoder_t *m)
{
    const int32_t tokens[6] = {1, 5, 3, 9, 15, 0};
    const int32_t targets[6] = {5, 3, 9, 15, 0, 2};
    double loss;
    int64_t n;

    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, 1, 6, &loss, &n, NULL),
        TRAIN_OK);
    return loss;
}

static const char config_json[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
    "\"hidden_act\":\"silu\",\"hidden_size\":8,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"intermediate_size\":6,\"vocab_size\":16,"
    "\"max_position_embeddings\":64,\"rope_theta\":10000.0,"
    "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":true}";

/* What train_hf_save writes is a model without adapters of the same loss; and
 * a model's files come into one that has some. */
static void test_merged (void **state)
{
    train_decoder_t *m = make (&some, 3), *plain = make (NULL, 9);
    train_error_t err = {0};
    double loss = loss_of (m);

    (void)state;
    assert_int_equal (fsio_write ("config.json", config_json,
                                  strlen (config_json), 0600, NULL),
                      0);
    if (train_hf_save (dir, dir, m, TRAIN_F32, 0, &err) != TRAIN_OK
        || train_hf_load (dir, plain, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_true (fabs (loss_of (plain) - loss) < 1e-5 * loss);
    assert_int_equal (train_hf_load (dir, m, &err), TRAIN_OK);
    assert_true (fabs (loss_of (m) - loss) > 1e-3 * loss); /* twice there */
    train_decoder_destroy (m);
    train_decoder_destroy (plain);
}

static int set_up (void **state)
{
    (void)state;
    return mkdtemp (dir) && chdir (dir) == 0 ? 0 : -1;
}

static int tear_down (void **state)
{
    static const char *const files[] = {"adapter_config.json",
                                        "adapter_model.safetensors",
                                        "config.json", "model.safetensors"};

    (void)state;
    for (size_t i = 0; i < sizeof (files) / sizeof (*files); i++)
        unlink (files[i]);
    return chdir ("/") == 0 && rmdir (dir) == 0 ? 0 : -1;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_round_trip),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_merged),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
