/* SPDX-License-Identifier: Apache-2.0
 * backend_host.c - memory of the process; work is done when a call returns */
#include "backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "kernels/kernels.h"

#define ALIGNMENT 64 /* a cache line, and any vector register */

static train_status_t op_probe (int *ret_devices, train_error_t *err)
{
    (void)err;
    if (ret_devices)
        *ret_devices = 1;
    return TRAIN_OK;
}

static train_status_t op_alloc (int device, size_t bytes, void **ret,
                                train_error_t *err)
{
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *memory = NULL;

    if (device != 0)
        return err_set (err, TRAIN_EINVAL, "the host has no device %d", device);
    if (rounded < bytes
        || (bytes > 0 && !(memory = aligned_alloc (ALIGNMENT, rounded))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes", bytes);
    *ret = memory;
    return TRAIN_OK;
}

static void op_free (void *memory)
{
    free (memory);
}

static train_status_t op_copy (void *dst, const void *src, size_t bytes,
                               void *stream, train_error_t *err)
{
    (void)stream, (void)err;
    if (bytes > 0)
        memcpy (dst, src, bytes);
    return TRAIN_OK;
}

static train_status_t op_sync (void *stream, train_error_t *err)
{
    (void)stream, (void)err;
    return TRAIN_OK;
}

/* Streams and events have nothing to hold: all is done when a call returns. */
static char token;

static train_status_t op_create (int device, void **ret, train_error_t *err)
{
    (void)device, (void)err;
    *ret = &token;
    return TRAIN_OK;
}

static void op_destroy (void *thing)
{
    (void)thing;
}

static train_status_t op_event (void *a, int device, void *b,
                                train_error_t *err)
{
    (void)a, (void)device, (void)b, (void)err;
    return TRAIN_OK;
}

static train_status_t op_event_sync (void *event, train_error_t *err)
{
    (void)event, (void)err;
    return TRAIN_OK;
}

static train_status_t op_event_done (void *event, bool *ret_done,
                                     train_error_t *err)
{
    (void)event, (void)err;
    *ret_done = true;
    return TRAIN_OK;
}

/* Nothing runs later on a stream of the host, so nothing has to wait. */
static train_status_t op_gate (void *stream, int device,
                               volatile uint32_t *flag, uint32_t value,
                               train_error_t *err)
{
    (void)stream, (void)device, (void)flag, (void)value, (void)err;
    return TRAIN_OK;
}

static train_status_t op_pin (int device, size_t bytes, void **ret,
                              train_error_t *err)
{
    (void)device;
    return op_alloc (0, bytes, ret, err);
}

static void op_unpin (void *memory, size_t bytes)
{
    (void)bytes;
    free (memory);
}

static train_status_t op_place (const void *memory, int *ret_device,
                                bool *ret_pinned, train_error_t *err)
{
    (void)memory, (void)err;
    *ret_device = -1;
    *ret_pinned = false;
    return TRAIN_OK;
}

static train_status_t op_model (int device, char *text, size_t size,
                                train_error_t *err)
{
    (void)device, (void)err;
    snprintf (text, size, "cpu");
    return TRAIN_OK;
}

static train_status_t op_ident (int device, char *text, size_t size,
                                train_error_t *err)
{
    (void)device, (void)err;
    snprintf (text, size, "host");
    return TRAIN_OK;
}

static train_status_t op_fill (int device, void *memory, int value,
                               size_t bytes, void *stream, train_error_t *err)
{
    (void)device, (void)stream, (void)err;
    if (bytes > 0)
        memset (memory, value, bytes);
    return TRAIN_OK;
}

static int op_enter (int device)
{
    return device;
}

static void op_leave (int before)
{
    (void)before;
}

const struct view_ops view_host = {
    .pack = kern_view_pack_host,
    .unpack = kern_view_unpack_host,
    .move = kern_view_move_host,
    .sum = kern_view_sum_host,
    .nonfinite = kern_view_nonfinite_host,
    .pieces_pack = kern_pieces_pack_host,
    .pieces_unpack = kern_pieces_unpack_host,
    .pieces_sum = kern_pieces_sum_host,
};

static void sumsq (double *ret, double *parts, const float *x, size_t n,
                   void *stream)
{
    (void)parts;
    kern_sumsq_f32_host (ret, x, n, stream);
}

const struct flat_ops flat_host = {
    .accumulate_f32 = kern_accumulate_f32_host,
    .accumulate_bf16 = kern_accumulate_bf16_host,
    .sumsq = sumsq,
    .clip_factor = kern_clip_factor_host,
    .adamw = kern_adamw_bf16_host,
    .round = kern_round_bf16_host,
};

const struct backend_ops backend_host = {
    .name = "host",
    .probe = op_probe,
    .alloc = op_alloc,
    .free = op_free,
    .copy = op_copy,
    .sync = op_sync,
    .stream_create = op_create,
    .stream_destroy = op_destroy,
    .event_create = op_create,
    .event_destroy = op_destroy,
    .event_record = op_event,
    .event_wait = op_event,
    .event_sync = op_event_sync,
    .event_done = op_event_done,
    .gate = op_gate,
    .pin = op_pin,
    .unpin = op_unpin,
    .place = op_place,
    .ident = op_ident,
    .model = op_model,
    .fill = op_fill,
    .view = &view_host,
    .flat = &flat_host,
    .enter = op_enter,
    .leave = op_leave,
};
