/* SPDX-License-Identifier: Apache-2.0
 * test_group_faults.c - ranks that disagree, come late, end or do not belong:
 * an error on every other rank, and never a hang */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "group_ranks.h"

/* One call of a rank that differs from the others'. */
struct odd_call {
    const char *report;
    char kind; /* r, b or w(ait) */
    train_dtype_t dtype;
    size_t n;
    int root;
    train_op_t op;
    const char *text;
};

#define SUM TRAIN_SUM
/* [0] is everybody's, the others are one rank's. */
static const struct odd_call odd_calls[] = {
    {"", 'r', TRAIN_F32, 409600, 0, SUM, "all_reduce (sum of 409600 F32)"},
    {"NVIDIA/nccl#1417", 'r', TRAIN_F32, 409598, 0, SUM,
     "all_reduce (sum of 409598 F32)"},
    {"NVIDIA/nccl#1394", 'r', TRAIN_F32, 1, 0, SUM,
     "all_reduce (sum of 1 F32)"},
    {"pytorch/pytorch#150248", 'r', TRAIN_BF16, 409600, 0, SUM,
     "all_reduce (sum of 409600 BF16)"},
    {"reduction", 'r', TRAIN_F32, 409600, 0, TRAIN_MAX,
     "all_reduce (maximum of 409600 F32)"},
    {"pytorch/pytorch#140563", 'b', TRAIN_F32, 409600, 1, SUM,
     "broadcast (409600 F32 from rank 1)"},
    {"barrier", 'w', TRAIN_F32, 0, 0, SUM, "barrier"},
    {"nothing", 'r', TRAIN_F32, 0, 0, SUM, "all_reduce (sum of 0 F32)"},
};
#define N_ODD ((int)(sizeof (odd_calls) / sizeof (*odd_calls)))

static train_status_t make_call (train_group_t *group, const struct odd_call *c,
                                 void *data, train_error_t *err)
{
    train_tensor_t t;

    view_of (&t, data, c->dtype, c->n);
    if (c->kind == 'w')
        return train_barrier (group, err);
    if (c->kind == 'b')
        return train_broadcast (group, &t.t, c->root, err);
    return train_all_reduce (group, &t.t, c->op, err);
}

/* Rank arg/100 makes odd call arg%100, the others the first. */
static void body_mismatch (struct job *job, int rank, train_group_t *group)
{
    bool odd = rank == job->arg / 100;
    struct seen *s = &job->shared->seen[rank];
    size_t n = 409600 * sizeof (float);
    unsigned char *data = malloc (n);
    train_error_t err;

    memset (data, 0x11 + rank, n);
    train_barrier (group, NULL);
    s->status =
        make_call (group, &odd_calls[odd ? job->arg % 100 : 0], data, &s->err);
    for (size_t i = 0; i < n; i++) {
        if (data[i] != 0x11 + rank)
            note (job, rank, "buffer was touched", 0, 0, i);
    }
    if (train_barrier (group, &err) != TRAIN_ESTATE
        || !strstr (err.text, s->err.text)
        || !strstr (err.text, "broken since"))
        note (job, rank, "a later call is not ESTATE", 0, 0, 0);
    free (data);
}

static void test_mismatch (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb"};

    (void)state;
    for (int i = 0; i < 2 * (N_ODD - 1); i++) {
        int odd = 1 + i / 2, rank = i % 3;
        struct job job = {.layout = layouts[i % 2],
                          .body = body_mismatch,
                          .arg = rank * 100 + odd};
        char text[80];

        run_job (&job);
        want (&job, "", TRAIN_EMISMATCH, "disagree at its call 2");
        want (&job, "", TRAIN_EMISMATCH, odd_calls[0].text);
        snprintf (text, sizeof (text), "rank %d called %s", rank,
                  odd_calls[odd].text);
        want (&job, "", TRAIN_EMISMATCH, text);
        free_job (&job);
    }
}

