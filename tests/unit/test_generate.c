/* SPDX-License-Identifier: Apache-2.0
 * test_generate.c - kept keys and values give the full forward's logits; draws
 * are as likely as they should be; what may not be asked for */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <train/generate.h>

#include "libtrain/generate_impl.h"
#include "kernels/decode.h"

enum { B = 3, T = 11, V = 37 };

static train_decoder_t *make (train_dtype_t dtype, bool tie, bool more)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 3,
                                .dim = 24,
                                .heads = 4,
                                .kv_heads = 2,
                                .ffn = 40,
                                .vocab = V,
                                .tie = tie,
                                .rope_theta = 100,
                                .norm_eps = 1e-5,
                                .dtype = dtype,
                                .head_dim = more ? 10 : 0,
                                .qkv_bias = more,
                                .qk_norm = more};
    train_decoder_t *m = NULL;
    const DLTensor *w;

    assert_int_equal (train_decoder_create (&c, &m, NULL), TRAIN_OK);
    train_decoder_init (m, 5);
    /* biases and norms away from 0 and 1 as well */
    w = train_decoder_weights (m);
    for (int64_t i = 0; dtype <= TRAIN_F64 && i < w->shape[0]; i++) {
        double add = 0.2 * sin ((double)i);

        if (dtype == TRAIN_F32)
            ((float *)w->data)[i] += (float)add;
        else
            ((double *)w->data)[i] += add;
    }
    return m;
}

static double value (const void *x, size_t i, train_dtype_t dtype)
{
    return dtype == TRAIN_F32 ? (double)((const float *)x)[i]
                              : ((const double *)x)[i];
}

/* The texts come in pieces of other lengths, mixed. */
static void check_logits (train_dtype_t dtype, bool tie, bool more,
                          double bound)
{
    static const int cuts[B][4] = {{0, 4, 5, T}, {0, 1, 9, T}, {0, 7, 8, T}};
    train_decoder_t *m = make (dtype, tie, more);
    double *all = calloc (B * T * V, sizeof (double)), most = 0, worst = 0;
    struct kv_cache *cache;
    int32_t tokens[B * T];

    assert_non_null (all);
    for (int i = 0; i < B * T; i++)
        tokens[i] = i * 17 % V;
    assert_int_equal (
        train_decoder_forward (m, all, tokens, NULL, B, T, NULL, NULL, NULL),
        TRAIN_OK);
    assert_int_equal (kv_create (m, B, T, B * T, B * T, &cache, NULL),
                      TRAIN_OK);
    for (int part = 0; part < 3; part++) {
        struct kv_rows r;
        const void *logits;
        size_t n = 0, N = 0;

        for (int b = 0; b < B; b++)
            N += (size_t)(cuts[b][part + 1] - cuts[b][part]);
        r = kv_rows (cache, N, N);
        for (int b = B; b-- > 0;)
            for (int t = cuts[b][part]; t < cuts[b][part + 1]; t++, n++) {
                r.tokens[n] = tokens[b * T + t];
                r.slot[n] = b;
                r.at[n] = t;
                r.last[n] = (int32_t)(N - 1 - n);
            }
        assert_int_equal (kv_feed (cache, N, N, 0, NULL), TRAIN_OK);
        assert_int_equal (kv_logits (cache, N, &logits, NULL), TRAIN_OK);
        for (size_t i = 0; i < N; i++)
            for (size_t v = 0; v < V; v++) {
                int32_t row = r.last[i];
                size_t j = (size_t)(r.slot[row] * T + r.at[row]) * V + v;
                double want = value (all, j, dtype), off;

                most = fmax (most, fabs (want));
                off = fabs (value (logits, i * V + v, dtype) - want);
                worst = off <= worst ? worst : isnan (off) ? INFINITY : off;
            }
    }
    if (!(most > 0.1 && worst <= bound * most))
        fail_msg ("off by %g of %g", worst, most);
    kv_destroy (cache);
    train_decoder_destroy (m);
    free (all);
}

static void test_logits (void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        check_logits (TRAIN_F64, i & 1, i & 2, 1e-12);
        check_logits (TRAIN_F32, i & 1, i & 2, 1e-5);
    }
}

