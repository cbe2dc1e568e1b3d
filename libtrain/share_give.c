/* SPDX-License-Identifier: Apache-2.0
 * share_give.c - a tensor of a block to another process, until it is released */
#include "config.h"

#include "share_impl.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "err.h"
#include "sock.h"

static atomic_uint_fast64_t last_seq;

static bool lies_there (const train_share_t *s, const DLTensor *t)
{
    if (!s->gpu)
        return t->device.device_type == kDLCPU;
    return t->device.device_type == kDLCUDA
           && t->device.device_id == s->lane.device;
}

/* Where [t] lies in the block, as the message says it. */
static train_status_t describe (const train_share_t *s, const DLTensor *t,
                                struct share_msg *msg, train_error_t *err)
{
    train_dtype_t dtype = TRAIN_U8;
    uintptr_t at, base = (uintptr_t)s->data;
    size_t bytes;

    TRY (train_dtype_of (t->dtype, &dtype, err));
    if (t->ndim < 0 || t->ndim > TRAIN_MAX_DIMS || !train_tensor_is_compact (t)
        || !lies_there (s, t))
        return err_set (err, TRAIN_EINVAL,
                        "share: the tensor is not compact, not where the block "
                        "is, or of more than %d dimensions",
                        TRAIN_MAX_DIMS);
    at = (uintptr_t)t->data + t->byte_offset;
    bytes = train_tensor_bytes (t);
    if (at < base || at - base > s->bytes || bytes > s->bytes - (at - base)
        || (at - base) % train_dtype_size (dtype) != 0)
        return err_set (err, TRAIN_EINVAL,
                        "share: the tensor does not lie in the block, or not "
                        "aligned");
    *msg = (struct share_msg){.magic = SHARE_MAGIC,
                              .op = SHARE_GIVE,
                              .id = s->id,
                              .seq = atomic_fetch_add (&last_seq, 1) + 1,
                              .process = share_process (),
                              .block_bytes = s->bytes,
                              .offset = at - base,
                              .kind = (uint32_t)TRAIN_SHARE_MEMFD,
                              .dtype = (uint32_t)dtype,
                              .gpu = s->gpu,
                              .ndim = t->ndim};
    for (int i = 0; i < t->ndim; i++)
        msg->shape[i] = t->shape[i];
    snprintf (msg->text, sizeof (msg->text), "%s", s->name);
    return TRAIN_OK;
}

static size_t bytes_of (const struct share_msg *msg)
{
    size_t n = train_dtype_size ((train_dtype_t)msg->dtype);

    for (int i = 0; i < msg->ndim; i++)
        n *= (size_t)msg->shape[i];
    return n;
}

/* The message's bytes from the GPU to the memfd beside the block. */
static train_status_t stage (train_share_t *s, const struct share_msg *msg,
                             train_error_t *err)
{
    size_t bytes = bytes_of (msg);

    if (!s->host.map) {
        train_status_t status = share_memfd_make (&s->host, s->bytes, err);

        if (status != TRAIN_OK) {
            share_memfd_end (&s->host);
            return status;
        }
    }
    if (bytes == 0)
        return TRAIN_OK;
    TRY (s->lane.ops->copy (s->host.map + msg->offset, s->data + msg->offset,
                            bytes, s->lane.stream, err));
    return s->lane.ops->sync (s->lane.stream, err);
}

static void say_staged (train_peer_t *p, const train_share_t *s,
                        const char *why)
{
    char text[512];

    if (!p->log || p->said)
        return;
    p->said = true;
    snprintf (text, sizeof (text),
              "%s: tensors of GPU %d are staged through host memory: %s",
              p->name, s->lane.device, why);
    p->log (p->log_arg, text);
}

