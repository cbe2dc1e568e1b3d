/* SPDX-License-Identifier: Apache-2.0
 * test_mem_table.c - places of units that are whole for a while, and bytes of a
 * rank as they are foretold */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <string.h>

#include "libtrain/fsdp_fit.h"
#include "libtrain/mem_table.h"

#define ROW 40

#if HAVE_CUDA
static const bool cuda = true;
#else
static const bool cuda;
#endif

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

/* Half of it frozen, on two: what a rank trains has moments, in f32 as in halves,
 * where a shard's weights are their own masters. */
static void test_frozen (void **state)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 4,
                                .dim = 64,
                                .heads = 4,
                                .kv_heads = 4,
                                .ffn = 128,
                                .vocab = 1000,
                                .tie = true,
                                .rope_theta = 10000,
                                .norm_eps = 1e-5};
    static const train_dtype_t dtype[] = {TRAIN_F32, TRAIN_BF16};
    train_trainer_options_t o = four;
    struct mem_row rows[MEM_ROWS];
    size_t n;

    (void)state;
    o.frozen = "*embed*,*layers.[01].*";
    for (int i = 0; i < 2; i++) {
        size_t grads;

        c.dtype = dtype[i];
        assert_int_equal (
            mem_table (&c, false, &o, 2, 16, false, rows, &n, NULL), 0);
        grads = bytes_of (rows, n, "gradients");
        assert_true (grads > 0
                     && grads * 2 < bytes_of (rows, n, "weights")
                                        * (dtype[i] == TRAIN_F32 ? 1 : 2));
        assert_int_equal (bytes_of (rows, n, "AdamW's moments"), 2 * grads);
    }
}

static train_decoder_config_t of_gpu (int layers, int dim, int heads)
{
    return (train_decoder_config_t){.size = sizeof (train_decoder_config_t),
                                    .layers = layers,
                                    .dim = dim,
                                    .heads = heads,
                                    .kv_heads = 8,
                                    .ffn = 8192,
                                    .vocab = 50304,
                                    .rope_theta = 10000,
                                    .norm_eps = 1e-6,
                                    .dtype = TRAIN_BF16,
                                    .device = {kDLCUDA, 0}};
}

/* The sum of the rows of one of [world]; 0 where this build knows no layouts of a
 * GPU. */
static size_t total_of (const train_decoder_config_t *c,
                        const train_trainer_options_t *o, int world,
                        struct mem_row *rows, size_t *ret_n)
{
    size_t sum = 0;
    train_status_t status =
        mem_table (c, true, o, world, 2048, false, rows, ret_n, NULL);

    if (!cuda) {
        assert_int_equal (status, TRAIN_ENOTSUP);
        return 0;
    }
    assert_int_equal (status, TRAIN_OK);
    for (size_t i = 0; i < *ret_n; i++)
        sum += rows[i].bytes;
    return sum;
}

static size_t total (const train_decoder_config_t *c,
                     const train_trainer_options_t *o, struct mem_row *rows,
                     size_t *ret_n)
{
    return total_of (c, o, 4, rows, ret_n);
}

/* 3.13 G parameters, 4 rows of 2048 a GPU, blocks made again, on four: 14.0 GiB is
 * what PyTorch's fully_shard takes. A rank's masters, gradients and moments are
 * 16 bytes a parameter, 12.51 GB; a block (100.67 M) and its neighbour of 50304 x
 * 3072 and a norm are 0.51 GB as weights and 1.02 GB as gradients; that leaves 0.99
 * GB for activations, of which the stream into each block is in the gradients, and
 * as much of what a block works in as those of the embedding and the first block
 * have beside that. On two of them it takes 25.17 GiB. */
static void test_3b (void **state)
{
    const size_t block = 3072 * (5120 + 3072 + 3 * 8192) + 2 * 3072;
    const size_t table = 50304UL * 3072, all = 28 * block + 2 * table + 3072;
    const size_t pair = block + table + 3072;
    train_decoder_config_t c = of_gpu (28, 3072, 24);
    train_trainer_options_t o = four;
    struct mem_row rows[MEM_ROWS];
    size_t n, late, kept;

    (void)state;
    c.recompute = TRAIN_RECOMPUTE_BLOCKS;
    kept = total (&c, &o, rows, &n);
    o.round_late = true;
    late = total (&c, &o, rows, &n);
    if (!cuda)
        return;
    assert_int_equal (kept - late, all / 4 * 2);
    assert_int_equal (bytes_of (rows, n, "weights"), 0);
    assert_int_equal (bytes_of (rows, n, "masters of the weights"), all);
    assert_int_equal (bytes_of (rows, n, "gradients"), all);
    assert_int_equal (bytes_of (rows, n, "AdamW's moments"), 2 * all);
    assert_int_equal (bytes_of (rows, n, "weights, whole units"), pair * 2);
    assert_int_equal (bytes_of (rows, n, "gradients, whole units"), pair * 4);
    assert_in_range (late - 4 * all - 6 * pair, 500 << 20, 600 << 20);
    assert_true (late * 100 <= 1370UL << 30);
    o.batch = 8;
    assert_true (total_of (&c, &o, 2, rows, &n) * 100 <= 2510UL << 30);
}

/* 1b, 8 rows of 2048 a GPU, made again where that is cheap: streams into blocks are
 * larger than a block's gradients on four, and lie in several blocks'. 26.8 GiB is
 * what PyTorch's takes there. */
static void test_1b_lends (void **state)
{
    train_decoder_config_t c = of_gpu (16, 2048, 32);
    train_trainer_options_t o = four;
    struct mem_row rows[MEM_ROWS];
    size_t n, sum;

    (void)state;
    c.recompute = TRAIN_RECOMPUTE_CHEAP;
    o.batch = 32;
    sum = total (&c, &o, rows, &n);
    assert_true (sum * 100 <= 1800UL << 30);
}

/* Masters and moments of 1b on four: with offload a tenth of their bytes. */
static void test_1b_offloaded (void **state)
{
    const train_decoder_config_t c = of_gpu (16, 2048, 32);
    train_trainer_options_t o = four;
    struct mem_row rows[MEM_ROWS];
    size_t n, with, without;

    (void)state;
    o.batch = 32;
    without = total (&c, &o, rows, &n);
    if (!cuda)
        return;
    with = bytes_of (rows, n, "masters of the weights")
           + bytes_of (rows, n, "AdamW's moments");
    o.offload = true;
    assert_true (without - total (&c, &o, rows, &n) >= with / 10 * 9);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_fit),          cmocka_unit_test (test_fit_pairs),
        cmocka_unit_test (test_gathered),     cmocka_unit_test (test_frozen),
        cmocka_unit_test (test_3b),           cmocka_unit_test (test_1b_lends),
        cmocka_unit_test (test_1b_offloaded),
    };

    return cmocka_run_group_tests_name ("mem_table", tests, NULL, NULL);
}
