/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_late.c - masters that are rounded as a unit is gathered, over made-up
 * GPUs: the bits of a rounded copy that stays
 *
 * The streams run when they are asked, so a wait that is missing shows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
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

/* The masters of this rank's shard after the run's steps; freed by the caller. */
static float *masters_of (train_group_t *group, size_t *ret_n,
                          struct seen *seen)
{
    struct rank r = {.group = group};
    float *copy = NULL;
    double got[2];

    seen->status = open_rank (&r, &seen->err);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++)
        seen->status = rank_step (&r, s, got, &seen->err);
    if (seen->status == TRAIN_OK) {
        *ret_n = train_shard_size (fsdp_plan (r.fsdp));
        copy = calloc (*ret_n + 1, sizeof (*copy));
        if (copy)
            memcpy (copy, fsdp_weights (r.fsdp)->data, *ret_n * sizeof (*copy));
    }
    close_rank (&r);
    return copy;
}

static void both_ways (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    size_t n = 0, m = 0;
    float *kept, *late = NULL;

    run.opts.round_late = false;
    kept = masters_of (group, &n, seen);
    run.opts.round_late = true;
    if (seen->status == TRAIN_OK)
        late = masters_of (group, &m, seen);
    if (seen->status == TRAIN_OK
        && (!kept || !late || n != m || n == 0
            || memcmp (kept, late, n * sizeof (*kept)) != 0))
        note (job, rank, "other bits", 0, 0, n);
    free (kept);
    free (late);
}

/* All weights as they are gathered between steps, after one of them; freed by the
 * caller. */
static uint16_t *all_of (train_group_t *group, train_group_t *host, size_t *ret,
                         struct seen *seen)
{
    struct rank r = {.group = group};
    uint16_t *copy = NULL;
    double got[2];

    seen->status = open_rank (&r, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = rank_step (&r, 0, got, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = fsdp_all (r.fsdp, host, &seen->err);
    if (seen->status == TRAIN_OK) {
        *ret = train_decoder_numel (r.decoder);
        copy = calloc (*ret, sizeof (*copy));
    }
    for (size_t u = 0; copy && u < decoder_n_units (r.decoder); u++)
        memcpy (copy + decoder_unit (r.decoder, u)->first,
                r.decoder->places[u].weights,
                decoder_unit (r.decoder, u)->count * sizeof (*copy));
    if (seen->status == TRAIN_OK)
        fsdp_all_end (r.fsdp);
    close_rank (&r);
    return copy;
}

static void all_both_ways (struct job *job, int rank, train_group_t *group)
{
    const train_group_options_t o = {.size = sizeof (o), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    train_group_t *host = NULL;
    size_t n = 0, m = 0;
    uint16_t *kept = NULL, *late = NULL;

    seen->status = train_group_create (&o, &host, &seen->err);
    run.opts.round_late = false;
    if (seen->status == TRAIN_OK)
        kept = all_of (group, host, &n, seen);
    run.opts.round_late = true;
    if (seen->status == TRAIN_OK)
        late = all_of (group, host, &m, seen);
    if (seen->status == TRAIN_OK
        && (!kept || !late || n != m
            || memcmp (kept, late, n * sizeof (*kept)) != 0))
        note (job, rank, "other weights when all are here", 0, 0, n);
    free (kept);
    free (late);
    train_group_destroy (host);
}

/* The same bits of [body]'s by rounding late and before. */
static void same_bits (void (*body_of) (struct job *, int, train_group_t *),
                       int prefetch)
{
    struct job job = {.body = body_of, .backend = "nccl"};

    for (int i = 0; i < 4; i++) {
        prepare (i / 2 ? TRAIN_F16 : TRAIN_BF16, i % 2, 3, 1e-3);
        run.opts = opts_of (TRAIN_FULL_SHARD, 0, prefetch, false);
        run.micro = i % 2 ? 0 : 1;
        run.uneven = false;
        job.layout = worlds[1 + i % 3];
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
}

static void test_late_bits (void **state)
{
    (void)state;
    same_bits (both_ways, 1);
}

/* Whole for texts that ranks write: apart from the slots, and in them. */
static void test_late_all (void **state)
{
    (void)state;
    same_bits (all_both_ways, 1);
    same_bits (all_both_ways, 9);
}

/* Nothing is sharded, or masters are elsewhere. */
static void test_late_refused (void **state)
{
    struct job job = {.layout = "aa", .body = open_only, .backend = "nccl"};

    (void)state;
    prepare (TRAIN_BF16, false, 1, 1e-3);
    for (int i = 0; i < 2; i++) {
        run.opts = opts_of (i ? TRAIN_FULL_SHARD : TRAIN_DDP, 0, 1, false);
        run.opts.round_late = true;
        run.opts.offload = i;
        fake_open (&no_orders);
        run_job (&job);
        want (&job, "", TRAIN_EINVAL,
              i ? "offload has them in host memory" : "nothing is sharded");
        free_job (&job);
        fake_close ();
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_late_bits),
        cmocka_unit_test (test_late_all),
        cmocka_unit_test (test_late_refused),
    };

    run.to_gpu = to_gpu;
    run.hook = hook;
    return cmocka_run_group_tests_name ("fsdp_late", tests, NULL, NULL);
}
