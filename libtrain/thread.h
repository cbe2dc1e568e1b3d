/* SPDX-License-Identifier: Apache-2.0
 * thread.h - a thread of the library's own. Inside libtrain only. */
#ifndef TRAIN_THREAD_H
#define TRAIN_THREAD_H

#include <pthread.h>
#include <signal.h>

/* thread_start - pthread_create of one to which none of the program's signals
 * comes: these are for the program's own threads. Returns what that returns. */
static inline int thread_start (pthread_t *ret, void *(*run) (void *),
                                void *arg)
{
    sigset_t all, before;
    int rc;

    sigfillset (&all);
    pthread_sigmask (SIG_SETMASK, &all, &before);
    rc = pthread_create (ret, NULL, run, arg);
    pthread_sigmask (SIG_SETMASK, &before, NULL);
    return rc;
}

#endif
