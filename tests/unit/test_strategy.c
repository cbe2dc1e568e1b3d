/* SPDX-License-Identifier: Apache-2.0
 * test_strategy.c - plans for requests on made-up clusters */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/strategy.h"

#define GIB ((int64_t)1 << 30)

/* Nodes 0-3: 2 a100, 16 CPUs of 2 threads, 64 GiB. 4-5: 8 h100, 2 threads.
 * 6: 4 v100, down. 7: 4 GPUs of no type, memory not set. 8: no GPU.
 * Partition gpu (default) 0-3, 1 day; big 4-6, no limit; misc 7-8, 2 hours;
 * shut 0-3, not up. */
struct site {
    struct strategy_cluster cluster;
    struct strategy_node node[9];
    struct strategy_partition part[4];
    uint32_t all[9];
};

static void node_init (struct strategy_node *node, const char *gres,
                       uint32_t cpus, uint32_t threads, uint64_t mem_mb)
{
    node->cpus = cpus;
    node->threads = threads;
    node->mem_mb = mem_mb;
    node->usable = true;
    assert_int_equal (gres_parse (gres, &node->gres, NULL), RV_OK);
}

static int setup (void **state)
{
    struct site *s = calloc (1, sizeof (*s));

    for (uint32_t i = 0; i < 9; i++)
        s->all[i] = i;
    for (int i = 0; i < 4; i++)
        node_init (&s->node[i], "gpu:a100:2(S:0-1)", 16, 2, 65536);
    for (int i = 4; i < 6; i++)
        node_init (&s->node[i], "gpu:h100:8", 44, 2, 1000000);
    node_init (&s->node[6], "gpu:V100:4,gpu:1g.10gb:7", 8, 1, 100000);
    s->node[6].usable = false;
    node_init (&s->node[7], "gpu:4", 4, 1, 1);
    node_init (&s->node[8], "", 64, 1, 1000);
    s->part[0] = (struct strategy_partition){.name = "big",
                                             .up = true,
                                             .max_time_s = -1,
                                             .node = s->all + 4,
                                             .n_nodes = 3};
    s->part[1] = (struct strategy_partition){.name = "gpu",
                                             .up = true,
                                             .is_default = true,
                                             .max_time_s = 86400,
                                             .node = s->all,
                                             .n_nodes = 4};
    s->part[2] = (struct strategy_partition){.name = "misc",
                                             .up = true,
                                             .max_time_s = 7200,
                                             .node = s->all + 7,
                                             .n_nodes = 2};
    s->part[3] = (struct strategy_partition){
        .name = "shut", .max_time_s = -1, .node = s->all, .n_nodes = 4};
    s->cluster = (struct strategy_cluster){
        .node = s->node, .n_nodes = 9, .part = s->part, .n_parts = 4};
    *state = s;
    return 0;
}

static int teardown (void **state)
{
    struct site *s = *state;

    for (int i = 0; i < 9; i++)
        gres_fini (&s->node[i].gres);
    free (s);
    return 0;
}

static void bad_arguments (void **state)
{
    struct site *s = *state;
    struct strategy_request req = {.gpus = 1, .time_s = 60};
    struct strategy_plan plan;

    assert_int_equal (strategy_choose (NULL, &req, &plan, NULL), RV_EINVAL);
    assert_int_equal (strategy_choose (&s->cluster, NULL, &plan, NULL),
                      RV_EINVAL);
    assert_int_equal (strategy_choose (&s->cluster, &req, NULL, NULL),
                      RV_EINVAL);
    req.time_s = 0;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL),
                      RV_EINVAL);
    req.time_s = 60;
    req.mem_bytes = -1;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL),
                      RV_EINVAL);
}

struct vector {
    struct strategy_request req; /* time_s 0 becomes 10740, not fixed */
    const char *partition, *type;
    uint32_t nodes, gpus_per_node, tasks_per_node, cpus_per_task;
    uint64_t mem_mb;
    int64_t time_s;
};

