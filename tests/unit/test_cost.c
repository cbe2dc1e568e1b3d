/* SPDX-License-Identifier: Apache-2.0
 * test_cost.c - how long a request has run, and the price of its GPUs */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "cost.h"

#define T0 1764288000 /* 2025-11-28T00:00:00Z */
#define SEGMENT(at, elapsed)                                                   \
    "{\"started_at\":\"2025-11-28T" at "Z\",\"elapsed_s\":" elapsed "}"

static const struct {
    const char *list;
    int64_t since, now;
    bool active;
    int64_t want;
    bool lost;
} rows[] = {
    {"", 0, T0, true, 0, false},
    {SEGMENT ("00:00:00", "90"), 0, T0 + 999, false, 90, false},
    {SEGMENT ("00:00:00", "90") "," SEGMENT ("01:00:00", "10"), 0, T0 + 9999,
     false, 100, false},
    /* it runs */
    {SEGMENT ("00:00:00", "90") "," SEGMENT ("00:02:00", "null"), 0, T0 + 150,
     true, 120, false},
    /* its batch step was killed: nobody knows */
    {SEGMENT ("00:00:00", "90") "," SEGMENT ("00:02:00", "null"), 0, T0 + 150,
     false, 90, true},
    {SEGMENT ("00:00:00", "null") "," SEGMENT ("00:02:00", "null"), 0, T0 + 150,
     true, 30, true},
    /* only a part of it, or nothing, is within the time asked for */
    {SEGMENT ("00:00:00", "90"), T0 + 60, T0 + 999, false, 30, false},
    {SEGMENT ("00:00:00", "90"), T0 + 90, T0 + 999, false, 0, false},
    {"{\"started_at\":\"once\",\"elapsed_s\":5}", 0, T0, true, 0, false},
    {"{\"elapsed_s\":5},7", 0, T0, true, 0, false},
};

static void elapsed (void **state)
{
    for (size_t i = 0; i < sizeof (rows) / sizeof (rows[0]); i++) {
        char text[512];
        bool lost = false;
        int64_t got;
        json_t *json;

        snprintf (text, sizeof (text), "{\"segments\":[%s]}", rows[i].list);
        json = json_loads (text, 0, NULL);
        assert_non_null (json);
        got = cost_elapsed (json, rows[i].since, rows[i].now, rows[i].active,
                            &lost);
        if (got != rows[i].want || lost != rows[i].lost)
            fail_msg ("row %zu: %lld", i, (long long)got);
        json_decref (json);
    }
    assert_int_equal (cost_elapsed (NULL, 0, T0, true, NULL), 0);
    (void)state;
}

static void prices (void **state)
{
    struct site_gpu gpu[] = {
        {.type = "a100", .cost = 2},
        {.type = "big", .gres = "gpu:h100", .cost = 5},
        {.type = "free", .cost = 0},
        {.type = "unsaid", .cost = -1},
        {.type = "any", .gres = "gpu", .cost = 1.5},
    };
    struct site_mig mig[] = {{.profile = "1g.10gb", .cost = 0.25}};
    const struct site_conf conf = {
        .gpu = gpu, .n_gpu = 5, .mig = mig, .n_mig = 1};
    static const struct {
        const char *type;
        double want;
    } v[] = {
        {"a100", 2},       {"A100", 2},  {"h100", 5},
        {"big", -1},       {"free", 0},  {"unsaid", -1},
        {"1g.10gb", 0.25}, {"v100", -1}, {"", 1.5},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (cost_per_hour (&conf, v[i].type) != v[i].want)
            fail_msg ("'%s'", v[i].type);
    (void)state;
}

/* One run of a job, as slurmdbd tells of it. */
static void run (void **state)
{
    static const struct {
        int64_t started, ended, suspended_s, since, now, want;
    } v[] = {
        {0, 0, 0, 0, T0, 0},  /* has not started */
        {0, T0, 0, 0, T0, 0}, /* nor ever will */
        {T0, T0 + 90, 0, 0, T0, 90},
        {T0, T0 + 90, 30, 0, T0, 60}, /* it stood still */
        {T0, T0 + 90, 100, 0, T0, 0},
        {T0, 0, 0, 0, T0 + 7, 7},     /* it runs */
        {T0 + 9, 0, 0, 0, T0 + 7, 0}, /* by another clock */
        {T0, T0 + 90, 0, T0 + 60, T0 + 99, 30},
        {T0, T0 + 90, 70, T0 + 60, T0 + 99, 20},
        {T0, T0 + 90, 0, T0 + 90, T0 + 99, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        assert_int_equal (cost_of_run (v[i].started, v[i].ended,
                                       v[i].suspended_s, v[i].since, v[i].now),
                          v[i].want);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (elapsed),
        cmocka_unit_test (run),
        cmocka_unit_test (prices),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
