/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_trainer.c - the loop of GRPO on a task of one token: it learns, by
 * ranks and micro-batches alike, and goes on where it stopped */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <train/grpo_trainer.h>

#include "decoder_impl.h"
#include "group_ranks.h"
#include "grpo_task.h"
#include "own_dir.h"

static train_group_t *group; /* of this process alone */

static struct run make (const train_grpo_trainer_options_t *o,
                        train_dtype_t dtype)
{
    train_error_t err = {0};
    struct run r;

    if (open_run (&r, o, group, dtype, score, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

static double try_now (struct run *r)
{
    double reward = NAN;

    assert_int_equal (train_grpo_trainer_try (r->trainer, &prompts, PROMPTS, 0,
                                              score, NULL, &reward, NULL),
                      TRAIN_OK);
    return reward;
}

/* Chance is one in twelve. */
static double learn (train_grpo_trainer_options_t o, int steps)
{
    struct run r = make (&o, TRAIN_F32);
    double ret;

    assert_true (try_now (&r) <= 0.5);
    for (int i = 0; i < steps; i++)
        step (&r);
    ret = try_now (&r);
    close_run (&r);
    return ret;
}

static void test_learns (void **state)
{
    train_grpo_trainer_options_t o = options ();

    (void)state;
    assert_true (learn (o, 120) == 1);
    o.mix = true; /* the control */
    assert_true (learn (o, 120) <= 0.5);
}

/* Every kind of loss, each with what asks most of the loop: several steps and
 * passes of a cycle, and a reference. */
static void test_kinds (void **state)
{
    (void)state;
    for (int kind = TRAIN_GRPO; kind <= TRAIN_GRPO_SAPO; kind++) {
        train_grpo_trainer_options_t o = options ();

        o.loss.kind = (train_grpo_kind_t)kind;
        o.loss.beta = kind % 2 ? 0.001 : 0;
        o.steps = 2;
        o.iterations = 2;
        o.trainer.batch = 32;
        o.trainer.micro_batch = 5;
        if (learn (o, 200) < 0.625)
            fail_msg ("kind %d has learnt nothing", kind);
    }
}

/* What the first steps say of themselves. */
static void test_metrics (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t m;
    struct run r;
    const train_grpo_sample_t *s;
    double reward = 0, length = 0;
    int n;

    (void)state;
    o.loss.beta = 0.1;
    o.iterations = 2;
    r = make (&o, TRAIN_F64);
    assert_true (train_grpo_trainer_between (r.trainer));
    train_grpo_trainer_samples (r.trainer, &n);
    assert_int_equal (n, 0);
    m = step (&r);
    assert_int_equal (m.cycle, 1);
    assert_true (fabs (m.kl) < 1e-6 && fabs (m.ratio - 1) < 1e-6);
    assert_true (m.clip_low == 0 && m.clip_high == 0);
    assert_true (m.entropy > 2.3 && m.entropy < log (V));
    assert_int_equal (m.none, 0);
    s = train_grpo_trainer_samples (r.trainer, &n);
    assert_int_equal (n, 64);
    for (int i = 0; i < n; i++) {
        assert_int_equal (s[i].prompt, s[i - i % 8].prompt);
        assert_true (s[i].cut == (s[i].ids[s[i].n - 1] != END));
        assert_true (s[i].cut == (s[i].n == 3 && s[i].ids[2] != END));
        reward += (double)s[i].rewards[0] / n;
        length += (double)s[i].n / n;
    }
    assert_true (fabs (m.reward - reward) < 1e-6);
    assert_true (fabs (m.length - length) < 1e-6);
    assert_int_equal (m.rollout_tokens, lrint (length * n));
    assert_false (train_grpo_trainer_between (r.trainer));
    m = step (&r);
    assert_true (m.cycle == 1 && m.rollout_tokens == 0 && m.rollout_s == 0);
    assert_true (m.kl > 1e-9 && fabs (m.ratio - 1) > 1e-9);
    assert_true (train_grpo_trainer_between (r.trainer));
    assert_int_equal (step (&r).cycle, 2);
    close_run (&r);
}

/* The copy stays as it was, and what is done to it is seen. */
static void test_reference (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_error_t err = {0};
    const int32_t ids[4] = {3, 1, 4, 9}, total[1] = {4};
    float before[4], after[4];
    struct run r;
    train_reference_t *live = NULL;

    (void)state;
    o.loss.beta = 0.1;
    r = make (&o, TRAIN_F32);
    assert_int_equal (train_reference_open_decoder (r.decoder, &live, NULL),
                      TRAIN_OK);
    assert_int_equal (
        train_reference_logps (live, ids, NULL, total, 1, 4, 0.5, before, NULL),
        TRAIN_OK);
    for (int i = 0; i < 3; i++)
        step (&r);
    assert_int_equal (train_reference_check (r.reference, NULL), TRAIN_OK);
    assert_int_equal (train_reference_logps (r.reference, ids, NULL, total, 1,
                                             4, 0.5, after, NULL),
                      TRAIN_OK);
    assert_memory_equal (after, before, sizeof (after));
    assert_int_equal (
        train_reference_logps (live, ids, NULL, total, 1, 4, 0.5, after, NULL),
        TRAIN_OK);
    assert_memory_not_equal (after, before, sizeof (after));
    train_reference_close (live);
    live = NULL;
    assert_int_equal (train_reference_open_copy (r.decoder, &live, NULL),
                      TRAIN_OK);
    assert_int_equal (train_reference_check (live, &err), TRAIN_OK);
    train_reference_close (live);
    close_run (&r);
}

/* Twice the way, and half of it twice: the same bits. */
static void test_resume (void **state)
{
    train_grpo_trainer_options_t o = options ();
    struct run a, b;
    train_error_t err = {0};

    (void)state;
    o.iterations = 2;
    o.loss.beta = 0.01;
    a = make (&o, TRAIN_F32);
    b = make (&o, TRAIN_F32);
    for (int i = 0; i < 4; i++)
        step (&a);
    assert_int_equal (train_trainer_save (train_grpo_trainer_base (a.trainer),
                                          "between", 1, NULL),
                      TRAIN_OK);
    step (&a);
    assert_int_equal (train_trainer_save (train_grpo_trainer_base (a.trainer),
                                          "amid", 1, NULL),
                      TRAIN_OK);
    step (&a);
    assert_int_equal (
        train_trainer_load (train_grpo_trainer_base (b.trainer), "amid", NULL),
        TRAIN_OK);
    assert_int_equal (train_grpo_trainer_step (b.trainer, false, NULL, &err),
                      TRAIN_ESTATE);
    assert_non_null (strstr (err.text, "mid-cycle"));
    assert_int_equal (train_trainer_load (train_grpo_trainer_base (b.trainer),
                                          "between", NULL),
                      TRAIN_OK);
    step (&b);
    step (&b);
    assert_memory_equal (train_decoder_weights (a.decoder)->data,
                         train_decoder_weights (b.decoder)->data,
                         train_decoder_numel (a.decoder) * sizeof (float));
    close_run (&b);
    o.loss.low = 0.1; /* another loss is another run */
    b = make (&o, TRAIN_F32);
    assert_int_equal (train_trainer_load (train_grpo_trainer_base (b.trainer),
                                          "between", &err),
                      TRAIN_EINVAL);
    close_run (&a);
    close_run (&b);
}

static double as_double (uint64_t bits)
{
    double x;

    memcpy (&x, &bits, sizeof (x));
    return x;
}

/* A rank's part: what it saw is the sum of its losses, norms and rewards. */
static void train (struct job *job, int rank, train_group_t *ranks)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t m = {.size = sizeof (m)};
    struct seen *seen = &job->shared->seen[rank];
    double sum = 0;
    struct run r;

    o.steps = 2;
    o.trainer.batch = 12;
    o.group = 3;
    o.loss.beta = 0.05;
    o.trainer.micro_batch = job->arg;
    seen->status = open_run (&r, &o, ranks, TRAIN_F64, score, &seen->err);
    for (int i = 0; i < 6 && seen->status == TRAIN_OK; i++) {
        seen->status =
            train_grpo_trainer_step (r.trainer, false, &m, &seen->err);
        sum += m.base.loss + m.base.grad_norm + m.reward + m.kl + m.entropy
               + m.length + m.ratio;
    }
    memcpy (&job->shared->hash[rank], &sum, sizeof (sum));
    close_run (&r);
}

static double by_ranks (const char *layout, int micro)
{
    struct job job = {.layout = layout, .body = train, .arg = micro};
    double ret;

    run_job (&job);
    want_ok (&job);
    ret = as_double (job.shared->hash[0]);
    for (size_t i = 1; i < strlen (layout); i++)
        assert_true (job.shared->hash[i] == job.shared->hash[0]);
    free_job (&job);
    return ret;
}

/* 8 groups of 3 on 2 ranks come out even, on 3 and 5 they do not. */
static void test_ranks (void **state)
{
    double want = by_ranks ("a", 0);

    (void)state;
    assert_true (isfinite (want) && want > 1);
    for (int micro = 0; micro <= 3; micro += 3) {
        assert_true (fabs (by_ranks ("ab", micro) - want) < 1e-6);
        assert_true (fabs (by_ranks ("aab", micro) - want) < 1e-6);
        assert_true (fabs (by_ranks ("aabbb", micro) - want) < 1e-6);
    }
}

static void test_refused (void **state)
{
    static const struct {
        size_t at;
        int value;
        const char *text;
    } bad[] = {
#define FIELD(f) offsetof (train_grpo_trainer_options_t, f)
        {FIELD (group), 1, "group 1 is not at least 2"},
        {FIELD (group), 5, "is not a multiple of group 5"},
        {FIELD (max_new), 0, "max_new 0"},
        {FIELD (steps), -1, "steps -1"},
        {FIELD (iterations), -1, "iterations -1"},
        {FIELD (trainer.strategy), TRAIN_FULL_SHARD, "shards it"},
    };
    train_grpo_trainer_options_t o;
    train_error_t err = {0};
    struct run r;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        o = options ();
        memcpy ((char *)&o + bad[i].at, &bad[i].value, sizeof (int));
        assert_true (open_run (&r, &o, group, TRAIN_F32, score, &err)
                     != TRAIN_OK);
        if (!strstr (err.text, bad[i].text))
            fail_msg ("%s", err.text);
        close_run (&r);
    }
    o = options ();
    o.temperature = -1;
    assert_int_equal (open_run (&r, &o, group, TRAIN_F32, score, &err),
                      TRAIN_EINVAL);
    close_run (&r);
}

static int set_up (void **state)
{
    return make_dir (state) || chdir (dir) < 0
           || train_group_create (NULL, &group, NULL);
}

static int tear_down (void **state)
{
    train_group_destroy (group);
    return chdir ("/") < 0 || remove_dir (state);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_learns),  cmocka_unit_test (test_kinds),
        cmocka_unit_test (test_metrics), cmocka_unit_test (test_reference),
        cmocka_unit_test (test_resume),  cmocka_unit_test (test_ranks),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
