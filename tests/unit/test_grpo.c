/* SPDX-License-Identifier: Apache-2.0
 * test_grpo.c - advantages worked out by hand, masks, and losses whose gradients
 * are those of finite differences, for any split */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "libtrain/grpo.h"

#define GROUP                                                                  \
    (train_grpo_advantage_options_t)                                           \
    {                                                                          \
        .size = sizeof (train_grpo_advantage_options_t), .group = 4            \
    }

static void near_to (double got, double expected, double bound)
{
    if (!(fabs (got - expected) <= bound))
        fail_msg ("%.9g is not %.9g (+- %g)", got, expected, bound);
}

static void advantages (const train_grpo_advantage_options_t *o,
                        const float *rewards, const int64_t *lengths, int64_t n,
                        const double *expected)
{
    float adv[16];
    train_error_t err = {0};

    assert_true (n <= 16);
    memset (adv, 0xff, sizeof (adv));
    if (train_grpo_advantages (o, rewards, lengths, n, adv, NULL, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
    for (int64_t i = 0; i < n; i++)
        near_to ((double)adv[i], expected[i], 2e-6);
}

/* One of four is right: a sample deviation of 0.5. */
static void test_group (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const float r[] = {1, 0, 0, 0, 3, 3, 3, 3};

    (void)state;
    advantages (&o, r, NULL, 8,
                (double[]){0.75 / 0.5001, -0.25 / 0.5001, -0.25 / 0.5001,
                           -0.25 / 0.5001, 0, 0, 0, 0});
    o.eps = 1e-6;
    advantages (&o, r, NULL, 4,
                (double[]){1.499997, -.499999, -.499999, -.499999});
    o.scale = TRAIN_GRPO_SCALE_NONE;
    advantages (&o, r, NULL, 4, (double[]){.75, -.25, -.25, -.25});
    o.base = TRAIN_GRPO_BASE_OTHERS;
    advantages (&o, r, NULL, 4, (double[]){1, -1 / 3., -1 / 3., -1 / 3.});
}

/* Eight rewards: mean 1.625, squares of the differences sum to 15.875. */
static void test_batch_scale (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const float r[] = {1, 0, 0, 0, 3, 3, 3, 3};
    double s = sqrt (15.875 / 7) + 1e-4;
    train_grpo_advantage_report_t report = {.size = sizeof (report)};
    float adv[8];

    (void)state;
    o.scale = TRAIN_GRPO_SCALE_BATCH;
    advantages (&o, r, NULL, 8,
                (double[]){.75 / s, -.25 / s, -.25 / s, -.25 / s, 0, 0, 0, 0});
    o.scale = TRAIN_GRPO_SCALE_GROUP;
    assert_int_equal (
        train_grpo_advantages (&o, r, NULL, 8, adv, &report, NULL), TRAIN_OK);
    near_to (report.mean, 1.625, 0);
    near_to (report.deviation, sqrt (15.875 / 7), 1e-12);
    near_to (report.zero_spread, 0.5, 0);
    assert_int_equal (report.counted, 8);
}

/* A completion without tokens, or without a reward, is in no mean
   (OpenRLHF/OpenRLHF#1239); one that is alone gets 0. */
static void test_left_out (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const float r[] = {1, 0, -100, NAN, NAN, 5, NAN, NAN};
    const int64_t lengths[] = {3, 1, 0, 2, 1, 1, 1, 1};
    double s = sqrt (0.5) + 1e-4;

    (void)state;
    advantages (&o, r, lengths, 8,
                (double[]){.5 / s, -.5 / s, 0, 0, 0, 0, 0, 0});
}

/* What differs by rounding alone is no signal; equal rewards that a float does
   not hold exactly are equal (NVIDIA-NeMo/RL#4158, #1518). */
static void test_no_spread (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const float r[] = {0.95f, 0.95f, 0.95f, 0.95f};
    const float tiny[] = {0.3f, 0.3f + 3e-8f, 0.3f, 0.3f};
    float adv[4];

    (void)state;
    for (int base = 0; base < 2; base++) {
        o.base = (train_grpo_base_t)base;
        advantages (&o, r, NULL, 4, (double[]){0, 0, 0, 0});
    }
    o.base = TRAIN_GRPO_BASE_MEAN;
    assert_int_equal (
        train_grpo_advantages (&o, tiny, NULL, 4, adv, NULL, NULL), TRAIN_OK);
    assert_true (fabs ((double)adv[1]) < 3e-4);
}

/* Two rewards, the second absent once: weights 1 and 2. */
static void test_several (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const double weights[] = {1, 2};
    const float r[] = {1, 0, 0, 1, 0, NAN, 1, 1}; /* sums 1 2 0 3 */
    double s = sqrt (5. / 3) + 1e-4;

    (void)state;
    o.rewards = 2;
    o.weights = weights;
    advantages (&o, r, NULL, 4, (double[]){-.5 / s, .5 / s, -1.5 / s, 1.5 / s});
}

/* Each reward has its own spread: 0, 1 and 0, 1000 count the same. */
static void test_normalize_then_sum (void **state)
{
    train_grpo_advantage_options_t o = GROUP;
    const float r[] = {1, 0, 0, 1000, 1, 1000, 0, 0};
    train_grpo_advantage_report_t report = {.size = sizeof (report)};
    float adv[4];

    (void)state;
    o.rewards = 2;
    o.combine = TRAIN_GRPO_NORMALIZE_THEN_SUM;
    assert_int_equal (
        train_grpo_advantages (&o, r, NULL, 4, adv, &report, NULL), TRAIN_OK);
    near_to (report.mean, 500.5, 0); /* of 1, 1000, 1001, 0, not of scores */
    near_to (report.deviation, sqrt (1000001. / 3), 1e-9);
    near_to ((double)adv[0], 0, 1e-3);
    near_to ((double)adv[1], 0, 1e-3);
    near_to ((double)adv[2], sqrt (1.5), 1e-3);
    near_to ((double)adv[3], -sqrt (1.5), 1e-3);
}

static void refuse (train_grpo_advantage_options_t o, const float *r, int64_t n,
                    const char *word)
{
    train_error_t err = {0};
    float adv[8];

    assert_int_equal (train_grpo_advantages (&o, r, NULL, n, adv, NULL, &err),
                      TRAIN_EINVAL);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
}

static void test_advantages_refused (void **state)
{
    const float r[] = {1, 0, 0, INFINITY};
    const double weights[] = {(double)NAN};
    train_grpo_advantage_options_t o = GROUP;

    (void)state;
    refuse (o, r, 4, "reward 0 of completion 3 is infinite");
    refuse (o, r, 3, "whole groups of 4");
    o.group = 1; /* ruc-datalab/DeepAnalyze#116 */
    refuse (o, r, 3, "a group of 1");
    o = GROUP;
    o.weights = weights;
    refuse (o, r, 4, "weight 0");
    o = GROUP;
    o.scale = (train_grpo_scale_t)3;
    refuse (o, r, 4, "scale 3");
    o = GROUP;
    o.eps = -1;
    refuse (o, r, 4, "eps");
}

static void test_mask (void **state)
{
    const int32_t ids[] = {5, 9, 5, 0, 5, 5, 5, 5, 9, 9, 0, 0, 5, 5, 9, 0};
    const int64_t lengths[] = {3, 4, 2, 2};
    const int32_t ends[] = {9, 8};
    uint8_t mask[16];
    int64_t counted[4];
    const uint8_t whole[] = {1, 1, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 0};
    train_error_t err = {0};

    (void)state;
    assert_int_equal (train_grpo_mask (ids, lengths, 4, 4, ends, 2, false, mask,
                                       counted, &err),
                      TRAIN_OK);
    assert_memory_equal (mask, whole, 16);
    assert_int_equal (counted[0] + counted[1] + counted[2] + counted[3], 9);
    assert_int_equal (train_grpo_mask (ids, lengths, 4, 4, ends, 2, true, mask,
                                       counted, &err),
                      TRAIN_OK);
    assert_int_equal (counted[1], 0); /* cut off: huggingface/trl#6369 */
    assert_int_equal (counted[3], 0);
    assert_int_equal (mask[4] + mask[5] + mask[12], 0);
    assert_int_equal (train_grpo_mask (ids, (int64_t[]){3, 5, 2, 2}, 4, 4, ends,
                                       2, true, mask, NULL, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "row 1 has 5"));
}

#define ROWS 6
#define LONG 5

/* Rows of several lengths, one of them empty; ratios on both sides of the clip. */
struct data {
    double logp[ROWS * LONG], old[ROWS * LONG], ref[ROWS * LONG],
        sampled[ROWS * LONG], adv[ROWS];
    uint8_t mask[ROWS * LONG];
};

static double hash (unsigned i)
{
    i = (i ^ 61u) ^ (i >> 16);
    i *= 9u;
    i ^= i >> 4;
    i *= 0x27d4eb2du;
    i ^= i >> 15;
    return (double)(i % 100003u) / 100003. * 2 - 1;
}

static struct data made (void)
{
    static const int length[ROWS] = {5, 3, 0, 1, 4, 5};
    struct data d;

    for (unsigned i = 0; i < ROWS * LONG; i++) {
        d.logp[i] = -2 + hash (i);
        d.old[i] = d.logp[i] + 0.45 * hash (i + 100);
        d.ref[i] = d.logp[i] + 0.8 * hash (i + 200);
        d.sampled[i] = d.old[i] + 0.5 * hash (i + 300);
        d.mask[i] = (int)(i % LONG) < length[i / LONG];
        if (!d.mask[i]) /* nobody may read it */
            d.logp[i] = d.old[i] = d.ref[i] = d.sampled[i] = (double)NAN;
    }
    for (unsigned b = 0; b < ROWS; b++)
        d.adv[b] = 1.5 * hash (b + 400);
    d.sampled[1] = (double)NAN; /* the sampler does not say */
    return d;
}

static double loss_of (const struct kern_grpo *o, const struct data *d,
                       double *grad)
{
    struct kern_grpo_row rows[ROWS];
    double sum = 0;

    kern_grpo_f64_host (rows, grad, o, d->logp, d->old, d->ref, d->sampled,
                        d->adv, d->mask, ROWS, LONG, NULL);
    for (int b = 0; b < ROWS; b++)
        sum += rows[b].loss;
    return sum;
}

static struct kern_grpo rules (const train_grpo_options_t *opts)
{
    train_grpo_whole_t whole = {
        .size = sizeof (whole), .rows = ROWS, .tokens = 18, .longest = LONG};
    train_error_t err = {0};
    struct kern_grpo o;

    if (grpo_rules (opts, &whole, &o, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return o;
}

/* Central differences; of CISPO, which does not differentiate its ratio, see
   test_cispo. */
static void differ (const train_grpo_options_t *opts, const char *name)
{
    struct kern_grpo o = rules (opts);
    struct data d = made ();
    double grad[ROWS * LONG], h = 1e-6, worst = 0, largest = 0;

    loss_of (&o, &d, grad);
    for (int i = 0; i < ROWS * LONG; i++) {
        double at = d.logp[i], up, down;

        if (!d.mask[i]) {
            assert_true (grad[i] == 0);
            continue;
        }
        d.logp[i] = at + h;
        up = loss_of (&o, &d, NULL);
        d.logp[i] = at - h;
        down = loss_of (&o, &d, NULL);
        d.logp[i] = at;
        worst = fmax (worst, fabs ((up - down) / (2 * h) - grad[i]));
        largest = fmax (largest, fabs (grad[i]));
    }
    assert_true (largest > 1e-3);
    if (worst > 1e-8)
        fail_msg ("%s: off by %g", name, worst);
}

#define OPTS(...)                                                              \
    &(train_grpo_options_t)                                                    \
    {                                                                          \
        .size = sizeof (train_grpo_options_t), __VA_ARGS__                     \
    }
#define DIFFER(...) differ (OPTS (__VA_ARGS__), #__VA_ARGS__)

static void test_differences (void **state)
{
    (void)state;
    DIFFER (.kind = TRAIN_GRPO);
    DIFFER (.kind = TRAIN_GRPO_DR, .low = 0.1, .high = 0.28);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .beta = 0.3);
    DIFFER (.kind = TRAIN_GRPO_BNPO, .beta = 0.3, .kl = TRAIN_GRPO_K2);
    DIFFER (.kind = TRAIN_GRPO_GSPO, .beta = 0.1, .kl = TRAIN_GRPO_K1);
    DIFFER (.kind = TRAIN_GRPO_SAPO);
    DIFFER (.kind = TRAIN_GRPO_SAPO, .sequence_ratio = true);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .sequence_ratio = true, .low = 0.05);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .delta = 1.3);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .dual = 1.2);
    DIFFER (.kind = TRAIN_GRPO, .correct = TRAIN_GRPO_TOKEN_TRUNCATE,
            .most = 1.2);
    DIFFER (.kind = TRAIN_GRPO, .correct = TRAIN_GRPO_TOKEN_MASK, .least = 0.9,
            .most = 1.3);
    DIFFER (.kind = TRAIN_GRPO_GSPO, .correct = TRAIN_GRPO_SEQUENCE_TRUNCATE,
            .most = 1.1);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .correct = TRAIN_GRPO_SEQUENCE_MASK,
            .least = 0.5, .beta = 0.1);
    DIFFER (.kind = TRAIN_GRPO_DAPO, .off_policy_mask = true,
            .off_policy = 0.01);
}

