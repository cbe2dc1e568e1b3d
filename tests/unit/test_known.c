/* SPDX-License-Identifier: Apache-2.0
 * test_known.c - which job a word means */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd_job.h"
#include "known_account.h"
#include "known_secrets.h"
#include "own_dir.h"
#include "plan/fsio.h"

#define N(a) (sizeof (a) / sizeof ((a)[0]))

static struct request reqs[] = {
    {.id = "20261128-070000-ffffffff", .created_at = 100},
    {.id = "20261128-070001-00000000", .created_at = 101},
    {.id = "20261128-070001-aaaaaaaa", .created_at = 101},
};

#define ENDED .task = -1

/* As known_load leaves them: by job id, newest first. */
static struct known_job jobs[] = {
    {.job_id = 9, .name = "other", ENDED},
    {.job_id = 7, .name = "train", .req = &reqs[1], ENDED},
    {.job_id = 6, .name = "train", .req = &reqs[2], ENDED},
    {.job_id = 5, .name = "tr", .req = &reqs[0], ENDED},
    {.job_id = 4, .name = "my-run9", ENDED},
};

static const struct known known = {.job = jobs, .n = 5};

static void finds (void **state)
{
    static const struct {
        const char *word;
        uint32_t job_id; /* 0: none */
    } v[] = {
        {"", 0},
        {"nothing", 0},
        {"70", 0},
        {"6", 6},
        {"train", 7},
        {"tr", 5},
        {"oth", 9},
        {"20261128-070000-ffffffff", 5},
        {"ffffffff", 5},
        {"20261128-07000", 0},
        {"run9", 4}, /* the end of a name, and a part of one */
        {"y-r", 4},
        {"rai", 7},
        {"9", 9},
        {"run", 4},
        {"my-run99", 0},
        /* two of one second: their ids' random ends tell nothing */
        {NULL, 7},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        const struct known_job *job = NULL;
        struct rv_error err = {0};
        int status = known_find (&known, v[i].word, &job, NULL, &err);

        if (!v[i].job_id) {
            assert_int_equal (status, RV_ENOTFOUND);
            continue;
        }
        assert_int_equal (status, RV_OK);
        assert_int_equal (job->job_id, v[i].job_id);
    }
    (void)state;
}

/* What is exact goes before what begins so, that before what ends so, that
 * before what has it within; and in each what lives before what has ended. */
static void order (void **state)
{
    static struct cluster_job runs = {.active = true},
                              waits = {.active = true, .pending = true};
    static struct known_job some[] = {
        {.job_id = 19, .name = "xrunx", .live = &runs, .task = -1},
        {.job_id = 18, .name = "myrun", .live = &runs, .task = -1},
        {.job_id = 17, .name = "run2", .live = &runs, .task = -1},
        {.job_id = 16, .name = "run1", .task = -1},
        {.job_id = 15, .name = "run", .task = -1},
        {.job_id = 14, .name = "b14", .live = &waits, .task = -1},
        {.job_id = 13, .name = "b13", .live = &waits, .task = -1},
    };
    static const struct {
        size_t from; /* the jobs from here on */
        const char *word;
        uint32_t job_id; /* 0: ambiguous, 1: none */
        const char *text;
    } v[] = {
        {0, "run", 15, NULL},  {0, "un", 18, NULL},
        {0, "xr", 19, NULL},   {0, "run1", 16, NULL},
        {0, "ru", 17, NULL},   {0, "b1", 0, "14 b14, 13 b13"},
        {0, "b", 0, "14 b14"}, {0, "unx", 19, NULL},
        {0, "nx", 19, NULL},   {0, "14", 14, NULL},
        {5, "3", 1, "'3'"},    {5, "1", 1, "'1'"},
        {0, "n", 18, NULL},    {1, "yru", 18, NULL},
        {2, "n2", 17, NULL},   {3, "un1", 16, NULL},
        {3, "_3", 1, "'_3'"},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct known list = {.job = some + v[i].from, .n = 7 - v[i].from};
        const struct known_job *job = NULL;
        struct rv_error err = {0};
        int status = known_find (&list, v[i].word, &job, NULL, &err);

        assert_int_equal (status, v[i].job_id == 0   ? RV_EMISMATCH
                                  : v[i].job_id == 1 ? RV_ENOTFOUND
                                                     : RV_OK);
        if (v[i].text)
            assert_non_null (strstr (err.text, v[i].text));
        else
            assert_int_equal (job->job_id, v[i].job_id);
    }
    (void)state;
}

/* Without a word: the newest that runs, be it older than one that waits. */
static void newest (void **state)
{
    static struct cluster_job runs = {.active = true},
                              waits = {.active = true, .pending = true};
    struct known_job some[] = {
        {.job_id = 9, .name = "a", .req = &reqs[1], .task = -1},
        {.job_id = 8, .name = "b", .req = &reqs[2], .live = &waits, .task = -1},
        {.job_id = 7, .name = "c", .live = &runs, .task = -1},
        {.job_id = 6, .name = "d", .req = &reqs[0], .live = &runs, .task = -1},
    };
    struct known list = {.job = some, .n = 4};
    const struct known_job *job;

    assert_int_equal (known_find (&list, NULL, &job, NULL, NULL), RV_OK);
    assert_int_equal (job->job_id, 6);
    some[3].live = NULL;
    assert_int_equal (known_find (&list, NULL, &job, NULL, NULL), RV_OK);
    assert_int_equal (job->job_id, 9);
    list = (struct known){.job = some + 2, .n = 1}; /* none of rv run */
    assert_int_equal (known_find (&list, NULL, &job, NULL, NULL), RV_ENOTFOUND);
    (void)state;
}

