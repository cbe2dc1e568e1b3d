/* SPDX-License-Identifier: Apache-2.0
 * test_segment.c - does a job go on after this end? A table of ends; and what
 * --checkpoint takes */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec/segment.h"
#include "plan/checkpoint.h"

#define N(a) (sizeof (a) / sizeof ((a)[0]))

/* A job of --checkpoint that may be put back, whose command ended by itself
 * with [status]. */
#define BASE(status) .asked = true, .may_requeue = true, .exit_status = status

static const struct {
    const char *what;
    struct segment_facts f;
    enum segment_act act;
    enum segment_cause cause;
} ends[] = {
    /* Ends that nobody but the command has made. */
    {"exit 0", {BASE (0)}, SEGMENT_END, CAUSE_COMMAND},
    {"exit 0, the job lives",
     {BASE (0), .said = SAID_RUNNING},
     SEGMENT_END,
     CAUSE_COMMAND},
    {"a crash, nobody asked yet", {BASE (1)}, SEGMENT_ASK, CAUSE_COMMAND},
    {"a crash", {BASE (139), .said = SAID_RUNNING}, SEGMENT_END, CAUSE_COMMAND},
    {"out of memory",
     {BASE (137), .said = SAID_OVER},
     SEGMENT_END,
     CAUSE_COMMAND},
    {"a kill by hand of a rank",
     {BASE (143), .told = true, .said = SAID_RUNNING},
     SEGMENT_END,
     CAUSE_COMMAND},
    /* A user's stop. */
    {"scancel",
     {BASE (143), .told = true, .said = SAID_CANCELLED},
     SEGMENT_END,
     CAUSE_STOPPED},
    {"scancel, and the command ended well",
     {BASE (0), .told = true, .said = SAID_CANCELLED},
     SEGMENT_END,
     CAUSE_STOPPED},
    {"scancel after the limit's signal",
     {BASE (75), .limit_signal = true, .said = SAID_CANCELLED},
     SEGMENT_END,
     CAUSE_STOPPED},
    {"scancel in a preemption's grace time",
     {BASE (143), .told = true, .preempting = true, .said = SAID_CANCELLED},
     SEGMENT_END,
     CAUSE_STOPPED},
    /* SIGTERM, and slurmctld is silent: never guess. */
    {"told, no answer", {BASE (143), .told = true}, SEGMENT_ASK, CAUSE_COMMAND},
    {"signal, no answer",
     {BASE (0), .limit_signal = true},
     SEGMENT_ASK,
     CAUSE_COMMAND},
    {"told, and nobody knows the job",
     {BASE (143), .told = true, .said = SAID_UNKNOWN},
     SEGMENT_END,
     CAUSE_COMMAND},
    /* The limit. */
    {"the limit's signal, status 75",
     {BASE (75), .limit_signal = true, .said = SAID_RUNNING},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"the limit's signal, status 0",
     {BASE (0), .limit_signal = true, .said = SAID_RUNNING},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"the limit's signal, killed by it",
     {BASE (128 + SIGUSR1), .limit_signal = true, .said = SAID_RUNNING},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"ignored until the limit",
     {BASE (137), .limit_signal = true, .said = SAID_TIMEOUT},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"the limit alone",
     {BASE (143), .told = true, .said = SAID_TIMEOUT},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"no requeue",
     {.asked = true,
      .exit_status = 75,
      .limit_signal = true,
      .said = SAID_RUNNING},
     SEGMENT_CHAIN,
     CAUSE_LIMIT},
    {"the limit is not counted",
     {BASE (75), .limit_signal = true, .said = SAID_RUNNING, .retries = 99},
     SEGMENT_REQUEUE,
     CAUSE_LIMIT},
    {"without --checkpoint",
     {.may_requeue = true,
      .exit_status = 143,
      .told = true,
      .said = SAID_TIMEOUT},
     SEGMENT_END,
     CAUSE_COMMAND},
    /* Preemption. */
    {"PreemptMode=REQUEUE",
     {BASE (143), .told = true, .said = SAID_PENDING, .preempting = true},
     SEGMENT_QUEUED,
     CAUSE_PREEMPTION},
    {"PreemptMode=CANCEL",
     {BASE (143), .told = true, .said = SAID_PREEMPTED},
     SEGMENT_REQUEUE,
     CAUSE_PREEMPTION},
    {"PreemptMode=CANCEL, no requeue",
     {.asked = true, .exit_status = 143, .told = true, .said = SAID_PREEMPTED},
     SEGMENT_CHAIN,
     CAUSE_PREEMPTION},
    {"within GraceTime",
     {BASE (143), .told = true, .said = SAID_RUNNING, .preempting = true},
     SEGMENT_REQUEUE,
     CAUSE_PREEMPTION},
    {"within GraceTime, saved and ended with 0",
     {BASE (0), .told = true, .said = SAID_RUNNING, .preempting = true},
     SEGMENT_REQUEUE,
     CAUSE_PREEMPTION},
    {"send_user_signal within GraceTime",
     {BASE (75), .limit_signal = true, .said = SAID_RUNNING,
      .preempting = true},
     SEGMENT_REQUEUE,
     CAUSE_PREEMPTION},
    {"preempted once too often",
     {BASE (143), .told = true, .said = SAID_PREEMPTED,
      .retries = SEGMENT_RETRIES},
     SEGMENT_END,
     CAUSE_PREEMPTION},
    /* Nodes. */
    {"scontrol requeue",
     {BASE (143), .told = true, .said = SAID_PENDING},
     SEGMENT_QUEUED,
     CAUSE_REQUEUED},
    {"a node failed, put back",
     {BASE (143), .told = true, .said = SAID_PENDING, .node_failed = true},
     SEGMENT_QUEUED,
     CAUSE_NODE_FAILURE},
    {"a node failed",
     {BASE (143), .told = true, .said = SAID_NODE_FAIL},
     SEGMENT_REQUEUE,
     CAUSE_NODE_FAILURE},
    {"a broken GPU",
     {BASE (1), .hardware = true, .said = SAID_RUNNING},
     SEGMENT_REQUEUE,
     CAUSE_HARDWARE},
    {"a broken GPU, once too often",
     {BASE (1), .hardware = true, .said = SAID_RUNNING,
      .retries = SEGMENT_RETRIES},
     SEGMENT_END,
     CAUSE_HARDWARE},
};

