/* SPDX-License-Identifier: Apache-2.0
 * test_nvtx.c - the ranges that a tool gets by NVTX: one a call, a copy and a
 * step, each ended once, whatever became of the call, trace or not */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/copy.h>
#include <train/group.h>

#include "nvtx_count.h"

#if defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAVE_NVTX 1
#endif
#endif

static const struct nvtx_seen *look (void)
{
    void *library = dlopen (NVTX_COUNT, RTLD_NOW | RTLD_NOLOAD);
    nvtx_count_f count = NULL;
    void *symbol;

    if (!library) /* NVTX has not loaded it */
        return NULL;
    symbol = dlsym (library, "nvtx_count");
    memcpy (&count, &symbol, sizeof (count));
    dlclose (library);
    return count ? count () : NULL;
}

static void view (train_tensor_t *t, float *data, int64_t n)
{
    assert_int_equal (train_tensor_view (t, data, TRAIN_F32, 1, &n, NULL),
                      TRAIN_OK);
}

static train_group_t *make_group (void)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    train_error_t err;

    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    return group;
}

static void a_step (train_group_t *group)
{
    train_work_t *work = NULL;
    float x[4] = {1, 2, 3, 4};
    train_tensor_t t;

    view (&t, x, 4);
    assert_int_equal (train_step_begin (group, NULL), TRAIN_OK);
    assert_int_equal (train_all_reduce (group, &t.t, TRAIN_SUM, NULL),
                      TRAIN_OK);
    assert_int_equal (train_broadcast_async (group, &t.t, 0, &work, NULL),
                      TRAIN_OK);
    assert_int_equal (train_work_wait (work, -1, NULL), TRAIN_OK);
    /* refused for its arguments: no call */
    assert_int_equal (train_broadcast (group, &t.t, 1, NULL), TRAIN_EINVAL);
    assert_int_equal (train_barrier (group, NULL), TRAIN_OK);
    assert_int_equal (train_step_end (group, NULL), TRAIN_OK);
}

/* Began in this order, and each ended once. */
static void want (const struct nvtx_seen *seen, size_t first,
                  const char *const *names, size_t n)
{
    assert_int_equal (seen->started, first + n);
    assert_int_equal (seen->ended, first + n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal (seen->range[first + i].name, names[i]);
        assert_int_equal (seen->range[first + i].ends, 1);
    }
}

static void test_ranges (void **state)
{
    static const char *const first[] = {"collectives of a step",
                                        "all_reduce sum", "broadcast",
                                        "barrier", "step_end"};
    train_group_t *group = make_group ();
    const struct nvtx_seen *seen;
    size_t before;

    (void)state;
    a_step (group);
    seen = look ();
    assert_non_null (seen);
    want (seen, 0, first, 5);
    before = seen->started;
    a_step (group); /* learnt: its end is no call */
    want (seen, before, first, 4);
    train_group_destroy (group);
}

static void test_copy (void **state)
{
    float x[4] = {1, 2, 3, 4}, y[4] = {0};
    static const char *const name[] = {"copy"};
    train_copier_t *copier = NULL;
    const struct nvtx_seen *seen;
    train_tensor_t from, to;
    size_t before;

    (void)state;
    view (&from, x, 4);
    view (&to, y, 4);
    assert_int_equal (train_copier_create (NULL, &copier, NULL), TRAIN_OK);
    seen = look ();
    assert_non_null (seen);
    before = seen->started;
    assert_int_equal (
        train_copy (copier, &to.t, NULL, &from.t, NULL, NULL, NULL, NULL),
        TRAIN_OK);
    want (seen, before, name, 1);
    train_copier_destroy (copier);
}

/* Without the header libtrain has no ranges to give. */
static int set_up (void **state)
{
    (void)state;
    unsetenv ("RV_TRACE");
    unsetenv ("RANK");
    unsetenv ("WORLD_SIZE");
    return setenv ("NVTX_INJECTION64_PATH", NVTX_COUNT, 1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_ranges),
        cmocka_unit_test (test_copy),
    };

#ifndef HAVE_NVTX
    puts ("1..0 # SKIP built without nvtx3/nvToolsExt.h");
    return 0;
#endif
    return cmocka_run_group_tests_name ("nvtx", tests, set_up, NULL);
}