static void arrays (void **state)
{
    static struct cluster_job runs = {.active = true},
                              waits = {.active = true, .pending = true};
    static struct request req = {.id = "20261128-070000-ffffffff",
                                 .dir = "/requests/x",
                                 .job_id = 30,
                                 .log_id = 5};
    struct known_job some[] = {
        {32, "arr", &runs, &req, 30, 1},   {31, "arr", &runs, &req, 30, 0},
        {30, "arr", &waits, &req, 30, -1}, {20, "old", NULL, &req, 20, 1},
        {19, "old", NULL, &req, 20, 0},
    };
    static const struct {
        const char *word;
        uint32_t job_id;
        bool whole;
    } v[] = {
        {"30_1", 32, false}, {"32", 32, false}, {"30_0", 31, false},
        {"arr", 32, true},   {"30", 32, true},  {"ar", 32, true},
        {"20_0", 19, false}, {"19", 19, false}, {"old", 20, true},
    };
    const struct known list = {.job = some, .n = 5};
    const struct known_job *job;
    struct rv_error err;
    struct request own;
    bool whole;

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        assert_int_equal (known_find (&list, v[i].word, &job, &whole, NULL),
                          RV_OK);
        assert_int_equal (job->job_id, v[i].job_id);
        assert_int_equal (whole, v[i].whole);
        if (!whole)
            continue;
        assert_int_equal (known_find (&list, v[i].word, &job, NULL, &err),
                          RV_EMISMATCH);
        assert_non_null (strstr (err.text, v[i].job_id == 32
                                               ? "30_1 arr, 30_0 arr, 30 arr"
                                               : "20_1 old, 20_0 old"));
    }
    assert_int_equal (known_request (&some[0], &own, NULL), RV_OK);
    assert_string_equal (own.dir, "/requests/x/array/1");
    assert_int_equal (own.job_id, 32);
    assert_int_equal (own.log_id, 0);
    free (own.dir);
    assert_int_equal (known_request (&some[2], &own, NULL), RV_OK);
    assert_string_equal (own.dir, "/requests/x");
    assert_int_equal (own.log_id, 5);
    free (own.dir);
    (void)state;
}

#define NAMED(n) .name = n, .command = "", .waiting_tasks = "", .array_task = -1

/* A requeue and the next of a chain are submissions of hours later. */
static void later (void **state)
{
    static struct request many[] = {
        {.id = "a",
         .dir = "/r/a",
         .name = "train",
         .created_at = 100,
         .job_id = 5},
        {.id = "b",
         .dir = "/r/b",
         .name = "train",
         .created_at = 100,
         .job_id = 6},
    };
    static struct cluster_job live[] = {
        {.job_id = 5,
         .submitted_at = 90000,
         .name = "train",
         .command = "/r/a/job.sh"},
        {.job_id = 6,
         .submitted_at = 90000,
         .name = "train",
         .command = "/r/old/job.sh"},
    };
    struct known k = {.jobs = {live, 2}, .reqs = {.req = many, .n = 2}};

    (void)state;
    assert_int_equal (known_join (&k, false, NULL), RV_OK);
    assert_int_equal (k.n, 3);
    for (size_t i = 0; i < k.n; i++)
        if (k.job[i].live)
            assert_ptr_equal (k.job[i].req,
                              k.job[i].job_id == 5 ? &many[0] : NULL);
        else
            assert_ptr_equal (k.job[i].req, &many[1]);
    free (k.by_id);
    free (k.by_command);
    free (k.job);
}

/* The requests: 8 of a job that Slurm has forgotten, 20 of three jobs, of which
 * 21 ran, 30 an array. */
static struct request asked[] = {
    {.id = "a", .dir = "/r/a", .name = "one", .created_at = 1000, .job_id = 8},
    {.id = "b",
     .dir = "/r/b",
     .name = "fan",
     .created_at = 2000,
     .job_id = 21,
     .root = {20, 21, 22},
     .n_roots = 3},
    {.id = "c", .dir = "/r/c", .name = "arr", .created_at = 3000, .job_id = 30},
};

