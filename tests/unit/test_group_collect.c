/* SPDX-License-Identifier: Apache-2.0
 * test_group_collect.c - the collectives that move blocks: what each rank gets
 * follows from who gave it; and what they do when ranks disagree or end */
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

#include "group_ranks.h"

/* Block by block larger than a slot, odd, tiny, nothing. */
static const size_t counts[] = {0, 1, 37, 4099, 70001};
#define N_COUNTS (sizeof (counts) / sizeof (*counts))
#define MOST     70001

/* What rank [from] has for rank [to] at place [i]; never 0. */
static int32_t value (int from, int to, size_t i)
{
    return (int32_t)((uint32_t)(from * 31 + to + 1) * 1000003u + (uint32_t)i)
           | 1;
}

struct ctx {
    struct job *job;
    train_group_t *group;
    struct seen *seen;
    int rank, size;
    int32_t *in, *out; /* (size * MOST) */
};

static void fill (int32_t *data, int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        data[i] = value (from, to, i);
}

static void expect (struct ctx *c, const char *what, const int32_t *data,
                    int from, int to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (data[i] != value (from, to, i)) {
            note (c->job, c->rank, what, from, to, i);
            return;
        }
    }
}

static void expect_clean (struct ctx *c, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (c->out[i] != 0) {
            note (c->job, c->rank, what, -1, -1, i);
            return;
        }
    }
}

static void clean (struct ctx *c, size_t n)
{
    memset (c->out, 0, n * (size_t)c->size * sizeof (*c->out));
}

/* Block [b] of a buffer, or all of it. */
static DLTensor *block_of (train_tensor_t *t, int32_t *data, size_t b, size_t n)
{
    view_of (t, data + b * n, TRAIN_I32, n);
    return &t->t;
}

static void try_all_gather (struct ctx *c, size_t n, bool in_place)
{
    size_t all = n * (size_t)c->size, r = (size_t)c->rank;
    train_tensor_t in, out;

    clean (c, n);
    fill (in_place ? c->out + r * n : c->in, c->rank, 0, n);
    block_of (&in, in_place ? c->out : c->in, in_place ? r : 0, n);
    c->seen->status = train_all_gather (
        c->group, &in.t, block_of (&out, c->out, 0, all), &c->seen->err);
    for (int p = 0; p < c->size; p++)
        expect (c, "all_gather", c->out + (size_t)p * n, p, 0, n);
}

static void try_gather (struct ctx *c, size_t n, int root, bool in_place)
{
    size_t all = n * (size_t)c->size, r = (size_t)c->rank;
    bool here = c->rank == root;
    train_tensor_t in, out;

    in_place = in_place && here;
    clean (c, n);
    fill (in_place ? c->out + r * n : c->in, c->rank, root, n);
    block_of (&in, in_place ? c->out : c->in, in_place ? r : 0, n);
    block_of (&out, c->out, 0, all);
    c->seen->status = train_gather (c->group, &in.t, here ? &out.t : NULL, root,
                                    &c->seen->err);
    for (int p = 0; here && p < c->size; p++)
        expect (c, "gather", c->out + (size_t)p * n, p, root, n);
    if (!here)
        expect_clean (c, "gather wrote", all);
}

static void try_scatter (struct ctx *c, size_t n, int root, bool in_place)
{
    size_t all = n * (size_t)c->size, r = (size_t)c->rank;
    bool here = c->rank == root;
    int32_t *to = in_place && here ? c->in + r * n : c->out;
    train_tensor_t in, out;

    clean (c, n);
    for (int p = 0; here && p < c->size; p++)
        fill (c->in + (size_t)p * n, root, p, n);
    block_of (&in, c->in, 0, all);
    c->seen->status =
        train_scatter (c->group, here ? &in.t : NULL, block_of (&out, to, 0, n),
                       root, &c->seen->err);
    expect (c, "scatter", to, root, c->rank, n);
    for (int p = 0; here && p < c->size; p++)
        expect (c, "scatter's input", c->in + (size_t)p * n, root, p, n);
}

