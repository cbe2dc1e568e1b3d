/* SPDX-License-Identifier: Apache-2.0
 * comm_nccl_graph.c - graphs of calls of the backend nccl
 *
 * In a graph a mark stands before and after each call: the GPU writes into
 * pinned memory that it is in call k (2k + 1), or past it (2k + 2). Whoever
 * waits for a launch tells the ranks of its node how far its GPU has come.
 *
 * NCCL keeps a communicator until the graphs that its calls were captured into
 * are gone (NVIDIA/nccl 2.28, localPersistentRefs), so they go before abort and
 * end. To destroy a graph does not wait for runs of it. */
#include "config.h"

#include "comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "err.h"
#include "host.h"

#define MARK_BYTES 4096

static void *origin_of (const struct nccl *nccl)
{
    return nccl->after ? nccl->after : nccl->stream;
}

static void free_graph (struct nccl *nccl, struct nccl_graph *graph)
{
    struct nccl_graph **at = &nccl->graphs;

    while (*at && *at != graph)
        at = &(*at)->next;
    if (*at)
        *at = graph->next;
    if (graph->exec)
        nccl->gpu->graph->destroy (graph->exec);
    /* of a call that did not end the GPU may still write there */
    for (size_t i = 0; !nccl->broken && i < graph->n_memory; i++)
        nccl->gpu->free (graph->memory[i]);
    if (graph->mark && !nccl->broken)
        nccl->gpu->unpin ((void *)(uintptr_t)graph->mark, MARK_BYTES);
    free (graph->memory);
    free (graph->calls);
    free (graph);
}

train_status_t nccl_graph_begin (struct nccl *nccl, train_error_t *err)
{
    struct nccl_graph *graph;
    void *mark = NULL;
    train_status_t status;

    if (!nccl->gpu->graph)
        return err_set (err, TRAIN_ENOTSUP, "device %s has no graphs",
                        nccl->gpu->name);
    graph = calloc (1, sizeof (*graph));
    if (!graph)
        return err_set (err, TRAIN_ENOMEM, "group: no memory for a graph");
    status = nccl->gpu->pin (nccl->device, MARK_BYTES, &mark, err);
    graph->mark = mark;
    if (status == TRAIN_OK)
        status = nccl->gpu->graph->begin (origin_of (nccl), nccl->device, err);
    if (status != TRAIN_OK) {
        free_graph (nccl, graph);
        return status;
    }
    graph->id = ++nccl->n_graphs;
    nccl->capture = graph;
    return TRAIN_OK;
}

/* As the ranks compare it: which graph, how many calls, and their hash. */
static struct comm_call launch_of (const struct nccl_graph *graph)
{
    uint64_t hash =
        XXH3_64bits (graph->calls, graph->n * sizeof (*graph->calls));

    return (struct comm_call){.kind = COMM_GRAPH,
                              .count = graph->n,
                              .dtype = graph->id,
                              .root = (int32_t)(uint32_t)hash,
                              .op = (int32_t)(uint32_t)(hash >> 32)};
}

train_status_t nccl_graph_end (struct nccl *nccl, struct comm_call *ret_launch,
                               struct nccl_graph **ret_graph,
                               train_error_t *err)
{
    struct nccl_graph *graph = nccl->capture;
    bool keep = ret_graph && graph->n > 0;
    train_status_t status;

    nccl->capture = NULL;
    status = nccl->gpu->graph->end (origin_of (nccl), nccl->device,
                                    keep ? &graph->exec : NULL, err);
    if (status == TRAIN_OK && !keep)
        status = err_set (err, TRAIN_EINVAL,
                          "group '%s': no call with elements was recorded",
                          nccl->name);
    if (status != TRAIN_OK) {
        free_graph (nccl, graph);
        return status;
    }
    graph->next = nccl->graphs;
    nccl->graphs = graph;
    *ret_launch = launch_of (graph);
    *ret_graph = graph;
    return TRAIN_OK;
}

