/* SPDX-License-Identifier: Apache-2.0
 * test_group_leave.c - ranks that leave PMIx slowly, or not at all, while
 * train_group_create ends on the others; and that join it once
 *
 * The ranks meet by Slurm's variables; where a case says so that boot calls
 * itself pmix. What a rank does when it leaves is the case's. */
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
#include <sys/wait.h>
#include <unistd.h>

#include "group_ranks.h"
#include "rv/job.h"

#define SLOW_MS 300
#define TIME_MS 500

/* By the linker's --wrap. */
rv_job_status_t __real_rv_job_init (const rv_job_options_t *opts,
                                    rv_job_t **ret_job, rv_job_error_t *err);
rv_job_status_t __wrap_rv_job_init (const rv_job_options_t *opts,
                                    rv_job_t **ret_job, rv_job_error_t *err);
const char *__real_rv_job_boot (const rv_job_t *job);
void __real_rv_job_finalize (rv_job_t *job);
const char *__wrap_rv_job_boot (const rv_job_t *job);
void __wrap_rv_job_finalize (rv_job_t *job);

static const struct leaver {
    const char *layout;
    int rank; /* of the leaver */
} leavers[] = {
    {"aa", 0}, {"aa", 1}, {"aaaa", 2}, {"aabb", 1}, {"aabb", 2}, {"abcc", 3},
};
#define N_LEAVERS (sizeof (leavers) / sizeof (*leavers))

/* Of the running case, and in a rank: which it is. */
static struct {
    struct job *job;
    int rank;
    void (*leave) (struct job *job);
    bool is_pmix;
    int joins;
} now;

rv_job_status_t __wrap_rv_job_init (const rv_job_options_t *opts,
                                    rv_job_t **ret_job, rv_job_error_t *err)
{
    now.joins++;
    return __real_rv_job_init (opts, ret_job, err);
}

const char *__wrap_rv_job_boot (const rv_job_t *job)
{
    return now.is_pmix ? "pmix" : __real_rv_job_boot (job);
}

void __wrap_rv_job_finalize (rv_job_t *job)
{
    if (now.rank == leavers[now.job->arg].rank)
        now.leave (now.job);
    __real_rv_job_finalize (job);
}

static void set_int (const char *name, int value)
{
    char text[16];

    snprintf (text, sizeof (text), "%d", value);
    setenv (name, text, 1);
}

/* Instead of the variables that group_ranks.c sets; nodes follow each other. */
static void set_step (struct job *job, int rank)
{
    char tasks[64] = "", nodes[64] = "";
    const char *layout = job->layout;

    for (const char *c = layout; *c; c += strspn (c, (char[]){*c, '\0'})) {
        char *end = tasks + strlen (tasks);

        snprintf (end, 8, "%s%d", *tasks ? "," : "",
                  (int)strspn (c, (char[]){*c, '\0'}));
        end = nodes + strlen (nodes);
        snprintf (end, 8, "%s%c", *nodes ? "," : "", *c);
    }
    unsetenv ("RANK");
    unsetenv ("WORLD_SIZE");
    set_int ("SLURM_JOB_ID", getppid ());
    set_int ("SLURM_STEP_ID", job->arg);
    set_int ("SLURM_PROCID", rank);
    set_int ("SLURM_LOCALID",
             rank - (int)(strchr (layout, layout[rank]) - layout));
    set_int ("SLURM_NODEID", layout[rank] - 'a');
    set_int ("SLURM_STEP_NUM_TASKS", job->size);
    setenv ("SLURM_STEP_TASKS_PER_NODE", tasks, 1);
    setenv ("SLURM_STEP_NODELIST", nodes, 1);
    setenv ("RV_BOOT", "slurm", 1);
    now.job = job;
    now.rank = rank;
}

static void leave_late (struct job *job)
{
    poll (NULL, 0, SLOW_MS);
    atomic_store (&job->shared->flag, 1);
}

/* Nobody is here before the leaver has left; what follows is call 1. */
static void body_after (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float x[8] = {0};
    train_tensor_t t;

    if (atomic_load (&job->shared->flag) == 0)
        note (job, rank, "did not wait", 0, 0, 0);
    view_of (&t, x, TRAIN_F32, rank == 0 ? 7 : 8);
    s->status = train_all_reduce (group, &t.t, TRAIN_SUM, &s->err);
}

static void test_late (void **state)
{
    (void)state;
    now.leave = leave_late;
    now.is_pmix = true;
    for (size_t i = 0; i < N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i].layout,
                          .env = set_step,
                          .body = body_after,
                          .arg = (int)i};

        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, "disagree at its call 1: ");
        free_job (&job);
    }
}

static void leave_dead (struct job *job)
{
    (void)job;
    kill (getpid (), SIGKILL);
}

static void body_never (struct job *job, int rank, train_group_t *group)
{
    (void)group;
    note (job, rank, "has a group", 0, 0, 0);
}

static void test_dead (void **state)
{
    (void)state;
    now.leave = leave_dead;
    now.is_pmix = true;
    for (size_t i = 0; i < N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i].layout,
                          .env = set_step,
                          .body = body_never,
                          .arg = (int)i};
        char text[100], dead[2] = {(char)('0' + leavers[i].rank), '\0'};

        snprintf (text, sizeof (text),
                  "rank %d ended during the beginning of group 'world'",
                  leavers[i].rank);
        run_job (&job);
        want (&job, dead, TRAIN_EPEER, text);
        free_job (&job);
    }
}

