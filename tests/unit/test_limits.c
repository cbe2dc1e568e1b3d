/* SPDX-License-Identifier: Apache-2.0
 * test_limits.c - what associations and QOS allow */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/limits.h"

#define DAY 86400

static struct limit gpus[] = {
    {LIMIT_GPUS_JOB, "account main", "a job", 6, 0, NULL},
    {LIMIT_GPUS, "qos normal", "a user", 4, 1, NULL}};
static struct limit walls[] = {
    {LIMIT_WALL, "qos normal", "a job", 3600, 0, NULL}};
static struct limit counts[] = {
    {LIMIT_SUBMIT, "qos normal", "a user", 5, 3, NULL},
    {LIMIT_SUBMIT, "account main", "in all", 9, 8, NULL},
    {LIMIT_JOBS, "qos normal", "a user", 3, 3, NULL}};
static struct limit_qos others[] = {
    {"small", 2}, {"big", 8}, {"huge", UINT64_MAX}};

static void nothing_is_no_limit (void **state)
{
    struct limits none = {0};
    struct rv_error err = {0};
    int64_t time_s = -1;
    char buf[160];

    (void)state;
    assert_int_equal (limits_check (&none, 512, &time_s, true, 0, &err), RV_OK);
    assert_int_equal (time_s, -1);
    assert_false (limits_wait (&none, "", 512, buf, sizeof (buf)));
    assert_int_equal (limits_submits (&none), UINT32_MAX);
    limits_fini (&none);
}

static void gpus_of_a_job (void **state)
{
    struct limits l = {gpus, 2, others, 0};
    struct rv_error err = {0};
    int64_t time_s = 60;
    char buf[160];

    (void)state;
    assert_int_equal (limits_check (&l, 4, &time_s, true, 0, &err), RV_OK);
    assert_int_equal (limits_check (&l, 5, &time_s, true, 0, &err), RV_EINVAL);
    assert_string_equal (err.text, "qos normal allows 4 GPUs a user; 5 are "
                                   "asked: -g 4 would work");
    l.n_qos = 2;
    limits_check (&l, 5, &time_s, true, 0, &err);
    assert_non_null (strstr (err.text, ", or --qos=big, which allows 8"));
    limits_check (&l, 9, &time_s, true, 0, &err);
    assert_null (strstr (err.text, "--qos"));
    l.n_qos = 3;
    limits_check (&l, 9, &time_s, true, 0, &err);
    assert_non_null (strstr (err.text, ", or --qos=huge"));
    assert_false (limits_wait (&l, "", 3, buf, sizeof (buf)));
    assert_true (limits_wait (&l, "", 4, buf, sizeof (buf)));
    assert_string_equal (buf, "qos normal allows 4 GPUs a user, 1 are in use");
    assert_false (limits_wait (&l, "", 0, buf, sizeof (buf)));
}

/* A limit on one type binds jobs that ask for it, and no other. */
static void gpus_of_one_type (void **state)
{
    static char a100[] = "a100";
    static struct limit typed[] = {
        {LIMIT_GPUS, "qos normal", "a user", 2, 1, a100}};
    const struct limits l = {typed, 1, others, 3};
    struct rv_error err = {0};
    int64_t time_s = 60;
    char buf[160];

    (void)state;
    assert_int_equal (limits_check (&l, 9, &time_s, true, 0, &err), RV_OK);
    assert_null (limits_of_type (&l, "a100", 2));
    assert_null (limits_of_type (&l, "v100", 3));
    assert_ptr_equal (limits_of_type (&l, "A100", 3), typed);
    assert_int_equal (limits_beyond (&l, typed, 3, &err), RV_EINVAL);
    assert_string_equal (err.text, "qos normal allows 2 a100 GPUs a user; 3 "
                                   "are asked: -g 2 would work");
    assert_false (limits_wait (&l, "v100", 2, buf, sizeof (buf)));
    assert_false (limits_wait (&l, "", 2, buf, sizeof (buf)));
    assert_false (limits_wait (&l, "a100", 1, buf, sizeof (buf)));
    assert_true (limits_wait (&l, "a100", 2, buf, sizeof (buf)));
    assert_string_equal (buf,
                         "qos normal allows 2 a100 GPUs a user, 1 are in use");
}

static void times (void **state)
{
    static const struct {
        int64_t time_s, min_s, ret;
        bool fixed;
        int rc;
    } v[] = {
        {3600, 0, 3600, true, RV_OK},    {3601, 0, 0, true, RV_EINVAL},
        {-1, 0, 0, true, RV_EINVAL},     {-1, 0, 3600, false, RV_OK},
        {DAY, 0, 3600, false, RV_OK},    {DAY, 600, 3600, true, RV_OK},
        {DAY, 7200, 0, true, RV_EINVAL},
    };
    const struct limits l = {walls, 1, NULL, 0};

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct rv_error err = {0};
        int64_t time_s = v[i].time_s;

        assert_int_equal (
            limits_check (&l, 1, &time_s, v[i].fixed, v[i].min_s, &err),
            v[i].rc);
        if (v[i].rc)
            assert_non_null (strstr (err.text, "allows at most 01:00:00"));
        else
            assert_int_equal (time_s, v[i].ret);
    }
}

static void numbers_of_jobs (void **state)
{
    struct limits l = {counts, 3, NULL, 0};
    struct rv_error err = {0};
    int64_t time_s = 60;
    char buf[160];

    (void)state;
    assert_int_equal (limits_submits (&l), 1);
    assert_int_equal (limits_check (&l, 1, &time_s, true, 0, &err), RV_OK);
    assert_true (limits_wait (&l, "", 0, buf, sizeof (buf)));
    assert_string_equal (
        buf, "qos normal allows 3 running jobs a user, 3 are in use");
    counts[1].used = 10;
    assert_int_equal (limits_submits (&l), 0);
    assert_int_equal (limits_check (&l, 1, &time_s, true, 0, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "account main allows 9 jobs in all"));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (nothing_is_no_limit),
        cmocka_unit_test (gpus_of_a_job),
        cmocka_unit_test (gpus_of_one_type),
        cmocka_unit_test (times),
        cmocka_unit_test (numbers_of_jobs),
    };

    return cmocka_run_group_tests_name ("limits", tests, NULL, NULL);
}
