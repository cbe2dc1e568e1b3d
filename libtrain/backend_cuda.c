/* SPDX-License-Identifier: Apache-2.0
 * backend_cuda.c - memory of GPUs through the CUDA runtime, linked statically:
 * it finds the driver at run time, or says that there is none */
#include "backend.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "err.h"
#include "mem_count.h"

#include "kernels/kernels.h"

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
    if (status == TRAIN_OK && !mem_count_add (device, memory, bytes)) {
        (void)cudaFree (memory);
        status = err_set (err, TRAIN_ENOMEM, "no memory for a list of arrays");
    }
    (void)cudaSetDevice (before);
    if (status == TRAIN_OK)
        *ret = memory;
    return status;
}

static void op_free (void *memory)
{
    mem_count_drop (memory);
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

/* The device of a call, and the caller's own back again after it. */
static int op_enter (int device)
{
    int before = 0;

    (void)cudaGetDevice (&before);
    if (before != device)
        (void)cudaSetDevice (device);
    return before;
}

static void op_leave (int before)
{
    int now = before;

    (void)cudaGetDevice (&now);
    if (now != before)
        (void)cudaSetDevice (before);
}

/* Non-blocking: else each piece of work would wait for the default stream. Of
 * the highest priority: the kernels are short, and what waits for them is a
 * copy; else they run when a kernel beside them has ended. */
static train_status_t op_stream_create (int device, void **ret,
                                        train_error_t *err)
{
    cudaStream_t stream = NULL;
    int before = op_enter (device), least = 0, greatest = 0;
    train_status_t status;

    (void)cudaDeviceGetStreamPriorityRange (&least, &greatest);
    status = check (
        cudaStreamCreateWithPriority (&stream, cudaStreamNonBlocking, greatest),
        TRAIN_EDEVICE, "stream on the GPU", err);

    op_leave (before);
    if (status == TRAIN_OK)
        *ret = stream;
    return status;
}

static void op_stream_destroy (void *stream)
{
    (void)cudaStreamDestroy ((cudaStream_t)stream);
}

static train_status_t make_event (int device, unsigned flags, void **ret,
                                  train_error_t *err)
{
    cudaEvent_t event = NULL;
    int before = op_enter (device);
    train_status_t status = check (cudaEventCreateWithFlags (&event, flags),
                                   TRAIN_EDEVICE, "event on the GPU", err);

    op_leave (before);
    if (status == TRAIN_OK)
        *ret = event;
    return status;
}

static train_status_t op_event_create (int device, void **ret,
                                       train_error_t *err)
{
    return make_event (device, cudaEventDisableTiming, ret, err);
}

static train_status_t op_timer_create (int device, void **ret,
                                       train_error_t *err)
{
    return make_event (device, cudaEventDefault, ret, err);
}

static train_status_t op_timer_between (void *from, void *to, double *ret_s,
                                        train_error_t *err)
{
    float ms = 0;

    TRY (check (cudaEventElapsedTime (&ms, (cudaEvent_t)from, (cudaEvent_t)to),
                TRAIN_EDEVICE, "time on the GPU", err));
    *ret_s = (double)ms / 1e3;
    return TRAIN_OK;
}

static void op_event_destroy (void *event)
{
    (void)cudaEventDestroy ((cudaEvent_t)event);
}

static train_status_t op_event_record (void *event, int device, void *stream,
                                       train_error_t *err)
{
    int before = op_enter (device);
    train_status_t status =
        check (cudaEventRecord ((cudaEvent_t)event, (cudaStream_t)stream),
               TRAIN_EDEVICE, "event on the GPU", err);

    op_leave (before);
    return status;
}

static train_status_t op_event_wait (void *stream, int device, void *event,
                                     train_error_t *err)
{
    int before = op_enter (device);
    train_status_t status = check (
        cudaStreamWaitEvent ((cudaStream_t)stream, (cudaEvent_t)event, 0),
        TRAIN_EDEVICE, "wait of a stream", err);

    op_leave (before);
    return status;
}

static train_status_t op_event_sync (void *event, train_error_t *err)
{
    return check (cudaEventSynchronize ((cudaEvent_t)event), TRAIN_EDEVICE,
                  "work on the GPU", err);
}

static train_status_t op_event_done (void *event, bool *ret_done,
                                     train_error_t *err)
{
    cudaError_t rc = cudaEventQuery ((cudaEvent_t)event);

    *ret_done = rc != cudaErrorNotReady;
    return check (*ret_done ? rc : cudaSuccess, TRAIN_EDEVICE,
                  "work on the GPU", err);
}

/* cuStreamWaitValue32 of the driver, so that nothing links against it. */
typedef int (*wait_value_fn) (void *stream, unsigned long long address,
                              uint32_t value, unsigned flags);
static wait_value_fn wait_value;
static pthread_once_t wait_value_once = PTHREAD_ONCE_INIT;

static void find_wait_value (void)
{
    void *driver = dlopen ("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void *found = driver ? dlsym (driver, "cuStreamWaitValue32_v2") : NULL;

    memcpy (&wait_value, &found, sizeof (found));
}

static train_status_t op_gate (void *stream, int device,
                               volatile uint32_t *flag, uint32_t value,
                               train_error_t *err)
{
    int before, rc;

    pthread_once (&wait_value_once, find_wait_value);
    if (!wait_value)
        return err_set (err, TRAIN_ENOTSUP,
                        "the driver has no cuStreamWaitValue32: give no "
                        "streams, or wait for the copy in train_copy");
    before = op_enter (device);
    rc = wait_value (stream, (unsigned long long)(uintptr_t)flag, value,
                     0 /* until it is greater or equal, modulo 2^32 */);
    op_leave (before);
    if (rc != 0)
        return err_set (err, TRAIN_EDEVICE, "wait of a stream: CUresult %d",
                        rc);
    return TRAIN_OK;
}

/* The NUMA node that sysfs gives for a GPU, or -1. */
static int node_of (int device)
{
    char id[32] = "", path[96];
    int node = -1;
    FILE *f;

    if (cudaDeviceGetPCIBusId (id, sizeof (id), device) != cudaSuccess) {
        (void)cudaGetLastError ();
        return -1;
    }
    for (char *p = id; *p; p++)
        *p |= *p >= 'A' && *p <= 'F' ? 0x20 : 0;
    snprintf (path, sizeof (path), "/sys/bus/pci/devices/%s/numa_node", id);
    f = fopen (path, "re");
    if (f && fscanf (f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose (f);
    return node;
}

/* Asks for pages of [device]'s node; where the kernel refuses (a container
 * may), they come from anywhere: slower, not wrong. */
static train_status_t op_pin (int device, size_t bytes, void **ret,
                              train_error_t *err)
{
    enum { MPOL_PREFERRED_ = 1 };
    unsigned long mask;
    int node = node_of (device), before;
    void *memory = mmap (NULL, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    train_status_t status;

    if (memory == MAP_FAILED)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes", bytes);
    if (node >= 0 && node < 64) {
        mask = 1ul << node;
        (void)syscall (SYS_mbind, memory, bytes, MPOL_PREFERRED_, &mask, 64ul,
                       0ul);
    }
    before = op_enter (device);
    status = check (
        cudaHostRegister (memory, bytes,
                          cudaHostRegisterPortable | cudaHostRegisterMapped),
        TRAIN_ENOMEM, "pinned memory", err);
    op_leave (before);
    if (status == TRAIN_OK)
        *ret = memory;
    else
        munmap (memory, bytes);
    return status;
}

static void op_unpin (void *memory, size_t bytes)
{
    (void)cudaHostUnregister (memory);
    munmap (memory, bytes);
}

static train_status_t op_place (const void *memory, int *ret_device,
                                bool *ret_pinned, train_error_t *err)
{
    struct cudaPointerAttributes a;
    train_status_t status = check (cudaPointerGetAttributes (&a, memory),
                                   TRAIN_EDEVICE, "memory of a tensor", err);

    if (status != TRAIN_OK)
        return status;
    *ret_device =
        a.type == cudaMemoryTypeDevice || a.type == cudaMemoryTypeManaged
            ? a.device
            : -1;
    *ret_pinned = a.type == cudaMemoryTypeHost;
    return TRAIN_OK;
}

static bool open_one_way (int from, int to)
{
    int can = 0, before;
    cudaError_t rc = cudaDeviceCanAccessPeer (&can, from, to);

    if (rc == cudaSuccess && can) {
        before = op_enter (from);
        rc = cudaDeviceEnablePeerAccess (to, 0);
        op_leave (before);
    }
    if (rc == cudaErrorPeerAccessAlreadyEnabled)
        rc = cudaSuccess;
    (void)cudaGetLastError ();
    return rc == cudaSuccess && can;
}

static bool op_peer_open (int dst, int src)
{
    return open_one_way (src, dst) && open_one_way (dst, src);
}

static train_status_t op_peer (void *dst, int dst_device, const void *src,
                               int src_device, size_t bytes, void *stream,
                               train_error_t *err)
{
    int before = op_enter (src_device);
    train_status_t status =
        check (cudaMemcpyPeerAsync (dst, dst_device, src, src_device, bytes,
                                    (cudaStream_t)stream),
               TRAIN_EDEVICE, "peer copy", err);

    op_leave (before);
    return status;
}

static train_status_t op_ident (int device, char *text, size_t size,
                                train_error_t *err)
{
    struct cudaDeviceProp prop;
    char bus[32];
    size_t used = 0;
    train_status_t status = check (cudaGetDeviceProperties (&prop, device),
                                   TRAIN_EDEVICE, "name of a GPU", err);

    if (status == TRAIN_OK)
        status = check (cudaDeviceGetPCIBusId (bus, sizeof (bus), device),
                        TRAIN_EDEVICE, "bus of a GPU", err);
    for (size_t i = 0; status == TRAIN_OK && i < 16 && used + 2 < size; i++)
        used += (size_t)snprintf (text + used, size - used, "%02x",
                                  (unsigned char)prop.uuid.bytes[i]);
    if (status == TRAIN_OK)
        snprintf (text + used, size - used, " %s", bus);
    return status;
}

static train_status_t op_model (int device, char *text, size_t size,
                                train_error_t *err)
{
    struct cudaDeviceProp prop;

    TRY (check (cudaGetDeviceProperties (&prop, device), TRAIN_EDEVICE,
                "name of a GPU", err));
    snprintf (text, size, "%s", prop.name);
    return TRAIN_OK;
}

static train_status_t op_fill (int device, void *memory, int value,
                               size_t bytes, void *stream, train_error_t *err)
{
    int before = op_enter (device);
    train_status_t status =
        check (cudaMemsetAsync (memory, value, bytes, (cudaStream_t)stream),
               TRAIN_EDEVICE, "fill on the GPU", err);

    op_leave (before);
    return status;
}

static const struct view_ops view_cuda = {
    .pack = kern_view_pack_cuda,
    .unpack = kern_view_unpack_cuda,
    .move = kern_view_move_cuda,
    .sum = kern_view_sum_cuda,
    .nonfinite = kern_view_nonfinite_cuda,
    .pieces_pack = kern_pieces_pack_cuda,
    .pieces_unpack = kern_pieces_unpack_cuda,
    .pieces_sum = kern_pieces_sum_cuda,
};

static const struct flat_ops flat_cuda = {
    .accumulate_f32 = kern_accumulate_f32_cuda,
    .accumulate_bf16 = kern_accumulate_bf16_cuda,
    .sumsq = kern_sumsq_f32_cuda,
    .clip_factor = kern_clip_factor_cuda,
    .adamw = kern_adamw_bf16_cuda,
    .round = kern_round_bf16_cuda,
};

const struct backend_ops backend_cuda = {
    .name = "cuda",
    .probe = op_probe,
    .alloc = op_alloc,
    .free = op_free,
    .copy = op_copy,
    .sync = op_sync,
    .stream_create = op_stream_create,
    .stream_destroy = op_stream_destroy,
    .event_create = op_event_create,
    .event_destroy = op_event_destroy,
    .event_record = op_event_record,
    .event_wait = op_event_wait,
    .event_sync = op_event_sync,
    .event_done = op_event_done,
    .timer_create = op_timer_create,
    .timer_between = op_timer_between,
    .gate = op_gate,
    .pin = op_pin,
    .unpin = op_unpin,
    .place = op_place,
    .peer_open = op_peer_open,
    .peer = op_peer,
    .ident = op_ident,
    .model = op_model,
    .fill = op_fill,
    .share = &backend_cuda_share,
    .graph = &backend_cuda_graph,
    .view = &view_cuda,
    .flat = &flat_cuda,
    .enter = op_enter,
    .leave = op_leave,
};
