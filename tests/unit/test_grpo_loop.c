/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_loop.c - what a step of GRPO counts: cut completions, rewards that
 * are all alike, the temperature, a step that is made again, ranks without rows */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <train/grpo_trainer.h>
#include <train/policy.h>
#include <train/watch.h>

#include "decoder_impl.h"
#include "group_ranks.h"
#include "grpo_task.h"
#include "slow_run.h"
#include "trainer.h"

enum { LONG = 6, G = 8, ALL = 64 };

static train_group_t *group; /* of this process alone */

static struct run make (const train_grpo_trainer_options_t *o,
                        train_dtype_t dtype, train_grpo_score_t by)
{
    train_error_t err = {0};
    struct run r;

    if (open_run (&r, o, group, dtype, by, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

/* The first token; far less for what came to no end. */
static train_status_t by_token (void *arg, const train_grpo_sample_t *s, int n,
                                float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] = s[i].cut ? -1000 : (float)s[i].ids[0];
    return TRAIN_OK;
}

static train_status_t all_alike (void *arg, const train_grpo_sample_t *s, int n,
                                 float *ret, train_error_t *err)
{
    (void)arg, (void)s, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] = 0.1f;
    return TRAIN_OK;
}

/* As the formula has it, over those of a group that are not cut. */
static double advantage (const train_grpo_sample_t *s, int k)
{
    double n = 0, mean = 0, squares = 0;
    const train_grpo_sample_t *of = s + k / G * G;

    for (int i = 0; i < G; i++)
        if (!of[i].cut) {
            n++;
            mean += (double)of[i].rewards[0];
        }
    if (s[k].cut || n < 2)
        return 0;
    mean /= n;
    for (int i = 0; i < G; i++)
        if (!of[i].cut)
            squares += pow ((double)of[i].rewards[0] - mean, 2);
    return ((double)s[k].rewards[0] - mean) / (sqrt (squares / (n - 1)) + 1e-4);
}

/* On its own policy a step's loss is the mean of -A. */
static double loss_of (const train_grpo_sample_t *s, train_grpo_kind_t kind,
                       int64_t *ret_tokens)
{
    double by_token = 0, by_row = 0;

    *ret_tokens = 0;
    for (int k = 0; k < ALL; k++) {
        double A = advantage (s, k);

        if (fabs (A - (double)s[k].advantage) > 1e-5)
            fail_msg ("completion %d: advantage %g, not %g", k,
                      (double)s[k].advantage, A);
        by_token -= A * s[k].n;
        by_row -= A;
        *ret_tokens += s[k].cut ? 0 : s[k].n;
    }
    return kind == TRAIN_GRPO      ? by_row / ALL
           : kind == TRAIN_GRPO_DR ? by_token / (ALL * LONG)
                                   : by_token / (double)*ret_tokens;
}

/* A cut completion is in no numerator, denominator or baseline, however rows are
 * cut into passes (huggingface/trl#6369, OpenRLHF/OpenRLHF#1239); a value near 0
 * is no gradient of 0 (huggingface/trl#2703). */
static void test_cut (void **state)
{
    static const train_grpo_kind_t kinds[] = {TRAIN_GRPO, TRAIN_GRPO_DR,
                                              TRAIN_GRPO_DAPO};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        train_grpo_trainer_options_t o = options ();
        const train_grpo_sample_t *s;
        train_grpo_metrics_t m;
        struct run r;
        int64_t tokens;
        double want;
        int n;

        o.loss.kind = kinds[i % 3];
        o.max_new = LONG;
        o.drop_cut = true;
        o.trainer.micro_batch = i < 3 ? 0 : 5;
        r = make (&o, TRAIN_F64, by_token);
        m = step (&r);
        s = train_grpo_trainer_samples (r.trainer, &n);
        assert_int_equal (n, ALL);
        assert_true (m.cut > 0.2 && m.cut < 0.8);
        want = loss_of (s, kinds[i % 3], &tokens);
        assert_int_equal (m.base.tokens, tokens);
        if (fabs (m.base.loss - want) > 1e-6)
            fail_msg ("kind %d: loss %g, not %g", (int)kinds[i % 3],
                      m.base.loss, want);
        assert_true (m.base.grad_norm > 1e-3);
        close_run (&r);
    }
}

