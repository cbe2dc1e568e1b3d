/* SPDX-License-Identifier: Apache-2.0
 * test_trainer_gpu.c - the step of one device, here the host, beside the
 * engine's; loss scaling; checkpoints that go on with the same bits */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <train/safetensors.h>
#include <train/trainer.h>
#include <train/watch.h>

#include "decoder_impl.h"
#include "gpu_run.h"
#include "mem_table.h"
#include "optim.h"

/* There are gradients of what trains alone, and of what a kernel writes with
 * that, as it does all of this. */
static void check_frozen (struct run *r, const char *frozen)
{
    const train_decoder_t *m = r->decoder;
    bool any = strcmp (frozen, "*q_proj*,*up_proj*") != 0;

    assert_int_equal (m->grad_at != NULL, any);
    assert_int_equal (train_tensor_numel (train_decoder_grads (r->decoder)),
                      m->grad_numel);
    if (any)
        assert_true (m->grad_numel < m->numel);
    else
        assert_int_equal (m->grad_numel, m->numel);
}

/* Both ways begin with the same masters and take the same steps. */
static void beside_engine (train_dtype_t dtype, const char *frozen,
                           double bound)
{
    train_trainer_options_t o = in_passes ();
    struct run device, engine;
    train_metrics_t a, b;

    o.frozen = frozen;
    trainer_gpu_always (true);
    device = make_two (o, dtype);
    trainer_gpu_always (false);
    engine = make_two (o, dtype);
    assert_true (frozen || same (&device, &engine));
    for (int i = 0; i < 10; i++) {
        a = steps (&device, 1);
        b = steps (&engine, 1);
        if (!(fabs (a.loss - b.loss) <= bound * b.loss)
            || !(fabs (a.grad_norm - b.grad_norm) <= 10 * bound * b.grad_norm))
            fail_msg ("step %d: loss %.9g and %.9g, norm %.9g and %.9g", i + 1,
                      a.loss, b.loss, a.grad_norm, b.grad_norm);
        if (i == 0 && dtype == TRAIN_F32 /* no rounding lies between them yet */
            && !(fabs (a.grad_norm - b.grad_norm) <= 1e-9 * b.grad_norm))
            fail_msg ("norm %.15g and %.15g", a.grad_norm, b.grad_norm);
    }
    assert_int_equal (a.tokens, 10 * 5 * 16);
    assert_true (a.loss < (frozen ? 5.6 : 5.2));
    if (frozen)
        check_frozen (&device, frozen);
    drop (&device);
    drop (&engine);
}

static void test_beside_engine (void **state)
{
    (void)state;
    beside_engine (TRAIN_F32, NULL, 1e-5);
    beside_engine (TRAIN_BF16, NULL, 2e-3);
}

/* What is frozen in whole products, in parts of fused ones, in vectors; most of
 * the model and some of it. */
static void test_frozen_beside_engine (void **state)
{
    static const char *const frozen[] = {
        "*embed_tokens*,*mlp*", "*layernorm*",
        "*q_proj*,*up_proj*",   "*embed_tokens*,*q_proj*,*up_proj*,*norm*",
        "*embed_tokens*,*.0.*", "lora",
    };

    (void)state;
    for (size_t i = 0; i < sizeof (frozen) / sizeof (*frozen); i++)
        beside_engine (TRAIN_F32, frozen[i], 1e-5);
    beside_engine (TRAIN_BF16, frozen[0], 2e-3);
}

