/* SPDX-License-Identifier: Apache-2.0
 * test_ckpt_ranges.c - every cut of a small tensor against every wanted range
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "ckpt_ranges.h"

#define N 9 /* elements: 2^8 cuts, 55 wants each */

/* Pieces of 0..n-1, one ending behind each element whose bit is set. */
static size_t cut (struct ckpt_range *r, int n, unsigned bits)
{
    size_t k = 0;
    int64_t first = 0;

    for (int i = 0; i < n; i++)
        if (i == n - 1 || bits >> i & 1) {
            r[k++] = (struct ckpt_range){first, i + 1 - first};
            first = i + 1;
        }
    return k;
}

/* The parts, one by one, must be the elements that were wanted. */
static void one (const struct ckpt_range *have, size_t n, int64_t first,
                 int64_t count)
{
    struct ckpt_part part[N + 1];
    size_t k =
        ckpt_ranges_plan (have, n, (struct ckpt_range){first, count}, part);
    int64_t at = 0;

    assert_true (k <= n);
    for (size_t i = 0; i < k; i++) {
        const struct ckpt_range *h = &have[part[i].piece];

        assert_true (part[i].count >= 1 && part[i].from >= 0);
        assert_true (part[i].from + part[i].count <= h->count);
        assert_int_equal (part[i].to, at);
        assert_int_equal (h->first + part[i].from, first + at);
        at += part[i].count;
    }
    assert_int_equal (at, count);
}

static void test_every_plan (void **state)
{
    struct ckpt_range have[N];

    (void)state;
    for (int n = 1; n <= N; n++)
        for (unsigned bits = 0; bits < 1u << (n - 1); bits++) {
            size_t k = cut (have, n, bits);

            assert_int_equal (ckpt_ranges_fault (have, k, n), -1);
            for (int first = 0; first <= n; first++)
                for (int count = 0; count <= n - first; count++)
                    one (have, k, first, count);
        }
    one (have, 0, 0, 0);
}

/* Three ranges of all kinds, sorted by first: found out by counting. */
static int64_t fault_of (const struct ckpt_range *r, int n)
{
    int times[3 * N] = {0}, past = 0;

    for (int i = 0; i < 3; i++)
        for (int64_t k = 0; k < r[i].count; k++)
            times[r[i].first + k]++;
    for (int i = 0; i < n; i++)
        if (times[i] != 1)
            return i;
    for (int i = n; i < 3 * N; i++)
        past += times[i];
    return past ? n : -1;
}

static void test_every_fault (void **state)
{
    enum { M = 5 };
    int bad = 0, good = 0;
    struct ckpt_range r[3];

    (void)state;
    for (int64_t code = 0; code < M * M * M * M * M * M; code++) {
        int64_t c = code;
        int64_t fault;

        for (int i = 0; i < 3; i++, c /= M * M)
            r[i] = (struct ckpt_range){c % M, c / M % M};
        if (r[0].first > r[1].first || r[1].first > r[2].first)
            continue;
        fault = ckpt_ranges_fault (r, 3, M);
        assert_int_equal (fault >= 0, fault_of (r, M) >= 0);
        bad += fault >= 0;
        good += fault < 0;
    }
    assert_true (bad > 1000 && good > 10);
    assert_int_equal (ckpt_ranges_fault (NULL, 0, 0), -1);
    assert_int_equal (ckpt_ranges_fault (NULL, 0, 3), 0);
    r[0] = (struct ckpt_range){0, 2};
    r[1] = (struct ckpt_range){3, 2};
    assert_int_equal (ckpt_ranges_fault (r, 2, 5), 2); /* nobody's */
    r[1].first = 1;
    assert_int_equal (ckpt_ranges_fault (r, 2, 3), 1); /* two ranks' */
    r[1] = (struct ckpt_range){2, INT64_MAX};
    assert_int_equal (ckpt_ranges_fault (r, 2, 5), 5); /* past the end */
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_every_plan),
        cmocka_unit_test (test_every_fault),
    };

    return cmocka_run_group_tests_name ("ckpt_ranges", tests, NULL, NULL);
}