/* pytorch/pytorch#39706: every rank names another root. */
static void body_roots (struct job *job, int rank, train_group_t *group)
{
    struct odd_call c = {"", 'b', TRAIN_U8, 8, rank, SUM, ""};
    struct seen *s = &job->shared->seen[rank];
    char data[8] = "1234567";

    s->status = make_call (group, &c, data, &s->err);
}

static void test_mismatch_roots (void **state)
{
    struct job job = {.layout = "aab", .body = body_roots};

    (void)state;
    run_job (&job);
    want (&job, "", TRAIN_EMISMATCH,
          "rank 0 called broadcast (8 U8 from rank 0); rank 1 called broadcast "
          "(8 U8 from rank 1); rank 2 called broadcast (8 U8 from rank 2)");
    free_job (&job);
}

/* Rank arg comes when the others have given up. */
static void body_late (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];

    train_barrier (group, NULL);
    while (rank == job->arg && atomic_load (&job->shared->flag) < job->size - 1)
        poll (NULL, 0, 5);
    s->status = train_barrier (group, &s->err);
    atomic_fetch_add (&job->shared->flag, 1);
}

static void test_late (void **state)
{
    static const struct {
        const char *layout;
        int rank;
        const char *text;
    } cases[] = {
        {"aaa", 1,
         "rank 1 did not come to barrier, call 2 of group 'world', within "},
        {"aabb", 0, "rank 0 did not come to barrier"},
        {"aabb", 1, "rank 1 did not come to barrier"},
        {"aabb", 2, "rank 2 did not come to barrier"},
        {"aabb", 3, "rank 3 did not come to barrier"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct job job = {.layout = cases[i].layout,
                          .body = body_late,
                          .arg = cases[i].rank,
                          .timeout_ms = 1200};
        char within[32];

        do
            run_job (&job);
        while (once_more (&job, "", TRAIN_ETIMEDOUT, cases[i].text));
        want (&job, "", TRAIN_ETIMEDOUT, cases[i].text);
        snprintf (within, sizeof (within), " within %g s",
                  (double)job.timeout_ms / 1e3);
        want (&job, "", TRAIN_ETIMEDOUT, within);
        free_job (&job);
    }
}

/* Rank arg%10 ends, in the way arg/10, while the others wait for it. */
enum { END_KILL = 0, END_EXIT = 10, END_LEAVE = 20 };

static void body_die (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    int64_t start_ms;

    train_barrier (group, NULL);
    if (rank == job->arg % 10) {
        if (job->arg / 10 * 10 == END_KILL)
            raise (SIGKILL);
        if (job->arg / 10 * 10 == END_EXIT)
            _exit (0);
        return; /* rank_main destroys the group */
    }
    start_ms = now_ms ();
    s->status = train_barrier (group, &s->err);
    s->ms = now_ms () - start_ms;
    if (s->ms > LATE_MS)
        note (job, rank, "noticed too late", 0, 0, (size_t)s->ms);
}

static void test_die (void **state)
{
    static const struct {
        const char *layout;
        int arg;
        const char *text;
    } cases[] = {
        {"aa", END_KILL + 0, "rank 0 ended during barrier, call 2"},
        {"aaaa", END_KILL + 2, "rank 2 ended during barrier, call 2"},
        {"aaaa", END_EXIT + 0, "rank 0 ended during barrier, call 2"},
        {"aaaa", END_LEAVE + 1, "rank 1 left the group during barrier"},
        {"aabb", END_KILL + 0, "rank 0 ended during barrier"},
        {"aabb", END_KILL + 1, "rank 1 ended during barrier"},
        {"aabb", END_KILL + 2, "rank 2 ended during barrier"},
        {"aabb", END_KILL + 3, "rank 3 ended during barrier"},
        {"aabb", END_EXIT + 2, "rank 2 ended during barrier"},
        {"aabb", END_LEAVE + 2, "rank 2 left the group during barrier"},
        {"abc", END_KILL + 1, "rank 1 ended during barrier"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct job job = {
            .layout = cases[i].layout, .body = body_die, .arg = cases[i].arg};
        char except[2] = {(char)('0' + cases[i].arg % 10), '\0'};

        run_job (&job);
        want (&job, except, TRAIN_EPEER, cases[i].text);
        free_job (&job);
    }
}

/* Large calls without end; the parent kills or stops rank arg somewhere. */
static void body_forever (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    float *data = calloc (1u << 19, sizeof (*data));
    train_tensor_t t;

    view_of (&t, data, TRAIN_F32, 1u << 19);
    for (int i = 0; s->status == TRAIN_OK; i++) {
        s->status = train_all_reduce (group, &t.t, TRAIN_SUM, &s->err);
        if (i == 2)
            atomic_fetch_add (&job->shared->flag, 1);
    }
    atomic_fetch_sub (&job->shared->flag, 1);
    free (data);
}

static void strike (struct job *job, int sig)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;

    start_job (job);
    while (atomic_load (&job->shared->flag) < job->size && !any_failed (job)
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
    kill (job->pids[job->arg], sig);
    while (sig == SIGSTOP && atomic_load (&job->shared->flag) > 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
    kill (job->pids[job->arg], SIGKILL);
    end_job (job);
}

static void test_killed_in_data (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb", "abab", "aabb"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct job job = {
            .layout = layouts[i], .body = body_forever, .arg = i == 3 ? 2 : 1};
        char text[40], except[2] = {(char)('0' + job.arg), '\0'};

        strike (&job, SIGKILL);
        snprintf (text, sizeof (text), "rank %d ended during all_reduce",
                  job.arg);
        want (&job, except, TRAIN_EPEER, text);
        free_job (&job);
    }
}

/* A rank stopped somewhere in its calls: nobody hangs, and everybody names it,
 * also who hears of it through others alone. */
static void test_stopped_in_data (void **state)
{
    static const struct {
        const char *layout;
        int rank;
    } cases[] = {{"aaa", 1}, {"aabb", 2}, {"aabb", 3}, {"abc", 2}};

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        struct job job = {.layout = cases[i].layout,
                          .body = body_forever,
                          .arg = cases[i].rank,
                          /* long enough for a loaded machine to begin */
                          .timeout_ms = 4000};
        char text[40], except[2] = {(char)('0' + job.arg), '\0'};

        snprintf (text, sizeof (text), "rank %d", job.arg);
        do
            strike (&job, SIGSTOP);
        while (once_more (&job, except, TRAIN_ETIMEDOUT, text));
        want (&job, except, TRAIN_ETIMEDOUT, text);
        free_job (&job);
    }
}

