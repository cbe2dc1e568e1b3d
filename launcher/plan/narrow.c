/* SPDX-License-Identifier: Apache-2.0
 * narrow.c - leave of a snapshot what one request may have */
#include "plan/narrow.h"

#include <stdlib.h>
#include <string.h>

#include "plan/hostlist.h"

/* Mark the nodes of [list]; returns how many of its words are one. */
static size_t mark (const struct strategy_cluster *c,
                    const struct hostlist *list, bool *in)
{
    size_t found = 0;

    for (size_t i = 0; i < list->n; i++)
        for (size_t j = 0; j < c->n_nodes; j++)
            if (!strcmp (list->host[i], c->node[j].name)) {
                in[j] = true;
                found++;
            }
    return found;
}

static uint32_t count (const bool *in, size_t n)
{
    uint32_t marked = 0;

    for (size_t i = 0; i < n; i++)
        marked += in[i];
    return marked;
}

static void keep (struct strategy_cluster *c, const bool *in, bool kept)
{
    for (size_t i = 0; i < c->n_nodes; i++)
        if (in[i] != kept)
            c->node[i].left_out = true;
}

void narrow_exclude (struct strategy_cluster *cluster, const char *list)
{
    bool *in = calloc (cluster->n_nodes + 1, sizeof (*in));
    struct hostlist hosts;

    if (in && hostlist_parse (list, &hosts, NULL) == RV_OK) {
        mark (cluster, &hosts, in);
        keep (cluster, in, false);
        hostlist_fini (&hosts);
    }
    free (in);
}

static int check_nodelist (uint32_t listed, uint32_t gpus, uint32_t nodes,
                           struct rv_error *err)
{
    if (nodes && listed > nodes)
        return error_set (err, RV_EINVAL,
                          "--nodelist names %u nodes, of which a job has all, "
                          "and the job has %u; --nodes=%u would work",
                          listed, nodes, listed);
    if (!nodes && gpus % listed)
        return error_set (
            err, RV_EINVAL,
            "--nodelist names %u nodes, of which a job has all, and %u GPU%s "
            "not go evenly on them; -g %u would work",
            listed, gpus, gpus == 1 ? " does" : "s do",
            (gpus + listed - 1) / listed * listed);
    return RV_OK;
}

int narrow_nodelist (struct strategy_cluster *cluster, const char *list,
                     uint32_t gpus, uint32_t *nodes, bool *ret_done,
                     struct rv_error *err)
{
    bool *in = calloc (cluster->n_nodes + 1, sizeof (*in));
    struct hostlist hosts;
    int status = RV_OK;
    uint32_t listed;

    *ret_done = false;
    if (!in)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (hostlist_parse (list, &hosts, NULL) != RV_OK) {
        free (in);
        return RV_OK;
    }
    if (mark (cluster, &hosts, in) == hosts.n) {
        listed = count (in, cluster->n_nodes);
        status = check_nodelist (listed, gpus, *nodes, err);
        *ret_done = status == RV_OK && (!*nodes || *nodes == listed);
        if (status == RV_OK && !*nodes)
            *nodes = listed;
        if (*ret_done)
            keep (cluster, in, true);
    }
    hostlist_fini (&hosts);
    free (in);
    return status;
}

/* The nodes are others' up to its begin, and from its end on. */
static bool turn_round (struct strategy_cluster *c, size_t i)
{
    struct strategy_reservation *more, *resv;

    more = realloc (c->resv, (c->n_resv + 1) * sizeof (*more));
    if (!more)
        return false;
    c->resv = more;
    resv = &more[i];
    more[c->n_resv] = (struct strategy_reservation){
        .start_s = resv->end_s,
        .end_s = STRATEGY_UNLIMITED,
        .node = malloc (resv->n_nodes * sizeof (*resv->node)),
        .n_nodes = resv->n_nodes};
    if (!more[c->n_resv].node)
        return false;
    memcpy (more[c->n_resv++].node, resv->node,
            resv->n_nodes * sizeof (*resv->node));
    resv->end_s = resv->start_s;
    resv->start_s = 0;
    return true;
}

bool narrow_reservation (struct strategy_cluster *cluster, const char *name)
{
    const struct strategy_reservation *resv;
    bool *in;
    size_t i = 0;

    while (i < cluster->n_resv
           && (!cluster->resv[i].name || strcmp (cluster->resv[i].name, name)))
        i++;
    if (i == cluster->n_resv || cluster->resv[i].n_nodes == 0)
        return false;
    in = calloc (cluster->n_nodes + 1, sizeof (*in));
    if (!in || !turn_round (cluster, i)) {
        free (in);
        return false;
    }
    resv = &cluster->resv[i];
    for (size_t n = 0; n < resv->n_nodes; n++)
        in[resv->node[n]] = true;
    cluster->inside = resv->name;
    keep (cluster, in, true);
    free (in);
    return true;
}