/* - weight A, the weight held still. */
static void test_cispo (void **state)
{
    struct data d = made ();
    double grad[ROWS * LONG];
    struct kern_grpo o = rules (OPTS (.kind = TRAIN_GRPO_CISPO, .cap = 1.1));

    (void)state;
    loss_of (&o, &d, grad);
    for (int i = 0; i < ROWS * LONG; i++) {
        double w = fmin (exp (d.logp[i] - d.old[i]), 1.1);

        near_to (grad[i], d.mask[i] ? -w * d.adv[i / LONG] / 18 : 0, 1e-15);
    }
    o = rules (OPTS (.kind = TRAIN_GRPO_CISPO_CLIP, .low = 0.1));
    loss_of (&o, &d, grad);
    for (int i = 0; i < ROWS * LONG; i++) {
        double w = fmax (0.9, fmin (exp (d.logp[i] - d.old[i]), 1.1));

        near_to (grad[i], d.mask[i] ? -w * d.adv[i / LONG] / 18 : 0, 1e-15);
    }
}

/* The mean of K1's slope is 1 everywhere, which pulls to nothing; with
   kl_gradient it is logp - ref (allenai/open-instruct#535). */
static void test_kl_gradient (void **state)
{
    struct data d = made ();
    double grad[ROWS * LONG];
    struct kern_grpo o =
        rules (OPTS (.kind = TRAIN_GRPO_DAPO, .beta = 0.5, .kl = TRAIN_GRPO_K1,
                     .kl_gradient = true));

    (void)state;
    memset (d.adv, 0, sizeof (d.adv));
    loss_of (&o, &d, grad);
    for (int i = 0; i < ROWS * LONG; i++)
        near_to (grad[i], d.mask[i] ? 0.5 * (d.logp[i] - d.ref[i]) / 18 : 0,
                 1e-15);
}

