/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_gpu.c - every strategy over made-up GPUs and an NCCL between
 * processes, on 1 to 4 ranks, beside one device
 *
 * The streams run when they are asked, so a wait that is missing shows as stale
 * weights or gradients. */
#include "config.h"

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
#include "libtrain/fsdp_gpu.h"
#include "libtrain/mem_table.h"

#if HAVE_CUDA
static const bool cuda = true;
#else
static const bool cuda;
#endif

static const struct fake_orders no_orders = {.rank = -1};

static const struct backend_ops *uncounted;
static size_t taken; /* bytes that the engine has asked for */

static train_status_t count_alloc (int device, size_t bytes, void **ret,
                                   train_error_t *err)
{
    taken += bytes;
    return uncounted->alloc (device, bytes, ret, err);
}

static void to_gpu (struct rank *r)
{
    static struct backend_ops counted;

    assert_int_equal (
        fake_decoder_move (r->decoder, r->group->where.device, NULL), 0);
    uncounted = r->decoder->ops;
    counted = *uncounted;
    counted.alloc = count_alloc;
    r->decoder->ops = &counted;
    taken = 0;
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

/* A step of one pass does. What is left where blocks are in the flat unit of a tied
 * head may be too little. */
static bool lends (const struct rank *r)
{
    bool may = r->passes == 1 && r->rows > 0 && !run.opts.no_sync;
    bool little = run.tie && run.opts.least > 0
                  && run.opts.strategy >= TRAIN_SHARD_GRAD_OP;

    return r->decoder->layout.lent > 0 ? may : !may || little;
}

/* Is the loan foreseen? Made-up memory begins anywhere in a line. */
static void check_loan (struct job *job, int rank, struct rank *r)
{
    size_t until[8]; /* more than the layers */
    bool lends = false;

    if (run.opts.strategy < TRAIN_SHARD_GRAD_OP)
        return;
    if (fsdp_lends_decoder (&run.opts, r->decoder, train_group_size (r->group),
                            &lends, until, NULL)
            != TRAIN_OK
        || lends != (r->decoder->given != NULL))
        note (job, rank, "a loan foretold or had alone", lends, 0, 0);
    for (size_t l = 0; lends && l <= r->decoder->dims.L; l++)
        if (until[l] > r->decoder->until[l] + DECODER_ALIGN
            || r->decoder->until[l] > until[l] + DECODER_ALIGN)
            note (job, rank, "a loan foretold and had", (int)until[l], (int)l,
                  r->decoder->until[l]);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};

    seen->status = open_rank (&r, &seen->err);
    if (seen->status == TRAIN_OK)
        check_loan (job, rank, &r);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++) {
        seen->status = step_agrees (job, rank, &r, s, &seen->err);
        if (seen->status == TRAIN_OK && r.decoder->spent)
            note (job, rank, "gradients are spent behind a step", 0, s, 0);
        if (!lends (&r))
            note (job, rank, "lent", 0, s, r.decoder->layout.lent);
    }
    if (seen->status == TRAIN_OK) {
        check_weights (job, rank, &r, 100 * run.bound);
        check_unused (job, rank, &r);
    }
    close_rank (&r);
}

static void run_on (const char *layout)
{
    fake_open (&no_orders);
    run_ranks (layout, body, "nccl");
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

/* The ends are larger than what is between them: places that are no neighbours'
 * cross, from one pass to the next too. */
static void test_wide_ends (void **state)
{
    (void)state;
    run.wide = true;
    for (int i = 0; i < 12; i++) {
        prepare (TRAIN_F32, i % 2, 2, 1e-5);
        run.opts = opts_of (i < 8 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0,
                            i / 4 + 1, false);
        run.micro = i / 2 % 2;
        run.uneven = false;
        run_on (worlds[i % 4]);
    }
    run.wide = false;
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

/* Masters are rounded into the slots: what one device rounds at once. */
static void test_round_late (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 8; i++) {
        run.wide = i / 4;
        prepare (dtypes[i / 2 % 2], i % 2, 3, 1e-3);
        run.opts = opts_of (i % 3 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0,
                            i % 3, false);
        run.opts.round_late = true;
        run.micro = 1 + i % 2;
        run.uneven = i == 3;
        run_on (worlds[i % 4]);
    }
    run.wide = false;
}

/* Weights come from the host's memory; a step's passes are reduced at once. */
static void test_far_weights (void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        if (i % 3 == 0)
            prepare (i ? TRAIN_F32 : TRAIN_BF16, i == 0, 3, i ? 1e-5 : 1e-3);
        run.opts = opts_of (i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP,
                            i % 3 ? 0 : 500, i % 3, i > 2);
        run.opts.offload_weights = true;
        run.opts.offload = i % 2;
        run.micro = 2;
        run.uneven = i == 5;
        run_on (worlds[i % 4]);
    }
}

