/* SPDX-License-Identifier: Apache-2.0
 * test_group_nccl.c - groups with backend nccl on two real GPUs: every call
 * beside plain values, and ranks that disagree, end, stop or come less
 *
 *   test_group_nccl [hosts]   hosts: each process plays a machine of its own,
 *                             to NCCL and to libtrain, and meets by sockets
 *
 * One process a GPU, forked before anything of CUDA has run. What they saw is
 * in memory that the parent reads. Needs two GPUs and libnccl.so.2. */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <train/group.h>

#include "backend.h"
#include "nccl_api.h"
#include "nccl_values.h"
#include "sock.h"

#define RANKS    2
#define N        100003
#define LARGE    (16u << 20) /* elements */
#define TIME_MS  5000
#define START_MS 60000

struct seen {
    train_error_t err;
    int status;
    int64_t ms;
    char note[300];
    _Atomic int calls, over;
};

static struct shared {
    struct seen rank[RANKS];
} * shared;

struct rank {
    int rank;
    train_group_t *group;
    struct seen *seen;
    char *in, *out; /* (LARGE * 4 bytes) of the GPU */
    char *host;     /* the same of the host */
    train_error_t err;
};

typedef void (*body_f) (struct rank *r);

static void note (struct rank *r, const char *what, const char *text)
{
    if (!r->seen->note[0])
        snprintf (r->seen->note, sizeof (r->seen->note), "rank %d: %s: %.200s",
                  r->rank, what, text);
}

static bool try_ok (struct rank *r, const char *what, train_status_t status)
{
    if (status != TRAIN_OK)
        note (r, what, r->err.text);
    return status == TRAIN_OK;
}

static void upload (struct rank *r, char *to, size_t bytes)
{
    try_ok (r, "upload", backend_cuda.copy (to, r->host, bytes, NULL, &r->err));
    try_ok (r, "upload", backend_cuda.sync (NULL, &r->err));
}

static void download (struct rank *r, const char *from, size_t bytes)
{
    memset (r->host, 0xee, bytes);
    try_ok (r, "download",
            backend_cuda.copy (r->host, from, bytes, NULL, &r->err));
    try_ok (r, "download", backend_cuda.sync (NULL, &r->err));
}

static void fill (struct rank *r, char *to, train_dtype_t dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put (r->host, dtype, i, given (r->rank, i));
    upload (r, to, n * train_dtype_size (dtype));
}

/* [first] of all elements is the first of [data]; what they are. */
static void want (struct rank *r, const char *what, const char *data,
                  train_dtype_t dtype, size_t n, size_t first, train_op_t op,
                  int of)
{
    char text[100];

    download (r, data, n * train_dtype_size (dtype));
    for (size_t i = 0; i < n; i++) {
        double x = get (r->host, dtype, i);
        double y = of >= 0 ? given (of, first + i) : combined (first + i, op);

        if (x == y)
            continue;
        snprintf (text, sizeof (text), "[%zu] is %g, want %g (type %d, op %d)",
                  i, x, y, dtype, op);
        note (r, what, text);
        return;
    }
}

static void reductions (struct rank *r, train_dtype_t dtype, train_op_t op)
{
    train_tensor_t t, all;
    size_t bytes = N * train_dtype_size (dtype);

    fill (r, r->out, dtype, N);
    on_gpu (&t, r->out, dtype, N, r->rank);
    if (try_ok (r, "all_reduce",
                train_all_reduce (r->group, &t.t, op, &r->err)))
        want (r, "all_reduce", r->out, dtype, N, 0, op, -1);
    fill (r, r->out, dtype, N);
    if (try_ok (r, "reduce", train_reduce (r->group, &t.t, op, 1, &r->err)))
        want (r, "reduce", r->out, dtype, N, 0, op, r->rank == 1 ? -1 : 0);
    fill (r, r->in, dtype, 2 * N);
    on_gpu (&all, r->in, dtype, 2 * N, r->rank);
    on_gpu (&t, r->in + (size_t)r->rank * bytes, dtype, N, r->rank);
    if (try_ok (r, "reduce_scatter",
                train_reduce_scatter (r->group, &all.t, &t.t, op, &r->err)))
        want (r, "reduce_scatter", t.t.data, dtype, N, (size_t)r->rank * N, op,
              -1);
}