struct floats {
    float logp[ROWS * LONG], old[ROWS * LONG], ref[ROWS * LONG],
        sampled[ROWS * LONG], adv[ROWS];
    uint8_t mask[ROWS * LONG];
};

static struct floats narrowed (void)
{
    struct data d = made ();
    struct floats f;

    for (int i = 0; i < ROWS * LONG; i++) {
        f.logp[i] = (float)d.logp[i];
        f.old[i] = (float)d.old[i];
        f.ref[i] = (float)d.ref[i];
        f.sampled[i] = (float)d.sampled[i];
        f.mask[i] = d.mask[i];
    }
    for (int b = 0; b < ROWS; b++)
        f.adv[b] = (float)d.adv[b];
    return f;
}

static train_grpo_batch_t rows_from (const struct floats *f, int64_t b,
                                     int64_t n)
{
    int64_t at = b * LONG;

    return (train_grpo_batch_t){
        .size = sizeof (train_grpo_batch_t),
        .B = n,
        .T = LONG,
        .logp = f->logp + at,
        .old = f->old + at,
        .ref = f->ref + at,
        .sampled = f->sampled + at,
        .adv = f->adv + b,
        .mask = f->mask + at,
    };
}

/* Each kind, the step whole and cut in every way in two: the same gradients and
   the same loss (verl-project/verl#7321, #906, #5641). */
