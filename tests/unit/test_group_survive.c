/* SPDX-License-Identifier: Apache-2.0
 * test_group_survive.c - a rank dies or stops: the process of the others lives,
 * and they go on in a new group */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "group_ranks.h"

enum { KILLED = 0, STOPPED = 1, LEAVES = 2 };

static int32_t sum_of (train_group_t *group, int32_t x, train_error_t *err)
{
    train_tensor_t t;

    view_of (&t, &x, TRAIN_I32, 1);
    return train_all_reduce (group, &t.t, TRAIN_SUM, err) == TRAIN_OK ? x : -1;
}

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL, *made = NULL;
    train_error_t err;

    (void)state;
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_group_survivors (NULL, 0, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_survivors (group, 0, NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_survivors (group, 2, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_survivors (group, -1, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_survivors (group, 0, "", &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_survivors (group, 0, NULL, &made, &err),
                      TRAIN_ESTATE);
    assert_null (made);
    train_group_destroy (group);
}

/* The new group works, is in the old order, and names the old ranks. */
static void try_new (struct job *job, int rank, train_group_t *made)
{
    struct seen *s = &job->shared->seen[rank];
    int lost = job->arg % 10, left = job->size - 1;
    int32_t all = (1 << job->size) - 1 - (1 << lost);

    if (train_group_size (made) != left
        || train_group_rank (made) != rank - (rank > lost)
        || sum_of (made, 1 << rank, &s->err) != all)
        note (job, rank, "wrong survivors", train_group_rank (made),
              train_group_size (made), 0);
    if (train_group_rank (made) == left - 1)
        return; /* leaves */
    s->status = train_barrier (made, &s->err);
}

/* Rank arg%10 is lost in the way arg/10; the others go on without it. */
static void body_lost (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_t *made = NULL;
    int64_t start_ms;

    train_barrier (group, NULL);
    if (rank == job->arg % 10) {
        if (job->arg / 10 == KILLED)
            raise (SIGKILL);
        if (job->arg / 10 == STOPPED)
            raise (SIGSTOP);
        return;
    }
    if (train_barrier (group, NULL) == TRAIN_OK)
        note (job, rank, "the barrier went well", 0, 0, 0);
    start_ms = now_ms ();
    s->status = train_group_survivors (group, 0, NULL, &made, &s->err);
    s->ms = now_ms () - start_ms;
    if (s->ms > 3 * job->timeout_ms + LATE_MS)
        note (job, rank, "found too late", 0, 0, (size_t)s->ms);
    if (train_barrier (group, NULL) != TRAIN_ESTATE)
        note (job, rank, "the old group is not broken", 0, 0, 0);
    if (s->status == TRAIN_OK)
        try_new (job, rank, made);
    train_group_destroy (made);
    atomic_fetch_add (&job->shared->flag, 1);
}

static void run_lost (struct job *job)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;

    start_job (job);
    while (atomic_load (&job->shared->flag) < job->size - 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
    kill (job->pids[job->arg % 10], SIGKILL);
    end_job (job);
}

static void test_lost (void **state)
{
    static const struct {
        const char *layout;
        int arg;
        const char *last; /* the last of the new group, and its old rank */
    } cases[] = {
        {"aaaa", KILLED * 10 + 0, "are 1,2,3 of 'world'"},
        {"aaaa", KILLED * 10 + 3, "are 0,1,2 of 'world'"},
        {"aabb", KILLED * 10 + 0, "are 1,2,3 of 'world'"},
        {"aabb", KILLED * 10 + 2, "are 0,1,3 of 'world'"},
        {"aabb", LEAVES * 10 + 1, "are 0,2,3 of 'world'"},
        {"aaaa", STOPPED * 10 + 1, "are 0,2,3 of 'world'"},
        {"aabb", STOPPED * 10 + 0, "are 1,2,3 of 'world'"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct job job = {.layout = cases[i].layout,
                          .body = body_lost,
                          .arg = cases[i].arg,
                          /* long enough for a loaded machine to begin */
                          .timeout_ms = 3000};
        int lost = job.arg % 10, last = lost == 3 ? 2 : 3;
        char except[3] = {(char)('0' + lost), (char)('0' + last), '\0'};

        do
            run_lost (&job);
        while (once_more (&job, except, TRAIN_EPEER, cases[i].last));
        assert_int_equal (job.shared->seen[last].status, TRAIN_OK);
        want (&job, except, TRAIN_EPEER,
              "rank 2 left the group during barrier, call 2 of group "
              "'survivors'");
        want (&job, except, TRAIN_EPEER, cases[i].last);
        free_job (&job);
    }
}

/* Two of four are no majority, unless that is asked for. */
static void body_half (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_t *made = NULL;

    train_barrier (group, NULL);
    if (rank > 1)
        raise (SIGKILL);
    train_barrier (group, NULL);
    s->status = train_group_survivors (group, 0, NULL, &made, &s->err);
    if (s->status == TRAIN_OK)
        return;
    if (train_group_survivors (group, 2, "two", &made, NULL) != TRAIN_OK
        || sum_of (made, 1, NULL) != 2)
        note (job, rank, "two cannot go on", 0, 0, 0);
    train_group_destroy (made);
}

static void test_half (void **state)
{
    struct job job = {.layout = "aabb", .body = body_half};

    (void)state;
    run_job (&job);
    want (&job, "23", TRAIN_EPEER,
          "2 of 4 ranks are left, 3 are asked for; ranks 2-3 did not come");
    free_job (&job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_lost),
        cmocka_unit_test (test_half),
    };

    return cmocka_run_group_tests_name ("group_survive", tests, NULL, NULL);
}