static void body_nothing (struct job *job, int rank, train_group_t *group)
{
    (void)job, (void)rank, (void)group;
}

/* Not all come, or one of another job comes too. */
static void test_meeting (void **state)
{
    struct job job = {.layout = "aaa",
                      .body = body_nothing,
                      .timeout_ms = 700,
                      .step = {"7.0", "7.0", "7.1"}};

    (void)state;
    do
        run_job (&job);
    while (once_more (&job, "2", TRAIN_ETIMEDOUT, "rank 2 did not come"));
    want (&job, "01", TRAIN_EMISMATCH, "another group meets");
    want (&job, "2", TRAIN_ETIMEDOUT, "rank 2 did not come to the meeting");
    free_job (&job);
}

/* Whatever connects and says nothing, or nonsense, is no obstacle. */
static void test_strangers (void **state)
{
    struct job job = {.layout = "aab", .body = body_nothing};
    struct sockaddr_in a = {.sin_family = AF_INET};
    int fds[20], n = 0;

    (void)state;
    a.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    start_job (&job);
    a.sin_port = htons ((uint16_t)job.port);
    for (int i = 0; i < 20; i++) {
        int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (connect (fd, (struct sockaddr *)&a, sizeof (a)) == 0 && i % 2)
            send (fd, "GET / HTTP/1.1\r\nHost: rank\r\n\r\n\r\n\r\n", 34,
                  MSG_NOSIGNAL);
        fds[n++] = fd;
    }
    end_job (&job);
    want_ok (&job);
    free_job (&job);
    while (n > 0)
        close (fds[--n]);
}

