/* SPDX-License-Identifier: Apache-2.0
 * test_waiting.c - why a job waits, and when it should start */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "plan/waiting.h"

#define NOW 1795867200 /* 2026-11-28 12:00 UTC */

static void no_reason (void **state)
{
    char buf[128] = "x";

    waiting_text (&(struct waiting){0}, NOW, buf, sizeof (buf));
    assert_string_equal (buf, "");
    waiting_text (&(struct waiting){.reason = ""}, NOW, buf, sizeof (buf));
    assert_string_equal (buf, "");
    waiting_text (&(struct waiting){.expected_at = NOW + 60}, NOW, buf,
                  sizeof (buf));
    assert_string_equal (buf, "expected at 12:01, in 1 min");
    (void)state;
}

static const struct {
    struct waiting w;
    int64_t start;
    const char *text;
} table[] = {
    {{"Priority", false, NOW - 9, 0},
     0,
     "jobs before it are served first (Priority)"},
    {{"Resources", false, NOW - 9, NOW + 720},
     NOW + 720,
     "what it asks for is in use (Resources); expected at 12:12, in 12 min"},
    {{"Resources", false, NOW - 9, NOW + 11401},
     NOW + 11401,
     "what it asks for is in use (Resources); expected at 15:10, in 3 h 11 "
     "min"},
    {{"Priority", false, 0, NOW + 180000},
     NOW + 180000,
     "jobs before it are served first (Priority); expected at 14:00, in 2 d 2 "
     "h"},
    /* What was expected in the past says nothing. */
    {{"Priority", false, 0, NOW - 1},
     0,
     "jobs before it are served first (Priority)"},
    {{"Priority", false, 0, NOW},
     NOW,
     "jobs before it are served first (Priority); expected at 12:00, in 1 "
     "min"},
    /* A time to begin is the least that is known, whatever Slurm expects. */
    {{"BeginTime", false, NOW + 600, 0},
     NOW + 600,
     "it is not to start before its time (BeginTime); expected at 12:10, in "
     "10 min"},
    {{"BeginTime", false, NOW + 600, NOW + 5},
     NOW + 600,
     "it is not to start before its time (BeginTime); expected at 12:10, in "
     "10 min"},
    {{"BeginTime", true, NOW + 121, 0},
     NOW + 121,
     "put back, Slurm holds it until 12:02:01 (BeginTime)"},
    {{"BeginTime", true, NOW + 121, NOW + 7200},
     NOW + 7200,
     "put back, Slurm holds it until 12:02:01 (BeginTime); expected at 14:00, "
     "in 2 h 0 min"},
    {{"Priority", true, NOW - 121, 0},
     0,
     "jobs before it are served first (Priority)"},
    /* The longer of two that begin alike. */
    {{"DependencyNeverSatisfied", false, 0, 0},
     0,
     "a job it depends on did not end as asked (DependencyNeverSatisfied)"},
    {{"Dependency", false, 0, 0},
     0,
     "a job it depends on has not ended (Dependency)"},
    {{"ReqNodeNotAvail, UnavailableNodes:n1", false, 0, 0},
     0,
     "a node it needs is down, drained or reserved (ReqNodeNotAvail, "
     "UnavailableNodes:n1)"},
    {{"AssocGrpGRES", false, 0, 0},
     0,
     "its account has as much as it may (AssocGrpGRES)"},
    {{"QOSMaxGRESPerUser", false, 0, 0},
     0,
     "a limit of its QOS is reached (QOSMaxGRESPerUser)"},
    {{"Reason199", false, 0, 0}, 0, "Reason199"},
};

static void texts (void **state)
{
    for (size_t i = 0; i < sizeof (table) / sizeof (table[0]); i++) {
        char buf[160];

        assert_int_equal (waiting_start (&table[i].w, NOW), table[i].start);
        waiting_text (&table[i].w, NOW, buf, sizeof (buf));
        assert_string_equal (buf, table[i].text);
    }
    (void)state;
}

static void short_buffers (void **state)
{
    char whole[160];

    for (size_t i = 0; i < sizeof (table) / sizeof (table[0]); i++) {
        waiting_text (&table[i].w, NOW, whole, sizeof (whole));
        for (size_t size = 1; size <= strlen (whole); size++) {
            char *buf = malloc (size);

            assert_non_null (buf);
            waiting_text (&table[i].w, NOW, buf, size);
            assert_int_equal (strlen (buf), size - 1);
            assert_memory_equal (buf, whole, size - 1);
            free (buf);
        }
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (no_reason),
        cmocka_unit_test (texts),
        cmocka_unit_test (short_buffers),
    };

    setenv ("TZ", "UTC", 1);
    tzset ();
    return cmocka_run_group_tests (tests, NULL, NULL);
}
