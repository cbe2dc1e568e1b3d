/* SPDX-License-Identifier: Apache-2.0
 * test_report.c - what ranks and the batch step leave, and what it tells */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/child.h"
#include "exec/report.h"
#include "own_dir.h"
#include "plan/fsio.h"

static bool provisional; /* of put_rank */

static void put_rank (unsigned rank, unsigned job, unsigned restart, int ms,
                      int status, int signal)
{
    struct report_id id = {.job_id = job,
                           .restart = restart,
                           .rank = rank,
                           .provisional = provisional};
    struct child_result r = {.exit_status = signal ? -1 : status,
                             .signal = signal,
                             .tail = "last \xff words\n"};
    struct timespec t = {.tv_sec = 1700000000 + ms / 1000,
                         .tv_nsec = ms % 1000 * 1000000L};

    r.started = r.ended = t;
    assert_int_equal (report_rank (dir, &id, &r, NULL), 0);
}

static void test_time (void **state)
{
    struct timespec t = {.tv_sec = 1700000000, .tv_nsec = 1234000};
    char buf[40];

    (void)state;
    assert_string_equal (report_time (&t, buf, sizeof (buf)),
                         "2023-11-14T22:13:20.001234+00:00");
}

static void test_first_cause (void **state)
{
    static const struct {
        struct {
            int ms, status, signal;
        } end[4];
        int cause; /* rank, -1 none */
    } v[] = {
        {{{0, 0, 0}, {5, 0, 0}, {9, 0, 0}, {9, 0, 0}}, -1},
        {{{90, 1, 0}, {5, 0, 0}, {80, 7, 0}, {95, 1, 0}}, 2},
        /* killed, and its peers noticed before anybody saw it die */
        {{{900, 4, 0}, {901, 4, 0}, {950, 0, 9}, {902, 4, 0}}, 2},
        /* long before the kill: the exit is the cause */
        {{{500, 4, 0}, {0, 0, 0}, {950, 0, 9}, {0, 0, 0}}, 0},
        /* ended by the step's SIGTERM, though first by the clock */
        {{{100, 0, 15}, {101, 0, 15}, {130, 3, 0}, {102, 0, 15}}, 2},
        {{{104, 0, 15}, {101, 0, 15}, {130, 0, 15}, {102, 0, 15}}, 1},
    };
    json_t *cause = NULL;
    unsigned ranks = 0;

    (void)state;
    assert_int_equal (
        report_first_cause ("/no/such", 1, 0, &cause, &ranks, NULL), RV_EIO);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        for (unsigned r = 0; r < 4; r++)
            put_rank (r, 5, 1, v[i].end[r].ms, v[i].end[r].status,
                      v[i].end[r].signal);
        put_rank (7, 5, 0, 1, 9, 0); /* the run before the requeue */
        put_rank (8, 4, 1, 1, 9, 0); /* another job */
        write_file ("rank-9.json", "{", 1, 0600);
        assert_int_equal (report_first_cause (dir, 5, 1, &cause, &ranks, NULL),
                          0);
        assert_int_equal (ranks, 4);
        if (v[i].cause < 0) {
            assert_null (cause);
            continue;
        }
        assert_non_null (cause);
        assert_int_equal (json_integer_value (json_object_get (cause, "rank")),
                          v[i].cause);
        json_decref (cause);
    }
}

static int first_cause (void)
{
    json_t *cause = NULL;
    unsigned ranks;
    int rank = -1;

    assert_int_equal (report_first_cause (dir, 5, 1, &cause, &ranks, NULL), 0);
    if (cause)
        rank = (int)json_integer_value (json_object_get (cause, "rank"));
    json_decref (cause);
    return rank;
}

/* The step was killed before the ranks could tell causes from consequences. */
static void test_provisional (void **state)
{
    (void)state;
    provisional = true;
    put_rank (0, 5, 1, 140, 0, 9);  /* the step's kill */
    put_rank (1, 5, 1, 120, 14, 0); /* MPI's abort of a peer */
    put_rank (2, 5, 1, 100, 7, 0);
    put_rank (3, 5, 1, 140, 0, 9);
    assert_int_equal (first_cause (), 2);
    put_rank (2, 5, 1, 100, 0, 9); /* a kill, if it is the first of all */
    assert_int_equal (first_cause (), 2);
    put_rank (2, 5, 1, 130, 0, 9);
    assert_int_equal (first_cause (), 1);
    provisional = false;
    put_rank (3, 5, 1, 200, 3, 0); /* one that is certain goes before all */
    assert_int_equal (first_cause (), 3);
    put_rank (3, 5, 1, 200, 0, 0);
    assert_int_equal (first_cause (), 1);
}

static void check_others (bool running, const char *want)
{
    json_t *well, *failed, *silent, *all;
    char *text;

    report_others (dir, 11, 0, 6, 1, running, &well, &failed, &silent);
    all = json_pack ("[o,o,o]", well, failed, silent);
    text = json_dumps (all, JSON_COMPACT);
    assert_string_equal (text, want);
    free (text);
    json_decref (all);
}

