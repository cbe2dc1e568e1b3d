/* SPDX-License-Identifier: Apache-2.0
 * test_frames.c - tensors over sockets, and peers that lie, stall or die */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <endian.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <train/frames.h>

#define BIG ((size_t)8 << 20) /* more than sockets hold */

static const float x[4] = {1, -2, 3.5F, 0};
static const train_st_entry_t small[] = {
    {.name = "x", .dtype = TRAIN_F32, .ndim = 2, .shape = {2, 2}, .data = x},
    {.name = "none", .dtype = TRAIN_I64, .ndim = 1, .shape = {0}},
};
static const train_st_meta_t meta[] = {{"step", "7"}};

static int count_fds (void)
{
    DIR *d = opendir ("/proc/self/fd");
    int n = 0;

    while (readdir (d))
        n++;
    closedir (d);
    return n;
}

static train_frames_t *frames_on (int fd, int64_t timeout_ms)
{
    train_frames_options_t o = {.size = sizeof (o),
                                .peer = "rank 3",
                                .timeout_ms = timeout_ms,
                                .max_bytes = (uint64_t)1 << 30};
    train_frames_t *f = NULL;

    assert_int_equal (train_frames_open (fd, &o, &f, NULL), TRAIN_OK);
    return f;
}

static void make_pair (int *pair)
{
    assert_int_equal (socketpair (AF_UNIX, SOCK_STREAM, 0, pair), 0);
}

static void refuse (train_frames_t *f, train_status_t want, const char *text)
{
    train_safetensors_t *file = NULL;
    train_error_t err = {0};
    train_status_t status = train_frames_recv (f, &file, &err);

    if (status != want || !strstr (err.text, text)
        || !strstr (err.text, "rank 3"))
        fail_msg ("%s (%s), want %s (%s)", train_status_name (status), err.text,
                  train_status_name (want), text);
    assert_null (file);
    assert_int_equal (train_frames_recv (f, &file, &err), TRAIN_ESTATE);
}

