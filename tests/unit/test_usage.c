/* SPDX-License-Identifier: Apache-2.0
 * test_usage.c - GPUs of nodes by type: free, used and down */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/usage.h"

static void refused (void **state)
{
    struct usage u = {0};
    struct rv_error err = {0};

    assert_int_equal (usage_add (&u, "gpu:x:y:z:4", "", false, &err),
                      RV_EFORMAT);
    assert_int_equal (usage_add (&u, "gpu:4", "gpu:-1", false, &err),
                      RV_EFORMAT);
    assert_int_equal (u.n, 0);
    usage_fini (&u);
    (void)state;
}

/* One node, its first type's sums. */
static const struct {
    const char *gres, *used;
    bool down;
    struct usage_type want;
} one[] = {
    {"gpu:a100:4(S:0-1)", "gpu:a100:3(IDX:0-2)", false, {"a100", 4, 3, 1, 0}},
    {"gpu:a100:4", "gpu:a100:0(IDX:N/A)", false, {"a100", 4, 0, 4, 0}},
    {"gpu:a100:4", "gpu:a100:3", true, {"a100", 4, 3, 0, 1}},
    {"gpu:a100:4", "", true, {"a100", 4, 0, 0, 4}},
    {"gpu:a100:4", "(null)", false, {"a100", 4, 0, 4, 0}},
    {"gpu:4", "gpu:1", false, {"", 4, 1, 3, 0}},
    {"gpu:a100:4", "gpu:2", false, {"a100", 4, 2, 2, 0}},
    {"gpu:a100:4", "gpu:a100:9", false, {"a100", 4, 4, 0, 0}},
    {"gpu:a100:4,shard:8", "shard:8,gpu:a100:1", false, {"a100", 4, 1, 3, 0}},
    {"gpu:1g.10gb:7", "gpu:1g.10gb:7", false, {"1g.10gb", 7, 7, 0, 0}},
};

static void one_node (void **state)
{
    for (size_t i = 0; i < sizeof (one) / sizeof (one[0]); i++) {
        const struct usage_type *want = &one[i].want;
        struct usage u = {0};

        assert_int_equal (
            usage_add (&u, one[i].gres, one[i].used, one[i].down, NULL), RV_OK);
        if (u.n != 1 || strcmp (u.type[0].type, want->type)
            || u.type[0].total != want->total || u.type[0].used != want->used
            || u.type[0].free != want->free || u.type[0].down != want->down)
            fail_msg ("row %zu: %s", i, one[i].gres);
        usage_fini (&u);
    }
    (void)state;
}

static void sums (void **state)
{
    struct usage u = {0};

    assert_int_equal (
        usage_add (&u, "gpu:a100:2,gpu:h100:2", "gpu:3", false, NULL), RV_OK);
    assert_int_equal (usage_add (&u, "gpu:h100:8", "gpu:h100:1", true, NULL),
                      RV_OK);
    assert_int_equal (usage_add (&u, "(null)", "", false, NULL), RV_OK);
    assert_int_equal (u.n, 2);
    assert_int_equal (u.type[0].used, 2);
    assert_int_equal (u.type[0].free, 0);
    assert_int_equal (u.type[1].total, 10);
    assert_int_equal (u.type[1].used, 2);
    assert_int_equal (u.type[1].free, 1);
    assert_int_equal (u.type[1].down, 7);
    usage_fini (&u);
    (void)state;
}

static void asked (void **state)
{
    static const struct {
        const char *job, *node, *task;
        uint32_t nodes, tasks;
        uint64_t want;
    } v[] = {
        {NULL, NULL, NULL, 3, 9, 0},
        {"", "", "", 3, 9, 0},
        {"gres:gpu:a100:4", NULL, NULL, 2, 2, 4},
        {"gres/gpu:4", "", "", 2, 2, 4},
        {NULL, "gres:gpu:2", NULL, 3, 9, 6},
        {NULL, "gres:gpu:a100:2,gres:gpu:h100:1", NULL, 1, 1, 3},
        {NULL, NULL, "gres:gpu:1", 3, 9, 9},
        {NULL, "gres:shard:2", NULL, 3, 9, 0},
        {NULL, "gres:gpu:2", NULL, 0, 0, 2},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (usage_asked (v[i].job, v[i].node, v[i].task, v[i].nodes, v[i].tasks)
            != v[i].want)
            fail_msg ("row %zu", i);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (one_node),
        cmocka_unit_test (sums),
        cmocka_unit_test (asked),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