/* Rank 0 has a descriptor for the meeting's listener and no other; or, with
 * arg, a limit below the number of entries that it looks at. */
static void few_files (struct job *job, int rank)
{
    struct rlimit limit;
    int next;

    if (rank != 0)
        return;
    getrlimit (RLIMIT_NOFILE, &limit);
    limit.rlim_cur = job->arg ? 60 : 256;
    setrlimit (RLIMIT_NOFILE, &limit);
    while (!job->arg && (next = dup (STDIN_FILENO)) >= 0)
        if ((rlim_t)next + 1 == limit.rlim_cur) {
            close (next);
            return;
        }
}

static int64_t children_ms (void)
{
    struct rusage use;

    getrusage (RUSAGE_CHILDREN, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000
           + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1000;
}

/* Without descriptors for the others rank 0 says so, and waits meanwhile. */
static void test_no_files (void **state)
{
    struct job job = {.layout = "aa",
                      .body = body_nothing,
                      .env = few_files,
                      .timeout_ms = 1500};
    int64_t before_ms = children_ms ();

    (void)state;
    run_job (&job);
    want (&job, "1", TRAIN_ETIMEDOUT,
          "could not let them in: Too many open files (ulimit -n");
    assert_in_range (children_ms () - before_ms, 0, 500);
    free_job (&job);
    job = (struct job){.layout = "aa",
                       .body = body_nothing,
                       .env = few_files,
                       .arg = 1,
                       .timeout_ms = 1500};
    run_job (&job);
    want (&job, "1", TRAIN_EIO,
          "to meet 2 ranks takes a limit of open files "
          "(ulimit -n) of 67 at least");
    free_job (&job);
}

static void test_contradiction (void **state)
{
    struct job job = {.layout = "aba",
                      .body = body_nothing,
                      .no_node_rank = true,
                      .timeout_ms = PATIENCE_MS / 2};

    (void)state;
    run_job (&job);
    want (&job, "", TRAIN_EMISMATCH, "set NODE_RANK");
    free_job (&job);
}

/* Two groups of one program, calls mixed; and two jobs at once. */
static void body_two_groups (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    train_group_options_t opts = {
        .size = sizeof (opts), .timeout_ms = PATIENCE_MS, .name = "second"};
    train_group_t *other = NULL;
    int32_t x[2] = {1, 1};
    train_tensor_t a, b;

    view_of (&a, &x[0], TRAIN_I32, 1);
    view_of (&b, &x[1], TRAIN_I32, 1);
    s->status = train_group_create (&opts, &other, &s->err);
    for (int i = 0; i < 5 && s->status == TRAIN_OK; i++) {
        s->status = train_all_reduce (group, &a.t, TRAIN_SUM, &s->err);
        if (s->status == TRAIN_OK)
            s->status = train_all_reduce (other, &b.t, TRAIN_SUM, &s->err);
    }
    if (x[0] != 1024 || x[1] != 1024)
        note (job, rank, "wrong sum", x[0], x[1], 0);
    train_group_destroy (other);
}

static void test_two_groups (void **state)
{
    struct job one = {.layout = "aaaa", .body = body_two_groups};
    struct job two = {.layout = "aabb", .body = body_two_groups};

    (void)state;
    start_job (&one);
    start_job (&two);
    end_job (&one);
    end_job (&two);
    want_ok (&one);
    want_ok (&two);
    free_job (&one);
    free_job (&two);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_mismatch),
        cmocka_unit_test (test_mismatch_roots),
        cmocka_unit_test (test_late),
        cmocka_unit_test (test_die),
        cmocka_unit_test (test_killed_in_data),
        cmocka_unit_test (test_stopped_in_data),
        cmocka_unit_test (test_meeting),
        cmocka_unit_test (test_strangers),
        cmocka_unit_test (test_no_files),
        cmocka_unit_test (test_contradiction),
        cmocka_unit_test (test_two_groups),
    };

    return cmocka_run_group_tests_name ("group_faults", tests, NULL, NULL);
}
