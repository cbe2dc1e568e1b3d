/* SPDX-License-Identifier: Apache-2.0
 * nccl_api.h - the part of NCCL that libtrain calls, opened at run time. Inside
 * libtrain only.
 *
 * Names and values are those of NVIDIA/nccl, src/nccl.h.in, whose ABI only
 * grows within release 2; enums are int here. nccl_api.c compares them with
 * nccl.h where configure found one. */
#ifndef TRAIN_NCCL_API_H
#define TRAIN_NCCL_API_H

#include <stddef.h>

#include <train/status.h>

#define NCCL_OLDEST 21800 /* as ncclGetVersion counts */

enum nccl_rc {
    NCCL_RC_SUCCESS = 0,
    NCCL_RC_REMOTE = 6,
    NCCL_RC_IN_PROGRESS = 7,
};

enum nccl_dtype {
    NCCL_DTYPE_U8 = 1,
    NCCL_DTYPE_I32 = 2,
    NCCL_DTYPE_I64 = 4,
    NCCL_DTYPE_F16 = 6,
    NCCL_DTYPE_F32 = 7,
    NCCL_DTYPE_F64 = 8,
    NCCL_DTYPE_BF16 = 9,
};

enum nccl_op {
    NCCL_OP_SUM = 0,
    NCCL_OP_PROD = 1,
    NCCL_OP_MAX = 2,
    NCCL_OP_MIN = 3,
    NCCL_OP_AVG = 4,
};

struct nccl_id {
    char bytes[128];
};

/* [comm] is an ncclComm_t, [stream] a cudaStream_t; a function returns an
 * ncclResult_t. */
struct nccl_api {
    int version;
    int (*get_version) (int *version);
    int (*get_id) (struct nccl_id *id);
    int (*init) (void **comm, int size, struct nccl_id id, int rank);
    int (*abort) (void *comm);
    int (*destroy) (void *comm);
    int (*async_error) (void *comm, int *error);
    const char *(*error_text) (int error);
    const char *(*last_error) (void *comm);
    int (*all_reduce) (const void *in, void *out, size_t n, int dtype, int op,
                       void *comm, void *stream);
    int (*reduce) (const void *in, void *out, size_t n, int dtype, int op,
                   int root, void *comm, void *stream);
    int (*reduce_scatter) (const void *in, void *out, size_t n, int dtype,
                           int op, void *comm, void *stream);
    int (*broadcast) (const void *in, void *out, size_t n, int dtype, int root,
                      void *comm, void *stream);
    int (*all_gather) (const void *in, void *out, size_t n, int dtype,
                       void *comm, void *stream);
    int (*send) (const void *in, size_t n, int dtype, int to, void *comm,
                 void *stream);
    int (*recv) (void *out, size_t n, int dtype, int from, void *comm,
                 void *stream);
    int (*group_start) (void);
    int (*group_end) (void);
};

struct backend_ops;

/* nccl_open - libnccl.so.2 as the loader finds it, and the GPUs that it works
 * on. Opened once and never closed; any thread.
 * TRAIN_ENOTSUP: built without CUDA, no GPU, no such library, or an old one. */
train_status_t nccl_open (const struct nccl_api **ret_api,
                          const struct backend_ops **ret_gpu,
                          train_error_t *err);

/* nccl_replace - tests alone: others instead; NULL, NULL: the real ones. */
void nccl_replace (const struct nccl_api *api, const struct backend_ops *gpu);

#endif
