/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_far.c - the order in which weights come from the host's memory: the
 * host enqueues whole passes while streams stand still, each alone and together
 *
 * The model is made up: a kernel of a visit looks at what its unit has when the
 * passes' stream comes to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_impl.h"
#include "group_ranks.h"
#include "made_units.h"
#include "libtrain/err.h"
#include "libtrain/fsdp_gpu.h"

#define UNITS   6
#define STALL   2 /* ms */
#define STREAMS 3

static const struct fake_orders no_orders = {.rank = -1};
static const size_t counts[UNITS] = {31, 7, 50, 50, 1, 23};

/* What the ranks, which are forked, are asked for. */
static struct {
    train_strategy_t strategy;
    int prefetch;
    bool clocked; /* streams go on by themselves */
} ask;

struct made_up {
    const struct backend_ops *ops;
    void *stream;
    struct fsdp *f;
    const float *at[UNITS];
    int step;
};

static int wrong; /* elements that were not what they should be */

static float value (int step, size_t unit, size_t i)
{
    return (float)(step * 10000 + (int)unit * 1000 + (int)i);
}

static void set_unit (void *arg, size_t unit, void *weights, void *grads)
{
    struct made_up *m = arg;

    (void)grads;
    m->at[unit] = weights;
}

struct look_args {
    const float *at;
    size_t unit;
    int step;
};

static void look (const void *args)
{
    const struct look_args *a = args;

    for (size_t i = 0; i < counts[a->unit]; i++)
        wrong += a->at[i] != value (a->step, a->unit, i);
}

static train_status_t open_model (struct made_up *m, train_group_t *group,
                                  train_error_t *err)
{
    static train_shard_param_t params[UNITS];
    static size_t visits[UNITS];
    const struct fsdp_options o = {.strategy = ask.strategy,
                                   .prefetch = ask.prefetch,
                                   .offload_weights = true,
                                   .reduce = TRAIN_F32};
    struct fsdp_model model = made_units (params, visits, counts, UNITS);

    model.set_unit = set_unit;
    model.arg = m;
    model.device = group->where.device;
    TRY (backend_find ("cuda", &m->ops, err));
    model.ops = m->ops;
    TRY (m->ops->stream_create (model.device, &m->stream, err));
    model.stream = m->stream;
    return fsdp_create (&o, group, &model, &m->f, err);
}

/* The weights of the next step, in the host's memory. */
static void renew (struct made_up *m)
{
    float *own = fsdp_weights (m->f)->data;

    m->step++;
    for (size_t u = 0; u < UNITS; u++) {
        train_shard_range_t r =
            train_shard_range (fsdp_plan (m->f), u, fsdp_rank (m->f));

        for (size_t i = 0; i < r.count; i++)
            own[r.at + i] = value (m->step, u, r.begin + i);
    }
    fsdp_updated (m->f);
}

/* The backward of the first has no weights where they would come anew. */
static train_status_t visit (struct made_up *m, size_t u, bool backward,
                             train_error_t *err)
{
    bool none = backward && u == 0 && ask.strategy == TRAIN_FULL_SHARD;
    struct look_args a;

    TRY (fsdp_before (m->f, u, backward, err));
    a = (struct look_args){m->at[u], u, m->step};
    wrong += none != !m->at[u];
    if (m->at[u])
        fake_call (m->stream, look, &a, sizeof (a));
    return fsdp_after (m->f, u, backward, err);
}

/* Of these streams those in [mask] stand still for a while. */
static void stall (const struct made_up *m, unsigned mask)
{
    void *const stream[STREAMS] = {m->stream, m->f->on->link, m->f->on->side};

    for (unsigned i = 0; i < STREAMS; i++)
        if (mask & 1U << i)
            fake_release_later (stream[i], STALL);
}

static train_status_t one_step (struct made_up *m, unsigned mask,
                                train_error_t *err)
{
    renew (m);
    TRY (fsdp_begin (m->f, err));
    for (int p = 0; p < 2; p++) {
        stall (m, mask);
        TRY (fsdp_pass (m->f, p == 1, err));
        for (size_t u = 0; u < UNITS; u++)
            TRY (visit (m, u, false, err));
        stall (m, mask);
        for (size_t u = UNITS; u-- > 0;)
            TRY (visit (m, u, true, err));
    }
    return fsdp_stop (m->f, err);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct made_up m = {0};

    if (ask.clocked)
        fake_clock ();
    seen->status = open_model (&m, group, &seen->err);
    if (seen->status == TRAIN_OK
        && fsdp_weights (m.f)->device.device_type != kDLCPU)
        note (job, rank, "masters on the GPU", 0, 0, 0);
    for (unsigned mask = 0; mask < 1U << STREAMS && seen->status == TRAIN_OK;
         mask++) {
        seen->status = one_step (&m, mask, &seen->err);
        if (wrong)
            note (job, rank, "stale weights", wrong, (int)mask, 0);
    }
    fsdp_destroy (m.f);
}

static void run_on (const char *layout)
{
    struct job job = {.layout = layout, .body = body, .backend = "nccl"};

    fake_open (&no_orders);
    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].note[0] || job.shared->seen[r].status)
            fail_msg ("%s rank %d, strategy %d, prefetch %d, clocked %d: %s %s",
                      layout, r, (int)ask.strategy, ask.prefetch, ask.clocked,
                      job.shared->seen[r].note, job.shared->seen[r].err.text);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

static void run_all (train_strategy_t strategy)
{
    static const char *const layout[] = {"a", "aa", "aba"};

    ask.strategy = strategy;
    for (int i = 0; i < 6; i++) {
        ask.prefetch = i % 3;
        ask.clocked = i / 3;
        run_on (layout[(i + ask.clocked) % 3]);
    }
}

static void test_full (void **state)
{
    (void)state;
    run_all (TRAIN_FULL_SHARD);
}

static void test_grad_op (void **state)
{
    (void)state;
    run_all (TRAIN_SHARD_GRAD_OP);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_full),
        cmocka_unit_test (test_grad_op),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
