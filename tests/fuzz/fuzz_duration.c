/* SPDX-License-Identifier: Apache-2.0
 * fuzz_duration.c - durations, Slurm times, sizes, counts and RFC 3339 text */
#include "fuzz.h"
#include "plan/duration.h"
#include "plan/timefmt.h"

static void times (const char *text)
{
    struct rv_error err = {0};
    struct timespec ts, back;
    char buf[TIMEFMT_SIZE];
    int64_t s, again;

    if (duration_parse_slurm (text, &s, &err) == 0) {
        FUZZ_CHECK (s == -1 || (s > 0 && s <= INT32_MAX));
        duration_format_slurm (s, buf, sizeof (buf));
        FUZZ_CHECK (duration_parse_slurm (buf, &again, &err) == 0);
        FUZZ_CHECK (again == s);
    } else {
        FUZZ_CHECK (err.code == RV_EINVAL && err.text[0]);
    }
    if (timefmt_parse (text, &ts, NULL) == 0
        && timefmt_format (&ts, buf, sizeof (buf)) == 0) {
        FUZZ_CHECK (timefmt_parse (buf, &back, NULL) == 0);
        FUZZ_CHECK (back.tv_sec == ts.tv_sec);
        FUZZ_CHECK (back.tv_nsec == ts.tv_nsec / 1000 * 1000);
    }
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    char *text = fuzz_text (data, size);
    int64_t v = -7;
    long n = -7;

    FUZZ_CHECK (duration_parse (text, &v, &err) == 0 ? v >= 0
                                                     : v == -7 && err.text[0]);
    v = -7;
    FUZZ_CHECK (size_parse (text, &v, &err) == 0 ? v >= 0
                                                 : v == -7 && err.text[0]);
    FUZZ_CHECK (count_parse (text, 1000, &n, &err) == 0
                    ? n > 0 && n <= 1000
                    : n == -7 && err.text[0]);
    times (text);
    free (text);
    return 0;
}
