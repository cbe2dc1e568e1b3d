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
#include <time.h>

#include "../unit/made_cluster.h"
#include "plan/plans.h"

#define LIMIT_MS 200.0
#define ROUNDS   5

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

    made_make (&m, nodes, jobs);
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
    made_free (&m);
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
