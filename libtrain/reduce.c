/* SPDX-License-Identifier: Apache-2.0
 * reduce.c - combine the elements of several ranks in rank order */
#include "reduce.h"

#include <string.h>

#include "kernels/half.h"

#define BLOCK 256

#define SAME(x)        (x)
#define PLUS(a, x)     ((a) + (x))
#define MULTIPLY(a, x) ((a) * (x))
/* x != x is true for a NaN alone; integers fold it away. */
#define LESS(a, x)   ((x) < (a) || (x) != (x) ? (x) : (a))
#define MORE(a, x)   ((x) > (a) || (x) != (x) ? (x) : (a))
#define DIVIDE(a, n) ((a) / (n))

#define NAME       f32
#define T          float
#define A          float
#define LOAD       SAME
#define STORE      SAME
#define ADD        PLUS
#define MIN        LESS
#define MAX        MORE
#define TIMES      MULTIPLY
#define OVER(a, n) ((a) / (float)(n))
#include "reduce.inc"

#define NAME       f64
#define T          double
#define A          double
#define LOAD       SAME
#define STORE      SAME
#define ADD        PLUS
#define MIN        LESS
#define MAX        MORE
#define TIMES      MULTIPLY
#define OVER(a, n) ((a) / (double)(n))
#include "reduce.inc"

#define NAME       bf16
#define T          uint16_t
#define A          float
#define LOAD       half_from_bf16
#define STORE      half_to_bf16
#define ADD        PLUS
#define MIN        LESS
#define MAX        MORE
#define TIMES      MULTIPLY
#define OVER(a, n) ((a) / (float)(n))
#include "reduce.inc"

#define NAME       f16
#define T          uint16_t
#define A          float
#define LOAD       half_from_f16
#define STORE      half_to_f16
#define ADD        PLUS
#define MIN        LESS
#define MAX        MORE
#define TIMES      MULTIPLY
#define OVER(a, n) ((a) / (float)(n))
#include "reduce.inc"

#define NAME        i64
#define T           int64_t
#define A           int64_t
#define LOAD        SAME
#define STORE       SAME
#define ADD(a, x)   ((int64_t)((uint64_t)(a) + (uint64_t)(x)))
#define MIN(a, x)   ((x) < (a) ? (x) : (a))
#define MAX(a, x)   ((x) > (a) ? (x) : (a))
#define TIMES(a, x) ((int64_t)((uint64_t)(a) * (uint64_t)(x)))
#define OVER        DIVIDE /* never reached: group.c refuses it */
#include "reduce.inc"

#define NAME        i32
#define T           int32_t
#define A           int32_t
#define LOAD        SAME
#define STORE       SAME
#define ADD(a, x)   ((int32_t)((uint32_t)(a) + (uint32_t)(x)))
#define MIN(a, x)   ((x) < (a) ? (x) : (a))
#define MAX(a, x)   ((x) > (a) ? (x) : (a))
#define TIMES(a, x) ((int32_t)((uint32_t)(a) * (uint32_t)(x)))
#define OVER        DIVIDE
#include "reduce.inc"

size_t reduce_acc_size (train_dtype_t dtype)
{
    switch (dtype) {
    case TRAIN_BF16:
    case TRAIN_F16:
        return sizeof (float);
    case TRAIN_F32:
    case TRAIN_F64:
    case TRAIN_I64:
    case TRAIN_I32:
        return train_dtype_size (dtype);
    case TRAIN_U8:
        break;
    }
    return 0;
}

void reduce_run (const struct reduce_step *step, size_t from, size_t to)
{
    switch (step->dtype) {
    case TRAIN_F32:
        run_f32 (step, from, to);
        break;
    case TRAIN_F64:
        run_f64 (step, from, to);
        break;
    case TRAIN_BF16:
        run_bf16 (step, from, to);
        break;
    case TRAIN_F16:
        run_f16 (step, from, to);
        break;
    case TRAIN_I64:
        run_i64 (step, from, to);
        break;
    case TRAIN_I32:
        run_i32 (step, from, to);
        break;
    case TRAIN_U8:
        break;
    }
}
