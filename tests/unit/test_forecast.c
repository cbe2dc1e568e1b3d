/* SPDX-License-Identifier: Apache-2.0
 * test_forecast.c - starts that our own backfill foresees */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/forecast.h"
#include "plan/lane.h"

#define NOW   1000000
#define NODES 4

/* Four nodes of 4 a100, 8 CPUs, 1000 MiB in one partition; the last two in
 * another of a higher tier too. */
struct site {
    struct strategy_cluster c;
    struct strategy_node node[NODES];
    struct strategy_partition part[2];
    struct strategy_job job[64];
    struct strategy_reservation resv[1];
};

static uint32_t numbers[] = {0, 1, 2, 3};

static int setup (void **state)
{
    struct site *s = calloc (1, sizeof (*s));

    for (int i = 0; i < NODES; i++) {
        s->node[i].cpus = 8;
        s->node[i].threads = 1;
        s->node[i].mem_mb = 1000;
        s->node[i].usable = true;
        assert_int_equal (gres_parse ("gpu:a100:4", &s->node[i].gres, NULL), 0);
    }
    s->part[0] = (struct strategy_partition){.name = (char *)"low",
                                             .up = true,
                                             .max_time_s = -1,
                                             .tier = 1,
                                             .node = numbers,
                                             .n_nodes = 4};
    s->part[1] = (struct strategy_partition){.name = (char *)"high",
                                             .up = true,
                                             .max_time_s = -1,
                                             .tier = 2,
                                             .node = numbers + 2,
                                             .n_nodes = 2};
    s->c = (struct strategy_cluster){.node = s->node,
                                     .n_nodes = NODES,
                                     .part = s->part,
                                     .n_parts = 2,
                                     .job = s->job,
                                     .resv = s->resv,
                                     .now_s = NOW};
    *state = s;
    return 0;
}

static int teardown (void **state)
{
    struct site *s = *state;

    for (int i = 0; i < NODES; i++) {
        gres_fini (&s->node[i].gres);
        gres_fini (&s->node[i].used);
    }
    free (s);
    return 0;
}

static void runs (struct site *s, uint32_t node, uint32_t gpus, uint32_t cpus,
                  int64_t left)
{
    struct strategy_job *job = &s->job[s->c.n_jobs++];

    *job = (struct strategy_job){.job_id = (uint32_t)s->c.n_jobs,
                                 .running = true,
                                 .gpus = gpus,
                                 .cpus = cpus,
                                 .type = (char *)"a100",
                                 .end_s = left ? NOW + left : 0,
                                 .node = &numbers[node],
                                 .n_nodes = 1};
}

static struct strategy_job *waits (struct site *s, const char *partition,
                                   uint32_t nodes, uint32_t gpus,
                                   int64_t time_s)
{
    struct strategy_job *job = &s->job[s->c.n_jobs++];

    *job = (struct strategy_job){.job_id = (uint32_t)s->c.n_jobs,
                                 .nodes = nodes,
                                 .gpus = gpus,
                                 .cpus = gpus,
                                 .partition = (char *)partition,
                                 .time_s = time_s};
    return job;
}

/* Seconds from now to the start of a job in [part]; -1 never. */
static int64_t start_in (struct site *s, int part, uint32_t nodes,
                         uint32_t gpus, int64_t time_s)
{
    const struct forecast_need need = {.part = &s->part[part],
                                       .type = "A100",
                                       .nodes = nodes,
                                       .gpus = gpus,
                                       .cpus = gpus,
                                       .time_s = time_s};
    struct forecast *f = forecast_new (&s->c);
    int64_t start;

    assert_non_null (f);
    assert_int_equal (forecast_queue (f, s->part[part].tier), 0);
    start = forecast_start (f, &need);
    forecast_free (f);
    return start == FORECAST_NEVER ? -1 : start - NOW;
}

static void nothing (void **state)
{
    struct strategy_cluster none = {0};
    struct forecast *f = forecast_new (&none);

    (void)state;
    assert_non_null (f);
    assert_int_equal (forecast_queue (f, 0), 0);
    assert_false (forecast_cut (f));
    forecast_free (f);
    forecast_free (NULL);
}

