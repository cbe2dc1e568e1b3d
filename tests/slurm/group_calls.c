/* SPDX-License-Identifier: Apache-2.0
 * group_calls.c - every collective, with values that its result is checked by */
#include "group_calls.h"

#include <stdlib.h>
#include <string.h>

static void view (const struct run *run, train_tensor_t *t, float *data,
                  size_t n)
{
    int64_t shape[1] = {(int64_t)n};

    train_tensor_view (t, place_of (run, data), TRAIN_F32, 1, shape, NULL);
    t->t.device = run->device;
}

/* Small whole numbers: sums of them are exact. */
static float value (int rank, int i, size_t at)
{
    return (float)(rank * 5 + i % 7 + (int)(at % 11));
}

static void fill (struct run *run, int i, size_t n)
{
    for (size_t k = 0; k < n; k++)
        run->in[k] = value (run->rank, i, k);
    place_give (run);
}

/* Is block [block] of [data] what [rank] gave from element [from] on? */
static bool is_from (const float *data, int block, int rank, int i, size_t from)
{
    for (size_t k = 0; k < ELEMENTS; k++) {
        if (data[(size_t)block * ELEMENTS + k] != value (rank, i, from + k))
            return false;
    }
    return true;
}

static bool is_sum (const struct run *run, const float *data, int i,
                    size_t from)
{
    for (size_t k = 0; k < ELEMENTS; k++) {
        float sum = 0;

        for (int r = 0; r < run->size; r++)
            sum += value (r, i, from + k);
        if (data[k] != sum)
            return false;
    }
    return true;
}

static int root_of (const struct run *run, int i)
{
    return i % run->size;
}

static train_status_t call_broadcast (struct run *run, int i, size_t n)
{
    train_tensor_t t;

    view (run, &t, run->in, n);
    fill (run, i, n);
    return train_broadcast (run->group, &t.t, root_of (run, i), &run->err);
}

static bool right_broadcast (const struct run *run, int i)
{
    return is_from (run->in, 0, root_of (run, i), i, 0);
}

static train_status_t call_reduce (struct run *run, int i, size_t n)
{
    train_tensor_t t;

    view (run, &t, run->in, n);
    fill (run, i, n);
    return train_reduce (run->group, &t.t, TRAIN_SUM, root_of (run, i),
                         &run->err);
}

static bool right_reduce (const struct run *run, int i)
{
    return run->rank == root_of (run, i)
               ? is_sum (run, run->in, i, 0)
               : is_from (run->in, 0, run->rank, i, 0);
}

static train_status_t call_all_reduce (struct run *run, int i, size_t n)
{
    train_tensor_t t;

    view (run, &t, run->in, n);
    fill (run, i, n);
    return train_all_reduce (run->group, &t.t, TRAIN_SUM, &run->err);
}

static bool right_all_reduce (const struct run *run, int i)
{
    return is_sum (run, run->in, i, 0);
}

static train_status_t call_all_gather (struct run *run, int i, size_t n)
{
    train_tensor_t in, out;

    view (run, &in, run->in, n);
    view (run, &out, run->out, n * (size_t)run->size);
    fill (run, i, n);
    return train_all_gather (run->group, &in.t, &out.t, &run->err);
}

static bool right_all_gather (const struct run *run, int i)
{
    bool right = true;

    for (int r = 0; r < run->size; r++)
        right &= is_from (run->out, r, r, i, 0);
    return right;
}

static train_status_t call_reduce_scatter (struct run *run, int i, size_t n)
{
    train_tensor_t in, out;

    view (run, &in, run->in, n * (size_t)run->size);
    view (run, &out, run->out, n);
    fill (run, i, n * (size_t)run->size);
    return train_reduce_scatter (run->group, &in.t, &out.t, TRAIN_SUM,
                                 &run->err);
}

static bool right_reduce_scatter (const struct run *run, int i)
{
    return is_sum (run, run->out, i, (size_t)run->rank * ELEMENTS);
}

static train_status_t call_all_to_all (struct run *run, int i, size_t n)
{
    train_tensor_t in, out;

    view (run, &in, run->in, n * (size_t)run->size);
    view (run, &out, run->out, n * (size_t)run->size);
    fill (run, i, n * (size_t)run->size);
    return train_all_to_all (run->group, &in.t, &out.t, &run->err);
}

