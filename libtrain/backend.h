/* SPDX-License-Identifier: Apache-2.0
 * backend.h - memory of a kind of device, and its work queue. Inside libtrain
 * only.
 *
 * "host" always exists. "cuda" is there where libtrain was built with CUDA, and
 * serves where a driver and a GPU are: the same binary runs with and without. */
#ifndef TRAIN_BACKEND_H
#define TRAIN_BACKEND_H

#include <stddef.h>

#include <stdbool.h>
#include <stdint.h>

#include <train/status.h>
#include <train/tensor.h>

#include "kernels/view.h"

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

    /* Streams and events (required). A stream waits for no other work of its
     * device. event_record marks what [stream] has been given; event_wait
     * keeps [stream], of any device, from going on before that, event_sync the
     * caller; event_done asks whether it has come. TRAIN_EDEVICE, TRAIN_ENOMEM.
     * The caller's device stays, here and
     * below. */
    train_status_t (*stream_create) (int device, void **ret,
                                     train_error_t *err);
    void (*stream_destroy) (void *stream);
    train_status_t (*event_create) (int device, void **ret, train_error_t *err);
    void (*event_destroy) (void *event);
    train_status_t (*event_record) (void *event, int device, void *stream,
                                    train_error_t *err);
    train_status_t (*event_wait) (void *stream, int device, void *event,
                                  train_error_t *err);
    train_status_t (*event_sync) (void *event, train_error_t *err);
    train_status_t (*event_done) (void *event, bool *ret_done,
                                  train_error_t *err);

    /* timer_create - an event by which time can be told; recorded and destroyed
     * as others. timer_between - seconds from when [from] came to when [to] did;
     * both have. Optional, NULL: this backend has no clock of its own.
     * TRAIN_EDEVICE. */
    train_status_t (*timer_create) (int device, void **ret, train_error_t *err);
    train_status_t (*timer_between) (void *from, void *to, double *ret_s,
                                     train_error_t *err);

    /* gate (required) - what [stream] is given later waits until *flag, memory
     * of pin, is [value] or past it. */
    train_status_t (*gate) (void *stream, int device, volatile uint32_t *flag,
                            uint32_t value, train_error_t *err);

    /* pin (required) - host memory, near [device], that all devices of this
     * backend reach at full speed. TRAIN_ENOMEM. */
    train_status_t (*pin) (int device, size_t bytes, void **ret,
                           train_error_t *err);
    void (*unpin) (void *memory, size_t bytes);

    /* place (required) - where does this memory lie?
     *   ret_device   the device, -1 for the host
     *   ret_pinned   host memory that a device reaches at full speed */
    train_status_t (*place) (const void *memory, int *ret_device,
                             bool *ret_pinned, train_error_t *err);

    /* peer_open - prepare copies from [src] to [dst]: false if the devices do
     * not have any. peer - such a copy, on [stream] of the source. Required
     * where there may be two devices. */
    bool (*peer_open) (int dst, int src);
    train_status_t (*peer) (void *dst, int dst_device, const void *src,
                            int src_device, size_t bytes, void *stream,
                            train_error_t *err);

    /* ident (required) - what tells this device from every other: the UUID and
     * the bus of a GPU. TRAIN_EDEVICE. */
    train_status_t (*ident) (int device, char *text, size_t size,
                             train_error_t *err);

    /* model (required) - the product's name: "NVIDIA H200"; "cpu" of the host.
   * TRAIN_EDEVICE. */
    train_status_t (*model) (int device, char *text, size_t size,
                             train_error_t *err);

    /* fill (required) - [bytes] of the device to [value]. */
    train_status_t (*fill) (int device, void *memory, int value, size_t bytes,
                            void *stream, train_error_t *err);

    /* Memory that other processes can map (optional, NULL: none). */
    const struct backend_share *share;

    /* Work that is recorded once and run often (optional, NULL: none). */
    const struct backend_graph *graph;

    /* Kernels of kernels/view.h (required), on [stream] of [device]. */
    const struct view_ops *view;
    /* Kernels over flat arenas (required), as view. */
    const struct flat_ops *flat;
    /* enter - make [device] the thread's; returns the one before for leave.
     * Kernels are launched between the two. */
    int (*enter) (int device);
    void (*leave) (int before);
};

#define BACKEND_HANDLE 64 /* bytes of an IPC handle */

/* All required. What cannot be is TRAIN_ENOTSUP with the reason. */
struct backend_share {
    /* kinds - handles that memory of [device] can have, as 1 << a
     * train_share_kind_t; 0: *ret_why says why, in static text. */
    unsigned (*kinds) (int device, const char **ret_why);

