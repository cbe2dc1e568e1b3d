/* SPDX-License-Identifier: Apache-2.0
 * test_granted.c - what scontrol shows of a job beside what was asked */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/granted.h"

#define HEAD SHOWN ("RUNNING")
#define SHOWN(state)                                                           \
    "JobId=7 JobName=x\n   JobState=" state " Reason=None Dependency=(null)\n" \
    "   NodeList=n[1-2]\n   NumNodes=2 NumCPUs=2 "                             \
    "CPUs/Task=1\n   JOB_GRES=gpu:a100:4\n"
#define TAIL "   MinCPUsNode=1 MinMemoryNode=100M\n"

static const struct {
    const char *show, *type;
    uint32_t gpus, nodes, tasks_per_node, cpus_per_task;
    uint64_t mem_mb;
    int code;
    const char *says;
} rows[] = {
    {HEAD
     "     Nodes=n[1-2] CPU_IDs=0-1 Mem=100 GRES=gpu:a100:2(IDX:0-1)\n" TAIL,
     "a100", 4, 2, 2, 1, 100, RV_OK, "2 a100 on n[1-2]"},
    {HEAD "     Nodes=n1 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0,3)\n"
          "     Nodes=n2 CPU_IDs=0,7 Mem=0 GRES=gpu:A100:2(IDX:0,2)\n" TAIL,
     NULL, 4, 2, 2, 1, 100, RV_OK, "2 a100 on n1, 2 A100 on n2"},
    {HEAD "     Nodes=n1 CPU_IDs=0-63 Mem=900 GRES=gpu:a100:8(IDX:0-7)\n",
     "a100", 2, 1, 2, 1, 100, RV_OK, "8 a100 on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=3 Mem=9 GRES=\n" TAIL, NULL, 0, 1, 1, 1, 9,
     RV_OK, ""},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 GRES=gpu:1g.10gb:1(IDX:0)\n", "x", 1,
     1, 1, 1, 0, RV_OK, "1 1g.10gb on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 GRES=gpu:2(IDX:0-1)\n", "a100", 2, 1,
     1, 1, 0, RV_OK, "2 GPUs on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0-1 Mem=9 "
          "GRES=craynetwork:1,gpu:a100:1(IDX:0)\n",
     "a100", 2, 1, 2, 1, 0, RV_EMISMATCH,
     "asked for 2 GPUs a node and given 1 on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 GRES=\n", "a100", 1, 1, 1, 1, 0,
     RV_EMISMATCH, "asked for 1 GPU a node and given 0 on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 GRES=gpu:v100:1(IDX:0)\n", "a100", 1,
     1, 1, 1, 0, RV_EMISMATCH, "asked for type a100 and given v100 on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 "
          "GRES=gpu:v100:1(IDX:0),gpu:a100:1(IDX:1)\n",
     NULL, 2, 1, 1, 1, 0, RV_EMISMATCH, "several types on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=9 GRES=gpu:v100:1(IDX:0)\n"
          "     Nodes=n2 CPU_IDs=0 Mem=9 GRES=gpu:a100:1(IDX:0)\n",
     NULL, 2, 2, 1, 1, 0, RV_EMISMATCH,
     "given v100 on one node and a100 on n2"},
    {HEAD "     Nodes=n1 CPU_IDs=0-2 Mem=9 GRES=\n", NULL, 0, 1, 2, 2, 0,
     RV_EMISMATCH, "asked for 4 CPUs a node and given 3 on n1"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=99 GRES=\n", NULL, 0, 1, 1, 1, 100,
     RV_EMISMATCH, "asked for 100M of memory a node and given 99M on n1"},
    {HEAD "     Nodes=n[1-3] CPU_IDs=0 Mem=0 GRES=\n", NULL, 0, 2, 1, 1, 0,
     RV_EMISMATCH, "asked for 2 nodes and given 3"},
    {HEAD "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=\n", NULL, 0, 2, 1, 1, 0,
     RV_EMISMATCH, "asked for 2 nodes and given 1"},
    {HEAD TAIL, NULL, 0, 1, 1, 1, 0, RV_EFORMAT, "no node"},
    /* One of its two nodes is clean again. */
    {SHOWN ("COMPLETING") "     Nodes=n1 CPU_IDs=0 Mem=0 GRES=\n", NULL, 0, 2,
     1, 1, 0, RV_EFORMAT, "does not run"},
    {SHOWN ("PENDING") TAIL, NULL, 0, 1, 1, 1, 0, RV_EFORMAT, "does not run"},
    {"", NULL, 0, 1, 1, 1, 0, RV_EFORMAT, "does not run"},
};

