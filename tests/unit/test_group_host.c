/* SPDX-License-Identifier: Apache-2.0
 * test_group_host.c - groups of several processes, on one node and on several
 *
 * Each case forks its ranks by hand; a letter a rank says which node it plays
 * ("aabb": two nodes of two), so that shared memory and TCP both run on one
 * machine. The ranks write what they saw into memory that the parent reads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <train/group.h>
#include <xxhash.h>

#include "kernels/half.h"

#define MAX_RANKS   7
#define PATIENCE_MS 60000 /* of a test on a loaded machine */

/* What a rank saw. */
struct seen {
    train_error_t err;
    int status;
    int64_t ms; /* how long the call took */
    char note[200];
};

struct shared {
    struct seen seen[MAX_RANKS];
    uint64_t hash[MAX_RANKS];
    _Atomic int flag;
};

struct job;
typedef void (*rank_f) (struct job *job, int rank, train_group_t *group);

struct job {
    const char *layout; /* node of each rank, a letter each */
    rank_f body;
    int64_t timeout_ms;
    int arg;
    const char *step[MAX_RANKS]; /* RV_STEP, NULL = none */
    bool no_node_rank;           /* leave NODE_RANK unset */
    int size;
    pid_t pids[MAX_RANKS];
    int ends[MAX_RANKS]; /* as waitpid gives them */
    struct shared *shared;
    int hold; /* keeps the port, as rv-exec does */
    int port;
};

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A port held by a bound socket that does not listen. */
static int hold_port (int *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof (a);
    int on = 1, fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    assert_true (fd >= 0);
    setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on));
    assert_int_equal (bind (fd, (struct sockaddr *)&a, len), 0);
    assert_int_equal (getsockname (fd, (struct sockaddr *)&a, &len), 0);
    *ret_port = ntohs (a.sin_port);
    return fd;
}

static void set_int (const char *name, int value)
{
    char text[16];

    snprintf (text, sizeof (text), "%d", value);
    setenv (name, text, 1);
}

static void set_env (const struct job *job, int rank)
{
    int local_rank = 0, local_size = 0;

    for (int r = 0; r < job->size; r++) {
        bool mine = job->layout[r] == job->layout[rank];

        local_rank += mine && r < rank;
        local_size += mine;
    }
    unsetenv ("GROUP_RANK");
    unsetenv ("SLURM_STEP_ID");
    unsetenv ("RV_STEP");
    unsetenv ("TORCHELASTIC_USE_AGENT_STORE");
    set_int ("RANK", rank);
    set_int ("WORLD_SIZE", job->size);
    set_int ("LOCAL_RANK", local_rank);
    set_int ("LOCAL_WORLD_SIZE", local_size);
    set_int ("MASTER_PORT", job->port);
    setenv ("MASTER_ADDR", "127.0.0.1", 1);
    unsetenv ("NODE_RANK");
    if (!job->no_node_rank)
        set_int ("NODE_RANK", job->layout[rank] - 'a');
    if (job->step[rank])
        setenv ("RV_STEP", job->step[rank], 1);
}

static void rank_main (struct job *job, int rank)
{
    struct seen *seen = &job->shared->seen[rank];
    train_group_options_t opts = {
        .size = sizeof (opts),
        .backend = "host",
        .timeout_ms = job->timeout_ms ? job->timeout_ms : PATIENCE_MS};
    train_group_t *group = NULL;
    int64_t start_ms = now_ms ();

    set_env (job, rank);
    seen->status = train_group_create (&opts, &group, &seen->err);
    seen->ms = now_ms () - start_ms;
    if (seen->status == TRAIN_OK)
        job->body (job, rank, group);
    train_group_destroy (group);
    _exit (0);
}

