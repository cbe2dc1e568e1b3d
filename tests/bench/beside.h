/* SPDX-License-Identifier: Apache-2.0
 * beside.h - work of a GPU beside which copies are measured. For copy_bench. */
#ifndef TESTS_BENCH_BESIDE_H
#define TESTS_BENCH_BESIDE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* beside_power - [out] = x^4.
 *   n   a multiple of 1024; [out], [room] and [x] have so many, on the thread's
 *       device */
void beside_power (float *out, float *room, const float *x, size_t n,
                   void *stream);

#ifdef __cplusplus
}
#endif
#endif
