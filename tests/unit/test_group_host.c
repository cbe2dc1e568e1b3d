/* SPDX-License-Identifier: Apache-2.0
 * test_group_host.c - results of a group of several processes, on one node and
 * on several, against a plain reference in rank order */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "group_ranks.h"
#include "kernels/half.h"

/* Values that differ by rank and place; every bit pattern class of floats. */
static double value_of (int rank, size_t i, train_dtype_t dtype, train_op_t op)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) << 40;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    if (dtype == TRAIN_I64 || dtype == TRAIN_I32)
        return (double)(int32_t)x;
    if (i % 1009 == 5 && rank % 3 == 1)
        return x & 1 ? NAN : INFINITY;
    if (op == TRAIN_MIN && i % 101 == 0)
        return rank % 2 ? 0.0 : -0.0;
    return ((double)(int32_t)x) / 65536.0;
}

static void put (void *data, size_t i, train_dtype_t dtype, double v)
{
    switch (dtype) {
    case TRAIN_F32:
        ((float *)data)[i] = (float)v;
        break;
    case TRAIN_F64:
        ((double *)data)[i] = v;
        break;
    case TRAIN_BF16:
        ((uint16_t *)data)[i] = half_to_bf16 ((float)v);
        break;
    case TRAIN_F16:
        ((uint16_t *)data)[i] = half_to_f16 ((float)v);
        break;
    case TRAIN_I64:
        ((int64_t *)data)[i] = (int64_t)v * INT64_C (4294967311);
        break;
    case TRAIN_I32:
        ((int32_t *)data)[i] = (int32_t)v;
        break;
    case TRAIN_U8:
        ((uint8_t *)data)[i] = (uint8_t)(int32_t)v;
        break;
    }
}

/* The definition, one element at a time: a fold in rank order. */
#define FOLD(type, get)                                                        \
    do {                                                                       \
        type acc = get (0);                                                    \
        for (int r = 1; r < size; r++) {                                       \
            type x = get (r);                                                  \
            if (op == TRAIN_MIN)                                               \
                acc = (x < acc || x != x) ? x : acc;                           \
            else if (op == TRAIN_MAX)                                          \
                acc = (x > acc || x != x) ? x : acc;                           \
            else if (op == TRAIN_PROD)                                         \
                acc = acc * x;                                                 \
            else                                                               \
                acc = acc + x;                                                 \
        }                                                                      \
        if (op == TRAIN_AVG)                                                   \
            acc = acc / (type)size;                                            \
        result = acc;                                                          \
    } while (0)

static void fold_float (void *out, size_t i, void *const *in, int size,
                        train_dtype_t dtype, train_op_t op)
{
    float result;

#define GET_F32(r)  (((const float *)in[r])[i])
#define GET_BF16(r) (half_from_bf16 (((const uint16_t *)in[r])[i]))
#define GET_F16(r)  (half_from_f16 (((const uint16_t *)in[r])[i]))
    if (dtype == TRAIN_F32) {
        FOLD (float, GET_F32);
        ((float *)out)[i] = result;
    } else if (dtype == TRAIN_BF16) {
        FOLD (float, GET_BF16);
        ((uint16_t *)out)[i] = half_to_bf16 (result);
    } else {
        FOLD (float, GET_F16);
        ((uint16_t *)out)[i] = half_to_f16 (result);
    }
}

static void fold_one (void *out, size_t i, void *const *in, int size,
                      train_dtype_t dtype, train_op_t op)
{
    if (dtype == TRAIN_F64) {
        double result;

#define GET_F64(r) (((const double *)in[r])[i])
        FOLD (double, GET_F64);
        ((double *)out)[i] = result;
    } else if (dtype == TRAIN_I64 || dtype == TRAIN_I32) {
        bool wide = dtype == TRAIN_I64;
        int64_t acc =
            wide ? ((const int64_t *)in[0])[i] : ((const int32_t *)in[0])[i];

        for (int r = 1; r < size; r++) {
            int64_t x = wide ? ((const int64_t *)in[r])[i]
                             : ((const int32_t *)in[r])[i];

            if (op == TRAIN_SUM)
                acc = (int64_t)((uint64_t)acc + (uint64_t)x);
            else if (op == TRAIN_PROD)
                acc = (int64_t)((uint64_t)acc * (uint64_t)x);
            else if (op == TRAIN_MIN ? x < acc : x > acc)
                acc = x;
        }
        if (wide)
            ((int64_t *)out)[i] = acc;
        else
            ((int32_t *)out)[i] = (int32_t)(uint32_t)(uint64_t)acc;
    } else {
        fold_float (out, i, in, size, dtype, op);
    }
}

