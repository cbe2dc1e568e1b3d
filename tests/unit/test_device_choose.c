/* SPDX-License-Identifier: Apache-2.0
 * test_device_choose.c - which of host and GPUs a run takes, by what it was told
 * and what its ranks see */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "libtrain/rv-train/device.h"

static const int32_t none[] = {0, 0, 0, 0}, one[] = {1, 1, 1, 1},
                     all[] = {8, 8, 8, 8};

static bool takes_gpu (const struct settings *set, const int32_t *gpus,
                       int ranks)
{
    train_error_t err = {0};
    bool gpu;

    assert_int_equal (device_choose (set, gpus, ranks, &gpu, &err), TRAIN_OK);
    return gpu;
}

static void test_told (void **state)
{
    (void)state;
    /* What is told holds, whatever is there: that none is is said later. */
    assert_true (
        takes_gpu (&(struct settings){.device = DEVICE_CUDA}, none, 2));
    assert_false (takes_gpu (&(struct settings){.device = DEVICE_CPU}, all, 2));
}

static void test_auto (void **state)
{
    const struct settings set = {.device = DEVICE_AUTO};

    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        assert_false (takes_gpu (&set, none, ranks));
        assert_true (takes_gpu (&set, one, ranks));
        assert_true (takes_gpu (&set, all, ranks));
    }
}

/* Auto takes no GPU that would refuse what is trained. */
static void test_host_alone (void **state)
{
    struct settings set = {.device = DEVICE_AUTO, .param = FP64};

    (void)state;
    assert_false (takes_gpu (&set, all, 2));
    assert_non_null (strstr (device_host_alone (&set), "fp64"));
    set.param = FP16;
    assert_true (takes_gpu (&set, all, 2));
    assert_null (device_host_alone (&set));
    set.task = TASK_GRPO;
    assert_false (takes_gpu (&set, all, 2));
    assert_non_null (strstr (device_host_alone (&set), "grpo"));
    set.param = BF16;
    assert_true (takes_gpu (&set, all, 2));
}

/* A node whose GPU is gone must not make a large run a slow one. */
static void test_differ (void **state)
{
    const struct settings set = {.device = DEVICE_AUTO};
    const int32_t last[] = {1, 1, 1, 0}, first[] = {0, 1, 1, 1};
    train_error_t err = {0};
    bool gpu;

    (void)state;
    assert_int_equal (device_choose (&set, last, 4, &gpu, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "rank 0 sees a GPU and rank 3 none"));
    assert_non_null (strstr (err.text, "device = cpu"));
    assert_int_equal (device_choose (&set, first, 4, &gpu, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "rank 1 sees a GPU and rank 0 none"));
    assert_true (takes_gpu (&set, last, 3));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_told),
        cmocka_unit_test (test_auto),
        cmocka_unit_test (test_host_alone),
        cmocka_unit_test (test_differ),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
