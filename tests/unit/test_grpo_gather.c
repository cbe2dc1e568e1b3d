/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_gather.c - a policy that comes a unit at a time writes, and learns
 * from, what a whole one does, bit for bit; ranks that fail in the midst of it */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <xxhash.h>

#include "fsdp_impl.h"
#include "group_ranks.h"
#include "grpo_run.h"
#include "grpo_task.h"

enum { STEPS = 3 };

/* What a run is, but for how its weights come. */
struct kind {
    const char *layout;
    train_grpo_trainer_options_t o;
    train_dtype_t dtype;
};
static struct kind kind;

static train_status_t by_length (void *arg, const train_grpo_sample_t *s, int n,
                                 float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++)
        ret[i] = (float)(s[i].ids[0] + 3 * s[i].n);
    return TRAIN_OK;
}

static uint64_t hash_step (const train_grpo_trainer_t *t,
                           const train_grpo_metrics_t *m, uint64_t seed)
{
    const struct grpo_texts *x = &t->texts;
    size_t all = (size_t)x->M * (size_t)x->L;
    const double said[] = {m->base.loss, m->base.grad_norm, m->reward, m->kl,
                           m->entropy,   m->ratio,          m->length};
    uint64_t h = XXH3_64bits_withSeed (x->ids, all * sizeof (*x->ids), seed);

    h = XXH3_64bits_withSeed (x->sampled, all * sizeof (*x->sampled), h);
    return XXH3_64bits_withSeed (said, sizeof (said), h);
}

/* By units nothing is whole but what a step's passes have. */
static void check_room (struct job *job, int rank, const struct run *r)
{
    const struct fsdp *f = r->trainer->trainer->fsdp;
    size_t most = 0;

    if (kind.o.trainer.strategy != TRAIN_FULL_SHARD
        || job->arg != TRAIN_GRPO_GATHER_UNIT)
        return;
    for (size_t u = 0; u < f->n_units; u++)
        if (f->units[u].whole > most)
            most = f->units[u].whole;
    most *= (size_t)kind.o.trainer.prefetch + 1;
    if (fsdp_held (f).most_weights > most || f->all)
        note (job, rank, "more is whole than fits", 0, 0, most);
}

static void train (struct job *job, int rank, train_group_t *ranks)
{
    train_grpo_trainer_options_t o = kind.o;
    train_grpo_metrics_t m = {.size = sizeof (m)};
    struct seen *seen = &job->shared->seen[rank];
    uint64_t h = 0;
    double held = 0;
    struct run r;

    o.gather = (train_grpo_gather_t)job->arg;
    seen->status = open_run (&r, &o, ranks, kind.dtype, by_length, &seen->err);
    if (seen->status == TRAIN_OK
        && (int)train_grpo_trainer_gather (r.trainer) != job->arg)
        note (job, rank, "another way", 0, 0, 0);
    for (int i = 0; i < STEPS && seen->status == TRAIN_OK; i++) {
        seen->status =
            train_grpo_trainer_step (r.trainer, false, &m, &seen->err);
        h = hash_step (r.trainer, &m, h);
    }
    if (seen->status == TRAIN_OK)
        seen->status = train_grpo_trainer_try (
            r.trainer, &prompts, 5, 0.5, by_length, NULL, &held, &seen->err);
    job->shared->hash[rank] = XXH3_64bits_withSeed (&held, sizeof (held), h);
    if (seen->status == TRAIN_OK)
        check_room (job, rank, &r);
    close_run (&r);
}

static uint64_t run_by (train_grpo_gather_t gather)
{
    struct job job = {.layout = kind.layout, .body = train, .arg = (int)gather};
    uint64_t ret;

    run_job (&job);
    want_ok (&job);
    ret = job.shared->hash[0];
    for (int i = 0; i < job.size; i++) {
        assert_true (job.shared->hash[i] == ret);
        if (*job.shared->seen[i].note)
            fail_msg ("rank %d of %s: %s", i, kind.layout,
                      job.shared->seen[i].note);
    }
    free_job (&job);
    return ret;
}

