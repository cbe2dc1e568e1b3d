/* SPDX-License-Identifier: Apache-2.0
 * slow_run.c - hooks in which a made clock goes on */
#include "slow_run.h"

static struct decoder_hooks inner;  /* a rank's own */
static struct decoder_hooks engine; /* the others wait in these for rank 1 */
static double now_s;

static double look (void)
{
    return now_s += 1e-4;
}

static train_status_t sleepy (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    (void)arg;
    now_s += 8e-3;
    return inner.before (inner.arg, unit, backward, err);
}

static train_status_t awake (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    (void)arg;
    return inner.after (inner.arg, unit, backward, err);
}

static train_status_t waits (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    now_s += 8e-3;
    return engine.before (arg, unit, backward, err);
}

void be_slow_or_wait (train_trainer_t *t, train_decoder_t *d, int rank)
{
    const struct decoder_hooks hooks = {sleepy, awake, NULL};

    inner = d->hooks;
    engine = t->slow.inner;
    t->slow.clock = look;
    if (rank == 1)
        decoder_set_hooks (d, &hooks);
    else if (engine.before)
        t->slow.inner.before = waits;
}
