/* SPDX-License-Identifier: Apache-2.0
 * test_claim.c - of several jobs of one request exactly one runs the command:
 * processes that race on a folder, each file operation late by chance, some
 * killed at each point between claim and start
 *
 * A round is 8 processes; a table in shared memory plays slurmctld. RV_TEST_LONG
 * runs 200 rounds with delays up to 5 s, else 10 with short ones. */
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
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/claim.h"
#include "own_dir.h"
#include "plan/fsio.h"

#define JOBS      8
#define FIRST_JOB 100
#define TOGETHER  25 /* rounds */
#define KILLS     14 /* operations before the start, and some more */

/* One claimant without a race: [said] is slurmctld's word of the others. */
struct single {
    enum claim_said said;
    int asked;
    int start_after; /* the other's command begins at that question; 0: never */
};

static enum claim_said single_ask (void *arg, uint32_t job_id)
{
    struct single *s = arg;

    (void)job_id;
    if (++s->asked == s->start_after)
        claim_started (dir, NULL);
    return s->said;
}

static struct claim_holder take (uint32_t job, uint32_t restart, uint32_t root,
                                 struct single *s, bool *won)
{
    struct claim c = {.dir = dir,
                      .job_id = job,
                      .restart = restart,
                      .root = root,
                      .ask = single_ask,
                      .arg = s,
                      .poll_ms = 1};
    struct claim_holder h = {0};
    struct rv_error err = {0};

    if (claim_take (&c, won, &h, &err))
        fail_msg ("%s", err.text);
    return h;
}

static void test_bad_claims (void **state)
{
    static const char *const bad[] = {"",
                                      "job",
                                      "job 1 restart 0",
                                      "job 1 restart 0 first 1",
                                      "job 1 restart 0 first 1\nmore",
                                      "job x restart 0 first 1\n"};
    struct claim c = {.dir = dir, .job_id = 1, .root = 1, .ask = single_ask};
    struct claim_holder h;
    bool won;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        struct rv_error err = {0};

        write_text ("claim", bad[i]);
        assert_int_equal (claim_take (&c, &won, &h, &err), RV_EFORMAT);
        assert_non_null (strstr (err.text, "/claim"));
    }
}

static void test_alone (void **state)
{
    struct single s = {0};
    bool won = false;

    (void)state;
    assert_int_equal (take (7, 0, 7, &s, &won).number, 0);
    assert_true (won);
    /* Its batch step once more, and the job put back: it need not ask. */
    assert_int_equal (take (7, 0, 7, &s, &won).number, 0);
    claim_started (dir, NULL);
    assert_int_equal (take (7, 1, 7, &s, &won).number, 1);
    assert_true (won);
    assert_int_equal (take (9, 0, 7, &s, &won).number, 2); /* chained */
    assert_true (won);
    assert_int_equal (s.asked, 0);
}

static void test_loser (void **state)
{
    struct single s = {.said = CLAIM_LIVES, .start_after = 3};
    bool won = false;

    (void)state;
    take (7, 0, 7, &s, &won);
    assert_int_equal (take (8, 0, 8, &s, &won).job_id, 7);
    assert_false (won);
    assert_int_equal (s.asked, 3); /* it waited until then */
    /* Never again, though the winner be over. */
    s.said = CLAIM_OVER;
    take (8, 1, 8, &s, &won);
    assert_false (won);
    assert_int_equal (s.asked, 3);
}

static void test_taken_over (void **state)
{
    struct single s = {.said = CLAIM_OVER};
    bool won = false;

    (void)state;
    take (7, 0, 7, &s, &won);
    assert_int_equal (take (8, 0, 8, &s, &won).number, 1);
    assert_true (won);
    assert_int_equal (s.asked, 1);
    /* One answer that it is not known may come from a fresh slurmctld. */
    s = (struct single){.said = CLAIM_UNKNOWN};
    assert_int_equal (take (9, 0, 9, &s, &won).number, 2);
    assert_int_equal (s.asked, 3);
    /* Put back too late. */
    s = (struct single){.said = CLAIM_LIVES, .start_after = 1};
    assert_int_equal (take (7, 1, 7, &s, &won).job_id, 9);
    assert_false (won);
}

static void test_hand_on (void **state)
{
    struct single s = {.said = CLAIM_LIVES, .start_after = 1};
    struct claim c = {.dir = dir, .job_id = 7, .root = 7};
    bool won = false;

    (void)state;
    assert_int_equal (claim_hand_on (&c, 8, NULL), RV_ESTATE);
    take (7, 0, 7, &s, &won);
    assert_int_equal (claim_hand_on (&c, 8, NULL), RV_OK);
    assert_int_equal (claim_hand_on (&c, 9, NULL), RV_ESTATE);
    assert_int_equal (take (8, 0, 7, &s, &won).job_id, 8);
    assert_true (won);
    assert_int_equal (take (10, 0, 10, &s, &won).job_id, 8);
    assert_false (won);
}

/* The race. */
struct table {
    int over[JOBS]; /* what slurmctld says */
    int ran;
};

struct job {
    struct table *t;
    const char *dir;
    unsigned seed;
    int delay_ms; /* at most */
    int kill_at;  /* operation; 0: never */
    int count;
};

static void late (void *arg, const char *operation)
{
    struct job *j = arg;
    int ms = rand_r (&j->seed) % (j->delay_ms + 1);

    (void)operation;
    if (++j->count == j->kill_at)
        raise (SIGKILL);
    usleep ((useconds_t)ms * 1000);
}

static enum claim_said ask_table (void *arg, uint32_t job_id)
{
    const struct job *j = arg;