static void test_splits (void **state)
{
    struct floats f = narrowed ();
    train_grpo_whole_t whole = {
        .size = sizeof (whole), .rows = ROWS, .tokens = 18, .longest = LONG};

    (void)state;
    for (int kind = TRAIN_GRPO; kind <= TRAIN_GRPO_SAPO; kind++)
        for (int cut = 0; cut <= ROWS; cut++) {
            train_grpo_options_t o = {.size = sizeof (o),
                                      .kind = (train_grpo_kind_t)kind,
                                      .beta = 0.1};
            train_grpo_report_t all = {.size = sizeof (all)}, one = all,
                                two = all;
            train_grpo_batch_t batch[] = {rows_from (&f, 0, ROWS),
                                          rows_from (&f, 0, cut),
                                          rows_from (&f, cut, ROWS - cut)};
            float g[ROWS * LONG], part[ROWS * LONG];
            train_error_t err = {0};

            if (train_grpo_loss (&o, &whole, &batch[0], g, &all, &err)
                || train_grpo_loss (&o, &whole, &batch[1], part, &one, &err)
                || train_grpo_loss (&o, &whole, &batch[2], part + cut * LONG,
                                    &two, &err))
                fail_msg ("%s", err.text);
            assert_memory_equal (g, part, sizeof (g));
            near_to (one.loss + two.loss, all.loss, 1e-15);
            assert_int_equal (all.tokens, 18);
            assert_int_equal (one.tokens + two.tokens, 18);
        }
}

