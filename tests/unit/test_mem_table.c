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

/* Weights or gradients of a stay: when they come and how long they are there, in
 * the steps of a pass forth and back. */
struct lying {
    size_t at, bytes, from, until;
    bool grads;
};

static size_t weight_bytes[ROW], grad_bytes[ROW];
static struct lying lying[3 * ROW];

static void lie (size_t *n, size_t at, size_t bytes, size_t from, size_t until,
                 bool grads)
{
    lying[(*n)++] = (struct lying){at, bytes, from, until, grads};
}

/* Who is there when, as fsdp_fit.h says. */
static size_t lie_all (const struct fsdp_pass *p, const size_t *forth,
                       const size_t *back, const size_t *grads)
{
    size_t last = p->n - 1, k = 0;

    for (size_t i = 0; i < p->n; i++) {
        size_t step = 2 * last + 1 - i, turn = p->n;

        lie (&k, forth[i], p->weights[i], i > p->ahead ? i - p->ahead : 0,
             i == last ? turn : i, false);
        if (i < last && (i > 0 || !p->bare))
            lie (&k, back[i], p->weights[i],
                 step > turn + p->ahead ? step - p->ahead : turn, step, false);
        lie (&k, grads[i], p->grads[i], step, step + 1, true);
    }
    return k;
}

/* May the two not share memory? Weights that come in the step behind gradients'
 * own may, where they wait for their reduction. */
static bool together (const struct fsdp_pass *p, const struct lying *a,
                      const struct lying *b)
{
    const struct lying *w = a->grads ? b : a, *g = a->grads ? a : b;

    if (p->behind && g->grads && !w->grads && w->from == g->until)
        return false;
    return a->from <= b->until && b->from <= a->until;
}

static void check_pass (const struct fsdp_pass *p)
{
    size_t forth[ROW], back[ROW], grads[ROW], k;
    size_t total = fsdp_fit_pass (p, forth, back, grads);
    size_t beside = fsdp_fit (p->weights, p->n, p->ahead, NULL)
                    + fsdp_fit (p->grads, p->n, 1, NULL);

    assert_int_equal (total, fsdp_fit_pass (p, NULL, NULL, NULL));
    assert_true (total <= beside);
    assert_int_equal (forth[p->n - 1], back[p->n - 1]);
    k = lie_all (p, forth, back, grads);
    for (size_t i = 0; i < k; i++) {
        const struct lying *a = &lying[i];

        assert_true (a->at % 256 == 0 && a->at + a->bytes <= total);
        for (size_t m = 0; m < i; m++) {
            const struct lying *b = &lying[m];

            if (together (p, a, b) && a->at < b->at + b->bytes
                && b->at < a->at + a->bytes)
                fail_msg ("%zu stays, %zu ahead: of %zu and %zu share memory",
                          p->n, p->ahead, i, m);
        }
    }
}

/* Whatever the sizes: weights and gradients that are there at once are apart. */
static void test_fit_pass (void **state)
{
    struct fsdp_pass p = {.weights = weight_bytes, .grads = grad_bytes};
    uint32_t x = 1;

    (void)state;
    for (int k = 0; k < 400; k++) {
        for (size_t i = 0; i < ROW; i++) {
            x = x * 1664525 + 1013904223;
            weight_bytes[i] = x >> 8 & 4 ? 0 : x >> (k % 2 ? 12 : 27) << 8;
            grad_bytes[i] = 2 * weight_bytes[i];
        }
        p.n = 1 + (size_t)k % ROW;
        p.bare = k / 2 % 2;
        p.behind = k / 4 % 2;
        for (p.ahead = 0; p.ahead < 5; p.ahead++)
            check_pass (&p);
    }
}

/* An embedding, blocks and a head: what there is at once at most is a block's
 * weights and gradients beside the head's or a block's more. By itself no more than
 * that is taken, whether blocks are odd or even in number. */
static void test_fit_ends (void **state)
{
    struct fsdp_pass p = {.weights = weight_bytes,
                          .grads = grad_bytes,
                          .ahead = 1,
                          .bare = true,
                          .behind = true};

    (void)state;
    for (p.n = 6; p.n < ROW; p.n++) {
        for (size_t i = 0; i < p.n; i++) {
            weight_bytes[i] = (i == 0 || i + 1 == p.n ? 1540 : 1000) * 256;
            grad_bytes[i] = 2 * weight_bytes[i];
        }
        assert_int_equal (fsdp_fit_pass (&p, NULL, NULL, NULL),
                          (1000 + 2000 + 3080) * 256);
        p.behind = false;
        assert_int_equal (fsdp_fit_pass (&p, NULL, NULL, NULL),
                          (2 * 1000 + 2000 + 3080) * 256);
        p.behind = true;
    }
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
        /* the embedding's backward has no weights: two blocks' are not there
         * beside two blocks' gradients */
        assert_int_equal (bytes_of (rows, n, "whole units"),
                          wrapped ? most * 6 : block * 2 + 2 * block * 4);
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
 * 16 bytes a parameter, 12.51 GB. What is whole is a block (100.67 M), as weights
 * and as gradients, beside the head's gradients (50304 x 3072 and a norm), in whose
 * place the next block's weights come, or four blocks' worth: 1.22 GB. That leaves
 * 1.30 GB for activations, of which the stream into each block is in the gradients,
 * and as much of what a block works in as those of the embedding and the first block
 * have beside that. On two of them it takes 25.17 GiB, and what no row has (NCCL,
 * libraries) was 0.24 there. */
static void test_3b (void **state)
{
    const size_t block = 3072 * (5120 + 3072 + 3 * 8192) + 2 * 3072;
    const size_t table = 50304UL * 3072, all = 28 * block + 2 * table + 3072;
    const size_t whole = 6 * block + 4 * (table + 3072);
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
    assert_in_range (bytes_of (rows, n, "whole units"), whole,
                     whole + (1 << 16));
    assert_in_range (late - 4 * all - whole, 500 << 20, 600 << 20);
    assert_true (late * 100 <= 1340UL << 30);
    o.batch = 8;
    assert_true (total_of (&c, &o, 2, rows, &n) * 100 <= 2480UL << 30);
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
        cmocka_unit_test (test_fit_pass),     cmocka_unit_test (test_fit_ends),
        cmocka_unit_test (test_gathered),     cmocka_unit_test (test_frozen),
        cmocka_unit_test (test_3b),           cmocka_unit_test (test_1b_lends),
        cmocka_unit_test (test_1b_offloaded),
    };

    return cmocka_run_group_tests_name ("mem_table", tests, NULL, NULL);
}
