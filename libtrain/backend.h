/* SPDX-License-Identifier: Apache-2.0
 * backend.h - memory of a kind of device, and its work queue. Inside libtrain
 * only.
 *
 * "host" always exists. "cuda" is there where libtrain was built with CUDA, and
 * serves where a driver and a GPU are: the same binary runs with and without. */
#ifndef TRAIN_BACKEND_H
#define TRAIN_BACKEND_H

#include <stddef.h>

#include <train/status.h>

struct backend_ops {
    const char *name;

    /* probe (required) - can this backend serve on this machine, now?
     *   ret_devices   how many devices, >= 1; may be NULL
     * TRAIN_ENOTSUP says why not. Any thread; may take a second at first. */
    train_status_t (*probe) (int *ret_devices, train_error_t *err);

    /* alloc (required) - [bytes] of memory of device [device], not
     * initialised; 0 bytes give NULL. TRAIN_ENOMEM; TRAIN_EINVAL for a device
     * that is not there. Leaves the caller's current device as it was. */
    train_status_t (*alloc) (int device, size_t bytes, void **ret,
                             train_error_t *err);

    /* free (required) - NULL is fine. Waits for work that uses it. */
    void (*free) (void *memory);

    /* copy (required) - between any two of host memory and this backend's, in
     * the order of [stream] (NULL: the default). Both sides must stay as they
     * are until sync. */
    train_status_t (*copy) (void *dst, const void *src, size_t bytes,
                            void *stream, train_error_t *err);

    /* sync (required) - wait until [stream] is empty; reports what failed
     * there or at a launch before, TRAIN_EDEVICE. */
    train_status_t (*sync) (void *stream, train_error_t *err);
};

/* backend_find - by name ("host", "cuda"), or NULL for the best that serves.
 * One that is asked for and cannot serve is an error with its reason:
 * TRAIN_EINVAL for an unknown name, TRAIN_ENOTSUP. */
train_status_t backend_find (const char *name,
                             const struct backend_ops **ret_ops,
                             train_error_t *err);

extern const struct backend_ops backend_host;
extern const struct backend_ops backend_cuda; /* if HAVE_CUDA */

#endif
