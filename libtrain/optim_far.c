/* SPDX-License-Identifier: Apache-2.0
 * optim_far.c - pieces of an optimizer's state: in, updated, out */
#include "optim_far.h"

#include <stdlib.h>

#include "backend.h"
#include "err.h"

#define SLOTS 4
/* Elements of a piece: three arrays of it are 48 MiB, a millisecond of a link. */
#define PIECE ((size_t)4 << 20)

static const size_t element[ADAMW_FAR_ARRAYS] = {4, 4, 4, 2};

struct slot {
    void *at[ADAMW_FAR_ARRAYS];
    void *ready; /* event: it has come */
    void *done;  /* event: it is updated */
    void *free;  /* event: it is back */
};

struct adamw_far {
    const struct backend_ops *ops;
    int device;
    size_t size; /* of a piece */
    unsigned arrays;
    void *memory;   /* of all slots */
    void *in, *out; /* streams */
    void *begin;    /* event: what a run comes after */
    struct slot slot[SLOTS];
};

static size_t piece = PIECE;

void adamw_far_piece (size_t elements)
{
    piece = elements ? elements : PIECE;
}

size_t adamw_far_bytes (size_t numel, unsigned arrays)
{
    size_t bytes = 0;

    for (size_t k = 0; k < ADAMW_FAR_ARRAYS; k++)
        bytes += arrays & 1U << k ? element[k] : 0;
    return SLOTS * bytes * (numel < piece ? numel : piece);
}

/* Array by array, the shorter elements behind the others. */
static void divide (struct adamw_far *f)
{
    char *at = f->memory;

    for (size_t k = 0; k < ADAMW_FAR_ARRAYS; k++)
        for (size_t i = 0; f->arrays & 1U << k && i < SLOTS; i++) {
            f->slot[i].at[k] = at;
            at += f->size * element[k];
        }
}

static train_status_t make_slot (struct adamw_far *f, struct slot *s,
                                 train_error_t *err)
{
    TRY (f->ops->event_create (f->device, &s->ready, err));
    TRY (f->ops->event_create (f->device, &s->done, err));
    TRY (f->ops->event_create (f->device, &s->free, err));
    return f->ops->event_record (s->free, f->device, f->out, err);
}

static train_status_t fill (struct adamw_far *f, train_error_t *err)
{
    TRY (f->ops->alloc (f->device, adamw_far_bytes (f->size, f->arrays),
                        &f->memory, err));
    divide (f);
    TRY (f->ops->stream_create (f->device, &f->in, err));
    TRY (f->ops->stream_create (f->device, &f->out, err));
    TRY (f->ops->event_create (f->device, &f->begin, err));
    for (size_t i = 0; i < SLOTS; i++)
        TRY (make_slot (f, &f->slot[i], err));
    return TRAIN_OK;
}

train_status_t adamw_far_create (const struct backend_ops *ops, int device,
                                 size_t numel, unsigned arrays,
                                 struct adamw_far **ret_far, train_error_t *err)
{
    struct adamw_far *f = calloc (1, sizeof (*f));
    train_status_t status;

    if (!f)
        return err_set (err, TRAIN_ENOMEM, "no memory for an optimizer");
    f->ops = ops;
    f->device = device;
    f->arrays = arrays;
    f->size = numel < piece ? numel : piece;
    if ((status = fill (f, err)) != TRAIN_OK)
        adamw_far_destroy (f);
    else
        *ret_far = f;
    return status;
}

static void drop (const struct adamw_far *f, void *event)
{
    if (event)
        f->ops->event_destroy (event);
}

void adamw_far_destroy (struct adamw_far *f)
{
    if (!f)
        return;
    if (f->out)
        (void)f->ops->sync (f->out, NULL);
    for (size_t i = 0; i < SLOTS; i++) {
        drop (f, f->slot[i].ready);
        drop (f, f->slot[i].done);
        drop (f, f->slot[i].free);
    }
    drop (f, f->begin);
    if (f->in)
        f->ops->stream_destroy (f->in);
    if (f->out)
        f->ops->stream_destroy (f->out);
    f->ops->free (f->memory);
    free (f);
}

/* [stream] goes on when [event], recorded on [from] now, has come. */
static train_status_t chain (const struct adamw_far *f, void *event, void *from,
                             void *stream, train_error_t *err)
{
    TRY (f->ops->event_record (event, f->device, from, err));
    return f->ops->event_wait (stream, f->device, event, err);
}

static char *at_first (void *const host[], size_t k, size_t first)
{
    return (char *)host[k] + first * element[k];
}

static train_status_t bring (const struct adamw_far *f, const struct slot *s,
                             void *const host[], size_t first, size_t n,
                             train_error_t *err)
{
    TRY (f->ops->event_wait (f->in, f->device, s->free, err));
    for (size_t k = 0; k < ADAMW_FAR_ARRAYS; k++)
        if (host[k])
            TRY (f->ops->copy (s->at[k], at_first (host, k, first),
                               n * element[k], f->in, err));
    return TRAIN_OK;
}

static train_status_t take_back (const struct adamw_far *f,
                                 const struct slot *s, void *const host[],
                                 size_t first, size_t n, train_error_t *err)
{
    for (size_t k = 0; k < ADAMW_FAR_ARRAYS; k++)
        if (host[k])
            TRY (f->ops->copy (at_first (host, k, first), s->at[k],
                               n * element[k], f->out, err));
    return f->ops->event_record (s->free, f->device, f->out, err);
}

train_status_t adamw_far_run (
    struct adamw_far *f, void *const host[ADAMW_FAR_ARRAYS], size_t n,
    void *stream, bool (*needs) (const void *arg, size_t first, size_t count),
    void (*update) (void *arg, void *const at[ADAMW_FAR_ARRAYS], size_t first,
                    size_t count),
    void *arg, train_error_t *err)
{
    size_t k = 0;

    TRY (chain (f, f->begin, stream, f->in, err));
    for (size_t first = 0; first < n; first += f->size) {
        size_t count = n - first < f->size ? n - first : f->size;
        const struct slot *s = &f->slot[k % SLOTS];
        void *at[ADAMW_FAR_ARRAYS];

        if (!needs (arg, first, count))
            continue;
        k++;
        for (size_t i = 0; i < ADAMW_FAR_ARRAYS; i++)
            at[i] = host[i] ? s->at[i] : NULL;
        TRY (bring (f, s, host, first, count, err));
        TRY (chain (f, s->ready, f->in, stream, err));
        update (arg, at, first, count);
        TRY (chain (f, s->done, stream, f->out, err));
        TRY (take_back (f, s, host, first, count, err));
    }
    return chain (f, f->begin, f->out, stream, err);
}
