/* SPDX-License-Identifier: Apache-2.0
 * test_hf_golden.c - steps that Hugging Face's transformers computed of each
 * architecture and form of rotary embedding (tests/interop/hf_golden.py):
 * logits, loss and every gradient */
#include "kern_check.h"

#include <stdio.h>

#include <train/decoder.h>
#include <train/generate.h>
#include <train/hf.h>
#include <train/safetensors.h>

#include "own_dir.h"

/* Norm-wise, a tensor: transformers and libtrain both round in fp32. In fp64
 * libtrain's own part is gone and theirs stays, so the bound is the same. */
#define BOUND 1e-5

static train_safetensors_t *file;

static const train_st_entry_t *find (const char *kind, const char *name)
{
    const train_st_entry_t *e;
    char full[128];

    snprintf (full, sizeof (full), "%s%s", kind, name);
    e = train_safetensors_find (file, full);
    if (!e)
        fail_msg ("no tensor %s", full);
    return e;
}

/* What the file holds as a directory of Hugging Face's. */
static void make_model (void)
{
    const char *text = train_safetensors_meta (file, "config.json");
    static const train_st_meta_t pt = {"format", "pt"};
    size_t count = train_safetensors_count (file), n = 0;
    train_st_entry_t *entries = calloc (count, sizeof (*entries));
    char *path = fsio_join (dir, "model.safetensors");

    assert_non_null (text);
    assert_non_null (entries);
    assert_non_null (path);
    for (size_t i = 0; i < count; i++) {
        const train_st_entry_t *e = train_safetensors_entry (file, i);

        if (strncmp (e->name, "w.", 2) != 0)
            continue;
        entries[n] = *e;
        entries[n++].name += 2;
    }
    write_text ("config.json", text);
    assert_int_equal (train_safetensors_write (path, entries, n, &pt, 1, NULL),
                      TRAIN_OK);
    free (path);
    free (entries);
}

