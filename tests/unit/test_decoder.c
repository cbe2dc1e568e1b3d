/* SPDX-License-Identifier: Apache-2.0
 * test_decoder.c - the decoder: refusals, sizes, first weights, and every
 * gradient against central differences in f64 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>

#include <cmocka.h>

#include "decoder_impl.h"
#include "small_decoder.h"

#define LENGTH(a) (sizeof (a) / sizeof (a[0]))

static void test_bad_config (void **state)
{
    static const struct {
        size_t at;
        int value;
        const char *text;
    } ints[] = {
#define FIELD(f) offsetof (train_decoder_config_t, f)
        {FIELD (layers), 0, "model layers is 0: must be at least 1"},
        {FIELD (dim), -4, "model dim is -4: must be at least 1"},
        {FIELD (heads), 5, "model heads is 5: must divide dim (12)"},
        {FIELD (heads), 4,
         "model dim / heads is 3: must be even, for rotary "
         "position embedding"},
        {FIELD (kv_heads), 3, "model kv_heads is 3: must divide heads (2)"},
        {FIELD (ffn), 0, "model ffn is 0: must be at least 1"},
        {FIELD (vocab), 0, "model vocab is 0: must be at least 1"},
        {FIELD (dtype), TRAIN_I32,
         "model dtype is I32: must be F32, F64, BF16 or F16"},
    };
    train_decoder_t *m = (train_decoder_t *)&small;
    train_decoder_config_t c;
    train_error_t err;

    (void)state;
    for (size_t i = 0; i < LENGTH (ints); i++) {
        c = small;
        memcpy ((char *)&c + ints[i].at, &ints[i].value, sizeof (int));
        assert_int_equal (train_decoder_create (&c, &m, &err), TRAIN_EINVAL);
        assert_string_equal (err.text, ints[i].text);
        assert_ptr_equal (m, &small); /* untouched */
    }
    c = small;
    c.size = 0;
    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_EINVAL);
    c = small;
    c.rope_theta = NAN;
    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_EINVAL);
    c = small;
    c.norm_eps = 0;
    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_EINVAL);
    c = small;
    c.layers = c.dim = c.ffn = 2000000000;
    c.heads = c.kv_heads = 1000000000;
    assert_int_equal (train_decoder_create (&c, &m, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "too large"));
    assert_int_equal (train_decoder_create (NULL, &m, NULL), TRAIN_EINVAL);
    train_decoder_destroy (NULL);
}

