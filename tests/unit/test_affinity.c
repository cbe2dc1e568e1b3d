/* SPDX-License-Identifier: Apache-2.0
 * test_affinity.c - masks that tasks share, and masks of their own */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "spank/affinity.h"

static const struct {
    uint32_t task, node, cpus_per_task, local, shared;
} vectors[] = {
    {0, 0, 1, 1, 0},     /* unknown */
    {0, 64, 1, 4, 0},    /* unknown here */
    {64, 64, 1, 4, 64},  /* not bound */
    {64, 64, 32, 4, 64}, /* not bound, more asked for than there are */
    {64, 0, 1, 4, 64},   /* node unknown */
    {16, 64, 4, 4, 16},  /* the step's, by cgroup */
    {32, 64, 4, 4, 32},  /* the step's, with both threads of a core */
    {4, 64, 4, 4, 16},   /* bound, a task each */
    {8, 64, 4, 4, 32},   /* bound, both threads */
    {4, 64, 4, 1, 4},    /* alone */
};

static void shared (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++)
        assert_int_equal (affinity_shared (vectors[i].task, vectors[i].node,
                                           vectors[i].cpus_per_task,
                                           vectors[i].local),
                          vectors[i].shared);
}

static void own_mask (void **state)
{
    (void)state;
    assert_true (affinity_count () > 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (shared),
        cmocka_unit_test (own_mask),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