static void idle (void **state)
{
    struct site *s = *state;

    assert_int_equal (start_in (s, 0, 1, 4, 60), 0);
    assert_int_equal (start_in (s, 0, 4, 4, -1), 0);
    assert_int_equal (start_in (s, 0, 5, 4, 60), -1);
    assert_int_equal (start_in (s, 0, 1, 5, 60), -1);
    assert_int_equal (start_in (s, 1, 3, 1, 60), -1);
    s->node[0].usable = s->node[1].usable = false;
    assert_int_equal (start_in (s, 0, 3, 4, 60), -1);
    assert_int_equal (start_in (s, 0, 2, 4, 60), 0);
}

static void after_running_jobs (void **state)
{
    struct site *s = *state;

    runs (s, 0, 4, 1, 100);
    runs (s, 1, 3, 1, 200);
    runs (s, 2, 1, 1, 0); /* for ever */
    runs (s, 3, 1, 8, 400);
    assert_int_equal (start_in (s, 0, 1, 3, 60), 0);
    assert_int_equal (start_in (s, 0, 1, 4, 60), 100);
    assert_int_equal (start_in (s, 0, 2, 4, 60), 200);
    assert_int_equal (start_in (s, 0, 3, 4, 60), 400);
    assert_int_equal (start_in (s, 0, 4, 4, 60), -1);
    assert_int_equal (start_in (s, 0, 4, 3, 60), 400); /* node 3 has no CPU */
    /* one that has passed its limit goes any moment */
    s->job[0].end_s = NOW - 5;
    assert_int_equal (start_in (s, 0, 1, 4, 60), 1);
}

static void fills_a_hole (void **state)
{
    struct site *s = *state;

    for (uint32_t i = 0; i < 3; i++)
        runs (s, i, 4, 1, 1000);
    waits (s, "low", 4, 4, 500); /* gets 1000 to 1500 */
    assert_int_equal (start_in (s, 0, 1, 1, 1000), 0);
    assert_int_equal (start_in (s, 0, 1, 1, 1001), 1500);
    assert_int_equal (start_in (s, 0, 1, 1, -1), 1500);
}

static void queue_order (void **state)
{
    struct site *s = *state;

    for (uint32_t i = 0; i < 4; i++)
        runs (s, i, 4, 1, 100 * (i + 1));
    waits (s, "low", 1, 4, 1000)->priority = 1;
    waits (s, "low", 1, 4, 10)->priority = 9;
    /* 100: the second, then the first from 110; ours from 200 */
    assert_int_equal (start_in (s, 0, 1, 4, 60), 200);
    /* a partition of a higher tier does not wait for a lower one's jobs */
    waits (s, "low", 4, 4, 5000)->priority = 5;
    assert_int_equal (start_in (s, 1, 1, 4, 60), 300);
    assert_int_equal (start_in (s, 0, 1, 4, 601), 5400);
    /* of two partitions the one that is earlier: nodes 0 and 1 at 200 */
    waits (s, "high,low", 2, 4, 100);
    assert_int_equal (start_in (s, 1, 1, 4, 101), 300);
    assert_int_equal (start_in (s, 0, 1, 4, 60), 110);
    waits (s, "high", 2, 4, 100);
    assert_int_equal (start_in (s, 1, 1, 4, 100), 300);
    assert_int_equal (start_in (s, 1, 1, 4, 101), 500);
}

static void arrays_and_begin (void **state)
{
    struct site *s = *state;

    waits (s, "low", 1, 4, 100)->count = 9; /* 4, 4, 1 */
    assert_int_equal (start_in (s, 0, 1, 4, 60), 200);
    assert_int_equal (start_in (s, 0, 4, 4, 60), 300);
    waits (s, "low", 4, 4, 100)->begin_s = NOW + 1000;
    assert_int_equal (start_in (s, 0, 1, 4, 60), 200);
    assert_int_equal (start_in (s, 0, 4, 4, 701), 1100);
}