static void learns_nothing (const train_grpo_trainer_options_t *o,
                            train_grpo_score_t by, int64_t tokens)
{
    struct run r = make (o, TRAIN_F32, by);
    size_t bytes = train_decoder_numel (r.decoder) * sizeof (float);
    void *weights = train_decoder_weights (r.decoder)->data;
    void *before = malloc (bytes);
    train_grpo_metrics_t m;

    assert_non_null (before);
    memcpy (before, weights, bytes);
    m = step (&r);
    if (m.base.loss != 0 || m.base.grad_norm != 0 || m.base.skipped)
        fail_msg ("kind %d: loss %g, norm %g", (int)o->loss.kind, m.base.loss,
                  m.base.grad_norm);
    assert_true (tokens < 0 ? m.base.tokens > 0 : m.base.tokens == tokens);
    assert_true (isfinite (m.reward) == !o->drop_cut); /* all are cut */
    assert_true (isfinite (m.ratio) && isfinite (m.entropy) && isfinite (m.kl));
    assert_memory_equal (weights, before, bytes);
    free (before);
    close_run (&r);
}

static train_status_t none_at_all (void *arg, const train_grpo_sample_t *s,
                                   int n, float *ret, train_error_t *err)
{
    (void)arg, (void)s, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] = NAN;
    return TRAIN_OK;
}

/* No reward is no reward of 0. */
static void test_no_reward (void **state)
{
    train_grpo_trainer_options_t o = options ();
    struct run r = make (&o, TRAIN_F32, none_at_all);
    train_grpo_metrics_t m = step (&r);

    (void)state;
    assert_int_equal (m.none, ALL);
    assert_true (isnan (m.reward) && isnan (m.reward_std));
    assert_true (m.base.loss == 0 && m.base.grad_norm == 0);
    close_run (&r);
    r = make (&o, TRAIN_F32, all_alike);
    m = step (&r);
    assert_true (fabs (m.reward - 0.1) < 1e-6 && m.reward_std == 0);
    close_run (&r);
}

/* Of the first for two texts in three, of the second none, of the third one. */
static train_status_t three (void *arg, const train_grpo_sample_t *s, int n,
                             float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++) {
        ret[3 * i] = s[i].ids[0] % 3 == 2 ? NAN : (float)s[i].ids[0] / 8;
        ret[3 * i + 1] = NAN;
        ret[3 * i + 2] = i == 1 ? 0.75F : NAN;
    }
    return TRAIN_OK;
}

/* Reward [r] of those that are not cut, in one pass. */
static train_grpo_spread_t spread (const train_grpo_sample_t *s, int n, int r)
{
    train_grpo_spread_t is = {0};
    double sum = 0, squares = 0;

    for (int k = 0; k < n; k++) {
        double x = (double)s[k].rewards[r];

        if (isnan (x) || s[k].cut)
            continue;
        is.n++;
        sum += x;
        squares += x * x;
    }
    is.mean = sum / (double)is.n;
    is.deviation =
        sqrt ((squares - sum * is.mean) / (double)(is.n > 1 ? is.n - 1 : 1));
    return is;
}

/* Each reward is told by itself, without its weight, of what counts. */
static void test_rewards (void **state)
{
    train_grpo_trainer_options_t o = options ();
    static const double weights[] = {-2, 1, 1};
    train_grpo_spread_t got[3], want;
    const train_grpo_sample_t *s;
    train_error_t err = {0};
    struct run r;
    int n, cut = 0;

    (void)state;
    o.max_new = LONG;
    o.drop_cut = true;
    o.rewards = 3;
    o.weights = weights;
    r = make (&o, TRAIN_F32, three);
    assert_int_equal (train_grpo_trainer_rewards (r.trainer, got, &err),
                      TRAIN_ESTATE);
    step (&r);
    assert_int_equal (train_grpo_trainer_rewards (r.trainer, got, &err),
                      TRAIN_OK);
    s = train_grpo_trainer_samples (r.trainer, &n);
    for (int k = 0; k < n; k++)
        cut += s[k].cut;
    want = spread (s, n, 0);
    assert_true (cut > 0 && want.n > 8 && want.n < n - cut);
    assert_int_equal (got[0].n, want.n);
    assert_true (fabs (got[0].mean - want.mean) < 1e-9);
    assert_true (fabs (got[0].deviation - want.deviation) < 1e-9);
    assert_true (got[1].n == 0 && isnan (got[1].mean)
                 && isnan (got[1].deviation));
    assert_int_equal (got[2].n, !s[1].cut);
    if (got[2].n == 1)
        assert_true (got[2].mean == 0.75 && got[2].deviation == 0);
    close_run (&r);
}

