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
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/group.h>

#include "group_ranks.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/fsdp.h"
#include "kernels/half.h"

#define ROWS  5
#define T     6
#define VOCAB 37
#define STEPS 50
#define SEED  7

static const train_adamw_options_t adamw = {.size = sizeof (adamw),
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .eps = 1e-8,
                                            .weight_decay = 0.1};

/* One run; the ranks, which are forked, read it. */
static struct {
    struct fsdp_options opts;
    bool tie;
    train_dtype_t dtype;
    int micro, steps;
    bool uneven; /* rank 0 has no row, where there are others */
    double want[STEPS], norm[STEPS], bound;
    double weights; /* sum of squares at the end, of one device */
} run;

static train_decoder_config_t config_of (void)
{
    return (train_decoder_config_t){.size = sizeof (train_decoder_config_t),
                                    .layers = 3,
                                    .dim = 10,
                                    .head_dim = 6,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .ffn = 13,
                                    .vocab = VOCAB,
                                    .tie = run.tie,
                                    .rope_theta = 10000,
                                    .norm_eps = 1e-5,
                                    .dtype = run.dtype};
}

/* Tokens of a few rows of a step's batch: a sum with a remainder, some noise. */
static void rows_of (int step, int first, int n, int32_t *tokens,
                     int32_t *targets)
{
    for (int b = 0; b < n; b++) {
        uint32_t x = (uint32_t)(step * 131 + (first + b) * 17 + 1);

        for (int t = 0; t < T; t++) {
            tokens[b * T + t] = (int32_t)(x % VOCAB);
            x = x * 5 + 3 + (x >> 7);
            targets[b * T + t] = t == 2 ? -1 : (int32_t)(x % VOCAB);
        }
    }
}

#define COUNTED (ROWS * (T - 1))

static train_dtype_t real (void)
{
    return run.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
}

/* One device: weights rounded from masters where they are shorter. */
struct one {
    train_decoder_t *decoder, *masters; /* the same where they are not */
    train_adamw_t *adamw;
};

static void round_masters (const struct one *o)
{
    const float *x = train_decoder_weights (o->masters)->data;
    uint16_t *y = train_decoder_weights (o->decoder)->data;

    for (size_t i = 0; i < train_decoder_numel (o->decoder); i++)
        y[i] =
            run.dtype == TRAIN_BF16 ? half_to_bf16 (x[i]) : half_to_f16 (x[i]);
}

static struct one open_one (void)
{
    train_decoder_config_t c = config_of ();
    train_param_t params[64];
    struct one o;
    size_t n;

    assert_int_equal (train_decoder_create (&c, &o.decoder, NULL), 0);
    c.dtype = real ();
    o.masters = o.decoder;
    if (real () != run.dtype)
        assert_int_equal (train_decoder_create (&c, &o.masters, NULL), 0);
    train_decoder_init (o.masters, SEED);
    n = train_decoder_n_params (o.decoder);
    for (size_t i = 0; i < n; i++)
        params[i] = *train_decoder_param (o.decoder, i);
    assert_int_equal (train_adamw_create (&adamw, real (),
                                          train_decoder_numel (o.decoder),
                                          params, n, &o.adamw, NULL),
                      0);
    return o;
}

static void one_step (const struct one *o, int s)
{
    DLTensor *grads = train_decoder_grads (o->decoder);
    int32_t tokens[ROWS * T], targets[ROWS * T];
    int64_t n;

    if (o->masters != o->decoder)
        round_masters (o);
    memset (grads->data, 0, train_tensor_bytes (grads));
    rows_of (s, 0, ROWS, tokens, targets);
    assert_int_equal (train_decoder_step (o->decoder, tokens, targets, ROWS, T,
                                          1.0 / COUNTED, &run.want[s], &n,
                                          NULL),
                      0);
    run.want[s] /= COUNTED;
    assert_int_equal (train_norm (grads, &run.norm[s], NULL), 0);
    assert_int_equal (
        train_adamw_step (o->adamw, train_decoder_weights (o->masters), grads,
                          0.01, train_clip_scale (run.norm[s], 1), NULL),
        0);
}

static void reference (void)
{
    struct one o = open_one ();
    double norm = 0;

    for (int s = 0; s < run.steps; s++)
        one_step (&o, s);
    assert_int_equal (
        train_norm (train_decoder_weights (o.masters), &norm, NULL), 0);
    run.weights = norm * norm;
    train_adamw_destroy (o.adamw);
    if (o.masters != o.decoder)
        train_decoder_destroy (o.masters);
    train_decoder_destroy (o.decoder);
}

struct rank {
    train_group_t *group;
    train_decoder_t *decoder;
    struct fsdp *fsdp;
    train_adamw_t *adamw;
    int first, rows, passes, micro;
};

static train_status_t open_rank (struct rank *r, train_error_t *err)
{
    train_decoder_config_t c = config_of ();
    bool sharded = run.opts.strategy >= TRAIN_SHARD_GRAD_OP;
    int size = train_group_size (r->group), rank = train_group_rank (r->group);
    int most = (ROWS + size - 1) / size;
    train_status_t status = sharded
                                ? decoder_create_bare (&c, &r->decoder, err)
                                : train_decoder_create (&c, &r->decoder, err);

    r->first = rank * ROWS / size;
    r->rows = (rank + 1) * ROWS / size - r->first;
    if (run.uneven && size > 1) {
        r->first = rank > 0 ? (rank - 1) * ROWS / (size - 1) : 0;
        r->rows = rank > 0 ? rank * ROWS / (size - 1) - r->first : 0;
        most = (ROWS + size - 2) / (size - 1);
    }
    r->micro = run.micro ? run.micro : ROWS;
    r->passes = (most + r->micro - 1) / r->micro;
    if (status == TRAIN_OK)
        status =
            fsdp_of_decoder (&run.opts, r->group, r->decoder, &r->fsdp, err);
    if (status == TRAIN_OK)
        status = fsdp_init_decoder (r->fsdp, r->decoder, SEED, err);
    if (status == TRAIN_OK)
        status = fsdp_adamw (r->fsdp, r->decoder, &adamw, &r->adamw, err);
    return status;
}

