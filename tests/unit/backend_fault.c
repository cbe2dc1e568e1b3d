/* SPDX-License-Identifier: Apache-2.0
 * backend_fault.c - made-up GPUs in host memory, with faults; what they do as
 * the host does is the host's own */
#include "backend_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"

#define PAGE 4096

struct fault_state fault;

/* Memory of the GPUs, so that place can tell. */
static struct {
    const char *at;
    size_t bytes;
    int device;
} block[256];

void fault_set (enum fault peer)
{
    memset (&fault, 0, sizeof (fault));
    fault.peer = peer;
}

static train_status_t op_probe (int *ret_devices, train_error_t *err)
{
    (void)err;
    if (ret_devices)
        *ret_devices = FAULT_GPUS;
    return TRAIN_OK;
}

static train_status_t op_alloc (int device, size_t bytes, void **ret,
                                train_error_t *err)
{
    train_status_t status = backend_host.alloc (0, bytes, ret, err);

    /* Not what a GPU before this one left there: that may be right. */
    if (status == TRAIN_OK && bytes > 0)
        memset (*ret, 0x5a, bytes);
    for (size_t i = 0; status == TRAIN_OK && *ret && i < 256; i++) {
        if (!block[i].at) {
            block[i].at = *ret;
            block[i].bytes = bytes;
            block[i].device = device;
            break;
        }
    }
    return status;
}

static void op_free (void *memory)
{
    for (size_t i = 0; memory && i < 256; i++) {
        if (block[i].at == memory)
            block[i].at = NULL;
    }
    backend_host.free (memory);
}

static train_status_t op_place (const void *memory, int *ret_device,
                                bool *ret_pinned, train_error_t *err)
{
    const char *p = memory;

    (void)err;
    *ret_device = -1;
    *ret_pinned = false;
    for (size_t i = 0; i < 256; i++) {
        if (block[i].at && p >= block[i].at && p < block[i].at + block[i].bytes)
            *ret_device = block[i].device;
    }
    return TRAIN_OK;
}

static train_status_t op_ident (int device, char *text, size_t size,
                                train_error_t *err)
{
    (void)err;
    snprintf (text, size, "fault %d", device);
    return TRAIN_OK;
}

static void swap_pages (char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char x = a[i];

        a[i] = b[i];
        b[i] = x;
    }
}

static void spoil (enum fault what, char *dst, const char *src, size_t n)
{
    static char *last;
    static size_t last_n;
    size_t page = n >= 2 * PAGE ? PAGE : n / 2, mid = n / 2 / 8 * 8;

    switch (what) {
    case FAULT_ZEROS:
        memset (dst, 0, n);
        return;
    case FAULT_PAIR:
        return;
    case FAULT_STALE:
        memcpy (dst, src, mid);
        memcpy (dst + mid + page, src + mid + page, n - mid - page);
        return;
    default:
        memcpy (dst, src, n);
    }
    if (what == FAULT_PARTLY)
        memset (dst + mid, 0, n - mid);
    if (what == FAULT_SWAP)
        swap_pages (dst, dst + n - page, page);
    if (what == FAULT_LAST)
        dst[n - 1] ^= 0x40;
    if (what == FAULT_BIT)
        dst[mid] ^= 1;
    if (what == FAULT_FIRST && fault.peers == 1)
        memset (dst, 0, n);
    if (what == FAULT_CHUNKS && fault.peers % 2 == 0 && last_n == n)
        swap_pages (last, dst, n);
    last = dst;
    last_n = n;
}

/* Lazy: the copies of all streams, in their order, not made yet. */
static struct pending {
    char *dst;
    const char *src;
    size_t bytes;
} pending[64];
static size_t n_pending;

static void make_all (void)
{
    for (size_t i = 0; i < n_pending; i++)
        memcpy (pending[i].dst, pending[i].src, pending[i].bytes);
    n_pending = 0;
}

