/* SPDX-License-Identifier: Apache-2.0
 * group_mpi_faults.c - ranks of group_mpi that disagree, come late or stop */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "group_mpi.h"

#define LATE_MS 8000 /* mpi_check.py looks for these 8.0 s in the error */

/* The error that every rank is to have. */
int fault (const char *mode)
{
    bool late = strcmp (mode, "late") == 0,
         depart = strcmp (mode, "depart") == 0;
    /* MPI may take its time to begin: not within the short deadline */
    train_group_t *first = join ("mpi", "first", 60000);
    train_group_t *group = join ("mpi", "world", late ? LATE_MS : 60000);
    train_group_t *beside = join ("host", "beside", 60000);
    train_status_t status = TRAIN_OK;
    train_error_t err = {0};
    float data[100] = {0};
    int rank;

    if (!first || !group || !beside)
        return 1;
    rank = train_group_rank (group);
    if (late && rank == train_group_size (group) - 1)
        poll (NULL, 0, LATE_MS + 3000);
    for (int i = 0; depart && i < 4 && status == TRAIN_OK; i++) {
        int64_t n = i == 3 && rank == 1 ? 7 : 100;

        status = train_step_begin (group, &err);
        if (status == TRAIN_OK)
            status = sum (group, data, n, &err);
        if (status == TRAIN_OK)
            status = train_step_end (group, &err);
    }
    if (!depart)
        status = sum (group, data, rank == 1 && !late ? 99 : 100, &err);
    printf ("rank %d: %s: %s\n", rank, train_status_name (status), err.text);
    fflush (stdout);
    train_group_destroy (group);
    /* mpirun ends all when one ends without MPI_Finalize */
    (void)train_barrier (beside, NULL);
    train_group_destroy (beside);
    train_group_destroy (first);
    return status == TRAIN_OK;
}

static void stop (int sig)
{
    (void)sig;
    raise (SIGSTOP);
}

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Learnt steps without end, in which most of the time data is under way; the
 * error, and how long its call took. */
static train_status_t endless (train_group_t *group, int64_t *ret_ms,
                               train_error_t *err)
{
    struct itimerval half = {.it_value = {0, 500000}};
    static float data[1 << 20];
    train_status_t status = TRAIN_OK;
    int64_t begin_ms = now_ms ();

    if (train_group_rank (group) == train_group_size (group) - 1) {
        signal (SIGALRM, stop);
        setitimer (ITIMER_REAL, &half, NULL);
    }
    while (status == TRAIN_OK) {
        begin_ms = now_ms ();
        status = train_step_begin (group, err);
        if (status == TRAIN_OK)
            status = sum (group, data, 1 << 20, err);
        if (status == TRAIN_OK)
            status = train_step_end (group, err);
    }
    *ret_ms = now_ms () - begin_ms;
    return status;
}

int stopped (void)
{
    train_group_t *first = join ("mpi", "first", 60000);
    train_group_t *group = join ("mpi", "world", LATE_MS);
    train_group_t *beside = join ("host", "beside", 60000);
    pid_t pid = getpid (), *pids = NULL;
    train_error_t err = {0};
    train_status_t status;
    size_t lens[64];
    int64_t ms;
    int rank, size;

    if (!first || !group || !beside
        || train_gather_object (beside, &pid, sizeof (pid), -1, (void **)&pids,
                                lens, &err)
               != TRAIN_OK)
        return 1;
    rank = train_group_rank (group);
    size = train_group_size (group);
    status = endless (group, &ms, &err);
    printf ("rank %d: %s: %s; %s\n", rank, train_status_name (status), err.text,
            ms <= LATE_MS + 2000 ? "in time" : "too late");
    fflush (stdout);
    if (rank == 0) { /* all have heard of it */
        poll (NULL, 0, 3000);
        kill (pids[size - 1], SIGCONT);
    }
    free (pids);
    train_group_destroy (group);
    if (train_barrier (beside, &err) != TRAIN_OK)
        printf ("# rank %d: %s\n", rank, err.text);
    train_group_destroy (beside);
    train_group_destroy (first);
    return 0;
}