static void whole_nodes_and_others (void **state)
{
    struct site *s = *state;

    waits (s, "low", 4, 0, 100)->exclusive = true;
    assert_int_equal (start_in (s, 0, 1, 1, 60), 100);
    s->part[0].exclusive = true;
    s->job[0].exclusive = false;
    s->c.n_jobs = 0;
    for (uint32_t i = 0; i < 4; i++)
        runs (s, i, 0, 1, 50 + i);
    assert_int_equal (start_in (s, 0, 1, 1, 60), 50);
    assert_int_equal (start_in (s, 0, 4, 1, 60), 53);
    s->part[0].exclusive = false;
    /* a reservation from 30 to 90 of node 0 and 1 */
    s->c.n_jobs = 0;
    s->resv[0] =
        (struct strategy_reservation){NOW + 30, NOW + 90, numbers, 2, NULL};
    s->c.n_resv = 1;
    assert_int_equal (start_in (s, 0, 4, 1, 30), 0);
    assert_int_equal (start_in (s, 0, 4, 1, 31), 90);
    assert_int_equal (start_in (s, 0, 2, 1, 31), 0);
}

static void features_and_hidden (void **state)
{
    struct site *s = *state;
    struct forecast_need need = {.part = &s->part[0],
                                 .features = "b",
                                 .nodes = 1,
                                 .gpus = 1,
                                 .cpus = 1,
                                 .time_s = 60};
    struct forecast *f;

    for (int i = 0; i < 4; i++)
        s->node[i].features = (char *)(i == 3 ? "b" : "a");
    runs (s, 3, 4, 1, 70);
    f = forecast_new (&s->c);
    assert_int_equal (forecast_start (f, &need), NOW + 70);
    need.features = "a";
    assert_int_equal (forecast_start (f, &need), NOW);
    need.features = "c";
    assert_int_equal (forecast_start (f, &need), FORECAST_NEVER);
    forecast_free (f);
    /* jobs hidden: what the nodes say is in use never comes back */
    s->c.jobs_hidden = true;
    s->node[3].cpus_used = 1;
    assert_int_equal (
        gres_parse ("gpu:a100:3(IDX:0-2)", &s->node[3].used, NULL), 0);
    f = forecast_new (&s->c);
    need.features = "b";
    assert_int_equal (forecast_start (f, &need), NOW);
    need.gpus = 2;
    assert_int_equal (forecast_start (f, &need), FORECAST_NEVER);
    forecast_free (f);
}

static void longest (void **state)
{
    struct site *s = *state;
    struct forecast_need need = {
        .part = &s->part[0], .nodes = 1, .gpus = 2, .cpus = 2, .time_s = 1};
    struct forecast *f;

    for (uint32_t i = 0; i < 4; i++)
        runs (s, i, i == 0 ? 0 : 4, 1, 100 * i + 100);
    waits (s, "low", 4, 4, 10);
    f = forecast_new (&s->c);
    assert_int_equal (forecast_longest (f, &need), STRATEGY_UNLIMITED);
    assert_int_equal (forecast_queue (f, 0), 0);
    assert_int_equal (forecast_longest (f, &need), 400);
    need.nodes = 2;
    assert_int_equal (forecast_longest (f, &need), 0);
    assert_int_equal (forecast_waiting (f, &s->part[0]), 1);
    assert_int_equal (forecast_waiting (f, &s->part[1]), 0);
    forecast_free (f);
}

/* A slice is no GPU, and a type is its own. */
static void types (void **state)
{
    struct site *s = *state;
    struct forecast_need need = {
        .part = &s->part[1], .nodes = 1, .gpus = 5, .cpus = 1, .time_s = 60};
    struct forecast *f;

    gres_fini (&s->node[2].gres);
    assert_int_equal (gres_parse ("gpu:v100:2,gpu:1g.10gb:7,gpu:a100:2",
                                  &s->node[2].gres, NULL),
                      0);
    f = forecast_new (&s->c);
    assert_int_equal (forecast_start (f, &need), FORECAST_NEVER);
    need.type = "1g.10gb";
    assert_int_equal (forecast_start (f, &need), NOW);
    need.type = "v100";
    need.gpus = 2;
    assert_int_equal (forecast_start (f, &need), NOW);
    need.gpus = 3;
    assert_int_equal (forecast_start (f, &need), FORECAST_NEVER);
    need.type = "h100";
    assert_int_equal (forecast_start (f, &need), FORECAST_NEVER);
    forecast_free (f);
}