static const struct vector vectors[] = {
    /* the default partition and its type; the share of one GPU */
    {{.gpus = 1}, "gpu", "a100", 1, 1, 1, 8, 32768, 10740},
    {{.gpus = 2}, "gpu", "a100", 1, 2, 2, 8, 65536, 10740},
    {{.gpus = 4}, "gpu", "a100", 2, 2, 2, 8, 65536, 10740},
    /* odd counts: never more GPUs than asked */
    {{.gpus = 3}, "gpu", "a100", 3, 1, 1, 8, 32768, 10740},
    {{.gpus = 6}, "gpu", "a100", 3, 2, 2, 8, 65536, 10740},
    {{.gpus = 8}, "gpu", "a100", 4, 2, 2, 8, 65536, 10740},
    /* 5 do not go on nodes of 2: the next partition */
    {{.gpus = 5}, "big", "h100", 1, 5, 5, 4, 625000, 10740},
    {{.gpus = 16}, "big", "h100", 2, 8, 8, 4, 1000000, 10740},
    /* any case; the cluster's spelling */
    {{.gpus = 2, .type = "H100"}, "big", "h100", 1, 2, 2, 4, 250000, 10740},
    /* only a node that is down could serve: still a plan */
    {{.gpus = 2, .type = "v100"}, "big", "V100", 1, 2, 2, 2, 50000, 10740},
    /* nodes fixed by the user; processes a node fixed by the command */
    {{.gpus = 4, .nodes = 4}, "gpu", "a100", 4, 1, 1, 8, 32768, 10740},
    {{.gpus = 4, .nproc = 1, .launch = COMMAND_PER_NODE},
     "gpu",
     "a100",
     4,
     1,
     1,
     8,
     32768,
     10740},
    {{.gpus = 4, .launch = COMMAND_PER_NODE},
     "gpu",
     "a100",
     2,
     2,
     1,
     16,
     65536,
     10740},
    {{.gpus = 8, .nproc = 4, .launch = COMMAND_PER_NODE},
     "big",
     "h100",
     2,
     4,
     1,
     22,
     500000,
     10740},
    /* no type at this site; memory that the site did not set is not asked */
    {{.gpus = 4, .partition = "misc"}, "misc", "", 1, 4, 4, 1, 0, 7200},
    /* the default time shrinks to the limit, and grows with none */
    {{.gpus = 1, .time_s = -1}, "gpu", "a100", 1, 1, 1, 8, 32768, 86400},
    {{.gpus = 1, .time_s = -1, .time_fixed = true},
     "big",
     "h100",
     1,
     1,
     1,
     4,
     125000,
     -1},
    {{.gpus = 1, .time_s = 90000, .time_fixed = true},
     "big",
     "h100",
     1,
     1,
     1,
     4,
     125000,
     90000},
    /* memory asked for */
    {{.gpus = 1, .mem_bytes = 10 * GIB + 1},
     "gpu",
     "a100",
     1,
     1,
     1,
     8,
     10241,
     10740},
    {{.gpus = 1, .mem_bytes = 100 * GIB},
     "big",
     "h100",
     1,
     1,
     1,
     4,
     102400,
     10740},
    /* no GPU: one task, one CPU, memory as the partition gives */
    {{.gpus = 0}, "gpu", "", 1, 0, 1, 1, 0, 10740},
    /* the first of two partitions, in Slurm's order, the default before */
    {{.gpus = 1, .partition = "big,gpu"},
     "gpu",
     "a100",
     1,
     1,
     1,
     8,
     32768,
     10740},
};

static void plans (void **state)
{
    struct site *s = *state;

    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        const struct vector *v = &vectors[i];
        struct strategy_request req = v->req;
        struct strategy_plan plan;
        struct rv_error err = {0};

        if (req.time_s == 0)
            req.time_s = 10740;
        if (strategy_choose (&s->cluster, &req, &plan, &err) != RV_OK)
            fail_msg ("vector %zu: %s", i, err.text);
        if (strcmp (plan.partition, v->partition) || strcmp (plan.type, v->type)
            || plan.nodes != v->nodes || plan.gpus_per_node != v->gpus_per_node
            || plan.tasks_per_node != v->tasks_per_node
            || plan.cpus_per_task != v->cpus_per_task
            || plan.mem_mb != v->mem_mb || plan.time_s != v->time_s)
            fail_msg ("vector %zu: %s %s %ux%u tasks %u cpus %u mem %llu "
                      "time %lld",
                      i, plan.partition, plan.type, plan.nodes,
                      plan.gpus_per_node, plan.tasks_per_node,
                      plan.cpus_per_task, (unsigned long long)plan.mem_mb,
                      (long long)plan.time_s);
        assert_int_equal (plan.nodes * plan.gpus_per_node, req.gpus);
        assert_int_equal (plan.tasks, plan.nodes * plan.tasks_per_node);
        assert_int_equal (plan.waits_for_node, !strcmp (plan.type, "V100"));
    }
}

struct refusal {
    struct strategy_request req;
    int code;
    const char *says, *and; /* both stand in the text */
};

