/* SPDX-License-Identifier: Apache-2.0
 * cublaslt_api.h - the part of cuBLASLt that the kernels call, opened at run
 * time.
 *
 * Names and values are those of cublasLt.h of CUDA 12 and 13, which agree in
 * what is used here; enums are int. cublaslt_api.c compares them with
 * cublasLt.h where the compiler finds one. */
#ifndef KERN_CUBLASLT_API_H
#define KERN_CUBLASLT_API_H

#include <stddef.h>
#include <stdint.h>

enum {
    LT_SUCCESS = 0,
    LT_NOT_SUPPORTED = 15,

    LT_F32 = 0,
    LT_F16 = 2,
    LT_BF16 = 14,

    LT_COMPUTE_F32 = 68,
    LT_COMPUTE_TF32 = 77,

    LT_DESC_TRANSA = 3,
    LT_DESC_TRANSB = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS = 8,
    LT_DESC_BIAS_TYPE = 26,
    LT_EPILOGUE_BIAS = 4,

    LT_PREF_WORKSPACE = 1,
    LT_PREF_REDUCTIONS = 3,
    LT_PREF_ALIGN_A = 5,
    LT_PREF_ALIGN_B = 6,
    LT_PREF_ALIGN_C = 7,
    LT_PREF_ALIGN_D = 8,

    LT_CONFIG_ID = 0,
    LT_CONFIG_TILE = 1,
    LT_CONFIG_SPLITK = 2,
    LT_CONFIG_REDUCTION = 3,
    LT_CONFIG_STAGES = 6,
    LT_CONFIG_CLUSTER = 8,

    LT_REDUCTION_INPLACE = 1,
    LT_REDUCTION_ALL = 7,
};

struct lt_algo {
    uint64_t data[8];
};

struct lt_found {
    struct lt_algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* Functions return a cublasStatus_t; [stream] is a cudaStream_t. */
struct cublaslt_api {
    size_t (*version) (void);
    const char *(*status_text) (int status);
    int (*create) (void **handle);
    int (*destroy) (void *handle);
    int (*desc_create) (void **desc, int compute, int scale);
    int (*desc_destroy) (void *desc);
    int (*desc_set) (void *desc, int what, const void *value, size_t size);
    int (*layout_create) (void **layout, int dtype, uint64_t rows,
                          uint64_t columns, int64_t ld);
    int (*layout_destroy) (void *layout);
    int (*pref_create) (void **pref);
    int (*pref_destroy) (void *pref);
    int (*pref_set) (void *pref, int what, const void *value, size_t size);
    int (*heuristic) (void *handle, void *desc, void *a, void *b, void *c,
                      void *d, void *pref, int wanted, struct lt_found *found,
                      int *ret_n);
    int (*config_get) (const struct lt_algo *algo, int what, void *value,
                       size_t size, size_t *ret_size);
    int (*matmul) (void *handle, void *desc, const void *alpha, const void *a,
                   void *la, const void *b, void *lb, const void *beta,
                   const void *c, void *lc, void *d, void *ld,
                   const struct lt_algo *algo, void *workspace, size_t size,
                   void *stream);
};

/* cublaslt_open - libcublasLt.so.13, else .12, as the loader finds it.
 * Opened once and never closed; any thread.
 *   ret_why   set where NULL is returned: what was looked for and why it will
 *             not do; static
 * Returns NULL without such a library, or where it lacks a function. */
const struct cublaslt_api *cublaslt_open (const char **ret_why);

#endif
