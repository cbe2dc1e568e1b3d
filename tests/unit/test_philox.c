/* SPDX-License-Identifier: Apache-2.0
 * test_philox.c - the known answers that come with Random123 (kat_vectors) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "philox.h"

static const struct {
    uint32_t ctr[4], key[2], out[4];
} vectors[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

static void test_vectors (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        uint32_t out[4];

        philox4x32 (vectors[i].ctr, vectors[i].key, out);
        assert_memory_equal (out, vectors[i].out, sizeof (out));
    }
}

static void test_in_place (void **state)
{
    uint32_t x[4];

    (void)state;
    memcpy (x, vectors[2].ctr, sizeof (x));
    philox4x32 (x, vectors[2].key, x);
    assert_memory_equal (x, vectors[2].out, sizeof (x));
}

static void test_uniform (void **state)
{
    (void)state;
    assert_true (philox_uniform (0, 0) > 0.0);
    assert_true (philox_uniform (0xffffffff, 0xffffffff) < 1.0);
    assert_true (philox_uniform (0x80000000, 0) > 0.5);
    assert_true (philox_uniform (0x7fffffff, 0xffffffff) < 0.5);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_vectors),
        cmocka_unit_test (test_in_place),
        cmocka_unit_test (test_uniform),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
