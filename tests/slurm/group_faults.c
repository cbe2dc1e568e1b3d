/* SPDX-License-Identifier: Apache-2.0
 * group_faults.c - ranks that meet a fault in the middle of a collective
 *
 * usage: group_faults rank CASE...     this task is a rank of each case in turn
 *        group_faults drive AT_ONCE CASE...   this task starts a process of its
 *                                      own for its rank of each case
 *
 * CASE is COLLECTIVE:FAULT:RANK. FAULT is kill (SIGKILL of RANK), stop
 * (SIGSTOP), count (RANK makes another call than the others) or slow (RANK
 * comes late, within the deadline). GROUP_GRACE_MS, 2000 if unset, is how long
 * after the deadline a call may return. Built with GROUP_FAULTS_CUDA the ranks' groups
 * have backend nccl and tensors on GPUs (group_place.c). A rank prints one line, which begins
 * with "ok" or "not ok"; so does each task that drives, at its end. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "group_calls.h"

#define MAX_CASES  16
#define STRIKE_AT  3 /* the call that the fault meets */
#define SLOW_CALLS 5

static const char *const faults[] = {"kill", "stop", "count", "slow"};

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int env_int (const char *name, int otherwise)
{
    const char *text = getenv (name);

    return text && *text ? (int)strtol (text, NULL, 10) : otherwise;
}

/* say - one line in one piece, so that those of others do not cut it */
static void say (const struct run *run, const char *ok, const char *fmt, ...)
{
    char text[900], line[1024];
    va_list ap;
    int n;

    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    n = snprintf (line, sizeof (line), "%s %s rank %d: %s\n", ok, run->name,
                  run->rank, text);
    if (write (STDOUT_FILENO, line, (size_t)n) != n)
        abort ();
}

static int fail (const struct run *run, const char *what)
{
    say (run, "not ok", "%s: %s", what, run->err.text);
    return 1;
}

/* COLLECTIVE:FAULT:RANK */
static bool read_case (struct run *run, const char *text)
{
    char fault[16];

    memset (run, 0, sizeof (*run));
    snprintf (run->name, sizeof (run->name), "%s", text);
    if (sscanf (text, "%31[a-z_]:%15[a-z]:%d", run->collective, fault,
                &run->victim)
        != 3)
        return false;
    while (run->fault < N_FAULTS && strcmp (faults[run->fault], fault) != 0)
        run->fault++;
    return run->fault < N_FAULTS && find_collective (run->collective);
}

/* Strikes the process after a moment, so that it is somewhere in its call; the
 * moment depends on the case alone. */
