/* SPDX-License-Identifier: Apache-2.0
 * group_ranks.c - fork the ranks of a group by hand */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "group_ranks.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int64_t now_ms (void)
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
        .backend = job->backend ? job->backend : "host",
        .device = job->device,
        .timeout_ms = job->timeout_ms ? job->timeout_ms : PATIENCE_MS};
    train_group_t *group = NULL;
    int64_t start_ms = now_ms ();

    set_env (job, rank);
    if (job->env)
        job->env (job, rank);
    if (job->exit_status)
        atexit (abort);
    seen->status = train_group_create (&opts, &group, &seen->err);
    seen->ms = now_ms () - start_ms;
    if (seen->status == TRAIN_OK)
        job->body (job, rank, group);
    train_group_destroy (group);
    if (job->exit_status)
        exit (job->exit_status);
    _exit (0);
}

void start_job (struct job *job)
{
    job->size = (int)strlen (job->layout);
    job->shared = mmap (NULL, sizeof (*job->shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true (job->shared != MAP_FAILED);
    job->hold = hold_port (&job->port);
    clock_gettime (CLOCK_REALTIME_COARSE, &job->begin);
    for (int r = 0; r < job->size; r++) {
        job->pids[r] = fork ();
        assert_true (job->pids[r] >= 0);
        if (job->pids[r] == 0)
            rank_main (job, r);
    }
}

/* A process that was killed before may have had a rank's number. */
static bool is_of (const struct job *job, DIR *dir, const char *name)
{
    struct stat st;

    return fstatat (dirfd (dir), name, &st, AT_SYMLINK_NOFOLLOW) == 0
           && (st.st_ctim.tv_sec > job->begin.tv_sec
               || (st.st_ctim.tv_sec == job->begin.tv_sec
                   && st.st_ctim.tv_nsec >= job->begin.tv_nsec));
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

            found |= strncmp (e->d_name, start, (size_t)n) == 0
                     && is_of (job, dir, e->d_name);
        }
    }
    closedir (dir);
    return found;
}

/* As its body let it end: SIGKILL is on purpose, a crash or a sanitizer's exit
 * is not. */
static bool ended_well (const struct job *job, int end)
{
    return WIFEXITED (end) ? WEXITSTATUS (end) == job->exit_status
                           : WTERMSIG (end) == SIGKILL;
}

/* Wait for all ranks. */
void end_job (struct job *job)
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
    for (int r = 0; r < job->size; r++)
        if (!ended_well (job, job->ends[r]))
            fail_msg ("%s rank %d ended with %#x", job->layout, r,
                      (unsigned)job->ends[r]);
}

void free_job (struct job *job)
{
    munmap (job->shared, sizeof (*job->shared));
}

void want_ok (const struct job *job)
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

/* The first rank that did not end well and see this; or -1. */
static int differs (const struct job *job, const char *except,
                    train_status_t status, const char *text)
{
    for (int r = 0; r < job->size; r++) {
        const struct seen *s = &job->shared->seen[r];

        if (!strchr (except, '0' + r)
            && (job->ends[r] != 0 || s->status != (int)status
                || !strstr (s->err.text, text) || s->note[0]))
            return r;
    }
    return -1;
}

/* Every rank but those in [except] saw this. */
void want (const struct job *job, const char *except, train_status_t status,
           const char *text)
{
    int r = differs (job, except, status, text);
    const struct seen *s;

    if (r < 0)
        return;
    if (job->ends[r] != 0)
        fail_msg ("%s rank %d ended with %#x", job->layout, r,
                  (unsigned)job->ends[r]);
    s = &job->shared->seen[r];
    fail_msg ("%s rank %d: %s '%s' %s, want %s '%s'", job->layout, r,
              train_status_name ((train_status_t)s->status), s->err.text,
              s->note, train_status_name (status), text);
}

bool any_failed (const struct job *job)
{
    for (int r = 0; r < job->size; r++) {
        if (*(volatile int *)&job->shared->seen[r].status != TRAIN_OK)
            return true;
    }
    return false;
}

/* No machine is so busy that a rank crashes. */
static bool any_crashed (const struct job *job, const char *except)
{
    for (int r = 0; r < job->size; r++)
        if (!strchr (except, '0' + r) && job->ends[r] != 0)
            return true;
    return false;
}

bool once_more (struct job *job, const char *except, train_status_t status,
                const char *text)
{
    if (differs (job, except, status, text) < 0 || any_crashed (job, except)
        || job->timeout_ms > PATIENCE_MS / 8)
        return false;
    free_job (job);
    job->timeout_ms *= 4;
    return true;
}

void run_job (struct job *job)
{
    start_job (job);
    end_job (job);
}

void note (struct job *job, int rank, const char *text, int a, int b, size_t n)
{
    struct seen *s = &job->shared->seen[rank];

    if (!s->note[0])
        snprintf (s->note, sizeof (s->note), "%s (dtype %d, op %d, n %zu)",
                  text, a, b, n);
}

/* Rank 0 compares with the reference, all compare with each other. */
bool view_of (train_tensor_t *t, void *data, train_dtype_t dtype, size_t n)
{
    int64_t shape[1] = {(int64_t)n};

    return train_tensor_view (t, data, dtype, 1, shape, NULL) == TRAIN_OK;
}