static void lanes (void **state)
{
    struct lane lane = {.threads = 2};
    struct lane_need need = {.type = LANE_ANY, .cpus = 1};

    (void)state;
    lane.part = calloc (1, sizeof (*lane.part));
    lane.n = lane.room = 1;
    lane.part[0] = lane.all = (struct lane_free){.from = 10, .cpus = 4};
    assert_int_equal (lane_end (5, -1), LANE_NEVER);
    assert_int_equal (lane_end (INT64_MAX - 1, 2), LANE_NEVER);
    assert_int_equal (lane_take (&lane, &need, 20, 10), 0);
    assert_int_equal (lane_take (&lane, &need, 25, 10), 0);
    /* a core has two CPUs: full from 25 to 30 */
    assert_int_equal (lane_earliest (&lane, &need, 10, 15, LANE_NEVER), 10);
    assert_int_equal (lane_earliest (&lane, &need, 10, 16, LANE_NEVER), 30);
    assert_int_equal (lane_earliest (&lane, &need, 40, -1, LANE_NEVER), 40);
    assert_int_equal (lane_until (&lane, &need, 12), 25);
    assert_int_equal (lane_until (&lane, &need, 26), 26);
    free (lane.part);
}

/* Beside a simulation that looks at every second of every node. */
#define SPAN 4000

struct slow {
    uint16_t gpus[NODES][SPAN], cpus[NODES][SPAN];
};

static bool slow_fits (const struct slow *w, uint32_t node, int64_t at,
                       uint32_t gpus, int64_t time_s)
{
    for (int64_t t = at; t < at + time_s; t++)
        if (w->gpus[node][t] < gpus || w->cpus[node][t] < gpus)
            return false;
    return true;
}

static int64_t slow_place (struct slow *w, uint32_t first, uint32_t nodes,
                           uint32_t gpus, int64_t time_s)
{
    for (int64_t at = 0; at + time_s < SPAN; at++) {
        uint32_t found[NODES], n = 0;

        for (uint32_t i = first; i < NODES && n < nodes; i++)
            if (slow_fits (w, i, at, gpus, time_s))
                found[n++] = i;
        if (n < nodes)
            continue;
        for (uint32_t i = 0; i < nodes; i++)
            for (int64_t t = at; t < at + time_s; t++) {
                w->gpus[found[i]][t] = (uint16_t)(w->gpus[found[i]][t] - gpus);
                w->cpus[found[i]][t] = (uint16_t)(w->cpus[found[i]][t] - gpus);
            }
        return at;
    }
    return -1;
}

static void as_second_by_second (void **state)
{
    struct site *s = *state;
    static struct slow w;
    unsigned seed = 7;

    for (int round = 0; round < 100; round++) {
        s->c.n_jobs = 0;
        for (int i = 0; i < NODES; i++)
            for (int t = 0; t < SPAN; t++)
                w.gpus[i][t] = 4, w.cpus[i][t] = 8;
        s->part[1].tier = 1;
        for (int i = 0; i < 20; i++) {
            bool low = rand_r (&seed) % 3;
            uint32_t nodes = 1 + (uint32_t)rand_r (&seed) % (low ? 3 : 2);
            uint32_t gpus = 1 + (uint32_t)rand_r (&seed) % 4;
            int64_t time_s = 1 + rand_r (&seed) % 50, fast, slow;

            if (i == 19) {
                fast = start_in (s, low ? 0 : 1, nodes, gpus, time_s);
                slow = slow_place (&w, low ? 0 : 2, nodes, gpus, time_s);
                if (fast != slow)
                    fail_msg ("round %d: %lld, not %lld", round,
                              (long long)fast, (long long)slow);
                break;
            }
            waits (s, low ? "low" : "high", nodes, gpus, time_s);
            slow_place (&w, low ? 0 : 2, nodes, gpus, time_s);
        }
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (nothing),
        cmocka_unit_test (lanes),
        cmocka_unit_test_setup_teardown (idle, setup, teardown),
        cmocka_unit_test_setup_teardown (after_running_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown (fills_a_hole, setup, teardown),
        cmocka_unit_test_setup_teardown (queue_order, setup, teardown),
        cmocka_unit_test_setup_teardown (arrays_and_begin, setup, teardown),
        cmocka_unit_test_setup_teardown (whole_nodes_and_others, setup,
                                         teardown),
        cmocka_unit_test_setup_teardown (features_and_hidden, setup, teardown),
        cmocka_unit_test_setup_teardown (longest, setup, teardown),
        cmocka_unit_test_setup_teardown (types, setup, teardown),
        cmocka_unit_test_setup_teardown (as_second_by_second, setup, teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
