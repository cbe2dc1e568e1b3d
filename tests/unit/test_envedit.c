/* SPDX-License-Identifier: Apache-2.0
 * test_envedit.c - variables come, and go without a trace */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "spank/envedit.h"

static void bad_names (void **state)
{
    struct envedit e = {0};

    (void)state;
    assert_false (envedit_set (&e, "", "1"));
    assert_false (envedit_set (&e, "A=B", "1"));
    assert_int_equal (e.n, 0);
    envedit_undo (&e);
}

static void users_value_stays (void **state)
{
    struct envedit e = {0};

    (void)state;
    setenv ("RVT_A", "mine", 1);
    setenv ("RVT_EMPTY", "", 1);
    unsetenv ("RVT_B");
    assert_false (envedit_set (&e, "RVT_A", "1"));
    assert_false (envedit_set (&e, "RVT_EMPTY", "1"));
    assert_true (envedit_set (&e, "RVT_B", "2"));
    assert_string_equal (getenv ("RVT_A"), "mine");
    assert_string_equal (getenv ("RVT_EMPTY"), "");
    assert_string_equal (getenv ("RVT_B"), "2");
    envedit_undo (&e);
    assert_string_equal (getenv ("RVT_A"), "mine");
    assert_string_equal (getenv ("RVT_EMPTY"), "");
    assert_null (getenv ("RVT_B"));
    envedit_undo (&e);
    assert_string_equal (getenv ("RVT_A"), "mine");
}

static void full (void **state)
{
    static const char *const name[] = {"RVT_0", "RVT_1", "RVT_2",
                                       "RVT_3", "RVT_4", "RVT_5",
                                       "RVT_6", "RVT_7", "RVT_8"};
    struct envedit e = {0};

    (void)state;
    assert_int_equal (sizeof (name) / sizeof (name[0]), ENVEDIT_MAX + 1);
    for (size_t i = 0; i < ENVEDIT_MAX; i++)
        assert_true (envedit_set (&e, name[i], "x"));
    assert_false (envedit_set (&e, name[ENVEDIT_MAX], "x"));
    assert_null (getenv (name[ENVEDIT_MAX]));
    envedit_undo (&e);
    for (size_t i = 0; i < ENVEDIT_MAX; i++)
        assert_null (getenv (name[i]));
}

static void set_rank (void)
{
    setenv ("RANK", "3", 1);
    setenv ("MASTER_ADDR", "10.0.0.1", 1);
    setenv ("OMP_NUM_THREADS", "4", 1);
    setenv ("RV_NCCL_TIMEOUT", "90", 1);
    setenv ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "480", 1);
    setenv ("DEEPSPEED_TIMEOUT", "2", 1);
}

static void drops_rank (void **state)
{
    (void)state;
    unsetenv ("RV_STEP");
    unsetenv ("RV_SET");
    set_rank ();
    envedit_drop_rank (); /* no step: the user's own */
    assert_string_equal (getenv ("RANK"), "3");
    assert_string_equal (getenv ("DEEPSPEED_TIMEOUT"), "2");
    setenv ("RV_STEP", "7.0", 1);
    setenv ("RV_SET",
            "RANK=3 OMP_NUM_THREADS=4 TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=480 "
            "DEEPSPEED_TIMEOUT=2",
            1);
    envedit_drop_rank ();
    assert_null (getenv ("RANK"));
    assert_null (getenv ("MASTER_ADDR"));
    assert_null (getenv ("RV_STEP"));
    assert_null (getenv ("RV_SET"));
    assert_null (getenv ("RV_NCCL_TIMEOUT"));
    assert_null (getenv ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"));
    assert_null (getenv ("DEEPSPEED_TIMEOUT"));
    assert_null (getenv ("OMP_NUM_THREADS"));
    /* not noted, or not as it was: the user's */
    set_rank ();
    setenv ("RV_STEP", "7.0", 1);
    setenv ("RV_SET", "RANK=3 OMP_NUM_THREADS=44 DEEPSPEED_TIMEOUT=2", 1);
    envedit_drop_rank ();
    assert_null (getenv ("RV_NCCL_TIMEOUT"));
    assert_null (getenv ("DEEPSPEED_TIMEOUT"));
    assert_string_equal (getenv ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"), "480");
    assert_string_equal (getenv ("OMP_NUM_THREADS"), "4");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_names),
        cmocka_unit_test (users_value_stays),
        cmocka_unit_test (full),
        cmocka_unit_test (drops_rank),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