static void body_reductions (struct rank *r)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                           TRAIN_F16, TRAIN_I64, TRAIN_I32};

    for (size_t i = 0; i < sizeof (dtypes) / sizeof (*dtypes); i++) {
        bool whole = dtypes[i] == TRAIN_I64 || dtypes[i] == TRAIN_I32;

        for (train_op_t op = TRAIN_SUM; op <= TRAIN_PROD; op++) {
            if (!whole || op != TRAIN_AVG)
                reductions (r, dtypes[i], op);
        }
    }
}

/* Blocks of [n]: element i of block b of rank f has given (f, b * n + i). */
static void body_moves (struct rank *r)
{
    size_t n = N, bytes = n * 4, mine = (size_t)r->rank * bytes;
    train_tensor_t in, out, one, block;

    on_gpu (&in, r->in, TRAIN_F32, 2 * n, r->rank);
    on_gpu (&out, r->out, TRAIN_F32, 2 * n, r->rank);
    on_gpu (&one, r->in, TRAIN_F32, n, r->rank);
    on_gpu (&block, r->out + mine, TRAIN_F32, n, r->rank);
    for (int pass = 0; pass < 2; pass++) {
        fill (r, r->in, TRAIN_F32, 2 * n);
        try_ok (r, "all_to_all",
                train_all_to_all (r->group, &in.t, &out.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_to_all", r->out + (size_t)f * bytes, TRAIN_F32, n,
                  (size_t)r->rank * n, TRAIN_SUM, f);
        try_ok (r, "all_to_all in place",
                train_all_to_all (r->group, &in.t, &in.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_to_all in place", r->in + (size_t)f * bytes,
                  TRAIN_F32, n, (size_t)r->rank * n, TRAIN_SUM, f);
        fill (r, r->in, TRAIN_F32, 2 * n);
        try_ok (r, "all_gather",
                train_all_gather (r->group, &one.t, &out.t, &r->err));
        for (int f = 0; f < 2; f++)
            want (r, "all_gather", r->out + (size_t)f * bytes, TRAIN_F32, n, 0,
                  TRAIN_SUM, f);
        fill (r, r->out + mine, TRAIN_F32, n);
        try_ok (r, "gather in place",
                train_gather (r->group, &block.t, &out.t, 1, &r->err));
        for (int f = 0; f < 2 && r->rank == 1; f++)
            want (r, "gather", r->out + (size_t)f * bytes, TRAIN_F32, n, 0,
                  TRAIN_SUM, f);
        try_ok (r, "scatter",
                train_scatter (r->group, &in.t, &block.t, 0, &r->err));
        want (r, "scatter", r->out + mine, TRAIN_F32, n, (size_t)r->rank * n,
              TRAIN_SUM, 0);
        try_ok (r, "send_recv",
                train_send_recv (r->group, &one.t, 1, 0, &r->err));
        want (r, "send_recv", r->in, TRAIN_F32, n, 0, TRAIN_SUM, 1);
        fill (r, r->in, TRAIN_F32, n);
        try_ok (r, "broadcast", train_broadcast (r->group, &one.t, 1, &r->err));
        want (r, "broadcast", r->in, TRAIN_F32, n, 0, TRAIN_SUM, 1);
    }
}

static void body_list (struct rank *r)
{
    static const size_t n[4] = {3, 0, N, 1};
    train_tensor_t t[4];
    DLTensor *list[4];
    char *at = r->in;

    for (int i = 0; i < 4; i++) {
        on_gpu (&t[i], n[i] ? at : NULL, TRAIN_F32, n[i], r->rank);
        fill (r, at, TRAIN_F32, n[i]);
        list[i] = &t[i].t;
        at += (n[i] + 64) * 4;
    }
    try_ok (r, "list",
            train_all_reduce_list (r->group, list, 4, TRAIN_SUM, &r->err));
    for (int i = 0; i < 4; i++) {
        if (n[i])
            want (r, "list", t[i].t.data, TRAIN_F32, n[i], 0, TRAIN_SUM, -1);
    }
}

static void body_steps (struct rank *r)
{
    for (int i = 0; i < 3; i++) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        reductions (r, TRAIN_F32, TRAIN_SUM);
        body_list (r);
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
}

static train_status_t all_reduce (struct rank *r, size_t n)
{
    train_tensor_t t;

    on_gpu (&t, r->in, TRAIN_F32, n, r->rank);
    return train_all_reduce (r->group, &t.t, TRAIN_MAX, &r->err);
}

static void body_mismatch (struct rank *r)
{
    fill (r, r->in, TRAIN_F32, N);
    r->seen->status = all_reduce (r, r->rank == 1 ? N - 2 : N);
    r->seen->err = r->err;
    want (r, "untouched", r->in, TRAIN_F32, N, 0, TRAIN_SUM, r->rank);
}

static void body_elsewhere (struct rank *r)
{
    train_tensor_t t;

    on_gpu (&t, r->host, TRAIN_F32, N, r->rank);
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_EINVAL
        || !strstr (r->err.text, "its memory is the host's"))
        note (r, "host memory that says GPU", r->err.text);
    t.t.device.device_type = kDLCPU;
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_ENOTSUP
        || !strstr (r->err.text, "backend host moves"))
        note (r, "CPU tensor", r->err.text);
    on_gpu (&t, r->in, TRAIN_F32, N, 1 - r->rank);
    if (train_all_reduce (r->group, &t.t, TRAIN_SUM, &r->err) != TRAIN_ENOTSUP)
        note (r, "another GPU", r->err.text);
    try_ok (r, "all_reduce after refusals", all_reduce (r, N));
}

