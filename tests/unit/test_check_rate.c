/* SPDX-License-Identifier: Apache-2.0
 * test_check_rate.c - the time in which weights are gathered to write, and that of
 * SwiGLU within its products */
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

/* Four elements of each of ffn are not moved, where its kernels do it. */
static void test_within (void **state)
{
    struct check_device hopper = gpu;
    train_decoder_config_t other = model;
    struct check_step step = {.seq = 64, .ranks = 1, .tokens = 1e6};
    double less = 1e6 * 4 * 4 * 512 * 2 / 4e12;
    double forward = check_forward_seconds (&gpu, &model, 64, 1e6);

    (void)state;
    hopper.sm_90a = true;
    assert_true (is (check_seconds (&gpu, &model, &step)
                         - check_seconds (&hopper, &model, &step),
                     less));
    assert_true (is (forward - check_forward_seconds (&hopper, &model, 64, 1e6),
                     less / 3));
    step.passes = 1e6 / 2047;
    assert_true (check_seconds (&gpu, &model, &step)
                 == check_seconds (&hopper, &model, &step));
    step.passes = 1;
    other.ffn = 640;
    assert_true (check_seconds (&gpu, &other, &step)
                 == check_seconds (&hopper, &other, &step));
    other = model;
    other.dtype = TRAIN_F32;
    assert_true (check_seconds (&gpu, &other, &step)
                 == check_seconds (&hopper, &other, &step));
    other = model;
    other.lora.rank = 4;
    other.lora.targets = 1;
    assert_true (check_seconds (&gpu, &other, &step)
                 == check_seconds (&hopper, &other, &step));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_gather),
        cmocka_unit_test (test_writing),
        cmocka_unit_test (test_within),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
