/* SPDX-License-Identifier: Apache-2.0
 * share_pair.h - two processes and a block between them, on made-up GPUs. For
 * test_share_gpu.c alone; cmocka.h comes first. */
#ifndef TESTS_UNIT_SHARE_PAIR_H
#define TESTS_UNIT_SHARE_PAIR_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_share.h"
#include "share_impl.h"

#define N    ((size_t)100003)
#define BOTH (1u << TRAIN_SHARE_CUDA_IPC | 1u << TRAIN_SHARE_CUDA_FD)

static char line[512];
static int lines;

static void keep (void *arg, const char *text)
{
    (void)arg;
    lines++;
    snprintf (line, sizeof (line), "%s", text);
}

static train_peer_t *peer_on (int fd, int device)
{
    train_peer_options_t o = {.size = sizeof (o),
                              .name = "the other",
                              .timeout_ms = 60000,
                              .max_bytes = 64 << 20,
                              .device = device,
                              .log = keep};
    train_peer_t *p = NULL;

    assert_int_equal (train_peer_open (fd, &o, &p, NULL), TRAIN_OK);
    return p;
}

/* Bytes [at, at + n) of the block, filled so that each place differs. */
static train_tensor_t *view (train_tensor_t *t, train_share_t *s, size_t at,
                             size_t n, unsigned salt)
{
    unsigned char *x = (unsigned char *)train_share_data (s) + at;
    int64_t shape = (int64_t)n;

    for (size_t i = 0; i < n; i++)
        x[i] = (unsigned char)((i + salt) * 2654435761u >> 13);
    assert_int_equal (train_tensor_view (t, x, TRAIN_U8, 1, &shape, NULL), 0);
    t->t.device.device_type = kDLCUDA;
    t->t.device.device_id = s->lane.device;
    return t;
}

/* Is it those bytes, on that device (-1: host)? */
static bool is (const train_taken_t *taken, size_t n, unsigned salt, int device)
{
    const DLTensor *t = train_taken_tensor (taken);
    const unsigned char *x = t->data;

    if (t->ndim != 1 || t->shape[0] != (int64_t)n
        || (int)t->device.device_type != (int)(device < 0 ? kDLCPU : kDLCUDA)
        || (device >= 0 && t->device.device_id != device))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != (unsigned char)((i + salt) * 2654435761u >> 13))
            return false;
    }
    return true;
}

/* What would be left behind. */
struct left {
    int fds, maps;
    struct fake_share_state gpus;
};

static struct left look (void)
{
    struct left l = {0, 0, fake_share};
    DIR *d = opendir ("/proc/self/fd");
    FILE *in = fopen ("/proc/self/maps", "re");
    char text[512];

    assert_true (d && in);
    while (readdir (d))
        l.fds++;
    while (fgets (text, sizeof (text), in))
        l.maps += strstr (text, "/memfd:train-") != NULL;
    closedir (d);
    fclose (in);
    return l;
}

static void same_as (struct left before)
{
    struct left now = look ();

    assert_int_equal (now.fds, before.fds);
    assert_int_equal (now.maps, before.maps);
    assert_int_equal (now.gpus.blocks, before.gpus.blocks);
    assert_int_equal (now.gpus.mapped, before.gpus.mapped);
    assert_int_equal (now.gpus.opened, before.gpus.opened);
}

struct two {
    train_peer_t *peer; /* of this side */
    int ready[2];
    pid_t child;
};

/* A process that does [job], whose result is its exit status. */
static void begin (struct two *t, int (*job) (train_peer_t *, int ready),
                   int device)
{
    int pair[2];

    assert_int_equal (
        socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal (pipe (t->ready), 0);
    fflush (stdout);
    t->child = fork ();
    if (t->child == 0) {
        train_peer_t *p;

        close (pair[0]);
        memset (&fake_share.mapped, 0, 3 * sizeof (int));
        p = peer_on (pair[1], device);
        _exit (job (p, t->ready[1]));
    }
    close (pair[1]);
    close (t->ready[1]);
    t->peer = peer_on (pair[0], 0);
    lines = 0;
}

static void wait_ready (const struct two *t)
{
    char c;

    assert_int_equal (read (t->ready[0], &c, 1), 1);
}

static void end (struct two *t, int want)
{
    int status;

    assert_int_equal (waitpid (t->child, &status, 0), t->child);
    if (want >= 0 && (!WIFEXITED (status) || WEXITSTATUS (status) != want))
        fail_msg ("the other process ended with status %x", status);
    train_peer_close (t->peer);
    close (t->ready[0]);
}

#endif
