/* SPDX-License-Identifier: Apache-2.0
 * timefmt.c - points in time as RFC 3339 text, for JSON files */
#include "config.h"

#include "plan/timefmt.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int timefmt_format (const struct timespec *ts, char *buf, size_t size)
{
    struct tm tm;
    long offset;
    int year;

    if (!ts || !buf || size < TIMEFMT_SIZE || ts->tv_nsec < 0
        || ts->tv_nsec > 999999999 || !localtime_r (&ts->tv_sec, &tm)
        || tm.tm_year < -1900 || tm.tm_year > 8099)
        return RV_EINVAL;
    year = tm.tm_year + 1900;
    /* RFC 3339 has minutes; offsets with seconds ended about 1940 */
    offset = tm.tm_gmtoff / 60;
    snprintf (buf, size, "%04d-%02d-%02dT%02d:%02d:%02d.%06ld%c%02ld:%02ld",
              year, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
              ts->tv_nsec / 1000, offset < 0 ? '-' : '+',
              (offset < 0 ? -offset : offset) / 60,
              (offset < 0 ? -offset : offset) % 60);
    return 0;
}

/* Exactly n digits at *p, a number from lo to hi. */
static bool take (const char **p, int n, int lo, int hi, int *ret)
{
    int v = 0;

    for (; n > 0; n--, (*p)++) {
        if (**p < '0' || **p > '9')
            return false;
        v = v * 10 + (**p - '0');
    }
    *ret = v;
    return v >= lo && v <= hi;
}

static bool take_char (const char **p, const char *any)
{
    if (!**p || !strchr (any, **p))
        return false;
    (*p)++;
    return true;
}

static bool take_date_time (const char **p, struct tm *tm)
{
    bool ok = take (p, 4, 0, 9999, &tm->tm_year) && take_char (p, "-")
              && take (p, 2, 1, 12, &tm->tm_mon) && take_char (p, "-")
              && take (p, 2, 1, 31, &tm->tm_mday) && take_char (p, "Tt ")
              && take (p, 2, 0, 23, &tm->tm_hour) && take_char (p, ":")
              && take (p, 2, 0, 59, &tm->tm_min) && take_char (p, ":")
              && take (p, 2, 0, 60, &tm->tm_sec);

    tm->tm_year -= 1900;
    tm->tm_mon -= 1;
    return ok;
}

static bool take_fraction (const char **p, long *ret_nsec)
{
    long nsec = 0, scale = 100000000;

    *ret_nsec = 0;
    if (!take_char (p, "."))
        return true;
    if (**p < '0' || **p > '9')
        return false;
    for (; **p >= '0' && **p <= '9'; (*p)++, scale /= 10)
        nsec += (**p - '0') * scale;
    *ret_nsec = nsec;
    return true;
}

/* Seconds east of Greenwich. */
static bool take_offset (const char **p, int *ret_s)
{
    int h, m, sign = **p == '-' ? -1 : 1;

    *ret_s = 0;
    if (take_char (p, "Zz"))
        return true;
    if (!take_char (p, "+-") || !take (p, 2, 0, 23, &h) || !take_char (p, ":")
        || !take (p, 2, 0, 59, &m))
        return false;
    *ret_s = sign * (h * 3600 + m * 60);
    return true;
}

int timefmt_parse (const char *text, struct timespec *ret, struct rv_error *err)
{
    struct tm tm = {0}, back;
    const char *p = text;
    long nsec;
    int offset;
    time_t t;

    if (!text || !ret)
        return error_set (err, RV_EINVAL, "timefmt_parse: no text");
    if (!take_date_time (&p, &tm) || !take_fraction (&p, &nsec)
        || !take_offset (&p, &offset) || *p)
        return error_set (err, RV_EINVAL,
                          "'%.64s' is not a time such as "
                          "2026-11-28T01:02:03.5+01:00",
                          text);
    back = tm;
    back.tm_sec = 0;
    t = timegm (&back) + tm.tm_sec;
    if (back.tm_mday != tm.tm_mday) /* timegm makes March of February 30 */
        return error_set (err, RV_EINVAL, "'%.64s' is no day of the calendar",
                          text);
    ret->tv_sec = t - offset;
    ret->tv_nsec = nsec;
    return 0;
}
