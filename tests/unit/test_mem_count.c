/* SPDX-License-Identifier: Apache-2.0
 * test_mem_count.c - what is held of devices, and the most of it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>

#include "libtrain/mem_count.h"

#define N_THREADS 4
#define N_EACH    500

static char place[N_THREADS][N_EACH];

static void test_peak (void **state)
{
    (void)state;
    assert_true (mem_count_add (1, &place[0][0], 1000));
    assert_true (mem_count_add (1, &place[0][1], 500));
    assert_true (mem_count_add (2, &place[0][2], 70));
    mem_count_drop (&place[0][0]);
    assert_int_equal (mem_count_now (1), 500);
    assert_true (mem_count_add (1, &place[0][0], 900));
    assert_int_equal (mem_count_now (1), 1400);
    assert_int_equal (mem_count_peak (1), 1500);
    assert_int_equal (mem_count_peak (2), 70);
    assert_int_equal (mem_count_peak (0), 0);
    for (size_t i = 0; i < 3; i++)
        mem_count_drop (&place[0][i]);
    assert_int_equal (mem_count_now (1) + mem_count_now (2), 0);
    assert_int_equal (mem_count_peak (1), 1500);
}

/* What was never added takes nothing away; a device behind the last is none. */
static void test_passed_over (void **state)
{
    (void)state;
    assert_true (mem_count_add (3, &place[0][0], 10));
    mem_count_drop (&place[0][1]);
    mem_count_drop (NULL);
    assert_true (mem_count_add (3, NULL, 10));
    assert_true (mem_count_add (-1, &place[0][1], 10));
    assert_true (mem_count_add (MEM_COUNT_DEVICES, &place[0][1], 10));
    assert_int_equal (mem_count_now (3), 10);
    assert_int_equal (mem_count_now (-1), 0);
    assert_int_equal (mem_count_peak (MEM_COUNT_DEVICES), 0);
    mem_count_drop (&place[0][0]);
    mem_count_drop (&place[0][0]);
    assert_int_equal (mem_count_now (3), 0);
}

static void *add_and_drop (void *arg)
{
    char *own = arg;

    for (int k = 0; k < N_EACH; k++)
        if (!mem_count_add (4, &own[k], 3))
            return arg;
    for (int k = 0; k < N_EACH; k += 2)
        mem_count_drop (&own[k]);
    return NULL;
}

static void test_threads (void **state)
{
    pthread_t thread[N_THREADS];
    void *failed;

    (void)state;
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal (
            pthread_create (&thread[i], NULL, add_and_drop, place[i]), 0);
    for (int i = 0; i < N_THREADS; i++) {
        assert_int_equal (pthread_join (thread[i], &failed), 0);
        assert_null (failed);
    }
    assert_int_equal (mem_count_now (4), N_THREADS * N_EACH / 2 * 3);
    for (int i = 0; i < N_THREADS; i++)
        for (int k = 1; k < N_EACH; k += 2)
            mem_count_drop (&place[i][k]);
    assert_int_equal (mem_count_now (4), 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_peak),
        cmocka_unit_test (test_passed_over),
        cmocka_unit_test (test_threads),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
