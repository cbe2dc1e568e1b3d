/* SPDX-License-Identifier: Apache-2.0
 * nvtx_count.h - what nvtx_count.so has seen. For tests alone. */
#ifndef TESTS_UNIT_NVTX_COUNT_H
#define TESTS_UNIT_NVTX_COUNT_H

#include <stddef.h>

#define NVTX_MAX 64

struct nvtx_seen {
    size_t started, ended;
    struct {
        char name[48];
        int ends;
    } range[NVTX_MAX]; /* in the order of their beginnings */
};

/* nvtx_count - to be found by dlsym in the library that NVTX has loaded. */
typedef const struct nvtx_seen *(*nvtx_count_f) (void);
const struct nvtx_seen *nvtx_count (void);

#endif
