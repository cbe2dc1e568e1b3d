/* SPDX-License-Identifier: Apache-2.0
 * test_group_split.c - groups made of ranks of another group */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "group_ranks.h"

static int32_t sum_of (train_group_t *group, int32_t x, train_error_t *err)
{
    train_tensor_t t;

    view_of (&t, &x, TRAIN_I32, 1);
    return train_all_reduce (group, &t.t, TRAIN_SUM, err) == TRAIN_OK ? x : -1;
}

static void test_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    const int twice[] = {0, 0}, far[] = {1};
    train_group_t *group = NULL, *made = NULL;
    train_error_t err;
    char name[80];

    (void)state;
    memset (name, 'n', sizeof (name) - 1);
    name[sizeof (name) - 1] = '\0';
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_OK);
    assert_int_equal (train_group_split (NULL, 0, 0, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_split (group, 0, 0, NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_split (group, -2, 0, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "TRAIN_NO_COLOUR"));
    assert_int_equal (train_group_split (group, 0, 0, "", &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_split (group, 0, 0, name, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_subset (group, NULL, 1, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_subset (group, far, 0, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_subset (group, twice, 2, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_group_subset (group, far, 1, NULL, &made, &err),
                      TRAIN_EINVAL);
    assert_null (made);
    /* none of these was counted: the group of one still splits */
    assert_int_equal (train_group_split (group, 3, 0, NULL, &made, &err),
                      TRAIN_OK);
    train_group_destroy (group);
    assert_int_equal (train_group_size (made), 1);
    assert_int_equal (sum_of (made, 7, &err), 7);
    train_group_destroy (made);
}

/* Odd and even ranks, each in reverse order; rank 4 in none. The parent is
 * destroyed first where the rank is even. */
static void body_split (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_t *half = NULL, *pair = NULL;
    int colour = rank == 4 ? TRAIN_NO_COLOUR : rank % 2;
    const int list[] = {3, 0};
    int32_t all = 0, want = 0, members = 0;

    for (int r = 0; r < job->size; r++) {
        all += 1 << r;
        if (r != 4 && r % 2 == rank % 2) {
            want += 1 << r;
            members++;
        }
    }
    s->status =
        train_group_split (group, colour, -rank, "half", &half, &s->err);
    if (s->status != TRAIN_OK)
        return;
    if ((half == NULL) != (rank == 4))
        note (job, rank, "in the wrong subgroup", colour, 0, 0);
    if (half
        && (train_group_size (half) != members
            || train_group_rank (half) != members - 1 - rank / 2
            || sum_of (half, 1 << rank, &s->err) != want))
        note (job, rank, "wrong subgroup", train_group_rank (half),
              train_group_size (half), 0);
    s->status = train_group_subset (group, list, 2, NULL, &pair, &s->err);
    if (s->status == TRAIN_OK && (pair != NULL) != (rank == 0 || rank == 3))
        note (job, rank, "in the wrong pair", 0, 0, 0);
    if (pair
        && (train_group_rank (pair) != (rank == 0)
            || sum_of (pair, rank + 1, &s->err) != 5))
        note (job, rank, "wrong pair", train_group_rank (pair), 0, 0);
    if (sum_of (group, 1 << rank, &s->err) != all)
        note (job, rank, "the parent is not sound", 0, 0, 0);
    train_group_destroy (pair);
    if (half && sum_of (half, 1, &s->err) != members)
        note (job, rank, "the half is not sound", 0, 0, 0);
    train_group_destroy (half);
}

static void test_split (void **state)
{
    static const char *const layouts[] = {"aaaa", "aabb", "abab", "aabbc"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body_split};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* A deadline that nobody lives to see is one all the same. */
static void test_patient (void **state)
{
    struct job job = {
        .layout = "aabb", .body = body_split, .timeout_ms = INT64_MAX};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

/* Rank 1 makes another call, gives another name, or another list. */
static void body_differ (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    const int same[] = {0, 1, 2}, other[] = {0, 2, 1};
    train_group_t *made = NULL;
    bool odd = rank == 1;

    if (job->arg == 0 && odd)
        s->status = train_barrier (group, &s->err);
    else if (job->arg < 2)
        s->status =
            train_group_split (group, 0, 0, odd ? "x" : "y", &made, &s->err);
    else
        s->status = train_group_subset (group, odd ? other : same, 3, NULL,
                                        &made, &s->err);
    if (made)
        note (job, rank, "a group was made", 0, 0, 0);
    if (job->arg > 0 && train_barrier (group, NULL) != TRAIN_OK)
        note (job, rank, "the parent is not sound", 0, 0, 0);
}

static void test_differ (void **state)
{
    static const char *const texts[] = {
        "rank 1 called barrier",
        "ranks 0 and 1 give their subgroup different names",
        "ranks 0 and 1 name different ranks for a subgroup",
    };

    (void)state;
    for (int i = 0; i < 3; i++) {
        struct job job = {.layout = "aab", .body = body_differ, .arg = i};

        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, texts[i]);
        free_job (&job);
    }
}

/* A fault in a subgroup names its ranks, and breaks it alone. */
static void body_break (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_t *half = NULL;

    s->status = train_group_split (group, rank / 2, 0, "half", &half, &s->err);
    if (s->status != TRAIN_OK)
        return;
    if (rank == 3) {
        train_group_destroy (half);
    } else {
        s->status = train_barrier (half, &s->err);
        if (rank == 2)
            train_group_destroy (half);
    }
    if (rank < 2) { /* the other half goes on */
        s->status = train_barrier (half, &s->err);
        train_group_destroy (half);
    }
    if (train_barrier (group, NULL) != TRAIN_OK)
        note (job, rank, "the parent is not sound", 0, 0, 0);
}

static void test_break (void **state)
{
    static const char *const layouts[] = {"aaaa", "abab"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = layouts[i], .body = body_break};

        run_job (&job);
        for (int r = 0; r < 2; r++)
            assert_int_equal (job.shared->seen[r].status, TRAIN_OK);
        want (&job, "013", TRAIN_EPEER,
              "rank 1 left the group during barrier, call 1 of group 'half' "
              "(ranks 0-1 of 'half' are 2,3 of 'world')");
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments), cmocka_unit_test (test_split),
        cmocka_unit_test (test_patient),   cmocka_unit_test (test_differ),
        cmocka_unit_test (test_break),
    };

    return cmocka_run_group_tests_name ("group_split", tests, NULL, NULL);
}