    /* create - memory of [device] that a descriptor stands for, and lives until
     * all that have mapped it are gone. [open_fd] maps it; [unmap] ends both.
     *   ret_bytes   as allocated, at least [bytes]: what open_fd must be told */
    train_status_t (*create) (int device, size_t bytes, void **ret,
                              size_t *ret_bytes, int *ret_fd,
                              train_error_t *err);
    train_status_t (*open_fd) (int device, int fd, size_t bytes, void **ret,
                               train_error_t *err);
    void (*unmap) (void *memory, size_t bytes);

    /* range - the allocation that [memory] lies in. */
    train_status_t (*range) (const void *memory, char **ret_base,
                             size_t *ret_bytes, train_error_t *err);

    /* handle - of the allocation that begins at [base]. open - what another
     * process made it of; twice is one mapping, to be closed twice. */
    train_status_t (*handle) (void *base, unsigned char *handle,
                              train_error_t *err);
    train_status_t (*open) (int device, const unsigned char *handle, void **ret,
                            train_error_t *err);
    void (*close) (void *memory);
};

/* All required. The caller's device stays. */
struct backend_graph {
    /* begin - what [stream] of [device] is given from now on is recorded, and
     * what streams are that wait for events of it, until end. The thread may do
     * all it may else. end - of the streams only [stream] may be left.
     *   ret   the graph; NULL: it is thrown away
     * TRAIN_EDEVICE. */
    train_status_t (*begin) (void *stream, int device, train_error_t *err);
    train_status_t (*end) (void *stream, int device, void **ret,
                           train_error_t *err);
    train_status_t (*launch) (void *graph, void *stream, int device,
                              train_error_t *err);
    void (*destroy) (void *graph); /* does not wait for what runs of it */

    /* mark - [stream] writes [value] to *flag, memory of pin, in its turn. */
    train_status_t (*mark) (volatile uint32_t *flag, uint32_t value,
                            void *stream, int device, train_error_t *err);
};

struct view_ops {
    void (*pack) (void *out, const struct kern_view *v, uint64_t first,
                  uint64_t n, void *stream);
    void (*unpack) (const struct kern_view *v, const void *in, uint64_t first,
                    uint64_t n, void *stream);
    void (*move) (const struct kern_view *dst, const struct kern_view *src,
                  void *stream);
    void (*sum) (uint64_t *sum, const struct kern_view *v, uint64_t first,
                 uint64_t n, uint64_t every, void *stream);
    void (*nonfinite) (uint64_t *count, const struct kern_view *v, int elem,
                       void *stream);
    void (*pieces_pack) (void *out, const struct kern_piece *p, size_t n,
                         uint64_t base, void *stream);
    void (*pieces_unpack) (const struct kern_piece *p, size_t n, const void *in,
                           uint64_t base, void *stream);
    void (*pieces_sum) (uint64_t *sum, const struct kern_piece *p, size_t n,
                        void *stream);
};

/* As kernels/kernels.h has them; sumsq's [parts] is of a GPU alone. */
struct flat_ops {
    void (*accumulate_f32) (float *sum, const float *x, size_t n, void *stream);
    void (*accumulate_bf16) (float *sum, const uint16_t *x, size_t n,
                             void *stream);
    void (*sumsq) (double *ret, double *parts, const float *x, size_t n,
                   void *stream);
    void (*clip_factor) (float *factor, double *norm, const double *sumsq,
                         double inv_scale, double max_norm, void *stream);
    void (*adamw) (float *p, uint16_t *copy, float *m, float *v, const float *g,
                   const float *factor, size_t n, double lr, double beta1,
                   double beta2, double eps, double weight_decay, int64_t step,
                   uint64_t first, const uint32_t *key, void *stream);
    void (*round) (uint16_t *copy, const float *p, size_t n, int64_t step,
                   uint64_t first, const uint32_t *key, void *stream);
};

/* backend_find - by name ("host", "cuda"), or NULL for the best that serves.
 * One that is asked for and cannot serve is an error with its reason:
 * TRAIN_EINVAL for an unknown name, TRAIN_ENOTSUP. */
train_status_t backend_find (const char *name,
                             const struct backend_ops **ret_ops,
                             train_error_t *err);

/* backend_cast - [n] of one type to another, F32 and the halves, enqueued. */
void backend_cast (const struct backend_ops *ops, void *dst, train_dtype_t to,
                   const void *src, train_dtype_t from, size_t n, void *stream);

/* backend_replace - of tests: this one is "cuda" from now on; NULL: the real.
 */
void backend_replace (const struct backend_ops *cuda);

extern const struct view_ops view_host;
extern const struct flat_ops flat_host;
extern const struct backend_ops backend_host;
extern const struct backend_ops backend_cuda; /* if HAVE_CUDA */
extern const struct backend_share backend_cuda_share;
extern const struct backend_graph backend_cuda_graph;

#endif