/* Each text alone, and all in one batch, the same tokens; a stop token ends. */
static void test_ragged (void **state)
{
    static const int32_t a[] = {1}, b[] = {3, 4, 5, 6, 7}, c[] = {9, 2};
    const int32_t *prompts[B] = {a, b, c};
    const int n[B] = {1, 5, 2};
    train_generate_options_t o = {
        .size = sizeof (o), .max_new = 8, .temperature = 1, .seed = 3};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    int32_t all[B * 8], one[8], again[B * 8], stop;
    int got[B], k;

    (void)state;
    assert_int_equal (train_generate (all, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    assert_int_equal (train_generate (again, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    assert_memory_equal (all, again, sizeof (all));
    assert_int_equal (train_generate (one, &k, m, prompts, n, 1, &o, NULL),
                      TRAIN_OK);
    assert_int_equal (k, 8);
    assert_memory_equal (one, all, sizeof (one));
    stop = all[8 + 2]; /* of text 1 */
    o.stop = &stop;
    o.n_stop = 1;
    assert_int_equal (train_generate (again, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    assert_true (got[1] <= 3);
    assert_int_equal (again[8 + got[1] - 1], stop);
    o.seed = 4;
    assert_int_equal (train_generate (again, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    assert_memory_not_equal (again, all, sizeof (all));
    train_decoder_destroy (m);
}

struct chances {
    double temperature, top_p;
    int top_k;
    double want[6];
    double min_p;
};

/* Counts of 200,000 draws beside the probabilities that stand in the table,
 * worked out by hand, by chi squared: above 25.7 once in ten thousand with five
 * degrees of freedom, and the draws are always the same ones. */
static void test_chances (void **state)
{
    /* exp (z / t) of the kept ones over their sum */
    static const struct chances cases[] = {
        {1, 0, 0, {.1, .3, .05, .25, .2, .1}, 0},
        {1, 0, 2, {0, .3 / .55, 0, .25 / .55, 0, 0}, 0},
        {1, 0.6, 0, {0, .4, 0, 1 / 3., .2 / .75, 0}, 0},
        {1, 0.55, 0, {0, .3 / .55, 0, .25 / .55, 0, 0}, 0},
        {0.5,
         0,
         0,
         {.01 / .215, .09 / .215, .0025 / .215, .0625 / .215, .04 / .215,
          .01 / .215},
         0},
        {1, 0.5, 3, {0, .3 / .55, 0, .25 / .55, 0, 0}, 0},
        {1, 0.8, 4, {0, .4, 0, 1 / 3., .2 / .75, 0}, 0},
    };
    const double z[6] = {log (.1),  log (.3), log (.05),
                         log (.25), log (.2), log (.1)};
    enum { N = 200000 };

    (void)state;
    for (size_t c = 0; c < sizeof (cases) / sizeof (*cases); c++) {
        struct kern_draw_rules o = {.heat = cases[c].temperature,
                                    .top_p = cases[c].top_p,
                                    .top_k = cases[c].top_k,
                                    .min_p = cases[c].min_p,
                                    .seed = 5};
        char scratch[6 * 20] __attribute__ ((aligned (8)));
        double chi = 0;
        int count[6] = {0};

        /* a sum of .55 must reach .55 in spite of rounding */
        o.top_p -= o.top_p == 0.55 ? 1e-9 : 0;
        for (int32_t i = 0; i < N; i++) {
            int32_t text = (int32_t)c, id = -1;
            float logp = 0;

            kern_draw_f64_host (&id, &logp, z, &text, &i, NULL, NULL, 1, 6, &o,
                                scratch, NULL);
            assert_in_range (id, 0, 5);
            count[id]++;
        }
        for (int v = 0; v < 6; v++) {
            double want = cases[c].want[v] * N;

            if (want == 0)
                assert_int_equal (count[v], 0);
            else
                chi += (count[v] - want) * (count[v] - want) / want;
        }
        if (!(chi < 25.7))
            fail_msg ("case %zu: chi squared %g", c, chi);
    }
}

/* bf16 of the host beside its own full forward, whose rounding it shares but for
 * attention. */
static void test_half (void **state)
{
    train_decoder_t *m = make (TRAIN_BF16, true, false);
    uint16_t *all = calloc (T * V, sizeof (*all));
    struct kv_cache *cache;
    const uint16_t *got;
    const void *logits;
    int32_t tokens[T];
    struct kv_rows r;

    (void)state;
    assert_int_equal (kv_create (m, 1, T, T, T, &cache, NULL), TRAIN_OK);
    r = kv_rows (cache, T, T);
    for (int t = 0; t < T; t++) {
        tokens[t] = r.tokens[t] = t * 17 % V;
        r.slot[t] = 0;
        r.at[t] = r.last[t] = t;
    }
    assert_int_equal (
        train_decoder_forward (m, all, tokens, NULL, 1, T, NULL, NULL, NULL),
        TRAIN_OK);
    assert_int_equal (kv_feed (cache, T, T, 0, NULL), TRAIN_OK);
    assert_int_equal (kv_logits (cache, T, &logits, NULL), TRAIN_OK);
    got = logits;
    for (int i = 0; i < T * V; i++)
        if (!(fabsf (half_from_bf16 (got[i]) - half_from_bf16 (all[i]))
              < 0.02f))
            fail_msg ("logit %d is %g, not %g", i,
                      (double)half_from_bf16 (got[i]),
                      (double)half_from_bf16 (all[i]));
    kv_destroy (cache);
    train_decoder_destroy (m);
    free (all);
}

struct heard {
    int n[B], end;
    int32_t ids[B][8];
};

static bool hear (void *arg, int text, int32_t id)
{
    struct heard *h = arg;

    h->ids[text][h->n[text]++] = id;
    return h->n[text] != h->end;
}

/* Texts that wait for a slot get the tokens that they get otherwise; each is
 * told as it comes, and the listener may end a text. */
static void test_slots (void **state)
{
    static const int32_t a[] = {1}, b[] = {3, 4, 5, 6, 7}, c[] = {9, 2};
    const int32_t *prompts[B] = {a, b, c};
    const int n[B] = {1, 5, 2};
    struct heard h = {0};
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = 8,
                                  .temperature = 1,
                                  .seed = 3,
                                  .on_token = hear,
                                  .arg = &h};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    int32_t all[B * 8], again[B * 8];
    int got[B];

    (void)state;
    assert_int_equal (train_generate (all, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    assert_memory_equal (h.ids, all, sizeof (all));
    for (o.at_once = 1; o.at_once <= 2; o.at_once++) {
        memset (&h, 0, sizeof (h));
        assert_int_equal (
            train_generate (again, got, m, prompts, n, B, &o, NULL), TRAIN_OK);
        assert_memory_equal (again, all, sizeof (all));
    }
    memset (&h, 0, sizeof (h));
    h.end = 3;
    assert_int_equal (train_generate (again, got, m, prompts, n, B, &o, NULL),
                      TRAIN_OK);
    for (int i = 0; i < B; i++) {
        assert_int_equal (got[i], 3);
        assert_memory_equal (again + i * 8, all + i * 8, 3 * sizeof (*all));
    }
    train_decoder_destroy (m);
}

/* Texts of two calls, told which they are, get the tokens of one call, drawn
 * where the decoder is and cut by the host. */
static void test_first (void **state)
{
    static const int32_t a[] = {1}, b[] = {3, 4, 5, 6, 7}, c[] = {9, 2};
    const int32_t *prompts[B] = {a, b, c};
    const int n[B] = {1, 5, 2};
    train_generate_options_t o = {
        .size = sizeof (o), .max_new = 8, .temperature = 1, .seed = 3};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    int32_t all[B * 8], part[B * 8];
    int got[B];

    (void)state;
    for (o.top_k = 0; o.top_k <= V - 1; o.top_k += V - 1) {
        o.first = 0;
        assert_int_equal (train_generate (all, got, m, prompts, n, B, &o, NULL),
                          TRAIN_OK);
        o.first = 1;
        assert_int_equal (
            train_generate (part, got, m, prompts + 1, n + 1, B - 1, &o, NULL),
            TRAIN_OK);
        assert_memory_equal (part, all + 8, (B - 1) * 8 * sizeof (*all));
    }
    o.first = -1;
    assert_int_equal (train_generate (all, got, m, prompts, n, B, &o, NULL),
                      TRAIN_EINVAL);
    train_decoder_destroy (m);
}

/* A great penalty: no token comes twice while there are others. */
static void test_repetition (void **state)
{
    static const int32_t a[] = {1, 2};
    const int32_t *prompts[1] = {a};
    const int n[1] = {2};
    train_generate_options_t o = {
        .size = sizeof (o), .max_new = 8, .repetition = 1e6};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    bool seen[V] = {false, true, true};
    int32_t ids[8];
    int got;

    (void)state;
    assert_int_equal (train_generate (ids, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_OK);
    for (int i = 0; i < got; i++) {
        assert_false (seen[ids[i]]);
        seen[ids[i]] = true;
    }
    o.repetition = 0;
    assert_int_equal (train_generate (ids, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_OK);
    train_decoder_destroy (m);
}

/* What is told of each token is its chance by the full forward, at the
 * temperature alone; cuts and discouragement do not change it. */
static void test_logp (void **state)
{
    enum { P = 4, NEW = 19, ALL = P + NEW }; /* twice round what steps tell */
    static const int32_t prompt[P] = {3, 9, 4, 1};
    static const struct {
        double temperature, repetition;
        int top_k;
    } cases[] = {{1, 0, 0}, {0.7, 0, 0}, {0, 0, 0}, {1.5, 1.3, 4}};
    const int32_t *prompts[1] = {prompt};
    const int n[1] = {P};
    train_decoder_t *m = make (TRAIN_F64, false, true);
    double logits[ALL * V];
    int32_t all[ALL];
    float logp[NEW];
    int got;

    (void)state;
    memcpy (all, prompt, sizeof (prompt));
    for (size_t c = 0; c < sizeof (cases) / sizeof (*cases); c++) {
        double heat = cases[c].temperature > 0 ? cases[c].temperature : 1;
        train_generate_options_t o = {.size = sizeof (o),
                                      .max_new = NEW,
                                      .seed = 5,
                                      .temperature = cases[c].temperature,
                                      .repetition = cases[c].repetition,
                                      .top_k = cases[c].top_k,
                                      .ret_logp = logp};

        assert_int_equal (
            train_generate (all + P, &got, m, prompts, n, 1, &o, NULL),
            TRAIN_OK);
        assert_int_equal (got, NEW);
        assert_int_equal (train_decoder_forward (m, logits, all, NULL, 1, ALL,
                                                 NULL, NULL, NULL),
                          TRAIN_OK);
        for (int t = 0; t < NEW; t++) {
            const double *z = logits + (P + t - 1) * V;
            double sum = 0, want;

            for (int v = 0; v < V; v++)
                sum += exp (z[v] / heat);
            want = z[all[P + t]] / heat - log (sum);
            if (!(fabs ((double)logp[t] - want) < 1e-6))
                fail_msg ("case %zu, token %d: %g, not %g", c, t,
                          (double)logp[t], want);
        }
    }
    train_decoder_destroy (m);
}

/* Seven texts of groups of three, of which the last has but one: with a prompt
 * read once for each group the same tokens as without, all at once, and where
 * texts wait for those of their own group and of others. */
static void test_group (void **state)
{
    enum { ALL = 7, NEW = 6 };
    static const int32_t a[] = {1, 5}, b[] = {3, 4, 5, 6, 7}, c[] = {9};
    const int32_t *prompts[ALL] = {a, a, a, b, b, b, c};
    const int n[ALL] = {2, 2, 2, 5, 5, 5, 1};
    float want_logp[ALL * NEW], logp[ALL * NEW];
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = NEW,
                                  .temperature = 1,
                                  .seed = 3,
                                  .ret_logp = want_logp};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    int32_t want[ALL * NEW], ids[ALL * NEW];
    train_error_t err = {0};
    int got[ALL];

    (void)state;
    assert_int_equal (train_generate (want, got, m, prompts, n, ALL, &o, NULL),
                      TRAIN_OK);
    assert_memory_not_equal (want, want + NEW, NEW * sizeof (*want));
    o.group = 3;
    o.ret_logp = logp;
    for (o.at_once = 0; o.at_once < ALL; o.at_once++) {
        memset (ids, 0, sizeof (ids));
        assert_int_equal (
            train_generate (ids, got, m, prompts, n, ALL, &o, NULL), TRAIN_OK);
        assert_memory_equal (ids, want, sizeof (want));
        for (int i = 0; i < ALL * NEW; i++)
            assert_true (fabsf (logp[i] - want_logp[i]) < 1e-6f);
    }
    o.group = 4;
    assert_int_equal (train_generate (ids, got, m, prompts, n, ALL, &o, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "text 3"));
    train_decoder_destroy (m);
}

/* Each of 64 texts alone, in sevens and all at once: the same tokens, and the same
 * bits of what is told of them. */
static void check_batches (train_dtype_t dtype)
{
    enum { ALL = 64, NEW = 4, P = 5 };
    int32_t tokens[ALL][P], want[ALL * NEW], ids[ALL * NEW];
    float want_logp[ALL * NEW], logp[ALL * NEW];
    train_decoder_t *m = make (dtype, false, true);
    const int32_t *prompts[ALL];
    int n[ALL], got[ALL];
    train_generate_options_t o = {.size = sizeof (o),
                                  .max_new = NEW,
                                  .temperature = 1,
                                  .seed = 3,
                                  .batch_invariant = true,
                                  .ret_logp = want_logp};

    for (int b = 0; b < ALL; b++) {
        prompts[b] = tokens[b];
        n[b] = 1 + b % P;
        for (int t = 0; t < P; t++)
            tokens[b][t] = (b * 7 + t * 5) % V;
    }
    assert_int_equal (train_generate (want, got, m, prompts, n, ALL, &o, NULL),
                      TRAIN_OK);
    o.ret_logp = logp;
    for (o.at_once = 1; o.at_once <= 7; o.at_once += 6) {
        assert_int_equal (
            train_generate (ids, got, m, prompts, n, ALL, &o, NULL), TRAIN_OK);
        assert_memory_equal (ids, want, sizeof (want));
        assert_memory_equal (logp, want_logp, sizeof (logp));
    }
    train_decoder_destroy (m);
}

static void test_batches (void **state)
{
    (void)state;
    check_batches (TRAIN_F64);
    check_batches (TRAIN_F32);
    check_batches (TRAIN_BF16);
    check_batches (TRAIN_F16);
}

static void test_refused (void **state)
{
    static const int32_t good[] = {1}, bad[] = {V};
    const int32_t *prompts[1] = {good};
    const int n[1] = {1}, none[1] = {0};
    train_generate_options_t o = {.size = sizeof (o), .max_new = 1};
    train_decoder_t *m = make (TRAIN_F64, true, false);
    int32_t id;
    int got;

    (void)state;
    assert_int_equal (train_generate (&id, &got, m, prompts, none, 1, &o, NULL),
                      TRAIN_EINVAL);
    prompts[0] = bad;
    assert_int_equal (train_generate (&id, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_EINVAL);
    prompts[0] = good;
    o.top_p = 1.5;
    assert_int_equal (train_generate (&id, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_EINVAL);
    o.top_p = 0;
    ((double *)train_decoder_weights (m)->data)[0] = NAN;
    assert_int_equal (train_generate (&id, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_ENONFINITE);
    train_decoder_destroy (m);
    o.repetition = -1;
    assert_int_equal (train_generate (&id, &got, m, prompts, n, 1, &o, NULL),
                      TRAIN_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_logits),  cmocka_unit_test (test_ragged),
        cmocka_unit_test (test_chances), cmocka_unit_test (test_half),
        cmocka_unit_test (test_slots),   cmocka_unit_test (test_repetition),
        cmocka_unit_test (test_logp),    cmocka_unit_test (test_group),
        cmocka_unit_test (test_first),   cmocka_unit_test (test_batches),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
