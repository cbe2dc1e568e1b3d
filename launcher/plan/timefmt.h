/* SPDX-License-Identifier: Apache-2.0
 * timefmt.h - points in time as RFC 3339 text, for JSON files. */
#ifndef RV_PLAN_TIMEFMT_H
#define RV_PLAN_TIMEFMT_H

#include <stddef.h>
#include <time.h>

#include "plan/error.h"

#define TIMEFMT_SIZE 40 /* of any text written here, with its NUL */

/* timefmt_format - "2026-11-28T01:02:03.000042+01:00": microseconds (rounded
 * down) and the local offset of that moment.
 *   ts     tv_nsec from 0 to 999999999; years 0 to 9999, else RV_EINVAL
 *   buf    (size) written, size >= TIMEFMT_SIZE */
int timefmt_format (const struct timespec *ts, char *buf, size_t size);

/* timefmt_parse - RFC 3339 text back to a point in time: any number of
 * fraction digits (those behind nanoseconds are dropped), "Z" or an offset, 'T'
 * or a blank. A leap second becomes the second after it. Anything else is
 * RV_EINVAL.
 *   ret    written on success only */
int timefmt_parse (const char *text, struct timespec *ret,
                   struct rv_error *err);

#endif
