/* SPDX-License-Identifier: Apache-2.0
 * differ.h - what the ranks of a job may differ in when they start.
 *
 * A list by commas, of RV_DIFFER, --rv-differ and [differ] allow in rv.conf:
 *   program   the executable and the script it runs
 *   driver    version of the NVIDIA driver
 *   nccl      version of the NCCL library that the loader would pick
 *   timeout   deadline of waits (RV_NCCL_TIMEOUT, else NCCL_TIMEOUT)
 *   ranks     how many ranks there are
 *   NAME      a variable: NCCL_*, TORCH_NCCL_* or DEEPSPEED_TIMEOUT; '*' at
 *             the end stands for any rest, as in NCCL_IB_*
 * NCCL_HOSTID, whose purpose is to differ, is never compared. */
#ifndef RV_PLAN_DIFFER_H
#define RV_PLAN_DIFFER_H

#include <stdbool.h>

#include "plan/error.h"

#define DIFFER_MAX 1024 /* of a list that travels as an option, with its NUL */

/* differ_check - is every item known? NULL and "" name nothing and are fine.
 * RV_EINVAL names the first that is not, and what there is. */
int differ_check (const char *list, struct rv_error *err);

/* differ_allows - does the list (checked, or NULL) let [name] differ? */
bool differ_allows (const char *list, const char *name);

/* differ_compares - is this variable of the environment compared at all?
 *   name   (len) not terminated */
bool differ_compares (const char *name, unsigned long len);

#endif