/* Until another rank has given up, or for long. */
static void leave_never (struct job *job)
{
    int64_t until_ms = now_ms () + LATE_MS;

    while (!any_failed (job) && now_ms () < until_ms)
        poll (NULL, 0, 5);
}

static void test_never (void **state)
{
    (void)state;
    now.leave = leave_never;
    now.is_pmix = true;
    for (size_t i = 0; i < N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i].layout,
                          .env = set_step,
                          .body = body_never,
                          .arg = (int)i,
                          .timeout_ms = TIME_MS};
        char text[100];

        snprintf (text, sizeof (text),
                  "rank %d did not come to the beginning of group 'world', "
                  "within ",
                  leavers[i].rank);
        do
            run_job (&job);
        while (once_more (&job, "", TRAIN_ETIMEDOUT, text));
        want (&job, "", TRAIN_ETIMEDOUT, text);
        free_job (&job);
    }
}

/* Until all others have the group. */
static void leave_last (struct job *job)
{
    int64_t until_ms = now_ms () + LATE_MS;

    while (atomic_load (&job->shared->flag) < job->size - 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
    if (now_ms () >= until_ms)
        note (job, now.rank, "the others waited", 0, 0, 0);
}

static void body_first (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];

    atomic_fetch_add (&job->shared->flag, 1);
    s->status = train_barrier (group, &s->err);
}

/* Another boot than PMIx may be left whenever it is. */
static void test_others (void **state)
{
    (void)state;
    now.leave = leave_last;
    now.is_pmix = false;
    for (size_t i = 0; i < N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i].layout,
                          .env = set_step,
                          .body = body_first,
                          .arg = (int)i};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

static void leave_now (struct job *job)
{
    (void)job;
}

/* Make a group, of which all ranks see [want], and call it. */
static void make (struct job *job, int rank, const char *name,
                  int64_t timeout_ms, train_status_t want)
{
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = "host",
                                  .name = name,
                                  .timeout_ms = timeout_ms};
    train_group_t *group = NULL;
    train_error_t err;
    train_status_t status = train_group_create (&opts, &group, &err);

    if (status == TRAIN_OK && train_group_rank (group) != rank)
        note (job, rank, "has another rank", 0, 0, 0);
    if (status == TRAIN_OK)
        status = train_barrier (group, &err);
    if (status != want)
        note (job, rank, name, status, want, now.joins);
    train_group_destroy (group);
}

static void want_joins (struct job *job, int rank, const char *what, int n)
{
    if (now.joins != n)
        note (job, rank, what, now.joins, n, 0);
}

/* What a child finds is the ranks that forked one too. */
static void make_in_child (struct job *job, int rank, int joins)
{
    int end = 0;
    pid_t pid = fork ();

    if (pid == 0) {
        make (job, rank, "of children", PATIENCE_MS, TRAIN_OK);
        want_joins (job, rank, "joins of a child", joins);
        _exit (0);
    }
    if (pid < 0 || waitpid (pid, &end, 0) != pid || end != 0)
        note (job, rank, "its child", end, 0, 0);
}

static void body_again (struct job *job, int rank, train_group_t *group)
{
    int again = now.is_pmix ? 1 : 3;
    struct seen *s = &job->shared->seen[rank];

    s->status = train_barrier (group, &s->err);
    make (job, rank, "second", PATIENCE_MS, TRAIN_OK);
    make (job, rank, "third", PATIENCE_MS, TRAIN_OK);
    want_joins (job, rank, "joins of three groups", again);
    make_in_child (job, rank, again + 1);
    want_joins (job, rank, "joins with a child", again);
}

/* PMIx is joined once, another boot as often as groups are made. */
static void test_again (void **state)
{
    (void)state;
    now.leave = leave_now;
    for (size_t i = 0; i < 2 * N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i / 2].layout,
                          .env = set_step,
                          .body = body_again,
                          .arg = (int)i / 2};

        now.is_pmix = i % 2 == 0;
        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* One rank stays away from a meeting; the next group is made by PMIx. */
static void body_failed (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    bool away = rank == leavers[job->arg].rank;

    s->status = train_barrier (group, &s->err);
    if (away)
        poll (NULL, 0, 3 * TIME_MS);
    make (job, rank, "late", TIME_MS, TRAIN_ETIMEDOUT);
    make (job, rank, "next", PATIENCE_MS, TRAIN_OK);
    make (job, rank, "last", PATIENCE_MS, TRAIN_OK);
    want_joins (job, rank, "joins after a failure", 2);
}

static void test_failed (void **state)
{
    (void)state;
    now.leave = leave_now;
    now.is_pmix = true;
    for (size_t i = 0; i < N_LEAVERS; i++) {
        struct job job = {.layout = leavers[i].layout,
                          .env = set_step,
                          .body = body_failed,
                          .arg = (int)i};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_late),  cmocka_unit_test (test_dead),
        cmocka_unit_test (test_never), cmocka_unit_test (test_others),
        cmocka_unit_test (test_again), cmocka_unit_test (test_failed),
    };

    return cmocka_run_group_tests_name ("group_leave", tests, NULL, NULL);
}