static void both_ways (const char *what)
{
    uint64_t whole = run_by (TRAIN_GRPO_GATHER_WHOLE);

    if (run_by (TRAIN_GRPO_GATHER_UNIT) != whole)
        fail_msg ("%s on %s: other bits", what, kind.layout);
}

/* Completions of unlike lengths, of which a few are written at once. */
static void make (const char *layout)
{
    kind = (struct kind){layout, options (), TRAIN_F32};
    kind.o.trainer.batch = 12;
    kind.o.trainer.micro_batch = 2;
    kind.o.trainer.strategy = TRAIN_FULL_SHARD;
    kind.o.group = 4;
    kind.o.max_new = 9;
    layers = 3;
    tie = true;
    adapters = (train_lora_t){0};
}

static void test_same (void **state)
{
    static const char *const worlds[] = {"a", "aa", "aba", "aabb"};

    (void)state;
    for (int i = 0; i < 8; i++) {
        make (worlds[i % 4]);
        tie = i % 3 != 1;
        kind.o.trainer.prefetch = i % 3;
        kind.o.at_once = i % 2 ? 2 : 0;
        if (i > 3) {
            kind.o.trainer.wrap = TRAIN_WRAP_SIZE;
            kind.o.trainer.least = i == 7 ? 100000 : 1500;
        }
        both_ways ("plain");
    }
}

/* With log-probabilities of the policy that wrote, and of a reference in
 * parts. */
static void test_logps (void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        make (i ? "aab" : "aa");
        kind.o.iterations = 2;
        kind.o.steps = 1 + i % 2;
        kind.o.loss.beta = 0.1;
        kind.o.trainer.prefetch = 1;
        kind.o.trainer.batch = i == 2 ? 4 : 12; /* a rank has no row twice */
        kind.dtype = i == 1 ? TRAIN_BF16 : TRAIN_F32;
        both_ways ("log-probabilities");
    }
}

/* Ranks that write nothing, and none of whose rows are trained on. */
static void test_few (void **state)
{
    (void)state;
    make ("aabbb");
    kind.o.trainer.batch = 3;
    kind.o.group = 3;
    kind.o.iterations = 2;
    kind.o.loss.beta = 0.1;
    kind.o.trainer.prefetch = 1;
    both_ways ("few");
}

static void test_grad_op (void **state)
{
    (void)state;
    make ("aab");
    kind.o.trainer.strategy = TRAIN_SHARD_GRAD_OP;
    kind.o.iterations = 2;
    both_ways ("grad_op");
}

/* A unit's adapters are merged when it comes, and the reference is what it is
 * without them. */
static void test_adapters (void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        make (i ? "aab" : "aa");
        adapters = (train_lora_t){.rank = 2, .alpha = 4, .targets = 127};
        kind.o.loss.beta = 0.1;
        kind.o.iterations = 2;
        kind.o.trainer.prefetch = i;
        kind.o.trainer.schedule.lr = 0.05;
        if (i == 1) {
            kind.o.trainer.wrap = TRAIN_WRAP_SIZE;
            kind.o.trainer.least = 100000;
        }
        both_ways ("adapters");
    }
}

/* Rank 1's products, of which one fails. */
static struct decoder_work work;
static const struct decoder_work *own;
static int fails_in; /* products until then */
static bool dies;

static train_status_t linear (train_decoder_t *m, void *y, const void *x,
                              const void *w, size_t N, size_t in, size_t out,
                              train_error_t *err)
{
    if (fails_in-- == 0 && dies)
        raise (SIGKILL);
    if (fails_in < 0)
        return TRAIN_ENONFINITE;
    return own->linear (m, y, x, w, N, in, out, err);
}

