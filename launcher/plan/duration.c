/* SPDX-License-Identifier: Apache-2.0
 * duration.c - durations, sizes and counts as users and Slurm write them
 *
 * Slurm's forms and their limits were compared with its own parser
 * (time_str2secs of libslurmfull 22.05): minutes alone, a dash after days, no
 * range check of minutes and seconds, zero for no limit. */
#include "plan/duration.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DURATION_FORMS "write 500ms, 90s, 30m, 2h, 1.5h or 3d"
#define TIME_FORMS                                                             \
    "write 90m, 2h, 3d, minutes, H:M:S, D-H, D-H:M:S or UNLIMITED"
#define SIZE_FORMS "write 512M, 16G or 1T"

/* Slurm keeps a time limit in an int of seconds while it reads one. */
#define SLURM_SECONDS_MAX INT32_MAX

static bool is_digit (char c)
{
    return c >= '0' && c <= '9';
}

/* Digits at *text to a number; moves *text past them. False when there are
 * none or the number does not fit. */
static bool take_number (const char **text, int64_t *ret)
{
    int64_t value = 0;
    const char *p = *text;

    if (!is_digit (*p))
        return false;
    for (; is_digit (*p); p++) {
        if (__builtin_mul_overflow (value, (int64_t)10, &value)
            || __builtin_add_overflow (value, (int64_t)(*p - '0'), &value))
            return false;
    }
    *text = p;
    *ret = value;
    return true;
}

static int64_t unit_ms (const char *unit)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {
        {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
    };

    for (size_t i = 0; i < sizeof (units) / sizeof (units[0]); i++) {
        if (strcmp (unit, units[i].name) == 0)
            return units[i].ms;
    }
    return 0;
}

/* The part of a unit behind the point, rounded up to a whole millisecond so
 * that no positive duration becomes zero. */
static int64_t fraction_ms (const char *digits, size_t n, int64_t unit)
{
    __extension__ typedef unsigned __int128 wide;
    wide scale = 1, value = 0;

    for (size_t i = 0; i < n; i++) {
        scale *= 10;
        value = value * 10 + (unsigned)(digits[i] - '0');
    }
    return (int64_t)((value * (wide)unit + scale - 1) / scale);
}

int duration_parse (const char *text, int64_t *ret_ms, struct rv_error *err)
{
    const char *p = text, *fraction = NULL;
    size_t n_fraction = 0;
    int64_t whole, unit, ms;

    if (!text || !ret_ms)
        return error_set (err, RV_EINVAL, "no duration; " DURATION_FORMS);
    if (!is_digit (*p))
        return error_set (err, RV_EINVAL,
                          "'%s' is not a duration; " DURATION_FORMS, text);
    if (!take_number (&p, &whole))
        return error_set (err, RV_EINVAL, "duration '%s' is too large", text);
    if (*p == '.') {
        fraction = ++p;
        n_fraction = strspn (p, "0123456789");
        p += n_fraction;
    }
    if (!*p)
        return error_set (err, RV_EINVAL,
                          "duration '%s' has no unit; " DURATION_FORMS, text);
    if (!(unit = unit_ms (p)) || (fraction && n_fraction == 0)
        || n_fraction > 18)
        return error_set (err, RV_EINVAL,
                          "'%s' is not a duration; " DURATION_FORMS, text);
    if (__builtin_mul_overflow (whole, unit, &ms)
        || __builtin_add_overflow (ms, fraction_ms (fraction, n_fraction, unit),
                                   &ms))
        return error_set (err, RV_EINVAL, "duration '%s' is too large", text);
    *ret_ms = ms;
    return 0;
}

/* Split "D-H:M:S" into its numbers.
 *   ret_n      numbers read, days included
 *   ret_days   a dash follows the first number
 * "D-" alone is days, as for Slurm. */
static bool split_slurm (const char *text, int64_t v[4], size_t *ret_n,
                         bool *ret_days)
{
    size_t n = 0;
    bool days = false;

    for (const char *p = text;; p++) {
        if (n == 4 || (n == 3 && !days) || !take_number (&p, &v[n++]))
            return false;
        if (*p == '-' && n == 1 && !days) {
            days = true;
            if (!p[1])
                break;
        } else if (!*p) {
            break;
        } else if (*p != ':' || (days && n == 1)) {
            return false;
        }
    }
    *ret_n = n;
    *ret_days = days;
    return true;
}

