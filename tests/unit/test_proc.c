/* SPDX-License-Identifier: Apache-2.0
 * test_proc.c - programs run as asked, and nothing stays behind */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proc.h"

static int run (const char *script, const struct proc_opts *opts,
                struct proc_result *result, struct rv_error *err)
{
    char *argv[] = {"/bin/sh", "-c", (char *)script, NULL};

    return proc_run (argv, opts, result, err);
}

static void no_such_program (void **state)
{
    char *argv[] = {"rv-no-such-program", NULL};
    struct proc_result result = {.status = 42};
    struct rv_error err = {0};

    assert_int_equal (proc_run (argv, NULL, &result, &err), RV_ENOTFOUND);
    assert_non_null (strstr (err.text, "rv-no-such-program"));
    assert_int_equal (result.status, 42);
    argv[0] = "/etc/passwd";
    assert_int_equal (proc_run (argv, NULL, &result, NULL), RV_EIO);
    proc_result_fini (NULL);
    (void)state;
}

static void statuses (void **state)
{
    static const struct {
        const char *script;
        int status;
    } vector[] = {
        {"exit 0", 0},
        {"exit 7", 7},
        {"exit 255", 255},
        {"kill -9 $$", 128 + 9},
        {"kill -15 $$", 128 + 15},
    };

    for (size_t i = 0; i < sizeof (vector) / sizeof (vector[0]); i++) {
        struct proc_result result;

        assert_int_equal (run (vector[i].script, NULL, &result, NULL), 0);
        assert_int_equal (result.status, vector[i].status);
        assert_string_equal (result.out, "");
        assert_string_equal (result.err, "");
        proc_result_fini (&result);
    }
    (void)state;
}

static void vector_is_unchanged (void **state)
{
    char *argv[] = {
        "/bin/sh", "-c",    "printf '%s|' \"$@\"", "sh",       "a b", "",
        "$(id)",   "'\"\\", "new\nline",           "\xc3\xa9", "-n",  "*",
        NULL};
    struct proc_result result;

    assert_int_equal (proc_run (argv, NULL, &result, NULL), 0);
    assert_string_equal (result.out,
                         "a b||$(id)|'\"\\|new\nline|\xc3\xa9|-n|*|");
    proc_result_fini (&result);
    (void)state;
}

static void streams (void **state)
{
    struct proc_result result;
    struct proc_opts opts = {.input = "a\0b", .input_len = 3};

    assert_int_equal (run ("cat; echo oops >&2", &opts, &result, NULL), 0);
    assert_int_equal (result.out_len, 3);
    assert_memory_equal (result.out, "a\0b", 4);
    assert_string_equal (result.err, "oops\n");
    proc_result_fini (&result);
    /* A reader that stops early is no error and no SIGPIPE. */
    opts.input = calloc (1, 1 << 20);
    opts.input_len = 1 << 20;
    assert_int_equal (run ("exit 3", &opts, &result, NULL), 0);
    assert_int_equal (result.status, 3);
    proc_result_fini (&result);
    free ((void *)opts.input);
    /* Without input stdin is empty, not ours. */
    assert_int_equal (run ("cat", NULL, &result, NULL), 0);
    assert_int_equal (result.out_len, 0);
    proc_result_fini (&result);
    (void)state;
}

static void big_output (void **state)
{
    struct proc_opts opts = {.max_output = 1000};
    struct proc_result result;
    struct rv_error err;

    assert_int_equal (run ("head -c 300000 /dev/zero; head -c 200000 /dev/zero"
                           " >&2",
                           NULL, &result, NULL),
                      0);
    assert_int_equal (result.out_len, 300000);
    assert_int_equal (result.err_len, 200000);
    proc_result_fini (&result);
    assert_int_equal (run ("yes", &opts, &result, &err), RV_EFORMAT);
    (void)state;
}

static void environment_and_folder (void **state)
{
    char *env[] = {"ONE=1", NULL};
    struct proc_opts opts = {.env = env, .dir = "/"};
    struct proc_result result;

    setenv ("TWO", "2", 1);
    assert_int_equal (run ("echo $ONE$TWO; pwd", &opts, &result, NULL), 0);
    assert_string_equal (result.out, "1\n/\n");
    proc_result_fini (&result);
    opts.dir = "/no/such/folder";
    assert_int_not_equal (run ("true", &opts, &result, NULL), 0);
    (void)state;
}

static void deadline_kills (void **state)
{
    struct proc_opts opts = {.deadline_ms = 50};
    struct proc_result result;
    struct rv_error err;
    long long t0 = proc_now_ms ();

    assert_int_equal (run ("exec sleep 60", &opts, &result, &err),
                      RV_ETIMEDOUT);
    assert_true (proc_now_ms () - t0 < 30000);
    /* It was waited for: no child is left. */
    assert_int_equal (waitpid (-1, NULL, 0), -1);
    assert_int_equal (errno, ECHILD);
    /* Closing both streams does not get a program round its deadline. */
    assert_int_equal (
        run ("exec >&- 2>&-; exec sleep 60", &opts, &result, &err),
        RV_ETIMEDOUT);
    assert_int_equal (waitpid (-1, NULL, 0), -1);
    (void)state;
}

/* Whoever started this test may have left descriptors open. */
static int inherited (void)
{
    int n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl (fd, F_GETFD);

        n += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return n;
}

static void descriptors_do_not_leak (void **state)
{
    struct proc_result result;
    int before = open ("/dev/null", O_RDONLY | O_CLOEXEC), after;

    assert_int_equal (run ("ls /proc/self/fd | wc -l", NULL, &result, NULL), 0);
    /* and the folder that ls itself reads */
    assert_int_equal (strtol (result.out, NULL, 10), inherited () + 1);
    proc_result_fini (&result);
    after = open ("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal (after, before + 1);
    close (before);
    close (after);
    (void)state;
}

static void spawn_and_wait (void **state)
{
    char *argv[] = {"sleep", "60", NULL};
    pid_t pid;
    int status;

    assert_int_equal (proc_spawn (argv, NULL, NULL, -1, -1, -1, &pid, NULL), 0);
    assert_int_equal (proc_wait (pid, 10, &status, NULL), RV_ETIMEDOUT);
    assert_int_equal (kill (pid, SIGTERM), 0);
    assert_int_equal (proc_wait (pid, -1, &status, NULL), 0);
    assert_int_equal (status, 128 + SIGTERM);
    (void)state;
}

static void search (void **state)
{
    char *path = proc_find ("sh");

    assert_non_null (path);
    assert_int_equal (path[0], '/');
    free (path);
    assert_null (proc_find ("rv-no-such-program"));
    setenv ("PATH", "", 1);
    path = proc_find ("sh"); /* daemons are found without PATH */
    assert_non_null (path);
    free (path);
    setenv ("PATH", "/usr/bin:/bin", 1);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (no_such_program),
        cmocka_unit_test (statuses),
        cmocka_unit_test (vector_is_unchanged),
        cmocka_unit_test (streams),
        cmocka_unit_test (big_output),
        cmocka_unit_test (environment_and_folder),
        cmocka_unit_test (deadline_kills),
        cmocka_unit_test (descriptors_do_not_leak),
        cmocka_unit_test (spawn_and_wait),
        cmocka_unit_test (search),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
