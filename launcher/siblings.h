/* SPDX-License-Identifier: Apache-2.0
 * siblings.h - end the other jobs of a request, once one runs its command. */
#ifndef RV_SIBLINGS_H
#define RV_SIBLINGS_H

#include <stdint.h>

#include "plan/error.h"

/* siblings_stop - cancel every job of [dir]/jobs but [job_id] and those of its
 * chain. Jobs that have ended are passed over.
 *   ret_n   how many were cancelled
 * The first failure is returned, after all have been tried. */
int siblings_stop (const char *dir, uint32_t job_id, unsigned *ret_n,
                   struct rv_error *err);

#endif
