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
#include "record.h"

static const char jobs[] =
    "17\t1\t0\t1\t2\t4\t8\t1000\t5\t99\t0\t3600\ta100\t\t\t\t0-0,2-3,9-9,\t\n"
    "18\t0\t1\t20\t3\t2\t1\t0\t4294901757\t0\t50\t-1\t\tgpu,long\ta|"
    "b\tnight\t\t\n";
static const char resvs[] = "night\t100\t200\t1-2,\t\n\t5\t6\t\t\n";

static void records (void **state)
{
    struct strategy_cluster c = {.n_nodes = 3};
    json_t *json = json_pack ("[s, s]", jobs, resvs);

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
    assert_null (c.job[0].resv);
    assert_string_equal (c.job[1].resv, "night");
    /* indices of nodes that are not there are none */
    assert_int_equal (c.job[0].n_nodes, 2);
    assert_int_equal (c.job[0].node[0], 0);
    assert_int_equal (c.job[0].node[1], 2);
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
    assert_string_equal (c.resv[0].name, "night");
    assert_null (c.resv[1].name);
    assert_int_equal (c.resv[0].start_s, 100);
    assert_int_equal (c.resv[0].end_s, 200);
    assert_int_equal (c.resv[0].n_nodes, 2);
    assert_int_equal (c.resv[1].n_nodes, 0);
    c.n_nodes = 0; /* it has none of its own */
    strategy_cluster_fini (&c);
}

static void nothing (void **state)
{
    static const struct {
        const char *text;
        int status;
    } v[] = {
        {"null", RV_OK},
        {"[]", RV_OK},
        {"[\"\", \"\"]", RV_OK},
        {"[7, {}]", RV_OK},
        {"{}", RV_OK},
        {"[\"17\"]", RV_EFORMAT},
        {"[\"\\n\"]", RV_EFORMAT},
        {"[\"\", \"1\\t2\\t3-\\t\\n\"]", RV_EFORMAT},
        {"[\"\", \"1\\t2\\t\\t4\\t\\n\"]", RV_EFORMAT},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct strategy_cluster c = {.n_nodes = 1};
        json_t *json = json_loads (v[i].text, JSON_DECODE_ANY, NULL);

        assert_non_null (json);
        if (cluster_queue_read (json, &c, NULL) != v[i].status)
            fail_msg ("%s", v[i].text);
        json_decref (json);
        c.n_nodes = 0; /* it has none of its own */
        strategy_cluster_fini (&c);
    }
}

/* What is written is read, and nothing behind it. */
static void fields (void **state)
{
    static const int32_t pairs[] = {0, 2, 5, 5, -1};
    static const char *const texts[] = {"a b c", "", "\xc3\xa9", "?"};
    static const int64_t numbers[] = {0, -1, 7, INT64_MAX, INT64_MIN};
    struct record_out out = {0};
    struct record_in in;
    uint32_t *index;
    json_t *json;
    size_t n;
    char *text;

    (void)state;
    for (size_t i = 0; i < 5; i++)
        record_int (&out, numbers[i]);
    record_text (&out, "a\tb\nc");
    record_text (&out, NULL);
    record_text (&out, "\xc3\xa9");
    record_text (&out, "\xff");
    record_ranges (&out, pairs);
    record_ranges (&out, NULL);
    record_end (&out);
    json = record_json (&out);
    in = record_begin (json);
    assert_int_equal (record_count (&in), 1);
    for (size_t i = 0; i < 5; i++)
        assert_true (record_get_int (&in) == numbers[i]);
    for (size_t i = 0; i < 4; i++) {
        text = record_get_text (&in);
        assert_string_equal (text, texts[i]);
        free (text);
    }
    record_get_indices (&in, 5, &index, &n);
    assert_int_equal (n, 3);
    assert_int_equal (index[2], 2);
    free (index);
    record_get_indices (&in, 5, &index, &n);
    assert_int_equal (n, 0);
    free (index);
    assert_false (in.failed);
    assert_int_equal (record_get_int (&in), 0);
    assert_true (in.failed);
    record_next (&in);
    assert_false (record_more (&in));
    json_decref (json);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (records),
        cmocka_unit_test (nothing),
        cmocka_unit_test (fields),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
