/* SPDX-License-Identifier: Apache-2.0
 * plan_bench.c - plan_strategies over made-up clusters of 100, 500 and 2,000
 * nodes, full, with 5,000 waiting jobs
 *
 *   plan_bench [JOBS]
 * One line a size: nodes, waiting jobs, the best of five in milliseconds, and
 * that over the nodes. Ends with 1 where a size takes 200 ms or more, or the
 * time grows faster than the nodes do (by half at most). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/plans.h"

#define LIMIT_MS 200.0
#define NOW      1000000000
#define ROUNDS   5

struct made {
    struct strategy_cluster c;
    struct strategy_partition part[4];
    uint32_t *all;
};

static const char *const types[] = {"a100", "v100", "h100"};
static unsigned seed = 1;

static unsigned any (unsigned n)
{
    return (unsigned)rand_r (&seed) % n;
}

static void *array (size_t n, size_t size)
{
    void *p = calloc (n + 1, size);

    if (!p)
        abort ();
    return p;
}

static void make_node (struct strategy_node *node, size_t i)
{
    char gres[64];

    snprintf (gres, sizeof (gres), "gpu:%s:%d(S:0-1)", types[i % 3],
              i % 3 == 1 ? 4 : 8);
    node->features = strdup (types[i % 3]);
    node->cpus = 64;
    node->threads = 2;
    node->mem_mb = 512000;
    node->usable = i % 50 != 0;
    if (!node->features || gres_parse (gres, &node->gres, NULL))
        abort ();
}

/* Two jobs a node, for up to two days. */
static void make_running (struct made *m, size_t nodes)
{
    for (size_t i = 0; i < 2 * nodes; i++) {
        struct strategy_job *job = &m->c.job[m->c.n_jobs++];

        *job = (struct strategy_job){.job_id = (uint32_t)m->c.n_jobs,
                                     .running = true,
                                     .gpus = i / 2 % 3 == 1 ? 2 : 4,
                                     .cpus = 32,
                                     .mem_mb = 200000,
                                     .end_s = NOW + 60 + any (172800),
                                     .n_nodes = 1};
        job->node = array (1, sizeof (*job->node));
        job->node[0] = (uint32_t)(i / 2);
    }
}

/* One in ten wants several nodes; no two need be alike. */
static void make_waiting (struct made *m, size_t jobs)
{
    static const char *const parts[] = {"gpu", "long", "gpu,long", "prio"};

    for (size_t i = 0; i < jobs; i++) {
        struct strategy_job *job = &m->c.job[m->c.n_jobs++];

        *job = (struct strategy_job){.job_id = (uint32_t)m->c.n_jobs,
                                     .nodes = any (10) ? 1 : 2 + any (7),
                                     .gpus = 1 + any (4),
                                     .cpus = 1 + any (16),
                                     .mem_mb = 1000 * any (64),
                                     .priority = any (100000),
                                     .time_s = 600 + any (86400)};
        job->partition = strdup (parts[any (4)]);
        job->type = any (2) ? strdup (types[any (3)]) : NULL;
        if (any (8) == 0)
            job->features = strdup ("a100|h100");
    }
}

static void make (struct made *m, size_t nodes, size_t jobs)
{
    static const char *const names[] = {"gpu", "long", "prio", "half"};

    memset (m, 0, sizeof (*m));
    m->c = (struct strategy_cluster){
        .n_nodes = nodes, .part = m->part, .n_parts = 4, .now_s = NOW};
    m->c.node = array (nodes, sizeof (*m->c.node));
    m->c.job = array (2 * nodes + jobs, sizeof (*m->c.job));
    m->all = array (nodes, sizeof (*m->all));
    for (size_t i = 0; i < nodes; i++) {
        m->all[i] = (uint32_t)i;
        make_node (&m->c.node[i], i);
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
    make_running (m, nodes);
    make_waiting (m, jobs);
}

static void unmake (struct made *m)
{
    m->c.part = NULL; /* ours */
    m->c.n_parts = 0;
    strategy_cluster_fini (&m->c);
    free (m->all);
}

static double now_ms (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

/* The best of some rounds; the machine may be busy. */
static double measure (size_t nodes, size_t jobs)
{
    const struct strategy_request req = {.gpus = 8, .time_s = 10740};
    double best = 1e9;
    struct made m;

    make (&m, nodes, jobs);
    for (int i = 0; i < ROUNDS; i++) {
        double from = now_ms (), took;
        struct plans plans;
        struct rv_error err = {0};

        if (plan_strategies (&m.c, &req, &plans, &err)) {
            fprintf (stderr, "plan_bench: %s\n", err.text);
            exit (1);
        }
        took = now_ms () - from;
        best = took < best ? took : best;
        if (i == ROUNDS - 1)
            printf ("%zu nodes, %zu waiting: %.1f ms, %.1f us a node; %zu "
                    "strategies, the first: %s, %s\n",
                    nodes, jobs, best, best * 1e3 / (double)nodes, plans.n,
                    plans.item[0].partition, plans.item[0].why);
        plans_fini (&plans);
    }
    unmake (&m);
    return best;
}

int main (int argc, char **argv)
{
    static const size_t sizes[] = {100, 500, 2000};
    size_t jobs = argc > 1 ? strtoul (argv[1], NULL, 10) : 5000;
    double ms[3];
    int failed = 0;

    for (int i = 0; i < 3; i++) {
        ms[i] = measure (sizes[i], jobs);
        failed = failed || ms[i] >= LIMIT_MS;
    }
    failed = failed || ms[2] / ms[1] > 1.5 * 4;
    puts (failed ? "plan_bench: too slow" : "plan_bench: ok");
    return failed;
}
