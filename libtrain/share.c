/* SPDX-License-Identifier: Apache-2.0
 * share.c - blocks of memory that other processes of the host may see */
#include "config.h"

#include "share_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "err.h"
#include "sock.h"

/* CUDA shares whole allocations, whose own pieces are of this size. */
#define GPU_BLOCK ((size_t)2 << 20)

static atomic_uint_fast64_t last_id;

train_status_t share_memfd_make (struct share_memfd *m, size_t bytes,
                                 train_error_t *err)
{
    void *map;

    m->bytes = bytes;
    m->fd = memfd_create ("train-share", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (m->fd < 0 || ftruncate (m->fd, (off_t)bytes) < 0
        || fcntl (m->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
               < 0)
        return err_set (err, TRAIN_ENOMEM, "share of %zu bytes: %s", bytes,
                        strerror (errno));
    map = mmap (NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
    if (map == MAP_FAILED)
        return err_set (err, TRAIN_ENOMEM, "share of %zu bytes: %s", bytes,
                        strerror (errno));
    m->map = map;
    return TRAIN_OK;
}

void share_memfd_end (struct share_memfd *m)
{
    if (m->map)
        munmap (m->map, m->bytes);
    m->map = NULL;
    sock_close (&m->fd);
}

static void unmake (train_share_t *s)
{
    const struct backend_ops *ops = s->lane.ops;

    share_memfd_end (&s->host);
    if (s->gpu && s->own && s->data) {
        if (s->kind == TRAIN_SHARE_CUDA_FD)
            ops->share->unmap (s->data, s->block_bytes);
        else
            ops->free (s->data);
    }
    sock_close (&s->fd);
    share_lane_close (&s->lane);
    free (s);
}

static train_status_t new_share (size_t bytes, train_share_t **ret,
                                 train_error_t *err)
{
    train_share_t *s;

    if (bytes == 0 || bytes > SIZE_MAX / 4)
        return err_set (err, TRAIN_EINVAL, "share: %zu bytes cannot be", bytes);
    if (!(s = calloc (1, sizeof (*s))))
        return err_set (err, TRAIN_ENOMEM, "share: no memory");
    s->bytes = bytes;
    s->fd = s->host.fd = -1;
    s->id = atomic_fetch_add (&last_id, 1) + 1;
    *ret = s;
    return TRAIN_OK;
}

static train_status_t end_new (train_share_t *s, train_status_t status,
                               train_share_t **ret)
{
    if (status == TRAIN_OK)
        *ret = s;
    else
        unmake (s);
    return status;
}

train_status_t train_share_create (train_share_kind_t kind, size_t bytes,
                                   train_share_t **ret_share,
                                   train_error_t *err)
{
    train_status_t status;
    train_share_t *s;

    if (!ret_share)
        return err_set (err, TRAIN_EINVAL, "share: no result");
    if (kind != TRAIN_SHARE_MEMFD)
        return err_set (err, TRAIN_ENOTSUP,
                        "share: kind %d is not of the host, which "
                        "TRAIN_SHARE_MEMFD is; train_share_create_gpu makes "
                        "memory of a GPU",
                        (int)kind);
    TRY (new_share (bytes, &s, err));
    s->kind = kind;
    status = share_memfd_make (&s->host, bytes, err);
    s->data = s->host.map;
    return end_new (s, status, ret_share);
}

/* The IPC handle of the allocation that the block lies in. */
static train_status_t find_handle (train_share_t *s, train_error_t *err)
{
    const struct backend_share *share = s->lane.ops->share;
    size_t whole = 0;
    char *base = NULL;

    TRY (share->range (s->data, &base, &whole, err));
    s->base = (uint64_t)(s->data - base);
    s->block_bytes = whole;
    if (s->base > whole || s->bytes > whole - s->base)
        return err_set (err, TRAIN_EINVAL,
                        "share: the memory does not lie in one allocation");
    TRY (share->handle (base, s->handle, err));
    s->kind = TRAIN_SHARE_CUDA_IPC;
    return TRAIN_OK;
}

static train_status_t make_fd (train_share_t *s, train_error_t *err)
{
    const struct backend_ops *ops = s->lane.ops;
    size_t whole = 0;
    void *memory = NULL;

    TRY (ops->share->create (s->lane.device, s->bytes, &memory, &whole, &s->fd,
                             err));
    s->data = memory;
    s->block_bytes = whole;
    s->kind = TRAIN_SHARE_CUDA_FD;
    return TRAIN_OK;
}

static train_status_t make_plain (train_share_t *s, train_error_t *err)
{
    size_t whole = (s->bytes + GPU_BLOCK - 1) / GPU_BLOCK * GPU_BLOCK;
    void *memory = NULL;

    if (s->data) /* the caller's */
        return TRAIN_OK;
    TRY (s->lane.ops->alloc (s->lane.device, whole, &memory, err));
    s->data = memory;
    return TRAIN_OK;
}

/* The kind that was asked for, or the first that works. */
static train_status_t make_gpu (train_share_t *s, train_share_kind_t kind,
                                train_error_t *err)
{
    const struct backend_share *share = s->lane.ops->share;
    const char *no = "the backend shares no memory";
    unsigned kinds = share ? share->kinds (s->lane.device, &no) : 0;
    bool any = kind == TRAIN_SHARE_AUTO;
    train_error_t why = {0};

    s->strict = !any;
    if (!any && kind != TRAIN_SHARE_MEMFD && !(kinds & 1u << kind))
        return err_set (err, TRAIN_ENOTSUP,
                        "share: GPU %d has no handle of kind %d: %s",
                        s->lane.device, (int)kind, no);
    if (kind == TRAIN_SHARE_CUDA_FD
        || (any && s->own && kinds & 1u << TRAIN_SHARE_CUDA_FD)) {
        if (make_fd (s, &why) == TRAIN_OK)
            return TRAIN_OK;
        if (!any)
            return err_set (err, why.code, "%s", why.text);
        no = why.text;
    }
    TRY (make_plain (s, err));
    if (kind == TRAIN_SHARE_CUDA_IPC
        || (any && kinds & 1u << TRAIN_SHARE_CUDA_IPC)) {
        if (find_handle (s, &why) == TRAIN_OK)
            return TRAIN_OK;
        if (!any || why.code == TRAIN_EINVAL)
            return err_set (err, why.code, "%s", why.text);
        no = why.text;
    }
    if (any)
        snprintf (s->why, sizeof (s->why), "%.90s", no);
    s->kind = TRAIN_SHARE_MEMFD;
    return TRAIN_OK;
}

static train_status_t open_gpu (train_share_t *s, int device,
                                train_share_kind_t kind, train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    int n = 0;

    if (kind < TRAIN_SHARE_AUTO || kind > TRAIN_SHARE_CUDA_FD)
        return err_set (err, TRAIN_EINVAL, "share: kind %d", (int)kind);
    TRY (share_gpus (&ops, err));
    TRY (ops->probe (&n, err));
    if (device < 0 || device >= n)
        return err_set (err, TRAIN_EINVAL, "share: there is no GPU %d, but %d",
                        device, n);
    s->gpu = true;
    TRY (share_lane_open (&s->lane, ops, device, err));
    TRY (ops->ident (device, s->name, sizeof (s->name), err));
    return make_gpu (s, kind, err);
}

train_status_t train_share_create_gpu (train_share_kind_t kind, int device,
                                       size_t bytes, train_share_t **ret_share,
                                       train_error_t *err)
{
    train_status_t status;
    train_share_t *s;

    if (!ret_share)
        return err_set (err, TRAIN_EINVAL, "share: no result");
    TRY (new_share (bytes, &s, err));
    s->own = true;
    status = open_gpu (s, device, kind, err);
    if (status == TRAIN_OK)
        status =
            s->lane.ops->fill (device, s->data, 0, bytes, s->lane.stream, err);
    if (status == TRAIN_OK)
        status = s->lane.ops->sync (s->lane.stream, err);
    return end_new (s, status, ret_share);
}

train_status_t train_share_wrap (train_share_kind_t kind, void *memory,
                                 size_t bytes, train_share_t **ret_share,
                                 train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    train_status_t status;
    train_share_t *s;
    bool pinned = false;
    int device = -1;

    if (!ret_share || !memory || kind == TRAIN_SHARE_CUDA_FD)
        return err_set (err, TRAIN_EINVAL,
                        "share: no result or memory, or a kind that memory "
                        "must be made for");
    TRY (share_gpus (&ops, err));
    TRY (ops->place (memory, &device, &pinned, err));
    if (device < 0)
        return err_set (err, TRAIN_EINVAL, "share: the memory is no GPU's");
    TRY (new_share (bytes, &s, err));
    s->data = memory;
    status = open_gpu (s, device, kind, err);
    return end_new (s, status, ret_share);
}

train_share_kind_t train_share_kind (const train_share_t *share)
{
    return share->kind;
}

void *train_share_data (const train_share_t *share)
{
    return share->data;
}

size_t train_share_bytes (const train_share_t *share)
{
    return share->bytes;
}

size_t train_share_refs (const train_share_t *share)
{
    return share->refs;
}

train_status_t train_share_destroy (train_share_t *share, train_error_t *err)
{
    if (!share)
        return TRAIN_OK;
    if (share->refs > 0)
        return err_set (err, TRAIN_ESTATE,
                        "share: %zu references are held by others; "
                        "train_share_wait, or close their peers, first",
                        share->refs);
    unmake (share);
    return TRAIN_OK;
}