/* The seconds of Slurm's own forms, or false. */
static bool slurm_seconds (const char *text, int64_t *ret)
{
    static const int64_t with_days[] = {86400, 3600, 60, 1};
    static const int64_t minutes_first[] = {60, 1};
    static const int64_t hours_first[] = {3600, 60, 1};
    const int64_t *weight;
    int64_t v[4] = {0}, sum = 0, part;
    size_t n;
    bool days;

    if (!split_slurm (text, v, &n, &days))
        return false;
    weight = days ? with_days : n == 3 ? hours_first : minutes_first;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow (v[i], weight[i], &part)
            || __builtin_add_overflow (sum, part, &sum))
            sum = INT64_MAX;
        if (sum > SLURM_SECONDS_MAX)
            break;
    }
    *ret = sum;
    return true;
}

static bool is_unlimited (const char *text)
{
    return strcasecmp (text, "UNLIMITED") == 0
           || strcasecmp (text, "INFINITE") == 0 || strcmp (text, "-1") == 0;
}

int duration_parse_slurm (const char *text, int64_t *ret_s,
                          struct rv_error *err)
{
    int64_t s;

    if (!text || !ret_s)
        return error_set (err, RV_EINVAL, "no time; " TIME_FORMS);
    if (is_unlimited (text)) {
        *ret_s = -1;
        return 0;
    }
    if (slurm_seconds (text, &s)) {
        if (s == 0)
            s = -1; /* sbatch(1): a limit of zero is no limit */
    } else if (duration_parse (text, &s, NULL) == 0) {
        if (s == 0)
            return error_set (err, RV_EINVAL,
                              "time '%s' is no time; "
                              "write UNLIMITED for no limit",
                              text);
        s = s / 1000 + (s % 1000 != 0);
    } else {
        return error_set (err, RV_EINVAL, "'%s' is not a time; " TIME_FORMS,
                          text);
    }
    if (s > SLURM_SECONDS_MAX)
        return error_set (err, RV_EINVAL,
                          "time '%s' is more than the 24855 days that Slurm "
                          "can count; write UNLIMITED for no limit",
                          text);
    *ret_s = s;
    return 0;
}

char *duration_format_slurm (int64_t seconds, char *buf, size_t size)
{
    int64_t d = seconds / 86400, h = seconds / 3600 % 24;
    int m = (int)(seconds / 60 % 60), s = (int)(seconds % 60);

    if (seconds < 0)
        snprintf (buf, size, "UNLIMITED");
    else if (d > 0)
        snprintf (buf, size, "%" PRId64 "-%02d:%02d:%02d", d, (int)h, m, s);
    else
        snprintf (buf, size, "%02d:%02d:%02d", (int)h, m, s);
    return buf;
}

static int size_shift (char unit)
{
    switch (unit) {
    case 'k':
    case 'K':
        return 10;
    case '\0':
    case 'm':
    case 'M':
        return 20;
    case 'g':
    case 'G':
        return 30;
    case 't':
    case 'T':
        return 40;
    default:
        return -1;
    }
}

int size_parse (const char *text, int64_t *ret_bytes, struct rv_error *err)
{
    const char *p = text;
    int64_t value;
    int shift;

    if (!text || !ret_bytes)
        return error_set (err, RV_EINVAL, "no size; " SIZE_FORMS);
    if (!is_digit (*p))
        return error_set (err, RV_EINVAL, "'%s' is not a size; " SIZE_FORMS,
                          text);
    if (!take_number (&p, &value))
        return error_set (err, RV_EINVAL, "size '%s' is too large", text);
    shift = size_shift (*p);
    if (*p && shift >= 0
        && (strcasecmp (p + 1, "b") == 0 || strcasecmp (p + 1, "ib") == 0))
        return error_set (err, RV_EINVAL,
                          "'%s' is not a size; write %" PRId64 "%c", text,
                          value, *p & ~0x20);
    if (shift < 0 || (*p && p[1]))
        return error_set (err, RV_EINVAL, "'%s' is not a size; " SIZE_FORMS,
                          text);
    if (value > INT64_MAX >> shift)
        return error_set (err, RV_EINVAL, "size '%s' is too large", text);
    *ret_bytes = value << shift;
    return 0;
}

int count_parse (const char *text, long max, long *ret, struct rv_error *err)
{
    const char *p = text;
    int64_t value;

    if (!text || !ret)
        return error_set (err, RV_EINVAL, "no number; write 1 to %ld", max);
    if (!*p || p[strspn (p, "0123456789")])
        return error_set (err, RV_EINVAL, "'%s' is not a number from 1 to %ld",
                          text, max);
    if (!take_number (&p, &value) || value < 1 || value > max)
        return error_set (err, RV_EINVAL, "'%s' is not from 1 to %ld", text,
                          max);
    *ret = (long)value;
    return 0;
}