static void close_rank (struct rank *r)
{
    train_adamw_destroy (r->adamw);
    fsdp_destroy (r->fsdp);
    train_decoder_destroy (r->decoder);
}

static train_status_t pass (struct rank *r, int step, int p, double *loss,
                            train_error_t *err)
{
    int at = p * r->micro, n = r->rows - at;
    int32_t tokens[ROWS * T], targets[ROWS * T];
    int64_t counted = 0;
    double sum = 0;
    train_status_t status;

    status = fsdp_pass (r->fsdp, p + 1 == r->passes, err);
    if (status != TRAIN_OK)
        return status;
    if (n <= 0)
        return fsdp_empty_pass (r->fsdp, err);
    if (n > r->micro)
        n = r->micro;
    rows_of (step, r->first + at, n, tokens, targets);
    status = train_decoder_step (r->decoder, tokens, targets, n, T,
                                 1.0 / COUNTED, &sum, &counted, err);
    *loss += sum;
    return status;
}

static train_status_t step (struct rank *r, int s, double ret[2],
                            train_error_t *err)
{
    train_status_t status = fsdp_begin (r->fsdp, err);
    train_tensor_t t;

    ret[0] = 0;
    for (int p = 0; p < r->passes && status == TRAIN_OK; p++)
        status = pass (r, s, p, &ret[0], err);
    if (status == TRAIN_OK)
        status = fsdp_end (r->fsdp, err);
    if (status != TRAIN_OK)
        return status;
    ret[0] /= COUNTED;
    ret[1] = fsdp_sumsq (r->fsdp);
    if (!view_of (&t, ret, TRAIN_F64, 2))
        return TRAIN_EINVAL;
    status = train_all_reduce (r->group, &t.t, TRAIN_SUM, err);
    ret[1] = sqrt (ret[1]);
    if (status == TRAIN_OK)
        status = train_adamw_step (r->adamw, fsdp_weights (r->fsdp),
                                   fsdp_grads (r->fsdp), 0.01,
                                   train_clip_scale (ret[1], 1), err);
    fsdp_updated (r->fsdp);
    return status;
}

static bool near (double a, double b, double bound)
{
    return fabs (a - b) <= bound * fabs (b);
}

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
    char text[160];

    seen->status = open_rank (&r, &seen->err);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++) {
        double got[2];

        seen->status = step (&r, s, got, &seen->err);
        if (seen->status != TRAIN_OK
            || (near (got[0], run.want[s], run.bound)
                && near (got[1], run.norm[s], 100 * run.bound)))
            continue;
        snprintf (text, sizeof (text),
                  "step %d: loss %.17g, not %.17g; norm %.17g, not %.17g", s,
                  got[0], run.want[s], got[1], run.norm[s]);
        note (job, rank, text, 0, 0, 0);
    }
    if (seen->status == TRAIN_OK) {
        check_held (job, rank, &r);
        check_weights (job, rank, &r, 100 * run.bound);
    }
    close_rank (&r);
}

static const char *const worlds[] = {"a", "aa", "aba", "aabb"};

static void run_on (const char *layout)
{
    struct job job = {.layout = layout, .body = body};

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
}

static struct fsdp_options opts_of (train_strategy_t strategy, size_t least,
                                    int prefetch, bool no_sync)
{
    return (struct fsdp_options){.strategy = strategy,
                                 .wrap =
                                     least ? TRAIN_WRAP_SIZE : TRAIN_WRAP_UNIT,
                                 .least = least,
                                 .prefetch = prefetch,
                                 .no_sync = no_sync,
                                 .reduce = real ()};
}

static void prepare (train_dtype_t dtype, bool tie, int steps, double bound)
{
    run.dtype = dtype;
    run.tie = tie;
    run.steps = steps;
    run.bound = bound;
    reference ();
}

/* 50 steps in double: one device's losses and norms, 1e-12. */
static void test_double (void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        prepare (TRAIN_F64, tie, STEPS, 1e-12);
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
            run.micro = 1 + s % 2;
            run.uneven = s == 3;
            run_on (worlds[1 + s % 3]);
        }
    }
}

/* Gradients that travel as bf16: each rank's part is rounded, 2^-9. */
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

        seen->status = step (&r, 0, got, &seen->err);
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
        struct job job = {.layout = "aab", .body = dying, .timeout_ms = 30000};

        run.opts = opts_of ((train_strategy_t)s, 0, 1, false);
        run_job (&job);
        want (&job, "1", TRAIN_EPEER, "rank 1 ended");
        assert_int_equal (job.ends[1], SIGKILL);
        assert_true (job.shared->seen[0].ms < 10000);
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
        cmocka_unit_test (test_double),
        cmocka_unit_test (test_combinations),
        cmocka_unit_test (test_float),
        cmocka_unit_test (test_halves),
        cmocka_unit_test (test_short_wire),
        cmocka_unit_test (test_rank_dies),
        cmocka_unit_test (test_out_of_turn),
        cmocka_unit_test (test_without_tail),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
