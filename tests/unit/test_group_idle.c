/* SPDX-License-Identifier: Apache-2.0
 * test_group_idle.c - ranks that are in another call, or none, than others wait
 * in: a leader in no call passes on what is said, and nobody blames it */
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

#include "group_impl.h"
#include "group_ranks.h"
#include "host.h"

#define TIME_MS 500

/* The leader of the second node, who computes. */
#define IDLE 2

/* Until the others have said what they saw, or for long. */
static void compute (struct job *job)
{
    int64_t until_ms = now_ms () + LATE_MS + 4000;

    while (atomic_load (&job->shared->flag) < job->size - 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
}

static train_status_t sum (train_group_t *group, size_t n, train_error_t *err)
{
    float x[8] = {0};
    train_tensor_t t;

    view_of (&t, x, TRAIN_F32, n);
    return train_all_reduce (group, &t.t, TRAIN_SUM, err);
}

/* In the sixth of the learnt steps, of a broadcast from rank IDLE and a sum,
 * that rank computes in between, and rank arg makes another sum. */
static void body_depart (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int64_t begin_ms = 0;
    char bytes[4] = {0};
    train_tensor_t t;

    view_of (&t, bytes, TRAIN_U8, 4);
    for (int i = 0; i < 20 && s->status == TRAIN_OK; i++) {
        s->status = train_step_begin (group, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_broadcast (group, &t.t, IDLE, &s->err);
        if (i == 5 && rank == IDLE)
            compute (job);
        begin_ms = now_ms ();
        if (s->status == TRAIN_OK)
            s->status =
                sum (group, i == 5 && rank == job->arg ? 7 : 8, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_step_end (group, &s->err);
    }
    if (now_ms () - begin_ms > LATE_MS)
        note (job, rank, "heard late", (int)(now_ms () - begin_ms), 0, 0);
    atomic_fetch_add (&job->shared->flag, 1);
}

static void test_depart (void **state)
{
    static const char *const layouts[] = {"aabb", "aabb", "aabb", "abcc"};
    static const int departs[] = {0, 1, 3, 0};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job job = {.layout = layouts[i],
                          .body = body_depart,
                          .arg = departs[i],
                          .timeout_ms = PATIENCE_MS};
        char text[80];

        run_job (&job);
        snprintf (text, sizeof (text),
                  "rank %d called all_reduce (sum of 7 F32); ", departs[i]);
        want (&job, "", TRAIN_EMISMATCH, text);
        free_job (&job);
    }
}

/* A call whose data moves elsewhere: one rank waits for it, one is struck in it,
 * the others, two leaders or one, have ended it and compute. */
static const struct fault {
    int waits, struck, sig;
    int64_t timeout_ms;
    train_status_t status;
    const char *text;
} faults[] = {
    {3, -1, 0, TIME_MS, TRAIN_ETIMEDOUT,
     "call 1 of group 'world' did not end within "},
    {0, 3, SIGSTOP, TIME_MS, TRAIN_ETIMEDOUT, "rank 3 did not go on with"},
    {3, 0, SIGSTOP, TIME_MS, TRAIN_ETIMEDOUT, "rank 0 did not go on with"},
    {3, 1, SIGKILL, PATIENCE_MS, TRAIN_EPEER, "rank 1 ended during broadcast"},
};

static void body_fault (struct job *job, int rank, train_group_t *group)
{
    const struct fault *f = &faults[job->arg];
    struct comm_call call = {.seq = ++group->seq,
                             .count = 8,
                             .kind = COMM_BROADCAST,
                             .dtype = TRAIN_F32,
                             .root = IDLE};
    struct seen *s = &job->shared->seen[rank];
    int64_t begin_ms;

    s->status = host_agree (group->state, &call, false, &s->err);
    begin_ms = now_ms ();
    if (rank == f->struck)
        kill (getpid (), f->sig);
    if (rank != f->waits) {
        host_end (group->state, &call);
        while (atomic_load (&job->shared->flag) == 0
               && now_ms () < begin_ms + PATIENCE_MS)
            poll (NULL, 0, 5);
        return;
    }
    while (s->status == TRAIN_OK && now_ms () < begin_ms + PATIENCE_MS) {
        s->status = host_look (group->state, &call, begin_ms, &s->err);
        poll (NULL, 0, 20);
    }
    if (now_ms () - begin_ms > LATE_MS)
        note (job, rank, "heard late", (int)(now_ms () - begin_ms), 0, 0);
    atomic_store (&job->shared->flag, 1);
}

static void run_until (struct job *job, int flags, int stopped)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;

    start_job (job);
    while (atomic_load (&job->shared->flag) < flags && now_ms () < until_ms)
        poll (NULL, 0, 1);
    if (stopped >= 0)
        kill (job->pids[stopped], SIGKILL);
    end_job (job);
}

static void test_fault (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (faults) / sizeof (*faults); i++) {
        const struct fault *f = &faults[i];
        const char *others = f->waits == 3 ? "012" : "123";
        struct job job = {.layout = "aabb",
                          .body = body_fault,
                          .arg = (int)i,
                          .timeout_ms = f->timeout_ms};

        do
            run_until (&job, 1, f->sig == SIGSTOP ? f->struck : -1);
        while (once_more (&job, others, f->status, f->text));
        want (&job, others, f->status, f->text);
        free_job (&job);
    }
}

/* Rank 2 stops in call 1. Rank 1 has ended that and waits in call 2, and is the
 * first to say so; rank 0, which waits in call 1 still, hears it too. */
static void body_two_calls (struct job *job, int rank, train_group_t *group)
{
    struct comm_call call = {.seq = ++group->seq,
                             .count = 8,
                             .kind = COMM_BROADCAST,
                             .dtype = TRAIN_F32};
    struct seen *s = &job->shared->seen[rank];
    int64_t begin_ms;

    s->status = host_agree (group->state, &call, false, &s->err);
    if (rank == 2)
        kill (getpid (), SIGSTOP);
    if (rank == 1) {
        host_end (group->state, &call);
        call.seq = ++group->seq;
        s->status = host_agree (group->state, &call, true, &s->err);
    }
    begin_ms = now_ms () + (rank == 0 ? job->timeout_ms / 3 : 0);
    while (s->status == TRAIN_OK && now_ms () < begin_ms + PATIENCE_MS) {
        s->status = host_look (group->state, &call, begin_ms, &s->err);
        poll (NULL, 0, 20);
    }
    atomic_fetch_add (&job->shared->flag, 1);
}

static void test_two_calls (void **state)
{
    static const char text[] =
        "rank 2 did not go on with broadcast (8 F32 from rank 0), call 2";
    struct job job = {
        .layout = "aaa", .body = body_two_calls, .timeout_ms = 3 * TIME_MS};

    (void)state;
    do
        run_until (&job, 2, 2);
    while (once_more (&job, "2", TRAIN_ETIMEDOUT, text));
    want (&job, "2", TRAIN_ETIMEDOUT, text);
    free_job (&job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_depart),
        cmocka_unit_test (test_fault),
        cmocka_unit_test (test_two_calls),
    };

    return cmocka_run_group_tests_name ("group_idle", tests, NULL, NULL);
}
