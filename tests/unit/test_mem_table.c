/* SPDX-License-Identifier: Apache-2.0
 * test_mem_table.c - places of units that are whole for a while, and bytes of a
 * rank as they are foretold */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "libtrain/fsdp_fit.h"
#include "libtrain/mem_table.h"

#define ROW 40

static size_t sizes[ROW], places[ROW];

static bool apart (size_t i, size_t k)
{
    return places[i] + sizes[i] <= places[k]
           || places[k] + sizes[k] <= places[i];
}

static void check_fit (size_t n, size_t ahead)
{
    size_t total = fsdp_fit (sizes, n, ahead, places);

    assert_int_equal (total, fsdp_fit (sizes, n, ahead, NULL));
    for (size_t i = 0; i < n; i++) {
        if (places[i] % 256 != 0 || places[i] + sizes[i] > total)
            fail_msg ("%zu ahead: unit %zu of %zu at %zu, of %zu elements in "
                      "%zu",
                      ahead, i, n, places[i], sizes[i], total);
        for (size_t k = i + 1; k < n && k <= i + ahead; k++)
            if (!apart (i, k))
                fail_msg ("%zu ahead: units %zu and %zu of %zu share memory",
                          ahead, i, k, n);
    }
}

/* Whatever the sizes: neighbours are apart, and in lines. */
static void test_fit (void **state)
{
    uint32_t x = 1;

    (void)state;
    for (int k = 0; k < 200; k++) {
        for (size_t i = 0; i < ROW; i++) {
            x = x * 1664525 + 1013904223;
            sizes[i] = x >> 8 & 4 ? 0 : x >> 12;
        }
        for (size_t ahead = 0; ahead < 5; ahead++)
            check_fit (1 + (size_t)k % ROW, ahead);
    }
}

/* An embedding, blocks and a head: the largest two that are neighbours. */
static void test_fit_pairs (void **state)
{
    (void)state;
    for (size_t n = 3; n < 7; n++) {
        for (size_t i = 0; i < n; i++)
            sizes[i] = i == 0 || i == n - 1 ? 1024 : 512;
        assert_int_equal (fsdp_fit (sizes, n, 1, NULL), 1024 + 512);
        assert_int_equal (fsdp_fit (sizes, n, 0, NULL), 1024);
        /* the last one's place is the first one's where it is [n - 1] behind */
        assert_int_equal (fsdp_fit (sizes, n, n - 2, NULL),
                          1024 + (n - 2) * 512);
    }
    assert_int_equal (fsdp_fit (sizes, 1, 1, NULL), 1024);
}

static size_t bytes_of (const struct mem_row *rows, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp (rows[i].what, what) == 0)
            return rows[i].bytes;
    return 0;
}

static const train_trainer_options_t four = {
    .size = sizeof (four),
    .batch = 16,
    .strategy = TRAIN_FULL_SHARD,
    .prefetch = 1,
};

/* What four ranks gather: by units, and by units side by side. */
static void test_gathered (void **state)
{
    const train_decoder_config_t c = {.size = sizeof (c),
                                      .layers = 2,
                                      .dim = 1024,
                                      .heads = 8,
                                      .kv_heads = 8,
                                      .ffn = 4096,
                                      .vocab = 1000,
                                      .tie = true,
                                      .rope_theta = 10000,
                                      .norm_eps = 1e-5,
                                      .dtype = TRAIN_BF16};
    const size_t block = 4 * 1024 * 1024 + 3 * 1024 * 4096 + 2 * 1024;
    const size_t joined = 1000 * 1024 + 2 * block; /* the head's norm is left */
    train_trainer_options_t o = four;
    struct mem_row rows[MEM_ROWS];
    size_t n;

    (void)state;
    o.reduce_bf16 = true;
    for (int wrapped = 0; wrapped < 2; wrapped++) {
        size_t most = wrapped ? joined + 1024 : 2 * block;

        o.wrap = wrapped ? TRAIN_WRAP_SIZE : TRAIN_WRAP_UNIT;
        o.least = wrapped ? 20000000 : 0;
        assert_int_equal (
            mem_table (&c, false, &o, 4, 16, false, rows, &n, NULL), 0);
        assert_int_equal (bytes_of (rows, n, "weights, whole units"), most * 2);
        assert_int_equal (bytes_of (rows, n, "gradients, whole units"),
                          most * 4);
        assert_int_equal (bytes_of (rows, n, "gradients on their way"),
                          most * 2);
        o.prefetch = 7;
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_fit),
        cmocka_unit_test (test_fit_pairs),
        cmocka_unit_test (test_gathered),
    };

    return cmocka_run_group_tests_name ("mem_table", tests, NULL, NULL);
}
