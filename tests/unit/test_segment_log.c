/* SPDX-License-Identifier: Apache-2.0
 * test_segment_log.c - segments.json, what slurmctld's words mean, and who of
 * a rank's processes gets the signal */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/deliver.h"
#include "exec/segment_ask.h"
#include "exec/segment_log.h"
#include "jobfile.h"
#include "own_dir.h"
#include "plan/fsio.h"

#define N(a)   (sizeof (a) / sizeof ((a)[0]))
#define BUSY_S 60 /* that a busy machine may need from a beginning to its end */

static struct segment_log begin (uint32_t job_id, uint32_t restart)
{
    struct segment_log log = {0};
    struct rv_error err = {0};

    if (segment_log_begin (dir, job_id, restart,
                           jobfile_read (dir, job_id).root, false, &log, &err))
        fail_msg ("%s", err.text);
    return log;
}

static void test_bad_files (void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"schema\": \"rv.segments/1\"}",
        "{\"schema\": \"rv.status/1\", \"job_id\": 1, \"segments\": []}",
        "{\"schema\": \"rv.segments/1\", \"job_id\": 1, \"segments\": {}}"};

    (void)state;
    for (size_t i = 0; i < N (bad); i++) {
        struct segment_log log = {0};
        struct rv_error err = {0};

        write_text ("segments.json", bad[i]);
        assert_int_equal (segment_log_begin (dir, 1, 0, 1, false, &log, &err),
                          RV_EFORMAT);
        assert_non_null (strstr (err.text, "segments.json"));
        assert_null (log.json);
    }
}

static void test_goes_on (void **state)
{
    struct segment_log log = begin (7, 0);

    (void)state;
    assert_int_equal (log.number, 0);
    assert_int_equal (log.elapsed_s, 0);
    log.begun -= 100; /* it ran for that long */
    assert_int_equal (segment_log_end (&log, CAUSE_LIMIT, 75, NULL), 0);
    segment_log_fini (&log);

    log = begin (7, 1);
    assert_int_equal (log.number, 1);
    assert_in_range (log.elapsed_s, 100, 100 + BUSY_S);
    assert_int_equal (log.retries, 0);
    log.begun -= 50;
    assert_int_equal (segment_log_end (&log, CAUSE_PREEMPTION, -1, NULL), 0);
    segment_log_fini (&log);

    log = begin (7, 2);
    assert_int_equal (log.retries, 1);
    assert_in_range (log.elapsed_s, 150, 150 + 2 * BUSY_S);
    assert_int_equal (log.log_id, 7);
    segment_log_fini (&log);
}

static void test_chain (void **state)
{
    struct segment_log log = begin (7, 0);
    char *jobs = fsio_join (dir, "jobs");

    (void)state;
    segment_log_end (&log, CAUSE_LIMIT, 0, NULL);
    segment_log_fini (&log);
    assert_int_equal (mkdir (jobs, 0700), 0);
    free (jobs);
    write_text ("jobs/8.json", "{\"job_id\": 8, \"continues\": 7}");
    write_text ("jobs/9.json", "{\"job_id\": 9, \"continues\": null}");
    log = begin (8, 0);
    assert_int_equal (log.number, 1);
    assert_int_equal (log.log_id, 7);
    segment_log_fini (&log);
    /* Another submission of the same request is work of its own. */
    log = begin (9, 0);
    assert_int_equal (log.number, 0);
    assert_int_equal (log.log_id, 9);
    segment_log_fini (&log);
}

static void test_lost (void **state)
{
    struct segment_log log = begin (7, 0);
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
    char *path = fsio_join (dir, "segments.json");

    (void)state;
    /* Its last sign of life came after half a minute. */
    times[1].tv_sec = log.begun + 30;
    assert_int_equal (utimensat (AT_FDCWD, path, times, 0), 0);
    free (path);
    segment_log_fini (&log);
    log = begin (7, 1);
    assert_in_range (log.elapsed_s, 29, 31);
    assert_int_equal (log.retries, 1);
    segment_log_fini (&log);
}

static const struct {
    const char *json;
    int rc;
    enum segment_said said;
    bool preempting, may_requeue;
    int64_t end_time;
} answers[] = {
    {"{}", RV_EFORMAT, 0, false, false, 0},
    {"{\"schema\": \"rv.segment/1\"}", RV_EFORMAT, 0, false, false, 0},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"perhaps\"}", RV_EFORMAT, 0,
     false, false, 0},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"asked\", \"state\": "
     "\"RUNNING\", \"restarts\": 3, \"may_requeue\": true, \"end_time\": "
     "\"1970-01-01T00:01:40Z\"}",
     RV_OK, SAID_RUNNING, false, true, 100},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"asked\", \"state\": "
     "\"RUNNING\", \"restarts\": 4, \"end_time\": null}",
     RV_OK, SAID_PENDING, false, false, 0},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"asked\", \"state\": "
     "\"PREEMPTED\", \"preempting\": true}",
     RV_OK, SAID_PREEMPTED, true, false, 0},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"asked\", \"state\": "
     "\"DEADLINE\"}",
     RV_OK, SAID_CANCELLED, false, false, 0},
    {"{\"schema\": \"rv.segment/1\", \"done\": \"asked\", \"state\": "
     "\"OUT_OF_MEMORY\"}",
     RV_OK, SAID_OVER, false, false, 0},
};

