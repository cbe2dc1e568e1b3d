/* SPDX-License-Identifier: Apache-2.0
 * test_jobtext.c - numbers out of Slurm's texts of jobs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/jobtext.h"

static void tres (void **state)
{
    const char *text = "cpu=8,mem=6026M,node=2,billing=8,gres/gpu=4";

    (void)state;
    assert_int_equal (jobtext_tres (NULL, "cpu"), -1);
    assert_int_equal (jobtext_tres ("", "cpu"), -1);
    assert_int_equal (jobtext_tres (text, "cpu"), 8);
    assert_int_equal (jobtext_tres (text, "mem"), 6026);
    assert_int_equal (jobtext_tres (text, "node"), 2);
    assert_int_equal (jobtext_tres (text, "gres/gpu"), 4);
    assert_int_equal (jobtext_tres (text, "pu"), -1);
    assert_int_equal (jobtext_tres ("mem=64G", "mem"), 65536);
    assert_int_equal (jobtext_tres ("mem=1.50T", "mem"), 1572864);
    assert_int_equal (jobtext_tres ("mem=2048K", "mem"), 2);
    assert_int_equal (jobtext_tres ("mem=7", "mem"), 7);
    assert_int_equal (jobtext_tres ("cpu=", "cpu"), -1);
    assert_int_equal (jobtext_tres ("cpu=-3", "cpu"), -1);
    assert_int_equal (jobtext_tres ("cpu=1e99", "cpu"), -1);
    assert_int_equal (jobtext_tres ("cpu=nan", "cpu"), -1);
}

static void tasks (void **state)
{
    static const struct {
        const char *list;
        uint32_t n;
    } v[] = {
        {NULL, 1},          {"", 1},          {"x", 1},
        {"5", 1},           {"0-9", 10},      {"1-19:3%2", 2},
        {"1-19:3", 7},      {"1,3,5", 3},     {"1,3,5-11:2%40", 6},
        {"0-9%0", 10},      {"3-1", 1},       {"0-3:0", 1},
        {"0,1,2-...%5", 2}, {"0-99999", 100}, {"0-99999999999999999999", 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (jobtext_tasks (v[i].list, 100) != v[i].n)
            fail_msg ("%s: %u", v[i].list, jobtext_tasks (v[i].list, 100));
}

static void has_task (void **state)
{
    static const struct {
        const char *list;
        uint64_t task;
        bool want;
    } v[] = {
        {NULL, 1, false},
        {"", 0, false},
        {"5", 5, true},
        {"5", 4, false},
        {"0-9", 9, true},
        {"0-9", 10, false},
        {"1-19:3%2", 4, true},
        {"1-19:3%2", 5, false},
        {"1-19:3%2", 2, false},
        {"1,3,5-11:2%40", 9, true},
        {"1,3,5-11:2%40", 8, false},
        {"1,3,5-11:2%40", 40, false},
        {"3-1", 2, false},
        {"0-3:0", 2, false},
        {"0,1,...", 77, true},
        {"x", 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (jobtext_has_task (v[i].list, v[i].task) != v[i].want)
            fail_msg ("%s: %u", v[i].list, (unsigned)v[i].task);
}

static void gpus (void **state)
{
    char type[GRES_NAME_MAX];

    (void)state;
    assert_int_equal (jobtext_gpus (NULL, type), 0);
    assert_int_equal (jobtext_gpus ("(", type), 0);
    assert_int_equal (jobtext_gpus ("gres:gpu:a100:2", type), 2);
    assert_string_equal (type, "a100");
    assert_int_equal (jobtext_gpus ("gpu:a100:2(IDX:0-1)", type), 2);
    assert_int_equal (jobtext_gpus ("gpu:a100(CNT:6)", type), 6);
    assert_string_equal (type, "a100");
    assert_int_equal (jobtext_gpus ("gpu(CNT:2),gpu:v100(CNT:1)", type), 3);
    assert_int_equal (jobtext_gpus ("gpu:a100(CNT:)", type), 0);
    assert_int_equal (jobtext_gpus ("gpu(CNT:99999999999999999999)", type), 0);
    assert_int_equal (jobtext_gpus ("gres:gpu:3,gres:shard:7", type), 3);
    assert_string_equal (type, "");
    assert_int_equal (jobtext_gpus ("gpu:a100:2,gpu:v100:1", type), 3);
    assert_string_equal (type, "");
    assert_int_equal (jobtext_gpus ("gpu:a100:0,gpu:v100:1", type), 1);
    assert_string_equal (type, "v100");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (tres),
        cmocka_unit_test (tasks),
        cmocka_unit_test (has_task),
        cmocka_unit_test (gpus),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
