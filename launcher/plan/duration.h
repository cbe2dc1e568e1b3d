/* SPDX-License-Identifier: Apache-2.0
 * duration.h - durations and sizes as users and Slurm write them. */
#ifndef RV_PLAN_DURATION_H
#define RV_PLAN_DURATION_H

#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"

/* duration_parse - "500ms" "90s" "30m" "2h" "3d" "1.5h" to milliseconds.
 * A unit is required (small letters; no space before it); a bare number, a
 * sign, an empty string or a value that does not fit int64_t milliseconds is
 * RV_EINVAL with the accepted forms. Parts of a millisecond are rounded up.
 *   ret_ms   written on success only */
int duration_parse (const char *text, int64_t *ret_ms, struct rv_error *err);

/* duration_parse_slurm - a --time value to seconds.
 * Accepts every form of sbatch(1): "M" "M:S" "H:M:S" "D-H" "D-H:M" "D-H:M:S",
 * UNLIMITED, INFINITE, -1 and any of them that comes to zero (all give -1, no
 * limit), the "D-" that Slurm takes for days, and the unit forms of
 * duration_parse, there rounded up to a second and not zero. Minutes and
 * seconds above 59 are taken as Slurm takes them. More than INT32_MAX seconds
 * is RV_EINVAL: Slurm's own reader wraps there.
 *   ret_s   written on success only; seconds, rounded up to a whole minute is
 *           Slurm's affair and not done here */
int duration_parse_slurm (const char *text, int64_t *ret_s,
                          struct rv_error *err);

/* duration_format_slurm - seconds to "D-HH:MM:SS" or "HH:MM:SS"; -1 gives
 * "UNLIMITED". buf of at least 32 bytes. Returns buf. */
char *duration_format_slurm (int64_t seconds, char *buf, size_t size);

/* size_parse - "16G" "512M" "100K" "1T" to bytes (powers of 1024). A bare
 * number is mebibytes, as in Slurm's --mem; units in any case, no fractions.
 * "200GB" is refused and the text says "200G". Zero is zero: --mem=0 is all of
 * a node. */
int size_parse (const char *text, int64_t *ret_bytes, struct rv_error *err);

/* count_parse - a strictly positive decimal integer up to [max]; "2x", "+2",
 * " 2", "" are RV_EINVAL. */
int count_parse (const char *text, long max, long *ret, struct rv_error *err);

#endif
