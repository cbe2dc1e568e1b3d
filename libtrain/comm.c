/* SPDX-License-Identifier: Apache-2.0
 * comm.c - compare the calls of the ranks of a group, and name them in text */
#include "comm.h"

#include <stdio.h>
#include <string.h>

#include "err.h"

/* More different calls than this are counted, not listed. */
#define MAX_LISTED 4

/* Those that combine what ranks give; false for others. */
static bool describe_reduction (const struct comm_call *call, char *text,
                                size_t size)
{
    static const char *const op[] = {"sum", "average", "minimum", "maximum",
                                     "product"};
    const char *how =
        call->op >= 0 && call->op <= TRAIN_PROD ? op[call->op] : "unknown";
    const char *dtype = train_dtype_name ((train_dtype_t)call->dtype);
    unsigned long long count = call->count;

    switch (call->kind) {
    case COMM_ALL_REDUCE:
        snprintf (text, size, "all_reduce (%s of %llu %s)", how, count, dtype);
        return true;
    case COMM_ALL_REDUCE_LIST:
        snprintf (text, size,
                  "all_reduce_list (%s of %llu %s, sizes with hash %08x)", how,
                  count, dtype, (unsigned)call->root);
        return true;
    case COMM_REDUCE:
        snprintf (text, size, "reduce (%s of %llu %s to rank %d)", how, count,
                  dtype, call->root);
        return true;
    case COMM_REDUCE_SCATTER:
        if (call->root)
            snprintf (text, size,
                      "reduce_scatter_list (%s of %llu %s each, sizes with "
                      "hash %08x)",
                      how, count, dtype, (unsigned)call->root);
        else
            snprintf (text, size, "reduce_scatter (%s of %llu %s each)", how,
                      count, dtype);
        return true;
    }
    return false;
}

/* Several tensors in one call that combines nothing; false for others. */
static bool describe_list (const struct comm_call *call, char *text,
                           size_t size)
{
    const char *dtype = train_dtype_name ((train_dtype_t)call->dtype);
    unsigned long long count = call->count;

    if (call->op == 0)
        return false;
    switch (call->kind) {
    case COMM_BROADCAST:
        snprintf (text, size,
                  "broadcast_list (%llu %s from rank %d, sizes with hash %08x)",
                  count, dtype, call->root, (unsigned)call->op);
        return true;
    case COMM_ALL_GATHER:
        snprintf (text, size,
                  "all_gather_list (%llu %s each, sizes with hash %08x)", count,
                  dtype, (unsigned)call->op);
        return true;
    }
    return false;
}

/* Calls that move elements as they are, one array. */
static bool describe_move (const struct comm_call *call, char *text,
                           size_t size)
{
    const char *dtype = train_dtype_name ((train_dtype_t)call->dtype);
    unsigned long long count = call->count;

    switch (call->kind) {
    case COMM_BROADCAST:
        snprintf (text, size, "broadcast (%llu %s from rank %d)", count, dtype,
                  call->root);
        return true;
    case COMM_ALL_GATHER:
        snprintf (text, size, "all_gather (%llu %s each)", count, dtype);
        return true;
    case COMM_ALL_TO_ALL:
        snprintf (text, size, "all_to_all (%llu %s each)", count, dtype);
        return true;
    case COMM_GATHER:
        snprintf (text, size, "gather (%llu %s each to rank %d)", count, dtype,
                  call->root);
        return true;
    case COMM_SCATTER:
        snprintf (text, size, "scatter (%llu %s each from rank %d)", count,
                  dtype, call->root);
        return true;
    case COMM_SEND:
        snprintf (text, size, "send (%llu %s from rank %d to rank %d)", count,
                  dtype, call->root, call->op);
        return true;
    }
    return false;
}

