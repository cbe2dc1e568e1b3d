/* SPDX-License-Identifier: Apache-2.0
 * job_probe.c - a small program of librvjob, run by the suites on a cluster
 *
 * usage: job_probe facts | values | late RANK SLEEP_MS FENCE_MS | leave RANK |
 *        address | abort RANK CODE | port | barrier | thread
 *        job_probe squat PORT FILE | master | argv [ARG...]    without librvjob */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rv/job.h>

static rv_job_t *job;
static rv_job_error_t err;

#define TRY(call)                                                              \
    do {                                                                       \
        if (call) {                                                            \
            printf ("rank %u: line %d: %d %s\n", job ? rv_job_rank (job) : 0,  \
                    __LINE__, (int)err.code, err.text);                        \
            fflush (stdout);                                                   \
            rv_job_finalize (job);                                             \
            exit (1);                                                          \
        }                                                                      \
    } while (0)

static void pause_ms (long ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep (&t, NULL);
}

static void facts (void)
{
    printf ("rank=%u size=%u local=%u/%u node=%u/%u boot=%s timeout=%lld\n",
            rv_job_rank (job), rv_job_size (job), rv_job_local_rank (job),
            rv_job_local_size (job), rv_job_node (job), rv_job_nodes (job),
            rv_job_boot (job), (long long)rv_job_timeout_ms (job));
}

/* Every byte of a value depends on its rank, fence and key. */
static void fill (unsigned char *buf, size_t n, unsigned rank, unsigned fence,
                  unsigned key)
{
    for (size_t i = 0; i < n; i++)
        buf[i] = (unsigned char)(i * 7 + rank * 31 + fence * 101 + key * 13);
}

static void check (unsigned rank, unsigned fence, unsigned key, size_t n)
{
    unsigned char got[4096], want[4096];
    char name[16];
    size_t len = 0;

    snprintf (name, sizeof (name), "key.%u", key);
    fill (want, n, rank, fence, key);
    TRY (rv_job_get (job, rank, name, got, sizeof (got), &len, &err));
    if (len != n || memcmp (got, want, n)) {
        printf ("rank %u: wrong value of rank %u key %u\n", rv_job_rank (job),
                rank, key);
        exit (1);
    }
}

static void put (unsigned fence, unsigned key, size_t n)
{
    unsigned char buf[4096];
    char name[16];

    snprintf (name, sizeof (name), "key.%u", key);
    fill (buf, n, rv_job_rank (job), fence, key);
    TRY (rv_job_put (job, name, buf, n, &err));
}

static void values (void)
{
    char byte;
    uint32_t size = rv_job_size (job);

    for (unsigned key = 0; key < 5; key++)
        put (0, key, key == 4 ? 3072 : key * 700);
    TRY (rv_job_fence (job, 0, &err));
    for (unsigned r = 0; r < size; r++)
        for (unsigned key = 0; key < 5; key++)
            check (r, 0, key, key == 4 ? 3072 : key * 700);
    if (rv_job_rank (job) % 2) /* every other rank puts key 1 anew */
        put (1, 1, 11);
    TRY (rv_job_fence (job, 0, &err));
    TRY (rv_job_fence (job, 0, &err));
    for (unsigned r = 0; r < size; r++) {
        check (r, r % 2, 1, r % 2 ? 11 : 700);
        check (r, 0, 3, 2100);
    }
    if (rv_job_get (job, size - 1, "nobody", &byte, 1, NULL, &err)
        != RV_JOB_ENOTFOUND)
        exit (2);
    printf ("values ok\n");
}

static void late (unsigned rank, long sleep_ms, long fence_ms)
{
    rv_job_status_t status;

    if (rv_job_rank (job) == rank)
        pause_ms (sleep_ms);
    status = rv_job_fence (job, fence_ms, &err);
    printf ("rank %u: %d %s\n", rv_job_rank (job), (int)status,
            status ? err.text : "");
    if (status && rv_job_fence (job, fence_ms, &err) != RV_JOB_ESTATE)
        exit (2);
}

static void leave (unsigned rank)
{
    rv_job_status_t status;

    TRY (rv_job_fence (job, 0, &err));
    if (rv_job_rank (job) == rank)
        return;
    status = rv_job_fence (job, 8000, &err);
    printf ("rank %u: %d %s\n", rv_job_rank (job), (int)status,
            status ? err.text : "");
}

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The last rank comes 400 ms late and nobody leaves before it; a barrier
 * spreads nothing, and many of them make a get no slower. */
static void barrier (void)
{
    uint32_t last = rv_job_size (job) - 1;
    int64_t start;

    TRY (rv_job_barrier (job, 0, &err));
    put (0, 1, 11);
    start = now_ms ();
    if (rv_job_rank (job) == last)
        pause_ms (400);
    TRY (rv_job_barrier (job, 0, &err));
    if (now_ms () - start < 350)
        exit (2);
    if (rv_job_get (job, last, "key.1", NULL, 0, NULL, &err)
        != RV_JOB_ENOTFOUND)
        exit (3);
    TRY (rv_job_fence (job, 0, &err));
    for (int i = 0; i < 20; i++)
        TRY (rv_job_barrier (job, 0, &err));
    check (last, 0, 1, 11);
    printf ("barrier ok\n");
}

