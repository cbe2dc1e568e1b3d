/* SPDX-License-Identifier: Apache-2.0
 * test_reward_program.c - rewards by a program, and all that it may do wrong
 *
 * The program is this one with an argument; the completion says what it does. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <train/reward.h>

#include "reward_child.h"

#ifndef SYS_close_range
#define SYS_close_range 436
#endif

static double now (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* A busy machine may take its time to start one; one that has replied is soon
 * there again. */
static int64_t start_ms = 20000;

static bool (*ends) (void *arg); /* with ends_arg: of those that are opened */
static void *ends_arg;

static train_reward_t *open_program (const char *command, int processes,
                                     int64_t timeout_ms)
{
    train_reward_options_t o = {.size = sizeof (o),
                                .name = "judge",
                                .kind = TRAIN_REWARD_PROGRAM,
                                .program = command,
                                .processes = processes,
                                .timeout_ms = timeout_ms,
                                .max_faults = 12,
                                .start_ms = start_ms,
                                .ends = ends,
                                .ends_arg = ends_arg};
    train_reward_t *r = NULL;
    train_error_t err = {0};

    if (train_reward_open (&o, &r, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

static void score (train_reward_t *r, const char *const *completion, int n,
                   float *ret)
{
    train_sample_t s[64] = {{0}};
    train_error_t err = {0};

    assert_true (n <= 64);
    for (int i = 0; i < n; i++)
        s[i] = (train_sample_t){.prompt = "seen",
                                .completion = completion[i],
                                .row = "{\"level\": 4, \"id\": \"row's own\"}"};
    if (train_reward_score (r, s, n, ret, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
}

static float one (train_reward_t *r, const char *completion)
{
    float reward = -7;

    score (r, &completion, 1, &reward);
    return reward;
}

static train_reward_report_t report (const train_reward_t *r)
{
    train_reward_report_t report = {.size = sizeof (report)};

    assert_int_equal (train_reward_report (r, &report, NULL), TRAIN_OK);
    return report;
}

/* No child is left, a zombie among that. */
static void expect_no_child (void)
{
    assert_int_equal (waitpid (-1, NULL, WNOHANG), -1);
    assert_int_equal (errno, ECHILD);
}

#define SELF "/proc/self/exe"

/* Is there a process that runs? One that has ended is a zombie, its pipes
 * closed with its last thread: a BLAS may have some. */
static bool runs (pid_t pid)
{
    char path[64], text[512], *at, state = 'Z';
    int threads = 1;
    FILE *f;
    size_t n;

    snprintf (path, sizeof (path), "/proc/%d/stat", (int)pid);
    if (!(f = fopen (path, "r")))
        return false;
    n = fread (text, 1, sizeof (text) - 1, f);
    text[n] = '\0';
    fclose (f);
    if ((at = strrchr (text, ')')))
        sscanf (at,
                ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                "%*s %*s %d",
                &state, &threads);
    return state != 'Z' || threads > 1;
}

/* What it is doing: by name, state, parent, and where in the kernel. */
static void show (pid_t pid)
{
    static const char *const files[] = {"stat", "wchan", "status", "stack"};
    char path[64], line[256];

    for (size_t i = 0; i < sizeof (files) / sizeof (*files); i++) {
        FILE *f;

        snprintf (path, sizeof (path), "/proc/%d/%s", (int)pid, files[i]);
        if (!(f = fopen (path, "r")))
            continue;
        while (fgets (line, sizeof (line), f))
            print_error ("%s: %s\n", files[i], line);
        fclose (f);
    }
}

/* A busy machine may take long to end what was killed. */
static void until_ended (pid_t pid)
{
    for (int i = 0; i < 6000 && runs (pid); i++)
        usleep (10000);
    if (runs (pid))
        show (pid);
    assert_false (runs (pid));
}

static void test_replies (void **state)
{
    const char *const completion[] = {"1",    "22",       "333",   "4444",
                                      "null", "\xff\xfe", "field", "7777777"};
    int before = open_fds ();
    float ret[8];

    (void)state;
    for (int processes = 1; processes <= 3; processes += 2) {
        train_reward_t *r = open_program (SELF " ok", processes, 20000);

        score (r, completion, 8, ret);
        assert_true (ret[0] == 1 && ret[1] == 2 && ret[2] == 3 && ret[3] == 4);
        assert_true (isnan (ret[4]) && ret[5] == 6 && ret[6] == 41
                     && ret[7] == 7);
        assert_int_equal (report (r).scored, 7);
        assert_int_equal (report (r).nothing, 1);
        assert_int_equal (report (r).started, processes);
        assert_null (train_reward_fault (r));
        train_reward_close (r);
    }
    assert_int_equal (open_fds (), before);
    expect_no_child ();
}

/* Each fault is its sample's, and the next is scored by another process. */
static void test_faults (void **state)
{
    static const struct {
        const char *what, *why;
        int timeouts, crashes, garbage;
    } list[] = {
        {"exit", "exited with status 3", 0, 1, 0},
        {"kill", "was killed by signal 9", 0, 1, 0},
        {"sleep", "did not reply within", 1, 0, 0},
        {"garbage", "which is no JSON", 0, 0, 1},
        {"wrong id", "was asked", 0, 0, 1},
        {"no reward", "replied without a 'reward'", 0, 0, 1},
        {"text", "replied without a 'reward'", 0, 0, 1},
        {"infinite", "no fp32", 0, 0, 1},
        {"huge", "past 1 MiB", 0, 0, 1},
        {"cut", "exited with status 0", 0, 1, 0},
        {"close", "closed its output", 0, 1, 0},
    };
    int before = open_fds ();

    (void)state;
    for (size_t i = 0; i < sizeof (list) / sizeof (*list); i++) {
        bool sleeps = strcmp (list[i].what, "sleep") == 0;
        train_reward_t *r = open_program (SELF " ok", 1, sleeps ? 700 : 20000);
        const char *const c[] = {"a", list[i].what, "bb", "ccc"};
        train_reward_report_t got;
        /* of a new process, which may be slow; the next may not in 700 ms */
        int n = sleeps ? 3 : 4;
        float ret[4] = {0, 0, 0, 3};

        score (r, c, n, ret);
        if (ret[0] != 1 || !isnan (ret[1]) || ret[2] != 2 || ret[3] != 3)
            fail_msg ("%s: %g %g %g %g", list[i].what, (double)ret[0],
                      (double)ret[1], (double)ret[2], (double)ret[3]);
        got = report (r);
        assert_int_equal (got.timeouts, list[i].timeouts);
        assert_int_equal (got.crashes, list[i].crashes);
        assert_int_equal (got.garbage, list[i].garbage);
        assert_int_equal (got.started, 2);
        if (!strstr (train_reward_fault (r), list[i].why))
            fail_msg ("'%s' lacks '%s'", train_reward_fault (r), list[i].why);
        train_reward_close (r);
    }
    assert_int_equal (open_fds (), before);
    expect_no_child ();
}

/* What comes behind a good reply does not become another's. */
static void test_behind (void **state)
{
    train_reward_t *r = open_program (SELF " ok", 1, 20000);
    pid_t pid;

    (void)state;
    assert_true (one (r, "two") == 2);
    assert_true (one (r, "a") == 1);
    assert_int_equal (report (r).garbage, 1);
    pid = (pid_t)one (r, "pid");
    assert_true (one (r, "last") == 5);
    until_ended (pid); /* and the next sample is not to blame */
    assert_true (one (r, "bb") == 2);
    assert_int_equal (report (r).crashes, 1);
    assert_int_equal (report (r).started, 3);
    train_reward_close (r);
}

/* Killed from outside while it waits for work, and while it works. */
static void test_killed (void **state)
{
    train_reward_t *r = open_program (SELF " ok", 1, 20000);
    pid_t pid = (pid_t)one (r, "pid");

    (void)state;
    kill (pid, SIGKILL);
    until_ended (pid);
    assert_true (one (r, "a") == 1);
    assert_int_equal (report (r).crashes, 1);
    assert_true (isnan (one (r, "killed")));
    assert_int_equal (report (r).crashes, 2);
    assert_non_null (strstr (train_reward_fault (r), "killed by signal 9"));
    assert_true (one (r, "bb") == 2);
    train_reward_close (r);
    expect_no_child ();
}

/* One that never replies is given the time to start in once. */
static void test_never (void **state)
{
    static const char *const all[] = {"sleep", "sleep", "sleep", "sleep"};
    double begin = now ();
    train_reward_t *r;
    float ret[4];

    (void)state;
    start_ms = 2000;
    r = open_program (SELF " ok", 1, 200);
    start_ms = 20000;
    score (r, all, 4, ret);
    assert_true (isnan (ret[0]) && isnan (ret[3]));
    assert_int_equal (report (r).timeouts, 4);
    assert_true (now () - begin > 2.7 && now () - begin < 8);
    assert_non_null (strstr (train_reward_fault (r), "within 0.2 s"));
    train_reward_close (r);
    expect_no_child ();
}

/* Samples that hang are not the program's fault: it is there again. */
static void test_again (void **state)
{
    static const char *const all[] = {"sleep", "sleep", "a", "a", "a",
                                      "a",     "a",     "a", "bb"};
    train_reward_t *r;
    float ret[9];

    (void)state;
    start_ms = 1500;
    r = open_program (SELF " slow", 1, 50);
    start_ms = 20000;
    score (r, all, 9, ret);
    assert_true (isnan (ret[0]));
    assert_true (ret[8] == 2);
    train_reward_close (r);
    expect_no_child ();
}

/* It does not read: requests of more than a pipe holds, and SIGPIPE. */
static void test_deaf (void **state)
{
    train_reward_t *r;
    char *big = malloc (1 << 20);
    train_sample_t s[2];
    float ret[2];
    double begin = now ();

    (void)state;
    assert_non_null (big);
    memset (big, 'x', (1 << 20) - 1);
    big[(1 << 20) - 1] = '\0';
    start_ms = 1;
    r = open_program (SELF " deaf", 2, 150);
    start_ms = 20000;
    for (int i = 0; i < 2; i++)
        s[i] = (train_sample_t){.completion = big};
    assert_int_equal (train_reward_score (r, s, 2, ret, NULL), TRAIN_OK);
    assert_true (isnan (ret[0]) && isnan (ret[1]));
    assert_true (now () - begin < 10);
    assert_int_equal (report (r).timeouts, 2);
    assert_non_null (strstr (train_reward_fault (r), "did not read a request"));
    train_reward_close (r);
    r = open_program ("/bin/sh -c 'exec <&-; sleep 9'", 1, 20000);
    usleep (50000);
    assert_int_equal (train_reward_score (r, s, 1, ret, NULL), TRAIN_OK);
    assert_true (isnan (ret[0]));
    assert_int_equal (report (r).crashes, 1);
    train_reward_close (r);
    r = open_program (SELF " ok", 1, 20000); /* and one that reads it all */
    assert_int_equal (train_reward_score (r, s, 1, ret, NULL), TRAIN_OK);
    assert_true (ret[0] == (1 << 20) - 1);
    train_reward_close (r);
    free (big);
}

/* Asked [*arg] times more it says yes. */
static bool count_down (void *arg)
{
    int *left = arg;

    return --*left < 0;
}

/* A reply that comes at once comes in the time that is left; a busy machine may
 * take longer for it, so it is tried some times. */
static void expect_quick (train_reward_t *r, int *left)
{
    const train_sample_t s = {.completion = "ccc"};
    train_status_t status = TRAIN_EABORTED;
    float ret = -1;
    train_error_t err;

    for (int i = 0; i < 20 && status == TRAIN_EABORTED; i++) {
        *left = 1000;
        assert_true (one (r, "bb") == 2);
        assert_true (*left < 1000);
        *left = 0;
        status = train_reward_score (r, &s, 1, &ret, &err);
    }
    assert_int_equal (status, TRAIN_OK);
    assert_true (ret == 3);
}

/* A call that hangs is ended on request; one that is quick comes to its end. */
static void test_ends (void **state)
{
    const train_sample_t s[] = {{.completion = "a"}, {.completion = "sleep"}};
    int left = 0;
    train_reward_t *r;
    float ret[2] = {-1, -1};
    train_error_t err;
    double begin;

    (void)state;
    ends = count_down;
    ends_arg = &left;
    r = open_program (SELF " ok", 1, 20000);
    ends = NULL;
    expect_quick (r, &left);
    begin = now ();
    left = 3;
    assert_int_equal (train_reward_score (r, s, 2, ret, &err), TRAIN_EABORTED);
    assert_true (now () - begin < 15);
    assert_non_null (strstr (err.text, "judge: the wait for "));
    assert_non_null (strstr (err.text, " of 2 replies"));
    assert_true (ret[0] == -1 && ret[1] == -1);
    assert_int_equal (report (r).timeouts + report (r).crashes, 0);
    left = 1000;
    assert_true (one (r, "dddd") == 4);
    train_reward_close (r);
    expect_no_child ();
}

/* One that failed is not waited for though its child holds the pipes; one that ended
 * well may have left its work to a child. */
static void test_child (void **state)
{
    train_reward_t *r = open_program (SELF " ok", 1, 20000);
    static const char *const what[] = {"held", "bb", "moved", "ccc"};
    double begin = now ();
    float ret[4];

    (void)state;
    score (r, what, 4, ret);
    assert_true (isnan (ret[0]) && ret[1] == 2 && ret[2] == 8 && ret[3] == 3);
    assert_true (now () - begin < 15);
    assert_non_null (strstr (train_reward_fault (r), "exited with status 3"));
    train_reward_close (r);
}

/* A program that always fails ends the call after so many, and soon. */
static void test_bound (void **state)
{
    train_reward_t *r = open_program ("/bin/sh -c 'exit 7'", 2, 20000);
    train_sample_t s[40] = {{0}};
    train_error_t err = {0};
    float ret[40] = {3};
    double begin = now ();

    (void)state;
    for (int i = 0; i < 40; i++)
        s[i].completion = "x";
    assert_int_equal (train_reward_score (r, s, 40, ret, &err), TRAIN_EPEER);
    /* both may end before it is looked at */
    assert_true (
        strstr (err.text, "judge: 12 faults in a row (max_faults)")
        || strstr (err.text, "judge: 13 faults in a row (max_faults)"));
    assert_non_null (strstr (err.text, "exited with status 7"));
    assert_true (ret[0] == 3 && now () - begin < 20);
    assert_true (report (r).started <= 16);
    train_reward_close (r);
    expect_no_child ();
}

/* Samples beyond the limit of one process go on in the others. */
static void test_many (void **state)
{
    static const char *const what[] = {"a",    "exit", "bb",
                                       "kill", "ccc",  "garbage"};
    train_reward_t *r = open_program (SELF " ok", 4, 20000);
    const char *c[64];
    float ret[64];

    (void)state;
    for (int i = 0; i < 64; i++)
        c[i] = what[i % 6];
    score (r, c, 64, ret);
    for (int i = 0; i < 64; i++)
        assert_true (i % 2 ? isnan (ret[i])
                           : ret[i] == (float)strlen (what[i % 6]));
    assert_int_equal (report (r).scored, 32);
    train_reward_close (r);
    expect_no_child ();
}

static void test_descriptors (void **state)
{
    int leaky = open ("/dev/null", O_RDONLY); /* not closed at exec */
    train_reward_t *r = open_program (SELF " ok", 3, 20000);

    (void)state;
    assert_true (leaky > 2);
    for (int i = 0; i < 3; i++)
        assert_true (one (r, "fds") == 3);
    train_reward_close (r);
    close (leaky);
}

/* As a kernel before Linux 5.9 has it. */
static bool without_close_range (void)
{
    struct sock_filter list[] = {
        BPF_STMT (BPF_LD | BPF_W | BPF_ABS, offsetof (struct seccomp_data, nr)),
        BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 0, 1),
        BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT (BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog all = {sizeof (list) / sizeof (*list), list};

    return prctl (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
           && prctl (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0
           && syscall (SYS_close_range, ~0u, ~0u, 0u) < 0 && errno == ENOSYS;
}

static void test_descriptors_listed (void **state)
{
    int leaky = open ("/dev/null", O_RDONLY), high = fcntl (leaky, F_DUPFD, 99);
    int status = 0;
    pid_t pid;

    (void)state;
    assert_true (leaky > 2 && high >= 99);
    if ((pid = fork ()) == 0) {
        train_reward_t *r;

        if (!without_close_range ())
            _exit (1);
        r = open_program (SELF " ok", 2, 20000);
        status = one (r, "fds") == 3 && one (r, "fds") == 3 ? 0 : 2;
        train_reward_close (r);
        _exit (status);
    }
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_int_equal (status, 0);
    close (leaky);
    close (high);
}

static void test_dies_with_parent (void **state)
{
    int fd[2];
    pid_t parent, pid;

    (void)state;
    assert_int_equal (pipe (fd), 0);
    if ((parent = fork ()) == 0) {
        train_reward_t *r = open_program (SELF " ok", 1, 20000);

        pid = (pid_t)one (r, "pid");
        if (write (fd[1], &pid, sizeof (pid)) != sizeof (pid))
            _exit (1);
        one (r, "sleep");
        _exit (0);
    }
    assert_int_equal (read (fd[0], &pid, sizeof (pid)), sizeof (pid));
    assert_true (runs (pid));
    kill (parent, SIGKILL);
    waitpid (parent, NULL, 0);
    until_ended (pid);
    close (fd[0]);
    close (fd[1]);
}

static void test_words (void **state)
{
    train_reward_options_t o = {
        .size = sizeof (o), .name = "judge", .kind = TRAIN_REWARD_PROGRAM};
    train_reward_t *r =
        open_program ("  '" SELF "' \"a\"' b'  a\\ b ", 1, 20000);
    train_error_t err = {0};

    (void)state;
    assert_true (one (r, "argc") == 301);
    train_reward_close (r);
    r = NULL;
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "judge: program is not set"));
    o.program = "x 'y";
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "quote"));
    o.program = "/nowhere/score --x";
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_ENOTFOUND);
    assert_non_null (strstr (err.text, "cannot start '/nowhere/score'"));
    o.program = "/tmp";
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_EIO);
    o.program = "true";
    o.processes = 257;
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_EINVAL);
    assert_null (r);
    expect_no_child ();
}

int main (int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_replies),
        cmocka_unit_test (test_faults),
        cmocka_unit_test (test_behind),
        cmocka_unit_test (test_killed),
        cmocka_unit_test (test_never),
        cmocka_unit_test (test_again),
        cmocka_unit_test (test_deaf),
        cmocka_unit_test (test_ends),
        cmocka_unit_test (test_bound),
        cmocka_unit_test (test_many),
        cmocka_unit_test (test_descriptors),
        cmocka_unit_test (test_descriptors_listed),
        cmocka_unit_test (test_dies_with_parent),
        cmocka_unit_test (test_words),
        cmocka_unit_test (test_child),
    };

    return argc > 1 ? program (argc, argv)
                    : cmocka_run_group_tests (tests, NULL, NULL);
}
