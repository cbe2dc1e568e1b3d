/* SPDX-License-Identifier: Apache-2.0
 * group_run.c - one call of a group: counted, run or put into the queue, and
 * what its failure makes of the group */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "group_impl.h"

/* Who the ranks of a subgroup are. */
static void name_world (const train_group_t *group, train_error_t *why)
{
    size_t at = strlen (why->text), size = sizeof (why->text);
    char list[160];
    size_t n = 0;

    for (int r = 0; r < group->size && n + 12 < sizeof (list); r++)
        n += (size_t)snprintf (list + n, sizeof (list) - n, "%s%d",
                               r ? "," : "", group->world[r]);
    snprintf (why->text + at, size - at, " (ranks 0-%d of '%s' are %s of '%s')",
              group->size - 1, group->name, list, group->root_name);
}

train_status_t group_break (train_group_t *group, const train_error_t *why,
                            train_error_t *err)
{
    group->failure = *why;
    return err_set (err, why->code, "%s", why->text);
}

/* Whether the ranks have learnt this call is written. */
static train_status_t count_call (train_group_t *group, struct comm_call *call,
                                  bool *ret_follow, train_error_t *err)
{
    if (group->failure.code != TRAIN_OK)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' is broken since an earlier call: %s",
                        group->name, group->failure.text);
    TRY (step_count (group, call, ret_follow, err));
    call->seq = ++group->seq;
    return TRAIN_OK;
}

train_status_t group_end_call (train_group_t *group, train_status_t status,
                               train_error_t *why, train_error_t *err)
{
    if (status == TRAIN_OK)
        return TRAIN_OK;
    if (group->world)
        name_world (group, why);
    return group_break (group, why, err);
}

train_status_t group_run_now (train_group_t *group, struct comm_call *call,
                              const void *from, void *to, bool host,
                              const struct comm_pieces *pieces,
                              train_error_t *err)
{
    const struct comm_ops *ops = group->ops;
    train_status_t status;
    train_error_t why;
    train_span_t span;
    bool follow;

    TRY (count_call (group, call, &follow, err));
    span = group_span_begin (call);
    if (group->flow)
        status =
            ops->flow (group->state, call, from, to, follow, group->flow, &why);
    else if (pieces)
        status = ops->run_pieces (group->state, call, pieces, follow, &why);
    else if (host && ops->run_host)
        status = ops->run_host (group->state, call, from, to, follow, &why);
    else
        status = (follow ? ops->follow : ops->run) (group->state, call, from,
                                                    to, &why);
    group_span_end (group, &span, call, status);
    return group_end_call (group, status, &why, err);
}

/* What is not recorded is not made either, and not counted. */
static train_status_t say_records (const train_group_t *group,
                                   const struct comm_call *call,
                                   const struct group_hooks *hooks,
                                   train_error_t *err)
{
    char what[96];

    comm_describe (call, what, sizeof (what));
    if (hooks)
        hooks->after (hooks->arg, TRAIN_ESTATE);
    return err_set (err, TRAIN_ESTATE,
                    "group '%s' records a graph, and %s%s cannot be in one; "
                    "call train_graph_end before",
                    group->name, group->issued ? "asynchronous " : "", what);
}

static train_status_t run_or_put (train_group_t *group, struct comm_call *call,
                                  const void *from, void *to, bool host,
                                  const struct group_hooks *hooks,
                                  train_error_t *err)
{
    train_status_t status;

    if (group->records && (host || group->issued || call->kind == COMM_GRAPH))
        return say_records (group, call, hooks, err);
    if (group->issued)
        return work_put (group, call, from, to, host, hooks);
    work_drain (group);
    if (hooks && hooks->before)
        hooks->before (hooks->arg);
    status = group_run_now (group, call, from, to, host,
                            hooks ? hooks->pieces : NULL, err);
    if (hooks)
        hooks->after (hooks->arg, status);
    return status;
}

train_status_t group_run (train_group_t *group, struct comm_call *call,
                          const void *from, void *to, train_error_t *err)
{
    return run_or_put (group, call, from, to, false, NULL, err);
}

train_status_t group_run_host (train_group_t *group, struct comm_call *call,
                               const void *from, void *to, train_error_t *err)
{
    return run_or_put (group, call, from, to, true, NULL, err);
}

train_status_t group_run_with (train_group_t *group, struct comm_call *call,
                               const void *from, void *to,
                               const struct group_hooks *hooks,
                               train_error_t *err)
{
    return run_or_put (group, call, from, to, false, hooks, err);
}

static void free_pieces (void *arg, train_status_t status)
{
    (void)status;
    free (arg);
}

struct comm_pieces *group_pieces (size_t n)
{
    return calloc (1, sizeof (struct comm_pieces)
                          + n * sizeof (struct comm_piece));
}

train_status_t group_run_pieces (train_group_t *group, struct comm_call *call,
                                 struct comm_pieces *pieces, train_error_t *err)
{
    const struct group_hooks hooks = {
        .after = free_pieces, .arg = pieces, .pieces = pieces};

    return run_or_put (group, call, NULL, NULL, false, &hooks, err);
}
