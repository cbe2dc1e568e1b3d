/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp_frozen.c - adapters beside a frozen model, and layers that train
 * beside frozen ones: every strategy on 1 to 4 ranks beside one device, on the
 * host and on made-up GPUs
 *
 * What is frozen is gathered as weights alone: it has no masters, no moments, no
 * gradients and nothing of it is reduced. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fake_decoder.h"
#include "fake_nccl.h"
#include "fsdp_run.h"
#include "libtrain/decoder_impl.h"
#include "libtrain/fsdp_impl.h"
#include "libtrain/group_impl.h"
#include "libtrain/optim_far.h"

/* Whole units, and parts of one that lie between parts that train; some of a
 * fused product. */
static const char layers[] =
    "*embed*,*layers.0.*,*layers.[12].mlp*,*layers.1.*norm*,*.k_proj*";

/* A little of the model: whole products and vectors. */
static const char few[] =
    "model.norm*,*layers.0.*norm*,*layers.1.*o_proj*,*layers.[02].*down_proj*";

/* What trains: all but layers, adapters, all but few. */
enum kind { LAYERS, LORA, FEW, KINDS };

static const char *const patterns[KINDS] = {layers, NULL, few};
static enum kind kind;

static const struct fake_orders no_orders = {.rank = -1};

/* Elements that have gradients: those of kernels that write any that trains. */
static size_t count_moving (const train_decoder_t *d)
{
    size_t n = 0;

    for (size_t i = 0; i < train_decoder_n_params (d); i++)
        n += decoder_is_still (d, train_decoder_param (d, i)->offset)
                 ? 0
                 : train_decoder_param (d, i)->count;
    return n;
}

static bool is_half (void)
{
    return run.dtype == TRAIN_BF16 || run.dtype == TRAIN_F16;
}

/* Bytes by the elements that train, each cut of a flat unit padded. */
static void check_held (struct job *job, int rank, const struct rank *r)
{
    size_t moving = count_moving (r->decoder), all = r->decoder->numel;
    size_t grads = (size_t)train_tensor_numel (fsdp_grads (r->fsdp));
    size_t m = (size_t)train_tensor_numel (train_adamw_m (r->adamw));
    size_t weights = (size_t)train_tensor_numel (fsdp_weights (r->fsdp));
    size_t world = r->fsdp->world, pads = r->fsdp->n_flats;
    bool sharded = run.opts.strategy >= TRAIN_SHARD_GRAD_OP;
    DLTensor *own = train_adamw_masters (r->adamw);

    if (moving == 0 || moving == all || (kind == FEW) != (moving > all / 2))
        note (job, rank, "the case is none", 0, 0, moving);
    if (grads > moving / world + pads || m > moving / world + pads)
        note (job, rank, "gradients, moments", (int)grads, (int)m, moving);
    if (is_half () && sharded && (own || weights != grads))
        note (job, rank, "masters of a shard", 0, 0, weights);
    if (is_half () && !sharded
        && (!own || (size_t)train_tensor_numel (own) > moving))
        note (job, rank, "masters of replicas", 0, 0, weights);
}

/* Gradients are whole of what trains alone, and are reduced once each. */
static void check_reduced (struct job *job, int rank, const struct rank *r)
{
    const struct fsdp *f = r->fsdp;
    size_t most = fsdp_held (f).most_grads, rooms = 0;

    for (size_t i = 0; i < f->n_flats; i++)
        if (f->gpu && f->sharded && f->flats[i].summed != !f->flats[i].still)
            note (job, rank, "reduced", (int)i, f->flats[i].summed, 0);
    for (size_t u = 0; u < f->n_units; u++)
        rooms += f->units[u].room;
    if (f->sharded
        && rooms > count_moving (r->decoder) + f->n_units * (24 + 2 * 64)
                       + f->n_flats * (64 + f->world))
        note (job, rank, "room", 0, 0, rooms);
    if (most > rooms)
        note (job, rank, "whole gradients", 0, 0, most);
}

/* A step of one pass has activations where gradients of what trains come. */
static void check_lent (struct job *job, int rank, const struct rank *r)
{
    bool may = r->passes == 1 && r->rows > 0 && !run.opts.no_sync;

    if (run.to_gpu && kind == FEW && run.opts.least == 0
        && (r->decoder->layout.lent > 0) != may)
        note (job, rank, "lent", may, 0, r->decoder->layout.lent);
}

static void body (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};

    seen->status = open_rank (&r, &seen->err);
    if (seen->status == TRAIN_OK)
        check_held (job, rank, &r);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++)
        seen->status = step_agrees (job, rank, &r, s, &seen->err);
    if (seen->status == TRAIN_OK) {
        check_reduced (job, rank, &r);
        check_lent (job, rank, &r);
        check_unused (job, rank, &r);
    }
    close_rank (&r);
}

