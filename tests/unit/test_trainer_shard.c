/* SPDX-License-Identifier: Apache-2.0
 * test_trainer_shard.c - a trainer whose ranks have a made-up GPU each, beside
 * one on the host: losses, norms, skips by a loss scale, evaluation, and
 * checkpoints that go on elsewhere */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/trainer.h>
#include <train/watch.h>

#include "fake_decoder.h"
#include "fake_impl.h"
#include "group_ranks.h"
#include "libtrain/err.h"
#include "libtrain/group_impl.h"
#include "libtrain/optim_far.h"
#include "libtrain/optim_state.h"
#include "libtrain/trainer.h"
#include "shard_run.h"

#define HALF 3 /* where it is saved, and gone on from */

static const struct fake_orders no_orders = {.rank = -1};

static bool is_near (double x, double y)
{
    return fabs (x - y) <= run.bound * fabs (y);
}

static void compare (const train_metrics_t *m, int s, char *text, size_t size)
{
    bool same = is_near (m->loss, run.loss[s]) && m->skipped == run.skipped[s]
                && m->stop == (s == 1)
                && (m->skipped || is_near (m->grad_norm, run.norm[s]));

    if (!same && !text[0])
        snprintf (text, size,
                  "step %d: loss %.9g, not %.9g; norm %.9g, not %.9g; skipped "
                  "%d, not %d; stop %d",
                  s, m->loss, run.loss[s], m->grad_norm, run.norm[s],
                  m->skipped, run.skipped[s], m->stop);
}

/* The steps that are left and an evaluation; what differs goes to [text]. */
static train_status_t take_steps (const struct made *m, bool asks, char *text,
                                  size_t size, train_error_t *err)
{
    double loss = 0;
    train_status_t status = TRAIN_OK;

    for (int s = (int)train_trainer_steps (m->trainer);
         s < STEPS && status == TRAIN_OK; s++) {
        train_metrics_t got = {0};

        status = train_trainer_step (m->trainer, asks && s == 1, &got, err);
        if (status == TRAIN_OK)
            compare (&got, s, text, size);
        if (status == TRAIN_OK && run.saves && s + 1 == HALF)
            status = train_trainer_save (m->trainer, "ckpt", 1, err);
    }
    if (status == TRAIN_OK)
        status = evaluate (m, &loss, err);
    if (status == TRAIN_OK && !is_near (loss, run.eval) && !text[0])
        snprintf (text, size, "evaluation %.9g, not %.9g", loss, run.eval);
    return status;
}

