/* SPDX-License-Identifier: Apache-2.0
 * host_plan.c - which rank gives a chunk, where it lies there and where it
 * goes
 *
 * Each collective is a row of blocks in a fixed order, cut into chunks that do
 * not cross them. Those that reduce have one block, made of all ranks; every
 * block of the others has one giver, so an all-gather is a row of broadcasts
 * that share the rings, with no wait between them. */
#include "config.h"

#include "host.h"

bool plan_reduces (const struct host_run *run)
{
    return run->call.kind == COMM_ALL_REDUCE
           || run->call.kind == COMM_ALL_REDUCE_LIST
           || run->call.kind == COMM_REDUCE
           || run->call.kind == COMM_REDUCE_SCATTER;
}

void plan_begin (struct host *host)
{
    struct host_run *run = &host->run;
    uint64_t size = (uint64_t)host->size;
    size_t widest = run->elem_bytes;

    run->blocks = 1;
    run->block_elems = run->call.count;
    switch (run->call.kind) {
    case COMM_REDUCE_SCATTER:
        run->block_elems *= size;
        break;
    case COMM_ALL_GATHER:
    case COMM_GATHER:
    case COMM_OBJECTS:
    case COMM_SPLIT:
    case COMM_SCATTER:
        run->blocks = size;
        break;
    case COMM_ALL_TO_ALL:
        run->blocks = size * size;
        break;
    }
    if (plan_reduces (run) && run->acc_bytes > widest)
        widest = run->acc_bytes;
    run->elems = widest ? host->seg.slot_bytes / widest : 1;
    run->per_block = (run->block_elems + run->elems - 1) / run->elems;
    run->n = run->blocks * run->per_block;
}

/* The rank that gives chunk [k]; of those that do not reduce. */
int plan_giver (const struct host *host, uint64_t k)
{
    const struct host_run *run = &host->run;
    uint64_t block = k / run->per_block;

    switch (run->call.kind) {
    case COMM_ALL_GATHER:
    case COMM_GATHER:
    case COMM_OBJECTS:
    case COMM_SPLIT:
        return (int)block;
    case COMM_ALL_TO_ALL:
        return (int)(block / (uint64_t)host->size);
    }
    return run->call.root;
}

int plan_source (const struct host *host, uint64_t k)
{
    if (plan_reduces (&host->run))
        return host->runs[host->n_runs - 1].node;
    return host->node_of[plan_giver (host, k)];
}

/* Elements of a buffer before chunk [k], which is in its block [block]. */
static uint64_t elems_before (const struct host_run *run, uint64_t block,
                              uint64_t k)
{
    return block * run->block_elems + k % run->per_block * run->elems;
}

const char *plan_from (const struct host *host, uint64_t k)
{
    const struct host_run *run = &host->run;
    uint64_t block = 0;

    if (run->call.kind == COMM_SCATTER)
        block = k / run->per_block;
    else if (run->call.kind == COMM_ALL_TO_ALL)
        block = k / run->per_block % (uint64_t)host->size;
    return run->from + elems_before (run, block, k) * run->elem_bytes;
}

/* The part of chunk [k] of a reduce-scatter that is this rank's. */
static char *own_part (const struct host *host, uint64_t k, size_t *skip,
                       size_t *bytes)
{
    const struct host_run *run = &host->run;
    uint64_t mine = (uint64_t)host->rank * run->call.count;
    uint64_t end = mine + run->call.count, from = k * run->elems;
    uint64_t to = from + host_chunk_elems (run, k);
    uint64_t first = from > mine ? from : mine, last = to < end ? to : end;

    if (first >= last)
        return NULL;
    *skip = (size_t)(first - from) * run->elem_bytes;
    *bytes = (size_t)(last - first) * run->elem_bytes;
    return run->to + (first - mine) * run->elem_bytes;
}

char *plan_to (const struct host *host, uint64_t k, size_t *skip, size_t *bytes)
{
    const struct host_run *run = &host->run;
    uint64_t block = k / run->per_block, size = (uint64_t)host->size;
    uint64_t rank = (uint64_t)host->rank, at = 0;
    bool mine = true;

    *skip = 0;
    *bytes = host_chunk_elems (run, k) * run->elem_bytes;
    switch (run->call.kind) {
    case COMM_REDUCE_SCATTER:
        return own_part (host, k, skip, bytes);
    case COMM_REDUCE:
        mine = host->rank == run->call.root;
        break;
    case COMM_GATHER:
        mine = host->rank == run->call.root;
        at = block;
        break;
    case COMM_ALL_GATHER:
    case COMM_OBJECTS:
    case COMM_SPLIT:
        at = block;
        break;
    case COMM_SCATTER:
        mine = block == rank;
        break;
    case COMM_SEND:
        mine = host->rank == run->call.op;
        break;
    case COMM_ALL_TO_ALL:
        mine = block % size == rank;
        at = block / size;
        break;
    }
    return mine ? run->to + elems_before (run, at, k) * run->elem_bytes : NULL;
}

/* This rank's share of a chunk: whole cache lines of every type. */
void plan_share (const struct host *host, size_t elems, size_t *from,
                 size_t *to)
{
    size_t n = (size_t)host->local_size, i = (size_t)host->local_rank;
    size_t part = ((elems + n - 1) / n + 63) / 64 * 64;

    *from = i * part < elems ? i * part : elems;
    *to = (i + 1) * part < elems ? (i + 1) * part : elems;
}
