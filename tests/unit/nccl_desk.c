/* SPDX-License-Identifier: Apache-2.0
 * nccl_desk.c - values of every type for tests of the backend nccl */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "nccl_desk.h"

#include <stdio.h>

#include "kernels/half.h"

const struct fake_orders desk_no_orders = {.rank = -1};

bool on_gpu (train_tensor_t *t, void *data, train_dtype_t dtype, size_t n,
             const train_group_t *group)
{
    bool good = view_of (t, data, dtype, n);

    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = train_group_local_rank (group);
    return good;
}

void put (void *data, train_dtype_t dtype, size_t i, double x)
{
    switch (dtype) {
    case TRAIN_F32:
        ((float *)data)[i] = (float)x;
        break;
    case TRAIN_F64:
        ((double *)data)[i] = x;
        break;
    case TRAIN_BF16:
        ((uint16_t *)data)[i] = half_to_bf16 ((float)x);
        break;
    case TRAIN_F16:
        ((uint16_t *)data)[i] = half_to_f16 ((float)x);
        break;
    case TRAIN_I64:
        ((int64_t *)data)[i] = (int64_t)x;
        break;
    case TRAIN_I32:
        ((int32_t *)data)[i] = (int32_t)x;
        break;
    case TRAIN_U8:
        ((uint8_t *)data)[i] = (uint8_t)x;
        break;
    }
}

double get (const void *data, train_dtype_t dtype, size_t i)
{
    switch (dtype) {
    case TRAIN_F32:
        return ((const float *)data)[i];
    case TRAIN_F64:
        return ((const double *)data)[i];
    case TRAIN_BF16:
        return half_from_bf16 (((const uint16_t *)data)[i]);
    case TRAIN_F16:
        return half_from_f16 (((const uint16_t *)data)[i]);
    case TRAIN_I64:
        return (double)((const int64_t *)data)[i];
    case TRAIN_I32:
        return ((const int32_t *)data)[i];
    case TRAIN_U8:
        return ((const uint8_t *)data)[i];
    }
    return -1;
}

/* Small integers: every type holds them, their sums and products exactly. */
double given (int rank, size_t i)
{
    return (double)(rank + 1) + (double)(i % 3);
}

double combined (int size, size_t i, train_op_t op)
{
    double x = given (0, i);

    for (int r = 1; r < size; r++) {
        double y = given (r, i);

        x = op == TRAIN_MIN    ? (y < x ? y : x)
            : op == TRAIN_MAX  ? (y > x ? y : x)
            : op == TRAIN_PROD ? x * y
                               : x + y;
    }
    return op == TRAIN_AVG ? x / size : x;
}

void fill (struct desk *d, void *data, train_dtype_t dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put (data, dtype, i, given (d->rank, i));
}

void want_value (struct desk *d, const char *what, const void *data,
                 train_dtype_t dtype, size_t i, double x)
{
    double y = get (data, dtype, i);
    char text[100];

    /* an average of three may have no place in a short type */
    if (y >= x - 0.02 * x && y <= x + 0.02 * x)
        return;
    snprintf (text, sizeof (text), "%s [%zu] is %g, want %g", what, i, y, x);
    note (d->job, d->rank, text, dtype, 0, i);
}

void try_ok (struct desk *d, const char *what, train_status_t status)
{
    struct seen *s = &d->job->shared->seen[d->rank];

    if (status != TRAIN_OK && s->status == TRAIN_OK) {
        s->status = status;
        s->err = d->err;
        note (d->job, d->rank, what, 0, 0, 0);
    }
}

void run_both (rank_f body)
{
    static const char *const layouts[] = {"aaa", "aab"};

    for (int i = 0; i < 2; i++) {
        struct job job = {
            .layout = layouts[i], .body = body, .backend = "nccl"};

        fake_open (&desk_no_orders);
        run_job (&job);
        want_ok (&job);
        for (int r = 0; r < job.size; r++)
            assert_int_equal (fake_seen_of (r)->aborts, 0);
        free_job (&job);
        fake_close ();
    }
}
