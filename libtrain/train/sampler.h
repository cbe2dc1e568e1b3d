/* SPDX-License-Identifier: Apache-2.0
 * train/sampler.h - which samples of an epoch are a rank's, as PyTorch's
 * DistributedSampler shares them.
 *
 * An epoch is an order of the samples 0..n-1: as they stand, or permuted by
 * (seed, epoch), two numbers and not their sum, so that no two epochs of two
 * seeds are the same by it. Of R ranks, rank r takes places r, r+R, r+2R, ...
 * Where R does not divide n, either the last ranks get samples from the front
 * of the order again, told as such, or what is over is left out:
 *   each rank gets ceil (n / R), or ceil ((n - R) / R) when the rest is dropped
 *
 * Pure functions of options and two numbers: epoch, and how many places all
 * ranks together have consumed. These two resume exactly in mid-epoch, also
 * with another R: what is left is shared as above. Any thread. */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_sampler {
    size_t size;    /* sizeof (train_sampler_t) */
    int64_t n;      /* samples, >= 0 */
    int ranks;      /* R >= 1 */
    int rank;       /* 0..R-1 */
    bool shuffle;   /* false: every epoch in order */
    bool drop_last; /* leave the rest out */
    uint64_t seed;
} train_sampler_t;

/* train_sampler_length - samples that each rank still gets in an epoch.
 *   consumed   places that are done, 0..n; 0 at its beginning
 * TRAIN_EINVAL names what is wrong. */
train_status_t train_sampler_length (const train_sampler_t *sampler,
                                     int64_t consumed, int64_t *ret_length,
                                     train_error_t *err);

/* train_sampler_get - the rank's k-th sample from there on.
 *   ret_index   0..n-1
 *   ret_pad     a repetition that metrics should not count; may be NULL
 * TRAIN_ENOTFOUND when the epoch has no more for this rank; TRAIN_EINVAL. */
train_status_t train_sampler_get (const train_sampler_t *sampler, int64_t epoch,
                                  int64_t consumed, int64_t k,
                                  int64_t *ret_index, bool *ret_pad,
                                  train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
