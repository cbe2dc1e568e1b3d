/* SPDX-License-Identifier: Apache-2.0
 * test_halves_move.c - rounded weights into a backend's memory and out of it, in
 * more than one piece */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "halves.h"

#define MOST (((size_t)2 << 20) + 3) /* two pieces, and a bit */

/* Of few bits, so that both types have it: 1/8 to 128, of both signs. */
static float number (size_t i)
{
    return (float)(i % 1021 + 1) * (i & 1 ? 0.125f : -0.125f);
}

static uint16_t bits_of (train_dtype_t dtype, float x)
{
    uint32_t wide;

    memcpy (&wide, &x, sizeof (wide));
    if (dtype == TRAIN_BF16) /* to nearest, ties to even */
        return (uint16_t)((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    return (uint16_t)((wide >> 16 & 0x8000)
                      | (((wide >> 23 & 0xff) - 112) << 10)
                      | (wide >> 13 & 0x3ff));
}

static void try_count (train_dtype_t dtype, size_t n)
{
    float *wide = malloc ((n + 1) * sizeof (*wide));
    uint16_t *half = malloc ((n + 1) * sizeof (*half));
    const struct halves at = {&backend_host, NULL, dtype, half};
    train_error_t err;

    assert_true (wide && half);
    for (size_t i = 0; i <= n; i++)
        wide[i] = number (i);
    half[n] = 0x5a5a;
    assert_int_equal (halves_put (&at, wide, n, &err), TRAIN_OK);
    for (size_t i = 0; i < n; i++)
        if (half[i] != bits_of (dtype, number (i)))
            fail_msg ("element %zu of %zu is %#x", i, n, half[i]);
    assert_int_equal (half[n], 0x5a5a);
    memset (wide, 0, n * sizeof (*wide));
    assert_int_equal (halves_get (&at, wide, n, &err), TRAIN_OK);
    for (size_t i = 0; i < n; i++)
        half[i] ^= bits_of (dtype, wide[i]);
    for (size_t i = 0; i < n; i++)
        if (half[i] != 0)
            fail_msg ("element %zu of %zu came back otherwise", i, n);
    assert_true (wide[n] == number (n));
    free (wide);
    free (half);
}

static void test_pieces (void **state)
{
    static const size_t counts[] = {0, 1, 77, (size_t)1 << 20, MOST};

    (void)state;
    for (size_t i = 0; i < sizeof (counts) / sizeof (*counts); i++) {
        try_count (TRAIN_BF16, counts[i]);
        try_count (TRAIN_F16, counts[i]);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test (test_pieces)};

    return cmocka_run_group_tests_name ("halves_move", tests, NULL, NULL);
}
