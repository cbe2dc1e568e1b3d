/* SPDX-License-Identifier: Apache-2.0
 * test_scale.c - thousands of nodes, jobs and requests take time and memory in
 * proportion
 *
 * Processor time, in which four times as much may take eight times as long,
 * where what looks at all for each would take sixteen. On a busy machine the same
 * work needs more of it, too, mostly in the kernel: few and many take turns, the
 * least of each counts, and rounds go on while these do not fit. Noise ends, a
 * square does not. tests/bench/scale.sh measures rv itself on a real slurmctld. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <cmocka.h>

#include "cmd_job.h"
#include "made_cluster.h"
#include "own_dir.h"
#include "plan/fsio.h"
#include "plan/plans.h"

/* gcc says so by a macro, clang by a feature. */
#if defined __SANITIZE_ADDRESS__
#define SANITIZED
#elif defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif

#define ROUNDS 3
#define MOST   30
#ifdef SANITIZED
#define LIMIT_MS 15000.0
#else
#define LIMIT_MS 1500.0 /* several times what it takes */
#endif
#define MORE     8.0
#define FLOOR_MS 4.0 /* below it the clock tells little */
#define MEM_MIB  100

static double now_ms (void)
{
    struct timespec ts;

    clock_gettime (CLOCK_PROCESS_CPUTIME_ID, &ts);
    return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static double least (double a, double b)
{
    return a < b ? a : b;
}

/* Two sizes of one work, which says the time of one round. */
struct work {
    const char *what;
    double (*once) (size_t n, size_t other);
    size_t few[2], many[2];
};

static void in_proportion (const struct work *w)
{
    double few = 1e9, many = 1e9;
    bool fits = false;

    for (int i = 0; i < ROUNDS || (i < MOST && !fits); i++) {
        few = least (few, w->once (w->few[0], w->few[1]));
        many = least (many, w->once (w->many[0], w->many[1]));
        fits =
            many < LIMIT_MS && many < MORE * (few > FLOOR_MS ? few : FLOOR_MS);
    }
    print_message ("%s: %.1f ms, four times as many %.1f ms\n", w->what, few,
                   many);
    assert_true (fits);
}

static double plan (size_t nodes, size_t jobs)
{
    const struct strategy_request req = {.gpus = 8, .time_s = 10740};
    struct plans plans;
    struct made m;
    double from;

    made_make (&m, nodes, jobs);
    from = now_ms ();
    assert_int_equal (plan_strategies (&m.c, &req, &plans, NULL), RV_OK);
    from = now_ms () - from;
    assert_true (plans.n > 0);
    plans_fini (&plans);
    made_free (&m);
    return from;
}

/* Nodes and jobs by themselves: each waiting job looks at nodes. */
static void test_plan (void **state)
{
    const struct work nodes = {"plan, 1,250 jobs on 500 nodes, of more nodes",
                               plan,
                               {500, 1250},
                               {2000, 1250}};
    const struct work jobs = {"plan, 1,250 jobs on 500 nodes, of more jobs",
                              plan,
                              {500, 1250},
                              {500, 5000}};
    double took = 1e9;

    (void)state;
    in_proportion (&nodes);
    in_proportion (&jobs);
    for (int i = 0; i < MOST && took >= LIMIT_MS; i++)
        took = least (took, plan (2000, 5000));
    print_message ("plan, 5,000 jobs on 2,000 nodes: %.1f ms\n", took);
    assert_true (took < LIMIT_MS);
}

static char *text (const char *head, size_t i, const char *tail)
{
    char *s = NULL;

    assert_true (asprintf (&s, "%s%06zu%s", head, i, tail) > 0);
    return s;
}

/* Of jobs one in ten is one of two of a request, one in ten has ended, and one
 * in ten is of a request whose rv run was killed. */
static void make_known (struct known *k, size_t n)
{
    memset (k, 0, sizeof (*k));
    k->jobs.job = calloc (n, sizeof (*k->jobs.job));
    k->reqs.req = calloc (n, sizeof (*k->reqs.req));
    k->reqs.lost = calloc (n, sizeof (*k->reqs.lost));
    assert_true (k->jobs.job && k->reqs.req && k->reqs.lost);
    for (size_t i = 0; i < n; i++) {
        struct cluster_job *job = &k->jobs.job[k->jobs.n++];
        struct request *req = &k->reqs.req[k->reqs.n];

        *job = (struct cluster_job){.job_id = (uint32_t)i + 1,
                                    .array_task = -1,
                                    .name = text ("train", i / 2, ""),
                                    .command = text ("/r/", i, "/job.sh"),
                                    .active = i % 10 != 3,
                                    .pending = i % 10 != 3,
                                    .state = "PENDING"};
        if (i % 10 == 1) /* the other of two */
            continue;
        if (i % 10 == 5)
            req = &k->reqs.lost[k->reqs.n_lost++];
        else
            k->reqs.n++;
        *req = (struct request){.id = text ("", i, ""),
                                .dir = text ("/r/", i, ""),
                                .name = text ("train", i / 2, ""),
                                .log_dir = text ("/r/", i, ""),
                                .gpu_type = text ("", i, "")};
        if (i % 10 != 5)
            req->job_id = req->root[req->n_roots++] = job->job_id;
        if (i % 10 == 0)
            req->root[req->n_roots++] = job->job_id + 1;
    }
}

static double join (size_t n, size_t other)
{
    struct known k;
    double from;

    (void)other;
    make_known (&k, n);
    from = now_ms ();
    assert_int_equal (known_join (&k, true, NULL), RV_OK);
    from = now_ms () - from;
    assert_int_equal (k.n, n - n / 10);
    assert_int_equal (k.reqs.n_lost, 0);
    assert_int_equal (k.job[0].job_id, n);
    for (size_t j = 0; j < k.n; j++)
        assert_non_null (k.job[j].req);
    known_fini (&k);
    return from;
}

static void test_join (void **state)
{
    const struct work w = {
        "join, 5,000 jobs and requests", join, {5000}, {20000}};

    (void)state;
    in_proportion (&w);
}

static void write_at (const char *at, const char *name, const char *what)
{
    char *path = fsio_join (at, name);

    assert_int_equal (
        fsio_write_unsynced (path, what, strlen (what), 0600, NULL), RV_OK);
    free (path);
}

static char *root_of (size_t n)
{
    char name[24];

    snprintf (name, sizeof (name), "%zu", n);
    return fsio_join (dir, name);
}

static void write_requests (size_t n)
{
    char *root = root_of (n);

    for (size_t i = 0; i < n; i++) {
        char at[400], what[400];

        snprintf (at, sizeof (at), "%s/requests/%06zu/jobs", root, i);
        assert_int_equal (fsio_mkdir_p (at, 0700, NULL), RV_OK);
        snprintf (what, sizeof (what), "%zu.json", i + 1);
        write_at (at, what, "{}");
        at[strlen (at) - 5] = '\0';
        snprintf (what, sizeof (what), "{\"id\": \"%06zu\", \"name\": \"n\"}",
                  i);
        write_at (at, "request.json", what);
    }
    free (root);
}

static double load (size_t n, size_t other)
{
    char *root = root_of (n);
    struct requests list;
    double from = now_ms ();

    (void)other;
    assert_int_equal (requests_load (root, 0, &list, NULL), RV_OK);
    from = now_ms () - from;
    assert_int_equal (list.n, n);
    requests_fini (&list);
    free (root);
    return from;
}

static void test_load (void **state)
{
    const struct work w = {"300 folders of requests", load, {300}, {1200}};

    (void)state;
    write_requests (w.few[0]);
    write_requests (w.many[0]);
    in_proportion (&w);
}

static void test_memory (void **state)
{
    struct rusage use;

    (void)state;
    assert_int_equal (getrusage (RUSAGE_SELF, &use), 0);
#ifndef SANITIZED
    /* of all the above together */
    assert_true (use.ru_maxrss / 1024 < MEM_MIB);
#endif
    print_message ("%ld MiB\n", use.ru_maxrss / 1024);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_plan),
        cmocka_unit_test (test_join),
        cmocka_unit_test_setup_teardown (test_load, make_dir, remove_dir),
        cmocka_unit_test (test_memory),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