static void start_job (struct job *job)
{
    job->size = (int)strlen (job->layout);
    job->shared = mmap (NULL, sizeof (*job->shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true (job->shared != MAP_FAILED);
    job->hold = hold_port (&job->port);
    for (int r = 0; r < job->size; r++) {
        job->pids[r] = fork ();
        assert_true (job->pids[r] >= 0);
        if (job->pids[r] == 0)
            rank_main (job, r);
    }
}

static bool left_in_shm (const struct job *job)
{
    DIR *dir = opendir ("/dev/shm");
    bool found = false;
    struct dirent *e;

    while (dir && (e = readdir (dir))) {
        for (int r = 0; r < job->size; r++) {
            char start[40];
            int n = snprintf (start, sizeof (start), "rv-train-%ld-",
                              (long)job->pids[r]);

            found |= strncmp (e->d_name, start, (size_t)n) == 0;
        }
    }
    closedir (dir);
    return found;
}

/* Wait for all ranks. A rank may have been killed by its body on purpose. */
static void end_job (struct job *job)
{
    int64_t until_ms = now_ms () + PATIENCE_MS;
    bool late = false;

    close (job->hold);
    for (int r = 0; r < job->size; r++) {
        while (waitpid (job->pids[r], &job->ends[r], WNOHANG) == 0) {
            if (now_ms () > until_ms) {
                late = true;
                kill (job->pids[r], SIGKILL);
            }
            poll (NULL, 0, 2);
        }
    }
    if (late)
        fail_msg ("%s: ranks hang", job->layout);
    if (left_in_shm (job))
        fail_msg ("%s: files left in /dev/shm", job->layout);
}

static void free_job (struct job *job)
{
    munmap (job->shared, sizeof (*job->shared));
}

static void want_ok (const struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        const struct seen *s = &job->shared->seen[r];

        if (job->ends[r] != 0)
            fail_msg ("%s rank %d ended with %#x", job->layout, r,
                      (unsigned)job->ends[r]);
        if (s->status != TRAIN_OK || s->note[0])
            fail_msg ("%s rank %d: %s %s%s", job->layout, r,
                      train_status_name ((train_status_t)s->status),
                      s->status ? s->err.text : "", s->note);
    }
}

/* Every rank but those in [except] saw this. */
static void want (const struct job *job, const char *except,
                  train_status_t status, const char *text)
{
    for (int r = 0; r < job->size; r++) {
        const struct seen *s = &job->shared->seen[r];

        if (strchr (except, '0' + r))
            continue;
        if (job->ends[r] != 0)
            fail_msg ("%s rank %d ended with %#x", job->layout, r,
                      (unsigned)job->ends[r]);
        if (s->status != (int)status || !strstr (s->err.text, text)
            || s->note[0])
            fail_msg ("%s rank %d: %s '%s' %s, want %s '%s'", job->layout, r,
                      train_status_name ((train_status_t)s->status),
                      s->err.text, s->note, train_status_name (status), text);
    }
}

static void run_job (struct job *job)
{
    start_job (job);
    end_job (job);
}

/* Values that differ by rank and place; every bit pattern class of floats. */
static double value_of (int rank, size_t i, train_dtype_t dtype, train_op_t op)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)(rank + 1) << 40;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 32;
    if (dtype == TRAIN_I64 || dtype == TRAIN_I32)
        return (double)(int32_t)x;
    if (i % 1009 == 5 && rank % 3 == 1)
        return x & 1 ? NAN : INFINITY;
    if (op == TRAIN_MIN && i % 101 == 0)
        return rank % 2 ? 0.0 : -0.0;
    return ((double)(int32_t)x) / 65536.0;
}

static void put (void *data, size_t i, train_dtype_t dtype, double v)
{
    switch (dtype) {
    case TRAIN_F32:
        ((float *)data)[i] = (float)v;
        break;
    case TRAIN_F64:
        ((double *)data)[i] = v;
        break;
    case TRAIN_BF16:
        ((uint16_t *)data)[i] = half_to_bf16 ((float)v);
        break;
    case TRAIN_F16:
        ((uint16_t *)data)[i] = half_to_f16 ((float)v);
        break;
    case TRAIN_I64:
        ((int64_t *)data)[i] = (int64_t)v * INT64_C (4294967311);
        break;
    case TRAIN_I32:
        ((int32_t *)data)[i] = (int32_t)v;
        break;
    case TRAIN_U8:
        ((uint8_t *)data)[i] = (uint8_t)(int32_t)v;
        break;
    }
}

