/* SPDX-License-Identifier: Apache-2.0
 * test_plans.c - strategies for requests on made-up clusters */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cmocka.h>

#include "plan/feature.h"
#include "plan/plans.h"

#define NOW   1000000
#define NODES 12
#define PARTS 24

/* Nodes 0-3: 4 a100, feature a100; 4-7: 4 v100, feature v100; 16 CPUs and 1000
 * MiB each; the others are the tests'. Partition a (the default): 0-3. */
struct site {
    struct strategy_cluster c;
    struct strategy_node node[NODES];
    struct strategy_partition part[PARTS];
    struct strategy_job job[16];
    struct strategy_rule rule[4];
    struct plans plans;
    struct strategy_request req;
};

static uint32_t numbers[NODES];

static void node_is (struct site *s, int i, const char *gres,
                     const char *features)
{
    gres_fini (&s->node[i].gres);
    s->node[i].cpus = 16;
    s->node[i].threads = 1;
    s->node[i].mem_mb = 1000;
    s->node[i].usable = true;
    s->node[i].features = (char *)features;
    assert_int_equal (gres_parse (gres, &s->node[i].gres, NULL), RV_OK);
}

/* One more partition of nodes [first, first + n). */
static struct strategy_partition *part_add (struct site *s, const char *name,
                                            uint32_t first, size_t n)
{
    struct strategy_partition *part = &s->part[s->c.n_parts++];

    *part = (struct strategy_partition){.name = (char *)name,
                                        .up = true,
                                        .max_time_s = -1,
                                        .node = numbers + first,
                                        .n_nodes = n};
    return part;
}

static int setup (void **state)
{
    struct site *s = calloc (1, sizeof (*s));

    for (uint32_t i = 0; i < NODES; i++) {
        numbers[i] = i;
        node_is (s, (int)i,
                 i < 4   ? "gpu:a100:4(S:0-1)"
                 : i < 8 ? "gpu:v100:4"
                         : "",
                 i < 4   ? "ib,a100"
                 : i < 8 ? "v100,ib"
                         : "");
    }
    s->c = (struct strategy_cluster){.node = s->node,
                                     .n_nodes = NODES,
                                     .part = s->part,
                                     .job = s->job,
                                     .rule = s->rule,
                                     .now_s = NOW};
    part_add (s, "a", 0, 4)->is_default = true;
    s->req = (struct strategy_request){.gpus = 4, .time_s = 3600};
    *state = s;
    return 0;
}

static int teardown (void **state)
{
    struct site *s = *state;

    plans_fini (&s->plans);
    for (int i = 0; i < NODES; i++)
        gres_fini (&s->node[i].gres);
    free (s);
    return 0;
}

static void node_busy (struct site *s, uint32_t node, int64_t left)
{
    struct strategy_job *job = &s->job[s->c.n_jobs++];

    *job = (struct strategy_job){.job_id = 70 + (uint32_t)s->c.n_jobs,
                                 .running = true,
                                 .gpus = 4,
                                 .cpus = 4,
                                 .end_s = left ? NOW + left : 0,
                                 .node = &numbers[node],
                                 .n_nodes = 1};
}

static struct plans_item *plan (struct site *s)
{
    struct rv_error err = {0};

    plans_fini (&s->plans);
    if (plan_strategies (&s->c, &s->req, &s->plans, &err) != RV_OK)
        fail_msg ("%s", err.text);
    assert_true (s->plans.n > 0 && s->plans.n <= PLANS_MAX);
    for (size_t i = 0; i < s->plans.n; i++) {
        const struct plans_item *item = &s->plans.item[i];

        /* Never more than was asked. */
        assert_int_equal (item->plan.nodes * item->plan.gpus_per_node,
                          s->req.gpus);
        assert_ptr_equal (item->plan.partition, item->partition);
        assert_true (item->why[0] != '\0');
    }
    return s->plans.item;
}

static void is (const struct plans_item *item, const char *partition,
                const char *type, const char *constraint, uint32_t nodes)
{
    if (strcmp (item->partition, partition) || strcmp (item->plan.type, type)
        || strcmp (item->constraint, constraint) || item->plan.nodes != nodes)
        fail_msg ("-p %s gpu:%s -C '%s' -N %u", item->partition,
                  item->plan.type, item->constraint, item->plan.nodes);
}

