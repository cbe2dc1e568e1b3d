/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp.c - every strategy on 1 to 4 ranks beside one device
 *
 * Parts of a model and of a batch that do not divide. What one process makes
 * of the whole batch, without an engine, is the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "fsdp_run.h"

/* Beside the shard two units of each at most, one without prefetch. */
static void check_held (struct job *job, int rank, const struct rank *r)
{
    struct fsdp_held h = fsdp_held (r->fsdp);
    const train_shard_plan_t *plan = fsdp_plan (r->fsdp);
    size_t world = (size_t)train_shard_plan_layout (plan)->world, most = 0;
    size_t all = train_shard_size (plan) * world, units;

    for (size_t i = 0; i < train_shard_n_units (plan); i++)
        if (train_shard_unit (plan, i)->chunk > most)
            most = train_shard_unit (plan, i)->chunk;
    most *= world;
    units = (size_t)run.opts.prefetch + 1;
    if (h.weights != 0)
        note (job, rank, "weights stay whole", 0, 0, h.weights);
    if (run.opts.strategy < TRAIN_SHARD_GRAD_OP) {
        if (h.most_weights || h.most_grads)
            note (job, rank, "replicas gather", 0, 0, h.most_weights);
        return;
    }
    if (h.shard != train_shard_size (plan) || h.shard * world < all)
        note (job, rank, "no shard", 0, 0, h.shard);
    if (run.opts.strategy == TRAIN_FULL_SHARD ? h.most_weights > units * most
                                              : h.most_weights > all)
        note (job, rank, "too much is whole", (int)units, (int)most,
              h.most_weights);
    if (h.most_grads > (run.opts.no_sync ? all : 2 * most))
        note (job, rank, "too many gradients", 2, (int)most, h.most_grads);
}

/* The shards together are the whole that one device has. */
static void check_weights (struct job *job, int rank, struct rank *r,
                           double bound)
{
    size_t n = train_decoder_numel (r->decoder);
    void *data = calloc (n, 8);
    train_tensor_t whole;
    double norm = 0;
    train_error_t err = {0};

    if (!data || !view_of (&whole, data, real (), n)
        || fsdp_give (r->fsdp, fsdp_weights (r->fsdp), &whole.t, 0, &err)
               != TRAIN_OK
        || train_norm (&whole.t, &norm, &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, n);
    else if (rank == 0 && !near (norm * norm, run.weights, bound))
        note (job, rank, "other weights", 0, 0, n);
    free (data);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};

    seen->status = open_rank (&r, &seen->err);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++)
        seen->status = step_agrees (job, rank, &r, s, &seen->err);
    if (seen->status == TRAIN_OK) {
        check_held (job, rank, &r);
        check_weights (job, rank, &r, 100 * run.bound);
    }
    close_rank (&r);
}

static void run_on (const char *layout)
{
    run_ranks (layout, body, "host");
}

/* 50 steps in double: one device's losses and norms, 1e-12. */
static void test_double (void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        prepare (TRAIN_F64, tie, FSDP_STEPS, 1e-12);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
            for (int w = 0; w < 4; w++) {
                run.opts = opts_of ((train_strategy_t)s, 0, 1, false);
                run.micro = w == 1 ? 2 : w == 2 ? 1 : 0;
                run.uneven = false;
                run_on (worlds[w]);
            }
    }
}

/* Few steps, every other combination. */
static void test_combinations (void **state)
{
    static const size_t least[] = {0, 500, 1100, 100000};

    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        prepare (TRAIN_F64, tie, 3, 1e-12);
        for (int i = 0; i < 64; i++) {
            train_strategy_t s = (train_strategy_t)(TRAIN_DDP + i % 3);

            run.opts = opts_of (s, least[i / 3 % 4], i % 4,
                                s != TRAIN_DDP && i % 5 == 0);
            run.micro = i % 7 % 3;
            run.uneven = i % 2;
            run_on (worlds[i % 11 % 4]);
        }
    }
}

/* A step of f32 from the same weights: 1e-6. */
static void test_float (void **state)
{
    (void)state;
    prepare (TRAIN_F32, true, 1, 1e-6);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
        for (int w = 0; w < 4; w++) {
            run.opts = opts_of ((train_strategy_t)s, 0, 1, false);
            run.micro = 1 + w % 2;
            run.uneven = w == 3;
            run_on (worlds[w]);
        }
}

/* Short weights have masters of f32, and are gathered short: from the same
 * masters one step, then five whose gradients differ by their order. */
static void test_halves (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 4; i++) {
        prepare (dtypes[i / 2], i % 2, i % 2 ? 5 : 1, i % 2 ? 1e-3 : 1e-5);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
            run.opts = opts_of ((train_strategy_t)s, 0, s % 2, false);
            run.opts.round_late = i % 2 && s >= TRAIN_SHARD_GRAD_OP;
            run.micro = 1 + s % 2;
            run.uneven = s == 3;
            run_on (worlds[1 + s % 3]);
        }
    }
}

/* Gradients that travel as bf16: each rank's part is rounded, 2^-9. The ends are as
 * blocks, or larger: then places of the wire cross from one pass to the next. */
static void test_short_wire (void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        run.wide = i / 4;
        prepare (TRAIN_F32, !run.wide, 1, 1e-4);
        run.opts = opts_of (i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0,
                            1, i / 2 % 2);
        run.opts.reduce = TRAIN_BF16;
        run.micro = run.wide ? 1 : 2;
        run.uneven = false;
        run_on (worlds[i % 4]);
    }
    run.wide = false;
}

/* Ends that are larger than what is between them: weights and gradients are in one
 * memory, where those of a pass cross those of the one before. */
static void test_wide_ends (void **state)
{
    (void)state;
    run.wide = true;
    for (int i = 0; i < 8; i++) {
        prepare (TRAIN_F64, i % 2, 2, 1e-12);
        run.opts = opts_of (TRAIN_FULL_SHARD, 0, i / 2 % 3, false);
        run.micro = i / 4;
        run.uneven = false;
        run_on (worlds[i % 4]);
    }
    run.wide = false;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_double),
        cmocka_unit_test (test_combinations),
        cmocka_unit_test (test_float),
        cmocka_unit_test (test_halves),
        cmocka_unit_test (test_short_wire),
        cmocka_unit_test (test_wide_ends),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
