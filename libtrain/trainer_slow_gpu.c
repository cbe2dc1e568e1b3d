/* SPDX-License-Identifier: Apache-2.0
 * trainer_slow_gpu.c - a rank's own time on its GPU: by events on the passes'
 * stream, between what it waits for there
 *
 * The host only enqueues; its clock would tell how long that took, and the step's
 * last wait is as long on all ranks. */
#include "trainer_slow.h"

#include <stdlib.h>

#include "backend.h"
#include "err.h"

#define EVERY 4 /* one step of so many is timed */

struct slow_gpu {
    train_decoder_t *decoder;
    void **event;
    size_t n, room; /* recorded in this step; events that there are */
    int64_t step;
    bool on;
};

train_status_t slow_gpu_create (train_decoder_t *m, struct slow_gpu **ret,
                                train_error_t *err)
{
    struct slow_gpu *g;

    if (!m->ops->timer_create)
        return TRAIN_OK;
    if (!(g = calloc (1, sizeof (*g))))
        return err_set (err, TRAIN_ENOMEM, "no memory for a clock");
    g->decoder = m;
    *ret = g;
    return TRAIN_OK;
}

void slow_gpu_destroy (struct slow_gpu *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->room; i++)
        g->decoder->ops->event_destroy (g->event[i]);
    free (g->event);
    free (g);
}

static train_status_t grow (struct slow_gpu *g, train_error_t *err)
{
    void **more = realloc (g->event, (g->room + 1) * sizeof (*more));

    if (!more)
        return err_set (err, TRAIN_ENOMEM, "no memory for a clock");
    g->event = more;
    TRY (g->decoder->ops->timer_create (g->decoder->device, &more[g->room],
                                        err));
    g->room++;
    return TRAIN_OK;
}

train_status_t slow_gpu_mark (struct slow_gpu *g, train_error_t *err)
{
    train_decoder_t *m;

    if (!g || !g->on)
        return TRAIN_OK;
    m = g->decoder;
    if (g->n == g->room)
        TRY (grow (g, err));
    return m->ops->event_record (g->event[g->n++], m->device, m->stream, err);
}

train_status_t slow_gpu_begin (struct slow_gpu *g, train_error_t *err)
{
    if (!g)
        return TRAIN_OK;
    g->on = ++g->step % EVERY == 0;
    g->n = 0;
    return slow_gpu_mark (g, err);
}

train_status_t slow_gpu_end (struct slow_gpu *g, train_error_t *err)
{
    TRY (slow_gpu_mark (g, err));
    if (g)
        g->on = false;
    return TRAIN_OK;
}

train_status_t slow_gpu_read (struct slow_gpu *g, double *ret_s,
                              bool *ret_timed, train_error_t *err)
{
    double s, sum = 0;

    *ret_timed = g && g->n >= 2;
    for (size_t i = 0; *ret_timed && i + 1 < g->n; i += 2) {
        TRY (g->decoder->ops->timer_between (g->event[i], g->event[i + 1], &s,
                                             err));
        sum += s;
    }
    *ret_s = sum;
    return TRAIN_OK;
}
