/* SPDX-License-Identifier: Apache-2.0
 * backend_cuda.c - memory of GPUs through the CUDA runtime, linked statically:
 * it finds the driver at run time, or says that there is none */
#include "backend.h"

#include <cuda_runtime.h>

#include "err.h"

/* The one place where CUDA's results become ours. Clears the last error, so
 * that a failure is reported once (a lost device stays lost). */
static train_status_t check (cudaError_t rc, train_status_t code,
                             const char *what, train_error_t *err)
{
    if (rc == cudaSuccess)
        return TRAIN_OK;
    (void)cudaGetLastError ();
    return err_set (err, rc == cudaErrorMemoryAllocation ? TRAIN_ENOMEM : code,
                    "%s: %s (%s)", what, cudaGetErrorString (rc),
                    cudaGetErrorName (rc));
}

static train_status_t op_probe (int *ret_devices, train_error_t *err)
{
    int n = 0;
    train_status_t status = check (cudaGetDeviceCount (&n), TRAIN_ENOTSUP,
                                   "device cuda: no GPU is visible", err);

    if (status == TRAIN_OK && n == 0)
        status = err_set (err, TRAIN_ENOTSUP, "device cuda: no GPU is visible");
    if (status == TRAIN_OK && ret_devices)
        *ret_devices = n;
    return status;
}

static train_status_t op_alloc (int device, size_t bytes, void **ret,
                                train_error_t *err)
{
    void *memory = NULL;
    int before = 0, n = 0;
    train_status_t status = op_probe (&n, err);

    if (status == TRAIN_OK && (device < 0 || device >= n))
        status = err_set (err, TRAIN_EINVAL, "there is no GPU %d, but %d",
                          device, n);
    if (status == TRAIN_OK)
        status = check (cudaGetDevice (&before), TRAIN_EDEVICE, "GPU", err);
    if (status == TRAIN_OK)
        status = check (cudaSetDevice (device), TRAIN_EDEVICE, "GPU", err);
    if (status != TRAIN_OK)
        return status;
    if (bytes > 0)
        status = check (cudaMalloc (&memory, bytes), TRAIN_EDEVICE,
                        "allocation on the GPU", err);
    (void)cudaSetDevice (before);
    if (status == TRAIN_OK)
        *ret = memory;
    return status;
}

static void op_free (void *memory)
{
    (void)cudaFree (memory);
}

static train_status_t op_copy (void *dst, const void *src, size_t bytes,
                               void *stream, train_error_t *err)
{
    if (bytes == 0)
        return TRAIN_OK;
    return check (cudaMemcpyAsync (dst, src, bytes, cudaMemcpyDefault,
                                   (cudaStream_t)stream),
                  TRAIN_EDEVICE, "copy to or from the GPU", err);
}

static train_status_t op_sync (void *stream, train_error_t *err)
{
    train_status_t status =
        check (cudaGetLastError (), TRAIN_EDEVICE, "launch on the GPU", err);

    if (status == TRAIN_OK)
        status = check (cudaStreamSynchronize ((cudaStream_t)stream),
                        TRAIN_EDEVICE, "work on the GPU", err);
    return status;
}

const struct backend_ops backend_cuda = {
    .name = "cuda",
    .probe = op_probe,
    .alloc = op_alloc,
    .free = op_free,
    .copy = op_copy,
    .sync = op_sync,
};