static void try_all_to_all (struct ctx *c, size_t n, bool in_place)
{
    size_t all = n * (size_t)c->size;
    train_tensor_t in, out;

    clean (c, n);
    for (int p = 0; p < c->size; p++)
        fill ((in_place ? c->out : c->in) + (size_t)p * n, c->rank, p, n);
    block_of (&in, in_place ? c->out : c->in, 0, all);
    c->seen->status = train_all_to_all (
        c->group, &in.t, block_of (&out, c->out, 0, all), &c->seen->err);
    for (int p = 0; p < c->size; p++)
        expect (c, "all_to_all", c->out + (size_t)p * n, p, c->rank, n);
}

static void try_send (struct ctx *c, size_t n, int from, int to)
{
    train_tensor_t t;

    clean (c, n);
    if (c->rank == from)
        fill (c->out, from, to, n);
    block_of (&t, c->out, 0, n);
    if (c->rank != from && c->rank != to)
        t.t.data = NULL;
    c->seen->status = train_send_recv (c->group, &t.t, from, to, &c->seen->err);
    if (c->rank == from || c->rank == to)
        expect (c, "send_recv", c->out, from, to, n);
    else
        expect_clean (c, "send_recv wrote", n);
}

static int32_t sum_of (const struct ctx *c, int to, size_t i, train_op_t op)
{
    uint32_t acc = (uint32_t)value (0, to, i);

    for (int p = 1; p < c->size; p++) {
        int32_t x = value (p, to, i);

        if (op == TRAIN_PROD)
            acc *= (uint32_t)x;
        else if (op == TRAIN_SUM)
            acc += (uint32_t)x;
        else if (op == TRAIN_MIN ? x < (int32_t)acc : x > (int32_t)acc)
            acc = (uint32_t)x;
    }
    return (int32_t)acc;
}

static void try_reduce (struct ctx *c, size_t n, int root, train_op_t op)
{
    train_tensor_t t;

    fill (c->out, c->rank, root, n);
    c->seen->status = train_reduce (c->group, block_of (&t, c->out, 0, n), op,
                                    root, &c->seen->err);
    for (size_t i = 0; c->rank == root && i < n; i++) {
        if (c->out[i] != sum_of (c, root, i, op))
            note (c->job, c->rank, "reduce", (int)op, root, i);
    }
    if (c->rank != root)
        expect (c, "reduce wrote", c->out, c->rank, root, n);
}

static void try_reduce_scatter (struct ctx *c, size_t n, train_op_t op,
                                bool in_place)
{
    size_t all = n * (size_t)c->size, r = (size_t)c->rank;
    int32_t *to = in_place ? c->in + r * n : c->out;
    train_tensor_t in, out;

    clean (c, n);
    for (int p = 0; p < c->size; p++)
        fill (c->in + (size_t)p * n, c->rank, p, n);
    block_of (&in, c->in, 0, all);
    c->seen->status = train_reduce_scatter (
        c->group, &in.t, block_of (&out, to, 0, n), op, &c->seen->err);
    for (size_t i = 0; i < n; i++) {
        if (to[i] != sum_of (c, c->rank, i, op)) {
            note (c->job, c->rank, "reduce_scatter", (int)op, in_place, i);
            return;
        }
    }
}

/* Floats: a reduction that gives parts has the bits of the one that gives all.
 * (That one stands against a reference in test_group_host.) */
static void try_same_bits (struct ctx *c, size_t n, train_dtype_t dtype)
{
    size_t all = n * (size_t)c->size, size = train_dtype_size (dtype);
    char *whole = malloc (all * size + 1), *part = malloc (n * size + 1);
    train_tensor_t in, out, mine;

    for (size_t i = 0; i < all; i++) {
        float x = (float)((int)(i * 7919 % 1000) - 500) / (float)(c->rank + 3);
        double d = (double)x;
        uint16_t half = (uint16_t)(0x3c00 + (i * 31 + (size_t)c->rank) % 999);
        const void *from = size == 8   ? (void *)&d
                           : size == 4 ? (void *)&x
                                       : (void *)&half;

        memcpy (whole + i * size, from, size);
    }
    view_of (&in, whole, dtype, all);
    view_of (&out, part, dtype, n);
    view_of (&mine, whole + (size_t)c->rank * n * size, dtype, n);
    c->seen->status = train_reduce_scatter (c->group, &in.t, &out.t, TRAIN_AVG,
                                            &c->seen->err);
    if (c->seen->status == TRAIN_OK)
        c->seen->status =
            train_all_reduce (c->group, &in.t, TRAIN_AVG, &c->seen->err);
    if (n && memcmp (mine.t.data, part, n * size) != 0)
        note (c->job, c->rank, "not the bits of all_reduce", dtype, 0, n);
    free (whole);
    free (part);
}

