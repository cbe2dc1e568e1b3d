/* SPDX-License-Identifier: Apache-2.0
 * slow_server.c - for LD_PRELOAD of Open MPI 4's mpirun: what it hands to the thread
 * of its PMIx server is done a little before it goes on itself, as now and then on
 * a busy machine. So a rank that leaves PMIx has its answer, and is gone, before
 * mpirun has noted that it left. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct event;
void event_active (struct event *event, int result, short calls);

/* libevent's. */
void event_active (struct event *event, int result, short calls)
{
    static void (*real) (struct event *, int, short);
    const struct timespec pause = {0, 2000000};
    Dl_info from;

    if (!real)
        *(void **)&real = dlsym (RTLD_NEXT, "event_active");
    real (event, result, calls);
    if (gettid () == getpid ()
        && dladdr (__builtin_return_address (0), &from) != 0
        && strstr (from.dli_fname, "libpmix"))
        nanosleep (&pause, NULL);
}
