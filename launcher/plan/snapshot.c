/* SPDX-License-Identifier: Apache-2.0
 * snapshot.c - a cluster at one moment */
#include "plan/snapshot.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

uint32_t strategy_node_gpus (const struct strategy_node *node, const char *type)
{
    uint64_t n = 0;

    for (size_t i = 0; i < node->gres.n; i++)
        if (!strcmp (node->gres.entry[i].name, "gpu")
            && !strcasecmp (node->gres.entry[i].type, type))
            n += node->gres.entry[i].count;
    return n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
}

const char *strategy_rule_name (const struct strategy_rule *rule)
{
    return rule->label ? rule->label : rule->type;
}

static void job_fini (struct strategy_job *job)
{
    free (job->type);
    free (job->partition);
    free (job->features);
    free (job->resv);
    free (job->node);
}

void strategy_cluster_fini (struct strategy_cluster *cluster)
{
    if (!cluster)
        return;
    for (size_t i = 0; i < cluster->n_nodes; i++) {
        free (cluster->node[i].name);
        free (cluster->node[i].features);
        gres_fini (&cluster->node[i].gres);
        gres_fini (&cluster->node[i].used);
    }
    for (size_t i = 0; i < cluster->n_parts; i++) {
        free (cluster->part[i].name);
        free (cluster->part[i].node);
    }
    for (size_t i = 0; i < cluster->n_jobs; i++)
        job_fini (&cluster->job[i]);
    for (size_t i = 0; i < cluster->n_resv; i++) {
        free (cluster->resv[i].name);
        free (cluster->resv[i].node);
    }
    free (cluster->name);
    limits_fini (&cluster->limits);
    free (cluster->node);
    free (cluster->part);
    free (cluster->job);
    free (cluster->resv);
    memset (cluster, 0, sizeof (*cluster));
}