static void test_others (void **state)
{
    struct report_id id = {.job_id = 11, .rank = 3};
    struct child_result told = {
        .signal = SIGTERM, .exit_status = -1, .step_signal = SIGTERM};

    (void)state;
    check_others (false, "[[],[],[0,2,3,4,5]]");
    put_rank (0, 11, 0, 0, 0, 0);
    put_rank (1, 11, 0, 0, 7, 0);
    put_rank (2, 11, 0, 0, 0, SIGSEGV);
    assert_int_equal (report_rank (dir, &id, &told, NULL), 0);
    put_rank (4, 11, 1, 0, 0, 0); /* of another start */
    check_others (false, "[[0,3],[2],[4,5]]");
    check_others (true, "[[0,3,4,5],[2],[]]");
    /* The step killed the command of a shell, and then the shell's rank. */
    provisional = true;
    put_rank (4, 11, 0, 0, 128 + SIGKILL, 0);
    put_rank (5, 11, 0, 0, 9, 0);
    provisional = false;
    check_others (true, "[[0,3,4],[2,5],[]]");
}

static void test_missing (void **state)
{
    uint32_t rank = 99;

    (void)state;
    for (unsigned r = 0; r < 3; r++)
        put_rank (r, 6, 0, 0, 0, 0);
    assert_false (report_missing (dir, 6, 0, 3, &rank));
    assert_int_equal (rank, 99);
    assert_true (report_missing (dir, 6, 0, 4, &rank));
    assert_int_equal (rank, 3);
    put_rank (1, 6, 1, 0, 0, 0); /* of another start */
    assert_true (report_missing (dir, 6, 0, 4, &rank));
    assert_int_equal (rank, 1);
    assert_true (report_missing ("/no/such", 6, 0, 1, &rank));
    assert_int_equal (rank, 0);
}

static void test_is_over (void **state)
{
    static const struct {
        bool done, cause, over;
        int exit_status, signal;
    } v[] = {
        {true, false, true, 0, 0},    {true, true, true, 7, 0},
        {true, true, true, 137, 9},   {true, true, true, 143, SIGTERM},
        {false, false, false, 0, 0},  {true, false, false, 143, SIGTERM},
        {true, false, false, 125, 0}, {true, true, true, 125, 0},
        {true, false, true, 1, 0},
    };
    int status = -1;

    (void)state;
    assert_false (report_is_over ("/no/such", 6, 1, &status));
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct report_status s = {.job_id = 6,
                                  .restart = 1,
                                  .done = v[i].done,
                                  .exit_status = v[i].exit_status,
                                  .signal = v[i].signal};

        s.first_cause = v[i].cause ? json_object () : NULL;
        assert_int_equal (report_status (dir, &s, NULL), 0);
        json_decref (s.first_cause);
        assert_int_equal (report_is_over (dir, 6, 2, &status), v[i].over);
        if (v[i].over)
            assert_int_equal (status, v[i].exit_status);
        assert_false (report_is_over (dir, 6, 1, &status)); /* this start */
        assert_false (report_is_over (dir, 7, 2, &status)); /* another job */
    }
}

static void test_told_to_end (void **state)
{
    static const struct {
        int step_signal, signal;
        bool told;
    } v[] = {
        {0, 0, false},      {0, SIGTERM, false}, {SIGTERM, 0, true},
        {SIGTERM, 9, true}, {SIGUSR1, 0, false}, {SIGUSR1, SIGUSR1, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct child_result r = {.step_signal = v[i].step_signal,
                                 .signal = v[i].signal};

        assert_int_equal (child_told_to_end (&r), v[i].told);
    }
}

static void test_status (void **state)
{
    struct report_status s = {.job_id = 5, .started = {.tv_sec = 1700000000}};
    char *path = fsio_join (dir, "status.json");
    json_t *j;

    (void)state;
    assert_int_equal (report_status (dir, &s, NULL), 0);
    j = json_load_file (path, 0, NULL);
    assert_string_equal (json_string_value (json_object_get (j, "state")),
                         "running");
    assert_true (json_is_null (json_object_get (j, "exit_status")));
    assert_true (json_is_null (json_object_get (j, "ended_at")));
    assert_true (json_is_null (json_object_get (j, "nodes")));
    json_decref (j);
    s.done = true;
    s.nodes = "n[1-2]";
    s.exit_status = 137;
    s.signal = 9;
    s.ended.tv_sec = 1700000001;
    s.message = "m";
    assert_int_equal (report_status (dir, &s, NULL), 0);
    j = json_load_file (path, 0, NULL);
    assert_string_equal (json_string_value (json_object_get (j, "state")),
                         "done");
    assert_string_equal (json_string_value (json_object_get (j, "nodes")),
                         "n[1-2]");
    assert_int_equal (json_integer_value (json_object_get (j, "exit_status")),
                      137);
    assert_int_equal (json_integer_value (json_object_get (j, "signal")), 9);
    assert_true (json_is_null (json_object_get (j, "first_cause")));
    json_decref (j);
    free (path);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_time),
        cmocka_unit_test (test_first_cause),
        cmocka_unit_test (test_provisional),
        cmocka_unit_test (test_missing),
        cmocka_unit_test (test_others),
        cmocka_unit_test (test_is_over),
        cmocka_unit_test (test_told_to_end),
        cmocka_unit_test (test_status),
    };

    return cmocka_run_group_tests (tests, make_dir, remove_dir);
}