/* As it goes to this peer: the handle, or the staged bytes. */
static train_status_t dress (train_share_t *s, train_peer_t *p,
                             struct share_msg *msg, int *ret_fd,
                             train_error_t *err)
{
    bool staged = s->kind == TRAIN_SHARE_MEMFD || (p->staged && !s->strict);

    *ret_fd = s->host.fd;
    if (!s->gpu)
        return TRAIN_OK;
    if (staged) {
        if (s->why[0])
            say_staged (p, s, s->why);
        TRY (stage (s, msg, err));
        *ret_fd = s->host.fd;
        return TRAIN_OK;
    }
    msg->kind = (uint32_t)s->kind;
    msg->block_bytes = s->block_bytes;
    msg->offset += s->base;
    for (size_t i = 0; i < sizeof (msg->handle); i++)
        msg->handle[i] = s->handle[i];
    *ret_fd = s->fd; /* -1 with CUDA_IPC */
    return TRAIN_OK;
}

static train_status_t sum_of (train_share_t *s, const struct share_msg *msg,
                              train_stream_t stream, uint64_t *ret,
                              train_error_t *err)
{
    const char *at = s->data + msg->offset;

    if (!s->gpu) {
        *ret = XXH3_64bits (at, bytes_of (msg));
        return TRAIN_OK;
    }
    if (stream)
        TRY (share_lane_after (&s->lane, stream, err));
    return share_lane_sum (&s->lane, at, bytes_of (msg), ret, err);
}

train_status_t train_share_give_on (train_share_t *share, train_peer_t *peer,
                                    const DLTensor *t, train_stream_t stream,
                                    train_error_t *err)
{
    train_status_t status;
    struct given *g;
    int fd = -1;

    if (!share || !peer || !t || (stream && !share->gpu))
        return err_set (err, TRAIN_EINVAL,
                        "share: no block, peer or tensor, or a stream for host "
                        "memory");
    if (!(g = calloc (1, sizeof (*g))))
        return err_set (err, TRAIN_ENOMEM, "share: no memory");
    status = describe (share, t, &g->msg, err);
    if (status == TRAIN_OK)
        status = sum_of (share, &g->msg, stream, &g->msg.sum, err);
    if (status == TRAIN_OK)
        status = dress (share, peer, &g->msg, &fd, err);
    if (status != TRAIN_OK) {
        free (g);
        return status;
    }
    /* Counted before it is sent: its release may come at once. */
    g->share = share;
    g->next = peer->given;
    peer->given = g;
    share->refs++;
    status =
        share_send (peer, &g->msg, fd, clock_ms () + peer->timeout_ms, err);
    /* The end of the peer took its references back already. */
    if (status != TRAIN_OK && !peer->ended)
        share_ungive (peer, g);
    return status;
}

train_status_t train_share_give (train_share_t *share, train_peer_t *peer,
                                 const DLTensor *t, train_error_t *err)
{
    return train_share_give_on (share, peer, t, NULL, err);
}

/* The tensor stays given: what changes is how. */
train_status_t share_again (train_peer_t *p, struct given *g, const char *why,
                            int64_t deadline_ms, train_error_t *err)
{
    train_share_t *s = g->share;
    struct share_msg *msg = &g->msg;
    train_status_t status = TRAIN_OK, sent;

    msg->op = SHARE_AGAIN;
    msg->offset -= s->base;
    msg->block_bytes = s->bytes;
    msg->kind = (uint32_t)(s->strict ? TRAIN_SHARE_AUTO : TRAIN_SHARE_MEMFD);
    if (!s->strict) {
        p->staged = true;
        say_staged (p, s, why);
        status = stage (s, msg, err);
    }
    if (status != TRAIN_OK) { /* the taker must not wait for its answer */
        msg->kind = (uint32_t)TRAIN_SHARE_AUTO;
        err = NULL;
    }
    sent = share_send (
        p, msg, msg->kind == (uint32_t)TRAIN_SHARE_MEMFD ? s->host.fd : -1,
        deadline_ms, err);
    return status == TRAIN_OK ? sent : status;
}

static bool has_of (const train_peer_t *peer, const train_share_t *share)
{
    const struct given *g = peer->given;

    while (g && g->share != share)
        g = g->next;
    return g != NULL;
}

train_status_t train_share_wait (train_share_t *share, train_peer_t *peer,
                                 train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    int64_t deadline;

    if (!share || !peer)
        return err_set (err, TRAIN_EINVAL, "share: no block or peer");
    deadline = clock_ms () + peer->timeout_ms;
    while (status == TRAIN_OK && has_of (peer, share))
        status = share_read (peer, deadline, err);
    return status;
}