    late (arg, "ask");
    return __atomic_load_n (&j->t->over[job_id - FIRST_JOB], __ATOMIC_SEQ_CST)
               ? CLAIM_OVER
               : CLAIM_LIVES;
}

static void be_job (struct job *j, int n, uint32_t restart)
{
    struct claim c = {.dir = j->dir,
                      .job_id = (uint32_t)(FIRST_JOB + n),
                      .restart = restart,
                      .root = (uint32_t)(FIRST_JOB + n),
                      .ask = ask_table,
                      .before = late,
                      .arg = j,
                      .poll_ms = 10};
    struct claim_holder h;
    struct rv_error err = {0};
    bool won = false;

    if (claim_take (&c, &won, &h, &err)) {
        fprintf (stderr, "job %d: %s\n", n, err.text);
        _exit (1);
    }
    if (won) {
        late (j, "start");
        j->kill_at = 0; /* it runs */
        __atomic_add_fetch (&j->t->ran, 1, __ATOMIC_SEQ_CST);
        late (j, "started");
        if (claim_started (j->dir, &err))
            _exit (1);
    }
    _exit (0);
}

static pid_t start_job (struct table *t, const char *where, unsigned seed,
                        int delay_ms, int kill_at, int n, uint32_t restart)
{
    struct job j = {.t = t,
                    .dir = where,
                    .seed = seed * 97 + (unsigned)n * 7 + restart,
                    .delay_ms = delay_ms,
                    .kill_at = kill_at};
    pid_t pid = fork ();

    if (pid == 0)
        be_job (&j, n, restart);
    return pid;
}

/* Some jobs are killed at some point, a third of these is put back. Each round
 * has one at least that is not. */
static int run_round (const char *where, unsigned seed, int delay_ms)
{
    struct table *t = mmap (NULL, sizeof (*t), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned dice = seed;
    pid_t pid[JOBS];
    int left = JOBS, spared = rand_r (&dice) % JOBS, bad = 0, status;

    if (t == MAP_FAILED)
        return 1;
    for (int n = 0; n < JOBS; n++) {
        bool kill = n != spared && rand_r (&dice) % 3;

        pid[n] = start_job (t, where, seed, delay_ms,
                            kill ? 1 + rand_r (&dice) % KILLS : 0, n, 0);
    }
    while (left) {
        pid_t ended = wait (&status);
        int n = 0;

        if (ended < 0)
            return 1;
        while (n < JOBS && pid[n] != ended)
            n++;
        bad = bad || (WIFEXITED (status) && WEXITSTATUS (status));
        if (WIFSIGNALED (status) && rand_r (&dice) % 3 == 0) {
            pid[n] = start_job (t, where, seed, delay_ms, 0, n, 1);
            continue;
        }
        __atomic_store_n (&t->over[n], 1, __ATOMIC_SEQ_CST);
        left--;
    }
    if (bad || t->ran != 1)
        fprintf (stderr, "seed %u: the command ran %d times\n", seed, t->ran);
    return bad || t->ran != 1;
}

static void race (unsigned base, int rounds, int delay_ms)
{
    int done = 0, failed = 0;

    while (done < rounds) {
        int n = rounds - done < TOGETHER ? rounds - done : TOGETHER, status;

        for (int i = 0; i < n; i++) {
            char where[128];
            pid_t pid;

            snprintf (where, sizeof (where), "%s/%d", dir, done + i);
            assert_int_equal (mkdir (where, 0700), 0);
            if ((pid = fork ()) == 0)
                _exit (
                    run_round (where, base + (unsigned)(done + i), delay_ms));
            assert_true (pid > 0);
        }
        for (int i = 0; i < n; i++) {
            assert_true (wait (&status) > 0);
            failed += status != 0;
        }
        done += n;
    }
    if (failed)
        fail_msg ("%d of %d rounds failed", failed, rounds);
}

static void test_race (void **state)
{
    bool whole = getenv ("RV_TEST_LONG") != NULL;

    (void)state;
    race ((unsigned)time (NULL), whole ? 200 : 10, whole ? 5000 : 10);
}

static int end_of (pid_t pid)
{
    int status = -1;

    assert_true (pid > 0);
    assert_int_equal (waitpid (pid, &status, 0), pid);
    return status;
}

/* The first of two is killed at the [point]-th operation, and is over, or put
 * back. Returns whether it was. */
static bool kill_at (int point, bool back)
{
    struct table *t = mmap (NULL, sizeof (*t), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char where[128];
    bool killed;

    assert_true (t != MAP_FAILED);
    snprintf (where, sizeof (where), "%s/%d-%d", dir, point, back);
    assert_int_equal (mkdir (where, 0700), 0);
    killed = WIFSIGNALED (end_of (start_job (t, where, 1, 0, point, 0, 0)));
    assert_int_equal (t->ran, !killed);
    if (killed && back) {
        assert_int_equal (end_of (start_job (t, where, 1, 0, 0, 0, 1)), 0);
        assert_int_equal (t->ran, 1);
    }
    t->over[0] = 1;
    assert_int_equal (end_of (start_job (t, where, 1, 0, 0, 1, 0)), 0);
    assert_int_equal (t->ran, 1);
    munmap (t, sizeof (*t));
    return killed;
}

/* Each point between claim and start, one after the other. */
static void test_each_point (void **state)
{
    int points = 0;

    (void)state;
    for (int point = 1; point <= 2 * KILLS; point++) {
        points += kill_at (point, false);
        kill_at (point, true);
    }
    /* read, write, look, link, stat, unlink, read, read, look, start */
    assert_in_range (points, 7, KILLS);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (test_bad_claims, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_alone, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_loser, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_taken_over, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_hand_on, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_each_point, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown (test_race, make_dir, remove_dir),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