static void to_gpu (struct rank *r)
{
    assert_int_equal (
        fake_decoder_move (r->decoder, r->group->where.device, NULL), 0);
}

static void hook (struct rank *r)
{
    fake_decoder_hook (r->decoder);
}

static void run_on (const char *layout, bool gpu)
{
    run.to_gpu = gpu ? to_gpu : NULL;
    run.hook = gpu ? hook : NULL;
    if (gpu)
        fake_open (&no_orders);
    run_ranks (layout, body, gpu ? "nccl" : "host");
    if (gpu)
        fake_close ();
    run.to_gpu = NULL;
    run.hook = NULL;
}

/* One device's run. */
static void begin (enum kind k, train_dtype_t dtype, bool tie, int steps,
                   double bound)
{
    kind = k;
    run.lora = k == LORA ? 2 : 0;
    run.opts.frozen = patterns[k];
    prepare (dtype, tie, steps, bound);
}

static void set (int s, size_t least, int prefetch, bool no_sync)
{
    run.opts = opts_of ((train_strategy_t)s, least, prefetch, no_sync);
    run.opts.frozen = patterns[kind];
}

/* 20 steps in double. */
static void test_double (void **state)
{
    (void)state;
    for (int i = 0; i < 2 * KINDS; i++) {
        begin ((enum kind) (i / 2), TRAIN_F64, i % 2, 20, 1e-12);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
            for (int w = 0; w < 4; w++) {
                set (s, 0, 1, false);
                run.micro = w == 1 ? 2 : w == 2 ? 1 : 0;
                run.uneven = false;
                run_on (worlds[w], false);
            }
    }
}

/* Units joined, other numbers ahead, gradients kept; a rank without rows. */
static void test_combinations (void **state)
{
    static const size_t least[] = {0, 500, 1300, 100000};

    (void)state;
    for (int i = 0; i < 48; i++) {
        int s = TRAIN_DDP + i % 3;

        begin ((enum kind) (i / 2 % KINDS), TRAIN_F64, i / 4 % 2, 2, 1e-12);
        set (s, least[i / 3 % 4], i % 4, s != TRAIN_DDP && i % 5 < 2);
        run.micro = i % 7 % 3;
        run.uneven = i % 2;
        run_on (worlds[i % 11 % 4], false);
    }
}

/* A step of f32: 1e-6. Halves from the same masters, rounded late and not. */
static void test_short (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 9; i++) {
        begin ((enum kind) (i % KINDS), dtype[i / 3], i < 3, i < 3 ? 1 : 3,
               i < 3 ? 1e-6 : 1e-3);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
            for (int w = 1; w < 4; w++) {
                set (s, 0, w % 2, false);
                run.opts.round_late = w > 1 && i >= 3 && s >= 2;
                run.micro = 1 + w % 2;
                run.uneven = w == 3;
                run_on (worlds[w], false);
            }
    }
}

/* The same enqueued. */
static void test_gpu (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 18; i++) {
        begin ((enum kind) (i % KINDS), dtype[i / 6], i / 2 % 2, 3,
               i < 6 ? 1e-5 : 1e-3);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
            set (s, (i + s) % 3 ? 0 : 500, (i + s) % 3,
                 s >= TRAIN_SHARD_GRAD_OP && i % 3 == 2);
            run.opts.round_late = i % 4 == 3 && i > 5 && s >= 2;
            if (s >= TRAIN_SHARD_GRAD_OP && i % 5 == 4) {
                run.opts.reduce = TRAIN_BF16;
                run.bound = 3e-2;
            }
            run.micro = (i + s) % 3;
            run.uneven = (i + s) % 4 == 3;
            run_on (worlds[(i + s) % 4], true);
        }
    }
}

/* Moments and masters in the host's memory, and weights: in small pieces. */
static void test_offload (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16};

    (void)state;
    adamw_far_piece (100);
    for (int i = 0; i < 2 * KINDS; i++) {
        begin ((enum kind) (i % KINDS), dtype[i / KINDS], i % 2, 3,
               i < KINDS ? 1e-5 : 1e-3);
        for (int k = 0; k < 8; k++) {
            int s = TRAIN_NO_SHARD + k % 4;

            set (s, 0, 1, false);
            run.opts.offload = k < 4 || k % 2;
            run.opts.offload_weights = k >= 4 && s >= TRAIN_SHARD_GRAD_OP;
            run.micro = (i + k) % 3;
            run.uneven = false;
            run_on (worlds[(i + k) % 4], true);
        }
    }
    adamw_far_piece (0);
}

/* Bits of what the steps come to. */
static void hash (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};
    uint64_t *h = &job->shared->hash[rank];

    seen->status = open_rank (&r, &seen->err);
    for (int s = 0; s < run.steps && seen->status == TRAIN_OK; s++) {
        double got[2] = {0};

        seen->status = rank_step (&r, s, got, &seen->err);
        *h = XXH3_64bits_withSeed (got, sizeof (got), *h);
    }
    close_rank (&r);
}