static void bad_arguments (void **state)
{
    struct site *s = *state;

    assert_int_equal (plan_strategies (NULL, &s->req, &s->plans, NULL),
                      RV_EINVAL);
    assert_int_equal (plan_strategies (&s->c, NULL, &s->plans, NULL),
                      RV_EINVAL);
    assert_int_equal (plan_strategies (&s->c, &s->req, NULL, NULL), RV_EINVAL);
    s->req.time_min_s = -1;
    assert_int_equal (plan_strategies (&s->c, &s->req, &s->plans, NULL),
                      RV_EINVAL);
    s->req.time_min_s = 0;
    s->req.gpus = 7;
    assert_int_equal (plan_strategies (&s->c, &s->req, &s->plans, NULL),
                      RV_EINVAL);
    assert_null (s->plans.item);
    plans_fini (NULL);
}

static void one_place (void **state)
{
    struct site *s = *state;
    struct plans_item *item = plan (s);

    /* 2 x 2 and 4 x 1 are no better in anything */
    assert_int_equal (s->plans.n, 1);
    assert_int_equal (s->plans.dominated, 2);
    is (item, "a", "a100", "", 1);
    assert_int_equal (item->plan.cpus_per_task, 4);
    assert_int_equal (item->plan.mem_mb, 1000);
    assert_string_equal (item->why, "free now");
    assert_int_equal (item->known, PLANS_AT);
    assert_int_equal (item->start_s, NOW);
    s->req = (struct strategy_request){.gpus = 3, .time_s = 3600};
    is (plan (s), "a", "a100", "", 1);
    s->req.gpus = 6;
    is (plan (s), "a", "a100", "", 2);
    s->req.gpus = 0;
    is (plan (s), "a", "", "", 1);
    /* more nodes where fewer are not free */
    s->req.gpus = 4;
    node_busy (s, 0, 100);
    for (uint32_t i = 1; i < 4; i++) {
        node_busy (s, i, 500);
        s->job[i].gpus = 2;
    }
    item = plan (s);
    is (item, "a", "a100", "", 2);
    is (item + 1, "a", "a100", "", 1);
    assert_string_equal (item[1].why, "when job 71 ends at the latest");
    assert_int_equal (item[1].start_s, NOW + 100);
    /* the command's processes a node fix it */
    s->req.nproc = 4;
    is (plan (s), "a", "a100", "", 1);
    s->req.nproc = 1;
    is (plan (s), "a", "a100", "", 4);
}

static void several_partitions (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    part_add (s, "b", 2, 2);
    is (item = plan (s), "a,b", "a100", "", 1);
    assert_int_equal (s->plans.n, 1);
    /* EnforcePartLimits=ALL would refuse b for these */
    s->part[1].max_nodes = 1;
    s->req.nodes = 2;
    is (plan (s), "a", "a100", "", 2);
    s->req.nodes = 0;
    s->part[1].max_time_s = 1800;
    is (plan (s), "a", "a100", "", 1);
    s->part[1].max_time_s = -1;
    is (plan (s), "a,b", "a100", "", 1);
    /* the least memory of both */
    s->part[1].max_mem_node_mb = 600;
    is (item = plan (s), "a,b", "a100", "", 1);
    assert_int_equal (item->plan.mem_mb, 600);
    /* a partition that may refuse: only where it is named */
    s->part[1].on_request = true;
    is (plan (s), "a", "a100", "", 1);
    s->req.partition = "b,a";
    is (plan (s), "a,b", "a100", "", 1);
}

static void several_types (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    s->part[0].n_nodes = 8;
    /* free: the first type, named */
    is (plan (s), "a", "a100", "", 1);
    for (uint32_t i = 0; i < 8; i++)
        node_busy (s, i, 100 + 100 * i);
    /* not free: either */
    is (item = plan (s), "a", "", "", 1);
    assert_string_equal (item->types, "a100|v100");
    assert_int_equal (item->start_s, NOW + 100);
    s->req.nodes = 2;
    is (plan (s), "a", "", "[a100|v100]", 2);
    s->req.type = "v100";
    is (plan (s), "a", "v100", "", 2);
    /* several partitions too */
    s->req.type = NULL;
    s->part[0].n_nodes = 4;
    part_add (s, "b", 4, 4);
    is (plan (s), "a,b", "", "[a100|v100]", 2);
    s->req.nodes = 1;
    is (plan (s), "a,b", "", "", 1);
}

