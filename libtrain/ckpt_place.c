/* SPDX-License-Identifier: Apache-2.0
 * ckpt_place.c - to the host what of a checkpoint lies on a GPU, and back */
#include "ckpt_place.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"

#define ALIGN ((size_t)64)

static const struct backend_ops *stand_in;

void ckpt_replace_gpu (const struct backend_ops *gpu)
{
    stand_in = gpu;
}

bool ckpt_is_gpu (const train_ckpt_piece_t *p)
{
    return p->device.device_type == kDLCUDA;
}

static train_status_t ops_of (const train_ckpt_piece_t *p,
                              const struct backend_ops **ret,
                              train_error_t *err)
{
    if (p->device.device_type != 0 && p->device.device_type != kDLCPU
        && p->device.device_type != kDLCUDAHost && !ckpt_is_gpu (p))
        return err_set (err, TRAIN_ENOTSUP,
                        "checkpoint: '%s' is on device type %d; host memory "
                        "and GPUs would work",
                        p->name, (int)p->device.device_type);
    if (ckpt_is_gpu (p) && stand_in)
        *ret = stand_in;
    else
        return backend_find (ckpt_is_gpu (p) ? "cuda" : "host", ret, err);
    return TRAIN_OK;
}

void ckpt_room_fini (struct ckpt_room *room)
{
    if (room->pinned)
        room->pinned->unpin (room->data, room->bytes);
    else
        free (room->data);
    *room = (struct ckpt_room){0};
}

/* Pinned memory is what a GPU copies to at full speed. */
static void pin (struct ckpt_room *room, size_t bytes,
                 const train_ckpt_piece_t *near, const struct backend_ops *ops)
{
    if (ops->pin (near->device.device_id, bytes, &room->data, NULL) == TRAIN_OK)
        room->pinned = ops;
    else
        room->data = NULL;
}

train_status_t ckpt_room_grow (struct ckpt_room *room, size_t bytes,
                               const train_ckpt_piece_t *near,
                               train_error_t *err)
{
    const struct backend_ops *ops = NULL;

    if (bytes <= room->bytes && (!near || room->pinned))
        return TRAIN_OK;
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (near)
        TRY (ops_of (near, &ops, err));
    ckpt_room_fini (room);
    if (near)
        pin (room, bytes, near, ops);
    if (!room->data)
        room->data = aligned_alloc (ALIGN, bytes);
    if (!room->data)
        return err_set (err, TRAIN_ENOMEM,
                        "no memory for a copy of %zu bytes to be saved", bytes);
    room->bytes = bytes;
    return TRAIN_OK;
}

/* By the default stream of the piece's device, which is a queue of its own. */
static train_status_t copy (const train_ckpt_piece_t *p, void *to,
                            const void *from, size_t bytes, train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    train_status_t status;
    int before;

    TRY (ops_of (p, &ops, err));
    if (bytes == 0)
        return TRAIN_OK;
    before = ops->enter (p->device.device_id);
    status = ops->copy (to, from, bytes, NULL, err);
    ops->leave (before);
    return status;
}

train_status_t ckpt_fetch (void *to, const train_ckpt_piece_t *p,
                           train_error_t *err)
{
    return copy (p, to, p->data, (size_t)p->count * train_dtype_size (p->dtype),
                 err);
}

train_status_t ckpt_store (const train_ckpt_piece_t *p, size_t at,
                           const void *from, size_t bytes, train_error_t *err)
{
    return copy (p, (char *)p->data + at, from, bytes, err);
}

static train_status_t settle (const train_ckpt_piece_t *p, train_error_t *err)
{
    const struct backend_ops *ops = NULL;
    train_status_t status;
    int before;

    TRY (ops_of (p, &ops, err));
    before = ops->enter (p->device.device_id);
    status = ops->sync (NULL, err);
    ops->leave (before);
    return status;
}

train_status_t ckpt_settle (const train_ckpt_piece_t *pieces, size_t n,
                            train_error_t *err)
{
    const train_ckpt_piece_t *last = NULL;

    for (size_t i = 0; i < n; i++) {
        if (!ckpt_is_gpu (&pieces[i])
            || (last && last->device.device_id == pieces[i].device.device_id))
            continue;
        last = &pieces[i];
        TRY (settle (last, err));
    }
    return TRAIN_OK;
}