static void *strike (void *arg)
{
    const struct run *run = arg;
    struct timespec moment = {0, 0};
    unsigned hash = 5381;

    for (const char *c = run->name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    moment.tv_nsec = (long)(hash % 8000) * 1000;
    nanosleep (&moment, NULL);
    kill (getpid (), run->fault == KILL ? SIGKILL : SIGSTOP);
    return NULL;
}

/* Call [i] of this rank, with its fault. */
static train_status_t one_call (struct run *run, const struct collective *c,
                                int i)
{
    bool odd = run->rank == run->victim && i == STRIKE_AT;
    struct timespec late = {run->deadline_ms / 2 / 1000,
                            run->deadline_ms / 2 % 1000 * 1000000};
    int64_t start_ms;
    train_status_t status;
    pthread_t thread;

    if (odd && run->fault == SLOW)
        nanosleep (&late, NULL);
    if (odd && (run->fault == KILL || run->fault == STOP))
        pthread_create (&thread, NULL, strike, run);
    start_ms = now_ms ();
    status = c->call (run, i, ELEMENTS - (odd && run->fault == COUNT ? 2 : 0));
    run->took_ms = now_ms () - start_ms;
    if (run->took_ms > run->deadline_ms + run->grace_ms) {
        snprintf (run->err.text, sizeof (run->err.text), "took %" PRId64 " ms",
                  run->took_ms);
        return TRAIN_PENDING;
    }
    return status;
}

static bool names (const char *text, int rank)
{
    char word[20];
    size_t n = (size_t)snprintf (word, sizeof (word), "rank %d", rank);

    for (const char *at = text; (at = strstr (at, word)); at += n) {
        if (at[n] < '0' || at[n] > '9')
            return true;
    }
    return false;
}

/* Those that are left sum up who they are. */
static int go_on (struct run *run, bool all)
{
    train_group_t *made = NULL;
    int64_t start_ms = now_ms (), took_ms, shape[1] = {1};
    float want = (float)(1 << run->size) - 1;
    train_tensor_t t;

    if (!all)
        want -= (float)(1 << run->victim);
    run->in[0] = (float)(1 << run->rank);
    place_give (run);
    train_tensor_view (&t, place_of (run, run->in), TRAIN_F32, 1, shape, NULL);
    t.t.device = run->device;
    if (train_group_survivors (run->group, run->size - !all, NULL, &made,
                               &run->err)
        != TRAIN_OK)
        return fail (run, "no survivors");
    took_ms = now_ms () - start_ms;
    if (train_group_size (made) != run->size - !all
        || train_all_reduce (made, &t.t, TRAIN_SUM, &run->err) != TRAIN_OK)
        return fail (run, "survivors cannot go on");
    train_group_destroy (made);
    place_take (run);
    if (run->in[0] != want
        || took_ms > 2 * run->deadline_ms + 3000 + run->grace_ms) {
        snprintf (run->err.text, sizeof (run->err.text),
                  "%g after %" PRId64 " ms", (double)run->in[0], took_ms);
        return fail (run, "survivors give");
    }
    return 0;
}

static int judge (struct run *run, train_status_t status)
{
    static const train_status_t want[] = {TRAIN_EPEER, TRAIN_ETIMEDOUT,
                                          TRAIN_EMISMATCH, TRAIN_OK};
    char text[sizeof (run->err.text)];

    snprintf (text, sizeof (text), "%s", run->err.text);
    if (status != want[run->fault])
        return fail (run, train_status_name (status));
    if (status != TRAIN_OK && !names (text, run->victim))
        return fail (run, "the message does not name the rank");
    if (status != TRAIN_OK && go_on (run, run->fault == COUNT) != 0)
        return 1;
    say (run, "ok", "%s after %" PRId64 " ms%s%s", train_status_name (status),
         run->took_ms, status ? ": " : "", status ? text : "");
    return 0;
}

static int run_rank (struct run *run)
{
    const struct collective *c = find_collective (run->collective);
    train_group_options_t opts = {
        .size = sizeof (opts), .backend = place_backend, .name = run->name};
    train_status_t status = train_group_create (&opts, &run->group, &run->err);
    size_t all;

    if (status != TRAIN_OK)
        return fail (run, "no group");
    run->rank = train_group_rank (run->group);
    run->size = train_group_size (run->group);
    all = ELEMENTS * (size_t)run->size;
    run->in = calloc (all, sizeof (float));
    run->out = calloc (all, sizeof (float));
    if (!run->in || !run->out || !place_open (run))
        return fail (run, "no memory");
    for (int i = 0; status == TRAIN_OK; i++) {
        if (run->fault == SLOW && i == SLOW_CALLS)
            break;
        status = one_call (run, c, i);
        if (status == TRAIN_OK)
            place_take (run);
        if (status == TRAIN_OK && !c->right (run, i)) {
            snprintf (run->err.text, sizeof (run->err.text), "call %d", i);
            return fail (run, "wrong values");
        }
    }
    return judge (run, status);
}

static int main_rank (int n, char **cases)
{
    int failed = 0;

    for (int k = 0; k < n; k++) {
        struct run run;

        if (!read_case (&run, cases[k]))
            return 2;
        run.deadline_ms = (int64_t)env_int ("RV_NCCL_TIMEOUT", 600) * 1000;
        run.grace_ms = env_int ("GROUP_GRACE_MS", 2000);
        failed |= run_rank (&run);
        place_close (&run);
        train_group_destroy (run.group);
        free (run.in);
        free (run.out);
    }
    return failed;
}

/* A port held by a bound socket that does not listen, as rv-exec does. */
static int hold_port (int *ret_fd)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t len = sizeof (a);
    int on = 1, fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl (INADDR_ANY);
    *ret_fd = fd;
    if (fd < 0
        || setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on)) < 0
        || bind (fd, (struct sockaddr *)&a, len) < 0
        || getsockname (fd, (struct sockaddr *)&a, &len) < 0)
        return 0;
    return ntohs (a.sin_port);
}

