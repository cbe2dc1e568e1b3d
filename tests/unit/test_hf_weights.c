/* SPDX-License-Identifier: Apache-2.0
 * test_hf_weights.c - weights of a Hugging Face directory: types, what is
 * missing, surplus or of another shape, and what is written back */
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
#include <train/safetensors.h>

#include "own_dir.h"

#define CONFIG(tie)                                                            \
    "{\"model_type\": \"llama\", \"hidden_size\": 4, "                         \
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, "                   \
    "\"num_key_value_heads\": 1, \"intermediate_size\": 3, "                   \
    "\"vocab_size\": 5, \"torch_dtype\": \"bfloat16\", "                       \
    "\"tie_word_embeddings\": " tie "}\n"
#define N_MOST 16

/* The tensors of such a model, which a test changes before it writes them. */
static train_st_entry_t entries[N_MOST];
static size_t n_entries;
static float numbers[64];
static train_decoder_t *decoder;

static void make_decoder (const char *config)
{
    train_hf_model_t model = {.size = sizeof (model)};

    write_text ("config.json", config);
    train_decoder_destroy (decoder);
    decoder = NULL;
    assert_int_equal (train_hf_describe (".", &model, NULL), TRAIN_OK);
    assert_int_equal (train_decoder_create (&model.decoder, &decoder, NULL),
                      TRAIN_OK);
    n_entries = train_decoder_n_params (decoder);
    for (size_t i = 0; i < n_entries; i++) {
        const train_param_t *p = train_decoder_param (decoder, i);

        entries[i] = (train_st_entry_t){.name = p->name,
                                        .dtype = TRAIN_F32,
                                        .ndim = p->ndim,
                                        .shape = {p->shape[0], p->shape[1]},
                                        .data = numbers + i};
    }
}

static train_st_entry_t *entry (const char *name)
{
    for (size_t i = 0; i < n_entries; i++)
        if (strcmp (entries[i].name, name) == 0)
            return &entries[i];
    fail_msg ("no %s", name);
    return NULL;
}