/* 5 steps, a checkpoint that is written while others follow, 5 more of it. */
static void go_on (train_dtype_t dtype, const train_scaler_options_t *s,
                   const char *frozen, const char *to)
{
    train_trainer_options_t o = in_passes ();
    struct run whole, one, two;
    train_metrics_t a, b;
    train_error_t err = {0};

    o.scaler = s;
    o.frozen = frozen;
    whole = make_two (o, dtype);
    one = make_two (o, dtype);
    two = make_two (o, dtype);
    assert_int_equal (
        train_tensor_numel (train_trainer_m (whole.trainer))
            < train_tensor_numel (train_trainer_weights (whole.trainer)),
        frozen != NULL);
    a = steps (&whole, 10);
    steps (&one, 5);
    assert_int_equal (train_trainer_save_start (one.trainer, to, 1, NULL), 0);
    steps (&one, 2);
    assert_int_equal (train_trainer_save_wait (one.trainer, NULL), 0);
    steps (&two, 1); /* of its own, to be forgotten */
    if (train_trainer_load (two.trainer, to, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_null (train_trainer_note (two.trainer));
    b = steps (&two, 5);
    assert_true (same (&whole, &two));
    assert_false (same (&whole, &one));
    assert_true (a.loss == b.loss && a.grad_norm == b.grad_norm);
    assert_true (a.loss_scale == b.loss_scale && a.tokens == b.tokens);
    assert_true (s ? a.loss_scale == 4096 : a.loss_scale == 0);
    drop (&whole);
    drop (&one);
    drop (&two);
}

static void test_go_on (void **state)
{
    (void)state;
    go_on (TRAIN_F32, NULL, NULL, "f32");
    go_on (TRAIN_BF16, NULL, NULL, "bf16");
    go_on (TRAIN_F16, &scaler, NULL, "f16");
}

/* Moments of what trains alone, spread in a checkpoint. */
static void test_frozen_goes_on (void **state)
{
    static const char few[] = "*embed_tokens*,*mlp*,model.layers.1.*";
    static const char all_but[] = "*layernorm*,*.0.*down_proj*";

    (void)state;
    go_on (TRAIN_F32, NULL, all_but, "f32 most");
    go_on (TRAIN_BF16, NULL, all_but, "bf16 most");
    go_on (TRAIN_F32, NULL, few, "f32 few");
    go_on (TRAIN_BF16, NULL, few, "bf16 few");
}

/* Element [i] of the model: is it frozen? */
static bool is_frozen (const struct run *r, size_t i)
{
    for (size_t k = 0; k < train_decoder_n_params (r->decoder); k++) {
        const train_param_t *p = train_decoder_param (r->decoder, k);

        if (i >= p->offset && i < p->offset + p->count)
            return fnmatch ("*mlp*", p->name, 0) == 0
                   || fnmatch ("*embed_tokens*", p->name, 0) == 0;
    }
    return false;
}

/* Is it what the table says of a GPU? */
static void check_table (struct run *r, const train_trainer_options_t *o)
{
    train_decoder_config_t c = *train_decoder_config (r->decoder);
    int64_t bytes =
        train_tensor_bytes (train_adamw_masters (r->trainer->adamw));
    struct mem_row rows[MEM_ROWS];
    size_t n = 0, seen = 0, grads;

    grads = r->decoder->grad_numel + decoder_sink (r->decoder);
    c.device.device_type = kDLCUDA;
    if (mem_table (&c, false, o, 1, 16, false, rows, &n, NULL)
        == TRAIN_ENOTSUP) /* built without CUDA */
        return;
    for (size_t i = 0; i < n; i++) {
        if (strcmp (rows[i].what, "masters of the weights") == 0)
            assert_int_equal (rows[i].bytes, bytes), seen++;
        if (strcmp (rows[i].what, "gradients") == 0)
            assert_int_equal (rows[i].bytes, grads * sizeof (float)), seen++;
        if (strcmp (rows[i].what, "AdamW's moments") == 0)
            assert_int_equal (rows[i].bytes, 2 * bytes), seen++;
    }
    assert_int_equal (seen, 3);
}

/* Masters of what trains alone: what is drawn, what a step makes of it, and
 * what comes from a checkpoint whose masters are all there are as without. */
static void test_frozen_masters (void **state)
{
    train_trainer_options_t o = in_passes ();
    struct run all, few, engine;
    const float *wide, *own;
    train_error_t err = {0};
    size_t n, k = 0;

    (void)state;
    all = make_two (o, TRAIN_BF16);
    o.frozen = "*embed_tokens*,*mlp*";
    few = make_two (o, TRAIN_BF16);
    assert_true (same_bits (train_decoder_weights (all.decoder),
                            train_decoder_weights (few.decoder)));
    n = train_decoder_numel (all.decoder);
    wide = train_trainer_weights (all.trainer)->data;
    own = train_adamw_masters (few.trainer->adamw)->data;
    for (size_t i = 0; i < n; i++)
        if (!is_frozen (&few, i))
            assert_true (wide[i] == own[k++]);
    assert_int_equal (
        k, train_tensor_numel (train_adamw_masters (few.trainer->adamw)));
    assert_true (2 * k <= n);
    check_table (&few, &o);

    trainer_gpu_always (false);
    o.frozen = NULL;
    engine = make_two (o, TRAIN_BF16);
    steps (&engine, 3);
    assert_int_equal (train_trainer_save (engine.trainer, "all", 1, NULL), 0);
    if (train_trainer_load (few.trainer, "all", &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_true (same_bits (train_decoder_weights (engine.decoder),
                            train_decoder_weights (few.decoder)));
    wide = train_trainer_weights (engine.trainer)->data;
    for (size_t i = 0, j = 0; i < n; i++)
        if (!is_frozen (&few, i))
            assert_true (wide[i] == own[j++]);
    drop (&all);
    drop (&few);
    drop (&engine);
}

static double evaluate (struct run *r, int rows)
{
    const train_eval_options_t o = {
        .size = sizeof (o), .data = r->data, .samples = 10, .rows = rows};
    train_eval_t got = {0};
    train_error_t err = {0};

    if (train_trainer_eval (r->trainer, &o, &got, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return got.loss;
}

/* An evaluation of as many rows as a pass has takes no more than the pass, also
 * where that lends activations its gradients; and the steps do not see it. */
static void test_eval_fits (void **state)
{
    (void)state;
    lines = true;
    for (int k = 0; k < 4; k++) {
        train_trainer_options_t o = in_passes ();
        train_dtype_t dtype = k / 2 ? TRAIN_BF16 : TRAIN_F32;
        struct run some, none;
        size_t bytes;
        double loss;

        o.micro_batch = k % 2 ? 2 : 0;
        some = make_two (o, dtype);
        none = make_two (o, dtype);
        loss = evaluate (&none, 1);
        assert_true (fabs (evaluate (&some, 5) - loss) < 1e-3 * loss);
        steps (&some, 1);
        steps (&none, 1);
        assert_int_equal (some.trainer->decoder->layout.lent > 0, k % 2 == 0);
        bytes = none.decoder->acts_bytes;
        loss = evaluate (&none, some.trainer->pass);
        assert_true (loss < 5.6);
        assert_int_equal (none.decoder->acts_bytes, bytes);
        steps (&none, 2);
        steps (&some, 2);
        assert_true (same (&some, &none));
        drop (&some);
        drop (&none);
    }
    lines = false;
}

/* A scale that no gradient survives shrinks until they do, in more steps than
 * max_skips; nothing is updated meanwhile. */
static void test_scale_shrinks (void **state)
{
    const train_scaler_options_t huge = {
        .size = sizeof (huge), .init = 0x1p60, .backoff = 0.0625};
    train_trainer_options_t o = in_passes ();
    struct run r, fresh;
    train_metrics_t m;

    (void)state;
    o.scaler = &huge;
    r = make_two (o, TRAIN_F16);
    fresh = make_two (o, TRAIN_F16);
    m = steps (&r, 4);
    assert_true (m.skipped && m.n_skips == 4);
    assert_true (m.loss_scale == 0x1p48);
    assert_true (same (&r, &fresh));
    m = steps (&r, 16);
    assert_false (m.skipped);
    assert_true (m.n_skips < 16 && m.loss_scale >= 1);
    assert_true (isfinite (m.grad_norm) && m.grad_norm < 100);
    assert_false (same (&r, &fresh));
    drop (&r);
    drop (&fresh);
}

/* The scale changes no loss, norm or step by more than f16 rounds. */
static void test_scale_is_undone (void **state)
{
    train_trainer_options_t o = in_passes ();
    struct run plain = make_two (o, TRAIN_F32), scaled;
    train_metrics_t a, b;

    (void)state;
    o.scaler = &scaler;
    scaled = make_two (o, TRAIN_F16);
    a = steps (&plain, 8);
    b = steps (&scaled, 8);
    assert_true (fabs (a.loss - b.loss) < 0.01 * a.loss);
    assert_true (fabs (a.grad_norm - b.grad_norm) < 0.05 * a.grad_norm);
    assert_true (b.n_skips == 0);
    drop (&plain);
    drop (&scaled);
}

/* A caller's weights are the first masters, also of a save before any step. */
static void test_given_weights (void **state)
{
    const train_trainer_options_t o = in_passes ();
    train_error_t err = {0};
    struct run from = make_two (o, TRAIN_BF16), r = make_two (o, TRAIN_BF16);
    train_trainer_t *again = NULL;
    const DLTensor *w = train_decoder_weights (from.decoder);

    (void)state;
    steps (&from, 3);
    assert_int_equal (
        train_trainer_create (&o, group, from.data, from.decoder, &again, &err),
        0);
    assert_int_equal (train_trainer_save (again, "given", 1, NULL), 0);
    assert_int_equal (train_trainer_load (r.trainer, "given", NULL), 0);
    assert_true (same_bits (train_decoder_weights (r.decoder), w));
    train_trainer_destroy (again);
    drop (&from);
    drop (&r);
}

/* A Hugging Face folder's weights, which a decoder drew, but for config.json. */
static void write_folder (struct run *r)
{
    size_t n = train_decoder_n_params (r->decoder);
    train_st_entry_t *entry = calloc (n, sizeof (*entry));
    float *data = train_decoder_weights (r->decoder)->data;

    assert_non_null (entry);
    for (size_t i = 0; i < n; i++) {
        const train_param_t *p = train_decoder_param (r->decoder, i);

        entry[i] = (train_st_entry_t){.name = p->name,
                                      .dtype = TRAIN_F32,
                                      .ndim = p->ndim,
                                      .data = data + p->offset};
        memcpy (entry[i].shape, p->shape, sizeof (p->shape));
    }
    assert_int_equal (mkdir ("hf", 0777), 0);
    assert_int_equal (train_safetensors_write ("hf/model.safetensors", entry, n,
                                               NULL, 0, NULL),
                      0);
    free (entry);
}

/* Masters have the files' numbers, and the weights are those rounded: the same
 * on both ways. */
static void test_from_files (void **state)
{
    struct run from, ways[2];
    train_error_t err = {0};

    (void)state;
    trainer_gpu_always (false);
    from = make_two (in_passes (), TRAIN_F32);
    steps (&from, 2);
    write_folder (&from);
    for (int i = 0; i < 2; i++) {
        trainer_gpu_always (i == 1);
        ways[i] = make_two (in_passes (), TRAIN_BF16);
        assert_int_equal (
            train_trainer_init_hf (ways[i].trainer, "none", 3, &err),
            TRAIN_ENOTFOUND);
        assert_int_equal (
            train_trainer_init_hf (ways[i].trainer, "hf", 3, NULL), 0);
        assert_true (same_bits (train_trainer_weights (ways[i].trainer),
                                train_decoder_weights (from.decoder)));
    }
    assert_true (same_bits (train_decoder_weights (ways[0].decoder),
                            train_decoder_weights (ways[1].decoder)));
    for (int i = 0; i < 2; i++)
        drop (&ways[i]);
    drop (&from);
    trainer_gpu_always (false);
}

static void zero_param (struct run *r, const char *word)
{
    float *w = train_trainer_weights (r->trainer)->data;

    for (size_t i = 0; i < train_decoder_n_params (r->decoder); i++) {
        const train_param_t *p = train_decoder_param (r->decoder, i);

        if (strstr (p->name, word))
            memset (w + p->offset, 0, p->count * sizeof (*w));
    }
}

/* Without gate and up nothing reaches a feed-forward's weights. */
static void test_rules_and_unused (void **state)
{
    train_trainer_options_t o = in_passes ();
    char text[400];
    struct run all = make_two (o, TRAIN_F32), some, fresh;
    train_metrics_t a, b;
    const train_param_t *p;
    const float *w, *v;

    (void)state;
    o.frozen = "*embed_tokens*,model.layers.1.*";
    some = make_two (o, TRAIN_F32);
    fresh = make_two (o, TRAIN_F32);
    a = steps (&all, 1);
    b = steps (&some, 1);
    assert_true (b.grad_norm < 0.9 * a.grad_norm && b.grad_norm > 0);
    w = train_trainer_weights (some.trainer)->data;
    v = train_trainer_weights (fresh.trainer)->data;
    for (size_t i = 0; i < train_decoder_n_params (some.decoder); i++) {
        p = train_decoder_param (some.decoder, i);
        assert_int_equal (memcmp (w + p->offset, v + p->offset, 4 * p->count)
                              == 0,
                          strstr (p->name, "embed") || strstr (p->name, "s.1"));
    }
    assert_int_equal (
        train_trainer_unused (some.trainer, text, sizeof (text), NULL), 0);
    assert_string_equal (text, "");
    zero_param (&some, "layers.0.mlp.gate");
    zero_param (&some, "layers.0.mlp.up");
    steps (&some, 1);
    assert_int_equal (
        train_trainer_unused (some.trainer, text, sizeof (text), NULL), 0);
    assert_string_equal (text,
                         "model.layers.0.mlp.gate_proj.weight, "
                         "model.layers.0.mlp.up_proj.weight, "
                         "model.layers.0.mlp.down_proj.weight, "
                         "model.layers.0.post_attention_layernorm.weight");
    drop (&all);
    drop (&some);
    drop (&fresh);
}

/* Without a scaler too many skips in a row still end the run. */
static void test_not_finite (void **state)
{
    struct run r = make_two (in_passes (), TRAIN_F32);
    train_metrics_t m = {0};
    train_error_t err = {0};
    float *w = train_trainer_weights (r.trainer)->data;

    (void)state;
    w[0] = INFINITY;
    for (int i = 0; i < 2; i++) {
        assert_int_equal (train_trainer_step (r.trainer, false, &m, &err), 0);
        assert_true (m.skipped && m.n_skips == i + 1);
    }
    assert_int_equal (train_trainer_step (r.trainer, true, &m, &err),
                      TRAIN_ENONFINITE);
    assert_non_null (strstr (err.text, "step 3"));
    assert_non_null (strstr (err.text, "weight model.embed_tokens.weight at "
                                       "[0, 0]"));
    drop (&r);
}

/* A scale that cannot help ends the run, and the value is named. */
static void test_scale_at_floor (void **state)
{
    const train_scaler_options_t low = {
        .size = sizeof (low), .init = 1, .patience = 2};
    train_trainer_options_t o = in_passes ();
    train_metrics_t m = {0};
    train_error_t err = {0};
    struct run r;

    (void)state;
    o.scaler = &low;
    r = make_two (o, TRAIN_F16);
    *(float *)train_trainer_weights (r.trainer)->data = INFINITY;
    *(uint16_t *)train_decoder_weights (r.decoder)->data = 0x7c00;
    assert_int_equal (train_trainer_step (r.trainer, false, &m, &err), 0);
    assert_true (m.skipped);
    assert_int_equal (train_trainer_step (r.trainer, false, &m, &err),
                      TRAIN_ENONFINITE);
    assert_non_null (strstr (err.text, "scale at its floor of 1"));
    assert_non_null (strstr (err.text, "Inf in the weight "
                                       "model.embed_tokens.weight at [0, 0]"));
    drop (&r);
}

#define ON_DEVICE(test)                                                        \
    cmocka_unit_test_setup_teardown (test, use_device, use_engine)

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_beside_engine),
        cmocka_unit_test (test_frozen_beside_engine),
        ON_DEVICE (test_go_on),
        {"test_go_on, engine", test_go_on, use_engine, NULL, NULL},
        ON_DEVICE (test_frozen_goes_on),
        ON_DEVICE (test_frozen_masters),
        ON_DEVICE (test_eval_fits),
        {"test_frozen_goes_on, engine", test_frozen_goes_on, use_engine, NULL,
         NULL},
        ON_DEVICE (test_scale_shrinks),
        {"test_scale_shrinks, engine", test_scale_shrinks, use_engine, NULL,
         NULL},
        ON_DEVICE (test_scale_at_floor),
        {"test_scale_at_floor, engine", test_scale_at_floor, use_engine, NULL,
         NULL},
        ON_DEVICE (test_scale_is_undone),
        {"test_scale_is_undone, engine", test_scale_is_undone, use_engine, NULL,
         NULL},
        ON_DEVICE (test_given_weights),
        cmocka_unit_test (test_from_files),
        ON_DEVICE (test_rules_and_unused),
        ON_DEVICE (test_not_finite),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
