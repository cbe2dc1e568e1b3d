/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_trainer.c - the loop of GRPO on a task of one token: it learns, by
 * ranks and micro-batches alike, and goes on where it stopped */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <train/grpo_trainer.h>

#include "decoder_impl.h"
#include "group_ranks.h"
#include "grpo_run.h"
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

static void save (struct run *r, const char *dir)
{
    train_error_t err = {0};

    if (train_trainer_save (train_grpo_trainer_base (r->trainer), dir, 9, &err)
        != TRAIN_OK)
        fail_msg ("%s", err.text);
}

static train_status_t load (struct run *r, const char *dir, train_error_t *err)
{
    return train_trainer_load (train_grpo_trainer_base (r->trainer), dir, err);
}

/* All but the times. */
static void same_metrics (train_grpo_metrics_t a, train_grpo_metrics_t b)
{
    double x[] = {a.reward,     a.reward_std,    a.zero_spread, a.length,
                  a.length_min, a.length_max,    a.cut,         a.kl,
                  a.entropy,    a.ratio,         a.clip_low,    a.clip_high,
                  a.base.loss,  a.base.grad_norm};
    double y[] = {b.reward,     b.reward_std,    b.zero_spread, b.length,
                  b.length_min, b.length_max,    b.cut,         b.kl,
                  b.entropy,    b.ratio,         b.clip_low,    b.clip_high,
                  b.base.loss,  b.base.grad_norm};

    assert_memory_equal (x, y, sizeof (x));
    assert_int_equal (a.cycle, b.cycle);
    assert_int_equal (a.none, b.none);
    assert_int_equal (a.base.step, b.base.step);
}

/* The one of the weights as they are by now. */
static void other_reference (struct run *r)
{
    train_reference_t *other = NULL;

    assert_int_equal (train_reference_open_copy (r->decoder, &other, NULL),
                      TRAIN_OK);
    train_reference_close (r->reference);
    r->reference = r->trainer->reference = other;
}

