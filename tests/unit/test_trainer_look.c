/* SPDX-License-Identifier: Apache-2.0
 * test_trainer_look.c - the look at a bad step over made-up GPUs: what it
 * names, and a rank that does not come to it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <train/watch.h>

#include "fake_decoder.h"
#include "fake_nccl.h"
#include "group_ranks.h"
#include "libtrain/err.h"
#include "shard_run.h"

#define TIME_MS 2500

static const struct fake_orders no_orders = {.rank = -1};

/* One rank's decoder: while it is looked at, the look's hooks are around these,
 * and nothing but the look waits for the stream. */
static const train_decoder_t *decoder;
static struct job *absent; /* of the rank that does not come; or NULL */

static void stay_away (struct job *job)
{
    while (!atomic_load (&job->shared->flag))
        usleep (1000);
    raise (SIGKILL);
}

static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    bool looks = decoder->hooks.before != before;
    train_status_t status;

    if (looks && absent)
        stay_away (absent);
    status = fake_decoder.engine.before (arg, unit, backward, err);
    if (status == TRAIN_OK && !looks)
        fake_finish (fake_decoder.passes);
    return status;
}

static void hook (train_decoder_t *d)
{
    struct decoder_hooks own = fake_decoder.engine;

    own.before = before;
    decoder = d;
    decoder_set_hooks (d, &own);
}

/* All that rank 0 has of the weights, once nothing is under way. */
static void poison (const struct made *m)
{
    DLTensor *w = train_trainer_weights (m->trainer);
    float *x = w->data;

    fake_finish (fake_decoder.passes);
    for (int64_t i = 0; i < train_tensor_numel (w); i++)
        x[i] = NAN;
}

/* A good step, and one that the look follows. */
static train_status_t two_steps (const struct made *m, int rank,
                                 train_error_t *err)
{
    train_metrics_t got = {0};

    TRY (train_trainer_step (m->trainer, false, &got, err));
    if (got.skipped)
        return err_set (err, TRAIN_ESTATE, "the good step is skipped");
    if (rank == 0)
        poison (m);
    return train_trainer_step (m->trainer, false, &got, err);
}

static void body (struct job *job, int rank, train_group_t *gpus)
{
    const train_group_options_t o = {.size = sizeof (o), .backend = "host"};
    struct seen *seen = &job->shared->seen[rank];
    train_group_t *host = NULL;
    struct made m = {0};
    const char *text;

    absent = job->arg && rank == 1 ? job : NULL;
    seen->status = train_group_create (&o, &host, &seen->err);
    if (seen->status == TRAIN_OK)
        seen->status = begin (&m, host, gpus, &seen->err);
    if (seen->status == TRAIN_OK) {
        hook (m.decoder);
        seen->status = two_steps (&m, rank, &seen->err);
    }
    text = m.trainer ? train_trainer_nonfinite (m.trainer) : NULL;
    if (seen->status == TRAIN_OK
        && (!text
            || !strstr (text, "step 2: NaN in the weight model.embed_tokens."
                              "weight at [0, 0] (rank 0 on ")))
        note (job, rank, text ? text : "nothing is named", 0, 0, 0);
    drop (&m);
    train_group_destroy (host);
    atomic_store (&job->shared->flag, 1);
}

static void run_on (struct job *job)
{
    run = (struct shard_run){.dtype = TRAIN_F32, .strategy = TRAIN_FULL_SHARD};
    job->body = body;
    job->backend = "nccl";
    fake_open (&no_orders);
    run_job (job);
    fake_close ();
}

static void test_named (void **state)
{
    struct job job = {.layout = "aab"};

    (void)state;
    run_on (&job);
    want_ok (&job);
    free_job (&job);
}

/* The look waits in the passes' stream for weights that rank 1 has part of. */
static void test_absent (void **state)
{
    struct job job = {.layout = "aa", .timeout_ms = TIME_MS, .arg = 1};

    static const char text[] = "rank 1 did not go on with all_gather";

    (void)state;
    do
        run_on (&job);
    while (once_more (&job, "1", TRAIN_ETIMEDOUT, text));
    want (&job, "1", TRAIN_ETIMEDOUT, text);
    free_job (&job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_named),
        cmocka_unit_test (test_absent),
    };

    return cmocka_run_group_tests_name ("trainer_look", tests, set_up,
                                        tear_down);
}