static void test_answers (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (answers); i++) {
        json_t *j = json_loads (answers[i].json, 0, NULL);
        struct segment_answer a = {0};
        struct rv_error err = {0};

        assert_int_equal (segment_answer_read (j, 3, &a, &err), answers[i].rc);
        assert_int_equal (a.said, answers[i].said);
        assert_int_equal (a.preempting, answers[i].preempting);
        assert_int_equal (a.may_requeue, answers[i].may_requeue);
        assert_int_equal (a.end_time, answers[i].end_time);
        json_decref (j);
    }
}

/* Process 10 is the rank's child; "c" handles the signal. */
static const struct {
    const char *what;
    struct {
        pid_t pid, ppid;
        bool handles;
    } tree[6];
    bool agent;
    pid_t got[3];
} trees[] = {
    {"nobody there", {{11, 1, true}}, false, {0}},
    {"a trainer", {{10, 1, true}}, false, {10}},
    {"its data workers have the handler too",
     {{10, 1, true}, {11, 10, true}, {12, 10, true}},
     false,
     {10}},
    {"a shell around it",
     {{12, 11, true}, {11, 10, false}, {10, 1, false}, {13, 12, true}},
     false,
     {12}},
    {"somebody else's processes",
     {{10, 1, false}, {11, 10, true}, {20, 1, true}, {21, 20, true}},
     false,
     {11}},
    {"nobody handles it", {{10, 1, false}, {11, 10, false}}, false, {10}},
    {"torchrun",
     {{10, 1, false}, {11, 10, true}, {12, 10, true}, {13, 12, true}},
     true,
     {11, 12}},
    {"torchrun that handles it",
     {{10, 1, true}, {11, 10, true}, {12, 10, true}},
     true,
     {11, 12}},
    {"torchrun, and nobody handles it",
     {{10, 1, false}, {11, 10, false}, {12, 10, false}},
     true,
     {11, 12}},
};

static void test_choose (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (trees); i++) {
        struct deliver_proc procs[6];
        size_t n = 0, want = 0, got = 0;

        for (; n < 6 && trees[i].tree[n].pid; n++)
            procs[n] =
                (struct deliver_proc){.pid = trees[i].tree[n].pid,
                                      .ppid = trees[i].tree[n].ppid,
                                      .handles = trees[i].tree[n].handles};
        while (want < 3 && trees[i].got[want])
            want++;
        assert_int_equal (deliver_choose (procs, n, 10, trees[i].agent), want);
        for (size_t k = 0; k < n; k++)
            for (size_t w = 0; w < want; w++)
                got += procs[k].chosen && procs[k].pid == trees[i].got[w];
        if (got != want)
            fail_msg ("%s", trees[i].what);
    }
}

static void test_handles (void **state)
{
    static const char caught[] =
        "Name:\tx\nSigBlk:\t0000000000000000\nSigCgt:\t0000000000000200\n";
    static const char blocked[] =
        "Name:\tx\nSigBlk:\t0000000000000200\nSigCgt:\t0000000000000000\n";

    (void)state;
    assert_true (deliver_handles (caught, SIGUSR1));
    assert_true (deliver_handles (blocked, SIGUSR1));
    assert_false (deliver_handles (caught, SIGUSR2));
    assert_false (deliver_handles ("", SIGUSR1));
}

/* A real child, which waits for it. */
static void test_deliver (void **state)
{
    sigset_t set;
    int status, signal = 0;
    pid_t pid;

    (void)state;
    sigemptyset (&set);
    sigaddset (&set, SIGUSR1);
    sigprocmask (SIG_BLOCK, &set, NULL);
    if ((pid = fork ()) == 0) {
        sigwait (&set, &signal);
        _exit (signal == SIGUSR1 ? 42 : 1);
    }
    assert_true (pid > 0);
    assert_int_equal (deliver_signal (pid, SIGUSR1, false), 1);
    while (waitpid (pid, &status, 0) < 0 && errno == EINTR)
        ;
    assert_true (WIFEXITED (status));
    assert_int_equal (WEXITSTATUS (status), 42);
    assert_int_equal (deliver_signal (pid, SIGUSR1, false), 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (test_bad_files, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_goes_on, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_chain, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_lost, make_dir, remove_dir),
        cmocka_unit_test (test_answers),
        cmocka_unit_test (test_choose),
        cmocka_unit_test (test_handles),
        cmocka_unit_test (test_deliver),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
