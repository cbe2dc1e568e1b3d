/* SPDX-License-Identifier: Apache-2.0
 * backend_host.c - memory of the process; work is done when a call returns */
#include "backend.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"

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

const struct backend_ops backend_host = {
    .name = "host",
    .probe = op_probe,
    .alloc = op_alloc,
    .free = op_free,
    .copy = op_copy,
    .sync = op_sync,
};
