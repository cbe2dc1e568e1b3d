/* SPDX-License-Identifier: Apache-2.0
 * share_take.c - tensors in blocks of other processes
 *
 * Nothing of a message is believed: the size and the seals of host memory are
 * asked from the kernel, and only then is it mapped, to read. */
#include "config.h"

#include "share_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "err.h"
#include "sock.h"

static train_status_t wrong (train_peer_t *p, const char *why,
                             train_error_t *err)
{
    p->broken = true;
    return err_set (err, TRAIN_EFORMAT, "%s: %s", p->name, why);
}

/* Unsealed memory could be cut under the reader: SIGBUS. */
static train_status_t check_memory (train_peer_t *p, const struct waiting *w,
                                    struct stat *st, train_error_t *err)
{
    int seals = w->fd >= 0 ? fcntl (w->fd, F_GET_SEALS) : -1;

    if (seals < 0 || fstat (w->fd, st) < 0 || !S_ISREG (st->st_mode))
        return wrong (p, "it gives no memory", err);
    if (!(seals & F_SEAL_SHRINK))
        return wrong (p, "it gives memory whose size is not sealed", err);
    if (st->st_size <= 0 || (uint64_t)st->st_size != w->msg.block_bytes
        || w->msg.block_bytes > p->max_bytes)
        return wrong (p, "it gives memory of another size, or over the limit",
                      err);
    return TRAIN_OK;
}

static train_status_t check_tensor (train_peer_t *p, const struct share_msg *m,
                                    size_t *ret_bytes, train_error_t *err)
{
    size_t size = train_dtype_size ((train_dtype_t)m->dtype), bytes = size;

    if (size == 0 || m->ndim < 0 || m->ndim > TRAIN_MAX_DIMS)
        return wrong (p, "it gives a tensor of unknown type or dimensions",
                      err);
    for (int i = 0; i < m->ndim; i++) {
        if (m->shape[i] < 0
            || __builtin_mul_overflow (bytes, (size_t)m->shape[i], &bytes))
            return wrong (p, "it gives a tensor of impossible shape", err);
    }
    if (m->offset > m->block_bytes || bytes > m->block_bytes - m->offset
        || m->offset % size != 0)
        return wrong (p, "it gives a tensor that is not in its memory", err);
    *ret_bytes = bytes;
    return TRAIN_OK;
}

void share_unmap (train_peer_t *p, struct mapping *m)
{
    if (--m->refs > 0)
        return;
    for (struct mapping **at = p ? &p->mapping : NULL; at && *at;
         at = &(*at)->next) {
        if (*at == m) {
            *at = m->next;
            break;
        }
    }
    if (m->kind == TRAIN_SHARE_MEMFD)
        munmap (m->map, m->bytes);
    else if (m->kind == TRAIN_SHARE_CUDA_FD)
        m->ops->share->unmap (m->map, m->bytes);
    else
        m->ops->share->close (m->map);
    free (m);
}

/* The same memory given again is mapped once. */
static struct mapping *map_block (train_peer_t *p, const struct waiting *w,
                                  const struct stat *st)
{
    struct mapping *m = p->mapping, new;
    void *map;

    while (m
           && (m->kind != TRAIN_SHARE_MEMFD || m->dev != st->st_dev
               || m->ino != st->st_ino))
        m = m->next;
    if (m) {
        m->refs++;
        return m;
    }
    map = mmap (NULL, (size_t)st->st_size, PROT_READ, MAP_SHARED, w->fd, 0);
    if (map == MAP_FAILED)
        return NULL;
    new = (struct mapping){.kind = TRAIN_SHARE_MEMFD,
                           .dev = st->st_dev,
                           .ino = st->st_ino,
                           .map = map,
                           .bytes = (size_t)st->st_size};
    if (!(m = share_mapping_add (p, &new)))
        munmap (map, new.bytes);
    return m;
}

static void send_release (train_peer_t *p, uint64_t id, uint64_t seq)
{
    struct share_msg msg = {
        .magic = SHARE_MAGIC, .op = SHARE_RELEASE, .id = id, .seq = seq};

    share_send (p, &msg, -1, clock_ms () + p->timeout_ms, NULL);
}