/* [use] of a rank's trainer, between groups of the host and of the GPUs. */
static void with_trainer (struct job *job, int rank, train_group_t *gpus,
                          train_status_t (*use) (struct job *job, int rank,
                                                 struct made *m,
                                                 train_error_t *err))
{
    const train_group_options_t o = {.size = sizeof (o), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    train_group_t *host = NULL;
    struct made m = {0};

    seen->status = train_group_create (&o, &host, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = begin (&m, host, gpus, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = use (job, rank, &m, &seen->err);
    drop (&m);
    train_group_destroy (host);
}

static train_status_t train_all (struct job *job, int rank, struct made *m,
                                 train_error_t *err)
{
    struct seen *seen = &job->shared->seen[rank];
    char unused[200] = "";

    TRY (take_steps (m, rank == job->size - 1, seen->note, sizeof (seen->note),
                     err));
    TRY (train_trainer_unused (m->trainer, unused, sizeof (unused), err));
    if (unused[0])
        note (job, rank, unused, 0, 0, 0);
    return TRAIN_OK;
}

static void body (struct job *job, int rank, train_group_t *gpus)
{
    with_trainer (job, rank, gpus, train_all);
}

static void run_body (const char *layout,
                      void (*run_it) (struct job *, int, train_group_t *))
{
    struct job job = {.layout = layout, .body = run_it, .backend = "nccl"};

    fake_open (&no_orders);
    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].note[0] || job.shared->seen[r].status)
            fail_msg ("%s rank %d, strategy %d, %s: %s %s", layout, r,
                      (int)run.strategy, train_dtype_name (run.dtype),
                      job.shared->seen[r].note, job.shared->seen[r].err.text);
    want_ok (&job);
    free_job (&job);
    fake_close ();
}

static void run_on (const char *layout)
{
    run_body (layout, body);
}

/* One host's, which the ranks read when they are forked. */
static void reference (train_dtype_t dtype, double bound)
{
    train_group_t *group = NULL;
    train_trainer_options_t o;
    struct made m = {0};

    run.dtype = dtype;
    run.bound = bound;
    run.strategy = TRAIN_NO_SHARD;
    unsetenv ("RANK");
    setenv ("RV_BOOT", "single", 1);
    assert_int_equal (train_group_create (NULL, &group, NULL), 0);
    assert_int_equal (parts (&m, NULL), 0);
    o = options (NULL);
    assert_int_equal (
        train_trainer_create (&o, group, m.data, m.decoder, &m.trainer, NULL),
        0);
    assert_int_equal (train_trainer_init (m.trainer, 3, NULL), 0);
    for (int s = 0; s < STEPS; s++) {
        train_metrics_t got;

        assert_int_equal (train_trainer_step (m.trainer, false, &got, NULL), 0);
        run.loss[s] = got.loss;
        run.norm[s] = got.grad_norm;
        run.skipped[s] = got.skipped;
    }
    assert_int_equal (evaluate (&m, &run.eval, NULL), 0);
    drop (&m);
    train_group_destroy (group);
    unsetenv ("RV_BOOT");
}

static void test_float (void **state)
{
    static const char *const layout[] = {"aa", "aba", "aab", "aabb"};

    (void)state;
    reference (TRAIN_F32, 1e-4);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
        run.strategy = (train_strategy_t)s;
        run_on (layout[s]);
    }
    run_on ("a"); /* sharded among one */
}

/* The scale is too large at first: all skip, and agree on when not to. */
static void test_scale (void **state)
{
    (void)state;
    reference (TRAIN_F16, 5e-3);
    assert_true (run.skipped[0]);
    assert_false (run.skipped[STEPS - 1]);
    run.strategy = TRAIN_FULL_SHARD;
    run_on ("aab");
    run.strategy = TRAIN_DDP;
    run_on ("aa");
}

/* Saved by two, gone on with by three of another strategy. */
static void test_go_on (void **state)
{
    (void)state;
    reference (TRAIN_BF16, 5e-3);
    run.saves = true;
    run.strategy = TRAIN_FULL_SHARD;
    run_on ("aa");
    run.saves = false;
    run.loads = true;
    run.strategy = TRAIN_DDP;
    run_on ("aba");
    run.strategy = TRAIN_SHARD_GRAD_OP;
    run_on ("a");
    run.loads = false;
}

/* Saved by each strategy and gone on with by each: what is frozen has no masters,
 * which a file has all the same. */
static void go_round (void)
{
    static const char *const from[] = {"aa", "aba", "aab", "aa"};
    static const char *const to[] = {"aab", "aa", "aabb", "a"};

    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++) {
        run.saves = true;
        run.strategy = (train_strategy_t)s;
        run_on (from[s]);
        run.saves = false;
        run.loads = true;
        for (int t = TRAIN_NO_SHARD; t <= TRAIN_FULL_SHARD; t++) {
            run.strategy = (train_strategy_t)t;
            if ((s + t) % 2 || t == TRAIN_FULL_SHARD)
                run_on (to[t]);
        }
        run.loads = false;
    }
}

static void test_frozen (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};

    (void)state;
    for (int i = 0; i < 6; i++) {
        run.frozen = i % 2 ? "*embed*,*layers.0*,*layers.1*norm*" : NULL;
        run.lora = i % 2
                       ? (train_lora_t){0}
                       : (train_lora_t){.rank = 2, .alpha = 4, .targets = 127};
        reference (dtype[i / 2], i < 2 ? 1e-4 : 5e-3);
        go_round ();
    }
    run.frozen = NULL;
    run.lora = (train_lora_t){0};
}

