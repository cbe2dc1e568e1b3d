/* SPDX-License-Identifier: Apache-2.0
 * train/share.h - tensors between processes of one host, without a copy.
 *
 * A share is a block of memory that one process makes and others see. It is
 * given over a Unix socket with its handle, the view of one tensor in it, and
 * the sum of that tensor. Handles of host memory are descriptors of a memfd of
 * sealed size, so nothing has a name that a crash could leave behind, and
 * nobody can shrink it under a reader; those of GPU memory are CUDA's: a
 * descriptor (cuMemCreate) or an IPC handle (of cudaMalloc). The messages order
 * the accesses: what was written before train_share_give is seen after
 * train_share_take, and train_share_wait returns when the other side has
 * released what it took; then the block may be written again. Each give counts
 * as a reference until it is released; the end of a process ends its
 * references.
 *
 * Where a GPU's memory cannot be mapped (MIG, another container, a GPU that is
 * not there), or shows other bytes than were given, it is staged: copied to a
 * memfd, and from there to a GPU of the taker; the log of the giver's peer gets
 * one line. A taker asks for that while it takes, and is answered while the
 * giver waits (train_share_wait) or takes itself.
 *
 * Messages are checked, and a sum that differs is TRAIN_ECORRUPT; a process
 * that has been given more than 64 tensors that it has not taken, while it
 * waits itself, refuses the next. */
#ifndef TRAIN_SHARE_H
#define TRAIN_SHARE_H

#include <stddef.h>
#include <stdint.h>

#include <train/copy.h>
#include <train/status.h>
#include <train/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_share
    train_share_t;                      /* a block of memory of this process */
typedef struct train_peer train_peer_t; /* another process of this host */
typedef struct train_taken train_taken_t; /* a tensor in another's block */

/* What a handle is; both sides must know it. */
typedef enum train_share_kind {
    TRAIN_SHARE_AUTO = 0,     /* of GPU memory: 3, else 2, else 1 */
    TRAIN_SHARE_MEMFD = 1,    /* host memory; of GPU memory: always staged */
    TRAIN_SHARE_CUDA_IPC = 2, /* GPU memory of cudaMalloc */
    TRAIN_SHARE_CUDA_FD = 3,  /* GPU memory of cuMemCreate */
} train_share_kind_t;

typedef struct train_peer_options {
    size_t size;        /* sizeof (train_peer_options_t) */
    const char *name;   /* copied: what errors call it; NULL = "pid N" */
    int64_t timeout_ms; /* of each call; 0 = 60,000 */
    uint64_t max_bytes; /* largest block to map; 0 = no limit of ours */
    int device;         /* GPU for what is taken and cannot be mapped on the one
                           where it lies; -1: none, it is taken on the host */
    /* One line, no newline, from the thread of a call: why GPU memory is
     * staged. NULL: dropped. */
    void (*log) (void *arg, const char *text);
    void *log_arg;
} train_peer_options_t;

/* train_share_create - [bytes] of zeroed host memory that can be given.
 *   kind   TRAIN_SHARE_MEMFD
 * TRAIN_EINVAL (0 bytes), TRAIN_ENOTSUP, TRAIN_ENOMEM. */
train_status_t train_share_create (train_share_kind_t kind, size_t bytes,
                                   train_share_t **ret_share,
                                   train_error_t *err);

/* train_share_create_gpu - [bytes] of zeroed memory of GPU [device].
 *   kind   a kind that is asked for is used or refused: TRAIN_ENOTSUP; AUTO
 *          takes the first that this GPU allows
 * TRAIN_EINVAL, TRAIN_ENOTSUP (no GPU), TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t train_share_create_gpu (train_share_kind_t kind, int device,
                                       size_t bytes, train_share_t **ret_share,
                                       train_error_t *err);

/* train_share_wrap - GPU memory that the caller has already.
 *   kind     AUTO, TRAIN_SHARE_CUDA_IPC or TRAIN_SHARE_MEMFD
 *   memory   (bytes) of one GPU, in one allocation; borrowed until
 *            train_share_destroy has returned TRAIN_OK. The peer maps the whole
 *            allocation that it lies in: it could read what lies beside it
 * TRAIN_ENOTSUP: it has no IPC handle (a pool, managed memory). */
