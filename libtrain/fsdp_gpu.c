/* SPDX-License-Identifier: Apache-2.0
 * fsdp_gpu.c - the engine's collectives on a GPU: the group's stream, a side
 * stream for sums, and the passes' own, chained by events
 *
 * The host enqueues a step and waits for nothing in it. An event may be
 * recorded again as soon as who waits for it has been told: a wait is for the
 * record that was there. */
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "fsdp_gpu.h"

static train_status_t events (struct fsdp *f, struct fsdp_work *w, size_t n,
                              train_error_t *err)
{
    for (size_t i = 0; i < n; i++)
        TRY (f->ops->event_create (f->device, &w[i].done, err));
    return TRAIN_OK;
}

static train_status_t make_events (struct fsdp *f, train_error_t *err)
{
    struct fsdp_gpu *g = f->on;

    TRY (f->ops->stream_create (f->device, &g->side, err));
    TRY (f->ops->stream_create (f->device, &g->link, err));
    TRY (f->ops->event_create (f->device, &g->come, err));
    TRY (f->ops->event_create (f->device, &g->mark, err));
    TRY (f->ops->event_create (f->device, &g->end, err));
    for (size_t r = 0; r < f->n_flats; r++)
        TRY (events (f, &f->flats[r].gather, 1, err));
    TRY (events (f, f->works, f->n_flats, err));
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        TRY (events (f, f->room[i].works, f->most_flats, err));
    return events (f, &f->whole, 1, err);
}

static train_status_t op_open (struct fsdp *f, train_error_t *err)
{
    void *numbers = NULL, *read = NULL;

    if (!(f->on = calloc (1, sizeof (*f->on))))
        return err_set (err, TRAIN_ENOMEM, "no memory for an engine");
    TRY (f->ops->alloc (f->device, sizeof (*f->on->numbers), &numbers, err));
    f->on->numbers = numbers;
    TRY (f->ops->pin (f->device, sizeof (*f->on->read), &read, err));
    f->on->read = read;
    return make_events (f, err);
}

static void drop (struct fsdp *f, void *event)
{
    if (event)
        f->ops->event_destroy (event);
}

static void op_close (struct fsdp *f)
{
    struct fsdp_gpu *g = f->on;

    if (!g)
        return;
    for (size_t r = 0; r < f->n_flats; r++) {
        drop (f, f->flats[r].gather.done);
        drop (f, f->works[r].done);
    }
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        for (size_t k = 0; k < f->most_flats; k++)
            drop (f, f->room[i].works[k].done);
    drop (f, f->whole.done);
    drop (f, g->come);
    drop (f, g->mark);
    drop (f, g->end);
    if (g->link)
        f->ops->stream_destroy (g->link);
    if (g->side)
        f->ops->stream_destroy (g->side);
    f->ops->free (g->numbers);
    if (g->read)
        f->ops->unpin (g->read, sizeof (*g->read));
    free (g);
    f->on = NULL;
}

static train_status_t record (struct fsdp *f, void *event, void *stream,
                              train_error_t *err)
{
    return f->ops->event_record (event, f->device, stream, err);
}

static train_status_t after (struct fsdp *f, void *stream, void *event,
                             train_error_t *err)
{
    return f->ops->event_wait (stream, f->device, event, err);
}

/* Do gradients that are being summed lie at [to]? */
static bool is_summed (const struct fsdp *f, const DLTensor *to, size_t room)
{
    return fsdp_meets_room (f, &f->room[room], to->data,
                            train_tensor_bytes (to));
}

static bool any_summed (const struct fsdp *f, const DLTensor *to)
{
    bool any = false;

    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        any |= is_summed (f, to, i);
    return any;
}

/* By the link: behind [before] and such sums this rank's block of flat unit [r]
 * comes to [in], where gathers are in place. */
static train_status_t fill (struct fsdp *f, size_t r, const DLTensor *in,
                            const DLTensor *out, void *before,
                            train_error_t *err)
{
    TRY (after (f, f->on->link, before, err));
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        for (size_t k = 0; is_summed (f, out, i) && k < f->most_flats; k++)
            if (f->room[i].works[k].on)
                TRY (after (f, f->on->link, f->room[i].works[k].done, err));
    TRY (fsdp_fill_block (f, r, in->data, f->on->link, err));
    return record (f, f->on->come, f->on->link, err);
}

/* The group's stream has gathers in their order. Before one comes what passes have
 * given their stream up to now, where all that its place was for is. */
static train_status_t op_gather (struct fsdp *f, size_t u, size_t r,
                                 DLTensor *in, DLTensor *out,
                                 train_error_t *err)
{
    struct fsdp_gpu *g = f->on;
    bool behind = r > f->units[u].first && f->flats[r - 1].plan->chunk > 0;
    void *before = behind ? f->flats[r - 1].gather.done : g->mark;

    f->flats[r].gather.on = true;
    if (!behind)
        TRY (record (f, g->mark, f->stream, err));
    if (fsdp_in_place (f, r) || any_summed (f, out)) {
        TRY (fill (f, r, in, out, before, err));
        before = g->come;
    }
    return group_flow_all_gather (f->group, in, out, before,
                                  f->flats[r].gather.done, err);
}