static struct cluster_job kept[] = {
    /* of a cluster before: the same number, another time */
    {.job_id = 8, .submitted_at = 10, .ended_at = 20, NAMED ("one")},
    {.job_id = 8, .submitted_at = 1001, .ended_at = 1100, NAMED ("one")},
    {.job_id = 8, .submitted_at = 1200, .ended_at = 1300, NAMED ("one")},
    {.job_id = 9, .submitted_at = 1000, .ended_at = 1300, NAMED ("bare")},
    {.job_id = 10, .submitted_at = 1000, .active = true, NAMED ("lost")},
    {.job_id = 11, .submitted_at = 1000, .ended_at = 1001, NAMED ("seen")},
    {.job_id = 20, .submitted_at = 2001, .ended_at = 2002, NAMED ("fan")},
    {.job_id = 21, .submitted_at = 2001, .ended_at = 2400, NAMED ("fan")},
    {.job_id = 31,
     .array_id = 30,
     .submitted_at = 3001,
     .ended_at = 3002,
     .name = "arr",
     .command = "",
     .waiting_tasks = "",
     .array_task = 4},
};

static void forgotten (void **state)
{
    static struct cluster_job live[] = {
        {.job_id = 11, .submitted_at = 1000, .active = true, NAMED ("seen")}};
    struct known k = {.jobs = {live, 1}, .reqs = {.req = asked, .n = 3}};
    struct account account = {.there = true, .runs = {kept, 9}};
    static const struct {
        uint32_t job_id;
        const struct cluster_job *live;
        const struct request *req;
    } want[] = {{31, &kept[8], &asked[2]}, {30, NULL, &asked[2]},
                {21, &kept[7], &asked[1]}, {11, &live[0], NULL},
                {9, &kept[3], NULL},       {8, &kept[2], &asked[0]}};

    (void)state;
    assert_int_equal (known_join (&k, false, NULL), RV_OK);
    assert_int_equal (known_account_since (&k, 9000, 100), 1000);
    assert_int_equal (known_account_since (&k, 9000, 8500), 500);
    assert_int_equal (known_account_add (&k, &account, NULL), RV_OK);
    assert_int_equal (k.n, 6);
    for (size_t i = 0; i < k.n; i++) {
        assert_int_equal (k.job[i].job_id, want[i].job_id);
        assert_ptr_equal (k.job[i].live, want[i].live);
        assert_ptr_equal (k.job[i].req, want[i].req);
    }
    assert_int_equal (k.job[0].task, 4);
    free (k.by_id);
    free (k.by_command);
    free (k.job);
}

static bool has_copy (const char *id)
{
    char *path = fsio_join (dir, id);
    const struct request req = {.dir = path};
    bool ret = request_has_secrets (&req);

    free (path);
    return ret;
}

/* Copies of which Slurm knows no job that may still start, and that are old. */
static void secrets (void **state)
{
    static struct {
        const char *id, *name, *cluster;
        int64_t created_at;
        uint32_t job_id;
        bool stays;
    } v[] = {
        {"a", "gone", "here", 1000, 5, false},
        {"b", "young", "here", 9000, 6, true},
        {"c", "far", "there", 1000, 7, true},
        {"d", "runs", "here", 1000, 8, true},
        {"e", "arr", "here", 1000, 9, true},     /* a task of it waits */
        {"f", "moved", "here", 1000, 12, true},  /* by another path */
        {"g", "ended", "here", 1000, 13, false}, /* Slurm knows it still */
    };
    struct request many[N (v)];
    static struct cluster_job live[] = {
        {.job_id = 8, .active = true, NAMED ("runs")},
        {.job_id = 11, .active = true, .pending = true, NAMED ("arr")},
        {.job_id = 12, .active = true, NAMED ("moved")},
        {.job_id = 13, NAMED ("ended")},
    };
    struct known k = {.jobs = {live, N (live)}, .reqs = {many, N (v), NULL, 0}};

    (void)state;
    for (size_t i = 0; i < N (v); i++) {
        char *at = fsio_join (dir, v[i].id);

        many[i] = (struct request){.id = (char *)v[i].id,
                                   .dir = at,
                                   .name = (char *)v[i].name,
                                   .cluster = (char *)v[i].cluster,
                                   .created_at = v[i].created_at,
                                   .job_id = v[i].job_id,
                                   .secrets = true};
        assert_int_equal (mkdir (at, 0700), 0);
        at = fsio_join (at, "secrets");
        assert_int_equal (fsio_write (at, "A=1\n", 4, 0600, NULL), 0);
        free (at);
    }
    live[0].command = fsio_join (many[3].dir, "job.sh");
    live[1].command = fsio_join (many[4].dir, "job.sh");
    live[2].command = "/before/f/job.sh";
    live[2].submitted_at = 1000;
    live[3].command = fsio_join (many[6].dir, "job.sh");
    assert_int_equal (known_join (&k, false, NULL), RV_OK);
    known_forget_gone (&k, "here", 9000);
    for (size_t i = 0; i < N (v); i++) {
        if (has_copy (v[i].id) != v[i].stays)
            fail_msg ("%s", v[i].name);
        free (many[i].dir);
    }
    free (live[0].command);
    free (live[1].command);
    free (live[3].command);
    free (k.by_id);
    free (k.by_command);
    free (k.job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (finds),   cmocka_unit_test (order),
        cmocka_unit_test (later),   cmocka_unit_test (forgotten),
        cmocka_unit_test (newest),  cmocka_unit_test (arrays),
        cmocka_unit_test (secrets),
    };

    return cmocka_run_group_tests (tests, make_dir, remove_dir);
}