static void test_bad_batch (void **state)
{
    train_decoder_t *m = decoder_of (&small);
    int32_t tokens[6] = {0, 1, 2, 3, 4, 10}, targets[6] = {1, -1, 0, 0, 0, 0};
    double loss = 7;
    int64_t n = 7;
    train_error_t err;

    (void)state;
    tokens[5] = 11;
    assert_int_equal (
        train_decoder_step (m, tokens, targets, 2, 3, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_string_equal (err.text, "token 11 of sequence 1, position 2: must "
                                   "be in 0..10");
    tokens[5] = -1;
    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, NULL, 2, 3, NULL, NULL, &err),
        TRAIN_EINVAL);
    tokens[5] = 10;
    targets[1] = -2;
    assert_int_equal (
        train_decoder_step (m, tokens, targets, 2, 3, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_string_equal (err.text, "target -2 of sequence 0, position 1: must "
                                   "be in -1..10");
    targets[1] = -1;
    assert_int_equal (
        train_decoder_step (m, tokens, targets, 0, 3, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_int_equal (train_decoder_step (m, tokens, targets, 65536, 65536, 1,
                                          &loss, &n, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_decoder_step (m, tokens, NULL, 2, 3, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_decoder_step (m, NULL, targets, 2, 3, 1, &loss, &n, &err),
        TRAIN_EINVAL);
    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, 2, 3, NULL, &n, &err),
        TRAIN_EINVAL);
    assert_true (loss == 7 && n == 7);
    train_decoder_destroy (m);
}

static void test_params (void **state)
{
    static const struct {
        const char *name;
        int64_t rows, cols;
        bool decay;
    } want[] = {
        {"model.embed_tokens.weight", 11, 12, true},
        {"model.layers.0.self_attn.q_proj.weight", 12, 12, true},
        {"model.layers.0.self_attn.k_proj.weight", 6, 12, true},
        {"model.layers.0.self_attn.v_proj.weight", 6, 12, true},
        {"model.layers.0.self_attn.o_proj.weight", 12, 12, true},
        {"model.layers.0.mlp.gate_proj.weight", 7, 12, true},
        {"model.layers.0.mlp.up_proj.weight", 7, 12, true},
        {"model.layers.0.mlp.down_proj.weight", 12, 7, true},
        {"model.layers.0.input_layernorm.weight", 12, 1, false},
        {"model.layers.0.post_attention_layernorm.weight", 12, 1, false},
        {"model.norm.weight", 12, 1, false},
        {"lm_head.weight", 11, 12, true},
    };
    train_decoder_config_t c = small;
    train_decoder_t *m;
    size_t at = 0;

    (void)state;
    c.layers = 1;
    c.tie = false;
    m = decoder_of (&c);
    assert_int_equal (train_decoder_n_params (m), LENGTH (want));
    for (size_t i = 0; i < LENGTH (want); i++) {
        const train_param_t *p = train_decoder_param (m, i);

        assert_string_equal (p->name, want[i].name);
        assert_int_equal (p->ndim, want[i].cols > 1 ? 2 : 1);
        assert_int_equal (p->shape[0], want[i].rows);
        assert_int_equal (p->shape[1], want[i].cols);
        assert_int_equal (p->offset, at);
        assert_int_equal (p->count, want[i].rows * want[i].cols);
        assert_int_equal (p->decay, want[i].decay);
        at += p->count;
    }
    assert_int_equal (train_decoder_numel (m), at);
    assert_null (train_decoder_param (m, LENGTH (want)));
    assert_int_equal (train_tensor_numel (train_decoder_weights (m)), at);
    assert_int_equal (train_tensor_numel (train_decoder_grads (m)), at);
    train_decoder_destroy (m);
    c.tie = true;
    m = decoder_of (&c);
    assert_int_equal (train_decoder_n_params (m), LENGTH (want) - 1);
    train_decoder_destroy (m);
}

/* First weights: f32 is the rounded f64, norms are 1, spreads are as said. */
static void test_init (void **state)
{
    train_decoder_config_t c = small;
    train_decoder_t *wide, *narrow;
    const double *w;
    const float *f;
    double sum = 0, square = 0, down = 0;
    const train_param_t *p;

    (void)state;
    c.dim = 64;
    c.ffn = 128;
    wide = decoder_of (&c);
    c.dtype = TRAIN_F32;
    narrow = decoder_of (&c);
    train_decoder_init (wide, 42);
    train_decoder_init (narrow, 42);
    w = train_decoder_weights (wide)->data;
    f = train_decoder_weights (narrow)->data;
    for (size_t i = 0; i < train_decoder_numel (wide); i++)
        assert_true (f[i] == (float)w[i]);
    p = train_decoder_param (wide, 5); /* gate: 128 x 64 */
    for (size_t i = 0; i < p->count; i++) {
        sum += w[p->offset + i];
        square += w[p->offset + i] * w[p->offset + i];
    }
    assert_true (fabs (sum / (double)p->count) < 0.001);
    assert_true (fabs (sqrt (square / (double)p->count) - 0.02) < 0.0005);
    p = train_decoder_param (wide, 7); /* down, 1/sqrt(4) of it */
    for (size_t i = 0; i < p->count; i++)
        down += w[p->offset + i] * w[p->offset + i];
    assert_true (fabs (sqrt (down / (double)p->count) - 0.01) < 0.0003);
    p = train_decoder_param (wide, 8);
    for (size_t i = 0; i < p->count; i++)
        assert_true (w[p->offset + i] == 1.0);
    train_decoder_init (narrow, 43);
    assert_true (f[0] != (float)w[0]);
    train_decoder_destroy (wide);
    train_decoder_destroy (narrow);
}

/* Weights far enough from their start that nothing is nearly linear. */
static void shake (train_decoder_t *m)
{
    double *w = train_decoder_weights (m)->data;

    train_decoder_init (m, 7);
    for (size_t i = 0; i < train_decoder_numel (m); i++)
        w[i] *= (w[i] == 1.0 ? 1 : 15) * (1 + 0.1 * sin ((double)i));
}

static const int32_t tokens[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int32_t targets[10] = {1, 4, 1, 5, -1, 2, 6, 5, 3, 10};

static double loss_of (train_decoder_t *m)
{
    double loss;
    int64_t n;

    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, 2, 5, &loss, &n, NULL),
        TRAIN_OK);
    return loss;
}

/* Every element's gradient, per tensor: |g - d| / |d| in the 2-norm. Central
 * differences with h = 1e-5 err by about h^2 of the third derivative and
 * 1e-16/h of the loss: 1e-9 or so; the bound leaves room. */
static void check_gradients (const train_decoder_config_t *config)
{
    const double h = 1e-5, scale = 0.25;
    train_decoder_t *m = decoder_of (config);
    double *w = train_decoder_weights (m)->data;
    double *g = train_decoder_grads (m)->data, loss;
    int64_t n;

    shake (m);
    assert_int_equal (
        train_decoder_step (m, tokens, targets, 2, 5, scale, &loss, &n, NULL),
        TRAIN_OK);
    assert_int_equal (n, 9);
    assert_true (fabs (loss - loss_of (m)) < 1e-12 * loss);
    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);
        double diff = 0, norm = 0;

        for (size_t e = p->offset; e < p->offset + p->count; e++) {
            double keep = w[e], up, want;

            w[e] = keep + h;
            up = loss_of (m);
            w[e] = keep - h;
            want = scale * (up - loss_of (m)) / (2 * h);
            w[e] = keep;
            diff += (g[e] - want) * (g[e] - want);
            norm += want * want;
        }
        if (!(sqrt (diff) <= 1e-7 * sqrt (norm)) || norm == 0)
            fail_msg ("%s: error %g of %g", p->name, sqrt (diff), sqrt (norm));
    }
    train_decoder_destroy (m);
}

static void test_gradients (void **state)
{
    train_decoder_config_t c = small;

    (void)state;
    check_gradients (&c); /* tied, groups of 2 */
    c.tie = false;
    check_gradients (&c);
    c.kv_heads = 2; /* as many as heads */
    check_gradients (&c);
    c.dim = 8;
    c.heads = 4; /* groups of 2 in 2, heads of 2 */
    c.tie = true;
    check_gradients (&c);
    c.kv_heads = 1; /* groups of 4 */
    c.layers = 1;
    check_gradients (&c);
}

/* Qwen2's biases, Qwen3's norms with a head width of their own, scaled rope. */
static void test_gradients_options (void **state)
{
    train_decoder_config_t c = small;

    (void)state;
    c.qkv_bias = true;
    check_gradients (&c);
    c.qk_norm = true;
    c.head_dim = 8; /* heads wider than dim together */
    check_gradients (&c);
    c.qkv_bias = false;
    c.kv_heads = 2;
    c.head_dim = 4; /* narrower */
    c.rope = (train_rope_t){.kind = TRAIN_ROPE_YARN,
                            .factor = 3,
                            .original = 16,
                            .low = 0.5,
                            .high = 2,
                            .attention = 1.25};
    check_gradients (&c);
}

/* First weights of those parameters, and bad values of their settings. */
static void test_options (void **state)
{
    static const struct {
        train_rope_t rope;
        const char *text;
    } bad[] = {
        {{.kind = (train_rope_kind_t)9}, "model rope kind is 9"},
        {{.kind = TRAIN_ROPE_LINEAR}, "model rope factor is 0"},
        {{.kind = TRAIN_ROPE_LINEAR, .factor = INFINITY}, "factor is inf"},
        {{.kind = TRAIN_ROPE_DYNAMIC, .factor = 2}, "original is 0"},
        {{.kind = TRAIN_ROPE_DYNAMIC, .factor = 0.5, .original = 4},
         "factor is 0.5: must be at least 1"},
        {{.kind = TRAIN_ROPE_LLAMA3, .factor = 2, .original = 4}, "low is 0"},
        {{.kind = TRAIN_ROPE_YARN,
          .factor = 2,
          .original = 4,
          .low = 1,
          .high = 2},
         "attention is 0"},
    };
    train_decoder_config_t c = small;
    train_decoder_t *m;
    const double *w;
    train_error_t err = {0};

    (void)state;
    c.qkv_bias = c.qk_norm = true;
    m = decoder_of (&c);
    train_decoder_init (m, 3);
    w = train_decoder_weights (m)->data;
    assert_int_equal (train_decoder_n_params (m), 2 * 14 + 2);
    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);

        if (strstr (p->name, ".bias"))
            assert_true (w[p->offset] == 0 && !p->decay);
        if (strstr (p->name, "_norm."))
            assert_true (w[p->offset] == 1 && p->count == 6 && !p->decay);
    }
    assert_int_equal (train_decoder_config (m)->head_dim, 6);
    train_decoder_destroy (m);
    for (size_t i = 0; i < LENGTH (bad); i++) {
        c.rope = bad[i].rope;
        assert_int_equal (train_decoder_create (&c, &m, &err), TRAIN_EINVAL);
        if (!strstr (err.text, bad[i].text))
            fail_msg ("%s", err.text);
    }
    c.rope.kind = TRAIN_ROPE_DEFAULT;
    c.head_dim = 5;
    assert_int_equal (train_decoder_create (&c, &m, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "head_dim is 5"));
}

