/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_lora.c - adapters: nothing at first, gradients against
 * differences, the merged model's loss, dtypes; and what is refused */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libtrain/decoder_impl.h"
#include "libtrain/elem.h"
#include "small_decoder.h"

#define B 2
#define T 5

static const train_lora_t every = {3, 0x7f, 6};

static int32_t tokens[B * T], targets[B * T];

static bool is_adapter (const train_param_t *p)
{
    return strstr (p->name, ".lora_") != NULL;
}

/* Numbers in [-1, 1) that repeat nowhere. */
static double made_up (size_t i)
{
    return (double)(int32_t)((uint32_t)i * 2654435761u + 12345u) * 0x1p-31;
}

/* Weights as drawn, five times as large; adapters of [B] are not 0 if [full]. */
static train_decoder_t *make (train_dtype_t dtype, const train_lora_t *lora,
                              train_recompute_t recompute, bool full)
{
    train_decoder_config_t config = small;
    train_decoder_t *m;
    double *w;

    config.qkv_bias = config.qk_norm = true;
    config.dtype = dtype;
    config.recompute = recompute;
    if (lora)
        config.lora = *lora;
    m = decoder_of (&config);
    train_decoder_init (m, 5);
    for (int32_t i = 0; i < B * T; i++) {
        tokens[i] = (i * 7 + 3) % 11;
        targets[i] = (i * 5 + 1) % 11;
    }
    w = train_decoder_weights (m)->data;
    for (size_t k = 0; dtype == TRAIN_F64 && k < train_decoder_n_params (m);
         k++) {
        const train_param_t *p = train_decoder_param (m, k);

        for (size_t i = p->offset; i < p->offset + p->count; i++)
            if (!is_adapter (p))
                w[i] *= 5;
            else if (full && strstr (p->name, ".lora_B."))
                w[i] = 0.3 * made_up (i);
    }
    return m;
}

static double step (train_decoder_t *m)
{
    train_error_t err = {0};
    double loss = 0;
    int64_t n;

    if (train_decoder_step (m, tokens, targets, B, T, 0.25, &loss, &n, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    return loss;
}

static double forward (train_decoder_t *m)
{
    double loss = 0;
    int64_t n;

    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, B, T, &loss, &n, NULL),
        TRAIN_OK);
    return loss;
}

/* Zero at first, and the others are drawn as without. */
static void test_first (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, &every, TRAIN_RECOMPUTE_NOTHING, 0);
    train_decoder_t *base = make (TRAIN_F64, NULL, TRAIN_RECOMPUTE_NOTHING, 0);
    const double *w = train_decoder_weights (m)->data;
    size_t adapters = 0;

    (void)state;
    for (size_t k = 0; k < train_decoder_n_params (m); k++) {
        const train_param_t *p = train_decoder_param (m, k);
        bool a = strstr (p->name, ".lora_A.weight") != NULL;
        double sum = 0, most = 1 / sqrt ((double)p->shape[1]);

        if (!is_adapter (p))
            continue;
        adapters++;
        for (size_t i = p->offset; i < p->offset + p->count; i++) {
            assert_true (fabs (w[i]) <= (a ? most : 0));
            sum += w[i] * w[i];
        }
        /* uniform: a third of the bound's square, within 5 deviations */
        if (a)
            assert_true (fabs (sum / (double)p->count / (most * most) - 1. / 3)
                         < 5 * 0.3 / sqrt ((double)p->count));
        assert_int_equal (p->shape[a ? 0 : 1], 3);
    }
    assert_int_equal (adapters, 2 * 2 * 7);
    assert_string_equal (
        train_decoder_param (m, train_decoder_n_params (m) - 2)->name,
        "model.layers.1.mlp.down_proj.lora_B.weight");
    assert_true (forward (m) == forward (base));
    train_decoder_destroy (m);
    train_decoder_destroy (base);
}

static double moved (train_decoder_t *m, double *w, double by)
{
    double keep = *w, loss;

    *w = keep + by;
    loss = forward (m);
    *w = keep;
    return loss;
}

