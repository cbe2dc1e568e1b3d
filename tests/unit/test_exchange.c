/* SPDX-License-Identifier: Apache-2.0
 * test_exchange.c - ranks swap values through rank 0: who is late, and what is
 * short there */
#include "config.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "job/exchange.h"
#include "job/job_impl.h"

/* One rank of a made-up step in a thread: the exchange needs no Slurm. */
struct member {
    struct exchange_opts o;
    int64_t wait_ms; /* before it comes */
    int64_t fence_ms;
    rv_job_status_t status;
    rv_job_error_t err;
    unsigned char *all;
    size_t len;
};

static const char *const loopback[] = {"127.0.0.1", NULL};

static void *member_run (void *arg)
{
    struct member *m = arg;
    struct exchange *x = exchange_create (&m->o);
    char blob[64];
    int n;

    poll (NULL, 0, (int)m->wait_ms);
    for (uint32_t epoch = 0; epoch < 3 && !m->status; epoch++) {
        free (m->all);
        m->all = NULL;
        n = snprintf (blob, sizeof (blob), "%u:%u%.*s", epoch, m->o.rank,
                      (int)m->o.rank * 3, "xxxxxxxxxxxxxxxxxxxxxxxxxx");
        m->status = exchange_swap (x, epoch, blob, (size_t)n,
                                   job_now_ms () + m->fence_ms, &m->all,
                                   &m->len, &m->err);
    }
    exchange_destroy (x);
    return NULL;
}

static void member_init (struct member *m, uint32_t rank, uint32_t size,
                         uint16_t port)
{
    *m = (struct member){.o = {.token = 0x1122334455667788,
                               .rank = rank,
                               .size = size,
                               .local = true,
                               .quick = loopback},
                         .fence_ms = 20000};
    for (int i = 0; i < EXCHANGE_PORTS; i++)
        m->o.port[i] = (uint16_t)(port + i);
}

/* -1 when another has it. */
static int sit_on (uint16_t port, bool listens)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons (port)};
    int fd = socket (AF_INET, SOCK_STREAM, 0);

    if (bind (fd, (struct sockaddr *)&a, sizeof (a))
        || (listens && listen (fd, 1))) {
        close (fd);
        return -1;
    }
    return fd;
}

/* A port in the formula's range that is free now. */
static uint16_t free_port (void)
{
    for (uint16_t port = (uint16_t)(20000 + getpid () % 11000);; port += 8) {
        int fd = sit_on (port, false);

        if (fd < 0)
            continue;
        close (fd);
        return port;
    }
}

#define SIZE 5

static void run_all (struct member *m)
{
    pthread_t thread[SIZE];

    for (int i = 0; i < SIZE; i++)
        assert_int_equal (pthread_create (&thread[i], NULL, member_run, &m[i]),
                          0);
    for (int i = 0; i < SIZE; i++)
        pthread_join (thread[i], NULL);
}

static void test_swap (void **state)
{
    uint16_t port = free_port ();
    struct member m[SIZE];
    /* Somebody sits on the first port and never says a word. */
    int squatter = sit_on (port, true);

    (void)state;
    assert_true (squatter >= 0);
    for (uint32_t i = 0; i < SIZE; i++) {
        member_init (&m[i], i, SIZE, port);
        m[i].wait_ms = i * 20;
    }
    run_all (m);
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal (m[i].status, 0);
        for (uint32_t r = 0; r < SIZE; r++) {
            char want[64];
            size_t len = 0;
            int n = snprintf (want, sizeof (want), "2:%u%.*s", r, (int)r * 3,
                              "xxxxxxxxxxxxxxxxxxxxxxxxxx");
            const unsigned char *got =
                exchange_find (m[i].all, m[i].len, r, &len);

            assert_non_null (got);
            assert_int_equal (len, n);
            assert_memory_equal (got, want, len);
        }
        free (m[i].all);
    }
    close (squatter);
}

static void test_late (void **state)
{
    struct member m[SIZE];
    uint16_t port = free_port ();

    (void)state;
    for (uint32_t i = 0; i < SIZE; i++) {
        member_init (&m[i], i, SIZE, port);
        m[i].fence_ms = i == 0 ? 700 : i == 2 ? 1500 : 30000;
    }
    m[2].o.token++; /* a stray from another step: refused, so 2 never comes */
    run_all (m);
    for (int i = 0; i < SIZE; i++) {
        assert_int_equal (m[i].status, RV_JOB_ETIMEDOUT);
        free (m[i].all);
    }
    assert_non_null (strstr (m[0].err.text, "1 of 5 ranks"));
    assert_non_null (strstr (m[0].err.text, ": 2"));
}

static void limit_files (rlim_t n)
{
    struct rlimit limit;

    getrlimit (RLIMIT_NOFILE, &limit);
    limit.rlim_cur = n;
    setrlimit (RLIMIT_NOFILE, &limit);
}

static void *raise_limit (void *arg)
{
    poll (NULL, 0, 300);
    limit_files (*(rlim_t *)arg);
    return NULL;
}

/* Rank 0 in a process with a descriptor for its listener and no other, for
 * 300 ms or for good: 0, or what is wrong. */
static int crowded_rank0 (struct member *m, bool recovers)
{
    pthread_t thread;
    struct rusage use;
    int next = dup (STDIN_FILENO);
    rlim_t more = (rlim_t)next + 64;

    close (next);
    limit_files ((rlim_t)next + 1);
    if (recovers && pthread_create (&thread, NULL, raise_limit, &more))
        return 1;
    member_run (m);
    getrusage (RUSAGE_SELF, &use);
    if (use.ru_utime.tv_sec || use.ru_stime.tv_sec
        || use.ru_utime.tv_usec + use.ru_stime.tv_usec > 150000)
        return 2; /* it did not wait, it looked all the time */
    if (recovers)
        return m->status ? 3 : 0;
    return m->status == RV_JOB_ETIMEDOUT && strstr (m->err.text, "1 of 2 ranks")
                   && strstr (m->err.text, "Too many open files")
               ? 0
               : 4;
}

static void test_files (void **state)
{
    (void)state;
    for (int recovers = 0; recovers < 2; recovers++) {
        struct member m[2];
        uint16_t port = free_port ();
        int status = -1;
        pid_t pid;

        for (uint32_t i = 0; i < 2; i++) {
            member_init (&m[i], i, 2, port);
            m[i].fence_ms = recovers ? 20000 : 1500;
        }
        pid = fork ();
        if (pid == 0)
            _exit (crowded_rank0 (&m[0], recovers));
        member_run (&m[1]);
        assert_int_equal (waitpid (pid, &status, 0), pid);
        assert_int_equal (status, 0);
        assert_int_equal (m[1].status, recovers ? 0 : RV_JOB_ETIMEDOUT);
        free (m[1].all);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_swap),
        cmocka_unit_test (test_late),
        cmocka_unit_test (test_files),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
