/* SPDX-License-Identifier: Apache-2.0
 * backend_cuda_share.c - GPU memory that other processes map: IPC handles of
 * cudaMalloc, descriptors of cuMemCreate
 *
 * The driver is called through pointers that are found once it is loaded, so
 * that nothing links against it. */
#include "backend.h"

#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <train/share.h>

#include "err.h"

#define MAX_GPUS 64

_Static_assert(sizeof (cudaIpcMemHandle_t) == BACKEND_HANDLE,
               "an IPC handle has 64 bytes");

static struct {
    CUresult (*getErrorString) (CUresult, const char **);
    CUresult (*getUuid) (CUuuid *, CUdevice);
    CUresult (*getUuid_v2) (CUuuid *, CUdevice);
    CUresult (*getAttribute) (int *, CUdevice_attribute, CUdevice);
    CUresult (*getAddressRange) (CUdeviceptr *, size_t *, CUdeviceptr);
    CUresult (*granularity) (size_t *, const CUmemAllocationProp *,
                             CUmemAllocationGranularity_flags);
    CUresult (*create) (CUmemGenericAllocationHandle *, size_t,
                        const CUmemAllocationProp *, unsigned long long);
    CUresult (*release) (CUmemGenericAllocationHandle);
    CUresult (*export) (void *, CUmemGenericAllocationHandle,
                        CUmemAllocationHandleType, unsigned long long);
    CUresult (*import) (CUmemGenericAllocationHandle *, void *,
                        CUmemAllocationHandleType);
    CUresult (*reserve) (CUdeviceptr *, size_t, size_t, CUdeviceptr,
                         unsigned long long);
    CUresult (*unreserve) (CUdeviceptr, size_t);
    CUresult (*map) (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                     unsigned long long);
    CUresult (*unmap) (CUdeviceptr, size_t);
    CUresult (*setAccess) (CUdeviceptr, size_t, const CUmemAccessDesc *,
                           size_t);
} cu;

static bool found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find (void *driver, const char *name, void *ret)
{
    void *at = dlsym (driver, name);

    memcpy (ret, &at, sizeof (at));
    return at != NULL;
}

