/* SPDX-License-Identifier: Apache-2.0
 * gpu_time.h - times of kernels by events, for the benchmarks of one GPU */
#ifndef GPU_TIME_H
#define GPU_TIME_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#define ROUNDS 15

static void must (cudaError_t e)
{
    if (e == cudaSuccess)
        return;
    fprintf (stderr, "%s: %s\n", program_invocation_short_name,
             cudaGetErrorString (e));
    exit (1);
}

static void *on_gpu (size_t bytes)
{
    void *at;

    must (cudaMalloc (&at, bytes));
    must (cudaMemset (at, 0, bytes));
    return at;
}

static int by_value (const void *x, const void *y)
{
    float a = *(const float *)x, c = *(const float *)y;

    return (a > c) - (a < c);
}

/* Milliseconds of one call, least first; [calls] are timed together. */
static inline void times (float ms[ROUNDS], void (*run) (void), int calls)
{
    cudaEvent_t from, to;

    must (cudaEventCreate (&from));
    must (cudaEventCreate (&to));
    for (int i = -3; i < ROUNDS; i++) {
        float took;

        must (cudaEventRecord (from, NULL));
        for (int k = 0; k < calls; k++)
            run ();
        must (cudaEventRecord (to, NULL));
        must (cudaEventSynchronize (to));
        must (cudaEventElapsedTime (&took, from, to));
        if (i >= 0)
            ms[i] = took / (float)calls;
    }
    must (cudaEventDestroy (from));
    must (cudaEventDestroy (to));
    qsort (ms, ROUNDS, sizeof (*ms), by_value);
}

#endif
