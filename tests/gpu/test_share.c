/* SPDX-License-Identifier: Apache-2.0
 * test_share.c - tensors of a GPU between two processes: every kind of handle,
 * on the GPU and from another one, order, who dies, what it leaves */
#include "config.h"

#include "tap.h"

#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <train/share.h>

#include "backend.h"

#if HAVE_CUDA
#include <cuda_runtime.h>

#define N ((size_t)64 << 20)

static const struct backend_ops *const gpu = &backend_cuda;
static int n_gpus;
static char last[512]; /* line of the log */

static void keep (void *arg, const char *text)
{
    (void)arg;
    snprintf (last, sizeof (last), "%s", text);
    printf ("# %s\n", text);
}

static double now (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static train_peer_t *peer_on (int fd, int device)
{
    train_peer_options_t o = {.size = sizeof (o),
                              .name = "the other",
                              .timeout_ms = 30000,
                              .device = device,
                              .log = keep};
    train_peer_t *p = NULL;

    return train_peer_open (fd, &o, &p, NULL) == TRAIN_OK ? p : NULL;
}

/* Are the tensor's bytes all [value]? Read back by the host. */
static bool all (const train_taken_t *taken, int value)
{
    const DLTensor *t = train_taken_tensor (taken);
    size_t n = train_tensor_bytes (t);
    unsigned char *x = malloc (n);
    bool good =
        x && cudaMemcpy (x, t->data, n, cudaMemcpyDefault) == cudaSuccess;

    for (size_t i = 0; i < n && good; i++)
        good = x[i] == value;
    free (x);
    return good;
}

/* The taker: two that are held at once, one after a stream of the giver's; a
 * copy to a GPU of its own with each; then it waits to be killed. */
static int taker (int fd, int device)
{
    train_peer_t *p = peer_on (fd, device);
    train_taken_t *a = NULL, *b = NULL;
    train_error_t err = {0};
    double begin = now ();
    void *own = NULL;

    if (train_share_take (p, &a, &err) != TRAIN_OK) {
        printf ("# taker: %s\n", err.text);
        return 1;
    }
    printf ("# first take of 64 MiB: %.1f ms\n", 1e3 * (now () - begin));
    if (train_share_take (p, &b, &err) != TRAIN_OK)
        return 2;
    if (!all (a, 41) || !all (b, 42))
        return 3;
    if (device >= 0) {
        if (cudaSetDevice (device) != cudaSuccess
            || cudaMalloc (&own, N) != cudaSuccess
            || cudaMemcpy (own, train_taken_tensor (a)->data, N,
                           cudaMemcpyDefault)
                   != cudaSuccess)
            return 4;
        (void)cudaFree (own);
    }
    train_taken_release (a);
    if (!all (b, 42))
        return 5;
    train_taken_release (b);
    for (int i = 0; i < 5; i++) {
        begin = now ();
        if (train_share_take (p, &a, &err) != TRAIN_OK || !all (a, 50 + i)) {
            printf ("# taker: take %d: %s\n", i, err.text);
            return 6;
        }
        if (i == 4)
            printf ("# fifth take of 64 MiB, read back: %.1f ms\n",
                    1e3 * (now () - begin));
        if (train_taken_release_on (a, NULL, &err) != TRAIN_OK)
            return 7;
    }
    if (train_share_take (p, &a, &err) != TRAIN_OK || !all (a, 60))
        return 8;
    if (write (fd, "", 0) < 0) /* nothing: it dies with this in its hands */
        return 9;
    fflush (stdout);
    pause ();
    return 10;
}

static train_tensor_t *view (train_tensor_t *t, void *data, size_t n)
{
    int64_t shape = (int64_t)n;

    if (train_tensor_view (t, data, TRAIN_U8, 1, &shape, NULL) != TRAIN_OK)
        exit (1);
    t->t.device.device_type = kDLCUDA;
    return t;
}

static bool good (train_status_t status, const train_error_t *err)
{
    if (status != TRAIN_OK)
        printf ("# giver: %s\n", err->text);
    return status == TRAIN_OK;
}

static bool give_all (train_share_t *s, train_peer_t *p, void *stream)
{
    unsigned char *x = train_share_data (s);
    train_error_t err = {0};
    train_tensor_t t, u;
    bool ok;

    view (&t, x, N);
    view (&u, x + N, 1000);
    (void)cudaMemset (x, 41, N);
    (void)cudaMemset (x + N, 42, 1000);
    (void)cudaDeviceSynchronize ();
    ok = good (train_share_give (s, p, &t.t, &err), &err)
         && good (train_share_give (s, p, &u.t, &err), &err)
         && train_share_refs (s) == 2
         && train_share_destroy (s, &err) == TRAIN_ESTATE
         && good (train_share_wait (s, p, &err), &err);
    for (int i = 0; i < 5 && ok; i++) { /* the sum comes after the last */
        for (int k = 0; k < 30; k++)
            (void)gpu->fill (0, x, k, N, stream, &err);
        (void)gpu->fill (0, x, 50 + i, N, stream, &err);
        ok = good (train_share_give_on (s, p, &t.t, stream, &err), &err)
             && good (train_share_wait (s, p, &err), &err);
    }
    (void)cudaMemset (x, 60, N);
    (void)cudaDeviceSynchronize ();
    return ok && good (train_share_give (s, p, &t.t, &err), &err);
}

static size_t room (void)
{
    size_t free_bytes = 0, total = 0;

    (void)cudaSetDevice (0);
    (void)cudaMemGetInfo (&free_bytes, &total);
    return free_bytes;
}

/* The driver takes a dead process apart a while after its sockets closed. */
static bool room_again (size_t before)
{
    for (int i = 0; i < 200 && room () + (4 << 20) < before; i++)
        (void)usleep (100000);
    if (room () + (4 << 20) >= before)
        return true;
    printf ("# %zu bytes of the GPU are gone\n", before - room ());
    return false;
}

/* The giver, a process of its own, since CUDA does not live through a fork. */
static int giver (int fd, pid_t child, int kind, bool carved, const char *word)
{
    train_peer_t *p = peer_on (fd, 0);
    train_share_t *s = NULL;
    train_error_t err = {0};
    char *whole = NULL;
    void *stream = NULL;
    size_t before;
    bool ok;

    (void)cudaFree (NULL);
    ok = gpu->stream_create (0, &stream, &err) == TRAIN_OK;
    before = room ();
    if (carved) {
        ok = ok && cudaMalloc ((void **)&whole, N + (4 << 20)) == cudaSuccess
             && good (train_share_wrap ((train_share_kind_t)kind,
                                        whole + (1 << 20) + 512, N + 4096, &s,
                                        &err),
                      &err);
    } else {
        ok = ok
             && good (train_share_create_gpu ((train_share_kind_t)kind, 0,
                                              N + 4096, &s, &err),
                      &err);
    }
    if (!ok)
        return 1;
    printf ("# kind %d came to be %d\n", kind, (int)train_share_kind (s));
    if (!give_all (s, p, stream))
        return 2;
    (void)usleep (300000); /* in the taker's hands, or on the way there */
    kill (child, SIGKILL);
    if (train_share_wait (s, p, &err) != TRAIN_EPEER || train_share_refs (s))
        return 3;
    if (!good (train_share_destroy (s, &err), &err))
        return 4;
    (void)cudaFree (whole);
    train_peer_close (p);
    if (!room_again (before))
        return 5;
    if (word && !strstr (last, word))
        return 6;
    return !word && last[0] ? 7 : 0;
}

static void pair_of (int kind, bool carved, int device, const char *word,
                     const char *name)
{
    int pair[2], status = 0, other = 0;
    pid_t give, take;

    if (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        exit (1);
    fflush (stdout);
    take = fork ();
    if (take == 0) {
        close (pair[0]);
        status = taker (pair[1], device);
        fflush (stdout);
        _exit (status);
    }
    close (pair[1]);
    give = fork ();
    if (give == 0) {
        alarm (40);
        status = giver (pair[0], take, kind, carved, word);
        fflush (stdout);
        _exit (status);
    }
    close (pair[0]);
    waitpid (give, &status, 0);
    waitpid (take, &other, 0);
    if (status || !WIFSIGNALED (other))
        printf ("# giver %x, taker %x\n", status, other);
    tap_ok (status == 0 && WIFSIGNALED (other), name);
}

/* The giver dies; memory of a descriptor stays, what is taken is released. */
static int widow (int fd, pid_t giver_pid)
{
    train_peer_t *p = peer_on (fd, 0);
    train_taken_t *a = NULL, *b = NULL;
    train_error_t err = {0};
    size_t before;

    (void)cudaFree (NULL);
    before = room ();
    if (!good (train_share_take (p, &a, &err), &err))
        return 1;
    kill (giver_pid, SIGKILL);
    if (train_share_take (p, &b, &err) != TRAIN_EPEER)
        return 2;
    if (!all (a, 41))
        return 3;
    train_taken_release (a);
    train_peer_close (p);
    return room_again (before) ? 0 : 4;
}

static int dies (int fd)
{
    train_peer_t *p = peer_on (fd, 0);
    train_share_t *s = NULL;
    train_error_t err = {0};
    train_tensor_t t;

    if (!good (train_share_create_gpu (TRAIN_SHARE_CUDA_FD, 0, N, &s, &err),
               &err))
        return 1;
    (void)cudaMemset (train_share_data (s), 41, N);
    (void)cudaDeviceSynchronize ();
    if (!good (train_share_give (s, p, &view (&t, train_share_data (s), N)->t,
                                 &err),
               &err))
        return 2;
    pause ();
    return 3;
}

static void dead_giver (void)
{
    int pair[2], status = 0;
    pid_t give, take;

    if (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        exit (1);
    fflush (stdout);
    give = fork ();
    if (give == 0) {
        close (pair[1]);
        alarm (40);
        _exit (dies (pair[0]));
    }
    close (pair[0]);
    take = fork ();
    if (take == 0) {
        alarm (40);
        status = widow (pair[1], give);
        fflush (stdout);
        _exit (status);
    }
    close (pair[1]);
    waitpid (take, &status, 0);
    kill (give, SIGKILL);
    waitpid (give, NULL, 0);
    if (status)
        printf ("# taker %x\n", status);
    tap_ok (status == 0, "the giver is killed: what was taken stays readable");
}

/* CUDA itself refuses this; so do we, with words. */
static int same_process (void)
{
    train_share_t *s = NULL;
    train_taken_t *a = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    int pair[2];
    train_peer_t *p, *q;

    if (socketpair (AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
        return 1;
    p = peer_on (pair[0], 0);
    q = peer_on (pair[1], 0);
    if (!good (train_share_create_gpu (TRAIN_SHARE_CUDA_IPC, 0, N, &s, &err),
               &err)
        || !good (train_share_give (
                      s, p, &view (&t, train_share_data (s), N)->t, &err),
                  &err))
        return 2;
    return train_share_take (q, &a, &err) == TRAIN_EINVAL ? 0 : 3;
}

static void in_child (int (*job) (void), const char *name)
{
    int status = 0;
    pid_t pid;

    fflush (stdout);
    pid = fork ();
    if (pid == 0) {
        alarm (40);
        status = job ();
        fflush (stdout);
        _exit (status);
    }
    waitpid (pid, &status, 0);
    tap_ok (status == 0, name);
}

/* In a child too: CUDA that a parent has touched is of no use to children. */
static int count (void)
{
    int n = 0;

    return gpu->probe (&n, NULL) == TRAIN_OK ? n : 0;
}

int main (void)
{
    int status = 0;
    pid_t pid = fork ();

    if (pid == 0)
        _exit (count ());
    waitpid (pid, &status, 0);
    n_gpus = WIFEXITED (status) ? WEXITSTATUS (status) : 0;
    if (n_gpus == 0)
        tap_skip_all ("no GPU is visible");
    pair_of (TRAIN_SHARE_CUDA_FD, false, 0, NULL, "a descriptor, one GPU");
    pair_of (TRAIN_SHARE_CUDA_IPC, false, 0, NULL, "an IPC handle, one GPU");
    pair_of (TRAIN_SHARE_CUDA_IPC, true, 0, NULL,
             "an IPC handle of memory inside an allocation");
    pair_of (TRAIN_SHARE_AUTO, false, 0, NULL, "the best kind, one GPU");
    pair_of (TRAIN_SHARE_AUTO, false, -1, "it has no GPU",
             "a taker without a GPU gets it staged, with a line");
    pair_of (TRAIN_SHARE_MEMFD, false, 0, NULL, "staged on request");
    if (n_gpus > 1) {
        pair_of (TRAIN_SHARE_CUDA_FD, false, 1, NULL,
                 "a descriptor, copied to another GPU");
        pair_of (TRAIN_SHARE_CUDA_IPC, false, 1, NULL,
                 "an IPC handle, copied to another GPU");
    }
    dead_giver ();
    in_child (same_process, "an IPC handle is not opened where it was made");
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 1;
}

#endif
