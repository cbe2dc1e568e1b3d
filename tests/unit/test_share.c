/* SPDX-License-Identifier: Apache-2.0
 * test_share.c - tensors between processes of a host, and what is left when
 * one of them is killed */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "share_impl.h"

#define N ((size_t)1 << 20)

/* Entries that have [part] in their names. */
static int count_in (const char *path, const char *part)
{
    DIR *d = opendir (path);
    struct dirent *entry;
    int n = 0;

    while (d && (entry = readdir (d)))
        n += strstr (entry->d_name, part) != NULL;
    if (d)
        closedir (d);
    return n;
}

/* What would be left behind. */
struct left {
    int fds, shm, maps;
};

static int count_maps (void)
{
    FILE *in = fopen ("/proc/self/maps", "re");
    char line[512];
    int n = 0;

    assert_non_null (in);
    while (fgets (line, sizeof (line), in))
        n += strstr (line, "train-share") != NULL;
    fclose (in);
    return n;
}

static struct left look (void)
{
    /* Groups of other tests come and go in /dev/shm meanwhile. */
    return (struct left){count_in ("/proc/self/fd", ""),
                         count_in ("/dev/shm", "train-share"), count_maps ()};
}

static void same_as (struct left before)
{
    struct left now = look ();

    assert_int_equal (now.fds, before.fds);
    assert_int_equal (now.shm, before.shm);
    assert_int_equal (now.maps, before.maps);
}

static train_peer_t *peer_on (int fd, const char *name, int64_t timeout_ms)
{
    train_peer_options_t o = {.size = sizeof (o),
                              .name = name,
                              .timeout_ms = timeout_ms,
                              .max_bytes = 64 << 20};
    train_peer_t *p = NULL;

    assert_int_equal (train_peer_open (fd, &o, &p, NULL), TRAIN_OK);
    return p;
}

