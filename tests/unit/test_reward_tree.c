/* SPDX-License-Identifier: Apache-2.0
 * test_reward_tree.c - a program that is stopped leaves nothing running, not what
 * leads a session of its own either */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libtrain/reward_proc.h"
#include "plan/parent.h"

#define LEAST 3

/* The numbers of as many processes, as they are written. */
static void read_pids (int fd, pid_t *pid)
{
    char text[200] = "", *at = text;
    size_t n = 0, lines = 0;

    for (int i = 0; i < 2000 && lines < LEAST; i++) {
        ssize_t got = read (fd, text + n, sizeof (text) - 1 - n);

        n += got > 0 ? (size_t)got : 0;
        lines = 0;
        for (size_t k = 0; k < n; k++)
            lines += text[k] == '\n';
        poll (NULL, 0, 10);
    }
    for (int i = 0; i < LEAST; i++) {
        pid[i] = (pid_t)strtol (at, &at, 10);
        assert_true (pid[i] > 1);
    }
}

/* A zombie counts as ended: its parent may be whoever reaps here. */
static bool runs (pid_t pid)
{
    char path[40], text[200] = "", *at;
    FILE *f;

    snprintf (path, sizeof (path), "/proc/%d/stat", (int)pid);
    if (!(f = fopen (path, "re")))
        return false;
    if (!fgets (text, sizeof (text), f))
        text[0] = '\0';
    fclose (f);
    at = strrchr (text, ')');
    return at && at[2] != 'Z';
}

static void until_ended (const pid_t *pid)
{
    int stay = 0;

    for (int i = 0; i < LEAST; i++) {
        for (int k = 0; k < 500 && runs (pid[i]); k++)
            poll (NULL, 0, 10);
        if (!runs (pid[i]))
            continue;
        kill (pid[i], SIGKILL);
        stay++;
    }
    if (stay)
        fail_msg ("%d of %d processes still ran", stay, LEAST);
}

/* Of its group; of a session; of a session whose leader is of another one, and
 * minds no signal that can be minded. */
static char *const words[] = {
    "/bin/sh", "-c",
    "sleep 300 & echo $!; setsid sleep 301 & echo $!; "
    "setsid sh -c 'trap \"\" TERM HUP; setsid sleep 302 & echo $!; wait' & "
    "wait",
    NULL};

static void test_stopped (void **state)
{
    struct proc proc;
    pid_t pid[LEAST];
    char how[64] = "x";

    (void)state;
    assert_int_equal (proc_start (&proc, words, environ, NULL), TRAIN_OK);
    read_pids (proc.out, pid);
    for (int i = 0; i < LEAST; i++)
        assert_true (runs (pid[i]));
    proc_stop (&proc, 0, how, sizeof (how));
    assert_string_equal (how, "");
    until_ended (pid);
}

/* What had its signals stopped before ends as well. */
static void test_halted (void **state)
{
    struct proc proc;
    pid_t pid[LEAST];

    (void)state;
    assert_int_equal (proc_start (&proc, words, environ, NULL), TRAIN_OK);
    read_pids (proc.out, pid);
    kill (proc.pid, SIGSTOP);
    kill (pid[1], SIGSTOP);
    proc_stop (&proc, 20, NULL, 0);
    until_ended (pid);
}

static void test_parent (void **state)
{
    char name[20];

    (void)state;
    snprintf (name, sizeof (name), "%d", (int)getpid ());
    assert_int_equal (parent_of (name), getppid ());
    assert_int_equal (parent_of ("self"), 0);
    assert_int_equal (parent_of ("999999999"), 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_stopped),
        cmocka_unit_test (test_halted),
        cmocka_unit_test (test_parent),
    };

    return cmocka_run_group_tests_name ("reward_tree", tests, NULL, NULL);
}
