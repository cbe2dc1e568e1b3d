/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_wire.c - gradients that are short on the wire, where places there cross
 * from one pass to the next and those of the gradients themselves do not
 *
 * The model is made up: its backwards add numbers that BF16 has. On the host the sum
 * of a pass's last stay rests on the wire until its room is taken again. By then the
 * next pass has gathered its weights, which come after that sum: so what is written
 * across it meanwhile is seen each time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>

#include "group_ranks.h"
#include "made_units.h"
#include "libtrain/err.h"
#include "libtrain/fsdp_impl.h"

#define UNITS  6
#define PASSES 3

static const size_t counts[UNITS] = {626, 722, 952, 742, 62, 1048};
static train_strategy_t strategy; /* what the ranks, which are forked, have */

struct made_up {
    struct fsdp *f;
    float *grads[UNITS];
};

static float value (int rank, int pass, size_t unit, size_t i)
{
    return (float)(1 + (i * 7 + unit * 3 + (size_t)(pass * 5 + rank)) % 31);
}

static void set_unit (void *arg, size_t unit, void *weights, void *grads)
{
    struct made_up *m = arg;

    (void)weights;
    m->grads[unit] = grads;
}

static train_status_t open_model (struct made_up *m, train_group_t *group,
                                  train_error_t *err)
{
    const struct fsdp_options o = {
        .strategy = strategy, .prefetch = 1, .reduce = TRAIN_BF16};
    train_shard_param_t params[UNITS];
    size_t visits[UNITS];
    struct fsdp_model model = made_units (params, visits, counts, UNITS);

    model.set_unit = set_unit;
    model.arg = m;
    return fsdp_create (&o, group, &model, &m->f, err);
}

static bool cross (size_t a, size_t n, size_t b, size_t m)
{
    return a < b + m && b < a + n;
}

/* What this file is about, whatever finds the places: gradients of the first stay,
 * whose turn is last, have nothing across them on the wire but the last stay's, and
 * nothing at all where they are made. */
static bool wires_alone_cross (const struct fsdp *f)
{
    const size_t last = UNITS - 1, at = f->grads_at[0];
    const size_t bytes = fsdp_whole_bytes (f, 0);

    for (size_t i = 0; i < UNITS; i++)
        if (cross (at, bytes, f->forth_at[i], f->units[i].whole * f->wsize))
            return false;
    return !cross (at, bytes, f->grads_at[last], fsdp_whole_bytes (f, last))
           && cross (f->wire_at[0], f->units[0].room, f->wire_at[last],
                     f->units[last].room);
}

static train_status_t one_pass (struct made_up *m, int rank, int pass,
                                train_error_t *err)
{
    TRY (fsdp_pass (m->f, pass + 1 == PASSES, err));
    for (size_t u = 0; u < UNITS; u++) {
        TRY (fsdp_before (m->f, u, false, err));
        TRY (fsdp_after (m->f, u, false, err));
    }
    for (size_t u = UNITS; u-- > 0;) {
        TRY (fsdp_before (m->f, u, true, err));
        for (size_t i = 0; i < counts[u]; i++)
            m->grads[u][i] += value (rank, pass, u, i);
        TRY (fsdp_after (m->f, u, true, err));
    }
    return TRAIN_OK;
}

static train_status_t one_step (struct made_up *m, int rank, train_error_t *err)
{
    TRY (fsdp_begin (m->f, err));
    for (int pass = 0; pass < PASSES; pass++)
        TRY (one_pass (m, rank, pass, err));
    return fsdp_end (m->f, err);
}

static float sum_of (int ranks, size_t unit, size_t i)
{
    float sum = 0;

    for (int r = 0; r < ranks; r++)
        for (int pass = 0; pass < PASSES; pass++)
            sum += value (r, pass, unit, i);
    return sum;
}

static void check_sums (struct job *job, int rank, const struct made_up *m)
{
    const float *got = fsdp_grads (m->f)->data;

    for (size_t u = 0; u < UNITS; u++) {
        train_shard_range_t r = train_shard_range (fsdp_plan (m->f), u, rank);
        size_t wrong = 0;

        for (size_t i = 0; i < r.count; i++)
            wrong += got[r.at + i] != sum_of (job->size, u, r.begin + i);
        if (wrong)
            note (job, rank, "wrong sums", (int)u, (int)wrong, r.count);
    }
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct made_up m = {0};

    seen->status = open_model (&m, group, &seen->err);
    if (seen->status == TRAIN_OK && !wires_alone_cross (m.f))
        note (job, rank, "other places than this test is for", 0, 0, 0);
    if (seen->status == TRAIN_OK)
        seen->status = one_step (&m, rank, &seen->err);
    if (seen->status == TRAIN_OK)
        check_sums (job, rank, &m);
    fsdp_destroy (m.f);
}

static void run_on (const char *layout)
{
    struct job job = {.layout = layout, .body = body, .backend = "host"};

    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].note[0])
            fail_msg ("%s rank %d, strategy %d: %s", layout, r, (int)strategy,
                      job.shared->seen[r].note);
    want_ok (&job);
    free_job (&job);
}

static void test_wires_cross (void **state)
{
    static const char *const layout[] = {"a", "aa", "ab"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        strategy = i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP;
        run_on (layout[i / 2]);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_wires_cross),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
