/* SPDX-License-Identifier: Apache-2.0
 * test_child.c - a child that answers, hangs, crashes, ends early */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "spank/child.h"

static void say (int fd, const char *text)
{
    if (write (fd, text, strlen (text)) < 0)
        _exit (9);
}

static void answer (int fd, void *arg)
{
    say (fd, arg);
}

static void hang (int fd, void *arg)
{
    /* A library may well block signals. */
    sigset_t all;

    sigfillset (&all);
    sigprocmask (SIG_SETMASK, &all, NULL);
    say (fd, arg);
    for (;;)
        pause ();
}

/* The answer has ended, the process has not. */
static void hang_closed (int fd, void *arg)
{
    say (fd, arg);
    close (fd);
    for (;;)
        pause ();
}

static void crash (int fd, void *arg)
{
    say (fd, arg);
    kill (getpid (), SIGSEGV);
}

static void much (int fd, void *arg)
{
    char block[1000];

    memset (block, 'x', sizeof (block));
    for (int i = 0; i < 1000; i++)
        if (write (fd, block, sizeof (block)) != (ssize_t)sizeof (block))
            _exit (9);
    (void)arg;
}

static double now_s (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* No child stays behind, neither alive nor as a zombie. */
static void no_child (void)
{
    assert_int_equal (waitpid (-1, NULL, WNOHANG), -1);
    assert_int_equal (errno, ECHILD);
}

struct ending {
    child_f f;
    int deadline_ms;
    enum child_end end;
};

static const struct ending endings[] = {
    {answer, 60000, CHILD_OK},
    {crash, 60000, CHILD_CRASHED},
    {hang, 200, CHILD_TIMEOUT},
    {hang_closed, 200, CHILD_TIMEOUT},
};

/* One that hangs has said its word before the deadline, however busy the machine
 * is: else another gets a longer one. Returns the last deadline. */
static int end_of (const struct ending *e, char *buf, size_t size, size_t *len)
{
    char text[] = "hello";
    int ms = e->deadline_ms;

    for (;; ms *= 5) {
        assert_int_equal (child_run (e->f, text, ms, buf, size, len), e->end);
        if (*len > 0 || ms > 20000)
            return ms;
    }
}

static void ends (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (endings) / sizeof (endings[0]); i++) {
        const struct ending *e = &endings[i];
        double start = now_s ();
        char buf[16];
        size_t len = 99;
        int ms = end_of (e, buf, sizeof (buf), &len);

        assert_int_equal (len, 5);
        assert_memory_equal (buf, "hello", 5);
        /* The deadline counts whole milliseconds. */
        if (e->end == CHILD_TIMEOUT)
            assert_true (now_s () - start >= (ms - 1) / 1e3);
        assert_true (now_s () - start < 100);
        no_child ();
    }
}

static void more_than_fits (void **state)
{
    char buf[10];
    size_t len = 0;

    (void)state;
    assert_int_equal (child_run (much, NULL, 60000, buf, sizeof (buf), &len),
                      CHILD_OK);
    assert_int_equal (len, sizeof (buf));
    no_child ();
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (ends),
        cmocka_unit_test (more_than_fits),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
