/* SPDX-License-Identifier: Apache-2.0
 * train/copy.h - copies between host and GPUs whose bytes are checked.
 *
 * A copier owns what copies need: streams of its own on each GPU that it meets,
 * a bounded ring of pinned host memory, and one thread. It allocates when it is
 * made and when it meets a GPU, never for a copy. Copies of one copier run one
 * after the other, in the order of the calls.
 *
 * Both ends are summed where they lie, by a 64-bit sum keyed by position, and
 * compared before the copy counts as done: neither train_copy_wait nor a stream
 * given to the call goes on before. Bytes that differ are copied once more by
 * way of the host and compared again; the pair of GPUs then goes by the host
 * for the copier's life, and the log gets one line. */
#ifndef TRAIN_COPY_H
#define TRAIN_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_copier train_copier_t;
typedef struct train_copy train_copy_t; /* a copy under way */

/* A stream of the GPU of that end (a cudaStream_t). NULL: the end is ready at
 * the call and nothing is ordered after the copy but train_copy_wait; CUDA's
 * default stream is (void *)1, that of the thread (void *)2. Host: NULL. */
typedef void *train_stream_t;

typedef enum train_verify {
    TRAIN_VERIFY_DEFAULT = 0, /* FULL between different devices, else OFF */
    TRAIN_VERIFY_OFF = 1,
    TRAIN_VERIFY_SAMPLE = 2, /* the first, every 16th and the last 4 KiB */
    TRAIN_VERIFY_FULL = 3,
} train_verify_t;

typedef enum train_copy_path {
    TRAIN_PATH_LOCAL = 0,  /* both ends on one device */
    TRAIN_PATH_PEER = 1,   /* from GPU to GPU */
    TRAIN_PATH_STAGED = 2, /* through the ring */
} train_copy_path_t;

typedef struct train_copier_options {
    size_t size;          /* sizeof (train_copier_options_t) */
    const char *device;   /* "cuda", "host" (CPU tensors alone); NULL = cuda
                             where a GPU is visible, else host */
    const char *transfer; /* between GPUs: "auto", "p2p", "staged"; NULL =
                             RV_TRANSFER, else "auto", which is peer copies
                             where both GPUs allow them and none failed yet */
    size_t ring_bytes;    /* pinned host memory; 0 = 64 MiB */
    size_t chunk_bytes;   /* of the ring at a time; 0 = 4 MiB; a multiple of
                             4096, at most ring_bytes / 2 */
    /* One line, no newline, from any thread of the copier; must not call the
     * copier. NULL: lines are dropped. [text] is valid during the call. */
    void (*log) (void *arg, const char *text);
    void *log_arg;
    const char *trace; /* file of Chrome trace JSON, replaced, of this copier
                          alone, whose list ends when the copier is destroyed
                          (readers of the format do without); NULL = none.
                          RV_TRACE: train/trace.h */
    /* Before the first peer copy of "auto" every pair of GPUs is tried with
     * patterned data, once a boot, driver and list of GPUs, by a child that
     * ends: `PROGRAM probe --json`. NULL = rv-train beside this program, else
     * where it is installed; "" = pairs are trusted until a sum differs.
     * Pairs that give wrong bytes, or gain nothing, go by the host; without
     * an answer all do; each with a line to the log. */
    const char *probe;
} train_copier_options_t;

typedef struct train_copy_options {
    size_t size; /* sizeof (train_copy_options_t) */
    train_verify_t verify;
    bool count_nonfinite; /* of what has arrived: F32, BF16 and F16 */
} train_copy_options_t;

typedef struct train_copy_report {
    train_copy_path_t path; /* of the bytes that stand */
    uint64_t bytes;         /* that went, in the type of the destination */
    uint64_t chunks;
    uint64_t nan, inf;      /* if count_nonfinite */
    int repeated;           /* 0, or 1 after sums that differed */
    bool verified;          /* sums of both ends were compared, and agree */
    bool mismatch;          /* they differed at first; then: */
    uint64_t bad_offset;    /* bytes from the start of the destination in its
                            row-major order, of the first wrong 8 */
    uint64_t expected, got; /* the 8 bytes there, little-endian */
} train_copy_report_t;

/* train_copier_create - open the devices, pin the ring, start the thread.
 *   opts         NULL = all defaults
 *   ret_copier   end with train_copier_destroy
 * Less pinned memory than asked for is logged, none too: copies then go
 * through pageable memory. TRAIN_EINVAL, TRAIN_ENOTSUP (that device cannot
 * serve), TRAIN_ENOMEM, TRAIN_EDEVICE, TRAIN_EIO (trace). */
train_status_t train_copier_create (const train_copier_options_t *opts,
                                    train_copier_t **ret_copier,
                                    train_error_t *err);

/* train_copier_destroy - wait for all copies and free; NULL is fine. Handles
 * that were not waited for become invalid. */
void train_copier_destroy (train_copier_t *copier);

/* train_copy - [src] to [dst], and wait for it.
 *   dst          written; CPU, CUDA or CUDAHost memory of any strides but 0;
 *                compact, or strided, of the shape of [src]
 *   dst_stream   work that was given to it before is waited for, and what is
 *                given to it later waits for the copy; NULL as above
 *   src          not written; must stay as it is until the copy is done
 *   src_stream   the same for the source
 *   opts         NULL = all defaults
 *   ret_report   may be NULL; written also on TRAIN_ECORRUPT
 * F32, BF16 and F16 are converted into each other, rounded to nearest even;
 * other types must be equal. Any thread; the caller's current device stays.
 * TRAIN_EINVAL: shapes, types, memory that overlaps, a device that is not there
 * or is not where the memory lies; TRAIN_EDEVICE; TRAIN_ECORRUPT: the bytes
 * were wrong twice, and those in [dst] are all ones (NaN); TRAIN_ESTATE: too
 * many copies are under way. After any failure [dst] is undefined. */
train_status_t train_copy (train_copier_t *copier, DLTensor *dst,
                           train_stream_t dst_stream, const DLTensor *src,
                           train_stream_t src_stream,
                           const train_copy_options_t *opts,
                           train_copy_report_t *ret_report, train_error_t *err);

/* train_copy_start - the same without waiting. The tensors themselves, their
 * shapes and strides, are read during the call only; the memory they show must
 * live, and the source stay as it is, until the copy is done.
 *   ret_copy   end with train_copy_wait */
train_status_t train_copy_start (train_copier_t *copier, DLTensor *dst,
                                 train_stream_t dst_stream, const DLTensor *src,
                                 train_stream_t src_stream,
                                 const train_copy_options_t *opts,
                                 train_copy_t **ret_copy, train_error_t *err);

/* train_copy_batch_start - [n] tensors from one device to another as one
 * stream of bytes: for many small ones. Each pair is compact, of one type and
 * size; all sources are on one device, all destinations too.
 *   dst, src   (n) arrays of pointers, read during the call; n <= 4096 and at
 *              most as many chunks of the ring as fit 8192 pieces */
train_status_t train_copy_batch_start (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const DLTensor *const *src, train_stream_t src_stream, size_t n,
    const train_copy_options_t *opts, train_copy_t **ret_copy,
    train_error_t *err);

/* train_copy_wait - until the copy is done; its status.
 *   copy         ended by the call, except with TRAIN_ETIMEDOUT
 *   timeout_ms   < 0 = for ever, 0 = ask only
 *   ret_report   may be NULL */
train_status_t train_copy_wait (train_copy_t *copy, int64_t timeout_ms,
                                train_copy_report_t *ret_report,
                                train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
