/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_faults.c - frozen parameters, a rank that dies, visits out of turn
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp_run.h"
#include "libtrain/decoder_impl.h"

static const char frozen[] = "*embed*,*.layers.1.*,*k_proj*";

static bool is_frozen (const char *name)
{
    return strstr (name, "embed") || strstr (name, ".layers.1.")
           || strstr (name, "k_proj");
}

/* By one step of AdamW with lr 0.01 an element goes 0.01; one that decays, by
 * 50 lr here, halves as well. */
static void check_element (struct job *job, int rank, const char *name,
                           double before, double now)
{
    bool plain = fabs (fabs (now - before) - 0.01) < 2e-4;

    if (is_frozen (name) != (before == now))
        note (job, rank, name, is_frozen (name), 0, 0);
    else if (strstr (name, "mlp") && !is_frozen (name) && !plain)
        note (job, rank, name, 1, 1, 1);
    else if (strstr (name, "o_proj") && !is_frozen (name)
             && fabs (before) > 2e-3 && plain)
        note (job, rank, name, 2, 2, 2);
}

static train_status_t open_rules (struct rank *r, train_error_t *err)
{
    train_adamw_options_t o = adamw;
    train_status_t status;

    run.opts.no_decay = "*mlp*";
    run.opts.frozen = frozen;
    status = open_rank (r, err);

    o.weight_decay = 50;
    train_adamw_destroy (r->adamw);
    r->adamw = NULL;
    if (status == TRAIN_OK)
        status = fsdp_adamw (r->fsdp, r->decoder, &o, &r->adamw, err);
    return status;
}

/* What is frozen has the weights of the beginning, and no part in the norm:
 * parameters that are cut by ranks, and a whole unit of them. */
static void stay (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};
    double first[64] = {0}, got[2] = {0}, sum = 0;
    char text[300] = "";

    seen->status = open_rules (&r, &seen->err);
    for (int after = 0; after < 2 && seen->status == TRAIN_OK; after++) {
        const double *w = fsdp_weights (r.fsdp)->data;

        for (size_t i = 0; i < train_decoder_n_params (r.decoder); i++) {
            const char *name = train_shard_param (fsdp_plan (r.fsdp), i)->name;
            train_shard_range_t g =
                train_shard_range (fsdp_plan (r.fsdp), i, fsdp_rank (r.fsdp));

            sum += after && !is_frozen (name) ? run.part[i] : 0;
            if (g.count && after)
                check_element (job, rank, name, first[i], w[g.at]);
            else if (g.count)
                first[i] = w[g.at];
        }
        if (!after)
            seen->status = rank_step (&r, 0, got, &seen->err);
    }
    if (seen->status == TRAIN_OK && !near (got[1], sqrt (sum), 1e-12))
        note (job, rank, "norm counts what is frozen", 0, 0, 0);
    if (seen->status == TRAIN_OK)
        seen->status = fsdp_unused (r.fsdp, text, sizeof (text), &seen->err);
    if (text[0])
        note (job, rank, text, 0, 0, 0);
    close_rank (&r);
}

static void test_frozen (void **state)
{
    (void)state;
    prepare (TRAIN_F64, false, 1, 1e-12);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
        struct job job = {.layout = worlds[1 + s % 3], .body = stay};

        run.opts = opts_of ((train_strategy_t)s, 0, 1, s == 2);
        run.micro = 1;
        run.uneven = false;
        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* A rank ends while others are in the backward; those name it soon. */
static train_status_t end_here (void *arg, size_t unit, bool backward,
                                train_error_t *err)
{
    if (backward && unit == 2)
        raise (SIGKILL);
    return fsdp_before (arg, unit, backward, err);
}

static train_status_t after (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    return fsdp_after (arg, unit, backward, err);
}

static void dying (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};
    double got[2];

    seen->status = open_rank (&r, &seen->err);
    if (rank == 1) {
        struct decoder_hooks hooks = {end_here, after, r.fsdp};

        decoder_set_hooks (r.decoder, &hooks);
    }
    if (seen->status == TRAIN_OK) {
        int64_t start_ms = now_ms ();

        seen->status = rank_step (&r, 0, got, &seen->err);
        seen->ms = now_ms () - start_ms;
    }
    close_rank (&r);
}