static train_status_t compare (train_peer_t *p, const struct share_msg *msg,
                               const char *at, size_t bytes, train_error_t *err)
{
    uint64_t sum = msg->gpu ? share_sum (at, bytes) : XXH3_64bits (at, bytes);

    if (sum == msg->sum)
        return TRAIN_OK;
    return err_set (err, TRAIN_ECORRUPT,
                    "%s: a tensor of %zu bytes has sum %016llx, was given with "
                    "%016llx",
                    p->name, bytes, (unsigned long long)sum,
                    (unsigned long long)msg->sum);
}

/* Host memory; what was staged there goes on to a GPU, if there is one. */
static train_status_t take_memfd (train_peer_t *p, const struct waiting *w,
                                  train_taken_t *t, train_error_t *err)
{
    const struct share_msg *msg = &w->msg;
    train_status_t status;
    struct mapping *m;
    struct stat st;
    size_t bytes = 0;

    TRY (check_memory (p, w, &st, err));
    TRY (check_tensor (p, msg, &bytes, err));
    if (!(m = map_block (p, w, &st)))
        return err_set (err, TRAIN_ENOMEM, "%s: cannot map %llu bytes: %s",
                        p->name, (unsigned long long)msg->block_bytes,
                        strerror (errno));
    if (msg->gpu && p->device >= 0) {
        status = share_land (p, msg, m->map + msg->offset, bytes, t, err);
        share_unmap (p, m);
        return status;
    }
    status = compare (p, msg, m->map + msg->offset, bytes, err);
    if (status == TRAIN_OK)
        status = train_tensor_view (&t->tensor, m->map + msg->offset,
                                    (train_dtype_t)msg->dtype, (int)msg->ndim,
                                    msg->shape, err);
    if (status == TRAIN_OK)
        t->mapping = m;
    else
        share_unmap (p, m);
    return status;
}

static train_status_t take_mapped (train_peer_t *p, const struct waiting *w,
                                   train_taken_t *t, train_error_t *err)
{
    const struct share_msg *msg = &w->msg;
    size_t bytes = 0;

    if (!msg->gpu || msg->block_bytes > p->max_bytes
        || (msg->kind == TRAIN_SHARE_CUDA_FD && w->fd < 0))
        return wrong (p,
                      "it gives memory without a handle, of another size, or "
                      "over the limit",
                      err);
    TRY (check_tensor (p, msg, &bytes, err));
    if (msg->kind == TRAIN_SHARE_CUDA_IPC && msg->process == share_process ())
        return err_set (err, TRAIN_EINVAL,
                        "%s: the tensor is of this process itself, and CUDA "
                        "opens IPC handles of other processes alone; use the "
                        "memory as it is",
                        p->name);
    TRY (share_take_gpu (p, w, bytes, &t->mapping, err));
    t->ops = t->mapping->ops;
    TRY (train_tensor_view (&t->tensor, t->mapping->map + msg->offset,
                            (train_dtype_t)msg->dtype, (int)msg->ndim,
                            msg->shape, err));
    t->tensor.t.device.device_type = kDLCUDA;
    t->tensor.t.device.device_id = t->mapping->device;
    return TRAIN_OK;
}

/* Tell why it cannot be mapped, and take the answer instead. */
static train_status_t take_staged (train_peer_t *p, const struct waiting *w,
                                   train_taken_t *t, const train_error_t *why,
                                   train_error_t *err)
{
    struct share_msg msg = {.magic = SHARE_MAGIC,
                            .op = SHARE_REFUSE,
                            .id = w->msg.id,
                            .seq = w->msg.seq};
    int64_t deadline = clock_ms () + p->timeout_ms;
    struct waiting again;
    train_status_t status;

    snprintf (msg.text, sizeof (msg.text), "%.90s", why->text);
    p->answered = false;
    TRY (share_send (p, &msg, -1, deadline, err));
    while (!p->answered)
        TRY (share_read (p, deadline, err));
    again = p->again;
    p->again.fd = -1;
    if (again.msg.seq != w->msg.seq || !again.msg.gpu)
        status = wrong (p, "it answers what was not asked", err);
    else if (again.msg.kind == TRAIN_SHARE_MEMFD)
        status = take_memfd (p, &again, t, err);
    else
        status = err_set (err, TRAIN_ENOTSUP,
                          "%s: gives GPU memory that cannot be mapped (%s), "
                          "and does not stage it",
                          p->name, why->text);
    sock_close (&again.fd);
    return status;
}