/* The definition, one element at a time: a fold in rank order. */
#define FOLD(type, get)                                                        \
    do {                                                                       \
        type acc = get (0);                                                    \
        for (int r = 1; r < size; r++) {                                       \
            type x = get (r);                                                  \
            if (op == TRAIN_MIN)                                               \
                acc = (x < acc || x != x) ? x : acc;                           \
            else if (op == TRAIN_MAX)                                          \
                acc = (x > acc || x != x) ? x : acc;                           \
            else                                                               \
                acc = acc + x;                                                 \
        }                                                                      \
        if (op == TRAIN_AVG)                                                   \
            acc = acc / (type)size;                                            \
        result = acc;                                                          \
    } while (0)

static void fold_float (void *out, size_t i, void *const *in, int size,
                        train_dtype_t dtype, train_op_t op)
{
    float result;

#define GET_F32(r)  (((const float *)in[r])[i])
#define GET_BF16(r) (half_from_bf16 (((const uint16_t *)in[r])[i]))
#define GET_F16(r)  (half_from_f16 (((const uint16_t *)in[r])[i]))
    if (dtype == TRAIN_F32) {
        FOLD (float, GET_F32);
        ((float *)out)[i] = result;
    } else if (dtype == TRAIN_BF16) {
        FOLD (float, GET_BF16);
        ((uint16_t *)out)[i] = half_to_bf16 (result);
    } else {
        FOLD (float, GET_F16);
        ((uint16_t *)out)[i] = half_to_f16 (result);
    }
}

static void fold_one (void *out, size_t i, void *const *in, int size,
                      train_dtype_t dtype, train_op_t op)
{
    if (dtype == TRAIN_F64) {
        double result;

#define GET_F64(r) (((const double *)in[r])[i])
        FOLD (double, GET_F64);
        ((double *)out)[i] = result;
    } else if (dtype == TRAIN_I64 || dtype == TRAIN_I32) {
        bool wide = dtype == TRAIN_I64;
        int64_t acc =
            wide ? ((const int64_t *)in[0])[i] : ((const int32_t *)in[0])[i];

        for (int r = 1; r < size; r++) {
            int64_t x = wide ? ((const int64_t *)in[r])[i]
                             : ((const int32_t *)in[r])[i];

            if (op == TRAIN_SUM)
                acc = (int64_t)((uint64_t)acc + (uint64_t)x);
            else if (op == TRAIN_MIN ? x < acc : x > acc)
                acc = x;
        }
        if (wide)
            ((int64_t *)out)[i] = acc;
        else
            ((int32_t *)out)[i] = (int32_t)(uint32_t)(uint64_t)acc;
    } else {
        fold_float (out, i, in, size, dtype, op);
    }
}

static void note (struct job *job, int rank, const char *text, int a, int b,
                  size_t n)
{
    struct seen *s = &job->shared->seen[rank];

    if (!s->note[0])
        snprintf (s->note, sizeof (s->note), "%s (dtype %d, op %d, n %zu)",
                  text, a, b, n);
}

/* Rank 0 compares with the reference, all compare with each other. */
static void check_result (struct job *job, int rank, train_group_t *group,
                          const void *data, size_t n, train_dtype_t dtype,
                          int op, void *const *want)
{
    size_t bytes = n * train_dtype_size (dtype);

    job->shared->hash[rank] = XXH3_64bits (data, bytes);
    if (rank == 0 && memcmp (data, want[job->size], bytes) != 0)
        note (job, rank, "result is not the reference", dtype, op, n);
    train_barrier (group, NULL);
    if (job->shared->hash[rank] != job->shared->hash[0])
        note (job, rank, "not rank 0's bits", dtype, op, n);
    train_barrier (group, NULL);
}

static bool view_of (train_tensor_t *t, void *data, train_dtype_t dtype,
                     size_t n)
{
    int64_t shape[1] = {(int64_t)n};

    return train_tensor_view (t, data, dtype, 1, shape, NULL) == TRAIN_OK;
}

static void try_reduce (struct job *job, int rank, train_group_t *group,
                        void **buf, size_t n, train_dtype_t dtype,
                        train_op_t op)
{
    struct seen *s = &job->shared->seen[rank];
    train_tensor_t t;

    for (int r = 0; r < job->size; r++) {
        for (size_t i = 0; (rank == 0 || r == rank) && i < n; i++)
            put (buf[r], i, dtype, value_of (r, i, dtype, op));
    }
    for (size_t i = 0; rank == 0 && i < n; i++)
        fold_one (buf[job->size], i, buf, job->size, dtype, op);
    view_of (&t, n ? buf[rank] : NULL, dtype, n);
    s->status = train_all_reduce (group, &t.t, op, &s->err);
    if (s->status != TRAIN_OK)
        return;
    check_result (job, rank, group, buf[rank], n, dtype, (int)op, buf);
}

