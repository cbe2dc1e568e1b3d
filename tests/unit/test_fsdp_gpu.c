/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_gpu.c - every strategy over made-up GPUs and an NCCL between
 * processes, on 1 to 4 ranks, beside one device
 *
 * The streams run when they are asked, so a wait that is missing shows as stale
 * weights or gradients. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_decoder.h"
#include "fake_nccl.h"
#include "fsdp_run.h"
#include "libtrain/group_impl.h"

static const struct fake_orders no_orders = {.rank = -1};

static void to_gpu (struct rank *r)
{
    assert_int_equal (
        fake_decoder_move (r->decoder, r->group->where.device, NULL), 0);
}

static void hook (struct rank *r)
{
    fake_decoder_hook (r->decoder);
}

static void check_weights (struct job *job, int rank, struct rank *r,
                           double bound)
{
    size_t n = train_decoder_numel (r->decoder);
    void *data = calloc (n, sizeof (float));
    train_tensor_t whole;
    double norm = 0;
    train_error_t err = {0};

    if (!data || !view_of (&whole, data, TRAIN_F32, n)
        || fsdp_give (r->fsdp, fsdp_weights (r->fsdp), &whole.t, 0, &err)
               != TRAIN_OK
        || train_norm (&whole.t, &norm, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, n);
    else if (rank == 0 && !near (norm * norm, run.weights, bound))
        note (job, rank, "other weights", 0, 0, n);
    free (data);
}

static void check_unused (struct job *job, int rank, struct rank *r)
{
    char names[400] = "x";
    train_error_t err = {0};

    if (fsdp_unused (r->fsdp, names, sizeof (names), &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    else if (names[0])
        note (job, rank, names, 0, 0, 0);
}

/* Shards do in a step of one pass, where no flat unit is visited twice beside
 * others; replicas' gradients are in no whole lines here. */
static bool may_lend (const struct rank *r)
{
    return run.opts.strategy >= TRAIN_SHARD_GRAD_OP && r->passes == 1
           && r->rows > 0 && !run.opts.no_sync
           && (!run.tie || run.opts.least == 0);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};
    char text[160];

    seen->status = open_rank (&r, &seen->err);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++) {
        double got[2];

        seen->status = rank_step (&r, s, got, &seen->err);
        if (seen->status == TRAIN_OK && r.decoder->spent)
            note (job, rank, "gradients are spent behind a step", 0, s, 0);
        if (may_lend (&r) != (r.decoder->layout.lent > 0))
            note (job, rank, "rooms", 0, s, r.decoder->layout.lent);
        if (seen->status != TRAIN_OK
            || (near (got[0], run.want[s], run.bound)
                && near (got[1], run.norm[s], 100 * run.bound)))
            continue;
        snprintf (text, sizeof (text),
                  "step %d: loss %.9g, not %.9g; norm %.9g, not %.9g", s,
                  got[0], run.want[s], got[1], run.norm[s]);
        note (job, rank, text, 0, 0, 0);
    }
    if (seen->status == TRAIN_OK) {
        check_weights (job, rank, &r, 100 * run.bound);
        check_unused (job, rank, &r);
    }
    close_rank (&r);
}

static void run_on (const char *layout)
{
    struct job job = {.layout = layout, .body = body, .backend = "nccl"};

    fake_open (&no_orders);
    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].note[0] || job.shared->seen[r].status)
            fail_msg ("%s rank %d, strategy %d, wrap %zu, prefetch %d, micro "
                      "%d, tie %d, no_sync %d: %s %s",
                      layout, r, run.opts.strategy, run.opts.least,
                      run.opts.prefetch, run.micro, run.tie, run.opts.no_sync,
                      job.shared->seen[r].note, job.shared->seen[r].err.text);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

/* Few steps of f32 over 1 to 4 ranks, tied and not. */
static void test_float (void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        prepare (TRAIN_F32, tie, 3, 1e-5);
        for (int i = 0; i < 16; i++) {
            train_strategy_t s = (train_strategy_t)(i % 4);

            run.opts = opts_of (s, i % 3 ? 0 : 500, i % 3, i > 11 && s > 1);
            run.micro = i / 4;
            run.uneven = i % 5 == 4;
            run_on (worlds[i / 4]);
        }
    }
}

/* Masters are f32, weights are gathered short. */
static void test_halves (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 2; i++) {
        prepare (dtypes[i], i, 3, 1e-3);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
            run.opts = opts_of ((train_strategy_t)s, 0, 1, false);
            run.micro = 1 + s % 2;
            run.uneven = s == 3;
            run_on (worlds[1 + s % 3]);
        }
    }
}

static void test_short_wire (void **state)
{
    (void)state;
    prepare (TRAIN_F32, true, 1, 1e-4);
    for (int i = 0; i < 4; i++) {
        run.opts = opts_of (i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0,
                            1, i / 2);
        run.opts.reduce = TRAIN_BF16;
        run.micro = 2;
        run.uneven = false;
        run_on (worlds[i]);
    }
}

/* One that ends within a step: the others hear of it where they wait. */
static void dying (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};
    double got[2];

    seen->status = open_rank (&r, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = rank_step (&r, 0, got, &seen->err);
    if (seen->status == TRAIN_OK && rank == 1)
        raise (SIGKILL);
    if (seen->status == TRAIN_OK)
        seen->status = rank_step (&r, 1, got, &seen->err);
    close_rank (&r);
}

static void test_rank_dies (void **state)
{
    struct job job = {.layout = "aaa", .body = dying, .backend = "nccl"};

    (void)state;
    prepare (TRAIN_F32, false, 2, 1e-5);
    run.micro = 0;
    run.uneven = false;
    run.opts = opts_of (TRAIN_FULL_SHARD, 0, 1, false);
    run.hook = NULL; /* kernels would wait for the gather, as none does */
    fake_open (&no_orders);
    run_job (&job);
    want (&job, "1", TRAIN_EPEER, "rank 1 ended during");
    free_job (&job);
    fake_close ();
    run.hook = hook;
}

/* A decoder and a group that are not of one place. */
static void misplaced (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};

    seen->status = open_rank (&r, &seen->err);
    close_rank (&r);
}

static void test_misplaced (void **state)
{
    struct job job = {.layout = "aa", .body = misplaced, .backend = "nccl"};

    (void)state;
    run.opts = opts_of (TRAIN_FULL_SHARD, 0, 1, false);
    run.to_gpu = NULL;
    run.hook = NULL;
    fake_open (&no_orders);
    run_job (&job);
    want (&job, "", TRAIN_EINVAL, "do not go together");
    free_job (&job);
    fake_close ();
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_float),      cmocka_unit_test (test_halves),
        cmocka_unit_test (test_short_wire), cmocka_unit_test (test_rank_dies),
        cmocka_unit_test (test_misplaced),
    };

    run.to_gpu = to_gpu;
    run.hook = hook;
    return cmocka_run_group_tests (tests, NULL, NULL);
}