static void undo (train_peer_t *p, train_taken_t *t)
{
    if (t->mapping)
        share_unmap (p, t->mapping);
    if (t->copy)
        t->ops->free (t->copy);
    free (t);
}

static train_status_t take_into (train_peer_t *p, const struct waiting *w,
                                 train_taken_t *t, train_error_t *err)
{
    train_error_t why = {0};
    train_status_t status;

    if (w->msg.kind == TRAIN_SHARE_MEMFD)
        return take_memfd (p, w, t, err);
    if (w->msg.kind != TRAIN_SHARE_CUDA_IPC
        && w->msg.kind != TRAIN_SHARE_CUDA_FD)
        return err_set (err, TRAIN_ENOTSUP,
                        "%s: gives memory of kind %u, which is not there",
                        p->name, w->msg.kind);
    status = take_mapped (p, w, t, &why);
    if (status == TRAIN_OK)
        return TRAIN_OK;
    if (status == TRAIN_EINVAL || p->broken)
        return err_set (err, status, "%s", why.text);
    return take_staged (p, w, t, &why, err);
}

static train_status_t take (train_peer_t *p, const struct waiting *w,
                            train_taken_t **ret, train_error_t *err)
{
    train_taken_t *t = calloc (1, sizeof (*t));
    train_status_t status = t ? take_into (p, w, t, err)
                              : err_set (err, TRAIN_ENOMEM, "share: no memory");

    if (status != TRAIN_OK) {
        if (t)
            undo (p, t);
        if (!p->broken && !p->ended)
            send_release (p, w->msg.id, w->msg.seq);
        return status;
    }
    t->peer = p;
    t->id = w->msg.id;
    t->seq = w->msg.seq;
    t->next = p->taken;
    p->taken = t;
    *ret = t;
    return TRAIN_OK;
}

train_status_t train_share_take (train_peer_t *peer, train_taken_t **ret_taken,
                                 train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    struct waiting w;
    int64_t deadline;

    if (!peer || !ret_taken)
        return err_set (err, TRAIN_EINVAL, "share: no peer or result");
    if (peer->broken)
        return err_set (err, TRAIN_ESTATE, "%s: an earlier message was wrong",
                        peer->name);
    deadline = clock_ms () + peer->timeout_ms;
    while (status == TRAIN_OK && peer->queued == 0)
        status = share_read (peer, deadline, err);
    if (status != TRAIN_OK)
        return status;
    w = peer->queue[peer->first];
    peer->first = (peer->first + 1) % SHARE_QUEUE;
    peer->queued--;
    status = take (peer, &w, ret_taken, err);
    sock_close (&w.fd);
    return status;
}

const DLTensor *train_taken_tensor (const train_taken_t *taken)
{
    return &taken->tensor.t;
}

train_status_t train_taken_release_on (train_taken_t *taken,
                                       train_stream_t stream,
                                       train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    train_peer_t *p;

    if (!taken)
        return TRAIN_OK;
    if (stream && taken->ops)
        status = taken->ops->sync (stream, err);
    p = taken->peer;
    for (struct train_taken **at = p ? &p->taken : NULL; at && *at;
         at = &(*at)->next) {
        if (*at == taken) {
            *at = taken->next;
            break;
        }
    }
    /* Closed here before it is freed there. */
    if (taken->mapping)
        share_unmap (p, taken->mapping);
    if (taken->copy)
        taken->ops->free (taken->copy);
    if (p && !p->ended && !p->broken)
        send_release (p, taken->id, taken->seq);
    free (taken);
    return status;
}

void train_taken_release (train_taken_t *taken)
{
    (void)train_taken_release_on (taken, NULL, NULL);
}