/* Calls without end; the parent strikes rank 1. Then rank 0 goes on alone. */
static void go_on_alone (struct rank *r)
{
    train_group_t *made = NULL;
    train_tensor_t t;

    if (!try_ok (r, "survivors",
                 train_group_survivors (r->group, 1, NULL, &made, &r->err)))
        return;
    fill (r, r->in, TRAIN_F32, N);
    on_gpu (&t, r->in, TRAIN_F32, N, r->rank);
    try_ok (r, "all_reduce of the survivor",
            train_all_reduce (made, &t.t, TRAIN_SUM, &r->err));
    want (r, "all_reduce of the survivor", r->in, TRAIN_F32, N, 0, TRAIN_SUM,
          0);
    if (strcmp (train_group_backend (made), "nccl") != 0)
        note (r, "survivors", "another backend");
    train_group_destroy (made);
}

static void endless (struct rank *r, bool messages)
{
    train_tensor_t in, out;
    int64_t begin_ms = clock_ms ();

    on_gpu (&in, r->in, TRAIN_F32, LARGE, r->rank);
    on_gpu (&out, r->out, TRAIN_F32, LARGE, r->rank);
    while (r->seen->status == TRAIN_OK) {
        begin_ms = clock_ms ();
        r->seen->status =
            messages ? train_all_to_all (r->group, &in.t, &out.t, &r->err)
                     : train_all_reduce (r->group, &in.t, TRAIN_MAX, &r->err);
        atomic_fetch_add (&r->seen->calls, 1);
    }
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    go_on_alone (r);
}

static void body_endless (struct rank *r)
{
    endless (r, false);
}

static void body_endless_messages (struct rank *r)
{
    endless (r, true);
}

/* In learnt steps nobody agrees before a call: who is struck leaves the other
 * in NCCL. */
static void body_endless_steps (struct rank *r)
{
    int64_t begin_ms = clock_ms ();

    while (r->seen->status == TRAIN_OK) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        for (int i = 0; i < 4 && r->seen->status == TRAIN_OK; i++) {
            begin_ms = clock_ms ();
            r->seen->status = all_reduce (r, N);
        }
        if (r->seen->status == TRAIN_OK)
            r->seen->status = train_step_end (r->group, &r->err);
        atomic_fetch_add (&r->seen->calls, 1);
    }
    r->seen->ms = clock_ms () - begin_ms;
    r->seen->err = r->err;
    go_on_alone (r);
}

/* Rank 1 calls less. */
static void body_less (struct rank *r)
{
    int64_t begin_ms = clock_ms ();

    try_ok (r, "first", all_reduce (r, N));
    if (r->rank == 1) {
        while (!atomic_load (&shared->rank[0].over))
            poll (NULL, 0, 20);
        return;
    }
    begin_ms = clock_ms ();
    r->seen->status = all_reduce (r, N);
    r->seen->err = r->err;
    r->seen->ms = clock_ms () - begin_ms;
}