static train_status_t op_wait (struct fsdp *f, struct fsdp_work *w,
                               train_error_t *err)
{
    bool on = w->on;

    w->on = false;
    return on ? after (f, f->stream, w->done, err) : TRAIN_OK;
}

/* On the side stream: the reduced block joins the shard's, or begins it. */
static train_status_t add_block (struct fsdp *f, size_t r, const void *block,
                                 bool first, struct fsdp_work *w,
                                 train_error_t *err)
{
    const train_shard_unit_t *plan = f->flats[r].plan;
    float *to = (float *)f->grads.t.data + plan->at;
    int before;

    TRY (after (f, f->on->side, w->done, err));
    before = f->ops->enter (f->device);
    if (first)
        fsdp_cast (f, to, f->dtype, block, f->opts.reduce, plan->chunk,
                   f->on->side);
    else if (f->opts.reduce == TRAIN_BF16)
        f->ops->flat->accumulate_bf16 (to, block, plan->chunk, f->on->side);
    else
        f->ops->flat->accumulate_f32 (to, block, plan->chunk, f->on->side);
    f->ops->leave (before);
    return record (f, w->done, f->on->side, err);
}

static train_status_t op_scatter (struct fsdp *f, size_t r, char *whole,
                                  char *wire, struct fsdp_work *w,
                                  train_error_t *err)
{
    size_t n = f->flats[r].plan->chunk, all = n * f->world;
    struct fsdp_gpu *g = f->on;
    bool first = !f->flats[r].summed;
    train_tensor_t in, out;
    char *block;

    TRY (record (f, g->mark, f->stream, err));
    if (wire) {
        TRY (after (f, g->side, g->mark, err));
        fsdp_cast (f, wire, f->opts.reduce, whole, f->dtype, all, g->side);
        TRY (record (f, g->mark, g->side, err));
        whole = wire;
    }
    f->flats[r].summed = true;
    block =
        first && !wire
            ? (char *)f->grads.t.data + f->flats[r].plan->at * f->esize
            : whole + (size_t)f->rank * n * train_dtype_size (f->opts.reduce);
    TRY (fsdp_view (f, &in, whole, f->opts.reduce, all, err));
    TRY (fsdp_view (f, &out, block, f->opts.reduce, n, err));
    TRY (group_flow_reduce_scatter (f->group, &in.t, &out.t, TRAIN_SUM, g->mark,
                                    w->done, err));
    w->on = true;
    return first && !wire ? TRAIN_OK : add_block (f, r, block, first, w, err);
}

static train_status_t op_joined (struct fsdp *f, size_t r, char *whole,
                                 char *wire, struct fsdp_work *w,
                                 train_error_t *err)
{
    (void)r, (void)whole, (void)wire;
    return op_wait (f, w, err);
}

static train_status_t op_sum (struct fsdp *f, DLTensor *t, struct fsdp_work *w,
                              train_error_t *err)
{
    TRY (record (f, f->on->mark, f->stream, err));
    w->on = true;
    return group_flow_all_reduce (f->group, t, TRAIN_SUM, f->on->mark, w->done,
                                  err);
}

train_status_t fsdp_settle (struct fsdp *f, train_error_t *err)
{
    if (!f->gpu)
        return TRAIN_OK;
    TRY (record (f, f->on->end, f->stream, err));
    return group_flow_settle (f->group, f->on->end, err);
}

/* A group that is broken has aborted its calls, so nothing here lasts. */
static void op_drain (struct fsdp *f)
{
    if (!f->on || !f->on->end)
        return;
    for (size_t r = 0; r < f->n_flats; r++) {
        (void)op_wait (f, &f->flats[r].gather, NULL);
        (void)op_wait (f, &f->works[r], NULL);
    }
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        for (size_t k = 0; k < f->most_flats; k++)
            (void)op_wait (f, &f->room[i].works[k], NULL);
    (void)op_wait (f, &f->whole, NULL);
    (void)fsdp_settle (f, NULL);
    (void)f->ops->sync (f->stream, NULL);
    (void)f->ops->sync (f->on->side, NULL);
    (void)f->ops->sync (f->on->link, NULL);
}

train_status_t fsdp_step_open (struct fsdp *f, train_error_t *err)
{
    if (!f->on || f->on->step)
        return TRAIN_OK;
    TRY (train_step_begin (f->group, err));
    f->on->step = true;
    return TRAIN_OK;
}

const struct fsdp_way fsdp_way_gpu = {
    .open = op_open,
    .close = op_close,
    .gather = op_gather,
    .wait = op_wait,
    .scatter = op_scatter,
    .joined = op_joined,
    .sum = op_sum,
    .drain = op_drain,
};