#define BUF_BYTES ((1u << 20) + 64)

static void body_reduce (struct job *job, int rank, train_group_t *group)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16, TRAIN_I64, TRAIN_I32};
    struct seen *s = &job->shared->seen[rank];
    void *buf[MAX_RANKS + 1];

    for (int r = 0; r <= job->size; r++)
        buf[r] = malloc (BUF_BYTES);
    for (size_t d = 0; d < 6; d++) {
        size_t large = (1u << 20) / train_dtype_size (dtypes[d]) + 3;
        size_t sizes[] = {0, 1, 37, large};
        bool whole = dtypes[d] == TRAIN_I64 || dtypes[d] == TRAIN_I32;

        for (size_t i = 0; i < 16 && s->status == TRAIN_OK; i++) {
            train_op_t op = (train_op_t)(i % 4);

            /* of the large ones, the sum and one other of each type */
            if (i / 4 == 3 && op != TRAIN_SUM && i % 4 != d % 4)
                continue;
            if (op != TRAIN_AVG || !whole)
                try_reduce (job, rank, group, buf, sizes[i / 4], dtypes[d], op);
        }
    }
    for (int r = 0; r <= job->size; r++)
        free (buf[r]);
}

static void body_broadcast (struct job *job, int rank, train_group_t *group)
{
    static const size_t sizes[] = {0, 1, 12345, (1u << 20) + 3, 3u << 20};
    struct seen *s = &job->shared->seen[rank];
    uint8_t *data = malloc (3u << 20);
    train_tensor_t t;

    for (int root = 0; root < job->size; root++) {
        for (size_t k = 0; k < 5 && s->status == TRAIN_OK; k++) {
            size_t n = sizes[k];

            for (size_t i = 0; i < n; i++)
                data[i] = (uint8_t)(rank == root ? i * 7 + (size_t)root : 255);
            view_of (&t, data, TRAIN_U8, n);
            s->status = train_broadcast (group, &t.t, root, &s->err);
            for (size_t i = 0; i < n; i++) {
                if (data[i] != (uint8_t)(i * 7 + (size_t)root))
                    note (job, rank, "wrong byte", root, 0, i);
            }
            if (n % 2) /* other collectives between, through the same rings */
                train_barrier (group, NULL);
        }
    }
    free (data);
}

static void test_half (void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        uint16_t u = (uint16_t)h;
        bool nan16 = (h & 0x7fff) > 0x7c00, nanb = (h & 0x7fff) > 0x7f80;

        assert_int_equal (half_to_f16 (half_from_f16 (u)),
                          nan16 ? u | 0x200 : u);
        assert_int_equal (half_to_bf16 (half_from_bf16 (u)),
                          nanb ? u | 0x40 : u);
    }
    assert_true (half_from_f16 (0x3555) == 0x1.554p-2f);
    assert_true (half_from_f16 (0x0001) == 0x1p-24f);
    assert_int_equal (half_to_f16 (65519.996f), 0x7bff);
    assert_int_equal (half_to_f16 (65520.0f), 0x7c00);
    assert_int_equal (half_to_f16 (-1e30f), 0xfc00);
    assert_int_equal (half_to_f16 (0x1p-25f), 0x0000); /* tie to even */
    assert_int_equal (half_to_f16 (0x1.8p-24f), 0x0002);
    assert_int_equal (half_to_f16 (0x1.002p0f), 0x3c00);
    assert_int_equal (half_to_f16 (0x1.006p0f), 0x3c02);
    assert_int_equal (half_to_bf16 (0x1.01p0f), 0x3f80); /* tie to even */
    assert_int_equal (half_to_bf16 (0x1.03p0f), 0x3f82);
    assert_int_equal (half_to_bf16 (0x1.010002p0f), 0x3f81);
    assert_int_equal (half_to_bf16 (3.4e38f), 0x7f80);
}

