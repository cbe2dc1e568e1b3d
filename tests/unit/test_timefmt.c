/* SPDX-License-Identifier: Apache-2.0
 * test_timefmt.c - RFC 3339 text, there and back, in several zones */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/timefmt.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void set_zone (const char *zone)
{
    assert_int_equal (setenv ("TZ", zone, 1), 0);
    tzset ();
}

static void bad_arguments (void **state)
{
    struct timespec ts = {0, 0};
    char buf[TIMEFMT_SIZE] = "untouched";

    assert_int_equal (timefmt_format (NULL, buf, sizeof (buf)), RV_EINVAL);
    assert_int_equal (timefmt_format (&ts, NULL, 40), RV_EINVAL);
    assert_int_equal (timefmt_format (&ts, buf, TIMEFMT_SIZE - 1), RV_EINVAL);
    ts.tv_nsec = 1000000000;
    assert_int_equal (timefmt_format (&ts, buf, sizeof (buf)), RV_EINVAL);
    ts = (struct timespec){INT64_MAX, 0};
    assert_int_equal (timefmt_format (&ts, buf, sizeof (buf)), RV_EINVAL);
    ts = (struct timespec){253402300800, 0}; /* the year 10000 */
    assert_int_equal (timefmt_format (&ts, buf, sizeof (buf)), RV_EINVAL);
    assert_string_equal (buf, "untouched");
    assert_int_equal (timefmt_parse (NULL, &ts, NULL), RV_EINVAL);
    assert_int_equal (timefmt_parse ("x", NULL, NULL), RV_EINVAL);
    (void)state;
}

/* POSIX zone names carry their own rules: no zone files are needed. */
static void there_and_back (void **state)
{
    static const struct {
        const char *zone;
        struct timespec ts;
        const char *text;
    } v[] = {
        {"UTC0", {0, 0}, "1970-01-01T00:00:00.000000+00:00"},
        {"UTC0", {1000000000, 42999}, "2001-09-09T01:46:40.000042+00:00"},
        {"UTC0", {-1, 999999999}, "1969-12-31T23:59:59.999999+00:00"},
        {"CET-1CEST,M3.5.0,M10.5.0/3",
         {1782864000, 1000},
         "2026-07-01T02:00:00.000001+02:00"},
        {"IST-5:30", {1000000000, 0}, "2001-09-09T07:16:40.000000+05:30"},
        {"NST3:30", {1000000000, 0}, "2001-09-08T22:16:40.000000-03:30"},
        {"XXX0:15", {0, 0}, "1969-12-31T23:45:00.000000-00:15"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        char buf[TIMEFMT_SIZE];
        struct timespec back;

        set_zone (v[i].zone);
        assert_int_equal (timefmt_format (&v[i].ts, buf, sizeof (buf)), 0);
        assert_string_equal (buf, v[i].text);
        assert_int_equal (timefmt_parse (buf, &back, NULL), 0);
        assert_true (back.tv_sec == v[i].ts.tv_sec);
        assert_int_equal (back.tv_nsec, v[i].ts.tv_nsec / 1000 * 1000);
    }
    (void)state;
}

static void parses (void **state)
{
    static const struct {
        const char *text;
        int64_t s;
        long ns;
    } v[] = {
        {"1970-01-01T00:00:00Z", 0, 0},
        {"1970-01-01t00:00:00z", 0, 0},
        {"1970-01-01 00:00:01.5Z", 1, 500000000},
        {"1970-01-01T00:00:00.123456789999Z", 0, 123456789},
        {"2000-02-29T00:00:00Z", 951782400, 0},
        {"1990-12-31T23:59:60Z", 662688000, 0},
        {"1996-12-19T16:39:57-08:00", 851042397, 0},
        {"1937-01-01T12:00:27.87+00:20", -1041337173, 870000000},
    };

    set_zone ("XXX5");
    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct timespec got;

        if (timefmt_parse (v[i].text, &got, &err) != 0)
            fail_msg ("%s", err.text);
        if (got.tv_sec != v[i].s || got.tv_nsec != v[i].ns)
            fail_msg ("%s gave %lld", v[i].text, (long long)got.tv_sec);
    }
    (void)state;
}

static void refuses (void **state)
{
    static const char *const v[] = {
        "",
        "now",
        "2026-11-28",
        "2026-11-28T01:02:03",
        "2026-11-28T01:02Z",
        "2026-11-28T01:02:03.Z",
        "2026-11-28T01:02:03Zx",
        "2026-11-28T01:02:03+1:00",
        "2026-11-28T01:02:03+0100",
        "2026-11-28T24:00:00Z",
        "2026-11-28T01:60:00Z",
        "2026-11-28T01:02:61Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-02-30T00:00:60Z",
        "2026-04-31T00:00:00Z",
        "2026-01-00T00:00:00Z",
        "26-01-01T00:00:00Z",
        " 2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00+24:00",
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct timespec got = {7, 7};
        struct rv_error err = {0};

        if (timefmt_parse (v[i], &got, &err) != RV_EINVAL)
            fail_msg ("'%s' was taken", v[i]);
        assert_int_equal (got.tv_sec, 7);
        assert_non_null (strstr (err.text, v[i]));
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments),
        cmocka_unit_test (there_and_back),
        cmocka_unit_test (parses),
        cmocka_unit_test (refuses),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