static const struct refusal refusals[] = {
    {{.gpus = 1, .type = "b200"}, RV_ENOTFOUND, "b200", "a100"},
    {{.gpus = 1, .type = "1g.11gb"}, RV_ENOTFOUND, "1g.11gb", "h100"},
    {{.gpus = 1, .partition = "none"}, RV_ENOTFOUND, "none", "misc"},
    {{.gpus = 1, .partition = "gpu,none"}, RV_ENOTFOUND, "none", "misc"},
    {{.gpus = 1, .partition = "gp"}, RV_ENOTFOUND, "'gp'", "gpu"},
    {{.gpus = 1, .partition = "shut"}, RV_EINVAL, "not up", "-p"},
    {{.gpus = 1, .type = "h100", .partition = "gpu"},
     RV_ENOTFOUND,
     "gpu",
     "leave out -p"},
    {{.gpus = 17}, RV_EINVAL, "17", "-g 16 would work"},
    {{.gpus = 7, .type = "a100"}, RV_EINVAL, "equal parts", "-g 6 would work"},
    {{.gpus = 2, .type = "a100", .time_s = 90000, .time_fixed = true},
     RV_EINVAL,
     "'gpu' allows at most",
     "1-00:00:00"},
    {{.gpus = 2, .type = "a100", .time_s = -1, .time_fixed = true},
     RV_EINVAL,
     "'gpu' allows at most",
     "1-00:00:00"},
    {{.gpus = 1, .type = "a100", .mem_bytes = 100 * GIB},
     RV_EINVAL,
     "65536M",
     "--mem="},
    {{.gpus = 3, .nproc = 2, .launch = COMMAND_PER_NODE},
     RV_EINVAL,
     "does not divide 3",
     "multiple of 2"},
    {{.gpus = 4, .nproc = 4, .type = "a100", .launch = COMMAND_PER_NODE},
     RV_EINVAL,
     "4 GPUs each",
     "2 nodes of 2"},
    {{.gpus = 4, .nodes = 3, .type = "a100"},
     RV_EINVAL,
     "3 nodes",
     "--nodes=2 would work"},
    {{.gpus = 0, .nodes = 99}, RV_EINVAL, "--nodes=1", "99"},
};

/* Slices are got by their type alone. */
static void slices (void **state)
{
    struct site *s = *state;
    struct strategy_request req = {
        .gpus = 2, .type = "1G.10gb", .time_s = 10740};
    struct strategy_plan plan;

    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_string_equal (plan.type, "1g.10gb");
    assert_int_equal (plan.gpus, 2);
    assert_int_equal (plan.tasks, 2);
}

static void refuse (void **state)
{
    struct site *s = *state;

    for (size_t i = 0; i < sizeof (refusals) / sizeof (refusals[0]); i++) {
        const struct refusal *r = &refusals[i];
        struct strategy_request req = r->req;
        struct strategy_plan plan;
        struct rv_error err = {0};

        if (req.time_s == 0)
            req.time_s = 10740;
        memset (&plan, 0x5a, sizeof (plan));
        if (strategy_choose (&s->cluster, &req, &plan, &err) != r->code
            || !strstr (err.text, r->says) || !strstr (err.text, r->and))
            fail_msg ("refusal %zu: %d %s", i, err.code, err.text);
        assert_int_equal (((unsigned char *)&plan)[0], 0x5a);
    }
}

/* What has the GPUs is down: not that nobody has them. */
static void not_up (void **state)
{
    struct site *s = *state;
    struct strategy_request req = {.gpus = 16, .time_s = 60, .type = "h100"};
    struct strategy_plan plan;
    struct rv_error err = {0};

    s->part[0].up = false;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_string_equal (err.text, "partition 'big' could serve, but it is not "
                                   "up; wait until it is");
    req.gpus = 17; /* not then either */
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_null (strstr (err.text, "could serve"));
}

/* Limits of a partition: nodes, CPUs and memory of one job. */
static void limits (void **state)
{
    struct site *s = *state;
    struct strategy_request req = {.gpus = 4, .time_s = 60, .type = "a100"};
    struct strategy_plan plan;

    s->part[1].max_nodes = 1;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL),
                      RV_EINVAL);
    req.gpus = 2;
    s->part[1].max_cpus_node = 6;
    s->part[1].max_mem_cpu_mb = 1000;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.cpus_per_task, 2); /* whole cores of 2 threads */
    assert_int_equal (plan.mem_mb, 4000);
    s->part[1].max_mem_cpu_mb = 0;
    s->part[1].max_mem_node_mb = 5000;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.mem_mb, 5000);
    s->part[1].max_cpus_node = 1; /* two tasks need two */
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL),
                      RV_EINVAL);
}