/* Rank 1 departs from a learnt step. */
static void body_depart (struct rank *r)
{
    int64_t begin_ms;

    for (int i = 0; i < 3; i++) {
        try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
        try_ok (r, "all_reduce", all_reduce (r, N));
        try_ok (r, "step_end", train_step_end (r->group, &r->err));
    }
    try_ok (r, "step_begin", train_step_begin (r->group, &r->err));
    if (r->rank == 1)
        poll (NULL, 0, 500);
    begin_ms = clock_ms ();
    r->seen->status = all_reduce (r, r->rank == 1 ? 8 : N);
    r->seen->err = r->err;
    r->seen->ms = clock_ms () - begin_ms;
}

static void set_int (const char *name, int value)
{
    char text[16];

    snprintf (text, sizeof (text), "%d", value);
    setenv (name, text, 1);
}

static bool as_hosts; /* the argument "hosts" */

/* What tells a rank that its machine is another's, or the same. */
static void set_place (int rank, train_group_options_t *opts)
{
    char host[16];

    set_int ("LOCAL_RANK", as_hosts ? 0 : rank);
    set_int ("LOCAL_WORLD_SIZE", as_hosts ? 1 : RANKS);
    if (!as_hosts)
        return;
    set_int ("NODE_RANK", rank);
    snprintf (host, sizeof (host), "host%d", rank);
    setenv ("NCCL_HOSTID", host, 1);
    setenv ("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv ("NCCL_IB_DISABLE", "1", 1);
    opts->device = rank == 0 ? "cuda:0" : "cuda:1";
}

static void rank_main (int rank, int port, body_f body)
{
    train_group_options_t opts = {
        .size = sizeof (opts), .backend = "nccl", .timeout_ms = TIME_MS};
    struct rank r = {.rank = rank, .seen = &shared->rank[rank]};
    size_t bytes = (size_t)LARGE * 4;

    set_int ("RANK", rank);
    set_int ("WORLD_SIZE", RANKS);
    set_place (rank, &opts);
    set_int ("MASTER_PORT", port);
    setenv ("MASTER_ADDR", "127.0.0.1", 1);
    r.host = malloc (bytes);
    opts.timeout_ms = START_MS;
    if (try_ok (&r, "memory",
                backend_cuda.alloc (rank, bytes, (void **)&r.in, &r.err))
        && try_ok (&r, "memory",
                   backend_cuda.alloc (rank, bytes, (void **)&r.out, &r.err))
        && try_ok (&r, "create",
                   train_group_create (&opts, &r.group, &r.err))) {
        train_group_t *first = r.group;

        /* the beginning may take its time, the calls may not */
        opts.timeout_ms = TIME_MS;
        opts.name = "tested";
        if (try_ok (&r, "create", train_group_create (&opts, &r.group, &r.err)))
            body (&r);
        atomic_store (&r.seen->over, 1);
        train_group_destroy (r.group);
        train_group_destroy (first);
    }
    atomic_store (&r.seen->over, 1);
    _exit (0);
}

static int hold_port (int *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof (a);
    int on = 1, fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl (INADDR_LOOPBACK);
    setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on));
    if (bind (fd, (struct sockaddr *)&a, len) < 0
        || getsockname (fd, (struct sockaddr *)&a, &len) < 0)
        exit (99);
    *ret_port = ntohs (a.sin_port);
    return fd;
}

