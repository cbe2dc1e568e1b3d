/* SPDX-License-Identifier: Apache-2.0
 * share_gpu.c - what shares need of a GPU: a stream to sum on, memory of others
 */
#include "config.h"

#include "share_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "err.h"

static const struct backend_ops *replaced;

void share_replace (const struct backend_ops *gpu)
{
    replaced = gpu;
}

train_status_t share_gpus (const struct backend_ops **ret_ops,
                           train_error_t *err)
{
    if (!replaced)
        return backend_find ("cuda", ret_ops, err);
    *ret_ops = replaced;
    return TRAIN_OK;
}

static uint64_t cookie;
static pthread_once_t cookie_once = PTHREAD_ONCE_INIT;

static void make_cookie (void)
{
    if (getrandom (&cookie, sizeof (cookie), GRND_NONBLOCK) != sizeof (cookie))
        cookie = (uint64_t)(uintptr_t)&cookie;
}

/* Children of one process have one cookie, but no pid in common. */
uint64_t share_process (void)
{
    pthread_once (&cookie_once, make_cookie);
    return cookie ^ ((uint64_t)getpid () << 32);
}

train_status_t share_lane_open (struct share_lane *l,
                                const struct backend_ops *ops, int device,
                                train_error_t *err)
{
    l->ops = ops;
    l->device = device;
    TRY (ops->stream_create (device, &l->stream, err));
    TRY (ops->event_create (device, &l->event, err));
    return ops->alloc (device, sizeof (*l->sum), (void **)&l->sum, err);
}

void share_lane_close (struct share_lane *l)
{
    if (!l->ops)
        return;
    l->ops->free (l->sum);
    if (l->event)
        l->ops->event_destroy (l->event);
    if (l->stream)
        l->ops->stream_destroy (l->stream);
    *l = (struct share_lane){0};
}

train_status_t share_lane_after (struct share_lane *l, void *stream,
                                 train_error_t *err)
{
    TRY (l->ops->event_record (l->event, l->device, stream, err));
    return l->ops->event_wait (l->stream, l->device, l->event, err);
}

static struct kern_view bytes_at (const void *data, size_t bytes)
{
    return (struct kern_view){.data = (void *)(uintptr_t)data,
                              .ndim = 1,
                              .compact = 1,
                              .in_size = 1,
                              .wire_size = 1,
                              .n = bytes,
                              .shape = {(int64_t)bytes},
                              .strides = {1}};
}

uint64_t share_sum (const void *data, size_t bytes)
{
    const struct kern_view v = bytes_at (data, bytes);
    uint64_t sum = 0;

    view_host.sum (&sum, &v, 0, (bytes + 7) / 8, 1, NULL);
    return sum;
}

train_status_t share_lane_sum (struct share_lane *l, const void *data,
                               size_t bytes, uint64_t *ret_sum,
                               train_error_t *err)
{
    const struct kern_view v = bytes_at (data, bytes);
    int before;

    TRY (l->ops->fill (l->device, l->sum, 0, sizeof (*l->sum), l->stream, err));
    before = l->ops->enter (l->device);
    l->ops->view->sum (l->sum, &v, 0, (bytes + 7) / 8, 1, l->stream);
    l->ops->leave (before);
    TRY (l->ops->copy (ret_sum, l->sum, sizeof (*ret_sum), l->stream, err));
    return l->ops->sync (l->stream, err);
}

/* The lane of a peer on GPU [device], opened when it is needed. */
static train_status_t lane_of (train_peer_t *p, const struct backend_ops *ops,
                               int device, struct share_lane **ret,
                               train_error_t *err)
{
    struct share_lane *l = &p->lane[device];
    train_status_t status = TRAIN_OK;

    if (!l->ops)
        status = share_lane_open (l, ops, device, err);
    if (status != TRAIN_OK)
        share_lane_close (l);
    *ret = l;
    return status;
}

static train_status_t own_gpu (const train_peer_t *p,
                               const struct backend_ops **ret_ops, int *ret_n,
                               train_error_t *err)
{
    int n = 0;

    if (p->device < 0)
        return err_set (err, TRAIN_ENOTSUP, "it has no GPU");
    TRY (share_gpus (ret_ops, err));
    TRY ((*ret_ops)->probe (&n, err));
    n = n < SHARE_GPUS ? n : SHARE_GPUS;
    if (p->device >= n)
        return err_set (err, TRAIN_ENOTSUP, "it has no GPU %d, but %d",
                        p->device, n);
    *ret_n = n;
    return TRAIN_OK;
}

/* The GPU of that name, whatever number it has here; else the peer's. */
static train_status_t find_gpu (train_peer_t *p, const struct share_msg *msg,
                                const struct backend_ops **ret_ops,
                                int *ret_device, train_error_t *err)
{
    char name[SHARE_TEXT];
    int n = 0;

    TRY (own_gpu (p, ret_ops, &n, err));
    *ret_device = p->device;
    for (int i = 0; i < n; i++) {
        TRY ((*ret_ops)->ident (i, name, sizeof (name), err));
        if (strncmp (name, msg->text, sizeof (name)) == 0) {
            *ret_device = i;
            break;
        }
    }
    return TRAIN_OK;
}

