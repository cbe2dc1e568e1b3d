/* SPDX-License-Identifier: Apache-2.0
 * test_view.c - packing, conversion, and what a sum must notice */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "kernels/view_elem.h"

#define N 40000

static unsigned char a[N], b[N];

static struct kern_view bytes_of (void *p, uint64_t n)
{
    return (struct kern_view){
        .data = p, .compact = 1, .in_size = 1, .wire_size = 1, .n = n};
}

static uint64_t sum_of (const void *p, uint64_t n, uint64_t every)
{
    struct kern_view v = bytes_of ((void *)p, n);
    uint64_t sum = 0;

    kern_view_sum_host (&sum, &v, 0, (n + 7) / 8, every, NULL);
    return sum;
}

static void fill (void)
{
    for (size_t i = 0; i < N; i++)
        a[i] = (unsigned char)((i * 2654435761u) >> 13);
    memcpy (b, a, N);
}

/* The sum of parts is the sum of the whole, wherever it is cut and lies. */
static void test_sum_parts (void **state)
{
    static const uint64_t sizes[] = {0,   1,   7,   8,   9,    31,   63,   64,
                                     127, 128, 136, 264, 4096, 4099, 5001, N};

    (void)state;
    fill ();
    for (size_t i = 0; i < sizeof (sizes) / sizeof (*sizes); i++) {
        uint64_t n = sizes[i], words = (n + 7) / 8, sum = 0, want = 0;
        struct kern_view v = bytes_of (a, n);

        for (uint64_t w = 0; w < words; w += 5)
            kern_view_sum_host (&sum, &v, w, words - w < 5 ? words - w : 5, 1,
                                NULL);
        for (uint64_t w = 0; w < words; w++)
            want += sum_mix (view_word (&v, w), w);
        assert_int_equal (sum, want);
        assert_int_equal (sum_of (a, n, 1), want);
        memmove (b + 1, a, n < N ? n : N - 1);
        if (n < N)
            assert_int_equal (sum_of (b + 1, n, 1), want);
    }
}

/* Golden: the value is part of what processes exchange. */
static void test_sum_golden (void **state)
{
    (void)state;
    assert_int_equal (sum_of ("", 0, 1), 0);
    assert_int_equal (sum_of ("abcdefgh", 8, 1),
                      sum_mix (0x6867666564636261u, 0));
    assert_int_equal (sum_of ("abcdefgh", 8, 1), 0x18a987c70303db8u);
}

static void test_sum_notices (void **state)
{
    uint64_t want;

    (void)state;
    fill ();
    want = sum_of (a, N, 1);
    for (size_t i = 0; i < N; i += 997) {
        b[i] ^= 0x10;
        assert_true (sum_of (b, N, 1) != want);
        b[i] ^= 0x10;
    }
    b[N - 1] ^= 1;
    assert_true (sum_of (b, N, 1) != want);
    b[N - 1] ^= 1;
    /* swapped: words, pages, halves */
    for (size_t size = 8; size <= N / 2; size *= 2) {
        memcpy (b, a + size, size);
        memcpy (b + size, a, size);
        assert_true (sum_of (b, N, 1) != want);
        memcpy (b, a, N);
    }
    memset (b, 0, N);
    assert_true (sum_of (b, N, 1) != want);
    assert_true (sum_of (b, N - 8, 1) != sum_of (b, N, 1));
}

static void test_sum_sample (void **state)
{
    uint64_t want;

    (void)state;
    fill ();
    want = sum_of (a, N, 4);
    b[4096 * 4 + 17] ^= 1; /* block 4 counts */
    assert_true (sum_of (b, N, 4) != want);
    b[4096 * 4 + 17] ^= 1;
    b[4096 * 5 + 17] ^= 1; /* block 5 does not */
    assert_int_equal (sum_of (b, N, 4), want);
    b[N - 1] ^= 1; /* the last does */
    assert_true (sum_of (b, N, 4) != want);
}

