/* SPDX-License-Identifier: Apache-2.0
 * test_duration.c - durations, Slurm times, sizes and counts */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plan/duration.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

/* want < -1: must be refused */
struct vector {
    const char *text;
    int64_t want;
};
#define REFUSED INT64_MIN

typedef int (*parse_f) (const char *text, int64_t *ret, struct rv_error *err);

static void run (parse_f parse, const struct vector *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct rv_error err = {0};
        int64_t got = REFUSED;
        int rc = parse (v[i].text, &got, &err);

        if (v[i].want == REFUSED && (rc != RV_EINVAL || !err.text[0]))
            fail_msg ("'%s' was taken as %lld", v[i].text, (long long)got);
        if (v[i].want != REFUSED && rc != 0)
            fail_msg ("'%s': %s", v[i].text, err.text);
        if (got != v[i].want)
            fail_msg ("'%s' gave %lld", v[i].text, (long long)got);
        assert_int_equal (parse (v[i].text, &got, NULL), rc);
    }
}

static void bad_arguments (void **state)
{
    struct rv_error err = {0};
    int64_t got = 7;
    long n = 7;

    assert_int_equal (duration_parse (NULL, &got, &err), RV_EINVAL);
    assert_int_equal (duration_parse ("1s", NULL, &err), RV_EINVAL);
    assert_int_equal (duration_parse_slurm (NULL, &got, &err), RV_EINVAL);
    assert_int_equal (duration_parse_slurm ("1", NULL, &err), RV_EINVAL);
    assert_int_equal (size_parse (NULL, &got, &err), RV_EINVAL);
    assert_int_equal (size_parse ("1G", NULL, &err), RV_EINVAL);
    assert_int_equal (count_parse (NULL, 9, &n, &err), RV_EINVAL);
    assert_int_equal (count_parse ("1", 9, NULL, &err), RV_EINVAL);
    assert_int_equal (got, 7);
    assert_int_equal (n, 7);
    (void)state;
}

static void durations (void **state)
{
    static const struct vector v[] = {
        {"500ms", 500},
        {"90s", 90000},
        {"30m", 1800000},
        {"2h", 7200000},
        {"3d", 259200000},
        {"1.5h", 5400000},
        {"0.25s", 250},
        {"0.0001ms", 1},
        {"1.0000s", 1000},
        {"0s", 0},
        {"0.000000000000000001d", 1},
        {"9223372036854775807ms", INT64_MAX},
        {"9223372036854775808ms", REFUSED},
        {"9223372036854775806.5ms", INT64_MAX},
        {"9223372036854775807.5ms", REFUSED},
        {"106751991168d", REFUSED},
        {"99999999999999999999999s", REFUSED},
        {"", REFUSED},
        {"90", REFUSED},
        {"1.5", REFUSED},
        {"-1s", REFUSED},
        {"+1s", REFUSED},
        {" 1s", REFUSED},
        {"1 s", REFUSED},
        {"1s ", REFUSED},
        {"1sec", REFUSED},
        {"1.h", REFUSED},
        {".5h", REFUSED},
        {"1..5h", REFUSED},
        {"1.5.5h", REFUSED},
        {"1h30m", REFUSED},
        {"1M", REFUSED},
        {"0.0000000000000000001d", REFUSED},
        {"s", REFUSED},
        {"0x10s", REFUSED},
        {"1e3s", REFUSED},
    };
    struct rv_error err;

    run (duration_parse, v, LENGTH (v));
    assert_int_equal (duration_parse ("90", &(int64_t){0}, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "no unit"));
    assert_non_null (strstr (err.text, "90s"));
    (void)state;
}

/* The first block is what libslurmfull's time_str2secs of 22.05 gives for the
 * same text; a limit of zero is no limit to sbatch. */