static void check_result (struct job *job, int rank, train_group_t *group,
                          const void *data, size_t n, train_dtype_t dtype,
                          int op, void *const *want)
{
    size_t bytes = n * train_dtype_size (dtype);

    job->shared->hash[rank] = XXH3_64bits (data, bytes);
    if (rank == 0 && memcmp (data, want[job->size], bytes) != 0)
        note (job, rank, "result is not the reference", dtype, op, n);
    train_barrier (group, NULL);
    if (job->shared->hash[rank] != job->shared->hash[0])
        note (job, rank, "not rank 0's bits", dtype, op, n);
    train_barrier (group, NULL);
}

static void try_reduce (struct job *job, int rank, train_group_t *group,
                        void **buf, size_t n, train_dtype_t dtype,
                        train_op_t op)
{
    struct seen *s = &job->shared->seen[rank];
    train_tensor_t t;

    for (int r = 0; r < job->size; r++) {
        for (size_t i = 0; (rank == 0 || r == rank) && i < n; i++)
            put (buf[r], i, dtype, value_of (r, i, dtype, op));
    }
    for (size_t i = 0; rank == 0 && i < n; i++)
        fold_one (buf[job->size], i, buf, job->size, dtype, op);
    view_of (&t, n ? buf[rank] : NULL, dtype, n);
    s->status = train_all_reduce (group, &t.t, op, &s->err);
    if (s->status != TRAIN_OK)
        return;
    check_result (job, rank, group, buf[rank], n, dtype, (int)op, buf);
}

#define BUF_BYTES ((1u << 20) + 64)

static void body_reduce (struct job *job, int rank, train_group_t *group)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16, TRAIN_I64, TRAIN_I32};
    struct seen *s = &job->shared->seen[rank];
    void *buf[MAX_RANKS + 1];

    for (int r = 0; r <= job->size; r++)
        buf[r] = malloc (BUF_BYTES);
    for (size_t d = 0; d < 6; d++) {
        size_t large = (1u << 20) / train_dtype_size (dtypes[d]) + 3;
        size_t sizes[] = {0, 1, 37, large};
        bool whole = dtypes[d] == TRAIN_I64 || dtypes[d] == TRAIN_I32;

        for (size_t i = 0; i < 20 && s->status == TRAIN_OK; i++) {
            train_op_t op = (train_op_t)(i % 5);

            /* of the large ones, the sum and one other of each type */
            if (i / 5 == 3 && op != TRAIN_SUM && i % 5 != d % 5)
                continue;
            if (op != TRAIN_AVG || !whole)
                try_reduce (job, rank, group, buf, sizes[i / 5], dtypes[d], op);
        }
    }
    for (int r = 0; r <= job->size; r++)
        free (buf[r]);
}

static void body_broadcast (struct job *job, int rank, train_group_t *group)
{
    static const size_t sizes[] = {0, 1, 12345, (1u << 20) + 3, 3u << 20};
    struct seen *s = &job->shared->seen[rank];
    uint8_t *data = malloc (3u << 20);
    train_tensor_t t;

    for (int root = 0; root < job->size; root++) {
        for (size_t k = 0; k < 5 && s->status == TRAIN_OK; k++) {
            size_t n = sizes[k];

            for (size_t i = 0; i < n; i++)
                data[i] = (uint8_t)(rank == root ? i * 7 + (size_t)root : 255);
            view_of (&t, data, TRAIN_U8, n);
            s->status = train_broadcast (group, &t.t, root, &s->err);
            for (size_t i = 0; i < n; i++) {
                if (data[i] != (uint8_t)(i * 7 + (size_t)root))
                    note (job, rank, "wrong byte", root, 0, i);
            }
            if (n % 2) /* other collectives between, through the same rings */
                train_barrier (group, NULL);
        }
    }
    free (data);
}