/* The rank of this task for one case, a process of its own. */
static pid_t start_rank (const char *name, int port)
{
    char text[16];
    pid_t pid;

    snprintf (text, sizeof (text), "%d", port);
    setenv ("MASTER_PORT", text, 1);
    pid = fork ();
    if (pid == 0) {
        execl ("/proc/self/exe", "group_faults", "rank", name, (char *)NULL);
        _exit (127);
    }
    return pid;
}

/* Wait for the ranks here that are not struck. Returns how many failed. */
static int await (const struct run *runs, pid_t *pids, int n, int rank,
                  int64_t until_ms)
{
    int failed = 0;

    for (int k = 0; k < n; k++) {
        bool struck = rank == runs[k].victim && runs[k].fault <= STOP;
        int end = -1;

        while (!struck && waitpid (pids[k], &end, WNOHANG) == 0) {
            if (now_ms () > until_ms) {
                say (&runs[k], "not ok", "hangs");
                kill (pids[k], SIGKILL);
                until_ms += 1000;
            }
            poll (NULL, 0, 20);
        }
        if (!struck && (!WIFEXITED (end) || WEXITSTATUS (end) != 0)) {
            say (&runs[k], "not ok", "ended with %#x", (unsigned)end);
            failed++;
        }
    }
    return failed;
}

static train_status_t share_ports (train_group_t *group, int32_t *ports, int n,
                                   train_error_t *err)
{
    int64_t shape[1] = {n};
    train_tensor_t t;

    train_tensor_view (&t, ports, TRAIN_I32, 1, shape, NULL);
    return train_broadcast (group, &t.t, 0, err);
}

/* [n] cases at once. Returns how many ranks here failed, -1 where the tasks
 * that drive lost each other. */
static int drive (train_group_t *group, struct run *runs, int n,
                  train_error_t *err)
{
    int64_t patience_ms =
        (int64_t)env_int ("RV_NCCL_TIMEOUT", 600) * 4000 + 30000;
    int holds[MAX_CASES], rank = train_group_rank (group), failed;
    int32_t ports[MAX_CASES];
    pid_t pids[MAX_CASES];

    for (int k = 0; k < n && rank == 0; k++)
        ports[k] = hold_port (&holds[k]);
    if (share_ports (group, ports, n, err) != TRAIN_OK)
        return -1;
    for (int k = 0; k < n; k++) {
        runs[k].rank = rank;
        pids[k] = start_rank (runs[k].name, ports[k]);
    }
    failed = await (runs, pids, n, rank, now_ms () + patience_ms);
    if (train_barrier (group, err) != TRAIN_OK)
        return -1;
    for (int k = 0; k < n; k++) {
        if (rank == runs[k].victim && runs[k].fault <= STOP) {
            kill (pids[k], SIGKILL);
            waitpid (pids[k], NULL, 0);
        }
        if (rank == 0)
            close (holds[k]);
    }
    return failed;
}

static int main_drive (int at_once, int n, char **cases)
{
    train_group_options_t opts = {.size = sizeof (opts),
                                  .backend = "host",
                                  .timeout_ms = 120000,
                                  .name = "drivers"};
    struct run runs[MAX_CASES];
    train_group_t *group = NULL;
    train_error_t err;
    int failed = 0;

    if (at_once < 1 || at_once > MAX_CASES)
        return 2;
    if (train_group_create (&opts, &group, &err) != TRAIN_OK) {
        printf ("not ok: %s\n", err.text);
        return 1;
    }
    for (int from = 0; from < n && failed >= 0; from += at_once) {
        int some = n - from < at_once ? n - from : at_once, f;

        for (int k = 0; k < some; k++) {
            if (!read_case (&runs[k], cases[from + k]))
                return 2;
        }
        f = drive (group, runs, some, &err);
        if (f < 0)
            printf ("not ok: %s\n", err.text);
        failed = f < 0 ? -1 : failed + f;
    }
    train_group_destroy (group);
    return failed != 0;
}

int main (int argc, char **argv)
{
    if (argc >= 3 && strcmp (argv[1], "rank") == 0)
        return main_rank (argc - 2, argv + 2);
    if (argc >= 4 && strcmp (argv[1], "drive") == 0)
        return main_drive ((int)strtol (argv[2], NULL, 10), argc - 3, argv + 3);
    fprintf (stderr,
             "usage: group_faults rank CASE... | drive AT_ONCE CASE...\n");
    return 2;
}