/* From one pass to the next places on the wire cross, too. */
static void test_short_wire (void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        run.wide = i / 4;
        prepare (TRAIN_F32, i / 4 == 0, 1, 1e-4);
        run.opts = opts_of (i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0,
                            1, i / 2 % 2);
        run.opts.reduce = TRAIN_BF16;
        run.micro = 2 - i / 4;
        run.uneven = false;
        run_on (worlds[i % 4]);
    }
    run.wide = false;
}

/* What the engine asks for beside what is foretold: its numbers, and each
 * array's last line. Built without CUDA the layouts of a GPU are not known, and the
 * host's, which do not share as much, are no smaller. */
static void weighed (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    train_trainer_options_t o = {
        .size = sizeof (o),
        .batch = 1,
        .strategy = run.opts.strategy,
        .wrap = run.opts.wrap,
        .least = run.opts.least,
        .prefetch = run.opts.prefetch,
        .no_sync = run.opts.no_sync,
        .reduce_bf16 = run.opts.reduce == TRAIN_BF16,
        .round_late = run.opts.round_late,
        .frozen = run.opts.frozen,
        .offload = run.opts.offload,
        .offload_weights = run.opts.offload_weights,
    };
    struct rank r = {.group = group};
    struct mem_row rows[MEM_ROWS];
    train_decoder_config_t c;
    size_t n = 0, sum = sizeof (struct fsdp_numbers);

    seen->status = open_rank (&r, &seen->err);
    if (seen->status == TRAIN_OK) {
        c = *train_decoder_config (r.decoder);
        c.device = (DLDevice){cuda ? kDLCUDA : kDLCPU, 0};
        seen->status = mem_table (&c, false, &o, train_group_size (group), 6,
                                  false, rows, &n, &seen->err);
    }
    for (size_t i = 0; i < n; i++)
        sum += rows[i].acts || rows[i].host
                       || strcmp (rows[i].what, "AdamW's moments") == 0
                       || strncmp (rows[i].what, "pieces", 6) == 0
                   ? 0
                   : rows[i].bytes;
    if ((cuda && taken + 64 < sum) || taken > sum + 8 * 64)
        note (job, rank, "other bytes than foretold", (int)taken, (int)sum, 0);
    close_rank (&r);
}

static void test_bytes (void **state)
{
    struct job job = {.body = weighed, .backend = "nccl"};

    (void)state;
    for (int i = 0; i < 24; i++) {
        run.tie = i % 2;
        run.wide = i / 2 % 2;
        run.dtype = i % 3 ? TRAIN_BF16 : TRAIN_F32;
        run.opts = opts_of (i % 5 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP,
                            i % 7 ? 0 : 500, i % 3 + i / 12, i % 4 == 3);
        run.opts.reduce = i % 8 < 4 ? TRAIN_F32 : TRAIN_BF16;
        run.opts.round_late = i % 2;
        run.lora = i % 3 == 2 ? 2 : 0;
        run.opts.frozen =
            i % 3 == 1 ? "*layers.0.*norm*,*layers.1.*down_proj*" : NULL;
        run.opts.offload = i % 8 == 4;
        run.opts.offload_weights = i % 8 == 2;
        job.layout = worlds[i % 4];
        fake_open (&no_orders);
        run_job (&job);
        for (int r = 0; r < job.size; r++)
            if (job.shared->seen[r].note[0])
                fail_msg ("case %d, rank %d: %s", i, r,
                          job.shared->seen[r].note);
        want_ok (&job);
        free_job (&job);
        fake_close ();
    }
    run.wide = false;
    run.lora = 0;
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
static void test_misplaced (void **state)
{
    struct job job = {.layout = "aa", .body = open_only, .backend = "nccl"};

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
        cmocka_unit_test (test_float),       cmocka_unit_test (test_halves),
        cmocka_unit_test (test_wide_ends),   cmocka_unit_test (test_bytes),
        cmocka_unit_test (test_round_late),  cmocka_unit_test (test_short_wire),
        cmocka_unit_test (test_far_weights), cmocka_unit_test (test_rank_dies),
        cmocka_unit_test (test_misplaced),
    };

    run.to_gpu = to_gpu;
    run.hook = hook;
    return cmocka_run_group_tests (tests, NULL, NULL);
}
