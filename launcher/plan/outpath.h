/* SPDX-License-Identifier: Apache-2.0
 * outpath.h - the words of rv run --output: names below the working folder. */
#ifndef RV_PLAN_OUTPATH_H
#define RV_PLAN_OUTPATH_H

#include <stdbool.h>
#include <stddef.h>

#include "plan/error.h"

/* outpath_parse - a list, commas between its items, as clean patterns: without
 * "./", doubled and trailing slashes; "." stands for the whole folder.
 *   list      "results,logs/[a-c]*.csv"
 *   ret, n    (n) appended to; NULL behind the last; free with outpath_free.
 *             As they were on failure
 * RV_EINVAL names the item that is empty, begins with "/" or "~/", has a part
 * "..", or a part "**" (a folder comes whole). */
int outpath_parse (const char *list, char ***ret, size_t *n,
                   struct rv_error *err);
void outpath_free (char **list); /* NULL is fine */

/* outpath_match - does the first part of [pattern] match [name]? As a shell
 * does: a leading dot only by itself. */
bool outpath_match (const char *pattern, const char *name);

/* outpath_rest - behind the first part and its slash; NULL: it was the last. */
const char *outpath_rest (const char *pattern);

/* outpath_below - [path] seen from the folder [prefix] ("" = the top), both
 * below one top, as one clean path below that top, malloc'ed.
 *   path   "../data/x", "./a//b"; an absolute one is none of these
 * NULL where it leads above the top, or is absolute, or memory is out. "" is
 * the top itself. */
char *outpath_below (const char *prefix, const char *path);

#endif