train_status_t train_share_wrap (train_share_kind_t kind, void *memory,
                                 size_t bytes, train_share_t **ret_share,
                                 train_error_t *err);

/* What it came to be; never AUTO. */
train_share_kind_t train_share_kind (const train_share_t *share);
void *train_share_data (const train_share_t *share);
size_t train_share_bytes (const train_share_t *share);
size_t train_share_refs (const train_share_t *share); /* given, not released */

/* train_share_destroy - TRAIN_ESTATE while others hold references: wait for
 * them, or close their peers, first. NULL is fine. */
train_status_t train_share_destroy (train_share_t *share, train_error_t *err);

/* train_peer_open - the process at the other end of [fd].
 *   fd    Unix socket of type SOCK_SEQPACKET, connected; taken over on success
 *   opts  NULL = all defaults
 * One thread at a time for a peer and the shares that were given to it. */
train_status_t train_peer_open (int fd, const train_peer_options_t *opts,
                                train_peer_t **ret_peer, train_error_t *err);
/* Ends its references to our shares, but not those of a living process to
 * TRAIN_SHARE_CUDA_IPC: CUDA forbids to free what another has mapped, so
 * train_share_wait first. What was taken from it stays readable until it is
 * released; TRAIN_SHARE_CUDA_IPC only while the giver lives. NULL is fine. */
void train_peer_close (train_peer_t *peer);

/* train_share_give - let [peer] see a tensor of [share].
 *   t   compact, where the block is, its bytes within it; read once, for the
 *       sum; not to be written until released
 * TRAIN_EPEER: the peer ended; TRAIN_ETIMEDOUT: it takes nothing. */
train_status_t train_share_give (train_share_t *share, train_peer_t *peer,
                                 const DLTensor *t, train_error_t *err);
/* train_share_give_on - the same after what [stream] was given before.
 *   stream   of the share's GPU, as in train/copy.h; NULL: the tensor is ready
 * Returns when the sum is there: the stream has come so far by then. */
train_status_t train_share_give_on (train_share_t *share, train_peer_t *peer,
                                    const DLTensor *t, train_stream_t stream,
                                    train_error_t *err);

/* train_share_wait - until [peer] has released all that it has of [share].
 * TRAIN_EPEER: it ended; its references are gone, and the block may be written
 * all the same. TRAIN_ETIMEDOUT: they are not. */
train_status_t train_share_wait (train_share_t *share, train_peer_t *peer,
                                 train_error_t *err);

/* train_share_take - the next tensor that [peer] gives, its sum compared.
 *   ret_taken   end with train_taken_release
 * TRAIN_EINVAL: an IPC handle of this process itself, which CUDA does not open.
 * TRAIN_EPEER, TRAIN_ETIMEDOUT; TRAIN_EFORMAT: a message that cannot be; then
 * the peer can only be closed. TRAIN_ECORRUPT, TRAIN_ENOTSUP, TRAIN_ENOMEM:
 * this one was released; the next may be taken. */
train_status_t train_share_take (train_peer_t *peer, train_taken_t **ret_taken,
                                 train_error_t *err);
/* The tensor, read-only; it lives with [taken]. */
const DLTensor *train_taken_tensor (const train_taken_t *taken);
/* Tells the peer, if it is still there. NULL is fine. */
void train_taken_release (train_taken_t *taken);
/* train_taken_release_on - the same once [stream], which reads the tensor, has
 * done what it was given. TRAIN_EDEVICE: it failed; released all the same. */
train_status_t train_taken_release_on (train_taken_t *taken,
                                       train_stream_t stream,
                                       train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
