/* SPDX-License-Identifier: Apache-2.0
 * hostlist.h - expand Slurm's node lists without Slurm.
 *
 * "n[1-3,05],gpu-a1,x[1-2]y[3-4]" style: any number of brackets, zero padding,
 * commas between hosts. Order is kept; duplicates stay. */
#ifndef RV_PLAN_HOSTLIST_H
#define RV_PLAN_HOSTLIST_H

#include <stddef.h>

#include "plan/error.h"

#define HOSTLIST_MAX 65536 /* hosts; more is RV_EINVAL */

struct hostlist {
    char **host;
    size_t n;
};

/* hostlist_parse - expand [text] into *list (init'ed here).
 * Malformed text (an empty host, a range that runs backwards, a name over 255
 * bytes or with other than letters, digits, '.', '-' and '_') is RV_EINVAL
 * naming the position; *list is then empty. Several brackets expand as
 * slurm_hostlist_create does: the last one turns fastest. */
int hostlist_parse (const char *text, struct hostlist *list,
                    struct rv_error *err);
/* hostlist_find - which host [word] is: one of that name, else the one of that
 * index, a whole number from 0 on. Returns list->n when there is none. */
size_t hostlist_find (const struct hostlist *list, const char *word);
void hostlist_fini (struct hostlist *list); /* NULL and empty are fine */

#endif