/* Where all are cut there is nothing over nothing (huggingface/trl#3248,
 * verl-project/verl#785), where all are alike no advantage. */
static void test_nothing (void **state)
{
    (void)state;
    for (int kind = TRAIN_GRPO; kind <= TRAIN_GRPO_SAPO; kind++) {
        train_grpo_trainer_options_t o = options ();

        o.loss.kind = (train_grpo_kind_t)kind;
        learns_nothing (&o, all_alike, -1);
        o.n_ends = 0;
        o.drop_cut = true;
        o.loss.beta = 0.1;
        learns_nothing (&o, by_token, 0);
    }
}

/* Mean entropy of what was written, by a decoder as it was. */
static double entropy_of (train_decoder_t *m, const train_grpo_sample_t *s,
                          double temperature)
{
    double sum = 0, tokens = 0;

    for (int k = 0; k < ALL; k++) {
        int32_t said[LONG];
        float logp[LONG], entropy[LONG];

        said[0] = prompt[s[k].prompt];
        memcpy (said + 1, s[k].ids, (size_t)(s[k].n - 1) * sizeof (*said));
        assert_int_equal (train_decoder_logps (logp, entropy, m, said, s[k].ids,
                                               1, s[k].n, temperature, NULL),
                          TRAIN_OK);
        for (int t = 0; t < s[k].n; t++)
            sum += (double)entropy[t];
        tokens += s[k].n;
    }
    return sum / tokens;
}

/* Who samples, who trains and the reference have one temperature
 * (huggingface/trl#3029). */
static void test_temperature (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t m;
    const train_grpo_sample_t *s;
    struct run r, twin;
    double want;
    int n;

    (void)state;
    o.max_new = LONG;
    o.temperature = 0.25;
    o.old_is_sampler = true;
    o.loss.beta = 0.1;
    o.loss.correct = TRAIN_GRPO_TOKEN_MASK;
    r = make (&o, TRAIN_F64, by_token);
    twin = make (&o, TRAIN_F64, by_token);
    train_grpo_trainer_destroy (twin.trainer); /* its decoder is free now */
    twin.trainer = NULL;
    m = step (&r);
    s = train_grpo_trainer_samples (r.trainer, &n);
    assert_int_equal (n, ALL);
    want = entropy_of (twin.decoder, s, 0.25);
    assert_true (fabs (m.entropy - want) < 1e-6);
    assert_true (fabs (entropy_of (twin.decoder, s, 1) - want) > 1e-3);
    assert_true (fabs (m.ratio - 1) < 1e-6 && fabs (m.kl) < 1e-6);
    assert_true (fabs (m.correction - 1) < 1e-6 && m.dropped == 0);
    close_run (&twin);
    close_run (&r);
}

/* A cycle's second step is off its policy: what is worse and has become less
 * likely is left out, and counted. */
static void test_off_policy (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t m;
    struct run r;

    (void)state;
    o.iterations = 2;
    o.trainer.schedule.lr = 0.05;
    o.loss.off_policy_mask = true;
    o.loss.off_policy = 0.05;
    r = make (&o, TRAIN_F64, by_token);
    m = step (&r);
    assert_int_equal (m.dropped, 0);
    m = step (&r);
    assert_true (m.dropped > 0 && m.dropped < ALL);
    close_run (&r);
}

/* Once the texts are there, nothing is a number. */
static train_status_t poison (void *arg, const train_grpo_sample_t *s, int n,
                              float *ret, train_error_t *err)
{
    float *weights = train_decoder_weights (arg)->data;

    weights[0] = NAN;
    return by_token (arg, s, n, ret, err);
}

/* A step without finite gradients is made again to look for the first value: it
 * is reported once. */