static void try_objects (struct ctx *c, int root, size_t n)
{
    size_t odd = (size_t)(root + 1) % 2, lens[MAX_RANKS];
    size_t len = n * (size_t)c->rank + odd;
    char *mine = malloc (len + 1), *got = NULL, *at;

    memset (mine, 'a' + c->rank, len + 1);
    c->seen->status = train_gather_object (c->group, mine, len, root,
                                           (void **)&got, lens, &c->seen->err);
    at = got;
    for (int p = 0; c->seen->status == TRAIN_OK && p < c->size; p++) {
        if (lens[p] != n * (size_t)p + odd)
            note (c->job, c->rank, "length", p, root, lens[p]);
        for (size_t i = 0; at && i < lens[p]; i++) {
            if (*at++ != 'a' + p)
                note (c->job, c->rank, "object", p, root, i);
        }
    }
    if ((got != NULL)
        != ((root < 0 || root == c->rank) && (odd || (n && c->size > 1))))
        note (c->job, c->rank, "object for another", 0, root, n);
    free (got);
    free (mine);
}

static void try_broadcast_object (struct ctx *c, int root, size_t n)
{
    char *mine = malloc (n + 1), *got = NULL;
    size_t len = 77;

    memset (mine, 'A' + root, n + 1);
    c->seen->status = train_broadcast_object (
        c->group, c->rank == root ? mine : NULL, c->rank == root ? n : 5, root,
        (void **)&got, &len, &c->seen->err);
    if (c->seen->status == TRAIN_OK
        && (len != n || (n && memcmp (got, mine, n) != 0)))
        note (c->job, c->rank, "broadcast_object", root, 0, n);
    free (got);
    free (mine);
}

static void try_count (struct ctx *c, size_t n, int root)
{
    static const train_op_t ops[] = {TRAIN_SUM, TRAIN_MIN, TRAIN_MAX,
                                     TRAIN_PROD};

    for (int place = 0; place < 2; place++) {
        try_all_gather (c, n, place);
        try_gather (c, n, root, place);
        try_scatter (c, n, root, place);
        try_all_to_all (c, n, place);
        try_reduce_scatter (c, n, ops[root % 4], place);
    }
    try_send (c, n, root, (root + 1) % c->size);
    try_send (c, n, (root + 2) % c->size, root);
    try_reduce (c, n, root, ops[(root + 1) % 4]);
    try_broadcast_object (c, root, n);
}

static void body_collect (struct job *job, int rank, train_group_t *group)
{
    static const train_dtype_t floats[] = {TRAIN_F32, TRAIN_F64, TRAIN_F16,
                                           TRAIN_BF16};
    struct ctx c = {job, group, &job->shared->seen[rank], rank, job->size,
                    0,   0};
    size_t bytes = MOST * (size_t)job->size * sizeof (int32_t);

    c.in = malloc (bytes);
    c.out = malloc (bytes);
    for (size_t k = 0; k < N_COUNTS; k++) {
        /* the largest from one root */
        for (int root = 0; root < (k + 1 < N_COUNTS ? job->size : 1); root++)
            try_count (&c, counts[k], root);
        try_same_bits (&c, counts[k], floats[k % 4]);
    }
    for (int root = 0; root < job->size; root++) {
        try_broadcast_object (&c, root, 0);
        try_broadcast_object (&c, root, 100003);
    }
    free (c.in);
    free (c.out);
}

static void body_objects (struct job *job, int rank, train_group_t *group)
{
    struct ctx c = {job, group, &job->shared->seen[rank], rank, job->size,
                    0,   0};

    for (int root = -1; root < job->size; root++) {
        try_objects (&c, root, 0);
        try_objects (&c, root, 1);
        try_objects (&c, root, 30011);
    }
}