/* Moments and masters in host memory, in pieces that divide nothing. */
static void test_offload (void **state)
{
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};

    (void)state;
    adamw_far_piece (199);
    for (int i = 0; i < 3; i++) {
        reference (dtype[i], i ? 5e-3 : 1e-4);
        run.offload = true;
        for (int s = TRAIN_DDP; s <= TRAIN_FULL_SHARD; s++) {
            run.strategy = (train_strategy_t)s;
            run.saves = s == TRAIN_FULL_SHARD;
            run_on (s == TRAIN_DDP ? "ab" : "aab");
        }
        run.saves = false;
        run.loads = true;
        run.strategy = TRAIN_DDP;
        run_on ("aa");
        run.offload = run.loads = false;
        run.strategy = TRAIN_FULL_SHARD;
        run_on ("a");
    }
    adamw_far_piece (0);
}

/* On the host nothing is far. */
static void test_offload_of_host (void **state)
{
    (void)state;
    run.strategy = TRAIN_NO_SHARD;
    run.offload = true;
    refuse_on_host ("is on the host already");
    run.offload = false;
}

/* Without a group that can move what lies on a GPU. */
static void lonely (struct job *job, int rank, train_group_t *gpus)
{
    struct seen *seen = &job->shared->seen[rank];
    train_trainer_options_t o = options (NULL);
    struct made m = {0};

    seen->status = parts (&m, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status =
            fake_decoder_move (m.decoder, gpus->where.device, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = train_trainer_create (&o, gpus, m.data, m.decoder,
                                             &m.trainer, &seen->err);
    drop (&m);
}

static void test_no_group (void **state)
{
    struct job job = {.layout = "a", .body = lonely, .backend = "nccl"};

    (void)state;
    run.dtype = TRAIN_F32;
    run.strategy = TRAIN_FULL_SHARD;
    fake_open (&no_orders);
    run_job (&job);
    want (&job, "", TRAIN_EINVAL, "needs device_group");
    free_job (&job);
    fake_close ();
}

/* A trainer that has just been made may be written to at once, by any stream. */
static void write_at_once (struct job *job, int rank, train_group_t *gpus)
{
    const train_group_options_t g = {.size = sizeof (g), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    train_group_t *host = NULL;
    struct made m = {0};
    DLTensor *t;

    seen->status = train_group_create (&g, &host, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = assemble (&m, host, gpus, &seen->err);
    if (seen->status == TRAIN_OK) {
        t = train_trainer_weights (m.trainer);
        memset (t->data, 7, (size_t)train_tensor_bytes (t));
        fake_finish (m.decoder->stream);
        if (*(const char *)t->data != 7)
            snprintf (seen->note, sizeof (seen->note), "zeros came later");
    }
    drop (&m);
    train_group_destroy (host);
}

static void test_zeros (void **state)
{
    (void)state;
    run.dtype = TRAIN_BF16;
    run.strategy = TRAIN_FULL_SHARD;
    for (int i = 0; i < 6; i++) /* the stream is often there by chance */
        run_body ("aab", write_at_once);
}

/* Rank 1's kernels take long: the host only enqueues them, and the others wait
 * for it in their streams. */
static void doze (const void *args)
{
    (void)args;
    fake_last (3e-3);
}

static train_status_t slow_after (void *arg, size_t unit, bool backward,
                                  train_error_t *err)
{
    fake_call (fake_decoder.passes, doze, "", 1);
    return fake_decoder.engine.after (arg, unit, backward, err);
}

static void make_slow (train_decoder_t *d)
{
    struct decoder_hooks own = d->hooks;

    own.after = slow_after;
    decoder_set_hooks (d, &own);
}

static train_status_t find_slow (struct job *job, int rank, struct made *m,
                                 train_error_t *err)
{
    struct seen *seen = &job->shared->seen[rank];
    char line[240] = "";
    int slow = -2;

    if (rank == 1)
        make_slow (m->decoder);
    for (int s = 0; s < 8; s++) /* two of them are timed */
        TRY (train_trainer_step (m->trainer, false, NULL, err));
    TRY (train_trainer_slow (m->trainer, 1.5, &slow, line, sizeof (line), err));
    if (slow != 1 || !strstr (line, "rank 1 on ")
        || !strstr (line, "(8 steps)"))
        snprintf (seen->note, sizeof (seen->note), "rank %d: %.150s", slow,
                  line);
    return TRAIN_OK;
}

static void slow_body (struct job *job, int rank, train_group_t *gpus)
{
    with_trainer (job, rank, gpus, find_slow);
}

static void test_slow (void **state)
{
    static const train_strategy_t ways[] = {TRAIN_DDP, TRAIN_FULL_SHARD};

    (void)state;
    run.dtype = TRAIN_F32;
    for (size_t i = 0; i < sizeof (ways) / sizeof (*ways); i++) {
        run.strategy = ways[i];
        run_body ("aab", slow_body);
    }
}

/* ---- a rank that fails at a checkpoint by itself --------------------- */

static train_status_t broken_sync (void *stream, train_error_t *err)
{
    (void)stream;
    return err_set (err, TRAIN_EIO, "a made-up fault");
}

/* Does every rank say whose fault it is, and of which file? */
static void look_at (struct job *job, int rank, train_status_t status,
                     const train_error_t *err, const char *file)
{
    if (status != TRAIN_EIO || !strstr (err->text, "a made-up fault")
        || !strstr (err->text, file)
        || (rank != 1 && !strstr (err->text, "another rank failed: rank 1: ")))
        note (job, rank, err->text, status, 0, 0);
}

static void spoil (struct made *m, bool on)
{
    static struct backend_ops broken;
    static const struct backend_ops *sound;
    train_adamw_t *a = m->trainer->adamw;

    if (!sound)
        sound = a->ops;
    broken = *sound;
    broken.sync = broken_sync;
    a->ops = on ? &broken : sound;
}

/* Rank 1's moments cannot be laid out for a file, twice. */
static train_status_t fail_both (struct job *job, int rank, struct made *m,
                                 train_error_t *err)
{
    if (!adamw_is_own (m->trainer->adamw))
        return err_set (err, TRAIN_ESTATE, "moments lie as the weights do");
    spoil (m, rank == 1);
    look_at (job, rank, train_trainer_save (m->trainer, "lost", 1, err), err,
             "save to lost: ");
    spoil (m, false);
    TRY (train_trainer_save (m->trainer, "lost", 1, err));
    spoil (m, rank == 1);
    look_at (job, rank, train_trainer_load (m->trainer, "lost", err), err,
             "checkpoint lost/step-00000000: ");
    spoil (m, false);
    return train_trainer_load (m->trainer, "lost", err);
}

static void lost_body (struct job *job, int rank, train_group_t *gpus)
{
    with_trainer (job, rank, gpus, fail_both);
}

static void test_lost_moments (void **state)
{
    static const train_strategy_t ways[] = {TRAIN_SHARD_GRAD_OP,
                                            TRAIN_FULL_SHARD};

    (void)state;
    run.dtype = TRAIN_F32;
    run.lora = (train_lora_t){.rank = 2, .alpha = 4, .targets = 3};
    for (size_t i = 0; i < sizeof (ways) / sizeof (*ways); i++) {
        run.strategy = ways[i];
        run_body ("aab", lost_body);
    }
    run.lora = (train_lora_t){0};
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_float),
        cmocka_unit_test (test_scale),
        cmocka_unit_test (test_go_on),
        cmocka_unit_test (test_frozen),
        cmocka_unit_test (test_offload),
        cmocka_unit_test (test_offload_of_host),
        cmocka_unit_test (test_no_group),
        cmocka_unit_test (test_zeros),
        cmocka_unit_test (test_slow),
        cmocka_unit_test (test_lost_moments),
    };

    return cmocka_run_group_tests (tests, set_up, tear_down);
}