static void test_all_reduce (void **state)
{
    static const char *const layouts[] = {
        "a", "aa", "aaa", "aaaa", "ab", "aabb", "abab", "aaabbcc", "abcabca"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body_reduce};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

static void test_broadcast (void **state)
{
    static const char *const layouts[] = {"a", "aaaa", "aabb", "abab",
                                          "aaabbcc"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {.layout = layouts[i], .body = body_broadcast};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

/* Without NODE_RANK the ranks of a node follow each other. */
static void body_local (struct job *job, int rank, train_group_t *group)
{
    if (train_group_local_rank (group) != rank % 2
        || train_group_local_size (group) != 2
        || train_group_rank (group) != rank || train_group_size (group) != 4
        || strcmp (train_group_backend (group), "host") != 0)
        note (job, rank, "wrong facts", 0, 0, 0);
}

static void test_facts (void **state)
{
    struct job job = {
        .layout = "aabb", .body = body_local, .no_node_rank = true};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

/* The last to arrive must not see those who are done already as dead. */
static void body_barriers (struct job *job, int rank, train_group_t *group)
{
    struct seen *s = &job->shared->seen[rank];

    for (int i = 0; i < job->arg && s->status == TRAIN_OK; i++)
        s->status = train_barrier (group, &s->err);
    if (rank % 2)
        _exit (0); /* without saying goodbye */
}

static void test_barrier (void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct job job = {.layout = i % 2 ? "aabb" : "aaaa",
                          .body = body_barriers,
                          .arg = 1 + i * 5};

        run_job (&job);
        want_ok (&job);
        free_job (&job);
    }
}

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
    while (rank == job->arg && atomic_load (&job->shared->flag) == 0)
        poll (NULL, 0, 5);
    s->status = train_barrier (group, &s->err);
    atomic_store (&job->shared->flag, 1);
}

static void test_late (void **state)
{
    static const struct {
        const char *layout;
        int rank;
        const char *text;
    } cases[] = {
        {"aaa", 1,
         "rank 1 did not come to barrier, call 2 of group 'world', "
         "within 0.4 s"},
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
                          .timeout_ms = 400};

        run_job (&job);
        want (&job, "", TRAIN_ETIMEDOUT, cases[i].text);
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
            _exit (3);
        return; /* rank_main destroys the group */
    }
    start_ms = now_ms ();
    s->status = train_barrier (group, &s->err);
    s->ms = now_ms () - start_ms;
    if (s->ms > 10000)
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
    start_job (job);
    while (atomic_load (&job->shared->flag) < job->size)
        poll (NULL, 0, 5);
    kill (job->pids[job->arg], sig);
    while (sig == SIGSTOP && atomic_load (&job->shared->flag) > 1)
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

static void test_stopped_in_data (void **state)
{
    static const char *const layouts[] = {"aaa", "aabb"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct job job = {.layout = layouts[i],
                          .body = body_forever,
                          .arg = 1 + i,
                          .timeout_ms = 500};
        char text[40], except[2] = {(char)('0' + job.arg), '\0'};

        strike (&job, SIGSTOP);
        snprintf (text, sizeof (text), "rank %d", job.arg);
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
    run_job (&job);
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

static void test_contradiction (void **state)
{
    struct job job = {.layout = "aba",
                      .body = body_nothing,
                      .no_node_rank = true,
                      .timeout_ms = 5000};

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
        cmocka_unit_test (test_half),
        cmocka_unit_test (test_facts),
        cmocka_unit_test (test_all_reduce),
        cmocka_unit_test (test_broadcast),
        cmocka_unit_test (test_barrier),
        cmocka_unit_test (test_mismatch),
        cmocka_unit_test (test_mismatch_roots),
        cmocka_unit_test (test_late),
        cmocka_unit_test (test_die),
        cmocka_unit_test (test_killed_in_data),
        cmocka_unit_test (test_stopped_in_data),
        cmocka_unit_test (test_meeting),
        cmocka_unit_test (test_strangers),
        cmocka_unit_test (test_contradiction),
        cmocka_unit_test (test_two_groups),
    };

    return cmocka_run_group_tests_name ("group_host", tests, NULL, NULL);
}
