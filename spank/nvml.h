/* SPDX-License-Identifier: Apache-2.0
 * nvml.h - load the driver's management library.
 *
 * NVML may hang or crash: only a child of child_run may load it. */
#ifndef RV_SPANK_NVML_H
#define RV_SPANK_NVML_H

#include "plan/error.h"

/* The library, and what everybody needs of it. Functions return 0 when they
 * succeed; error gives the text of another value. */
struct nvml {
    void *lib;
    unsigned n; /* cards */
    const char *(*error) (int);
    int (*handle) (unsigned, void **);
    int (*minor) (void *, unsigned *); /* may be NULL */
};

/* nvml_open - load it, initialize it and count the cards.
 *   path   absolute, of libnvidia-ml.so.1; NULL = where the loader finds it
 *   ret    written on success; stays loaded until the process ends
 * RV_ENOTFOUND when it is not there; RV_EINVAL when others may write it; RV_EIO
 * when it is no NVML or does not work. */
int nvml_open (const char *path, struct nvml *ret, struct rv_error *err);

/* nvml_find - a function of a library, this one or another.
 *   ret_function   pointer to a function pointer; NULL written when the library
 *                  lacks it */
void nvml_find (void *lib, const char *name, void *ret_function);

#endif