static struct mapping *find_mapping (const train_peer_t *p,
                                     const struct share_msg *msg)
{
    struct mapping *m = p->mapping;

    for (; m; m = m->next) {
        if (m->kind != (train_share_kind_t)msg->kind
            || m->bytes < msg->block_bytes)
            continue;
        if (m->kind == TRAIN_SHARE_CUDA_FD && m->id == msg->id)
            break;
        if (m->kind == TRAIN_SHARE_CUDA_IPC
            && memcmp (m->handle, msg->handle, sizeof (m->handle)) == 0)
            break;
    }
    return m;
}

/* What a message says of the size is not believed: a driver maps no more of a
 * descriptor than there is, and tells how large an opened handle is. */
static train_status_t map_it (const struct backend_ops *ops, int device,
                              const struct waiting *w, struct mapping *new,
                              train_error_t *err)
{
    const struct backend_share *share = ops->share;
    void *memory = NULL;
    char *base = NULL;
    size_t whole = 0;

    *new = (struct mapping){.kind = (train_share_kind_t)w->msg.kind,
                            .id = w->msg.id,
                            .ops = ops,
                            .device = device,
                            .bytes = w->msg.block_bytes};
    memcpy (new->handle, w->msg.handle, sizeof (new->handle));
    if (!share)
        return err_set (err, TRAIN_ENOTSUP, "its GPUs share no memory");
    if (new->kind == TRAIN_SHARE_CUDA_FD) {
        TRY (share->open_fd (device, w->fd, new->bytes, &memory, err));
        new->map = memory;
        return TRAIN_OK;
    }
    TRY (share->open (device, new->handle, &memory, err));
    new->map = memory;
    TRY (share->range (memory, &base, &whole, err));
    if (base != new->map || whole < new->bytes)
        return err_set (err, TRAIN_ENOTSUP,
                        "the handle is of %zu bytes, not %zu", whole,
                        new->bytes);
    return TRAIN_OK;
}

static void end_map (const struct mapping *m)
{
    if (!m->map)
        return;
    if (m->kind == TRAIN_SHARE_CUDA_FD)
        m->ops->share->unmap (m->map, m->bytes);
    else
        m->ops->share->close (m->map);
}

static train_status_t hold (train_peer_t *p, const struct backend_ops *ops,
                            int device, const struct waiting *w,
                            struct mapping **ret, train_error_t *err)
{
    struct mapping new, *m = find_mapping (p, &w->msg);
    train_status_t status;

    if (m) {
        m->refs++;
        *ret = m;
        return TRAIN_OK;
    }
    status = map_it (ops, device, w, &new, err);
    if (status == TRAIN_OK && !(*ret = share_mapping_add (p, &new)))
        status = err_set (err, TRAIN_ENOMEM, "no memory");
    if (status != TRAIN_OK)
        end_map (&new);
    return status;
}

train_status_t share_take_gpu (train_peer_t *p, const struct waiting *w,
                               size_t bytes, struct mapping **ret,
                               train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    struct share_lane *lane = NULL;
    struct mapping *m = NULL;
    train_status_t status;
    uint64_t sum = 0;
    int device = 0;

    TRY (find_gpu (p, &w->msg, &ops, &device, err));
    TRY (lane_of (p, ops, device, &lane, err));
    TRY (hold (p, ops, device, w, &m, err));
    status = share_lane_sum (lane, m->map + w->msg.offset, bytes, &sum, err);
    if (status == TRAIN_OK && sum != w->msg.sum)
        status =
            err_set (err, TRAIN_ECORRUPT,
                     "%zu mapped bytes have sum %016llx, not %016llx", bytes,
                     (unsigned long long)sum, (unsigned long long)w->msg.sum);
    if (status == TRAIN_OK)
        *ret = m;
    else
        share_unmap (p, m);
    return status;
}

train_status_t share_land (train_peer_t *p, const struct share_msg *msg,
                           const void *from, size_t bytes, train_taken_t *taken,
                           train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    struct share_lane *lane = NULL;
    uint64_t sum = 0;
    int device = p->device, n = 0;

    TRY (own_gpu (p, &ops, &n, err));
    TRY (lane_of (p, ops, device, &lane, err));
    TRY (ops->alloc (device, bytes ? bytes : 1, &taken->copy, err));
    taken->ops = ops;
    TRY (ops->copy (taken->copy, from, bytes, lane->stream, err));
    TRY (share_lane_sum (lane, taken->copy, bytes, &sum, err));
    if (sum != msg->sum)
        return err_set (err, TRAIN_ECORRUPT,
                        "%s: a tensor of %zu bytes has sum %016llx, was given "
                        "with %016llx",
                        p->name, bytes, (unsigned long long)sum,
                        (unsigned long long)msg->sum);
    TRY (train_tensor_view (&taken->tensor, taken->copy,
                            (train_dtype_t)msg->dtype, (int)msg->ndim,
                            msg->shape, err));
    taken->tensor.t.device.device_type = kDLCUDA;
    taken->tensor.t.device.device_id = device;
    return TRAIN_OK;
}

struct mapping *share_mapping_add (train_peer_t *p, const struct mapping *like)
{
    struct mapping *m = malloc (sizeof (*m));

    if (!m)
        return NULL;
    *m = *like;
    m->refs = 1;
    m->next = p->mapping;
    p->mapping = m;
    return m;
}