static train_decoder_t *load (const char *from, train_dtype_t dtype)
{
    train_hf_model_t model = {.size = sizeof (model)};
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (train_hf_describe (from, &model, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    model.decoder.dtype = dtype;
    if (train_decoder_create (&model.decoder, &m, &err) != TRAIN_OK
        || train_hf_load (from, m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return m;
}

/* Compare [x] of either type with an fp32 tensor of the file. */
static void compare (const char *name, const void *x, const train_st_entry_t *e,
                     train_dtype_t dtype)
{
    size_t n = e->bytes / sizeof (float);
    double *ours = zeros (n), *theirs = zeros (n);

    assert_int_equal (e->type, TRAIN_ST_F32);
    for (size_t i = 0; i < n; i++) {
        ours[i] = dtype == TRAIN_F32 ? (double)((const float *)x)[i]
                                     : ((const double *)x)[i];
        theirs[i] = (double)((const float *)e->data)[i];
    }
    check_close (name, ours, theirs, n, BOUND);
    free (ours);
    free (theirs);
}

static void check_step (train_dtype_t dtype)
{
    train_decoder_t *m = load (dir, dtype);
    const train_st_entry_t *tokens = find ("tokens", "");
    int B = (int)tokens->shape[0], T = (int)tokens->shape[1];
    const int32_t *targets = find ("targets", "")->data;
    const train_st_entry_t *logits = find ("logits", "");
    const char *g = train_decoder_grads (m)->data;
    double *own = zeros (logits->bytes / sizeof (float)), loss, again, theirs;
    int64_t n;

    assert_int_equal (train_decoder_forward (m, own, tokens->data, targets, B,
                                             T, &loss, &n, NULL),
                      TRAIN_OK);
    assert_int_equal (n, B * T - 2);
    compare ("logits", own, logits, dtype);
    theirs = (double)*(const float *)find ("loss", "")->data;
    check_close ("loss", &loss, &theirs, 1, BOUND);
    assert_int_equal (train_decoder_step (m, tokens->data, targets, B, T,
                                          1.0 / (double)n, &again, &n, NULL),
                      TRAIN_OK);
    check_close ("loss of the step", &again, &loss, 1, BOUND);
    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);

        compare (p->name, g + p->offset * train_dtype_size (dtype),
                 find ("g.", p->name), dtype);
    }
    train_decoder_destroy (m);
    free (own);
}

static void test_f32 (void **state)
{
    (void)state;
    check_step (TRAIN_F32);
}

static void test_f64 (void **state)
{
    (void)state;
    check_step (TRAIN_F64);
}

/* Saved in pieces, in every type: the weights are bf16's, so all but fp16 come
 * back to the bit. */
static void test_save (void **state)
{
    static const train_dtype_t types[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F64};
    train_decoder_t *a = load (dir, TRAIN_F32), *b;
    size_t bytes = train_tensor_bytes (train_decoder_weights (a));
    char *to = fsio_join (dir, "again");
    train_error_t err = {0};

    (void)state;
    for (size_t i = 0; i < LENGTH (types); i++)
        for (size_t most = 0; most <= 20000; most += 20000) {
            if (train_hf_save (dir, to, a, types[i], most, &err) != TRAIN_OK)
                fail_msg ("%s", err.text);
            b = load (to, TRAIN_F32);
            assert_memory_equal (train_decoder_weights (a)->data,
                                 train_decoder_weights (b)->data, bytes);
            train_decoder_destroy (b);
        }
    train_decoder_destroy (a);
    free (to);
}

/* The likeliest token each time, the whole text again for each: as
 * transformers continues it. */
static void test_greedy (void **state)
{
    train_decoder_t *m = load (dir, TRAIN_F32);
    const train_st_entry_t *prompt = find ("prompt", "");
    const train_st_entry_t *greedy = find ("greedy", "");
    int n = (int)prompt->shape[1], end = n + (int)greedy->shape[1];
    size_t V = (size_t)train_decoder_config (m)->vocab;
    const int32_t *want = greedy->data;
    int32_t *text = calloc ((size_t)end, sizeof (*text));
    float *logits = calloc ((size_t)end * V, sizeof (*logits));

    (void)state;
    assert_non_null (text);
    assert_non_null (logits);
    memcpy (text, prompt->data, prompt->bytes);
    for (int t = n; t < end; t++) {
        const float *last = logits + (size_t)(t - 1) * V;
        int32_t best = 0;

        assert_int_equal (train_decoder_forward (m, logits, text, NULL, 1, t,
                                                 NULL, NULL, NULL),
                          TRAIN_OK);
        for (int32_t v = 1; v < (int32_t)V; v++)
            best = last[v] > last[best] ? v : best;
        assert_int_equal (best, want[t - n]);
        text[t] = best;
    }
    free (text);
    free (logits);
    train_decoder_destroy (m);
}

/* The same with kept keys and values, twice in one batch. */
static void test_generate (void **state)
{
    train_decoder_t *m = load (dir, TRAIN_F32);
    const train_st_entry_t *prompt = find ("prompt", "");
    const train_st_entry_t *greedy = find ("greedy", "");
    const int32_t *prompts[2] = {prompt->data, prompt->data};
    int n[2] = {(int)prompt->shape[1], (int)prompt->shape[1]}, got[2];
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = (int)greedy->shape[1]};
    int32_t *ids = calloc (2, greedy->bytes);
    train_error_t err = {0};

    (void)state;
    assert_non_null (ids);
    if (train_generate (ids, got, m, prompts, n, 2, &o, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    for (int b = 0; b < 2; b++) {
        assert_int_equal (got[b], o.max_new);
        assert_memory_equal (ids + b * o.max_new, greedy->data, greedy->bytes);
    }
    free (ids);
    train_decoder_destroy (m);
}

static int open_file (void **state)
{
    const char *top = getenv ("top_srcdir");
    train_error_t err;
    char path[4096];

    snprintf (path, sizeof (path), "%s/tests/golden/hf-%s.safetensors",
              top ? top : ".", (const char *)*state);
    if (train_safetensors_open (path, &file, &err) == TRAIN_OK
        && make_dir (NULL) == 0) {
        make_model ();
        return 0;
    }
    print_error ("%s\n", err.text);
    return -1;
}

static int close_file (void **state)
{
    (void)state;
    train_safetensors_close (file);
    return remove_dir (NULL);
}

#define TEST(what, name)                                                       \
    {                                                                          \
#what " " name, test_##what, open_file, close_file, (void *)name       \
    }
#define STEPS(name) TEST (f32, name), TEST (f64, name)
#define MODEL(name)                                                            \
    STEPS (name), TEST (save, name), TEST (greedy, name), TEST (generate, name)

int main (void)
{
    const struct CMUnitTest tests[] = {
        MODEL ("llama"),  MODEL ("llama-tied"), MODEL ("qwen2"),
        MODEL ("qwen3"),  MODEL ("linear"),     STEPS ("dynamic"),
        MODEL ("llama3"), MODEL ("yarn"),       MODEL ("yarn-mscale"),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
