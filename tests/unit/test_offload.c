/* SPDX-License-Identifier: Apache-2.0
 * test_offload.c - weights that lie in the host's memory, on made-up GPUs: the
 * bits of the run that keeps them there, and the bytes that they leave */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include <train/trainer.h>
#include <train/watch.h>

#include "fake_decoder.h"
#include "fake_impl.h"
#include "group_ranks.h"
#include "libtrain/err.h"
#include "libtrain/group_impl.h"
#include "libtrain/mem_table.h"
#include "libtrain/optim_far.h"
#include "shard_run.h"

#define HALF  3
#define PIECE 199 /* divides nothing */

static const struct fake_orders no_orders = {.rank = -1};

static uint64_t add_tensor (const DLTensor *t, uint64_t hash)
{
    return XXH3_64bits_withSeed (t->data, (size_t)train_tensor_bytes (t), hash);
}

/* What does not train may have none, or zeros. */
static uint64_t add_moments (const DLTensor *t, uint64_t hash)
{
    const float *x = t->data;

    for (int64_t i = 0; i < t->shape[0]; i++)
        if (x[i] != 0)
            hash = XXH3_64bits_withSeed (&x[i], sizeof (x[i]), hash);
    return hash;
}

/* The steps that are left, an evaluation among them, and what they came to. */
static train_status_t take_steps (const struct made *m, uint64_t *hash,
                                  train_error_t *err)
{
    train_trainer_t *t = m->trainer;
    double loss = 0;

    while (train_trainer_steps (t) < STEPS) {
        train_metrics_t got = {0};

        TRY (train_trainer_step (t, false, &got, err));
        if (run.saves && got.step == HALF)
            TRY (train_trainer_save (t, "ckpt", 1, err));
        if (got.step == STEPS - 1)
            TRY (evaluate (m, &loss, err));
        if (got.step == STEPS)
            *hash = XXH3_64bits (&got.loss, sizeof (got.loss));
    }
    TRY (evaluate (m, &loss, err));
    *hash = XXH3_64bits_withSeed (&loss, sizeof (loss), *hash);
    *hash = add_tensor (train_trainer_weights (t), *hash);
    *hash = add_moments (train_trainer_m (t), *hash);
    *hash = add_moments (train_trainer_v (t), *hash);
    return TRAIN_OK;
}

