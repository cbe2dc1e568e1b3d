/* SPDX-License-Identifier: Apache-2.0
 * sleeps.h - whether a process has left a GPU alone */
#ifndef TESTS_GPU_SLEEPS_H
#define TESTS_GPU_SLEEPS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <string.h>

/* sleeps - has nobody in this process made a context of [device]? */
static inline bool sleeps (int device)
{
    int (*state) (int, unsigned *, int *) = NULL;
    void *driver = dlopen ("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = driver ? dlsym (driver, "cuDevicePrimaryCtxGetState") : NULL;
    unsigned flags;
    int active = 1;

    memcpy (&state, &found, sizeof (found));
    return state && state (device, &flags, &active) == 0 && !active;
}

#endif