/* One node that the features must keep out. */
static void types_kept_apart (void **state)
{
    static const struct {
        const char *gres, *features;
    } other[] = {
        {"gpu:a100:2,gpu:v100:2", "odd"}, /* two types */
        {"gpu:1g.10gb:7", "mig"},         /* slices */
        {"gpu:a100:4,gpu:1g.10gb:7", "a100,v100"},
    };
    struct site *s = *state;

    s->part[0].n_nodes = 9;
    s->req.gpus = 2;
    s->req.nodes = 1;
    for (uint32_t i = 0; i < 9; i++)
        node_busy (s, i, 1000);
    node_is (s, 8, other[0].gres, other[0].features);
    is (plan (s), "a", "", "a100|v100", 1);
    node_is (s, 8, other[1].gres, other[1].features);
    is (plan (s), "a", "", "a100|v100", 1);
    s->req.nodes = 2;
    is (plan (s), "a", "", "[a100|v100]", 2);
    /* its features are those of the types: nothing tells it apart */
    node_is (s, 8, other[2].gres, other[2].features);
    is (plan (s), "a", "a100", "", 2);
    s->req.nodes = 1;
    is (plan (s), "a", "a100", "", 1);
    /* no features at all */
    node_is (s, 8, other[1].gres, "");
    for (int i = 0; i < 8; i++)
        s->node[i].features = (char *)"";
    is (plan (s), "a", "a100", "", 1);
    node_is (s, 8, "", "");
    is (plan (s), "a", "", "", 1);
}

/* Sections of one Slurm type; and untyped GPUs told apart by features alone. */
static void sections (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    s->rule[0] = (struct strategy_rule){
        .label = "big", .type = "a100", .constraint = "large", .cost = 2};
    s->rule[1] = (struct strategy_rule){
        .label = "small", .type = "a100", .constraint = "slim", .cost = 1};
    s->c.n_rules = 2;
    for (int i = 0; i < 4; i++)
        s->node[i].features = (char *)(i < 2 ? "large,ib" : "slim");
    /* both are free: the cheaper */
    is (item = plan (s), "a", "a100", "slim", 1);
    assert_string_equal (item->types, "small");
    assert_true (item->cost == 4);
    assert_int_equal (s->plans.n, 1);
    /* sooner and dear, later and cheap */
    node_busy (s, 2, 5000);
    node_busy (s, 3, 6000);
    is (item = plan (s), "a", "a100", "large", 1);
    is (item + 1, "a", "a100", "slim", 1);
    assert_int_equal (s->plans.n, 2);
    assert_true (item[0].cost == 8 && item[1].cost == 4);
    /* neither is free: one job for both, its cost the most it can be */
    node_busy (s, 0, 1000);
    node_busy (s, 1, 2000);
    is (item = plan (s), "a", "a100", "large|slim", 1);
    assert_string_equal (item->types, "big|small");
    assert_true (item->cost == 8);
    assert_int_equal (item->start_s, NOW + 1000);
    s->req.rule = "small";
    s->req.type = "a100";
    is (item = plan (s), "a", "a100", "slim", 1);
    assert_int_equal (item->start_s, NOW + 5000);
    /* no cost is known of one: behind what is known */
    s->rule[0].cost = -1;
    s->req = (struct strategy_request){.gpus = 4, .time_s = 3600};
    s->c.n_jobs = 0;
    is (plan (s), "a", "a100", "slim", 1);
    /* the order of the file where all else is the same */
    s->rule[0].cost = s->rule[1].cost = 1;
    is (plan (s), "a", "a100", "large", 1);
    assert_int_equal (s->plans.n, 2);
}

static void rule_of_a_partition (void **state)
{
    struct site *s = *state;

    /* v100 is in both partitions, and rv.conf keeps it to b */
    s->part[0].n_nodes = 8;
    part_add (s, "b", 4, 4);
    s->rule[0] = (struct strategy_rule){
        .label = "v100", .type = "v100", .partition = "b", .cost = -1};
    s->c.n_rules = 1;
    for (uint32_t i = 0; i < 8; i++)
        node_busy (s, i, 1000 - 100 * i);
    is (plan (s), "b", "v100", "", 1);
}

static void hidden_jobs (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    s->c.jobs_hidden = true;
    item = plan (s);
    assert_int_equal (item->known, PLANS_UNKNOWN);
    assert_int_equal (item->start_s, 0);
    assert_true (item->fits_now);
    assert_non_null (strstr (item->why, "free now, but other users' jobs are"));
    for (int i = 0; i < 4; i++) {
        s->node[i].cpus_used = 8;
        s->node[i].mem_used_mb = 10;
    }
    item = plan (s);
    assert_true (item->fits_now);
    assert_int_equal (item->plan.nodes, 2);
    assert_int_equal (item[1].plan.nodes, 1);
    assert_int_equal (item[1].known, PLANS_UNKNOWN);
    assert_string_equal (item[1].why, "other users' jobs are hidden");
}

