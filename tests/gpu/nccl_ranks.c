/* SPDX-License-Identifier: Apache-2.0
 * nccl_ranks.c - ranks of backend nccl on real GPUs, and what they saw */
#include "config.h"

#if HAVE_CUDA

#include "nccl_ranks.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend.h"
#include "nccl_api.h"
#include "nccl_values.h"
#include "sock.h"

struct shared *shared;
int ranks = 2;

void note (struct rank *r, const char *what, const char *text)
{
    if (!r->seen->note[0])
        snprintf (r->seen->note, sizeof (r->seen->note), "rank %d: %s: %.200s",
                  r->rank, what, text);
}

bool try_ok (struct rank *r, const char *what, train_status_t status)
{
    if (status != TRAIN_OK)
        note (r, what, r->err.text);
    return status == TRAIN_OK;
}

void upload (struct rank *r, char *to, size_t bytes)
{
    try_ok (r, "upload", backend_cuda.copy (to, r->host, bytes, NULL, &r->err));
    try_ok (r, "upload", backend_cuda.sync (NULL, &r->err));
}

void download (struct rank *r, const char *from, size_t bytes)
{
    memset (r->host, 0xee, bytes);
    try_ok (r, "download",
            backend_cuda.copy (r->host, from, bytes, NULL, &r->err));
    try_ok (r, "download", backend_cuda.sync (NULL, &r->err));
}

void fill (struct rank *r, char *to, train_dtype_t dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put (r->host, dtype, i, given (r->rank, i));
    upload (r, to, n * train_dtype_size (dtype));
}

/* [first] of all elements is the first of [data]; what they are. */
void want (struct rank *r, const char *what, const char *data,
           train_dtype_t dtype, size_t n, size_t first, train_op_t op, int of)
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

static void set_int (const char *name, int value)
{
    char text[16];

    snprintf (text, sizeof (text), "%d", value);
    setenv (name, text, 1);
}

bool as_hosts, at_home;

/* What tells a rank that its machine is another's, or the same. */
static void set_place (int rank, train_group_options_t *opts)
{
    char host[16];

    set_int ("LOCAL_RANK", as_hosts ? 0 : rank);
    set_int ("LOCAL_WORLD_SIZE", as_hosts ? 1 : ranks);
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
    set_int ("WORLD_SIZE", ranks);
    set_place (rank, &opts);
    set_int ("MASTER_PORT", port);
    setenv ("MASTER_ADDR", "127.0.0.1", 1);
    r.host = malloc (bytes);
    if (at_home)
        (void)backend_cuda.enter (rank);
    try_ok (&r, "stream", backend_cuda.stream_create (rank, &r.stream, &r.err));
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
        opts.stream = r.stream;
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
bool run (body_f body, int sig)
{
    int port, hold = hold_port (&port), ends[RANKS] = {0};
    int64_t until_ms = clock_ms () + 2 * START_MS;
    pid_t pids[RANKS];
    bool late = false;

    memset (shared, 0, sizeof (*shared));
    fflush (stdout);
    for (int r = 0; r < ranks; r++) {
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
    for (int r = 0; r < ranks; r++) {
        while (waitpid (pids[r], &ends[r], WNOHANG) == 0) {
            if (clock_ms () > until_ms) {
                late = true;
                kill (pids[r], SIGKILL);
            }
            poll (NULL, 0, 2);
        }
    }
    close (hold);
    for (int r = 0; r < ranks; r++) {
        const struct seen *s = &shared->rank[r];

        if (s->note[0])
            printf ("# %s\n", s->note);
        if (s->err.text[0])
            printf ("# rank %d, %d ms: %s\n", r, (int)s->ms, s->err.text);
    }
    return !late && ends[0] == 0 && (sig || ends[1] == 0)
           && !shared->rank[0].note[0] && (sig || !shared->rank[1].note[0]);
}

bool said (int rank, train_status_t status, const char *text, int max_ms)
{
    const struct seen *s = &shared->rank[rank];

    return s->status == (int)status && strstr (s->err.text, text)
           && s->ms <= max_ms;
}

/* In a process of its own: the parent must not begin with CUDA. */
int count_gpus (void)
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

bool open_ranks (void)
{
    int n;

    shared = mmap (NULL, sizeof (*shared), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    n = count_gpus ();
    ranks = n < RANKS ? 1 : RANKS;
    return n > 0;
}

#endif