static void make_pair (int *pair)
{
    assert_int_equal (
        socketpair (AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
}

/* [n] floats that begin with [first], at element [at] of the block. */
static train_tensor_t *view (train_tensor_t *t, train_share_t *s, size_t at,
                             size_t n, float first)
{
    float *x = (float *)train_share_data (s) + at;

    for (size_t i = 0; i < n; i++)
        x[i] = first + (float)i;
    assert_int_equal (train_tensor_view (t, x, TRAIN_F32, 1,
                                         (const int64_t[]){(int64_t)n}, NULL),
                      TRAIN_OK);
    return t;
}

static bool is (const train_taken_t *taken, size_t n, float first)
{
    const DLTensor *t = train_taken_tensor (taken);
    const float *x = t->data;

    if (t->ndim != 1 || t->shape[0] != (int64_t)n)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (x[i] != first + (float)i)
            return false;
    }
    return true;
}

static void test_arguments (void **state)
{
    train_peer_options_t o = {.size = 1};
    train_share_t *s = NULL, *other = NULL;
    train_taken_t *taken = NULL;
    train_peer_t *p = NULL;
    train_tensor_t t;
    train_error_t err;
    int pair[2];

    (void)state;
    assert_int_equal (train_share_create (TRAIN_SHARE_MEMFD, 0, &s, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_share_create (TRAIN_SHARE_CUDA_IPC, 8, &s, &err),
                      TRAIN_ENOTSUP);
    assert_int_equal (train_peer_open (-1, NULL, &p, &err), TRAIN_EINVAL);
    assert_int_equal (socketpair (AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal (train_peer_open (pair[0], NULL, &p, &err), TRAIN_EINVAL);
    close (pair[0]);
    close (pair[1]);
    make_pair (pair);
    assert_int_equal (train_peer_open (pair[0], &o, &p, &err), TRAIN_EINVAL);
    assert_null (p);
    p = peer_on (pair[0], "rank 1", 50);
    assert_int_equal (train_share_create (TRAIN_SHARE_MEMFD, 4096, &s, &err),
                      TRAIN_OK);
    assert_int_equal (
        train_share_create (TRAIN_SHARE_MEMFD, 4096, &other, &err), TRAIN_OK);
    view (&t, other, 0, 4, 0);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    view (&t, s, 0, 4, 0);
    t.t.byte_offset = 2;
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    t.t.byte_offset = 4096;
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    t.t.byte_offset = 0;
    t.strides[0] = 2;
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EINVAL);
    assert_int_equal (train_share_give (s, NULL, &t.t, &err), TRAIN_EINVAL);
    assert_int_equal (train_share_take (p, NULL, &err), TRAIN_EINVAL);
    assert_int_equal (train_share_take (p, &taken, &err), TRAIN_ETIMEDOUT);
    assert_non_null (strstr (err.text, "rank 1"));
    assert_int_equal (train_share_refs (s), 0);
    assert_int_equal (train_share_destroy (s, &err), TRAIN_OK);
    assert_int_equal (train_share_destroy (other, &err), TRAIN_OK);
    assert_int_equal (train_share_destroy (NULL, &err), TRAIN_OK);
    train_peer_close (p);
    train_peer_close (NULL);
    train_taken_release (NULL);
    close (pair[1]);
}

/* Each step answered by an exit status of its own. */
static int child_takes (int fd)
{
    train_taken_t *a = NULL, *b = NULL, *c = NULL;
    train_peer_t *p = peer_on (fd, "the giver", 60000);

    if (train_share_take (p, &a, NULL) != TRAIN_OK || !is (a, N, 1))
        return 1;
    if (train_share_take (p, &b, NULL) != TRAIN_OK || !is (b, 10, 1))
        return 2;
    if (count_maps () != 2) /* the parent's own, and one of ours */
        return 3;
    train_taken_release (a);
    if (!is (b, 10, 1))
        return 4;
    train_taken_release (b);
    if (train_share_take (p, &c, NULL) != TRAIN_OK || !is (c, N, 500))
        return 5;
    train_peer_close (p);
    if (!is (c, N, 500))
        return 6;
    train_taken_release (c);
    return count_maps () == 1 ? 0 : 7;
}

static void test_two_processes (void **state)
{
    struct left before = look ();
    train_share_t *s = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    train_peer_t *p;
    int pair[2], status;
    pid_t pid;

    (void)state;
    make_pair (pair);
    assert_int_equal (train_share_create (TRAIN_SHARE_MEMFD, 4 * N, &s, &err),
                      TRAIN_OK);
    pid = fork ();
    if (pid == 0) {
        close (pair[0]);
        _exit (child_takes (pair[1]));
    }
    close (pair[1]);
    p = peer_on (pair[0], "rank 1", 60000);
    view (&t, s, 0, N, 1);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_OK);
    view (&t, s, 0, 10, 1);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_OK);
    assert_int_equal (train_share_refs (s), 2);
    assert_int_equal (train_share_destroy (s, &err), TRAIN_ESTATE);
    assert_int_equal (train_share_wait (s, p, &err), TRAIN_OK);
    assert_int_equal (train_share_refs (s), 0);
    view (&t, s, 0, N, 500);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_OK);
    assert_int_equal (train_share_wait (s, p, &err), TRAIN_EPEER);
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_true (WIFEXITED (status));
    assert_int_equal (WEXITSTATUS (status), 0);
    train_peer_close (p);
    assert_int_equal (train_share_destroy (s, &err), TRAIN_OK);
    same_as (before);
}

/* The other side takes, and is killed with the tensor in its hands. */
static void test_taker_killed (void **state)
{
    struct left before = look ();
    train_share_t *s = NULL;
    train_taken_t *taken = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    train_peer_t *p;
    int pair[2], ready[2];
    pid_t pid;
    char c;

    (void)state;
    make_pair (pair);
    assert_int_equal (pipe (ready), 0);
    assert_int_equal (train_share_create (TRAIN_SHARE_MEMFD, 4 * N, &s, &err),
                      TRAIN_OK);
    pid = fork ();
    if (pid == 0) {
        close (pair[0]);
        p = peer_on (pair[1], "the giver", 60000);
        if (train_share_take (p, &taken, NULL) == TRAIN_OK
            && write (ready[1], "x", 1) == 1)
            pause ();
        _exit (1);
    }
    close (pair[1]);
    p = peer_on (pair[0], "rank 1", 60000);
    view (&t, s, 0, N, 1);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_OK);
    assert_int_equal (read (ready[0], &c, 1), 1);
    p->timeout_ms = 50;
    assert_int_equal (train_share_wait (s, p, &err), TRAIN_ETIMEDOUT);
    assert_int_equal (train_share_refs (s), 1);
    p->timeout_ms = 60000;
    kill (pid, SIGKILL);
    assert_int_equal (train_share_wait (s, p, &err), TRAIN_EPEER);
    assert_string_equal (err.text, "rank 1: the process ended");
    assert_int_equal (train_share_refs (s), 0);
    assert_int_equal (train_share_give (s, p, &t.t, &err), TRAIN_EPEER);
    assert_int_equal (train_share_refs (s), 0);
    assert_int_equal (waitpid (pid, NULL, 0), pid);
    assert_int_equal (train_share_destroy (s, &err), TRAIN_OK);
    train_peer_close (p);
    close (ready[0]);
    close (ready[1]);
    same_as (before);
}