static void test_rank_dies (void **state)
{
    (void)state;
    prepare (TRAIN_F64, true, 1, 1e-12);
    run.micro = 1;
    run.uneven = false;
    for (int s = TRAIN_DDP; s <= TRAIN_FULL_SHARD; s++) {
        struct job job = {
            .layout = "aab", .body = dying, .timeout_ms = PATIENCE_MS};

        run.opts = opts_of ((train_strategy_t)s, 0, 1, false);
        run_job (&job);
        want (&job, "1", TRAIN_EPEER, "rank 1 ended");
        assert_int_equal (job.ends[1], SIGKILL);
        assert_true (job.shared->seen[0].ms < LATE_MS);
        free_job (&job);
    }
}

/* A visit that the model has not is refused, and so is a step within one. */
static void test_out_of_turn (void **state)
{
    train_group_t *group = NULL;
    struct rank r = {0};

    (void)state;
    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    assert_int_equal (train_group_create (NULL, &group, NULL), TRAIN_OK);
    run.opts = opts_of (TRAIN_FULL_SHARD, 0, 1, false);
    r.group = group;
    assert_int_equal (open_rank (&r, NULL), TRAIN_OK);
    assert_int_equal (fsdp_before (r.fsdp, 0, true, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_before (r.fsdp, 1, false, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_after (r.fsdp, 0, false, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_before (r.fsdp, 0, false, NULL), TRAIN_OK);
    assert_int_equal (fsdp_before (r.fsdp, 1, false, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_begin (r.fsdp, NULL), TRAIN_ESTATE);
    assert_int_equal (fsdp_end (r.fsdp, NULL), TRAIN_ESTATE);
    close_rank (&r);
    train_group_destroy (group);
}

static void visit (struct fsdp *f, size_t unit, bool backward)
{
    train_error_t err = {0};

    if (fsdp_before (f, unit, backward, &err) != TRAIN_OK
        || fsdp_after (f, unit, backward, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

/* A tied head may make its logits in the backward alone; a forward may have no
 * backward. */
static void test_without_tail (void **state)
{
    static const size_t back[] = {0, 4, 3, 2, 1, 0};
    train_group_t *group = NULL;
    struct rank r = {0};

    (void)state;
    prepare (TRAIN_F64, true, 1, 1e-12);
    assert_int_equal (train_group_create (NULL, &group, NULL), TRAIN_OK);
    for (int prefetch = 0; prefetch < 3; prefetch++) {
        run.opts = opts_of (TRAIN_FULL_SHARD, prefetch == 2 ? 700 : 0, prefetch,
                            false);
        r = (struct rank){.group = group};
        assert_int_equal (open_rank (&r, NULL), TRAIN_OK);
        assert_int_equal (fsdp_begin (r.fsdp, NULL), TRAIN_OK);
        for (int pass = 0; pass < 3; pass++) {
            assert_int_equal (fsdp_pass (r.fsdp, pass == 2, NULL), TRAIN_OK);
            for (size_t u = 0; u < 5; u++)
                visit (r.fsdp, u, false);
            for (size_t i = 0; pass != 1 && i < 6; i++)
                visit (r.fsdp, back[i], true);
        }
        assert_int_equal (fsdp_end (r.fsdp, NULL), TRAIN_OK);
        assert_int_equal (fsdp_held (r.fsdp).weights, 0);
        close_rank (&r);
    }
    train_group_destroy (group);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_frozen),
        cmocka_unit_test (test_rank_dies),
        cmocka_unit_test (test_out_of_turn),
        cmocka_unit_test (test_without_tail),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