static void run_layouts (rank_f body)
{
    static const char *const layouts[] = {"a",    "aa",   "ab",      "aaa",
                                          "aabb", "abab", "abcabca", "aaabbcc"};

    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

static void test_collect (void **state)
{
    (void)state;
    run_layouts (body_collect);
}

static void test_objects (void **state)
{
    (void)state;
    run_layouts (body_objects);
}

/* One call of each kind, with everything that ranks can differ in. */
enum { N_KINDS = 10 };

static const char *const names[N_KINDS] = {
    "all_reduce (sum of 600 F32)",
    "broadcast (600 F32 from rank 1)",
    "reduce (sum of 600 F32 to rank 1)",
    "all_gather (600 F32 each)",
    "reduce_scatter (sum of 600 F32 each)",
    "all_to_all (600 F32 each)",
    "gather (600 F32 each to rank 1)",
    "scatter (600 F32 each from rank 1)",
    "send (600 F32 from rank 1 to rank 0)",
    "barrier",
};

/* As one of [names], but for what is not 0 here. */
struct odd {
    int kind;
    int more; /* elements */
    train_dtype_t dtype;
    train_op_t op;
    int root; /* added to 1 */
    const char *name;
};

static train_status_t make_call (train_group_t *group, const struct odd *odd,
                                 size_t n, float *in, float *out,
                                 train_error_t *err)
{
    size_t size = (size_t)train_group_size (group), m = n + (size_t)odd->more;
    train_dtype_t d = odd->dtype;
    train_op_t op = odd->op;
    train_tensor_t one, all, all2;
    int root = 1 + odd->root;

    view_of (&one, in, d, m);
    view_of (&all, out, d, m * size);
    view_of (&all2, in, d, m * size);
    switch (odd->kind) {
    case 0:
        return train_all_reduce (group, &one.t, op, err);
    case 1:
        return train_broadcast (group, &one.t, root, err);
    case 2:
        return train_reduce (group, &one.t, op, root, err);
    case 3:
        return train_all_gather (group, &one.t, &all.t, err);
    case 4:
        return train_reduce_scatter (group, &all.t, &one.t, op, err);
    case 5:
        return train_all_to_all (group, &all2.t, &all.t, err);
    case 6:
        return train_gather (group, &one.t, &all.t, root, err);
    case 7:
        return train_scatter (group, &all.t, &one.t, root, err);
    case 8:
        return train_send_recv (group, &one.t, root, 0, err);
    }
    return train_barrier (group, err);
}

static const struct odd odds[] = {
    {2, 0, TRAIN_F32, TRAIN_SUM, 1, "reduce (sum of 600 F32 to rank 2)"},
    {2, 0, TRAIN_F32, TRAIN_PROD, 0, "reduce (product of 600 F32 to rank 1)"},
    {3, 1, TRAIN_F32, TRAIN_SUM, 0, "all_gather (601 F32 each)"},
    {3, 0, TRAIN_BF16, TRAIN_SUM, 0, "all_gather (600 BF16 each)"},
    {4, 0, TRAIN_F32, TRAIN_MAX, 0, "reduce_scatter (maximum of 600 F32 each)"},
    {4, 3, TRAIN_F32, TRAIN_SUM, 0, "reduce_scatter (sum of 603 F32 each)"},
    {5, 1, TRAIN_F32, TRAIN_SUM, 0, "all_to_all (601 F32 each)"},
    {6, 0, TRAIN_F32, TRAIN_SUM, -1, "gather (600 F32 each to rank 0)"},
    {7, 0, TRAIN_I32, TRAIN_SUM, 0, "scatter (600 I32 each from rank 1)"},
    {7, 0, TRAIN_F32, TRAIN_SUM, 1, "scatter (600 F32 each from rank 2)"},
    {8, 0, TRAIN_F32, TRAIN_SUM, 1, "send (600 F32 from rank 2 to rank 0)"},
};
#define N_ODDS ((int)(sizeof (odds) / sizeof (*odds)))

/* Rank arg/100 makes odd call arg%100. */
static void body_odd (struct job *job, int rank, train_group_t *group)
{
    const struct odd *odd = &odds[job->arg % 100];
    struct odd plain = {.kind = odd->kind};
    struct seen *s = &job->shared->seen[rank];
    float data[2][3 * 610];

    memset (data, 0x11, sizeof (data));
    s->status = make_call (group, rank == job->arg / 100 ? odd : &plain, 600,
                           data[0], data[1], &s->err);
    for (size_t i = 0; i < sizeof (data); i++) {
        if (((unsigned char *)data)[i] != 0x11)
            note (job, rank, "buffer was touched", odd->kind, 0, i);
    }
}

static void test_mismatch (void **state)
{
    (void)state;
    for (int i = 0; i < N_ODDS; i++) {
        struct job job = {.layout = i % 2 ? "aab" : "aaa",
                          .body = body_odd,
                          .arg = i % 3 * 100 + i};
        char text[100];

        run_job (&job);
        snprintf (text, sizeof (text), "rank %d called %s", i % 3,
                  odds[i].name);
        want (&job, "", TRAIN_EMISMATCH, text);
        snprintf (text, sizeof (text), "called %s", names[odds[i].kind]);
        want (&job, "", TRAIN_EMISMATCH, text);
        free_job (&job);
    }
}

#define LARGE 60000

/* The same call without end; the parent strikes rank arg%10 somewhere. */
static void body_forever (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];
    struct odd plain = {.kind = job->arg / 10};
    size_t bytes = LARGE * (size_t)job->size * sizeof (float);
    float *in = calloc (1, bytes), *out = calloc (1, bytes);
    int64_t start_ms = 0;

    for (int i = 0; s->status == TRAIN_OK; i++) {
        start_ms = now_ms ();
        s->status = make_call (group, &plain, LARGE, in, out, &s->err);
        if (i == 2)
            atomic_fetch_add (&job->shared->flag, 1);
    }
    s->ms = now_ms () - start_ms;
    atomic_fetch_sub (&job->shared->flag, 1);
    free (in);
    free (out);
}

