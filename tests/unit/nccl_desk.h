/* SPDX-License-Identifier: Apache-2.0
 * nccl_desk.h - what a rank works with in tests of the backend nccl, and the
 * values that it gives and wants. For tests alone. */
#ifndef TESTS_UNIT_NCCL_DESK_H
#define TESTS_UNIT_NCCL_DESK_H

#include "fake_nccl.h"
#include "group_ranks.h"

#define N 100

struct desk {
    struct job *job;
    train_group_t *group;
    int rank, size;
    char *in, *out; /* of this rank's GPU */
    train_error_t err;
};

extern const struct fake_orders desk_no_orders;

/* on_gpu - view_of, on the GPU of the rank. */
bool on_gpu (train_tensor_t *t, void *data, train_dtype_t dtype, size_t n,
             const train_group_t *group);

/* put, get - element [i] of any type. */
void put (void *data, train_dtype_t dtype, size_t i, double x);
double get (const void *data, train_dtype_t dtype, size_t i);

/* given - what a rank gives; small integers, which every type holds, their sums
 * and products too. combined - what a reduction makes of it. fill - the rank's. */
double given (int rank, size_t i);
double combined (int size, size_t i, train_op_t op);
void fill (struct desk *d, void *data, train_dtype_t dtype, size_t n);

/* want_value, try_ok - note what is wrong. */
void want_value (struct desk *d, const char *what, const void *data,
                 train_dtype_t dtype, size_t i, double x);
void try_ok (struct desk *d, const char *what, train_status_t status);

/* run_both - on one node and on two; no rank may see an error. */
void run_both (rank_f body);

#endif