static void put_off (void *dst, const void *src, size_t bytes)
{
    if (n_pending == sizeof (pending) / sizeof (*pending))
        make_all ();
    pending[n_pending++] = (struct pending){dst, src, bytes};
}

static void nap (void)
{
    struct timespec t = {fault.delay_ms / 1000,
                         fault.delay_ms % 1000 * 1000000L};

    if (fault.delay_ms > 0)
        nanosleep (&t, NULL);
    while (__atomic_load_n (&fault.hold, __ATOMIC_ACQUIRE)) {
        t = (struct timespec){0, 1000000};
        __atomic_store_n (&fault.held, true, __ATOMIC_RELEASE);
        nanosleep (&t, NULL);
    }
}

static train_status_t op_copy (void *dst, const void *src, size_t bytes,
                               void *stream, train_error_t *err)
{
    int to, from;
    bool pinned;

    (void)stream;
    op_place (dst, &to, &pinned, err);
    op_place (src, &from, &pinned, err);
    fault.copies++;
    nap ();
    /* Sums are fetched by this call too, and stay right. */
    if ((fault.host_too || fault.copies == fault.spoil_at) && to >= 0
        && from < 0 && bytes > 0)
        spoil (fault.peer, dst, src, bytes);
    else if (bytes > 0 && fault.lazy)
        put_off (dst, src, bytes);
    else if (bytes > 0)
        memcpy (dst, src, bytes);
    return TRAIN_OK;
}

static bool op_peer_open (int dst, int src)
{
    (void)dst, (void)src;
    return !fault.no_way;
}

static train_status_t op_peer (void *dst, int dst_device, const void *src,
                               int src_device, size_t bytes, void *stream,
                               train_error_t *err)
{
    (void)stream;
    if (dst_device == src_device)
        return err_set (err, TRAIN_EDEVICE, "peer copy on one device");
    fault.peers++;
    nap ();
    spoil (fault.peer, dst, src, bytes);
    return TRAIN_OK;
}

static train_status_t op_pin (int device, size_t bytes, void **ret,
                              train_error_t *err)
{
    if (fault.pin_limit && bytes > fault.pin_limit)
        return err_set (err, TRAIN_ENOMEM, "RLIMIT_MEMLOCK");
    return backend_host.pin (device, bytes, ret, err);
}

static train_status_t op_sync (void *thing, train_error_t *err)
{
    (void)thing, (void)err;
    make_all ();
    return TRAIN_OK;
}

static void op_unpin (void *memory, size_t bytes)
{
    fault.unpinned++;
    backend_host.unpin (memory, bytes);
}

/* Kernels see what was copied before them. */
static void view_pack (void *out, const struct kern_view *v, uint64_t first,
                       uint64_t n, void *stream)
{
    make_all ();
    view_host.pack (out, v, first, n, stream);
}

static void view_unpack (const struct kern_view *v, const void *in,
                         uint64_t first, uint64_t n, void *stream)
{
    make_all ();
    view_host.unpack (v, in, first, n, stream);
}

static void view_sum (uint64_t *sum, const struct kern_view *v, uint64_t first,
                      uint64_t n, uint64_t every, void *stream)
{
    make_all ();
    view_host.sum (sum, v, first, n, every, stream);
}

static struct view_ops view;
struct backend_ops backend_fault;

static void __attribute__ ((constructor)) make_backend (void)
{
    view = view_host;
    view.pack = view_pack;
    view.unpack = view_unpack;
    view.sum = view_sum;
    backend_fault = backend_host;
    backend_fault.name = "fault";
    backend_fault.probe = op_probe;
    backend_fault.alloc = op_alloc;
    backend_fault.free = op_free;
    backend_fault.copy = op_copy;
    backend_fault.sync = op_sync;
    backend_fault.event_sync = op_sync;
    backend_fault.pin = op_pin;
    backend_fault.unpin = op_unpin;
    backend_fault.place = op_place;
    backend_fault.peer_open = op_peer_open;
    backend_fault.peer = op_peer;
    backend_fault.ident = op_ident;
    backend_fault.view = &view;
}