/* The giver is killed: what was taken stays, the next is an error. */
static void test_giver_killed (void **state)
{
    struct left before = look ();
    train_taken_t *taken = NULL, *next = NULL;
    train_share_t *s = NULL;
    train_error_t err = {0};
    train_tensor_t t;
    train_peer_t *p;
    int pair[2];
    pid_t pid;

    (void)state;
    make_pair (pair);
    pid = fork ();
    if (pid == 0) {
        close (pair[0]);
        p = peer_on (pair[1], "the taker", 60000);
        if (train_share_create (TRAIN_SHARE_MEMFD, 4 * N, &s, NULL) == TRAIN_OK
            && train_share_give (s, p, &view (&t, s, 0, N, 7)->t, NULL)
                   == TRAIN_OK)
            pause ();
        _exit (1);
    }
    close (pair[1]);
    p = peer_on (pair[0], "rank 0", 60000);
    assert_int_equal (train_share_take (p, &taken, &err), TRAIN_OK);
    kill (pid, SIGKILL);
    assert_int_equal (waitpid (pid, NULL, 0), pid);
    assert_int_equal (train_share_take (p, &next, &err), TRAIN_EPEER);
    assert_string_equal (err.text, "rank 0: the process ended");
    assert_null (next);
    assert_true (is (taken, N, 7));
    train_taken_release (taken);
    train_peer_close (p);
    same_as (before);
}

/* A message of [s]'s first 4 floats, true in every part. */
static struct share_msg sound (const train_share_t *s, train_peer_t *p,
                               int other, int *ret_fd)
{
    struct share_msg msg;
    struct iovec iov = {&msg, sizeof (msg)};
    char control[CMSG_SPACE (sizeof (int))] __attribute__ ((aligned (8)));
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof (control)};
    train_tensor_t t;

    view (&t, (train_share_t *)s, 0, 4, 1);
    assert_int_equal (train_share_give ((train_share_t *)s, p, &t.t, NULL),
                      TRAIN_OK);
    assert_int_equal (recvmsg (other, &h, MSG_CMSG_CLOEXEC), sizeof (msg));
    memcpy (ret_fd, CMSG_DATA (CMSG_FIRSTHDR (&h)), sizeof (int));
    return msg;
}

enum trick { NO_TRICK, NO_FD, UNSEALED, A_PIPE, SHORT, TWICE };

/* Send [msg] as it is to a peer that takes, and expect that. */
static void deliver (const struct share_msg *msg, int fd, enum trick trick,
                     train_status_t want, const char *text)
{
    char control[CMSG_SPACE (2 * sizeof (int))] __attribute__ ((aligned (8)));
    struct iovec iov = {(void *)msg, sizeof (*msg) - (trick == SHORT)};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    train_taken_t *taken = NULL;
    train_error_t err = {0};
    train_status_t status;
    train_peer_t *p;
    int pair[2], fds[2] = {fd, fd};

    make_pair (pair);
    p = peer_on (pair[0], "rank 9", 60000);
    if (trick != NO_FD) {
        size_t n = trick == TWICE ? 2 : 1;

        memset (control, 0, sizeof (control));
        h.msg_control = control;
        h.msg_controllen = CMSG_SPACE (n * sizeof (int));
        CMSG_FIRSTHDR (&h)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR (&h)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR (&h)->cmsg_len = CMSG_LEN (n * sizeof (int));
        memcpy (CMSG_DATA (CMSG_FIRSTHDR (&h)), fds, n * sizeof (int));
    }
    assert_true (sendmsg (pair[1], &h, 0) > 0);
    status = train_share_take (p, &taken, &err);
    if (status != want || (text && !strstr (err.text, text)))
        fail_msg ("%s (%s), want %s (%s)", train_status_name (status), err.text,
                  train_status_name (want), text ? text : "");
    if (status == TRAIN_OK)
        assert_true (is (taken, 4, 1));
    if (status == TRAIN_EFORMAT)
        assert_int_equal (train_share_take (p, &taken, &err), TRAIN_ESTATE);
    train_taken_release (taken);
    train_peer_close (p);
    close (pair[1]);
}

