/* SPDX-License-Identifier: Apache-2.0
 * test_trainer_watch.c - the loss of text that is not trained on, and the
 * first value that is not finite, a rank that is slow,
 * memory as it was foretold */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <malloc.h>
#include <math.h>
#include <string.h>

#include <train/watch.h>

#include "group_ranks.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/mem_table.h"
#include "libtrain/trainer.h"
#include "slow_run.h"
#include "trainer_run.h"

static struct run make_held (int64_t held, train_dtype_t dtype)
{
    train_data_options_t d = text;
    struct run r;

    d.held = held;
    open_parts (&r, dtype, 8, &d);
    assert_int_equal (train_trainer_create (&good, group, r.data, r.decoder,
                                            &r.trainer, NULL),
                      TRAIN_OK);
    return r;
}

static train_eval_t evaluate (struct run *r, train_eval_options_t o)
{
    train_eval_t e = {0};
    train_error_t err = {0};

    o.size = sizeof (o);
    if (train_trainer_eval (r->trainer, &o, &e, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return e;
}

/* What the same weights make of the samples one by one, without a trainer. */
static double loss_of (struct run *r, const train_data_t *d, int64_t first,
                       int way, int n)
{
    train_decoder_t *twin = NULL;
    int32_t tokens[16], targets[16];
    double sum = 0, loss;
    int64_t counted;

    assert_int_equal (
        train_decoder_create (train_decoder_config (r->decoder), &twin, NULL),
        0);
    memcpy (train_decoder_weights (twin)->data,
            train_decoder_weights (r->decoder)->data,
            train_tensor_bytes (train_decoder_weights (twin)));
    for (int i = 0; i < n; i++) {
        train_data_get (d, first + way * i, tokens, targets);
        assert_int_equal (train_decoder_forward (twin, NULL, tokens, targets, 1,
                                                 16, &loss, &counted, NULL),
                          TRAIN_OK);
        sum += loss;
    }
    train_decoder_destroy (twin);
    return sum / (n * 16);
}

static void test_eval (void **state)
{
    struct run r = make_held (5, TRAIN_F64);
    train_eval_t e;
    train_metrics_t m;

    (void)state;
    for (int step = 0; step < 3; step++) {
        e = evaluate (&r, (train_eval_options_t){0});
        assert_true (e.loss == loss_of (&r, r.data, -1, -1, 5));
        assert_int_equal (e.samples, 5);
        assert_int_equal (e.tokens, 5 * 16);
        assert_true (e.eval_s > 0);
        e = evaluate (&r, (train_eval_options_t){.rows = 4});
        assert_true (fabs (e.loss - loss_of (&r, r.data, -1, -1, 5)) < 1e-12);
        assert_int_equal (e.tokens, 5 * 16);
        e = evaluate (&r, (train_eval_options_t){.samples = 2});
        assert_true (e.loss == loss_of (&r, r.data, -1, -1, 2));
        e = evaluate (&r, (train_eval_options_t){.data = r.data, .samples = 3});
        assert_true (e.loss == loss_of (&r, r.data, 0, 1, 3));
        assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
    }
    drop (&r);
}

/* Nothing of the training changes. */
static void test_eval_leaves_no_trace (void **state)
{
    struct run a = make_held (5, TRAIN_F32), b = make_held (5, TRAIN_F32);
    train_metrics_t m, n;

    (void)state;
    for (int i = 0; i < 4; i++) {
        evaluate (&b, (train_eval_options_t){.rows = 2});
        assert_int_equal (train_trainer_step (a.trainer, false, &m, NULL), 0);
        assert_int_equal (train_trainer_step (b.trainer, false, &n, NULL), 0);
        assert_true (m.loss == n.loss && m.grad_norm == n.grad_norm);
    }
    drop (&a);
    drop (&b);
}

static void refuse (struct run *r, train_eval_options_t o, const char *word)
{
    train_eval_t e;
    train_error_t err = {0};

    assert_int_equal (train_trainer_eval (r->trainer, &o, &e, &err),
                      TRAIN_EINVAL);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
}

static void test_eval_refused (void **state)
{
    struct run r = make_held (0, TRAIN_F32);
    train_eval_options_t o = {.size = sizeof (o)};

    (void)state;
    refuse (&r, o, "0 samples of 0 that are held out");
    o.data = r.data;
    o.samples = 1000000;
    refuse (&r, o, "1000000 samples of");
    o.samples = -1;
    refuse (&r, o, "-1 samples");
    o.rows = -1;
    refuse (&r, o, "rows -1");
    o.size = 0;
    refuse (&r, o, "size");
    drop (&r);
}

static const train_param_t *param (const struct run *r, const char *name)
{
    for (size_t i = 0; i < train_decoder_n_params (r->decoder); i++) {
        const train_param_t *p = train_decoder_param (r->decoder, i);

        if (strcmp (p->name, name) == 0)
            return p;
    }
    fail_msg ("no %s", name);
    return NULL;
}

static void want_named (struct run *r, const char *text)
{
    train_metrics_t m;
    const char *got;

    assert_int_equal (train_trainer_step (r->trainer, false, &m, NULL), 0);
    assert_true (m.skipped);
    got = train_trainer_nonfinite (r->trainer);
    if (!got || !strstr (got, text))
        fail_msg ("'%s' does not say '%s'", got ? got : "NULL", text);
}

/* A weight, by its name and place; a healthy step ends the row. */
static void test_weight_is_named (void **state)
{
    static const struct {
        const char *name, *text;
        size_t at;
        float value;
    } t[] = {
        {"model.layers.0.self_attn.k_proj.weight",
         "NaN in the weight model.layers.0.self_attn.k_proj.weight at [2, 3]",
         2 * 8 + 3, NAN},
        {"model.layers.0.mlp.up_proj.weight",
         "Inf in the weight model.layers.0.mlp.up_proj.weight at [23, 7]",
         24 * 8 - 1, INFINITY},
        {"model.norm.weight", "Inf in the weight model.norm.weight at [0]", 0,
         -INFINITY},
    };
    struct run r = make (good, TRAIN_F32);
    float *w = train_decoder_weights (r.decoder)->data;
    train_metrics_t m;

    (void)state;
    assert_null (train_trainer_nonfinite (r.trainer));
    for (size_t i = 0; i < sizeof (t) / sizeof (*t); i++) {
        float *at = w + param (&r, t[i].name)->offset + t[i].at, was = *at;

        *at = t[i].value;
        want_named (&r, t[i].text);
        *at = was;
        assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
        assert_false (m.skipped);
    }
    drop (&r);
}

/* Finite weights whose product overflows: the activation that it is. */
static void test_activation_is_named (void **state)
{
    train_trainer_options_t o = good;
    struct run r;
    const train_param_t *p;
    float *w;

    (void)state;
    o.micro_batch = 3;
    r = make (o, TRAIN_F32);
    w = train_decoder_weights (r.decoder)->data;
    p = param (&r, "model.layers.0.mlp.gate_proj.weight");
    for (size_t i = 0; i < 8; i++)
        w[p->offset + 5 * 8 + i] = i % 2 ? 3e38f : -3e38f;
    want_named (&r,
                " in model.layers.0 mlp: gate, up at sequence 0, position ");
    assert_non_null (
        strstr (train_trainer_nonfinite (r.trainer), ", column 5 (rank 0 on "));
    assert_non_null (
        strstr (train_trainer_nonfinite (r.trainer), "pass 1 of 2)"));
    assert_memory_equal (train_trainer_nonfinite (r.trainer), "step 1: ", 8);
    drop (&r);
}

static bool step (struct run *r, train_metrics_t *m)
{
    return train_trainer_step (r->trainer, false, m, NULL) == TRAIN_OK;
}

/* A rank whose own weights are bad: all skip, and all name it. */
static void one_rank_bad (struct job *job, int rank, train_group_t *g)
{
    train_metrics_t m;
    struct run r;
    const char *text;
    float *w, was;

    group = g;
    r = make (good, TRAIN_F32);
    w = train_decoder_weights (r.decoder)->data;
    if (!step (&r, &m) || m.skipped)
        note (job, rank, "a good step", m.skipped, 0, 0);
    was = w[5];
    if (rank == 1)
        w[5] = NAN;
    text = step (&r, &m) ? train_trainer_nonfinite (r.trainer) : NULL;
    if (!m.skipped || m.n_skips != 1 || !text)
        note (job, rank, "not skipped", m.skipped, 1, 0);
    else if (!strstr (text, "step 2: NaN in the weight ")
             || !strstr (text, "(rank 1 on "))
        note (job, rank, text, 0, 0, 0);
    w[5] = was;
    if (!step (&r, &m) || m.skipped)
        note (job, rank, "the next step", m.skipped, 0, 0);
    drop (&r);
}

static void test_one_rank_bad (void **state)
{
    struct job job = {
        .layout = "aab", .body = one_rank_bad, .timeout_ms = PATIENCE_MS};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

static void test_slow_find (void **state)
{
    static const struct {
        double s[5];
        int n, want;
        double median;
    } t[] = {
        {{1}, 1, -1, 0},
        {{1, 1.6}, 2, 1, 1},
        {{1, 1.5}, 2, -1, 1},
        {{3, 1, 2}, 3, -1, 1.5}, /* 1.5 is the median of two */
        {{3.1, 1, 3, 2, 1}, 5, 0, 1.5},
        {{0, 2, 0}, 3, -1, 0}, /* alone with rows */
        {{0, 2, 9}, 3, 2, 2},
        {{1, 1, 1, 1, 1.49}, 5, -1, 1},
    };
    double m;

    (void)state;
    for (size_t i = 0; i < sizeof (t) / sizeof (*t); i++) {
        double factor = i == 3 ? 2.1 : i == 4 ? 2 : 1.5;

        m = 0;
        assert_int_equal (trainer_slow_find (t[i].s, t[i].n, factor, &m),
                          t[i].want);
        assert_true (m == t[i].median);
    }
}

static struct run make_way (train_strategy_t way)
{
    train_trainer_options_t o = good;
    train_decoder_config_t c;
    struct run r;

    o.strategy = way;
    if (way != TRAIN_FULL_SHARD)
        return make (o, TRAIN_F32);
    open_parts (&r, TRAIN_F32, 8, &text);
    c = *train_decoder_config (r.decoder);
    train_decoder_destroy (r.decoder);
    assert_int_equal (train_decoder_create_bare (&c, &r.decoder, NULL), 0);
    assert_int_equal (
        train_trainer_create (&o, group, r.data, r.decoder, &r.trainer, NULL),
        0);
    assert_int_equal (train_trainer_init (r.trainer, 3, NULL), 0);
    return r;
}

/* Rank 1 sleeps; the others wait for it in collectives, which does not count. */
static void slow_rank (struct job *job, int rank, train_group_t *g)
{
    train_metrics_t m;
    char line[240] = "";
    int slow = -2, again = -2;
    struct run r;

    group = g;
    r = make_way ((train_strategy_t)job->arg);
    be_slow_or_wait (r.trainer, r.decoder, rank);
    for (int i = 0; i < 6; i++)
        if (train_trainer_step (r.trainer, false, &m, NULL) != TRAIN_OK)
            note (job, rank, "step", i, 0, 0);
    if (train_trainer_slow (r.trainer, 1.5, &slow, line, sizeof (line), NULL)
            != TRAIN_OK
        || slow != 1 || !strstr (line, "rank 1 on ")
        || !strstr (line, "is slow: ") || !strstr (line, "(6 steps)"))
        note (job, rank, line, slow, 1, 0);
    if (train_trainer_slow (r.trainer, 1.5, &again, line, sizeof (line), NULL)
            != TRAIN_OK
        || again != -1)
        note (job, rank, "no step since", again, -1, 0);
    drop (&r);
}

static void test_slow_rank (void **state)
{
    static const train_strategy_t ways[] = {TRAIN_NO_SHARD, TRAIN_DDP,
                                            TRAIN_FULL_SHARD};

    (void)state;
    for (size_t i = 0; i < sizeof (ways) / sizeof (*ways); i++) {
        struct job job = {.layout = "abb",
                          .body = slow_rank,
                          .arg = (int)ways[i],
                          .timeout_ms = PATIENCE_MS};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* What malloc has given out, of mmap and else; 0: not this malloc. */
static size_t given (void)
{
    struct mallinfo2 i = mallinfo2 ();

    return i.uordblks + i.hblkhd;
}

/* The table beside what a trainer really took, one step made; of all weights, and
 * of norms alone, the others frozen. What is no array, as the text and names, is
 * 150 kB. */
static void test_memory (void **state)
{
    static const train_dtype_t types[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16};

    (void)state;
    for (size_t k = 0; k < 2 * sizeof (types) / sizeof (*types); k++) {
        struct mem_row rows[MEM_ROWS];
        train_trainer_options_t o = good;
        size_t before = given (), took, n, sum = 0;
        train_metrics_t m;
        struct run r;

        if (before == 0) { /* cmocka 1.1.7 shows skip () as a failure */
            print_message ("another malloc, which does not count\n");
            return;
        }
        o.batch = 20;
        o.micro_batch = 12;
        o.frozen = k % 2 ? "*self_attn*,*embed*,*mlp*" : NULL;
        open_parts (&r, types[k / 2], 256, &text);
        assert_int_equal (train_trainer_create (&o, group, r.data, r.decoder,
                                                &r.trainer, NULL),
                          0);
        assert_int_equal (train_trainer_step (r.trainer, false, &m, NULL), 0);
        took = given () - before;
        assert_int_equal (mem_table (train_decoder_config (r.decoder), false,
                                     &o, 1, 16, false, rows, &n, NULL),
                          0);
        for (size_t i = 0; i < n; i++)
            sum += rows[i].bytes;
        if (sum > took || took - sum > 160 << 10)
            fail_msg ("foretold %zu, took %zu", sum, took);
        drop (&r);
    }
}

static size_t bytes_of (const struct mem_row *rows, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp (rows[i].what, what) == 0)
            return rows[i].bytes;
    return 0;
}

/* What is offloaded has no row but its pieces: of 4 M elements at most. */
static void test_memory_offloaded (void **state)
{
    const train_decoder_config_t c = {.size = sizeof (c),
                                      .layers = 2,
                                      .dim = 1024,
                                      .heads = 8,
                                      .kv_heads = 8,
                                      .ffn = 4096,
                                      .vocab = 1000,
                                      .tie = true,
                                      .rope_theta = 10000,
                                      .norm_eps = 1e-5,
                                      .dtype = TRAIN_BF16};
    train_trainer_options_t o = good;
    struct mem_row rows[MEM_ROWS];
    size_t n, moments;

    (void)state;
    assert_int_equal (mem_table (&c, false, &o, 1, 16, false, rows, &n, NULL),
                      0);
    moments = bytes_of (rows, n, "AdamW's moments");
    assert_int_equal (bytes_of (rows, n, "masters of the weights"),
                      moments / 2);
    assert_int_equal (bytes_of (rows, n, "pieces of what is offloaded"), 0);
    o.offload = true;
    assert_int_equal (mem_table (&c, false, &o, 1, 16, false, rows, &n, NULL),
                      0);
    assert_int_equal (bytes_of (rows, n, "AdamW's moments"), 0);
    assert_int_equal (bytes_of (rows, n, "masters of the weights"), 0);
    assert_int_equal (bytes_of (rows, n, "pieces of what is offloaded"),
                      192 << 20);
    assert_true (moments > 192 << 20);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_eval),
        cmocka_unit_test (test_eval_leaves_no_trace),
        cmocka_unit_test (test_eval_refused),
        cmocka_unit_test (test_weight_is_named),
        cmocka_unit_test (test_activation_is_named),
        cmocka_unit_test (test_one_rank_bad),
        cmocka_unit_test (test_memory_offloaded),
        cmocka_unit_test (test_slow_find),
        cmocka_unit_test (test_slow_rank),
        cmocka_unit_test (test_memory),
    };

    return cmocka_run_group_tests_name ("trainer_watch", tests, set_up,
                                        tear_down);
}