/* Run both ranks; [sig] strikes rank 1 once it has called a few times. */
static bool run (body_f body, int sig)
{
    int port, hold = hold_port (&port), ends[RANKS];
    int64_t until_ms = clock_ms () + 2 * START_MS;
    pid_t pids[RANKS];
    bool late = false;

    memset (shared, 0, sizeof (*shared));
    fflush (stdout);
    for (int r = 0; r < RANKS; r++) {
        if ((pids[r] = fork ()) == 0)
            rank_main (r, port, body);
    }
    if (sig) {
        while (clock_ms () < until_ms
               && atomic_load (&shared->rank[1].calls) < 5
               && !atomic_load (&shared->rank[0].over))
            poll (NULL, 0, 1);
        kill (pids[1], sig);
        while (clock_ms () < until_ms && !atomic_load (&shared->rank[0].over))
            poll (NULL, 0, 5);
        kill (pids[1], SIGKILL);
    }
    for (int r = 0; r < RANKS; r++) {
        while (waitpid (pids[r], &ends[r], WNOHANG) == 0) {
            if (clock_ms () > until_ms) {
                late = true;
                kill (pids[r], SIGKILL);
            }
            poll (NULL, 0, 2);
        }
    }
    close (hold);
    for (int r = 0; r < RANKS; r++) {
        const struct seen *s = &shared->rank[r];

        if (s->note[0])
            printf ("# %s\n", s->note);
        if (s->err.text[0])
            printf ("# rank %d, %d ms: %s\n", r, (int)s->ms, s->err.text);
    }
    return !late && ends[0] == 0 && (sig || ends[1] == 0)
           && !shared->rank[0].note[0] && (sig || !shared->rank[1].note[0]);
}

static bool said (int rank, train_status_t status, const char *text, int max_ms)
{
    const struct seen *s = &shared->rank[rank];

    return s->status == (int)status && strstr (s->err.text, text)
           && s->ms <= max_ms;
}

/* In a process of its own: the parent must not begin with CUDA. */
static int count_gpus (void)
{
    int n = 0, status;
    pid_t pid = fork ();

    if (pid == 0) {
        const struct nccl_api *api;
        const struct backend_ops *gpu;
        train_error_t err;

        if (nccl_open (&api, &gpu, &err) != TRAIN_OK) {
            printf ("# %s\n", err.text);
            fflush (stdout);
            _exit (0);
        }
        printf ("# NCCL %d\n", api->version);
        fflush (stdout);
        gpu->probe (&n, NULL);
        _exit (n);
    }
    waitpid (pid, &status, 0);
    return WIFEXITED (status) ? WEXITSTATUS (status) : 0;
}

int main (int argc, char **argv)
{
    as_hosts = argc > 1 && strcmp (argv[1], "hosts") == 0;
    shared = mmap (NULL, sizeof (*shared), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || count_gpus () < RANKS)
        tap_skip_all ("needs two GPUs and libnccl.so.2");
    tap_ok (run (body_reductions, 0), "reductions of every type");
    tap_ok (run (body_moves, 0), "moves, new and old connections");
    tap_ok (run (body_list, 0), "a list");
    tap_ok (run (body_steps, 0), "learnt steps");
    tap_ok (run (body_elsewhere, 0), "tensors that are elsewhere");
    tap_ok (run (body_mismatch, 0)
                && said (0, TRAIN_EMISMATCH, "rank 1 called all_reduce", 0)
                && said (1, TRAIN_EMISMATCH, "rank 1 called all_reduce", 0),
            "counts differ: both are told, nothing is touched");
    tap_ok (
        run (body_less, 0)
            && said (0, TRAIN_ETIMEDOUT, "rank 1 did not come", TIME_MS + 2000),
        "a rank that calls less is named at the deadline");
    tap_ok (run (body_depart, 0)
                && said (0, TRAIN_EMISMATCH, "rank 1 called", 1500)
                && said (1, TRAIN_EMISMATCH, "rank 1 called", 1500),
            "a rank departs from a learnt step: within a second");
    tap_ok (run (body_endless, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in all_reduce, the other goes on");
    tap_ok (run (body_endless_messages, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in all_to_all, the other goes on");
    tap_ok (run (body_endless, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not", TIME_MS + 2000),
            "a rank is stopped in all_reduce, the other goes on");
    tap_ok (run (body_endless_messages, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not", TIME_MS + 2000),
            "a rank is stopped in all_to_all, the other goes on");
    tap_ok (run (body_endless_steps, SIGKILL)
                && said (0, TRAIN_EPEER, "rank 1 ended during", 2000),
            "a rank is killed in a learnt step, the other goes on");
    tap_ok (run (body_endless_steps, SIGSTOP)
                && said (0, TRAIN_ETIMEDOUT, "rank 1 did not go on with",
                         TIME_MS + 2000)
                && strstr (shared->rank[0].err.text, "undefined"),
            "a rank is stopped in a learnt step, the other leaves NCCL");
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 0;
}

#endif