static void test_ends (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (ends); i++) {
        struct segment_verdict v = segment_decide (&ends[i].f);

        if (v.act != ends[i].act || v.cause != ends[i].cause)
            fail_msg ("%s: act %d, cause %s", ends[i].what, v.act,
                      segment_cause_name (v.cause));
        /* A node is left out for broken hardware alone. */
        assert_int_equal (v.exclude, v.cause == CAUSE_HARDWARE
                                         && v.act == SEGMENT_REQUEUE);
        assert_int_equal (v.given_up,
                          v.act == SEGMENT_END && segment_is_retry (v.cause));
    }
}

static void test_names (void **state)
{
    (void)state;
    for (int c = CAUSE_COMMAND; c <= CAUSE_LOST; c++)
        assert_int_equal (segment_cause_of (segment_cause_name (c)), c);
    assert_int_equal (segment_cause_of (NULL), CAUSE_LOST);
    assert_int_equal (segment_cause_of ("other"), CAUSE_LOST);
    assert_true (segment_is_retry (CAUSE_LOST));
    assert_false (segment_is_retry (CAUSE_LIMIT));
    assert_false (segment_is_retry (CAUSE_REQUEUED));
}

static const struct {
    const char *text;
    int signal; /* 0: refused */
    uint32_t seconds;
} words[] = {
    {"", 0, 0},
    {"@", 0, 0},
    {"USR1@", 0, 0},
    {"USR1@0", 0, 0},
    {"USR1@-5", 0, 0},
    {"USR1@5s", 0, 0},
    {"USR1@65536", 0, 0},
    {"USR1@99999999999999999999", 0, 0},
    {"USR3@5", 0, 0},
    {"SIG", 0, 0},
    {"KILL", 0, 0},
    {"STOP@10", 0, 0},
    {"10@10", 0, 0},
    {"USR1 @10", 0, 0},
    {NULL, SIGUSR1, CHECKPOINT_SECONDS},
    {"USR2", SIGUSR2, CHECKPOINT_SECONDS},
    {"SIGTERM@30", SIGTERM, 30},
    {"sigusr1@1", SIGUSR1, 1},
    {"@65535", SIGUSR1, 65535},
};

static void test_words (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (words); i++) {
        struct checkpoint c = {0};
        struct rv_error err = {0};
        int rc = checkpoint_parse (words[i].text, &c, &err);

        if ((rc == RV_OK) != (words[i].signal != 0)
            || c.signal != words[i].signal || c.seconds != words[i].seconds)
            fail_msg ("'%s': %d, %d@%u", words[i].text, rc, c.signal,
                      c.seconds);
        if (rc)
            assert_true (err.text[0]);
    }
    assert_string_equal (checkpoint_signal_name (SIGQUIT), "QUIT");
    assert_null (checkpoint_signal_name (SIGKILL));
    assert_int_equal (checkpoint_signal ("SIGUSR2"), SIGUSR2);
    assert_int_equal (checkpoint_signal ("KILL"), 0);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_ends),
        cmocka_unit_test (test_names),
        cmocka_unit_test (test_words),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
