/* SPDX-License-Identifier: Apache-2.0
 * ckpt_run.h - a small decoder with its optimizer, saved and loaded in a folder
 * of its own; for one test program each, static */
#ifndef CKPT_RUN_H
#define CKPT_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <train/ckpt.h>
#include <train/safetensors.h>

#include "plan/fsio.h"

static char dir[] = "/tmp/test_ckpt.XXXXXX";

static const train_decoder_config_t small = {
    .size = sizeof (train_decoder_config_t),
    .layers = 1,
    .dim = 8,
    .heads = 2,
    .kv_heads = 1,
    .ffn = 12,
    .vocab = 16,
    .tie = false,
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .dtype = TRAIN_F32,
};

static const train_adamw_options_t adamw_options = {
    .size = sizeof (train_adamw_options_t),
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
};

struct run {
    train_decoder_t *decoder;
    train_adamw_t *adamw;
};

/* Every element of weights, m and v gets a value of its own from [mark]; halves
 * stay. */
static inline void fill (struct run *r, double mark)
{
    DLTensor *t[3] = {train_decoder_weights (r->decoder),
                      train_adamw_m (r->adamw), train_adamw_v (r->adamw)};

    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < t[k]->shape[0]; i++) {
            double x = mark + k * 1000 + (double)i * 0.125;

            if (t[k]->dtype.bits == 64)
                ((double *)t[k]->data)[i] = x;
            else if (t[k]->dtype.bits == 32)
                ((float *)t[k]->data)[i] = (float)x;
        }
}

static inline struct run make (const train_decoder_config_t *config,
                               double mark)
{
    struct run r = {0};
    size_t n;
    train_param_t *p;

    assert_int_equal (train_decoder_create (config, &r.decoder, NULL), 0);
    n = train_decoder_n_params (r.decoder);
    assert_non_null (p = calloc (n, sizeof (*p)));
    for (size_t i = 0; i < n; i++)
        p[i] = *train_decoder_param (r.decoder, i);
    assert_int_equal (train_adamw_create (&adamw_options, config->dtype,
                                          train_decoder_numel (r.decoder), p, n,
                                          &r.adamw, NULL),
                      0);
    free (p);
    fill (&r, mark);
    return r;
}

static inline void drop (struct run *r)
{
    train_adamw_destroy (r->adamw);
    train_decoder_destroy (r->decoder);
}

static inline bool same_bits (DLTensor *a, DLTensor *b)
{
    return train_tensor_bytes (a) == train_tensor_bytes (b)
           && memcmp (a->data, b->data, train_tensor_bytes (a)) == 0;
}

static inline bool same (struct run *a, struct run *b)
{
    return same_bits (train_decoder_weights (a->decoder),
                      train_decoder_weights (b->decoder))
           && same_bits (train_adamw_m (a->adamw), train_adamw_m (b->adamw))
           && same_bits (train_adamw_v (a->adamw), train_adamw_v (b->adamw));
}

static inline train_ckpt_state_t state_at (int64_t step)
{
    return (train_ckpt_state_t){
        .size = sizeof (train_ckpt_state_t),
        .step = step,
        .updates = step - 1,
        .skipped = 1,
        .skip_run = 1,
        .tokens = step * 100,
        .position = step * 4,
        .seq = 25,
        .batch = 4,
        .shuffle = true,
        .seed = UINT64_MAX,
        .data_hash = 0x8000000000000001,
        .loss = 0.1 * 3,
    };
}

static inline int set_up (void **state)
{
    (void)state;
    return mkdtemp (dir) && chdir (dir) == 0 ? 0 : -1;
}

static inline int tear_down (void **state)
{
    (void)state;
    return chdir ("/") || fsio_remove_tree (dir, NULL);
}

static inline void save (const char *to, struct run *r, int64_t step, int keep)
{
    train_ckpt_state_t s = state_at (step);
    train_error_t err = {0};

    if (train_ckpt_save (to, &s, r->decoder, r->adamw, keep, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

static char *find (const char *where)
{
    char *path = NULL;
    train_error_t err = {0};

    if (train_ckpt_find (where, &path, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return path;
}

/* Loading must fail so and leave the run as it is. */
static inline void refuse (const char *path, struct run *r,
                           train_status_t status, const char *word)
{
    train_ckpt_state_t s = {.size = sizeof (s), .step = -7};
    struct run before = make (train_decoder_config (r->decoder), 5);
    train_error_t err = {0};
    train_status_t got;

    fill (r, 5);
    got = train_ckpt_load (path, r->decoder, r->adamw, &s, &err);
    if (got != status || !strstr (err.text, word))
        fail_msg ("%s: %s, and not %s with '%s'", train_status_name (got),
                  err.text, train_status_name (status), word);
    assert_true (same (r, &before));
    assert_int_equal (s.step, -7);
    drop (&before);
}

static inline void round_trip (const char *to,
                               const train_decoder_config_t *config)
{
    struct run a = make (config, 1), b = make (config, 2);
    train_ckpt_state_t s = {.size = sizeof (s)}, want = state_at (7);
    char *path;
    struct stat st;

    save (to, &a, 7, 1);
    path = find (to);
    assert_non_null (strstr (path, "/step-00000007"));
    assert_int_equal (train_ckpt_load (path, b.decoder, b.adamw, &s, NULL), 0);
    assert_true (same (&a, &b));
    assert_int_equal (train_adamw_updates (b.adamw), 6);
    /* every field, padding apart */
    assert_int_equal (s.size, want.size);
    assert_int_equal (s.step, want.step);
    assert_int_equal (s.updates, want.updates);
    assert_int_equal (s.skipped, want.skipped);
    assert_int_equal (s.skip_run, want.skip_run);
    assert_int_equal (s.tokens, want.tokens);
    assert_int_equal (s.position, want.position);
    assert_int_equal (s.seq, want.seq);
    assert_int_equal (s.batch, want.batch);
    assert_int_equal (s.shuffle, want.shuffle);
    assert_true (s.seed == want.seed);
    assert_true (s.data_hash == want.data_hash);
    assert_true (memcmp (&s.loss, &want.loss, sizeof (s.loss)) == 0);
    free (path);
    path = find (to); /* a checkpoint itself is one, too */
    assert_int_equal (chdir (path), 0);
    assert_int_equal (stat ("config.json", &st),
                      config->qkv_bias && config->qk_norm ? -1 : 0);
    free (path);
    path = find (".");
    assert_string_equal (path, ".");
    free (path);
    assert_int_equal (chdir (dir), 0);
    drop (&a);
    drop (&b);
}

#endif
