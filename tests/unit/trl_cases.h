/* SPDX-License-Identifier: Apache-2.0
 * trl_cases.h - libtrain's GRPO beside what TRL's own code made of the same
 * inputs, as tests/interop/trl_cases.py writes both into a file; grpo_torch.py
 * there does it with formulas of its own. */
#ifndef RV_TEST_TRL_CASES_H
#define RV_TEST_TRL_CASES_H

#include <stdbool.h>
#include <stddef.h>

/* trl_cases - every case of a file.
 *   said   called for each with its name and, when it differs, how; NULL: good
 * Returns the number of cases, or -1 when the file cannot be read (said on
 * stderr). */
int trl_cases (const char *path,
               void (*said) (void *arg, const char *name, const char *why),
               void *arg);

#endif