void comm_describe (const struct comm_call *call, char *text, size_t size)
{
    if (describe_reduction (call, text, size)
        || describe_list (call, text, size) || describe_move (call, text, size))
        return;
    switch (call->kind) {
    case COMM_BARRIER:
        snprintf (text, size, "barrier");
        return;
    case COMM_OBJECT:
        snprintf (text, size, "broadcast_object (from rank %d)", call->root);
        return;
    case COMM_OBJECTS:
        if (call->root < 0)
            snprintf (text, size, "gather_object (to every rank)");
        else
            snprintf (text, size, "gather_object (to rank %d)", call->root);
        return;
    case COMM_SPLIT:
        snprintf (text, size, "split");
        return;
    case COMM_STEP_END:
        snprintf (text, size, "step_end (after %d calls, hash %08x%08x)",
                  call->dtype, (unsigned)call->root, (unsigned)call->op);
        return;
    case COMM_GRAPH:
        snprintf (text, size,
                  "graph_launch (graph %d, %llu calls, hash %08x%08x)",
                  call->dtype, (unsigned long long)call->count,
                  (unsigned)call->root, (unsigned)call->op);
        return;
    }
    snprintf (text, size, "unknown call %d", call->kind);
}

/* One run of ranks at [text]; returns its length, or 0 if it does not fit. */
static size_t put_run (char *text, size_t size, bool more, int first, int last)
{
    int len;

    if (last > first)
        len = snprintf (text, size, "%s%d-%d", more ? "," : "", first, last);
    else
        len = snprintf (text, size, "%s%d", more ? "," : "", first);
    return (size_t)len + sizeof (",...") <= size ? (size_t)len : 0;
}

void comm_ranks (comm_has_f has, const void *arg, int n, char *text,
                 size_t size)
{
    char list[128];
    size_t at = 0, len;
    int count = 0;

    for (int first = 0; first < n; first++) {
        int last = first;

        if (!has (arg, first))
            continue;
        while (last + 1 < n && has (arg, last + 1))
            last++;
        count += last - first + 1;
        len = put_run (list + at, sizeof (list) - at, at > 0, first, last);
        if (len == 0) {
            snprintf (list + at, sizeof (list) - at, ",...");
            break;
        }
        at += len;
        first = last;
    }
    if (count == 0)
        snprintf (text, size, "no rank");
    else
        snprintf (text, size, "rank%s %s", count > 1 ? "s" : "", list);
}

static bool same (const struct comm_call *a, const struct comm_call *b)
{
    return memcmp (a, b, sizeof (*a)) == 0;
}

/* Which ranks make the call of rank [first]? */
struct like {
    const struct comm_call *calls;
    int first;
};

static bool is_like (const void *arg, int rank)
{
    const struct like *like = arg;

    return same (&like->calls[rank], &like->calls[like->first]);
}

static size_t list_call (const struct comm_call *calls, int n, int first,
                         char *text, size_t size)
{
    struct like like = {calls, first};
    char ranks[140], what[96];
    int len;

    comm_ranks (is_like, &like, n, ranks, sizeof (ranks));
    comm_describe (&calls[first], what, sizeof (what));
    len = snprintf (text, size, "%s called %s", ranks, what);
    return (size_t)len < size ? (size_t)len : size - 1;
}

train_status_t comm_compare (const struct comm_call *calls, int n,
                             const char *name, train_error_t *err)
{
    char text[400] = "";
    size_t at = 0;
    int kinds = 0, r = 1;

    while (r < n && same (&calls[r], &calls[0]))
        r++;
    if (r >= n)
        return TRAIN_OK;
    for (r = 0; r < n; r++) {
        bool seen = false;

        for (int q = 0; q < r && !seen; q++)
            seen = same (&calls[q], &calls[r]);
        if (seen || kinds++ >= MAX_LISTED)
            continue;
        if (at > 0 && at + 2 < sizeof (text)) {
            memcpy (text + at, "; ", 3);
            at += 2;
        }
        at += list_call (calls, n, r, text + at, sizeof (text) - at);
    }
    return err_set (err, TRAIN_EMISMATCH,
                    "the ranks of group '%s' disagree at its call %llu: %s%s",
                    name, (unsigned long long)comm_number (&calls[0]), text,
                    kinds > MAX_LISTED ? "; and others" : "");
}