static void with_trainer (struct job *job, int rank, train_group_t *gpus,
                          train_status_t (*use) (const struct made *,
                                                 uint64_t *, train_error_t *))
{
    const train_group_options_t o = {.size = sizeof (o), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    train_group_t *host = NULL;
    struct made m = {0};

    adamw_far_piece (PIECE);
    seen->status = train_group_create (&o, &host, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = begin (&m, host, gpus, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = use (&m, &job->shared->hash[rank], &seen->err);
    drop (&m);
    train_group_destroy (host);
    adamw_far_piece (0);
}

static void steps_body (struct job *job, int rank, train_group_t *gpus)
{
    with_trainer (job, rank, gpus, take_steps);
}

static train_status_t hold (const struct made *m, uint64_t *ret,
                            train_error_t *err)
{
    (void)err;
    *ret = fake_bytes (m->decoder->device);
    return TRAIN_OK;
}

static void hold_body (struct job *job, int rank, train_group_t *gpus)
{
    with_trainer (job, rank, gpus, hold);
}

/* What each rank came to goes to [ret]. */
static void run_on (const char *layout, rank_f body, uint64_t ret[MAX_RANKS])
{
    struct job job = {.layout = layout, .body = body, .backend = "nccl"};

    fake_open (&no_orders);
    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].status)
            fail_msg ("%s rank %d: %s", layout, r,
                      job.shared->seen[r].err.text);
    want_ok (&job);
    memcpy (ret, job.shared->hash, sizeof (job.shared->hash));
    free_job (&job);
    fake_close ();
}

/* With weights offloaded, alone and beside the optimizer's state. */
static void compare (const char *layout)
{
    uint64_t want[MAX_RANKS] = {0}, got[MAX_RANKS] = {0};

    run_on (layout, steps_body, want);
    run.weights = true;
    for (int i = 0; i < 2; i++) {
        run.offload = i > 0;
        run_on (layout, steps_body, got);
        for (size_t r = 0; layout[r]; r++)
            if (got[r] != want[r] || got[r] == 0)
                fail_msg ("%s rank %zu, strategy %d, %s, offload %d: %" PRIx64
                          ", not %" PRIx64,
                          layout, r, (int)run.strategy,
                          train_dtype_name (run.dtype), i, got[r], want[r]);
    }
    run.offload = run.weights = false;
}

static void compare_all (train_dtype_t dtype)
{
    run.dtype = dtype;
    run.strategy = TRAIN_FULL_SHARD;
    compare ("a");
    compare ("aba");
    run.strategy = TRAIN_SHARD_GRAD_OP;
    compare ("aa");
}

static void test_float (void **state)
{
    (void)state;
    compare_all (TRAIN_F32);
}

static void test_bf16 (void **state)
{
    (void)state;
    compare_all (TRAIN_BF16);
}

/* Steps are skipped at first: nothing is updated. */
static void test_f16 (void **state)
{
    (void)state;
    compare_all (TRAIN_F16);
}

/* How far ahead is gathered changes nothing. */
static void test_prefetch (void **state)
{
    (void)state;
    run.dtype = TRAIN_BF16;
    run.strategy = TRAIN_FULL_SHARD;
    run.prefetch = 0;
    compare ("aa");
    run.prefetch = 2;
    compare ("ab");
    run.prefetch = 1;
}

/* Rounding by chance, and parameters that are never updated. */
static void test_frozen (void **state)
{
    (void)state;
    run.dtype = TRAIN_BF16;
    run.strategy = TRAIN_FULL_SHARD;
    run.stochastic = true;
    run.frozen = "*q_proj*,*layers.1*,*norm*";
    compare ("aa");
    run.frozen = NULL;
    run.lora = (train_lora_t){.rank = 2, .alpha = 4, .targets = 3};
    compare ("aa");
    run.lora = (train_lora_t){0};
    run.stochastic = false;
}

/* Replicas: moments and masters of what trains alone, side by side
 * there as here. */
static void test_replicas (void **state)
{
    static const char *const layout[] = {"aa", "aba"};

    (void)state;
    run.frozen = "*q_proj*,*layers.1*,*norm*";
    for (int i = 0; i < 8; i++) {
        uint64_t want[MAX_RANKS] = {0}, got[MAX_RANKS] = {0};

        run.strategy = i / 4 ? TRAIN_DDP : TRAIN_NO_SHARD;
        run.dtype = i / 2 % 2 ? TRAIN_BF16 : TRAIN_F32;
        run_on (layout[i % 2], steps_body, want);
        run.offload = true;
        run_on (layout[i % 2], steps_body, got);
        run.offload = false;
        assert_true (got[0] != 0);
        assert_memory_equal (got, want, sizeof (got));
    }
    run.frozen = NULL;
}

/* Saved with weights there and gone on with here, and the other way. */
static void test_resume (void **state)
{
    uint64_t want[MAX_RANKS] = {0}, got[MAX_RANKS] = {0};

    (void)state;
    run.dtype = TRAIN_BF16;
    run.strategy = TRAIN_FULL_SHARD;
    for (int i = 0; i < 2; i++) {
        run.saves = true;
        run.weights = i > 0;
        run_on ("aa", steps_body, want);
        run.saves = false;
        run.loads = true;
        run.weights = i == 0;
        run.offload = i == 0;
        run_on ("aa", steps_body, got);
        run.weights = run.offload = run.loads = false;
        assert_memory_equal (got, want, sizeof (got));
    }
}

static size_t table_bytes (void)
{
    const train_trainer_options_t o = options (NULL);
    struct mem_row rows[MEM_ROWS];
    struct made m = {0};
    size_t n = 0, sum = 0;

    assert_int_equal (parts (&m, NULL), 0);
    assert_int_equal (mem_table (train_decoder_config (m.decoder), false, &o, 1,
                                 8, false, rows, &n, NULL),
                      0);
    for (size_t i = 0; i < n; i++)
        sum += rows[i].host ? 0 : rows[i].bytes;
    drop (&m);
    return sum;
}

/* What less a GPU holds is what less the table has, but for ends of lines. */
static void test_bytes (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16};
    uint64_t held[2][MAX_RANKS] = {{0}};

    (void)state;
    adamw_far_piece (PIECE);
    run.strategy = TRAIN_FULL_SHARD;
    for (int i = 0; i < 4; i++) {
        int64_t less, want;

        run.dtype = dtype[i / 2];
        run.offload = i % 2;
        run.weights = false;
        want = (int64_t)table_bytes ();
        run_on ("a", hold_body, held[0]);
        run.weights = true;
        want -= (int64_t)table_bytes ();
        run_on ("a", hold_body, held[1]);
        less = (int64_t)held[0][0] - (int64_t)held[1][0];
        assert_true (want > 1000);
        if (llabs (less - want) > 128)
            fail_msg ("%s, offload %d: %" PRId64 " bytes less, the table "
                      "%" PRId64,
                      train_dtype_name (run.dtype), i % 2, less, want);
    }
    run.offload = run.weights = false;
    adamw_far_piece (0);
}

static void refuse (bool sharded, const char *why)
{
    run.weights = true;
    run.strategy = sharded ? TRAIN_FULL_SHARD : TRAIN_DDP;
    refuse_on_host (why);
    run.weights = false;
}

static void test_refused (void **state)
{
    (void)state;
    run.dtype = TRAIN_F32;
    refuse (true, "is on the host already");
    refuse (false, "shards nothing; TRAIN_FULL_SHARD would do");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_float),   cmocka_unit_test (test_bf16),
        cmocka_unit_test (test_f16),     cmocka_unit_test (test_prefetch),
        cmocka_unit_test (test_frozen),  cmocka_unit_test (test_replicas),
        cmocka_unit_test (test_resume),  cmocka_unit_test (test_bytes),
        cmocka_unit_test (test_refused),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