static void down_and_never (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    node_busy (s, 0, 0);
    node_busy (s, 1, 0);
    node_busy (s, 2, 0);
    s->node[3].usable = false;
    s->req.nodes = 1;
    item = plan (s);
    assert_int_equal (item->known, PLANS_NEVER);
    assert_non_null (strstr (item->why, "held without an end"));
    for (int i = 0; i < 4; i++)
        s->node[i].usable = false;
    item = plan (s);
    assert_true (item->plan.waits_for_node);
    assert_int_equal (item->known, PLANS_NEVER);
    assert_non_null (strstr (item->why, "down"));
}

/* A hole of half an hour before a job that takes all. */
static void time_min (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    for (uint32_t i = 1; i < 4; i++)
        node_busy (s, i, 1830);
    s->job[s->c.n_jobs++] = (struct strategy_job){.job_id = 9,
                                                  .nodes = 4,
                                                  .gpus = 4,
                                                  .cpus = 4,
                                                  .partition = (char *)"a",
                                                  .time_s = 600};
    item = plan (s);
    assert_int_equal (s->plans.n, 1);
    assert_int_equal (item->start_s, NOW + 2430);
    assert_string_equal (item->why,
                         "when jobs that wait now have run; 1 job waits before "
                         "it");
    assert_int_equal (s->plans.now_if_s, 1800);
    s->req.time_min_s = 1000;
    item = plan (s);
    assert_int_equal (s->plans.n, 2);
    assert_int_equal (item[0].kind, PLANS_BACKFILL);
    assert_int_equal (item[0].start_s, NOW);
    assert_int_equal (item[0].plan.time_s, 3600);
    assert_int_equal (item[0].plan.time_min_s, 1000);
    assert_int_equal (item[1].kind, PLANS_DIRECT);
    assert_int_equal (s->plans.now_if_s, 0);
    /* no use where it starts no earlier */
    s->req.time_min_s = 2000;
    item = plan (s);
    assert_int_equal (s->plans.n, 1);
    assert_int_equal (item->kind, PLANS_DIRECT);
    assert_int_equal (item->plan.time_min_s, 0);
    /* a partition whose limit lies between both admits it */
    s->req.time_fixed = true;
    s->part[0].max_time_s = 3000;
    assert_int_equal (plan (s)->plan.time_s, 3000);
    s->req.time_min_s = 3001;
    plans_fini (&s->plans);
    assert_int_equal (plan_strategies (&s->c, &s->req, &s->plans, NULL),
                      RV_EINVAL);
}

/* A limit of a partition, or a hole, ends a segment alone. */
static void segments (void **state)
{
    struct site *s = *state;
    struct plans_item *item;

    s->req.time_fixed = true;
    s->req.time_s = 86400;
    s->part[0].max_time_s = 7200;
    s->req.segments = true;
    item = plan (s);
    assert_int_equal (item->kind, PLANS_SEGMENTS);
    assert_int_equal (item->plan.time_s, 7200);
    assert_int_equal (item->plan.time_min_s, 0);
    /* a hole that holds a shorter one */
    s->c.resv = &(struct strategy_reservation){NOW + 3000, NOW + 9000, numbers,
                                               4, NULL};
    s->c.n_resv = 1;
    s->req.time_min_s = 1800;
    item = plan (s);
    assert_int_equal (s->plans.n, 2);
    assert_int_equal (item->kind, PLANS_SEGMENTS);
    assert_int_equal (item->start_s, NOW);
    assert_int_equal (item->plan.time_min_s, 1800);
    assert_int_equal (item[1].start_s, NOW + 9000);
    assert_int_equal (item[1].plan.time_min_s, 0);
    s->part[0].max_time_s = -1;
    item = plan (s);
    assert_int_equal (item[0].kind, PLANS_SEGMENTS);
    assert_int_equal (item[1].kind, PLANS_DIRECT);
}

/* Holes that get longer, and a partition for each: every one is longer than
 * those before it and later. */
