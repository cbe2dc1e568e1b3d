/* SPDX-License-Identifier: Apache-2.0
 * reduce.h - combine the elements of several ranks in rank order: pure. Inside
 * libtrain only.
 *
 * A result is a left fold over the ranks, ((r0 + r1) + r2) + ..., in the
 * accumulation type: f32 for bf16 and fp16, else the type itself. Integers wrap
 * around. A NaN of any rank makes a minimum or maximum NaN. An average is the
 * sum divided by the number of ranks, once, before it is rounded to the type. */
#ifndef TRAIN_REDUCE_H
#define TRAIN_REDUCE_H

#include <stddef.h>

#include <train/group.h>

/* Bytes of an element of the accumulation type; 0 for a type without
 * arithmetic. */
size_t reduce_acc_size (train_dtype_t dtype);

/* A stretch of ranks in the fold. */
struct reduce_step {
    train_dtype_t dtype;
    train_op_t op;
    int size;  /* ranks of the whole group, for the average */
    void *acc; /* accumulation type: the ranks before, if any, then these too */
    void *out; /* dtype: the result; NULL = others follow, acc is written */
    const void *const *in; /* (n_in) dtype: these ranks */
    int n_in;
    int first; /* these are the first ranks: acc holds nothing yet */
};

/* reduce_run - one stretch of ranks over elements [from, to) of all buffers.
 * With first and out both set, acc may be NULL. No buffer overlaps another. */
void reduce_run (const struct reduce_step *step, size_t from, size_t to);

#endif
