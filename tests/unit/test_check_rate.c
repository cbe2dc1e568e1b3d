/* SPDX-License-Identifier: Apache-2.0
 * test_check_rate.c - the time in which weights are gathered to write */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "libtrain/rv-train/check_rate.h"

static const struct check_device gpu = {.name = "made up",
                                        .gpu = true,
                                        .half = 700,
                                        .single = 30,
                                        .attention = 269,
                                        .memory = 4e12,
                                        .wire = 100e9};

/* A million weights in blocks, as many in embedding and head together. */
static const train_decoder_config_t model = {.size = sizeof (model),
                                             .layers = 4,
                                             .dim = 128,
                                             .heads = 2,
                                             .kv_heads = 2,
                                             .ffn = 512,
                                             .vocab = 4096,
                                             .tie = true,
                                             .dtype = TRAIN_BF16};

static bool is (double got, double want)
{
    return got > 0.999 * want && got < 1.001 * want;
}

static void test_gather (void **state)
{
    struct check_device slow = gpu;
    double bytes = 2.0 * (4 * (4 * 128 * 128 + 3 * 128 * 512) + 2 * 128 * 4096);

    (void)state;
    assert_true (is (check_gather_seconds (&gpu, &model, 2),
                     6 * 20e-6 + bytes / 2 / 100e9));
    assert_true (is (check_gather_seconds (&gpu, &model, 8),
                     6 * 20e-6 + bytes * 7 / 8 / 100e9));
    assert_true (check_gather_seconds (&gpu, &model, 1) == 0);
    slow.wire = 0;
    assert_true (check_gather_seconds (&slow, &model, 8) == 0);
    assert_true (is (check_beside (2, 3, true), 3));
    assert_true (is (check_beside (4, 3, true), 4));
    assert_true (is (check_beside (4, 3, false), 7));
}

/* 32 texts of 10 tokens, 8 at once: 40 forwards of a token, and one for the
 * prompts of each 8. */
static void test_writing (void **state)
{
    struct check_writing w = {
        .texts = 32, .prompts = 4, .at_once = 8, .prompt = 16, .more = 10};
    double without = check_writing_seconds (&gpu, &model, &w);

    (void)state;
    w.gather_s = 1;
    assert_true (is (check_writing_seconds (&gpu, &model, &w), without + 44));
    w.ahead = true;
    assert_true (is (check_writing_seconds (&gpu, &model, &w), 44));
    w.gather_s = 1e-9;
    assert_true (is (check_writing_seconds (&gpu, &model, &w), without));
    w.gather_s = 1;
    w.prompts = 1024;
    w.prompt = 24;
    assert_true (is (check_writing_seconds (&gpu, &model, &w), 44));
    w.prompt = 40; /* 40960 tokens in five feeds */
    assert_true (is (check_writing_seconds (&gpu, &model, &w), 45));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_gather),
        cmocka_unit_test (test_writing),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