static void table (void **state)
{
    for (size_t i = 0; i < sizeof (rows) / sizeof (rows[0]); i++) {
        struct exec_request q = {
            .gpus = rows[i].gpus,
            .nodes = rows[i].nodes,
            .tasks_per_node = rows[i].tasks_per_node,
            .cpus_per_task = rows[i].cpus_per_task,
            .mem_bytes = rows[i].mem_mb << 20,
            .gpu_type = (char *)rows[i].type,
        };
        struct rv_error err = {0};
        char given[128];
        int rc =
            granted_compare (rows[i].show, &q, given, sizeof (given), &err);

        if (rc != rows[i].code || !strstr (rc ? err.text : given, rows[i].says))
            fail_msg ("row %zu: %d '%s' '%s'", i, rc, given, err.text);
    }
    (void)state;
}

/* A result too small is cut, not overrun. */
static void small (void **state)
{
    struct exec_request q = {.gpus = 4, .nodes = 2, .tasks_per_node = 1};
    char given[8];

    assert_int_equal (
        granted_compare (rows[1].show, &q, given, sizeof (given), NULL), RV_OK);
    assert_string_equal (given, "2 a100 ");
    (void)state;
}

/* 400 nodes of which every second is another job's, and CPUs likewise: lists of
 * thousands of bytes, none of which may be cut. */
static void long_lists (void **state)
{
    struct exec_request q = {
        .gpus = 400, .nodes = 400, .tasks_per_node = 256, .cpus_per_task = 1};
    struct rv_error err = {0};
    char show[8192], given[128];
    int n = snprintf (show, sizeof (show), HEAD "     Nodes=node[0001");

    for (int i = 1; i < 400; i++)
        n += snprintf (show + n, sizeof (show) - (size_t)n, ",%04d", 2 * i + 1);
    n += snprintf (show + n, sizeof (show) - (size_t)n, "] CPU_IDs=0");
    for (int i = 1; i < 256; i++)
        n += snprintf (show + n, sizeof (show) - (size_t)n, ",%d", 2 * i);
    snprintf (show + n, sizeof (show) - (size_t)n,
              " Mem=0 GRES=gpu:a100:1(IDX:0)\n" TAIL);
    if (granted_compare (show, &q, given, sizeof (given), &err))
        fail_msg ("%s", err.text);
    assert_memory_equal (given, "1 a100 on node[0001,0003,", 25);
    (void)state;
}

/* A list that nobody can read is no word about what was given. */
static void no_list (void **state)
{
    struct exec_request q = {.nodes = 1, .tasks_per_node = 1};
    struct rv_error err = {0};
    char given[128];

    assert_int_equal (
        granted_compare (HEAD "     Nodes=n[1-,3 CPU_IDs=0 Mem=0 GRES=\n", &q,
                         given, sizeof (given), &err),
        RV_EINVAL);
    assert_non_null (strstr (err.text, "scontrol's nodes: "));
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (table),
        cmocka_unit_test (small),
        cmocka_unit_test (long_lists),
        cmocka_unit_test (no_list),
    };

    return cmocka_run_group_tests_name ("granted", tests, NULL, NULL);
}