static uint64_t hash_of (bool gpu, bool late)
{
    struct job job = {
        .layout = "aba", .body = hash, .backend = gpu ? "nccl" : "host"};
    uint64_t h;

    run.opts.round_late = late;
    run.to_gpu = gpu ? to_gpu : NULL;
    run.hook = gpu ? hook : NULL;
    fake_open (&no_orders);
    run_job (&job);
    want_ok (&job);
    h = job.shared->hash[0];
    free_job (&job);
    fake_close ();
    run.to_gpu = NULL;
    run.hook = NULL;
    return h;
}

/* Three divide no flat unit: what is rounded into the place behind one comes when
 * that is there, and the bits are those of a shard that is rounded at once. */
static void test_late (void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++) {
        uint64_t at_once;

        begin ((enum kind) (i % KINDS), TRAIN_BF16, false, 3, 1e-3);
        set (i / 6 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP, 0, 1, false);
        run.micro = 1;
        run.uneven = false;
        at_once = hash_of (i / 3 % 2, false);
        assert_true (at_once != 0 && hash_of (i / 3 % 2, true) == at_once);
    }
}

/* A rank alone, by [strategy]. */
static train_status_t alone (train_strategy_t strategy, struct rank *r)
{
    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    set (strategy, 0, 1, false);
    *r = (struct rank){0};
    assert_int_equal (train_group_create (NULL, &r->group, NULL), TRAIN_OK);
    return open_rank (r, NULL);
}

static void end_alone (struct rank *r)
{
    close_rank (r);
    train_group_destroy (r->group);
}

/* Where what is frozen has no masters nothing is taken for them: neither a shard
 * of those that train nor rounded weights. */
static void test_no_masters (void **state)
{
    static const train_strategy_t strategy[] = {TRAIN_DDP, TRAIN_FULL_SHARD};

    (void)state;
    begin (LORA, TRAIN_BF16, false, 1, 1e-3);
    for (int i = 0; i < 2; i++) {
        train_tensor_t whole;
        struct rank r;
        float *to;

        assert_int_equal (alone (strategy[i], &r), TRAIN_OK);
        to = calloc (r.decoder->numel, sizeof (*to));
        assert_true (view_of (&whole, to, TRAIN_F32, r.decoder->numel));
        assert_int_equal (
            fsdp_give (r.fsdp, fsdp_weights (r.fsdp), &whole.t, 0, NULL),
            TRAIN_EINVAL);
        assert_int_equal (
            fsdp_take (r.fsdp, fsdp_weights (r.fsdp), &whole.t, 0, NULL),
            TRAIN_EINVAL);
        free (to);
        end_alone (&r);
    }
}

static train_status_t strict_dw (train_decoder_t *d, void *dw, const void *dy,
                                 const void *x, size_t N, size_t in, size_t out,
                                 train_error_t *err)
{
    return dw ? decoder_work_host.linear_dw (d, dw, dy, x, N, in, out, err)
              : TRAIN_EDEVICE;
}

/* A GPU's products write where they are told to. */
static void hook_strict (struct rank *r)
{
    static struct decoder_work strict;

    strict = *r->decoder->work;
    strict.linear_dw = strict_dw;
    r->decoder->work = &strict;
}

/* Adapters of a block that is frozen: nobody makes their gradients. */
static void test_frozen_adapters (void **state)
{
    (void)state;
    kind = LORA;
    run.lora = 2;
    run.opts.frozen = "*layers.0.*";
    prepare (TRAIN_F64, false, 2, 1e-12);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
        set (s, 0, 1, false);
        run.opts.frozen = "*layers.0.*";
        run.micro = 1;
        run.uneven = false;
        run.hook = hook_strict;
        run_ranks (worlds[s], body, "host");
    }
    run.hook = NULL;
}

/* A decoder that an engine refused is as it was. */
static void test_refused (void **state)
{
    struct rank r;

    (void)state;
    begin (LORA, TRAIN_F32, false, 1, 1e-6);
    assert_int_equal (alone ((train_strategy_t)99, &r), TRAIN_EINVAL);
    assert_null (r.fsdp);
    assert_null (r.decoder->still);
    assert_int_equal (r.decoder->grad_numel, r.decoder->numel);
    end_alone (&r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_double),
        cmocka_unit_test (test_combinations),
        cmocka_unit_test (test_short),
        cmocka_unit_test (test_gpu),
        cmocka_unit_test (test_offload),
        cmocka_unit_test (test_late),
        cmocka_unit_test (test_no_masters),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_frozen_adapters),
    };

    return cmocka_run_group_tests_name ("fsdp_frozen", tests, NULL, NULL);
}
