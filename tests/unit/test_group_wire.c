/* SPDX-License-Identifier: Apache-2.0
 * test_group_wire.c - fp32 that travels in 16 bits: the bits of every rank,
 * against a search in the table of all 16-bit values */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group_ranks.h"

#define N 3000

/* The value of a positive 16-bit pattern, from the definition of the types. */
static double value_of (int bits, bool bf16)
{
    int mantissa = bf16 ? 7 : 10, bias = bf16 ? 127 : 15;
    int exponent = bits >> mantissa, rest = bits & ((1 << mantissa) - 1);

    if (exponent == 0)
        return ldexp (rest, 1 - bias - mantissa);
    return ldexp (rest + (1 << mantissa), exponent - bias - mantissa);
}

/* Nearest to even, by search. The pattern of infinity counts as the value that
 * would come after the largest. */
static float rounded (float x, bool bf16)
{
    int low = 0, high = bf16 ? 0x7f80 : 0x7c00, last = high;
    double a = fabs ((double)x), below, above;

    if (isnan (x) || isinf (x))
        return x;
    while (high - low > 1) {
        int mid = (low + high) / 2;

        if (value_of (mid, bf16) <= a)
            low = mid;
        else
            high = mid;
    }
    below = a - value_of (low, bf16);
    above = value_of (high, bf16) - a;
    if (above < below || (above == below && low % 2 == 1))
        low = high;
    return copysignf (low == last ? INFINITY : (float)value_of (low, bf16), x);
}

/* What rank [rank] gives: of all sizes, with ties, overflow and subnormals. */
static float given (int rank, size_t i)
{
    static const float special[] = {
        0.0f,        -0.0f,   65504.0f, 65519.9f, 65520.0f,   1e30f,
        3.4e38f,     6e-8f,   2.98e-8f, 1e-40f,   1.0009765f, 1.00390625f,
        1.01171875f, 2049.0f, 2051.0f,  INFINITY};

    if (i < sizeof (special) / sizeof (*special))
        return special[(i + (size_t)rank) % 16];
    return ldexpf ((float)((i * 2654435761u + (size_t)rank * 40503u) % 99991)
                       - 50000.0f,
                   (int)(i % 40) - 30);
}

static bool same_bits (float a, float b)
{
    return memcmp (&a, &b, sizeof (a)) == 0 || (isnan (a) && isnan (b));
}

static float folded (int size, size_t i, train_op_t op, bool bf16)
{
    float acc = rounded (given (0, i), bf16);

    for (int r = 1; r < size; r++) {
        float x = rounded (given (r, i), bf16);

        acc = op == TRAIN_MAX ? (x > acc ? x : acc) : acc + x;
    }
    return rounded (op == TRAIN_AVG ? acc / (float)size : acc, bf16);
}

static void check_reduce (struct job *job, int rank, train_group_t *group,
                          train_op_t op, bool bf16)
{
    struct seen *s = &job->shared->seen[rank];
    float *x = malloc (N * sizeof (*x));
    int root = job->size - 1;
    train_tensor_t t;

    view_of (&t, x, TRAIN_F32, N);
    for (size_t i = 0; i < N; i++)
        x[i] = given (rank, i);
    if (s->status == TRAIN_OK)
        s->status = train_reduce_wire (group, &t.t, op, root,
                                       bf16 ? TRAIN_BF16 : TRAIN_F16, &s->err);
    for (size_t i = 0; i < N; i++) {
        float want =
            rank == root ? folded (job->size, i, op, bf16) : given (rank, i);

        if (!same_bits (x[i], want))
            note (job, rank, "reduce", bf16, (int)op, i);
    }
    free (x);
}