static void test_arguments (void **state)
{
    train_frames_options_t o = {.size = sizeof (o), .timeout_ms = -1};
    train_frames_t *f = NULL;
    train_st_entry_t no_data = small[0];
    train_safetensors_t *file;
    train_error_t err;
    int pair[2];

    (void)state;
    assert_int_equal (train_frames_open (-1, NULL, &f, &err), TRAIN_EINVAL);
    assert_int_equal (pipe (pair), 0);
    assert_int_equal (train_frames_open (pair[0], NULL, &f, &err),
                      TRAIN_EINVAL);
    close (pair[0]);
    close (pair[1]);
    make_pair (pair);
    assert_int_equal (train_frames_open (pair[0], NULL, NULL, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_frames_open (pair[0], &o, &f, &err), TRAIN_EINVAL);
    o = (train_frames_options_t){.size = 1};
    assert_int_equal (train_frames_open (pair[0], &o, &f, &err), TRAIN_EINVAL);
    assert_null (f);
    f = frames_on (pair[0], 50);
    no_data.data = NULL;
    assert_int_equal (train_frames_send (f, &no_data, 1, NULL, 0, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_frames_send (f, NULL, 1, NULL, 0, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_frames_send (NULL, small, 1, NULL, 0, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_frames_recv (f, NULL, &err), TRAIN_EINVAL);
    assert_int_equal (train_frames_recv (NULL, &file, &err), TRAIN_EINVAL);
    /* nothing was sent, and the stream is as it was */
    assert_int_equal (train_frames_end (f, &err), TRAIN_OK);
    assert_int_equal (train_frames_send (f, small, 1, NULL, 0, &err),
                      TRAIN_ESTATE);
    train_frames_close (f);
    f = frames_on (pair[1], 5000);
    file = (train_safetensors_t *)&err;
    assert_int_equal (train_frames_recv (f, &file, &err), TRAIN_OK);
    assert_null (file);
    assert_int_equal (train_frames_recv (f, &file, &err), TRAIN_OK);
    train_frames_close (f);
    train_frames_close (NULL);
}

struct sender {
    int fd;
    char *data;
    train_status_t status;
};

static void *send_all (void *arg)
{
    struct sender *s = arg;
    train_st_entry_t e = {.name = "big",
                          .dtype = TRAIN_U8,
                          .ndim = 1,
                          .shape = {BIG},
                          .data = s->data};
    train_frames_t *f = frames_on (s->fd, 60000);

    s->status = train_frames_send (f, small, 2, meta, 1, NULL);
    if (s->status == TRAIN_OK)
        s->status = train_frames_send (f, &e, 1, NULL, 0, NULL);
    if (s->status == TRAIN_OK)
        s->status = train_frames_send (f, NULL, 0, NULL, 0, NULL);
    if (s->status == TRAIN_OK)
        s->status = train_frames_end (f, NULL);
    train_frames_close (f);
    return NULL;
}

static void test_round_trip (void **state)
{
    struct sender s = {.data = malloc (BIG)};
    train_safetensors_t *first = NULL, *big = NULL, *empty = NULL, *end;
    train_frames_t *f;
    train_error_t err = {0};
    pthread_t thread;
    int pair[2];

    (void)state;
    for (size_t i = 0; i < BIG; i++)
        s.data[i] = (char)(i * 31 >> 7);
    make_pair (pair);
    s.fd = pair[0];
    assert_int_equal (pthread_create (&thread, NULL, send_all, &s), 0);
    f = frames_on (pair[1], 60000);
    assert_int_equal (train_frames_recv (f, &first, &err), TRAIN_OK);
    assert_int_equal (train_frames_recv (f, &big, &err), TRAIN_OK);
    assert_int_equal (train_frames_recv (f, &empty, &err), TRAIN_OK);
    assert_int_equal (train_frames_recv (f, &end, &err), TRAIN_OK);
    assert_null (end);
    train_frames_close (f);
    pthread_join (thread, NULL);
    assert_int_equal (s.status, TRAIN_OK);
    assert_int_equal (train_safetensors_count (first), 2);
    assert_memory_equal (train_safetensors_find (first, "x")->data, x,
                         sizeof (x));
    assert_string_equal (train_safetensors_meta (first, "step"), "7");
    assert_int_equal (train_safetensors_find (big, "big")->bytes, BIG);
    assert_memory_equal (train_safetensors_find (big, "big")->data, s.data,
                         BIG);
    assert_int_equal (train_safetensors_count (empty), 0);
    train_safetensors_close (first);
    train_safetensors_close (big);
    train_safetensors_close (empty);
    free (s.data);
}

/* The bytes of a frame of [small]. */
static size_t capture (char *buf, size_t size)
{
    train_frames_t *f;
    int pair[2];
    ssize_t n;

    make_pair (pair);
    f = frames_on (pair[0], 5000);
    assert_int_equal (train_frames_send (f, small, 2, meta, 1, NULL), TRAIN_OK);
    n = recv (pair[1], buf, size, 0);
    assert_true (n > 100 && n < (ssize_t)size);
    train_frames_close (f);
    close (pair[1]);
    return (size_t)n;
}

static train_frames_t *feed (const char *buf, size_t n)
{
    int pair[2];

    make_pair (pair);
    assert_int_equal (send (pair[0], buf, n, 0), (ssize_t)n);
    close (pair[0]);
    return frames_on (pair[1], 5000);
}

/* Each byte of a frame, one wrong at a time; and each place to stop. */
static void test_every_byte (void **state)
{
    char buf[1024], bad[1024];
    size_t n = capture (buf, sizeof (buf));

    (void)state;
    for (size_t i = 8; i < n; i++) {
        train_frames_t *f;

        memcpy (bad, buf, n);
        bad[i] ^= 0x10;
        f = feed (bad, n);
        refuse (f, TRAIN_ECORRUPT, "with sum");
        train_frames_close (f);
        f = feed (buf, i);
        refuse (f, TRAIN_EPEER, "went away: receiving");
        train_frames_close (f);
    }
    /* two words change places */
    memcpy (bad, buf, n);
    memcpy (bad + n - 24, buf + n - 16, 8);
    memcpy (bad + n - 16, buf + n - 24, 8);
    train_frames_t *f = feed (bad, n);
    refuse (f, TRAIN_ECORRUPT, "with sum");
    train_frames_close (f);
    f = feed (buf, 0);
    refuse (f, TRAIN_EPEER, "without ending the stream");
    train_frames_close (f);
}

static void test_hostile_lengths (void **state)
{
    static const struct {
        uint64_t n;
        train_status_t status;
        const char *text;
    } lengths[] = {
        {1, TRAIN_EFORMAT, "too few"},
        {9, TRAIN_EFORMAT, "too few"},
        {((uint64_t)1 << 30) + 1, TRAIN_EFORMAT, "over the 1073741824"},
        {(uint64_t)1 << 63, TRAIN_EFORMAT, "over the 1073741824"},
        {UINT64_MAX, TRAIN_EFORMAT, "over the 1073741824"},
        {(uint64_t)1 << 30, TRAIN_EPEER, "byte 0 of a frame of 1073741824"},
    };
    struct rusage before, after;

    (void)state;
    getrusage (RUSAGE_SELF, &before);
    for (size_t i = 0; i < sizeof (lengths) / sizeof (*lengths); i++) {
        char buf[12] = {0};
        uint64_t le = htole64 (lengths[i].n);
        train_frames_t *f;

        memcpy (buf, &le, 8);
        f = feed (buf, sizeof (buf));
        refuse (f, lengths[i].status, lengths[i].text);
        train_frames_close (f);
    }
    getrusage (RUSAGE_SELF, &after);
    assert_true (after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
}

static void test_deadlines (void **state)
{
    char buf[1024], *big = calloc (1, BIG);
    size_t n = capture (buf, sizeof (buf));
    train_st_entry_t e = {.name = "big",
                          .dtype = TRAIN_U8,
                          .ndim = 1,
                          .shape = {BIG},
                          .data = big};
    train_error_t err = {0};
    train_frames_t *f;
    int pair[2];

    (void)state;
    make_pair (pair);
    f = frames_on (pair[0], 50);
    refuse (f, TRAIN_ETIMEDOUT, "no frame in 50 ms");
    assert_int_equal (train_frames_send (f, &e, 1, NULL, 0, &err),
                      TRAIN_ETIMEDOUT);
    assert_non_null (strstr (err.text, "rank 3: not done in 50 ms: sending"));
    assert_int_equal (train_frames_send (f, small, 1, NULL, 0, &err),
                      TRAIN_ESTATE);
    assert_int_equal (train_frames_end (f, &err), TRAIN_ESTATE);
    train_frames_close (f);
    close (pair[1]);
    make_pair (pair);
    f = frames_on (pair[0], 50);
    assert_int_equal (send (pair[1], buf, n - 1, 0), (ssize_t)n - 1);
    refuse (f, TRAIN_ETIMEDOUT, "not done in 50 ms");
    train_frames_close (f);
    close (pair[1]);
    free (big);
}

static pid_t child_with (int *pair, void (*run) (int fd))
{
    pid_t pid = fork ();

    if (pid == 0) {
        close (pair[0]);
        run (pair[1]);
        for (;;)
            pause ();
    }
    assert_true (pid > 0);
    close (pair[1]);
    return pid;
}

static void late_end (int fd)
{
    const uint64_t zero = 0;

    usleep (100000);
    if (write (fd, &zero, 8) != 8)
        _exit (1);
}

/* A deadline that nobody lives to see is one all the same. */
static void test_patient (void **state)
{
    train_safetensors_t *file = NULL;
    train_error_t err = {0};
    train_frames_t *f;
    int pair[2];
    pid_t pid;

    (void)state;
    make_pair (pair);
    pid = child_with (pair, late_end);
    f = frames_on (pair[0], INT64_MAX);
    if (train_frames_recv (f, &file, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_null (file);
    train_frames_close (f);
    kill (pid, SIGKILL);
    waitpid (pid, NULL, 0);
}

static void half_a_frame (int fd)
{
    static char buf[100000];
    uint64_t le = htole64 (sizeof (buf) * 2);

    if (write (fd, &le, 8) != 8 || write (fd, buf, sizeof (buf)) < 0)
        _exit (1);
}

static void one_byte_read (int fd)
{
    char c;

    if (read (fd, &c, 1) != 1)
        _exit (1);
}

static void *kill_soon (void *arg)
{
    usleep (100000);
    kill (*(pid_t *)arg, SIGKILL);
    return NULL;
}

/* kill -9 of either side while a frame is on its way. */
static void test_killed (void **state)
{
    char *big = calloc (1, BIG);
    train_st_entry_t e = {.name = "big",
                          .dtype = TRAIN_U8,
                          .ndim = 1,
                          .shape = {BIG},
                          .data = big};
    int before = count_fds (), pair[2];
    train_error_t err = {0};
    train_frames_t *f;
    pthread_t thread;
    pid_t pid;

    (void)state;
    for (int side = 0; side < 2; side++) {
        make_pair (pair);
        pid = child_with (pair, side ? one_byte_read : half_a_frame);
        f = frames_on (pair[0], 60000);
        pthread_create (&thread, NULL, kill_soon, &pid);
        if (side == 0) {
            refuse (f, TRAIN_EPEER, "of a frame of 200000");
        } else {
            assert_int_equal (train_frames_send (f, &e, 1, NULL, 0, &err),
                              TRAIN_EPEER);
            assert_non_null (strstr (err.text, "rank 3: went away: sending"));
        }
        pthread_join (thread, NULL);
        train_frames_close (f);
        assert_int_equal (waitpid (pid, NULL, 0), pid);
    }
    free (big);
    assert_int_equal (count_fds (), before);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_patient),
        cmocka_unit_test (test_arguments),
        cmocka_unit_test (test_round_trip),
        cmocka_unit_test (test_every_byte),
        cmocka_unit_test (test_hostile_lengths),
        cmocka_unit_test (test_deadlines),
        cmocka_unit_test (test_killed),
    };

    return cmocka_run_group_tests_name ("frames", tests, NULL, NULL);
}