/* What rv.conf says of a type. */
static void rules (void **state)
{
    static const struct strategy_rule rule[] = {
        {.type = "A100",
         .max_per_job = 4,
         .cpus_per_gpu = 3,
         .mem_per_gpu_mb = 100,
         .constraint = "nvlink"},
        {.type = "h100", .partition = "other,bi"},
        {.type = "v100", .cpus_per_gpu = 99, .mem_per_gpu_mb = 99999999},
    };
    struct site *s = *state;
    struct strategy_request req = {.gpus = 4, .time_s = 60, .type = "a100"};
    struct strategy_plan plan;
    struct rv_error err;

    s->cluster.rule = rule;
    s->cluster.n_rules = 3;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.cpus_per_task, 3);
    assert_int_equal (plan.mem_mb, 200);
    assert_string_equal (plan.constraint, "nvlink");
    req.gpus = 6;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_non_null (strstr (err.text, "at most 4 a100"));
    req.type = "h100";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_non_null (strstr (err.text, "'other,bi' alone"));
    req.partition = "big"; /* said by the user */
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_null (plan.constraint);
    /* never more than the node has */
    req.type = "v100";
    req.gpus = 2;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.cpus_per_task, 4);
    assert_int_equal (plan.mem_mb, 100000);
}

/* Two sections of rv.conf for one type, told apart by features. */
static void rules_of_one_type (void **state)
{
    static const struct strategy_rule rule[] = {
        {.label = "a100_40",
         .type = "a100",
         .constraint = "small",
         .vram_mb = 40960},
        {.label = "a100_80",
         .type = "a100",
         .constraint = "large&nvlink",
         .vram_mb = 81920,
         .max_per_user = 2},
    };
    struct site *s = *state;
    struct strategy_request req = {.gpus = 2, .time_s = 60};
    struct strategy_plan plan;
    struct rv_error err;

    s->cluster.rule = rule;
    s->cluster.n_rules = 2;
    s->node[0].features = s->node[1].features = (char *)"small";
    s->node[2].features = (char *)"large";
    s->node[3].features = (char *)"nvlink,large";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_ptr_equal (plan.rule, &rule[0]);
    assert_string_equal (plan.constraint, "small");
    req.rule = "A100_80";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_ptr_equal (plan.rule, &rule[1]);
    assert_string_equal (plan.constraint, "large&nvlink");
    /* one node has them, so no two do */
    req.nodes = 2;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    req.nodes = 0;
    req.gpus = 4;
    req.type = "a100";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_non_null (strstr (err.text, "at most 2 a100 GPUs a user"));
    req.rule = "a100_40";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.nodes, 2);
    /* memory of a GPU chooses the section, and is unknown of the others */
    req = (struct strategy_request){.gpus = 1, .time_s = 60, .vram_mb = 65536};
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_ptr_equal (plan.rule, &rule[1]);
    req.vram_mb = 100000;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, &err),
                      RV_EINVAL);
    assert_non_null (strstr (err.text, "a100_40 40960M, a100_80 81920M"));
    /* a slice's name tells its memory */
    req = (struct strategy_request){
        .gpus = 1, .time_s = 60, .type = "1g.10gb", .vram_mb = 10240};
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    req.vram_mb++;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL),
                      RV_EINVAL);
}

/* A partition that may refuse or preempt serves where nothing else does, or
 * where it is named. */
static void on_request (void **state)
{
    struct site *s = *state;
    struct strategy_request req = {.gpus = 4, .time_s = 60};
    struct strategy_plan plan;

    s->part[1].is_default = false;
    s->part[0].on_request = s->part[1].on_request = true;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_string_equal (plan.partition, "misc");
    req.gpus = 6;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_string_equal (plan.partition, "big");
    req.gpus = 4;
    req.partition = "gpu";
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_string_equal (plan.partition, "gpu");
    /* as many nodes as the partition wants */
    s->part[1].min_nodes = 3;
    assert_int_equal (strategy_choose (&s->cluster, &req, &plan, NULL), RV_OK);
    assert_int_equal (plan.nodes, 4);
}

/* No cluster at all: an answer, not a crash. */
static void empty (void **state)
{
    struct strategy_cluster none = {0};
    struct strategy_request req = {.gpus = 1, .time_s = 60};
    struct strategy_plan plan;
    struct rv_error err;

    (void)state;
    assert_int_equal (strategy_choose (&none, &req, &plan, &err), RV_ENOTFOUND);
    assert_non_null (strstr (err.text, "no GPUs"));
    strategy_cluster_fini (&none);
    strategy_cluster_fini (NULL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (bad_arguments, setup, teardown),
        cmocka_unit_test_setup_teardown (plans, setup, teardown),
        cmocka_unit_test_setup_teardown (slices, setup, teardown),
        cmocka_unit_test_setup_teardown (refuse, setup, teardown),
        cmocka_unit_test_setup_teardown (not_up, setup, teardown),
        cmocka_unit_test_setup_teardown (limits, setup, teardown),
        cmocka_unit_test_setup_teardown (rules, setup, teardown),
        cmocka_unit_test_setup_teardown (rules_of_one_type, setup, teardown),
        cmocka_unit_test_setup_teardown (on_request, setup, teardown),
        cmocka_unit_test (empty),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