/* The first pass of a step: the value is the mean of -A, the gradient is not 0
   (huggingface/trl#2703). */
static void test_on_policy (void **state)
{
    struct floats f = narrowed ();
    train_grpo_whole_t whole = {.size = sizeof (whole), .rows = 2, .tokens = 8};
    train_grpo_options_t o = {.size = sizeof (o), .kind = TRAIN_GRPO_DAPO};
    train_grpo_report_t report = {.size = sizeof (report)};
    train_grpo_batch_t batch = rows_from (&f, 0, 2);
    float g[2 * LONG];

    (void)state;
    f.adv[0] = 3;  /* 5 tokens */
    f.adv[1] = -5; /* 3 tokens */
    batch.old = NULL;
    batch.ref = NULL; /* nor is that needed: OpenRLHF/OpenRLHF#773 */
    assert_int_equal (train_grpo_loss (&o, &whole, &batch, g, &report, NULL),
                      TRAIN_OK);
    near_to (report.loss, 0, 1e-15);
    near_to (report.ratio_sum, 8, 0);
    near_to ((double)g[0], -3. / 8, 1e-7);
    near_to ((double)g[LONG], 5. / 8, 1e-7);
}

/* 0 over 0 is 0 (huggingface/trl#3248, verl-project/verl#785). */
static void test_all_masked (void **state)
{
    struct floats f = narrowed ();
    train_grpo_whole_t whole = {
        .size = sizeof (whole), .rows = ROWS, .tokens = 0, .longest = LONG};

    (void)state;
    memset (f.mask, 0, sizeof (f.mask));
    for (int kind = TRAIN_GRPO; kind <= TRAIN_GRPO_SAPO; kind++) {
        train_grpo_options_t o = {.size = sizeof (o),
                                  .kind = (train_grpo_kind_t)kind,
                                  .beta = 0.1,
                                  .correct = TRAIN_GRPO_TOKEN_MASK};
        train_grpo_report_t report = {.size = sizeof (report)};
        train_grpo_batch_t batch = rows_from (&f, 0, ROWS);
        float g[ROWS * LONG];

        memset (g, 0xff, sizeof (g));
        assert_int_equal (
            train_grpo_loss (&o, &whole, &batch, g, &report, NULL), TRAIN_OK);
        assert_true (report.loss == 0 && report.kl_sum == 0);
        for (int i = 0; i < ROWS * LONG; i++)
            assert_true (g[i] == 0);
    }
}