static void check_gradient (const train_lora_t *lora)
{
    static const double h = 5e-5;
    train_decoder_t *m = make (TRAIN_F64, lora, TRAIN_RECOMPUTE_NOTHING, true);
    double *w = train_decoder_weights (m)->data;
    double *g = train_decoder_grads (m)->data, diff = 0, norm = 0;

    step (m);
    for (size_t k = 0; k < train_decoder_n_params (m); k++) {
        const train_param_t *p = train_decoder_param (m, k);

        for (size_t i = p->offset; i < p->offset + p->count; i += 3) {
            double near, far, want;

            if (!is_adapter (p))
                continue;
            near = moved (m, w + i, h) - moved (m, w + i, -h);
            far = moved (m, w + i, 2 * h) - moved (m, w + i, -2 * h);
            want = 0.25 * (8 * near - far) / (12 * h);
            diff += (g[i] - want) * (g[i] - want);
            norm += want * want;
        }
    }
    if (!(sqrt (diff) <= 1e-8 * sqrt (norm)))
        fail_msg ("gradient off by %g", sqrt (diff / norm));
    train_decoder_destroy (m);
}

static void test_gradient (void **state)
{
    const train_lora_t some = {2, 1 << 2 | 1 << 5, 3}; /* v, up */

    (void)state;
    check_gradient (&every);
    check_gradient (&some);
}

/* To the bit, of adapters. */
static void test_recompute (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, &every, TRAIN_RECOMPUTE_NOTHING, 1);
    const double *a = train_decoder_grads (m)->data;
    double loss = step (m);

    (void)state;
    for (int r = TRAIN_RECOMPUTE_CHEAP; r <= TRAIN_RECOMPUTE_BLOCKS; r++) {
        train_decoder_t *again =
            make (TRAIN_F64, &every, (train_recompute_t)r, true);
        const double *b = train_decoder_grads (again)->data;

        assert_true (step (again) == loss);
        for (size_t k = 0; k < train_decoder_n_params (m); k++) {
            const train_param_t *p = train_decoder_param (m, k);

            if (is_adapter (p))
                assert_memory_equal (a + p->offset, b + p->offset,
                                     p->count * sizeof (*a));
        }
        train_decoder_destroy (again);
    }
    train_decoder_destroy (m);
}

static const train_param_t *find (const train_decoder_t *m, const char *name)
{
    for (size_t k = 0; k < train_decoder_n_params (m); k++)
        if (strcmp (train_decoder_param (m, k)->name, name) == 0)
            return train_decoder_param (m, k);
    fail_msg ("no %s", name);
    return NULL;
}

/* W + 6/3 B A in place of W, by the formula. */
/* Merged copies lose the same, and are gone without a trace. */
static void for_a_while (train_decoder_t *m, double loss)
{
    size_t bytes = train_decoder_numel (m) * sizeof (double);
    double *w = train_decoder_weights (m)->data, *was = malloc (bytes), own;
    struct decoder_merged merged;

    assert_non_null (was);
    memcpy (was, w, bytes);
    own = forward (m);
    assert_int_equal (decoder_merge (m, &merged, NULL), TRAIN_OK);
    memset (w + m->units[1].first, 0, m->units[1].count * sizeof (*w));
    assert_true (fabs (forward (m) - loss) <= 1e-13 * loss);
    memcpy (w, was, bytes);
    decoder_merge_end (m, &merged);
    assert_true (forward (m) == own);
    decoder_leave_out (m, true);
    assert_true (fabs (forward (m) - loss) > 1e-3 * loss);
    decoder_leave_out (m, false);
    assert_true (forward (m) == own);
    free (was);
}

static void test_merged (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, &every, TRAIN_RECOMPUTE_NOTHING, 1);
    train_decoder_t *base = make (TRAIN_F64, NULL, TRAIN_RECOMPUTE_NOTHING, 0);
    const double *w = train_decoder_weights (m)->data;
    double *merged = train_decoder_weights (base)->data, loss;

    (void)state;
    for (size_t k = 0; k < train_decoder_n_params (m); k++) {
        const train_param_t *a = train_decoder_param (m, k), *b, *to;
        const char *at = strstr (a->name, ".lora_A.weight");
        char name[100];

        if (!at)
            continue;
        snprintf (name, sizeof (name), "%.*s.lora_B.weight",
                  (int)(at - a->name), a->name);
        b = find (m, name);
        snprintf (name, sizeof (name), "%.*s.weight", (int)(at - a->name),
                  a->name);
        to = find (base, name);
        for (int64_t i = 0; i < to->shape[0]; i++)
            for (int64_t j = 0; j < to->shape[1]; j++)
                for (int64_t r = 0; r < 3; r++)
                    merged[(int64_t)to->offset + i * to->shape[1] + j] +=
                        2 * w[(int64_t)b->offset + i * 3 + r]
                        * w[(int64_t)a->offset + r * a->shape[1] + j];
    }
    loss = forward (base);
    assert_true (fabs (forward (m) - loss) <= 1e-13 * loss);
    for_a_while (m, loss);
    assert_int_equal (train_decoder_merge (m, NULL), TRAIN_OK);
    assert_true (fabs (forward (m) - loss) <= 1e-13 * loss);
    assert_int_equal (train_decoder_merge (m, NULL), TRAIN_OK); /* once */
    assert_true (fabs (forward (m) - loss) <= 1e-13 * loss);
    train_decoder_destroy (m);
    train_decoder_destroy (base);
}

