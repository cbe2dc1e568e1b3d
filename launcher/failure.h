/* SPDX-License-Identifier: Apache-2.0
 * failure.h - failure.json of a request's folder in words.
 *
 * rv-exec prints it where the failure is first known, `rv run -f` at its end. */
#ifndef RV_FAILURE_H
#define RV_FAILURE_H

#include <jansson.h>
#include <stdbool.h>

/* Every line of the block begins so; the line above it names the cause. */
#define FAILURE_MARK "rv:   "

/* failure_lines - the block under the line that names the cause: when, device,
 * memory, the other ranks, last lines of stderr, advice.
 *   failure   an object as in failure.json; keys that are null, or not there,
 *             say nothing
 *   tail      with the last lines of stderr
 * malloc'ed, each line with its newline; "" when there is nothing to add, NULL
 * when out of memory. */
char *failure_lines (const json_t *failure, bool tail);

#endif