/* What is not a number where it counts is seen in both. */
static void test_not_finite (void **state)
{
    struct floats f = narrowed ();
    train_grpo_whole_t whole = {
        .size = sizeof (whole), .rows = ROWS, .tokens = 18};
    train_grpo_options_t o = {.size = sizeof (o)};
    train_grpo_report_t report = {.size = sizeof (report)};
    train_grpo_batch_t batch = rows_from (&f, 0, ROWS);
    float g[ROWS * LONG];

    (void)state;
    f.logp[2] = (float)NAN;
    assert_int_equal (train_grpo_loss (&o, &whole, &batch, g, &report, NULL),
                      TRAIN_OK);
    assert_true (isnan (report.loss));
    assert_true (isnan (g[2]));
    assert_true (isfinite (g[LONG]));
}

static void refuse_loss (train_grpo_options_t o, train_grpo_whole_t whole,
                         train_grpo_batch_t batch, const char *word)
{
    train_grpo_report_t report = {.size = sizeof (report)};
    train_error_t err = {0};

    o.size = sizeof (o);
    whole.size = sizeof (whole);
    assert_int_equal (train_grpo_loss (&o, &whole, &batch, NULL, &report, &err),
                      TRAIN_EINVAL);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
}

#define REFUSE(word, ...)                                                      \
    refuse_loss ((train_grpo_options_t){__VA_ARGS__}, whole, batch, word)

static void test_loss_refused (void **state)
{
    struct floats f = narrowed ();
    train_grpo_whole_t whole = {.rows = ROWS, .tokens = 18};
    train_grpo_batch_t batch = rows_from (&f, 0, ROWS);

    (void)state;
    REFUSE ("kind 8", .kind = (train_grpo_kind_t)8);
    REFUSE ("low 1", .low = 1);
    REFUSE ("high -1", .high = -1);
    REFUSE ("delta 1.1", .delta = 1.1);
    REFUSE ("dual 0.5", .dual = 0.5);
    REFUSE ("cap -1", .cap = -1);
    REFUSE ("tau_negative -1", .tau_negative = -1);
    REFUSE ("beta -1", .beta = -1);
    REFUSE ("kl 3", .kl = (train_grpo_kl_t)3);
    REFUSE ("correct 5", .correct = (train_grpo_correct_t)5);
    REFUSE ("least 4", .least = 4);
    REFUSE ("off_policy -1", .off_policy_mask = true, .off_policy = -1);
    REFUSE ("longest 0", .kind = TRAIN_GRPO_DR);
    whole.rows = ROWS - 1;
    REFUSE ("5 rows", .kind = TRAIN_GRPO);
    whole.tokens = 17;
    REFUSE ("17 tokens and this batch 18", .kind = TRAIN_GRPO_DAPO);
    whole = (train_grpo_whole_t){.rows = ROWS, .tokens = 18};
    batch.ref = NULL; /* needed with beta alone: OpenRLHF/OpenRLHF#773 */
    REFUSE ("no ref", .beta = 0.1);
    batch.sampled = NULL;
    REFUSE ("no sampled", .correct = TRAIN_GRPO_TOKEN_MASK);
    batch.mask = NULL;
    REFUSE ("no mask", .kind = TRAIN_GRPO);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_group),
        cmocka_unit_test (test_batch_scale),
        cmocka_unit_test (test_left_out),
        cmocka_unit_test (test_no_spread),
        cmocka_unit_test (test_several),
        cmocka_unit_test (test_normalize_then_sum),
        cmocka_unit_test (test_advantages_refused),
        cmocka_unit_test (test_mask),
        cmocka_unit_test (test_differences),
        cmocka_unit_test (test_cispo),
        cmocka_unit_test (test_kl_gradient),
        cmocka_unit_test (test_splits),
        cmocka_unit_test (test_on_policy),
        cmocka_unit_test (test_all_masked),
        cmocka_unit_test (test_not_finite),
        cmocka_unit_test (test_loss_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