void nccl_graph_free (struct nccl *nccl, struct nccl_graph *graph)
{
    free_graph (nccl, graph);
}

void nccl_graph_drop (struct nccl *nccl)
{
    if (nccl->capture)
        (void)nccl_graph_end (nccl, NULL, NULL, NULL);
    for (struct nccl_graph *g = nccl->graphs; g; g = g->next) {
        if (g->exec)
            nccl->gpu->graph->destroy (g->exec);
        g->exec = NULL;
    }
}

train_status_t nccl_graph_alloc (struct nccl *nccl, size_t bytes, void **ret,
                                 train_error_t *err)
{
    struct nccl_graph *graph = nccl->capture;
    void **more = reallocarray (graph->memory, graph->n_memory + 1,
                                sizeof (*graph->memory));

    if (!more)
        return err_set (err, TRAIN_ENOMEM, "group: no memory for a graph");
    graph->memory = more;
    TRY (nccl->gpu->alloc (nccl->device, bytes, ret, err));
    graph->memory[graph->n_memory++] = *ret;
    return TRAIN_OK;
}

train_status_t nccl_graph_note (struct nccl *nccl, const struct comm_call *call,
                                train_error_t *err)
{
    struct nccl_graph *graph = nccl->capture;
    struct comm_call *more =
        reallocarray (graph->calls, graph->n + 1, sizeof (*graph->calls));

    if (!more)
        return err_set (err, TRAIN_ENOMEM, "group: no memory for a graph");
    graph->calls = more;
    graph->calls[graph->n] = *call;
    graph->calls[graph->n++].seq = 0;
    return nccl->gpu->graph->mark (graph->mark, (uint32_t)graph->n * 2 - 1,
                                   nccl->stream, nccl->device, err);
}

train_status_t nccl_graph_noted (struct nccl *nccl, train_error_t *err)
{
    const struct nccl_graph *graph = nccl->capture;

    return nccl->gpu->graph->mark (graph->mark, (uint32_t)graph->n * 2,
                                   nccl->stream, nccl->device, err);
}

void nccl_graph_ready (struct nccl *nccl, struct nccl_graph *graph)
{
    nccl->running = graph;
    if (graph)
        *graph->mark = 0;
    if (!nccl->host)
        return;
    host_mark (nccl->host, 0);
    host_hint (nccl->host, "");
}

/* "before all_reduce (sum of 8 F32), the 2nd of 3 calls recorded" */
static void name_mark (const struct nccl_graph *graph, uint32_t mark,
                       char *text, size_t size)
{
    size_t k = mark / 2;
    char what[96];

    if (k >= graph->n) {
        snprintf (text, size, "past all %zu recorded calls", graph->n);
        return;
    }
    comm_describe (&graph->calls[k], what, sizeof (what));
    snprintf (text, size, "%s call %zu of the %zu recorded, %s",
              mark & 1 ? "in" : "before", k + 1, graph->n, what);
}

void nccl_graph_tell (struct nccl *nccl)
{
    struct nccl_graph *graph = nccl->running;
    uint32_t mark = graph ? *graph->mark : 0;
    char where[160], hint[256];
    int rank = nccl->rank;

    if (!graph || !nccl->host)
        return;
    host_mark (nccl->host, mark);
    mark = host_least_mark (nccl->host, nccl->now.seq, &rank);
    name_mark (graph, mark, where, sizeof (where));
    snprintf (hint, sizeof (hint), "the GPU of rank %d is %s%s", rank, where,
              mark & 1 ? "" : ": what the program has recorded there");
    host_hint (nccl->host, hint);
}

void nccl_graph_where (const struct nccl *nccl, char *text, size_t size)
{
    char where[160];

    text[0] = '\0';
    if (!nccl->running)
        return;
    name_mark (nccl->running, *nccl->running->mark, where, sizeof (where));
    snprintf (text, size, "; the GPU of rank %d was %s", nccl->rank, where);
}