/* The linker sends every allocation of libtrain here (--wrap). */
static int n_allocations;

void *__real_malloc (size_t n);
void *__real_calloc (size_t n, size_t size);
void *__real_realloc (void *p, size_t n);
void *__real_aligned_alloc (size_t align, size_t n);
void *__wrap_malloc (size_t n);
void *__wrap_calloc (size_t n, size_t size);
void *__wrap_realloc (void *p, size_t n);
void *__wrap_aligned_alloc (size_t align, size_t n);

void *__wrap_malloc (size_t n)
{
    n_allocations++;
    return __real_malloc (n);
}

void *__wrap_calloc (size_t n, size_t size)
{
    n_allocations++;
    return __real_calloc (n, size);
}

void *__wrap_realloc (void *p, size_t n)
{
    n_allocations++;
    return __real_realloc (p, n);
}

void *__wrap_aligned_alloc (size_t align, size_t n)
{
    n_allocations++;
    return __real_aligned_alloc (align, n);
}

/* Allocations of one step of (B,T). */
static int step_allocates (train_decoder_t *m, int B, int T)
{
    int before = n_allocations;
    double loss;
    int64_t n;

    assert_int_equal (
        train_decoder_step (m, tokens, targets, B, T, 1, &loss, &n, NULL),
        TRAIN_OK);
    return n_allocations - before;
}