static bool right_all_to_all (const struct run *run, int i)
{
    bool right = true;

    for (int r = 0; r < run->size; r++)
        right &= is_from (run->out, r, r, i, (size_t)run->rank * ELEMENTS);
    return right;
}

static train_status_t call_gather (struct run *run, int i, size_t n)
{
    train_tensor_t in, out;

    view (run, &in, run->in, n);
    view (run, &out, run->out, n * (size_t)run->size);
    fill (run, i, n);
    return train_gather (run->group, &in.t, &out.t, root_of (run, i),
                         &run->err);
}

static bool right_gather (const struct run *run, int i)
{
    return run->rank != root_of (run, i) || right_all_gather (run, i);
}

static train_status_t call_scatter (struct run *run, int i, size_t n)
{
    train_tensor_t in, out;

    view (run, &in, run->in, n * (size_t)run->size);
    view (run, &out, run->out, n);
    fill (run, i, n * (size_t)run->size);
    return train_scatter (run->group, &in.t, &out.t, root_of (run, i),
                          &run->err);
}

static bool right_scatter (const struct run *run, int i)
{
    return is_from (run->out, 0, root_of (run, i), i,
                    (size_t)run->rank * ELEMENTS);
}

static train_status_t call_send_recv (struct run *run, int i, size_t n)
{
    train_tensor_t t;

    view (run, &t, run->in, n);
    fill (run, i, n);
    return train_send_recv (run->group, &t.t, root_of (run, i),
                            root_of (run, i + 1), &run->err);
}

static bool right_send_recv (const struct run *run, int i)
{
    return is_from (
        run->in, 0,
        run->rank == root_of (run, i + 1) ? root_of (run, i) : run->rank, i, 0);
}

static train_status_t call_barrier (struct run *run, int i, size_t n)
{
    return n == ELEMENTS ? train_barrier (run->group, &run->err)
                         : call_all_reduce (run, i, n);
}

static bool right_barrier (const struct run *run, int i)
{
    (void)run, (void)i;
    return true;
}

/* An object may have any length, so the odd rank names another root. */
static train_status_t call_broadcast_object (struct run *run, int i, size_t n)
{
    int root = root_of (run, n == ELEMENTS ? i : i + 1);
    size_t len = 0;
    void *got = NULL;
    train_status_t status;

    fill (run, i, ELEMENTS);
    status =
        train_broadcast_object (run->group, run->in, ELEMENTS * sizeof (float),
                                root, &got, &len, &run->err);
    if (status == TRAIN_OK && len == ELEMENTS * sizeof (float))
        memcpy (run->out, got, len);
    place_give (run);
    free (got);
    return status;
}

static bool right_broadcast_object (const struct run *run, int i)
{
    return is_from (run->out, 0, root_of (run, i), i, 0);
}

static train_status_t call_gather_object (struct run *run, int i, size_t n)
{
    size_t lens[MAX_RANKS], bytes = ELEMENTS * sizeof (float);
    void *got = NULL;
    train_status_t status;

    fill (run, i, ELEMENTS);
    status =
        train_gather_object (run->group, run->in, bytes, n == ELEMENTS ? -1 : 0,
                             &got, lens, &run->err);
    if (status == TRAIN_OK && got)
        memcpy (run->out, got, bytes * (size_t)run->size);
    place_give (run);
    free (got);
    return status;
}

static const struct collective collectives[] = {
    {"broadcast", call_broadcast, right_broadcast},
    {"reduce", call_reduce, right_reduce},
    {"all_reduce", call_all_reduce, right_all_reduce},
    {"all_gather", call_all_gather, right_all_gather},
    {"reduce_scatter", call_reduce_scatter, right_reduce_scatter},
    {"all_to_all", call_all_to_all, right_all_to_all},
    {"gather", call_gather, right_gather},
    {"scatter", call_scatter, right_scatter},
    {"send_recv", call_send_recv, right_send_recv},
    {"barrier", call_barrier, right_barrier},
    {"broadcast_object", call_broadcast_object, right_broadcast_object},
    {"gather_object", call_gather_object, right_all_gather},
};
#define N_COLLECTIVES (sizeof (collectives) / sizeof (*collectives))

const struct collective *find_collective (const char *name)
{
    for (size_t i = 0; i < N_COLLECTIVES; i++) {
        if (strcmp (collectives[i].name, name) == 0)
            return &collectives[i];
    }
    return NULL;
}
