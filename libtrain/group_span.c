/* SPDX-License-Identifier: Apache-2.0
 * group_span.c - what a timeline shows of the calls of groups and their steps
 *
 * A group has one call at a time, on whatever thread, so it has one row; the
 * span of a step encloses those of its calls there. Names are constants: a
 * call without a trace pays for a test and a look into a table. */
#include <stdio.h>

#include "group_impl.h"

#define OPS(what)                                                              \
    {                                                                          \
        what " sum", what " avg", what " min", what " max", what " prod"       \
    }

static const char *reduction (const struct comm_call *call)
{
    static const char *const names[][5] = {
        OPS ("all_reduce"),     OPS ("all_reduce_list"),     OPS ("reduce"),
        OPS ("reduce_scatter"), OPS ("reduce_scatter_list"),
    };
    int which;

    if (call->op < 0 || call->op > TRAIN_PROD)
        return NULL;
    switch (call->kind) {
    case COMM_ALL_REDUCE:
        which = 0;
        break;
    case COMM_ALL_REDUCE_LIST:
        which = 1;
        break;
    case COMM_REDUCE:
        which = 2;
        break;
    case COMM_REDUCE_SCATTER:
        which = call->root ? 4 : 3;
        break;
    default:
        return NULL;
    }
    return names[which][call->op];
}

static const char *name_of (const struct comm_call *call)
{
    static const char *const names[] = {
        [COMM_BARRIER] = "barrier",
        [COMM_BROADCAST] = "broadcast",
        [COMM_ALL_GATHER] = "all_gather",
        [COMM_ALL_TO_ALL] = "all_to_all",
        [COMM_GATHER] = "gather",
        [COMM_SCATTER] = "scatter",
        [COMM_SEND] = "send",
        [COMM_OBJECT] = "broadcast_object",
        [COMM_OBJECTS] = "gather_object",
        [COMM_SPLIT] = "split",
        [COMM_STEP_END] = "step_end",
        [COMM_GRAPH] = "graph_launch",
    };
    const char *name = reduction (call);

    if (name)
        return name;
    if (call->kind == COMM_BROADCAST && call->op)
        return "broadcast_list";
    if (call->kind == COMM_ALL_GATHER && call->op)
        return "all_gather_list";
    if (call->kind > 0 && (size_t)call->kind < sizeof (names) / sizeof (*names))
        name = names[call->kind];
    return name ? name : "call";
}

static bool moves_tensors (const struct comm_call *call)
{
    return call->kind != COMM_BARRIER && call->kind != COMM_OBJECT
           && call->kind != COMM_OBJECTS && call->kind != COMM_SPLIT
           && call->kind != COMM_STEP_END && call->kind != COMM_GRAPH;
}

static void row_of (const train_group_t *group, char *row, size_t size)
{
    snprintf (row, size, "group '%s'", group->name);
}

train_span_t group_span_begin (const struct comm_call *call)
{
    return train_trace_begin ("collective", name_of (call));
}

void group_span_end (const train_group_t *group, const train_span_t *span,
                     const struct comm_call *call, train_status_t status)
{
    size_t size = train_dtype_size ((train_dtype_t)call->dtype);
    const train_trace_arg_t args[] = {
        {"bytes",
         moves_tensors (call) ? (int64_t)(call->count * (uint64_t)size) : 0},
        {"count", (int64_t)call->count},
        {"ranks", group->size},
        {"rank", group->rank},
        {"seq", (int64_t)comm_number (call)},
        {"status", status},
    };
    char row[GROUP_NAME_BYTES + 16];

    if (!span->begin_us && !span->nvtx)
        return;
    row_of (group, row, sizeof (row));
    train_trace_end (span, row, args, sizeof (args) / sizeof (*args));
}

void group_span_step (const train_group_t *group, const train_span_t *span,
                      train_status_t status)
{
    const train_trace_arg_t args[] = {
        {"calls", (int64_t)group->step.n},
        {"learnt", group->step.follows},
        {"ranks", group->size},
        {"rank", group->rank},
        {"status", status},
    };
    char row[GROUP_NAME_BYTES + 16];

    if (!span->begin_us && !span->nvtx)
        return;
    row_of (group, row, sizeof (row));
    train_trace_end (span, row, args, sizeof (args) / sizeof (*args));
}