/* A transposed view: what it packs, and its sum is that of the packed. */
static void test_strided (void **state)
{
    uint16_t x[12], y[12], z[12] = {0};
    struct kern_view v = {
        .data = x,
        .ndim = 2,
        .in_size = 2,
        .wire_size = 2,
        .n = 12,
        .shape = {4, 3},
        .strides = {1, 4},
    };
    uint64_t sum = 0;

    (void)state;
    for (uint16_t i = 0; i < 12; i++)
        x[i] = (uint16_t)(100 + i);
    kern_view_pack_host (y, &v, 0, 12, NULL);
    for (int i = 0; i < 12; i++)
        assert_int_equal (y[i], 100 + i / 3 + i % 3 * 4);
    kern_view_sum_host (&sum, &v, 0, 3, 1, NULL);
    assert_int_equal (sum, sum_of (y, sizeof (y), 1));
    v.data = z;
    kern_view_unpack_host (&v, y, 0, 7, NULL);
    kern_view_unpack_host (&v, y + 7, 7, 5, NULL);
    assert_memory_equal (z, x, sizeof (x));
}

static void test_convert (void **state)
{
    static const float x[] = {1.0f, -2.5f, 65520.0f, 1e-8f, INFINITY, NAN};
    uint16_t y[6];
    float back[6];
    struct kern_view v = {.data = (void *)x,
                          .compact = 1,
                          .from = KERN_F32,
                          .to = KERN_F16,
                          .in_size = 4,
                          .wire_size = 2,
                          .n = 6};
    struct kern_view w = {.data = y,
                          .compact = 1,
                          .from = KERN_F16,
                          .to = KERN_F32,
                          .in_size = 2,
                          .wire_size = 4,
                          .n = 6};
    uint64_t count[2] = {0, 0}, sum = 0;

    (void)state;
    kern_view_pack_host (y, &v, 0, 6, NULL);
    for (int i = 0; i < 6; i++)
        assert_int_equal (y[i], half_to_f16 (x[i]));
    kern_view_sum_host (&sum, &v, 0, 2, 1, NULL);
    assert_int_equal (sum, sum_of (y, sizeof (y), 1));
    kern_view_nonfinite_host (count, &v, KERN_F16, NULL);
    assert_int_equal (count[0], 1);
    assert_int_equal (count[1], 2);
    kern_view_pack_host (back, &w, 0, 6, NULL);
    assert_true (back[1] == -2.5f && isinf (back[2]) && isnan (back[5]));
}

static void test_pieces (void **state)
{
    unsigned char wire[64], c[64] = {0};
    struct kern_piece p[] = {{a, 0, 5}, {a + 100, 16, 16}, {a + 9, 32, 13}};
    struct kern_piece q[] = {{c, 0, 5}, {c + 5, 16, 16}, {c + 21, 32, 13}};
    uint64_t s = 0, t = 0;

    (void)state;
    fill ();
    kern_pieces_pack_host (wire, p, 3, 0, NULL);
    kern_pieces_unpack_host (q, 3, wire, 0, NULL);
    assert_memory_equal (c, a, 5);
    assert_memory_equal (c + 5, a + 100, 16);
    assert_memory_equal (c + 21, a + 9, 13);
    kern_pieces_sum_host (&s, p, 3, NULL);
    kern_pieces_sum_host (&t, q, 3, NULL);
    assert_int_equal (s, t);
    c[20] ^= 2;
    t = 0;
    kern_pieces_sum_host (&t, q, 3, NULL);
    assert_true (s != t);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_sum_parts),   cmocka_unit_test (test_sum_golden),
        cmocka_unit_test (test_sum_notices), cmocka_unit_test (test_sum_sample),
        cmocka_unit_test (test_strided),     cmocka_unit_test (test_convert),
        cmocka_unit_test (test_pieces),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
