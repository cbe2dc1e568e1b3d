/* SPDX-License-Identifier: Apache-2.0
 * group_mpi.h - what the parts of group_mpi share */
#ifndef TESTS_INTEROP_GROUP_MPI_H
#define TESTS_INTEROP_GROUP_MPI_H

#include <train/group.h>

/* join - NULL: it has been said why not. */
train_group_t *join (const char *backend, const char *name, int64_t timeout_ms);
train_status_t sum (train_group_t *group, float *data, int64_t n,
                    train_error_t *err);

/* Modes: mismatch, late, depart; stopped. The exit status. */
int fault (const char *mode);
int stopped (void);

#endif
