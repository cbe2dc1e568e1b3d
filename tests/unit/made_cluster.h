/* SPDX-License-Identifier: Apache-2.0
 * made_cluster.h - a full cluster with waiting jobs, for what measures plans */
#ifndef RV_TEST_MADE_CLUSTER_H
#define RV_TEST_MADE_CLUSTER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plans.h"

#define MADE_NOW 1000000000

struct made {
    struct strategy_cluster c;
    struct strategy_partition part[4];
    uint32_t *all;
};

static const char *const made_types[] = {"a100", "v100", "h100"};
static unsigned made_seed = 1;

static unsigned made_any (unsigned n)
{
    return (unsigned)rand_r (&made_seed) % n;
}

static void *made_array (size_t n, size_t size)
{
    void *p = calloc (n + 1, size);

    if (!p)
        abort ();
    return p;
}

static void made_node (struct strategy_node *node, size_t i)
{
    char gres[64];

    snprintf (gres, sizeof (gres), "gpu:%s:%d(S:0-1)", made_types[i % 3],
              i % 3 == 1 ? 4 : 8);
    node->features = strdup (made_types[i % 3]);
    node->cpus = 64;
    node->threads = 2;
    node->mem_mb = 512000;
    node->usable = i % 50 != 0;
    if (!node->features || gres_parse (gres, &node->gres, NULL))
        abort ();
}

/* Two jobs a node, for up to two days. */
static void made_running (struct made *m, size_t nodes)
{
    for (size_t i = 0; i < 2 * nodes; i++) {
        struct strategy_job *job = &m->c.job[m->c.n_jobs++];

        *job = (struct strategy_job){.job_id = (uint32_t)m->c.n_jobs,
                                     .running = true,
                                     .gpus = i / 2 % 3 == 1 ? 2 : 4,
                                     .cpus = 32,
                                     .mem_mb = 200000,
                                     .end_s = MADE_NOW + 60 + made_any (172800),
                                     .n_nodes = 1};
        job->node = made_array (1, sizeof (*job->node));
        job->node[0] = (uint32_t)(i / 2);
    }
}

/* One in ten wants several nodes; no two need be alike. */
static void made_waiting (struct made *m, size_t jobs)
{
    static const char *const parts[] = {"gpu", "long", "gpu,long", "prio"};

    for (size_t i = 0; i < jobs; i++) {
        struct strategy_job *job = &m->c.job[m->c.n_jobs++];

        *job =
            (struct strategy_job){.job_id = (uint32_t)m->c.n_jobs,
                                  .nodes = made_any (10) ? 1 : 2 + made_any (7),
                                  .gpus = 1 + made_any (4),
                                  .cpus = 1 + made_any (16),
                                  .mem_mb = 1000 * made_any (64),
                                  .priority = made_any (100000),
                                  .time_s = 600 + made_any (86400)};
        job->partition = strdup (parts[made_any (4)]);
        job->type = made_any (2) ? strdup (made_types[made_any (3)]) : NULL;
        if (made_any (8) == 0)
            job->features = strdup ("a100|h100");
    }
}

static void made_make (struct made *m, size_t nodes, size_t jobs)
{
    static const char *const names[] = {"gpu", "long", "prio", "half"};

    memset (m, 0, sizeof (*m));
    m->c = (struct strategy_cluster){
        .n_nodes = nodes, .part = m->part, .n_parts = 4, .now_s = MADE_NOW};
    m->c.node = made_array (nodes, sizeof (*m->c.node));
    m->c.job = made_array (2 * nodes + jobs, sizeof (*m->c.job));
    m->all = made_array (nodes, sizeof (*m->all));
    for (size_t i = 0; i < nodes; i++) {
        m->all[i] = (uint32_t)i;
        made_node (&m->c.node[i], i);
    }
    for (int i = 0; i < 4; i++)
        m->part[i] =
            (struct strategy_partition){.name = (char *)names[i],
                                        .up = true,
                                        .is_default = i == 0,
                                        .max_time_s = i == 1 ? -1 : 172800,
                                        .tier = i == 2 ? 2 : 1,
                                        .node = m->all,
                                        .n_nodes = i == 3 ? nodes / 2 : nodes};
    made_running (m, nodes);
    made_waiting (m, jobs);
}

static void made_free (struct made *m)
{
    m->c.part = NULL; /* ours */
    m->c.n_parts = 0;
    strategy_cluster_fini (&m->c);
    free (m->all);
}

#endif