static void failing (struct job *job, int rank, train_group_t *ranks)
{
    struct seen *seen = &job->shared->seen[rank];
    train_grpo_trainer_options_t o = kind.o;
    int64_t start_ms;
    struct run r;

    o.gather = TRAIN_GRPO_GATHER_UNIT;
    seen->status = open_run (&r, &o, ranks, kind.dtype, by_length, &seen->err);
    if (rank == 1) {
        own = r.decoder->work;
        work = *own;
        work.linear = linear;
        r.decoder->work = &work;
        fails_in = job->arg;
    }
    start_ms = now_ms ();
    if (seen->status == TRAIN_OK)
        seen->status =
            train_grpo_trainer_step (r.trainer, false, NULL, &seen->err);
    seen->ms = now_ms () - start_ms;
    if (rank == 1 && seen->status == TRAIN_ENONFINITE)
        snprintf (seen->err.text, sizeof (seen->err.text),
                  "another rank failed, it says");
    close_run (&r);
}

/* In the midst of a prompt, of a token, or of what is written again: the others
 * hear of it at once. */
static void test_rank_fails (void **state)
{
    static const int after[] = {0, 6, 30, 200};

    (void)state;
    for (size_t i = 0; i < 8; i++) {
        struct job job = {.layout = i % 2 ? "aab" : "abab",
                          .body = failing,
                          .arg = after[i % 4],
                          .timeout_ms = 30000};

        make (job.layout);
        kind.o.trainer.prefetch = 1;
        kind.o.iterations = 2;
        kind.o.at_once = i % 2 ? 1 : 0;
        dies = i > 3;
        run_job (&job);
        if (dies)
            want (&job, "1", TRAIN_EPEER, "rank 1 ended");
        else
            want (&job, "", TRAIN_ENONFINITE, "another rank failed");
        for (int k = 0; k < job.size; k++)
            assert_true (job.shared->seen[k].ms < 10000);
        free_job (&job);
    }
}

/* Memory of rank 1 for what a cycle takes is what [most] says. */
static struct backend_ops scarce;
static const struct backend_ops *plenty;
static size_t most;

static train_status_t alloc (int device, size_t bytes, void **ret,
                             train_error_t *err)
{
    return bytes > most ? TRAIN_ENOMEM
                        : plenty->alloc (device, bytes, ret, err);
}

/* One rank that has no room decides for all. */
static void narrow (struct job *job, int rank, train_group_t *ranks)
{
    struct seen *seen = &job->shared->seen[rank];
    train_grpo_trainer_options_t o = kind.o;
    struct run r = {0};

    seen->status = open_run (&r, &o, ranks, TRAIN_F64, by_length, &seen->err);
    if (seen->status == TRAIN_OK && rank == 1) {
        most = job->arg ? fsdp_all_bytes (r.trainer->trainer->fsdp) : SIZE_MAX;
        plenty = r.decoder->ops;
        scarce = *plenty;
        scarce.alloc = alloc;
        r.decoder->ops = &scarce;
    }
    if (seen->status == TRAIN_OK)
        seen->status = grpo_choose (r.trainer, 20, &seen->err);
    snprintf (seen->note, sizeof (seen->note), "%s",
              seen->status != TRAIN_OK ? "open"
              : train_grpo_trainer_gather (r.trainer) == TRAIN_GRPO_GATHER_UNIT
                  ? "unit"
                  : "whole");
    close_run (&r);
}

static void test_auto (void **state)
{
    static const char *const want_way[] = {"whole", "unit"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = "aa", .body = narrow, .arg = i};

        make (job.layout);
        run_job (&job);
        for (int k = 0; k < 2; k++)
            assert_string_equal (job.shared->seen[k].note, want_way[i]);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_same),     cmocka_unit_test (test_logps),
        cmocka_unit_test (test_few),      cmocka_unit_test (test_grad_op),
        cmocka_unit_test (test_adapters), cmocka_unit_test (test_rank_fails),
        cmocka_unit_test (test_auto),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
