/* SPDX-License-Identifier: Apache-2.0
 * feature.h - node features, and the expressions of sbatch -C over them. */
#ifndef RV_PLAN_FEATURE_H
#define RV_PLAN_FEATURE_H

#include <stdbool.h>
#include <stddef.h>

/* feature_list_has - is the word name[0 .. len) one of the comma separated
 * [list]? Case counts, as for Slurm. NULL is an empty list. */
bool feature_list_has (const char *list, const char *name, size_t len);

/* feature_match - may a node with these features serve -C [expr]?
 *   expr       "a", "a&b", "a,b" (both), "a|b", "[a|b]", "(a|b)&c"; a count as
 *              in "a*2" asks for a number of nodes, not for this one, and is
 *              true of any; NULL or "" matches
 *   features   "a,b", NULL or ""
 * '&' binds tighter than '|'. What cannot be read matches: Slurm decides. */
bool feature_match (const char *expr, const char *features);

/* feature_is_word - a single name without operators? */
bool feature_is_word (const char *expr);

#endif