static void *in_thread (void *arg)
{
    (void)arg;
    TRY (rv_job_init (NULL, &job, &err));
    values ();
    return NULL;
}

/* Everything but the end in a thread, the end in the first. */
static void thread (void)
{
    pthread_t t;

    if (pthread_create (&t, NULL, in_thread, NULL) || pthread_join (t, NULL))
        exit (2);
    rv_job_finalize (job);
}

static void address (void)
{
    char buf[1024];

    TRY (rv_job_address (job, buf, sizeof (buf), &err));
    printf ("%s\n", buf);
}

/* Rank [rank] reserves a port, an exclusive bind fails, a program's own with
 * SO_REUSEADDR listens. */
static void port (void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    uint16_t number = 0;
    int fd = -1, other, on = 1;

    TRY (rv_job_reserve_port (job, &number, &fd, &err));
    a.sin_port = htons (number);
    other = socket (AF_INET, SOCK_STREAM, 0);
    if (!bind (other, (struct sockaddr *)&a, sizeof (a)))
        exit (2);
    setsockopt (other, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on));
    if (bind (other, (struct sockaddr *)&a, sizeof (a)) || listen (other, 1))
        exit (3);
    printf ("port ok\n");
}

static int listen_on (uint16_t number)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons (number)};
    int fd = socket (AF_INET, SOCK_STREAM, 0), on = 1;

    setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on));
    if (bind (fd, (struct sockaddr *)&a, sizeof (a)) || listen (fd, 64)) {
        perror ("listen");
        exit (3);
    }
    return fd;
}

/* Sit on a port, take connections and never say a word. [path] appears when
 * it listens. */
static void squat (const char *number, const char *path)
{
    int fd = listen_on ((uint16_t)strtoul (number, NULL, 10));
    FILE *f = fopen (path, "w");

    if (!f || fclose (f))
        exit (3);
    for (;;)
        if (accept (fd, NULL, NULL) < 0)
            exit (3);
}

/* What a trainer does with MASTER_ADDR and MASTER_PORT: rank 0 listens, the
 * others connect and say their rank. */
static void master (void)
{
    unsigned rank = (unsigned)strtoul (getenv ("RANK"), NULL, 10),
             size = (unsigned)strtoul (getenv ("WORLD_SIZE"), NULL, 10);
    uint16_t number = (uint16_t)strtoul (getenv ("MASTER_PORT"), NULL, 10);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons (number)};
    uint32_t sum = 0, said;
    int fd;

    if (rank == 0) {
        int listener = listen_on (number);

        for (unsigned i = 1; i < size; i++) {
            fd = accept (listener, NULL, NULL);
            if (read (fd, &said, sizeof (said)) != sizeof (said))
                exit (4);
            sum += said;
            close (fd);
        }
        printf ("met %u\n", sum);
        return;
    }
    inet_pton (AF_INET, getenv ("MASTER_ADDR"), &a.sin_addr);
    for (int i = 0; i < 1000; i++, pause_ms (20)) {
        fd = socket (AF_INET, SOCK_STREAM, 0);
        if (!connect (fd, (struct sockaddr *)&a, sizeof (a))) {
            said = rank;
            if (write (fd, &said, sizeof (said)) != sizeof (said))
                exit (5);
            close (fd);
            return;
        }
        close (fd);
    }
    exit (6);
}

/* Every argument as hexadecimal digits, one a line. */
static void show_argv (int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        printf ("[");
        for (const char *c = argv[i]; *c; c++)
            printf ("%02x", (unsigned char)*c);
        printf ("]");
    }
    printf ("\n");
}

int main (int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    unsigned rank = argc > 2 ? (unsigned)strtoul (argv[2], NULL, 10) : 0;

    setvbuf (stdout, NULL, _IOLBF, 0);
    if (!strcmp (what, "squat") && argc == 4)
        squat (argv[2], argv[3]);
    if (!strcmp (what, "master"))
        return master (), 0;
    if (!strcmp (what, "argv"))
        return show_argv (argc - 2, argv + 2), 0;
    if (!strcmp (what, "thread"))
        return thread (), 0;
    TRY (rv_job_init (NULL, &job, &err));
    if (!strcmp (what, "facts"))
        facts ();
    else if (!strcmp (what, "values"))
        values ();
    else if (!strcmp (what, "late") && argc == 5)
        late (rank, strtol (argv[3], NULL, 10), strtol (argv[4], NULL, 10));
    else if (!strcmp (what, "leave") && argc == 3)
        leave (rank);
    else if (!strcmp (what, "address"))
        address ();
    else if (!strcmp (what, "barrier"))
        barrier ();
    else if (!strcmp (what, "port"))
        port ();
    else if (!strcmp (what, "abort") && argc == 4) {
        TRY (rv_job_fence (job, 0, &err));
        if (rv_job_rank (job) == rank)
            rv_job_abort (job, (int)strtol (argv[3], NULL, 10), "on purpose");
        pause_ms (60000);
    } else
        return 64;
    rv_job_finalize (job);
    return 0;
}