static void find_all (void)
{
    void *d = dlopen ("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    found = d && find (d, "cuGetErrorString", &cu.getErrorString)
            && find (d, "cuDeviceGetUuid", &cu.getUuid)
            && find (d, "cuDeviceGetUuid_v2", &cu.getUuid_v2)
            && find (d, "cuDeviceGetAttribute", &cu.getAttribute)
            && find (d, "cuMemGetAddressRange_v2", &cu.getAddressRange)
            && find (d, "cuMemGetAllocationGranularity", &cu.granularity)
            && find (d, "cuMemCreate", &cu.create)
            && find (d, "cuMemRelease", &cu.release)
            && find (d, "cuMemExportToShareableHandle", &cu.export)
            && find (d, "cuMemImportFromShareableHandle", &cu.import)
            && find (d, "cuMemAddressReserve", &cu.reserve)
            && find (d, "cuMemAddressFree", &cu.unreserve)
            && find (d, "cuMemMap", &cu.map)
            && find (d, "cuMemUnmap", &cu.unmap)
            && find (d, "cuMemSetAccess", &cu.setAccess);
}

static train_status_t check (CUresult rc, const char *what, train_error_t *err)
{
    const char *text = NULL;

    if (rc == CUDA_SUCCESS)
        return TRAIN_OK;
    if (cu.getErrorString (rc, &text) != CUDA_SUCCESS || !text)
        text = "unknown to the driver";
    return err_set (
        err, rc == CUDA_ERROR_OUT_OF_MEMORY ? TRAIN_ENOMEM : TRAIN_ENOTSUP,
        "%s: %s (CUresult %d)", what, text, (int)rc);
}

static train_status_t check_rt (cudaError_t rc, const char *what,
                                train_error_t *err)
{
    if (rc == cudaSuccess)
        return TRAIN_OK;
    (void)cudaGetLastError ();
    return err_set (err, TRAIN_ENOTSUP, "%s: %s (%s)", what,
                    cudaGetErrorString (rc), cudaGetErrorName (rc));
}

/* The driver, and a context of [device] that leave takes away again. */
static train_status_t enter (int device, int *ret_before, train_error_t *err)
{
    pthread_once (&once, find_all);
    if (!found)
        return err_set (err, TRAIN_ENOTSUP,
                        "the driver has no calls to share memory by");
    TRY (check_rt (cudaGetDevice (ret_before), "GPU", err));
    return check_rt (cudaSetDevice (device), "GPU", err);
}

static void leave (int before)
{
    (void)cudaSetDevice (before);
}

/* The same for the device where [memory] lies: the calls look at the present
 * one's alone. */
static train_status_t enter_at (const void *memory, int *ret_before,
                                train_error_t *err)
{
    struct cudaPointerAttributes a;

    TRY (check_rt (cudaPointerGetAttributes (&a, memory), "GPU memory", err));
    if (a.type != cudaMemoryTypeDevice)
        return err_set (err, TRAIN_ENOTSUP, "it is no memory of one GPU");
    return enter (a.device, ret_before, err);
}

/* The driver names a MIG slice by the second call, its GPU by the first. */
static bool is_slice (CUdevice device)
{
    const char *visible = getenv ("CUDA_VISIBLE_DEVICES");
    CUuuid gpu, slice;

    if (visible && strstr (visible, "MIG-"))
        return true;
    return cu.getUuid (&gpu, device) == CUDA_SUCCESS
           && cu.getUuid_v2 (&slice, device) == CUDA_SUCCESS
           && memcmp (&gpu, &slice, sizeof (gpu)) != 0;
}

static bool has (CUdevice_attribute what, CUdevice device)
{
    int value = 0;

    return cu.getAttribute (&value, what, device) == CUDA_SUCCESS && value;
}

/* Numbers of devices are the same in the driver and the runtime. */
static unsigned op_kinds (int device, const char **ret_why)
{
    unsigned kinds = 0;

    pthread_once (&once, find_all);
    *ret_why = "the driver has no calls to share memory by";
    if (!found)
        return 0;
    *ret_why = "a MIG slice shares no memory with other processes";
    if (is_slice (device))
        return 0;
    *ret_why = "the GPU has no handles for other processes";
    if (has (CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device)
        && has (CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                device))
        kinds |= 1u << TRAIN_SHARE_CUDA_FD;
    if (has (CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, device))
        kinds |= 1u << TRAIN_SHARE_CUDA_IPC;
    return kinds;
}

/* For [device], and every GPU that can read its memory: as cudaMalloc's with
 * peer access. */
static train_status_t allow (CUdeviceptr at, size_t bytes, int device,
                             train_error_t *err)
{
    CUmemAccessDesc desc = {0};
    int n = 0, can;

    TRY (check_rt (cudaGetDeviceCount (&n), "GPUs", err));
    for (int i = 0; i < n && i < MAX_GPUS; i++) {
        can = i == device;
        if (!can && cudaDeviceCanAccessPeer (&can, i, device) != cudaSuccess)
            (void)cudaGetLastError ();
        desc.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        desc.location.id = i;
        desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (can && cu.setAccess (at, bytes, &desc, 1) != CUDA_SUCCESS
            && i == device)
            return err_set (err, TRAIN_ENOTSUP,
                            "GPU %d gets no access to shared memory", device);
    }
    return TRAIN_OK;
}

/* [handle] to an address; it is given back then, and the mapping keeps it. */
static train_status_t map (int device, CUmemGenericAllocationHandle handle,
                           size_t bytes, void **ret, train_error_t *err)
{
    CUdeviceptr at = 0;
    train_status_t status = check (cu.reserve (&at, bytes, 0, 0, 0),
                                   "address of shared memory", err);

    if (status == TRAIN_OK) {
        status = check (cu.map (at, bytes, 0, handle, 0),
                        "mapping of shared memory", err);
        if (status == TRAIN_OK) {
            status = allow (at, bytes, device, err);
            if (status != TRAIN_OK)
                (void)cu.unmap (at, bytes);
        }
        if (status != TRAIN_OK)
            (void)cu.unreserve (at, bytes);
    }
    (void)cu.release (handle);
    if (status == TRAIN_OK)
        *ret = (void *)(uintptr_t)at;
    return status;
}

static train_status_t create (int device, size_t bytes, void **ret,
                              size_t *ret_bytes, int *ret_fd,
                              train_error_t *err)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp prop = {0};
    size_t grain = 0;
    int fd = -1;
    train_status_t status;

    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = device;
    TRY (check (
        cu.granularity (&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "size of shared memory", err));
    bytes = (bytes + grain - 1) / grain * grain;
    TRY (check (cu.create (&handle, bytes, &prop, 0), "shared memory", err));
    status = check (
        cu.export(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "descriptor of shared memory", err);
    if (status != TRAIN_OK) {
        (void)cu.release (handle);
        return status;
    }
    status = map (device, handle, bytes, ret, err);
    if (status == TRAIN_OK) {
        *ret_bytes = bytes;
        *ret_fd = fd;
    } else {
        close (fd);
    }
    return status;
}

static train_status_t op_create (int device, size_t bytes, void **ret,
                                 size_t *ret_bytes, int *ret_fd,
                                 train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (enter (device, &before, err));
    status = create (device, bytes, ret, ret_bytes, ret_fd, err);
    leave (before);
    return status;
}

static train_status_t op_open_fd (int device, int fd, size_t bytes, void **ret,
                                  train_error_t *err)
{
    CUmemGenericAllocationHandle handle;
    train_status_t status;
    int before;

    TRY (enter (device, &before, err));
    status = check (cu.import (&handle, (void *)(uintptr_t)fd,
                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                    "memory of another process", err);
    if (status == TRAIN_OK)
        status = map (device, handle, bytes, ret, err);
    leave (before);
    return status;
}

static void op_unmap (void *memory, size_t bytes)
{
    CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory;
    int before;

    /* Work that uses it would fault: as cudaFree does, it is waited for. */
    if (enter_at (memory, &before, NULL) == TRAIN_OK) {
        (void)cudaDeviceSynchronize ();
        leave (before);
    }
    (void)cudaGetLastError ();
    (void)cu.unmap (at, bytes);
    (void)cu.unreserve (at, bytes);
}

static train_status_t op_range (const void *memory, char **ret_base,
                                size_t *ret_bytes, train_error_t *err)
{
    CUdeviceptr base = 0;
    train_status_t status;
    int before;

    TRY (enter_at (memory, &before, err));
    status = check (
        cu.getAddressRange (&base, ret_bytes, (CUdeviceptr)(uintptr_t)memory),
        "allocation of GPU memory", err);
    leave (before);
    if (status == TRAIN_OK)
        *ret_base = (char *)(uintptr_t)base;
    return status;
}

static train_status_t op_handle (void *base, unsigned char *handle,
                                 train_error_t *err)
{
    cudaIpcMemHandle_t h;
    train_status_t status;
    int before;

    TRY (enter_at (base, &before, err));
    status = check_rt (cudaIpcGetMemHandle (&h, base), "IPC handle", err);
    leave (before);
    if (status == TRAIN_OK)
        memcpy (handle, &h, sizeof (h));
    return status;
}

static train_status_t op_open (int device, const unsigned char *handle,
                               void **ret, train_error_t *err)
{
    cudaIpcMemHandle_t h;
    train_status_t status;
    int before;

    memcpy (&h, handle, sizeof (h));
    TRY (enter (device, &before, err));
    status =
        check_rt (cudaIpcOpenMemHandle (ret, h, cudaIpcMemLazyEnablePeerAccess),
                  "memory of another process", err);
    leave (before);
    return status;
}

static void op_close (void *memory)
{
    int before;

    if (enter_at (memory, &before, NULL) != TRAIN_OK)
        return;
    (void)cudaIpcCloseMemHandle (memory);
    (void)cudaGetLastError ();
    leave (before);
}

const struct backend_share backend_cuda_share = {
    .kinds = op_kinds,
    .create = op_create,
    .open_fd = op_open_fd,
    .unmap = op_unmap,
    .range = op_range,
    .handle = op_handle,
    .open = op_open,
    .close = op_close,
};