static void test_again (void **state)
{
    train_grpo_trainer_options_t o = options ();
    const train_grpo_sample_t *s;
    train_grpo_metrics_t m;
    struct run r;
    int64_t tokens;
    double want;
    int n;

    (void)state;
    o.max_new = LONG;
    o.drop_cut = true;
    o.trainer.micro_batch = 9;
    r = make (&o, TRAIN_F32, poison);
    m = step (&r);
    assert_true (m.base.skipped);
    s = train_grpo_trainer_samples (r.trainer, &n);
    assert_int_equal (n, ALL);
    want = loss_of (s, TRAIN_GRPO_DAPO, &tokens);
    assert_true (fabs (want) > 1e-3);
    if (!(fabs (m.base.loss - want) < 1e-5))
        fail_msg ("loss %g, not %g", m.base.loss, want);
    close_run (&r);
}

static void train (struct job *job, int rank, train_group_t *ranks)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t m = {.size = sizeof (m)};
    struct seen *seen = &job->shared->seen[rank];
    double sum = 0;
    struct run r;

    o.trainer.batch = 3;
    o.trainer.strategy = (train_strategy_t)job->arg;
    o.group = 3;
    o.iterations = 2;
    o.loss.beta = 0.05;
    seen->status = open_run (&r, &o, ranks, TRAIN_F64, by_token, &seen->err);
    for (int i = 0; i < 4 && seen->status == TRAIN_OK; i++) {
        seen->status =
            train_grpo_trainer_step (r.trainer, false, &m, &seen->err);
        sum += m.base.loss + m.base.grad_norm + m.reward + m.kl + m.entropy
               + m.length + m.ratio;
    }
    memcpy (&job->shared->hash[rank], &sum, sizeof (sum));
    close_run (&r);
}

static double by_ranks (const char *layout, int strategy)
{
    struct job job = {.layout = layout, .body = train, .arg = strategy};
    double ret;

    run_job (&job);
    want_ok (&job);
    memcpy (&ret, &job.shared->hash[0], sizeof (ret));
    for (size_t i = 1; i < strlen (layout); i++)
        assert_true (job.shared->hash[i] == job.shared->hash[0]);
    free_job (&job);
    return ret;
}

/* Rank 1 sleeps in its passes. */
static void slow_rank (struct job *job, int rank, train_group_t *ranks)
{
    train_grpo_trainer_options_t o = options ();
    struct seen *seen = &job->shared->seen[rank];
    char line[240] = "";
    int slow = -2;
    struct run r;

    seen->status = open_run (&r, &o, ranks, TRAIN_F32, by_token, &seen->err);
    if (seen->status == TRAIN_OK)
        be_slow_or_wait (train_grpo_trainer_base (r.trainer), r.decoder, rank);
    for (int i = 0; i < 6 && seen->status == TRAIN_OK; i++)
        seen->status =
            train_grpo_trainer_step (r.trainer, false, NULL, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status =
            train_trainer_slow (train_grpo_trainer_base (r.trainer), 1.5, &slow,
                                line, sizeof (line), &seen->err);
    if (slow != 1 || !strstr (line, "of its own for a token of the batch"))
        snprintf (seen->note, sizeof (seen->note), "%d: %.150s", slow, line);
    close_run (&r);
}

static void test_slow (void **state)
{
    struct job job = {.layout = "abb", .body = slow_rank};

    (void)state;
    run_job (&job);
    want_ok (&job);
    for (int i = 0; i < 3; i++)
        if (*job.shared->seen[i].note)
            fail_msg ("%s", job.shared->seen[i].note);
    free_job (&job);
}

/* Three completions on five ranks: two write nothing, score nothing and have no
 * gradients, and take part (facebookresearch/optimizers#149). */
static void test_few (void **state)
{
    double want = by_ranks ("a", TRAIN_NO_SHARD);

    (void)state;
    assert_true (isfinite (want) && want != 0);
    assert_true (fabs (by_ranks ("aabbb", TRAIN_NO_SHARD) - want) < 1e-6);
    assert_true (fabs (by_ranks ("aabbb", TRAIN_DDP) - want) < 1e-6);
}

static int set_up (void **state)
{
    (void)state;
    return train_group_create (NULL, &group, NULL) != TRAIN_OK;
}

static int tear_down (void **state)
{
    (void)state;
    train_group_destroy (group);
    return 0;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_cut),        cmocka_unit_test (test_nothing),
        cmocka_unit_test (test_no_reward),  cmocka_unit_test (test_temperature),
        cmocka_unit_test (test_off_policy), cmocka_unit_test (test_again),
        cmocka_unit_test (test_few),        cmocka_unit_test (test_slow),
        cmocka_unit_test (test_rewards),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