static void many (void **state)
{
    static struct strategy_reservation resv[20];
    static char names[20][8];
    struct site *s = *state;
    int64_t at = NOW;

    s->c.n_parts = 0;
    for (int i = 0; i < 20; i++) {
        int64_t length = 1000 + 100 * i;

        snprintf (names[i], sizeof (names[i]), "p%u", (unsigned)i % 100);
        part_add (s, names[i], 4, 1)->max_time_s = length;
        at += length + 100;
        resv[i] =
            (struct strategy_reservation){at - 100, at, numbers + 4, 1, NULL};
    }
    s->c.resv = resv;
    s->c.n_resv = 20;
    s->req.time_s = 900000;
    plan (s);
    assert_int_equal (s->plans.n, PLANS_MAX);
    assert_int_equal (s->plans.beyond, 4);
    for (int i = 0; i < PLANS_MAX; i++)
        is (&s->plans.item[i], names[i], "v100", "", 1);
}

/* On clusters made up at random: what Slurm needs of each strategy. */
static void check_item (const struct site *s, const struct plans_item *item)
{
    for (size_t m = 0; m < item->n_members; m++) {
        struct strategy_request one = s->req;
        struct strategy_plan alone;

        one.partition = item->member[m].part->name;
        one.type = item->member[m].type;
        one.nodes = item->plan.nodes;
        assert_int_equal (strategy_choose (&s->c, &one, &alone, NULL), RV_OK);
        assert_true (item->plan.cpus_per_task <= alone.cpus_per_task);
        assert_true (item->plan.mem_mb <= alone.mem_mb);
        assert_int_equal (item->plan.time_s, alone.time_s);
        if (item->n_types < 2)
            continue;
        /* whatever node Slurm takes, it has one type, and one of these */
        for (size_t i = 0; i < item->member[m].part->n_nodes; i++) {
            const struct strategy_node *node =
                &s->node[item->member[m].part->node[i]];

            if (node->gres.n == 0
                || !feature_match (item->plan.constraint, node->features))
                continue;
            assert_int_equal (node->gres.n, 1);
            assert_non_null (strstr (item->types, node->gres.entry[0].type));
        }
        if (item->plan.nodes > 1)
            assert_true (item->constraint[0] == '[');
    }
}

static void at_random (void **state)
{
    static const char *const gres[] = {"gpu:a100:4",    "gpu:v100:4",
                                       "gpu:1g.10gb:7", "gpu:a100:2,gpu:v100:2",
                                       "gpu:v100:2",    ""};
    static const char *const features[] = {"a100", "v100",   "mig",
                                           "x",    "v100,x", ""};
    static const char *const names[] = {"p0", "p1", "p2", "p3"};
    struct site *s = *state;
    size_t folded = 0;
    unsigned seed = 3;

    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < NODES; i++) {
            int k = rand_r (&seed) % 6;

            node_is (s, i, gres[k],
                     features[rand_r (&seed) % 4 ? k : rand_r (&seed) % 6]);
        }
        s->c.n_parts = s->c.n_jobs = 0;
        for (int i = 0; i < 4; i++)
            part_add (s, names[i], (uint32_t)rand_r (&seed) % 8, 4)
                ->max_time_s = rand_r (&seed) % 3 ? -1 : 1800;
        for (uint32_t i = 0; i < NODES; i++)
            node_busy (s, i, 1 + rand_r (&seed) % 5000);
        s->req = (struct strategy_request){
            .gpus = 1 + (uint32_t)rand_r (&seed) % 8, .time_s = 3600};
        plans_fini (&s->plans);
        if (plan_strategies (&s->c, &s->req, &s->plans, NULL) != RV_OK)
            continue;
        plan (s);
        for (size_t i = 0; i < s->plans.n; i++) {
            check_item (s, &s->plans.item[i]);
            folded += s->plans.item[i].n_types > 1;
        }
    }
    assert_true (folded > 20);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown (one_place, setup, teardown),
        cmocka_unit_test_setup_teardown (several_partitions, setup, teardown),
        cmocka_unit_test_setup_teardown (several_types, setup, teardown),
        cmocka_unit_test_setup_teardown (types_kept_apart, setup, teardown),
        cmocka_unit_test_setup_teardown (sections, setup, teardown),
        cmocka_unit_test_setup_teardown (rule_of_a_partition, setup, teardown),
        cmocka_unit_test_setup_teardown (hidden_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown (down_and_never, setup, teardown),
        cmocka_unit_test_setup_teardown (time_min, setup, teardown),
        cmocka_unit_test_setup_teardown (segments, setup, teardown),
        cmocka_unit_test_setup_teardown (many, setup, teardown),
        cmocka_unit_test_setup_teardown (at_random, setup, teardown),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
