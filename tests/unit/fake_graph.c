/* SPDX-License-Identifier: Apache-2.0
 * fake_graph.c - graphs of made-up GPUs: what streams were given, in one order
 */
#include "fake_impl.h"

#include <stdlib.h>

static train_status_t graph_begin (void *stream, int device, train_error_t *err)
{
    (void)stream, (void)device, (void)err;
    pthread_mutex_lock (&lock);
    recorded = calloc (1, sizeof (*recorded));
    atomic_fetch_add (&world->graphs, 1);
    atomic_fetch_add (&graphs, 1);
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

static void graph_destroy (void *graph)
{
    atomic_fetch_sub (&world->graphs, 1);
    atomic_fetch_sub (&graphs, 1);
    free (graph);
}

static train_status_t graph_end (void *stream, int device, void **ret,
                                 train_error_t *err)
{
    struct graph *graph = recorded;

    (void)stream, (void)device, (void)err;
    pthread_mutex_lock (&lock);
    recorded = NULL;
    pthread_mutex_unlock (&lock);
    if (ret)
        *ret = graph;
    else
        graph_destroy (graph);
    return TRAIN_OK;
}

static train_status_t graph_launch (void *graph, void *stream, int device,
                                    train_error_t *err)
{
    const struct graph *g = graph;

    (void)device, (void)err;
    pthread_mutex_lock (&lock);
    for (size_t i = 0; i < g->n; i++) {
        struct op o = g->ops[i];

        if (o.kind == OP_REDUCE || o.kind == OP_SHARE)
            o.seq = ++o.comm->seq;
        push (stream, &o);
    }
    go_on (stream);
    pthread_mutex_unlock (&lock);
    return TRAIN_OK;
}

static train_status_t graph_mark (volatile uint32_t *flag, uint32_t value,
                                  void *stream, int device, train_error_t *err)
{
    (void)device, (void)err;
    fake_store (stream, (void *)(uintptr_t)flag, (int)value);
    return TRAIN_OK;
}

const struct backend_graph fake_graph = {
    .begin = graph_begin,
    .end = graph_end,
    .launch = graph_launch,
    .destroy = graph_destroy,
    .mark = graph_mark,
};