static void test_hostile_messages (void **state)
{
    struct left before = look ();
    train_share_t *s = NULL;
    struct share_msg good, m;
    train_peer_t *p;
    int pair[2], fd, loose;

    (void)state;
    assert_int_equal (train_share_create (TRAIN_SHARE_MEMFD, 4096, &s, NULL),
                      TRAIN_OK);
    make_pair (pair);
    p = peer_on (pair[0], "x", 60000);
    good = sound (s, p, pair[1], &fd);
    deliver (&good, fd, NO_TRICK, TRAIN_OK, NULL);
    deliver (&good, fd, TWICE, TRAIN_OK, NULL);
    deliver (&good, fd, SHORT, TRAIN_EFORMAT, "another length");
    deliver (&good, fd, NO_FD, TRAIN_EFORMAT, "gives no memory");
    loose = memfd_create ("train-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal (ftruncate (loose, 4096), 0);
    deliver (&good, loose, UNSEALED, TRAIN_EFORMAT, "not sealed");
    close (loose);
    loose = open ("/dev/null", O_RDONLY | O_CLOEXEC);
    deliver (&good, loose, A_PIPE, TRAIN_EFORMAT, "gives no memory");
    close (loose);
#define WITH(change, status, text)                                             \
    do {                                                                       \
        m = good;                                                              \
        change;                                                                \
        deliver (&m, fd, NO_TRICK, status, text);                              \
    } while (0)
    WITH (m.magic++, TRAIN_EFORMAT, "does not speak");
    WITH (m.op = 0, TRAIN_EFORMAT, "does not speak");
    WITH (m.op = 5, TRAIN_EFORMAT, "does not speak");
    WITH (m.op = SHARE_RELEASE, TRAIN_EFORMAT, "what it does not have");
    WITH (m.op = SHARE_REFUSE, TRAIN_EFORMAT, "what it was not given");
    WITH (m.block_bytes = 8192, TRAIN_EFORMAT, "of another size");
    WITH (m.block_bytes = UINT64_MAX, TRAIN_EFORMAT, "of another size");
    WITH (m.dtype = 200, TRAIN_EFORMAT, "unknown type");
    WITH (m.ndim = 9, TRAIN_EFORMAT, "or dimensions");
    WITH (m.ndim = -1, TRAIN_EFORMAT, "or dimensions");
    WITH (m.shape[0] = -1, TRAIN_EFORMAT, "impossible shape");
    WITH (m.shape[0] = INT64_MAX, TRAIN_EFORMAT, "impossible shape");
    WITH (m.shape[0] = 1025, TRAIN_EFORMAT, "not in its memory");
    WITH (m.offset = 4096, TRAIN_EFORMAT, "not in its memory");
    WITH (m.offset = UINT64_MAX, TRAIN_EFORMAT, "not in its memory");
    WITH (m.offset = 2, TRAIN_EFORMAT, "not in its memory");
    WITH (m.kind = 9, TRAIN_ENOTSUP, "kind 9");
    WITH (m.kind = TRAIN_SHARE_CUDA_IPC, TRAIN_EFORMAT, "without a handle");
    WITH (m.sum++, TRAIN_ECORRUPT, "rank 9: a tensor of 16 bytes has sum");
    ((float *)train_share_data (s))[3] = 9; /* written while it is given */
    deliver (&good, fd, NO_TRICK, TRAIN_ECORRUPT, "sum");
    close (fd);
    close (pair[1]);
    train_peer_close (p);
    assert_int_equal (train_share_destroy (s, NULL), TRAIN_OK);
    same_as (before);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_two_processes),
        cmocka_unit_test (test_taker_killed),
        cmocka_unit_test (test_giver_killed),
        cmocka_unit_test (test_hostile_messages),
    };

    return cmocka_run_group_tests_name ("share", tests, NULL, NULL);
}
