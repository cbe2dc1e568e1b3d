/* SPDX-License-Identifier: Apache-2.0
 * gemm_lt_impl.h - what the files of gemm_lt share */
#ifndef KERN_GEMM_LT_IMPL_H
#define KERN_GEMM_LT_IMPL_H

#include <cuda_runtime_api.h>

#include "cublaslt_api.h"
#include "gemm_lt.h"

enum gemm_lt_flag {
    GEMM_LT_TA = 1,
    GEMM_LT_TB = 2,
    GEMM_LT_BIAS = 4,
    GEMM_LT_ADD = 8,
    GEMM_LT_TF32 = 16,
    GEMM_LT_FIXED = 32, /* deterministic */
};

/* What an algorithm is chosen for; compared and saved as bytes: no padding. */
struct gemm_lt_key {
    uint64_t m, n, k, lda, ldb, ldc;
    uint16_t align_a, align_b, align_c, flags;
    uint32_t in, out;
};

/* Saved as bytes. */
struct gemm_lt_choice {
    struct gemm_lt_key key;
    struct lt_algo algo;
    uint64_t workspace;
    float ms, first_ms; /* of the trial; 0 = untimed */
    uint32_t picked, candidates;
};

struct gemm_lt_plan {
    struct gemm_lt_choice choice;
    bool chosen; /* else only as good as the first candidate */
    void *desc, *la, *lb, *lc;
};

struct gemm_lt {
    const struct cublaslt_api *api; /* NULL: our own kernels */
    void *handle;
    void *workspace;
    size_t workspace_bytes;
    bool owns_workspace;
    struct gemm_lt_opts opts;
    int device, capability, multiprocessors;
    struct gemm_lt_plan *plans;
    size_t count, room;
};

/* gemm_lt_say - [code], with a line in [why] unless that is NULL. */
enum gemm_lt_status gemm_lt_say (char *why, enum gemm_lt_status code,
                                 const char *format, ...)
    __attribute__ ((format (printf, 3, 4)));

/* gemm_lt_name - the product of [key] in words, in [to] of [room] bytes. */
void gemm_lt_name (const struct gemm_lt_key *key, char *to, size_t room);

/* gemm_lt_add - a plan for [choice] at the end; NULL without memory. */
struct gemm_lt_plan *gemm_lt_add (struct gemm_lt *g,
                                  const struct gemm_lt_choice *choice);

/* gemm_lt_in_place - whether the algorithm's sums depend on timing. */
bool gemm_lt_in_place (const struct gemm_lt *g, const struct lt_algo *algo);

/* gemm_lt_pick - choose the algorithm of a plan whose descriptors exist. */
enum gemm_lt_status gemm_lt_pick (struct gemm_lt *g, struct gemm_lt_plan *p,
                                  const struct gemm_lt_op *op,
                                  cudaStream_t stream, char *why);

/* gemm_lt_launch - the product by [algo] into [c]; returns a cublasStatus_t. */
int gemm_lt_launch (struct gemm_lt *g, const struct gemm_lt_plan *p,
                    const struct gemm_lt_op *op, const struct lt_algo *algo,
                    void *c, cudaStream_t stream);

#endif
