/* SPDX-License-Identifier: Apache-2.0
 * test_taskmap.c - tasks per node, both good and malformed */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plan/taskmap.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void bad_arguments (void **state)
{
    struct taskmap map = {.n = 3};
    struct rv_error err = {0};

    assert_int_equal (taskmap_parse ("1", NULL, &err), RV_EINVAL);
    assert_int_equal (taskmap_parse (NULL, &map, &err), RV_EINVAL);
    assert_int_equal (map.n, 0);
    assert_int_equal (taskmap_parse ("", &map, NULL), RV_EINVAL);
    taskmap_fini (NULL);
    taskmap_fini (&map);
    (void)state;
}

static void expands (void **state)
{
    static const struct {
        const char *text;
        size_t n;
        uint32_t total, tasks[6];
    } v[] = {
        {"1", 1, 1, {1}},
        {"2(x3),1", 4, 7, {2, 2, 2, 1}},
        {"2(x1)", 1, 2, {2}},
        {"3,1(x2),4", 4, 9, {3, 1, 1, 4}},
        {"0(x2),5", 3, 5, {0, 0, 5}},
        {"4294967295", 1, UINT32_MAX, {UINT32_MAX}},
        {"128(x2),64(x4)", 6, 512, {128, 128, 64, 64, 64, 64}},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct taskmap map;

        if (taskmap_parse (v[i].text, &map, &err) != 0)
            fail_msg ("%s", err.text);
        assert_int_equal (map.n, v[i].n);
        assert_int_equal (map.total, v[i].total);
        assert_memory_equal (map.tasks, v[i].tasks,
                             map.n * sizeof (map.tasks[0]));
        taskmap_fini (&map);
        assert_null (map.tasks);
    }
    (void)state;
}

static void refuses (void **state)
{
    static const char *const v[] = {
        ",",
        "1,",
        "1,,2",
        "-1",
        "1 ",
        " 1",
        "1(",
        "1(x",
        "1(x2",
        "1(x)",
        "1(2)",
        "1(x0)",
        "1(x2)3",
        "(x2)",
        "x2",
        "1(x2))",
        "1(X2)",
        "1(x-2)",
        "a",
        "4294967296",
        "1(x65537)",
        "1(x65536),1",
        "65537(x65536)",
        "4294967295,1",
        "1(x99999999999)",
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct taskmap map = {.n = 1};

        if (taskmap_parse (v[i], &map, &err) != RV_EINVAL)
            fail_msg ("'%s' was taken", v[i]);
        assert_non_null (strstr (err.text, v[i]));
        assert_int_equal (map.n, 0);
        assert_int_equal (map.total, 0);
        assert_null (map.tasks);
    }
    (void)state;
}

static void largest (void **state)
{
    struct taskmap map;

    assert_int_equal (taskmap_parse ("65535(x65536)", &map, NULL), 0);
    assert_int_equal (map.n, 65536);
    assert_int_equal (map.total, 65535u * 65536u);
    taskmap_fini (&map);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments),
        cmocka_unit_test (expands),
        cmocka_unit_test (refuses),
        cmocka_unit_test (largest),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