static void slurm_times (void **state)
{
    static const struct vector v[] = {
        {"90", 5400},
        {"1", 60},
        {"0:1", 1},
        {"1:30", 90},
        {"2:59:00", 10740},
        {"100:00:00", 360000},
        {"1-0", 86400},
        {"1-12", 129600},
        {"1-12:30", 131400},
        {"1-12:30:15", 131415},
        {"2-", 172800},
        {"0-0:1:0", 60},
        {"00:99:99", 6039},
        {"1:99", 159},
        {"1-48:90:90", 264690},
        {"007", 420},
        {"0", -1},
        {"00:00:00", -1},
        {"0-0", -1},
        {"UNLIMITED", -1},
        {"unlimited", -1},
        {"Infinite", -1},
        {"-1", -1},
        {"24855-0", 2147472000},
        {"24855-3:14:07", 2147483647},
        {"24855-3:14:08", REFUSED}, /* Slurm's int wraps from here on */
        {"35791394:08", REFUSED},
        {"99999999999", REFUSED},
        {"99999999999999999999999", REFUSED},
        /* ours */
        {"90m", 5400},
        {"2h", 7200},
        {"3d", 259200},
        {"1.5h", 5400},
        {"90s", 90},
        {"500ms", 1},
        {"1001ms", 2},
        {"0m", REFUSED},
        {"0s", REFUSED},
        {"24856d", REFUSED},
        {"-5", REFUSED}, /* Slurm makes 4294535296 of it */
        /* refused by both */
        {"", REFUSED},
        {"-", REFUSED},

        {"-1-2", REFUSED},
        {"1-2-3", REFUSED},
        {"1:2:3:4", REFUSED},
        {"1-1:2:3:4", REFUSED},
        {"1:", REFUSED},
        {":1", REFUSED},
        {"1::2", REFUSED},
        {"1-:2", REFUSED},
        {"1-2:", REFUSED},
        {"1:2-3", REFUSED},
        {"1:2:", REFUSED},
        {" 1", REFUSED},
        {"1 ", REFUSED},
        {"+1", REFUSED},
        {"1,5", REFUSED},
        {"2 hours", REFUSED},
        {"abc", REFUSED},
        {"UNLIMITEDx", REFUSED},
    };

    run (duration_parse_slurm, v, LENGTH (v));
    (void)state;
}

static void slurm_format (void **state)
{
    static const struct vector v[] = {
        {"UNLIMITED", -1},
        {"00:00:00", 0},
        {"00:00:59", 59},
        {"02:59:00", 10740},
        {"23:59:59", 86399},
        {"1-00:00:00", 86400},
        {"1-12:30:15", 131415},
        {"24855-03:14:07", 2147483647},
        {"106751991167300-15:30:07", INT64_MAX},
    };
    char buf[32];

    for (size_t i = 0; i < LENGTH (v); i++) {
        int64_t back;

        assert_ptr_equal (duration_format_slurm (v[i].want, buf, sizeof (buf)),
                          buf);
        assert_string_equal (buf, v[i].text);
        if (v[i].want != 0 && v[i].want <= INT32_MAX) {
            assert_int_equal (duration_parse_slurm (buf, &back, NULL), 0);
            assert_int_equal (back, v[i].want);
        }
    }
    (void)state;
}

static void sizes (void **state)
{
    static const struct vector v[] = {
        {"1", 1048576},        {"0", 0},
        {"512M", 512LL << 20}, {"512m", 512LL << 20},
        {"100K", 102400},      {"16G", 16LL << 30},
        {"1T", 1LL << 40},     {"8388607T", 8388607LL << 40},
        {"8388608T", REFUSED}, {"99999999999999999999", REFUSED},
        {"", REFUSED},         {"G", REFUSED},
        {"-1G", REFUSED},      {"1.5G", REFUSED},
        {"1 G", REFUSED},      {"1GG", REFUSED},
        {"1P", REFUSED},       {"1B", REFUSED},
        {"200GB", REFUSED},    {"200GiB", REFUSED},
    };
    struct rv_error err;

    run (size_parse, v, LENGTH (v));
    assert_int_equal (size_parse ("200gb", &(int64_t){0}, &err), RV_EINVAL);
    assert_string_equal (err.text, "'200gb' is not a size; write 200G");
    (void)state;
}

static void counts (void **state)
{
    static const struct {
        const char *text;
        long max, want;
    } v[] = {
        {"1", 1, 1},
        {"64", 64, 64},
        {"007", 10, 7},
        {"65", 64, 0},
        {"0", 64, 0},
        {"", 64, 0},
        {"2x", 64, 0},
        {"+2", 64, 0},
        {" 2", 64, 0},
        {"2 ", 64, 0},
        {"-2", 64, 0},
        {"0x2", 64, 0},
        {"99999999999999999999", 64, 0},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        long got = 0;
        int rc = count_parse (v[i].text, v[i].max, &got, &err);

        if (rc != (v[i].want ? 0 : RV_EINVAL) || got != v[i].want)
            fail_msg ("'%s' gave %d, %ld", v[i].text, rc, got);
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (durations),
        cmocka_unit_test (slurm_times),   cmocka_unit_test (slurm_format),
        cmocka_unit_test (sizes),         cmocka_unit_test (counts),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