static void test_half (void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t u = (uint16_t)h;
        bool nan16 = (h & 0x7fff) > 0x7c00, nanb = (h & 0x7fff) > 0x7f80;

        assert_int_equal (half_to_f16 (half_from_f16 (u)),
                          nan16 ? u | 0x200 : u);
        assert_int_equal (half_to_bf16 (half_from_bf16 (u)),
                          nanb ? u | 0x40 : u);
    }
    assert_true (half_from_f16 (0x3555) == 0x1.554p-2f);
    assert_true (half_from_f16 (0x0001) == 0x1p-24f);
    assert_int_equal (half_to_f16 (65519.996f), 0x7bff);
    assert_int_equal (half_to_f16 (65520.0f), 0x7c00);
    assert_int_equal (half_to_f16 (-1e30f), 0xfc00);
    assert_int_equal (half_to_f16 (0x1p-25f), 0x0000); /* tie to even */
    assert_int_equal (half_to_f16 (0x1.8p-24f), 0x0002);
    assert_int_equal (half_to_f16 (0x1.002p0f), 0x3c00);
    assert_int_equal (half_to_f16 (0x1.006p0f), 0x3c02);
    assert_int_equal (half_to_bf16 (0x1.01p0f), 0x3f80); /* tie to even */
    assert_int_equal (half_to_bf16 (0x1.03p0f), 0x3f82);
    assert_int_equal (half_to_bf16 (0x1.010002p0f), 0x3f81);
    assert_int_equal (half_to_bf16 (3.4e38f), 0x7f80);
}

static void test_all_reduce (void **state)
{
    static const char *const layouts[] = {
        "a", "aa", "aaa", "aaaa", "ab", "aabb", "abab", "aaabbcc", "abcabca"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body_reduce};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

static void test_broadcast (void **state)
{
    static const char *const layouts[] = {"a", "aaaa", "aabb", "abab",
                                          "aaabbcc"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body_broadcast};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* Without NODE_RANK the ranks of a node follow each other. */
static void body_local (struct job *job, int rank, train_group_t *group)
{
    if (train_group_local_rank (group) != rank % 2
        || train_group_local_size (group) != 2
        || train_group_rank (group) != rank || train_group_size (group) != 4
        || strcmp (train_group_backend (group), "host") != 0)
        note (job, rank, "wrong facts", 0, 0, 0);
}

static void test_facts (void **state)
{
    struct job job = {
        .layout = "aabb", .body = body_local, .no_node_rank = true};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

/* The last to arrive must not see those who are done already as dead. */
static void body_barriers (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];

    for (int i = 0; i < job->arg && s->status == TRAIN_OK; i++)
        s->status = train_barrier (group, &s->err);
    if (rank % 2)
        _exit (0); /* without saying goodbye */
}

static void test_barrier (void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct job job = {.layout = i % 2 ? "aabb" : "aaaa",
                          .body = body_barriers,
                          .arg = 1 + i * 5};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

static int interrupts; /* that many calls are cut short by a signal */

int posix_fallocate (int fd, off_t at, off_t n)
{
    if (interrupts > 0) {
        interrupts--;
        return EINTR;
    }
    return fallocate (fd, 0, at, n) == 0 ? 0 : errno;
}

static void body_barrier (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];

    s->status = train_barrier (group, &s->err);
}

/* Signals come while the memory of a node is reserved, as a profiler's do. */
static void test_interrupted (void **state)
{
    struct job job = {.layout = "aab", .body = body_barrier};

    (void)state;
    interrupts = 5;
    run_job (&job);
    interrupts = 0;
    want_ok (&job);
    free_job (&job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_half),       cmocka_unit_test (test_facts),
        cmocka_unit_test (test_all_reduce), cmocka_unit_test (test_broadcast),
        cmocka_unit_test (test_barrier),    cmocka_unit_test (test_interrupted),
    };

    return cmocka_run_group_tests_name ("group_host", tests, NULL, NULL);
}
