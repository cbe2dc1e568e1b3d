/* SPDX-License-Identifier: Apache-2.0
 * test_thread.c - a thread of the library's own: no signal comes to it, and the
 * caller's mask stays */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libtrain/thread.h"

static const int asked[] = {SIGTERM, SIGINT, SIGUSR1, SIGCHLD};

static void *look (void *arg)
{
    pthread_sigmask (SIG_SETMASK, NULL, arg);
    return NULL;
}

static void test_signals (void **state)
{
    sigset_t mine, there, behind;
    pthread_t thread;

    (void)state;
    sigemptyset (&mine);
    sigaddset (&mine, SIGUSR1);
    pthread_sigmask (SIG_SETMASK, &mine, NULL);
    assert_int_equal (thread_start (&thread, look, &there), 0);
    assert_int_equal (pthread_join (thread, NULL), 0);
    pthread_sigmask (SIG_SETMASK, NULL, &behind);
    for (size_t i = 0; i < sizeof (asked) / sizeof (*asked); i++) {
        assert_int_equal (sigismember (&there, asked[i]), 1);
        assert_int_equal (sigismember (&behind, asked[i]), asked[i] == SIGUSR1);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test (test_signals)};

    return cmocka_run_group_tests_name ("thread", tests, NULL, NULL);
}