static void strike (struct job *job, int sig)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;
    int victim = job->arg % 10;

    start_job (job);
    while (atomic_load (&job->shared->flag) < job->size && !any_failed (job)
           && now_ms () < until_ms)
        poll (NULL, 0, 2);
    kill (job->pids[victim], sig);
    while (sig == SIGSTOP && atomic_load (&job->shared->flag) > 1
           && now_ms () < until_ms)
        poll (NULL, 0, 5);
    kill (job->pids[victim], SIGKILL);
    end_job (job);
}

static void test_killed (void **state)
{
    (void)state;
    for (int kind = 0; kind < N_KINDS; kind++) {
        int victim = kind % 4;
        struct job job = {
            .layout = "aabb", .body = body_forever, .arg = kind * 10 + victim};
        char text[60], except[2] = {(char)('0' + victim), '\0'};
        const char *name = names[kind];

        strike (&job, SIGKILL);
        snprintf (text, sizeof (text), "rank %d ended during %.*s", victim,
                  (int)strcspn (name, " "), name);
        want (&job, except, TRAIN_EPEER, text);
        free_job (&job);
    }
}

/* All kinds at once: they wait for their deadlines, not for the machine. */
#define DEADLINE_MS 2000

static void check_stopped (struct job *job)
{
    int victim = job->arg % 10, named = 0;
    char text[20], except[2] = {(char)('0' + victim), '\0'};

    want (job, except, TRAIN_ETIMEDOUT, "rank ");
    snprintf (text, sizeof (text), "rank %d", victim);
    for (int r = 0; r < job->size; r++) {
        const struct seen *s = &job->shared->seen[r];

        named += strstr (s->err.text, text) != NULL;
        if (r != victim && s->ms > job->timeout_ms + LATE_MS)
            fail_msg ("kind %d rank %d: back after %lld ms", job->arg / 10, r,
                      (long long)s->ms);
    }
    if (named == 0)
        fail_msg ("kind %d: nobody names rank %d", job->arg / 10, victim);
}

static void test_stopped (void **state)
{
    (void)state;
    for (int kind = 3; kind < 9; kind++) {
        struct job job = {.layout = kind % 2 ? "aab" : "aaa",
                          .body = body_forever,
                          .timeout_ms = DEADLINE_MS,
                          .arg = kind * 10 + kind % 3};
        char except[2] = {(char)('0' + kind % 3), '\0'};

        do
            strike (&job, SIGSTOP);
        while (once_more (&job, except, TRAIN_ETIMEDOUT, "rank "));
        check_stopped (&job);
        free_job (&job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_collect),  cmocka_unit_test (test_objects),
        cmocka_unit_test (test_mismatch), cmocka_unit_test (test_killed),
        cmocka_unit_test (test_stopped),
    };

    return cmocka_run_group_tests_name ("group_collect", tests, NULL, NULL);
}
