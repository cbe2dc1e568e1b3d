/* SPDX-License-Identifier: Apache-2.0
 * parent.h - whose child a process of this node is. */
#ifndef RV_PLAN_PARENT_H
#define RV_PLAN_PARENT_H

#include <sys/types.h>

/* parent_of - the parent of the process whose folder in /proc is [name]; 0 when
 * it is gone, or [name] is no process. */
pid_t parent_of (const char *name);

#endif