static void write_one (void)
{
    train_error_t err = {0};

    unlink ("model.safetensors.index.json");
    if (train_safetensors_write ("model.safetensors", entries, n_entries, NULL,
                                 0, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
}

/* A load that fails with these words and leaves the weights as they were. */
static void refuse (train_status_t status, const char *say)
{
    float *w = train_decoder_weights (decoder)->data;
    size_t n = train_decoder_numel (decoder);
    train_error_t err = {0};

    for (size_t i = 0; i < n; i++)
        w[i] = 7;
    if (train_hf_load (".", decoder, &err) != status
        || strcmp (err.text, say) != 0)
        fail_msg ("'%s', expected '%s'", err.text, say);
    for (size_t i = 0; i < n; i++)
        assert_true (w[i] == 7);
    assert_int_equal (train_hf_load (".", decoder, NULL), status);
}

static int enter (void **state)
{
    for (size_t i = 0; i < 64; i++)
        numbers[i] = (float)(0.37 * (double)i - 3);
    if (make_dir (state) < 0 || chdir (dir) < 0)
        return -1;
    make_decoder (CONFIG ("false"));
    return 0;
}

static int leave (void **state)
{
    train_decoder_destroy (decoder);
    decoder = NULL;
    return chdir ("/") == 0 ? remove_dir (state) : -1;
}

static void test_bad_arguments (void **state)
{
    (void)state;
    assert_int_equal (train_hf_load (NULL, decoder, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_load ("", decoder, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_load (".", NULL, NULL), TRAIN_EINVAL);
    assert_int_equal (train_hf_load (".", decoder, NULL), TRAIN_ENOTFOUND);
#define SAVE(from, to, m, type) train_hf_save (from, to, m, type, 0, NULL)
    assert_int_equal (SAVE (NULL, "x", decoder, TRAIN_F32), TRAIN_EINVAL);
    assert_int_equal (SAVE (".", NULL, decoder, TRAIN_F32), TRAIN_EINVAL);
    assert_int_equal (SAVE (".", "x", NULL, TRAIN_F32), TRAIN_EINVAL);
    assert_int_equal (SAVE (".", "x", decoder, TRAIN_I64), TRAIN_EINVAL);
    assert_int_equal (SAVE ("none", "x", decoder, TRAIN_F32), TRAIN_ENOTFOUND);
#undef SAVE
    assert_int_equal (access ("x", F_OK), -1);
}

static void test_refused (void **state)
{
    train_st_entry_t *e;

    (void)state;
    entries[0] = entries[--n_entries]; /* no embedding */
    write_one ();
    refuse (TRAIN_EFORMAT,
            "./model.safetensors: tensor 'model.embed_tokens.weight' is "
            "missing: expected [5, 4], found none of that name");
    make_decoder (CONFIG ("false"));
    e = entry ("model.layers.0.mlp.down_proj.weight");
    e->shape[0] = 3;
    e->shape[1] = 4;
    write_one ();
    refuse (TRAIN_EFORMAT,
            "./model.safetensors: tensor 'model.layers.0.mlp.down_proj.weight' "
            "has the shape [3, 4]: expected [4, 3]");
    e->ndim = 1;
    e->shape[0] = 12;
    write_one ();
    refuse (TRAIN_EFORMAT,
            "./model.safetensors: tensor 'model.layers.0.mlp.down_proj.weight' "
            "has the shape [12]: expected [4, 3]");
    make_decoder (CONFIG ("false"));
    entry ("model.norm.weight")->dtype = TRAIN_I32;
    write_one ();
    refuse (TRAIN_ENOTSUP,
            "./model.safetensors: tensor 'model.norm.weight' is I32: expected "
            "F32, BF16, F16 or F64");
    make_decoder (CONFIG ("false"));
    entries[n_entries] = *entry ("model.norm.weight");
    entries[n_entries++].name = "model.layers.0.self_attn.q_proj.bias";
    write_one ();
    refuse (TRAIN_EFORMAT,
            "./model.safetensors: tensor "
            "'model.layers.0.self_attn.q_proj.bias' [4] is not one of this "
            "model's: expected none of that name");
}

/* In several files, the message names the one. */
static void test_refused_sharded (void **state)
{
    train_error_t err = {0};

    (void)state;
    entry ("model.norm.weight")->shape[0] = 3;
    unlink ("model.safetensors");
    assert_int_equal (train_safetensors_write_sharded (
                          ".", NULL, entries, n_entries, NULL, 0, 100, NULL),
                      TRAIN_OK);
    assert_int_equal (access ("model.safetensors", F_OK), -1);
    assert_int_equal (train_hf_load (".", decoder, &err), TRAIN_EFORMAT);
    assert_true (strncmp (err.text, "./model-000", 11) == 0);
    assert_non_null (strstr (err.text, "'model.norm.weight' has the shape [3]: "
                                       "expected [4]"));
    make_decoder (CONFIG ("false"));
    n_entries--; /* the head */
    assert_int_equal (train_safetensors_write_sharded (
                          ".", NULL, entries, n_entries, NULL, 0, 100, NULL),
                      TRAIN_OK);
    refuse (TRAIN_EFORMAT,
            "./model.safetensors.index.json: tensor 'lm_head.weight' is "
            "missing: expected [5, 4], found none of that name");
}

/* A tied head may be written out, but not as another; tables of old files. */
static void test_tied (void **state)
{
    train_st_entry_t *head;

    (void)state;
    make_decoder (CONFIG ("true"));
    head = &entries[n_entries];
    *head = *entry ("model.embed_tokens.weight");
    head->name = "lm_head.weight";
    entries[n_entries + 1] = *entry ("model.norm.weight");
    entries[n_entries + 1].name =
        "model.layers.0.self_attn.rotary_emb.inv_freq";
    n_entries += 2;
    write_one ();
    assert_int_equal (train_hf_load (".", decoder, NULL), TRAIN_OK);
    head->data = numbers + 1;
    write_one ();
    refuse (TRAIN_EFORMAT,
            "./model.safetensors: tensor 'lm_head.weight' [5, 4] is not one of "
            "this model's: expected the embedding's copy, as config.json ties "
            "it");
}

/* Each type of files, to both types of a decoder. */
static void test_types (void **state)
{
    /* 1, -2.5, the largest of fp16, and its smallest */
    static const uint16_t f16[4] = {0x3c00, 0xc100, 0x7bff, 0x0001};
    static const uint16_t bf16[4] = {0x3f80, 0xc020, 0x7f7f, 0x0001};
    static const double f64[4] = {1, -2.5, 0.1, 1e300};
    static const struct {
        train_dtype_t dtype;
        const void *data;
        double want[4];
    } v[] = {
        {TRAIN_F16, f16, {1, -2.5, 65504, 0x1p-24}},
        {TRAIN_BF16, bf16, {1, -2.5, 0x1.fep127, 0x1p-133}},
        {TRAIN_F64, f64, {1, -2.5, 0.1, 1e300}},
    };
    train_hf_model_t model = {.size = sizeof (model)};
    train_decoder_t *wide = NULL;

    (void)state;
    assert_int_equal (train_hf_describe (".", &model, NULL), TRAIN_OK);
    model.decoder.dtype = TRAIN_F64;
    assert_int_equal (train_decoder_create (&model.decoder, &wide, NULL), 0);
    for (size_t i = 0; i < 3; i++) {
        train_st_entry_t *e = entry ("model.norm.weight");
        size_t at =
            train_decoder_param (decoder, (size_t)(e - entries))->offset;

        e->dtype = v[i].dtype;
        e->data = v[i].data;
        write_one ();
        assert_int_equal (train_hf_load (".", decoder, NULL), TRAIN_OK);
        assert_int_equal (train_hf_load (".", wide, NULL), TRAIN_OK);
        for (size_t k = 0; k < 4; k++) {
            float x = ((float *)train_decoder_weights (decoder)->data)[at + k];
            double y = ((double *)train_decoder_weights (wide)->data)[at + k];

            assert_true (y == v[i].want[k]);
            assert_true (x == (float)v[i].want[k]);
        }
    }
    train_decoder_destroy (wide);
}

static void test_save (void **state)
{
    train_error_t err = {0};
    train_hf_model_t model = {.size = sizeof (model)};
    train_decoder_t *other = NULL;
    train_safetensors_t *f = NULL;
    const char *text;
    char *kept = NULL;

    (void)state;
    write_text ("tokenizer.json", "{\"version\": \"1.0\"}");
    write_one ();
    assert_int_equal (train_hf_load (".", decoder, NULL), TRAIN_OK);
    if (train_hf_save (".", "to/here", decoder, TRAIN_BF16, 0, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    expect_file ("to/here", "config.json", CONFIG ("false")); /* to the byte */
    expect_file ("to/here", "tokenizer.json", "{\"version\": \"1.0\"}");
    expect_file ("to/here", "merges.txt", NULL);
    assert_int_equal (train_safetensors_open_set ("to/here", &f, NULL), 0);
    assert_int_equal (train_safetensors_count (f), n_entries);
    assert_int_equal (train_safetensors_entry (f, 0)->type, TRAIN_ST_BF16);
    text = train_safetensors_meta (f, "format");
    assert_true (text && strcmp (text, "pt") == 0);
    train_safetensors_close (f);
    /* in another type the text says so; files over the limit are split */
    assert_int_equal (
        train_hf_save (".", "to/here", decoder, TRAIN_F16, 60, NULL), TRAIN_OK);
    assert_int_equal (access ("to/here/model.safetensors", F_OK), -1);
    assert_int_equal (access ("to/here/model.safetensors.index.json", F_OK), 0);
    assert_int_equal (
        fsio_read ("to/here/config.json", 1 << 20, &kept, NULL, NULL), 0);
    assert_non_null (strstr (kept, "\"torch_dtype\": \"float16\""));
    free (kept);
    assert_int_equal (train_hf_describe ("to/here", &model, NULL), TRAIN_OK);
    /* a description of another model is no description */
    model.decoder.rope_theta = 5000;
    assert_int_equal (train_decoder_create (&model.decoder, &other, NULL), 0);
    assert_int_equal (train_hf_save (".", "no", other, TRAIN_F32, 0, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "config.json's rope_theta is 10000, the "
                                       "decoder's 5000"));
    assert_int_equal (access ("no", F_OK), -1);
    train_decoder_destroy (other);
}

#define TEST(f) cmocka_unit_test_setup_teardown (f, enter, leave)

int main (void)
{
    const struct CMUnitTest tests[] = {
        TEST (test_bad_arguments),   TEST (test_refused),
        TEST (test_refused_sharded), TEST (test_tied),
        TEST (test_types),           TEST (test_save),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