static void body_wire (struct job *job, int rank, train_group_t *group)
{
    static const train_op_t ops[] = {TRAIN_SUM, TRAIN_AVG, TRAIN_MAX};
    struct seen *s = &job->shared->seen[rank];
    float *x = malloc (N * sizeof (*x));
    train_work_t *work = NULL;
    train_tensor_t t;

    view_of (&t, x, TRAIN_F32, N);
    for (int k = 0; k < 2; k++) {
        train_dtype_t wire = k ? TRAIN_BF16 : TRAIN_F16;

        for (int i = 0; i < 3; i++)
            check_reduce (job, rank, group, ops[i], k);
        for (size_t i = 0; i < N; i++)
            x[i] = given (rank, i);
        if (s->status == TRAIN_OK && k)
            s->status = train_broadcast_wire (group, &t.t, 1, wire, &s->err);
        if (s->status == TRAIN_OK && !k)
            s->status = train_broadcast_wire_async (group, &t.t, 1, wire, &work,
                                                    &s->err);
        if (s->status == TRAIN_OK && !k)
            s->status = train_work_wait (work, -1, &s->err);
        for (size_t i = 0; i < N; i++) {
            if (!same_bits (x[i], rounded (given (1, i), k)))
                note (job, rank, "broadcast", k, 0, i);
        }
    }
    free (x);
}

static void test_wire (void **state)
{
    static const char *const layouts[] = {"aaa", "aab", "abab"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {.layout = layouts[i], .body = body_wire};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* Another type on the wire is another call. */
static void body_other (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float x[4] = {1.001f, 2, 3, 4};
    train_tensor_t t;

    view_of (&t, x, TRAIN_F32, 4);
    s->status = train_reduce_wire (group, &t.t, TRAIN_SUM, 0,
                                   rank == 1 ? TRAIN_F16 : TRAIN_BF16, &s->err);
    if (x[0] != 1.001f)
        note (job, rank, "touched", 0, 0, 0);
}

static void test_other (void **state)
{
    struct job job = {.layout = "aab", .body = body_other};

    (void)state;
    run_job (&job);
    want (&job, "", TRAIN_EMISMATCH,
          "rank 1 called reduce (sum of 4 F16 to rank 0)");
    free_job (&job);
}

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    double d = 1;
    float x = 1.0009765f;
    train_tensor_t t, wide;
    train_error_t err;

    (void)state;
    view_of (&t, &x, TRAIN_F32, 1);
    view_of (&wide, &d, TRAIN_F64, 1);
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_broadcast_wire (NULL, &t.t, 0, TRAIN_BF16, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_broadcast_wire (group, &wide.t, 0, TRAIN_BF16, &err),
        TRAIN_EINVAL);
    assert_int_equal (train_broadcast_wire (group, &t.t, 0, TRAIN_I32, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "F32 does not travel as I32"));
    assert_int_equal (train_broadcast_wire (group, &t.t, 1, TRAIN_F16, &err),
                      TRAIN_EINVAL);
    assert_int_equal (
        train_reduce_wire (group, &t.t, (train_op_t)9, 0, TRAIN_F16, &err),
        TRAIN_EINVAL);
    assert_true (x == 1.0009765f);
    assert_int_equal (
        train_reduce_wire (group, &t.t, TRAIN_AVG, 0, TRAIN_BF16, &err),
        TRAIN_OK);
    assert_true (x == 1); /* one rank rounds too */
    train_group_destroy (group);
}

static void test_factors (void **state)
{
    static const struct {
        int size;
        float before, after;
    } cases[] = {{1, 1, 1},    {2, 2, 1}, {3, 2, 1.5f}, {4, 2, 2},
                 {6, 4, 1.5f}, {8, 4, 2}, {16, 4, 4}};
    float before = -1, after = -1;

    (void)state;
    assert_int_equal (train_divide_factors (0, &before, &after, NULL),
                      TRAIN_EINVAL);
    assert_int_equal (train_divide_factors (2, NULL, &after, NULL),
                      TRAIN_EINVAL);
    assert_int_equal (train_divide_factors (2, &before, NULL, NULL),
                      TRAIN_EINVAL);
    assert_true (before == -1 && after == -1);
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        assert_int_equal (
            train_divide_factors (cases[i].size, &before, &after, NULL),
            TRAIN_OK);
        assert_true (before == cases[i].before && after == cases[i].after);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_factors),
        cmocka_unit_test (test_wire),
        cmocka_unit_test (test_other),
    };

    return cmocka_run_group_tests_name ("group_wire", tests, NULL, NULL);
}
