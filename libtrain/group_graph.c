/* SPDX-License-Identifier: Apache-2.0
 * group_graph.c - calls of a group that are recorded and replayed as one */
#include <train/graph.h>

#include <stdlib.h>

#include "err.h"
#include "group_impl.h"

struct train_graph {
    train_group_t *group; /* NULL once it is destroyed; then [graph] is too */
    struct train_graph *next;
    struct comm_call call; /* of a launch; seq 0 */
    void *graph;           /* the backend's */
};

static train_status_t check (train_group_t *group, const char *what,
                             bool records, train_error_t *err)
{
    if (!group)
        return err_set (err, TRAIN_EINVAL, "%s: no group", what);
    if (!group->ops->graph_begin)
        return err_set (err, TRAIN_ENOTSUP,
                        "%s: backend %s of group '%s' has no graphs; nccl has",
                        what, group->ops->name, group->name);
    work_drain (group);
    if (group->failure.code != TRAIN_OK)
        return err_set (err, TRAIN_ESTATE,
                        "group '%s' is broken since an earlier call: %s",
                        group->name, group->failure.text);
    if (group->records != records)
        return err_set (err, TRAIN_ESTATE, "%s: group '%s' records %s", what,
                        group->name, records ? "no graph" : "a graph already");
    return TRAIN_OK;
}

train_status_t train_graph_begin (train_group_t *group, train_error_t *err)
{
    TRY (check (group, "graph_begin", false, err));
    if (group->step.open)
        return err_set (err, TRAIN_ESTATE,
                        "graph_begin: group '%s' has a step open", group->name);
    TRY (group->ops->graph_begin (group->state, err));
    group->records = true;
    return TRAIN_OK;
}

train_status_t train_graph_end (train_group_t *group, train_graph_t **ret_graph,
                                train_error_t *err)
{
    struct train_graph *graph;
    train_status_t status;

    if (!ret_graph)
        return err_set (err, TRAIN_EINVAL, "graph_end: no result");
    status = check (group, "graph_end", true, err);
    if (status == TRAIN_ESTATE && group->records)
        group->records = false; /* by the failure, which has ended it */
    if (status != TRAIN_OK)
        return status;
    group->records = false;
    graph = calloc (1, sizeof (*graph));
    status = group->ops->graph_end (group->state, graph ? &graph->call : NULL,
                                    graph ? &graph->graph : NULL, err);
    if (!graph)
        return err_set (err, TRAIN_ENOMEM, "graph_end: no memory");
    if (status != TRAIN_OK) {
        free (graph);
        return status;
    }
    graph->group = group;
    graph->next = group->graphs;
    group->graphs = graph;
    *ret_graph = graph;
    return TRAIN_OK;
}

train_status_t train_graph_launch (train_graph_t *graph, train_error_t *err)
{
    struct comm_call call;

    if (!graph)
        return err_set (err, TRAIN_EINVAL, "graph_launch: no graph");
    if (!graph->group)
        return err_set (err, TRAIN_ESTATE,
                        "graph_launch: the group of the graph was destroyed");
    call = graph->call;
    return group_run (graph->group, &call, graph->graph, NULL, err);
}

train_status_t train_graph_launch_async (train_graph_t *graph,
                                         train_work_t **ret_work,
                                         train_error_t *err)
{
    train_status_t status;

    if (!graph || !graph->group)
        return train_graph_launch (graph, err);
    status = work_issue (graph->group, ret_work, err);
    if (status != TRAIN_OK)
        return status;
    return work_issued (graph->group, train_graph_launch (graph, err),
                        ret_work);
}

void train_graph_destroy (train_graph_t *graph)
{
    struct train_graph **at;

    if (!graph)
        return;
    if (graph->group) {
        work_drain (graph->group);
        at = &graph->group->graphs;
        while (*at != graph)
            at = &(*at)->next;
        *at = graph->next;
        graph->group->ops->graph_free (graph->group->state, graph->graph);
    }
    free (graph);
}

void graph_fini (train_group_t *group)
{
    for (struct train_graph *g = group->graphs; g; g = g->next) {
        group->ops->graph_free (group->state, g->graph);
        g->group = NULL;
    }
    group->graphs = NULL;
}
