/* SPDX-License-Identifier: Apache-2.0
 * test_queue.c - jobs and reservations out of the answer of the child that
 * asked for them, however wrong it is */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster_queue.h"

static const char answer[] =
    "[[[17, true, false, 1, 2, 4, 8, 1000, 5, 99, 0, 3600, \"a100\", null,"
    " null, [0, 2, 9, -1, \"x\"]],"
    "[18, false, true, 20, 3, 2, 1, 0, 4294901757, 0, 50, -1, null,"
    " \"gpu,long\", \"a|b\", null]],"
    "[[100, 200, [1, 2]], [5, 6, []]]]";

static void records (void **state)
{
    struct strategy_cluster c = {.n_nodes = 3};
    json_t *json = json_loads (answer, 0, NULL);

    (void)state;
    assert_non_null (json);
    assert_int_equal (cluster_queue_read (json, &c, NULL), RV_OK);
    json_decref (json);
    assert_int_equal (c.n_jobs, 2);
    assert_true (c.job[0].running && !c.job[0].exclusive);
    assert_int_equal (c.job[0].job_id, 17);
    assert_int_equal (c.job[0].gpus, 4);
    assert_int_equal (c.job[0].cpus, 8);
    assert_int_equal (c.job[0].mem_mb, 1000);
    assert_int_equal (c.job[0].end_s, 99);
    assert_string_equal (c.job[0].type, "a100");
    /* indices of nodes that are not there are none */
    assert_int_equal (c.job[0].n_nodes, 3);
    assert_int_equal (c.job[0].node[1], 2);
    assert_int_equal (c.job[0].node[2], 0);
    assert_true (!c.job[1].running && c.job[1].exclusive);
    assert_int_equal (c.job[1].count, 20);
    assert_int_equal (c.job[1].nodes, 3);
    assert_true (c.job[1].priority == 4294901757);
    assert_int_equal (c.job[1].begin_s, 50);
    assert_int_equal (c.job[1].time_s, STRATEGY_UNLIMITED);
    assert_null (c.job[1].type);
    assert_string_equal (c.job[1].partition, "gpu,long");
    assert_string_equal (c.job[1].features, "a|b");
    assert_int_equal (c.n_resv, 2);
    assert_int_equal (c.resv[0].start_s, 100);
    assert_int_equal (c.resv[0].end_s, 200);
    assert_int_equal (c.resv[0].n_nodes, 2);
    assert_int_equal (c.resv[1].n_nodes, 0);
    c.n_nodes = 0; /* it has none of its own */
    strategy_cluster_fini (&c);
}

static void nothing (void **state)
{
    static const char *const texts[] = {
        "null",        "[]",          "[[]]",      "[[],[]]",
        "[null,null]", "[[[]],[[]]]", "[[7],[7]]", "{}"};

    (void)state;
    for (size_t i = 0; i < sizeof (texts) / sizeof (texts[0]); i++) {
        struct strategy_cluster c = {.n_nodes = 1};
        json_t *json = json_loads (texts[i], JSON_DECODE_ANY, NULL);

        assert_non_null (json);
        assert_int_equal (cluster_queue_read (json, &c, NULL), RV_OK);
        json_decref (json);
        c.n_nodes = 0; /* it has none of its own */
        strategy_cluster_fini (&c);
    }
}

static void index_pairs (void **state)
{
    static const int32_t pairs[] = {0, 2, 5, 5, -1};
    json_t *list = cluster_indices (pairs), *none = cluster_indices (NULL);
    uint32_t *index;
    size_t n;

    (void)state;
    assert_int_equal (json_array_size (list), 4);
    assert_int_equal (json_array_size (none), 0);
    assert_int_equal (cluster_indices_read (list, 5, &index, &n), 0);
    assert_int_equal (n, 3);
    assert_int_equal (index[2], 2);
    free (index);
    json_decref (list);
    json_decref (none);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (records),
        cmocka_unit_test (nothing),
        cmocka_unit_test (index_pairs),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
