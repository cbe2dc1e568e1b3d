/* SPDX-License-Identifier: Apache-2.0
 * test_grpo_trl.c - advantages, masks and losses beside what TRL's own code made
 * of the same numbers (tests/interop/trl_golden.py) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "trl_cases.h"

static void said (void *arg, const char *name, const char *why)
{
    int *bad = arg;

    if (why) {
        print_error ("%s: %s\n", name, why);
        (*bad)++;
    }
}

static void test_golden (void **state)
{
    const char *top = getenv ("top_srcdir");
    char path[4096];
    int bad = 0;

    (void)state;
    snprintf (path, sizeof (path), "%s/tests/golden/trl.safetensors",
              top ? top : ".");
    assert_true (trl_cases (path, said, &bad) > 200);
    assert_int_equal (bad, 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_golden),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