static void test_allocations (void **state)
{
    train_decoder_t *m;
    int before = n_allocations;

    (void)state;
    m = decoder_of (&small);
    assert_true (n_allocations > before); /* the wrapping works */
    train_decoder_init (m, 1);
    assert_int_equal (step_allocates (m, 2, 4), 2); /* with gradients */
    assert_int_equal (step_allocates (m, 2, 4), 0);
    assert_int_equal (step_allocates (m, 1, 4), 0); /* has room */
    assert_int_equal (step_allocates (m, 2, 5), 1); /* grows */
    assert_int_equal (step_allocates (m, 2, 4), 0);
    train_decoder_destroy (m);
}

/* Gradients add up: two steps of half the scale are one of the whole; two
 * halves of a batch are the batch. */
static void test_adds (void **state)
{
    train_decoder_t *a = decoder_of (&small), *b = decoder_of (&small);
    double *ga = train_decoder_grads (a)->data, *gb, diff = 0, norm = 0;
    double loss, first, second;
    int64_t n, n1, n2;

    (void)state;
    gb = train_decoder_grads (b)->data;
    shake (a);
    shake (b);
    train_decoder_step (a, tokens, targets, 2, 5, 0.5, &loss, &n, NULL);
    train_decoder_step (b, tokens, targets, 1, 5, 0.5, &first, &n1, NULL);
    train_decoder_step (b, tokens + 5, targets + 5, 1, 5, 0.5, &second, &n2,
                        NULL);
    assert_int_equal (n, n1 + n2);
    assert_true (fabs (loss - first - second) < 1e-13 * loss);
    for (size_t i = 0; i < train_decoder_numel (a); i++) {
        diff += (ga[i] - gb[i]) * (ga[i] - gb[i]);
        norm += ga[i] * ga[i];
    }
    assert_true (norm > 0 && diff < 1e-28 * norm);
    train_decoder_destroy (a);
    train_decoder_destroy (b);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_config),
        cmocka_unit_test (test_bad_batch),
        cmocka_unit_test (test_params),
        cmocka_unit_test (test_init),
        cmocka_unit_test (test_gradients),
        cmocka_unit_test (test_allocations),
        cmocka_unit_test (test_adds),
        cmocka_unit_test (test_gradients_options),
        cmocka_unit_test (test_options),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