/* Weights as drawn times 4, which is exact, and all of B a quarter. */
static void set_weights (train_decoder_t *m)
{
    train_dtype_t dtype = train_decoder_config (m)->dtype;
    void *w = train_decoder_weights (m)->data;

    train_decoder_init (m, 5);
    for (size_t k = 0; k < train_decoder_n_params (m); k++) {
        const train_param_t *p = train_decoder_param (m, k);

        for (size_t i = p->offset; i < p->offset + p->count; i++)
            if (!is_adapter (p))
                elem_put (dtype, w, i, 4 * elem_get (dtype, w, i));
            else if (strstr (p->name, ".lora_B."))
                elem_put (dtype, w, i, 0.25);
    }
}

/* f32 and halves beside f64; without adapters it is another loss. */
static void test_types (void **state)
{
    static const struct {
        train_dtype_t dtype;
        double bound;
    } types[] = {{TRAIN_F32, 1e-6}, {TRAIN_BF16, 1e-2}, {TRAIN_F16, 1e-3}};
    train_decoder_t *wide = make (TRAIN_F64, &every, 0, true);
    double want, base, loss;

    (void)state;
    set_weights (wide);
    want = step (wide);
    for (size_t t = 0; t < 3; t++) {
        train_decoder_t *m = make (types[t].dtype, &every, 0, false);
        train_decoder_t *none = make (types[t].dtype, NULL, 0, false);

        set_weights (m);
        set_weights (none);
        base = step (none);
        loss = step (m);
        if (!(fabs (loss - want) <= types[t].bound * want))
            fail_msg ("type %d: %g, want %g, without %g", (int)t, loss, want,
                      base);
        assert_true (fabs (base - want) > 2 * types[t].bound * want);
        train_decoder_destroy (m);
        train_decoder_destroy (none);
    }
    train_decoder_destroy (wide);
}

static void test_refused (void **state)
{
    const train_lora_t bad[] = {
        {-1, 1, 1}, {5000, 1, 1}, {2, 0, 1},  {2, 128, 1},
        {2, 1, 0},  {2, 1, NAN},  {0, 1, 16}, {0, 0, 1},
    };
    const struct {
        const char *list;
        int set;
    } good[] = {{"q_proj,v_proj", 5}, {" q_proj , v_proj ", 5},
                {"*_proj", 0x7f},     {"all-linear", 0x7f},
                {"[qkvo]_proj", 15},  {"gate_proj,up_proj,down_proj", 0x70}};
    const char *const wrong[] = {"", "x_proj", "q_proj,,", "q_proj,q_proj",
                                 "lm_head"};
    train_error_t err = {0};
    train_decoder_t *m;
    int set;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        train_decoder_config_t config = small;

        config.lora = bad[i];
        assert_int_equal (train_decoder_create (&config, &m, &err),
                          TRAIN_EINVAL);
        assert_non_null (strstr (err.text, "lora"));
    }
    for (size_t i = 0; i < sizeof (good) / sizeof (*good); i++) {
        assert_int_equal (train_lora_targets (good[i].list, &set, &err), 0);
        assert_int_equal (set, good[i].set);
    }
    for (size_t i = 0; i < sizeof (wrong) / sizeof (*wrong); i++)
        if (i != 2) /* empty words are passed over */
            assert_int_equal (train_lora_targets (wrong[i], &set, &err),
                              TRAIN_EINVAL);
    assert_string_equal (train_lora_target (6), "down_proj");
    assert_null (train_lora_target (7));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_first),     cmocka_unit_test (test_gradient),
        cmocka_unit_test (test_recompute), cmocka_unit_test (test_merged),
        cmocka_unit_test (test_types),     cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