/* A cycle of four steps, and on from behind each of them: the same bits. */
static void test_resume (void **state)
{
    train_grpo_trainer_options_t o = options ();
    train_grpo_metrics_t want[8];
    train_error_t err = {0};
    struct run a, b;

    (void)state;
    o.iterations = 2;
    o.steps = 2;
    o.trainer.batch = 32;
    o.loss.beta = 0.01;
    a = make (&o, TRAIN_F32);
    for (int i = 0; i < 8; i++) {
        want[i] = step (&a);
        if (i < 7)
            save (&a, "all");
    }
    for (int from = 1; from < 8; from++) {
        char dir[40];
        const train_grpo_sample_t *s;
        int n;

        snprintf (dir, sizeof (dir), "all/step-%08d", from);
        b = make (&o, TRAIN_F32);
        if (load (&b, dir, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        s = train_grpo_trainer_samples (b.trainer, &n);
        assert_int_equal (n, from % 4 ? 64 : 0);
        for (int k = 0; k < n; k++)
            assert_true (s[k].rewards[0]
                         == (s[k].ids[0] == (s[k].prompt + 1) % PROMPTS));
        for (int i = from; i < 8; i++)
            same_metrics (want[i], step (&b));
        assert_memory_equal (train_decoder_weights (a.decoder)->data,
                             train_decoder_weights (b.decoder)->data,
                             train_decoder_numel (a.decoder) * sizeof (float));
        close_run (&b);
    }
    b = make (&o, TRAIN_F32);
    assert_int_equal (load (&b, "all", &err), TRAIN_OK);
    assert_null (train_trainer_note (train_grpo_trainer_base (b.trainer)));
    other_reference (&b);
    for (int from = 4; from < 8; from += 3) { /* between cycles, and amid one */
        const char *note;
        char dir[40];

        snprintf (dir, sizeof (dir), "all/step-%08d", from);
        assert_int_equal (load (&b, dir, &err), TRAIN_OK);
        note = train_trainer_note (train_grpo_trainer_base (b.trainer));
        assert_true (note && strstr (note, "the reference is another one"));
    }
    close_run (&b);
    o.loss.low = 0.1; /* another loss is another run */
    b = make (&o, TRAIN_F32);
    assert_int_equal (load (&b, "all", &err), TRAIN_EINVAL);
    close_run (&a);
    close_run (&b);
}

#define LORA 256 /* beside what as_arg gives: with adapters */

static const train_lora_t lora = {2, 0x7f, 4};

/* What a job of ranks is told. */
static int as_arg (train_strategy_t strategy, int micro)
{
    return (int)strategy * 16 + micro;
}

static train_grpo_trainer_options_t of_ranks (int arg)
{
    train_grpo_trainer_options_t o = options ();

    o.steps = 2;
    o.trainer.batch = 12;
    o.group = 3;
    o.loss.beta = 0.05;
    o.trainer.micro_batch = arg % 16;
    o.trainer.strategy = (train_strategy_t)(arg % LORA / 16);
    adapters = arg >= LORA ? lora : (train_lora_t){0};
    return o;
}

/* A rank's part: three steps, the last two again from where the first was
 * saved; its number in [note] where they differ. */
static void go_on (struct job *job, int rank, train_group_t *ranks)
{
    train_grpo_trainer_options_t o = of_ranks (job->arg);
    train_grpo_metrics_t m = {.size = sizeof (m)};
    struct seen *seen = &job->shared->seen[rank];
    double last[2] = {0, 0};
    train_trainer_t *base;
    struct run r;

    o.iterations = 2;
    seen->status = open_run (&r, &o, ranks, TRAIN_F64, score, &seen->err);
    base = train_grpo_trainer_base (r.trainer);
    for (int i = 0; i < 5 && seen->status == TRAIN_OK; i++) {
        if (i == 3) /* what follows was there before */
            seen->status = train_trainer_load (base, "ranks", &seen->err);
        if (seen->status == TRAIN_OK)
            seen->status =
                train_grpo_trainer_step (r.trainer, false, &m, &seen->err);
        if (i == 0 && seen->status == TRAIN_OK)
            seen->status = train_trainer_save (base, "ranks", 1, &seen->err);
        if (i == 2 || i == 4)
            last[i == 4] = m.base.loss + m.base.grad_norm + m.kl + m.ratio;
    }
    if (last[0] != last[1] || !isfinite (last[0]))
        snprintf (seen->note, sizeof (seen->note), "%.17g is not %.17g",
                  last[1], last[0]);
    memcpy (&job->shared->hash[rank], &last[1], sizeof (last[1]));
    close_run (&r);
}

/* What a rank lacks of the others' rows is there again, for another number of
 * ranks, too. */
static void test_resume_ranks (void **state)
{
    static const char *const layout[] = {"ab", "aab"};

    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct job job = {.layout = layout[k],
                          .body = go_on,
                          .arg = as_arg (k ? TRAIN_FULL_SHARD : TRAIN_DDP, 0)};

        run_job (&job);
        want_ok (&job);
        for (size_t i = 0; i < strlen (layout[k]); i++)
            if (*job.shared->seen[i].note)
                fail_msg ("%s", job.shared->seen[i].note);
        free_job (&job);
    }
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
    train_grpo_trainer_options_t o = of_ranks (job->arg);
    train_grpo_metrics_t m = {.size = sizeof (m)};
    struct seen *seen = &job->shared->seen[rank];
    double sum = 0, worth = 0;
    struct run r;

    seen->status = open_run (&r, &o, ranks, TRAIN_F64, score, &seen->err);
    for (int i = 0; i < 6 && seen->status == TRAIN_OK; i++) {
        seen->status =
            train_grpo_trainer_step (r.trainer, false, &m, &seen->err);
        sum += m.base.loss + m.base.grad_norm + m.reward + m.kl + m.entropy
               + m.length + m.ratio;
    }
    if (seen->status == TRAIN_OK)
        seen->status = train_grpo_trainer_try (r.trainer, &prompts, 5, 0, score,
                                               NULL, &worth, &seen->err);
    if (seen->status == TRAIN_OK && r.reference)
        seen->status = train_reference_check (r.reference, &seen->err);
    sum += worth;
    memcpy (&job->shared->hash[rank], &sum, sizeof (sum));
    close_run (&r);
}

static double by_ranks (const char *layout, int arg)
{
    struct job job = {.layout = layout, .body = train, .arg = arg};
    double ret;

    run_job (&job);
    want_ok (&job);
    ret = as_double (job.shared->hash[0]);
    for (size_t i = 1; i < strlen (layout); i++)
        assert_true (job.shared->hash[i] == job.shared->hash[0]);
    free_job (&job);
    return ret;
}

/* 8 groups of 3 on 2 ranks come out even, on 3 and 5 they do not; of five ranks
 * with passes of two rows not all have as many. */
static void all_ranks (int more)
{
    static const char *const layout[] = {"ab", "aab", "aabbb"};
    static const int micro[] = {3, 0, 2};
    double want = by_ranks ("a", as_arg (TRAIN_NO_SHARD, 0) + more);

    assert_true (isfinite (want) && want > 1);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
        for (size_t k = 0; k < 3; k++) {
            int arg = as_arg ((train_strategy_t)s, micro[k]) + more;
            double got = by_ranks (layout[k], arg);

            if (!(fabs (got - want) < 1e-12))
                fail_msg ("strategy %d on %s: %.17g is not %.17g", s, layout[k],
                          got, want);
        }
}

static void test_ranks (void **state)
{
    (void)state;
    all_ranks (0);
}

static void test_ranks_lora (void **state)
{
    (void)state;
    all_ranks (LORA);
}

/* Adapters learn what all weights did; the rest is as it was, and so is the
 * reference that it makes. */
static void test_lora (void **state)
{
    train_grpo_trainer_options_t o = options ();
    const int32_t ids[4] = {3, 1, 4, 9}, total[1] = {4};
    float before[4], after[4];
    train_error_t err = {0};
    struct run r;
    float *w;

    (void)state;
    o.loss.beta = 0.001;
    o.trainer.schedule.lr = 0.003;
    adapters = lora;
    r = make (&o, TRAIN_F32);
    adapters = (train_lora_t){0};
    w = train_decoder_weights (r.decoder)->data;
    for (size_t i = 0; i < train_decoder_numel (r.decoder); i++)
        w[i] *= 4; /* as drawn it hardly matters what is beside it */
    assert_int_equal (train_reference_logps (r.reference, ids, NULL, total, 1,
                                             4, 1, before, NULL),
                      TRAIN_OK);
    assert_true (fabs (step (&r).kl) < 1e-6);
    for (int i = 0; i < 120; i++)
        step (&r);
    assert_true (step (&r).kl > 0.1);
    assert_true (try_now (&r) >= 0.75);
    if (train_reference_check (r.reference, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_int_equal (train_reference_logps (r.reference, ids, NULL, total, 1,
                                             4, 1, after, NULL),
                      TRAIN_OK);
    assert_memory_equal (after, before, sizeof (after));
    ((float *)train_decoder_weights (r.decoder)->data)[0] += 1;
    assert_int_equal (train_reference_check (r.reference, &err),
                      TRAIN_ECORRUPT);
    close_run (&r);
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
    o.trainer.dropout = 0.1;
    assert_int_equal (open_run (&r, &o, group, TRAIN_F32, score, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "dropout 0.1 is not 0"));
    close_run (&r);
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
        cmocka_unit_test (test_resume),  cmocka_unit_test (test_resume_ranks),
        cmocka_unit_test (test_ranks),   cmocka_unit_test (test_ranks_lora),
        cmocka_unit_test (test_lora),    cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
