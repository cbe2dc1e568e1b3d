/* SPDX-License-Identifier: Apache-2.0
 * train/frames.h - tensors over a socket, each set of them one checked frame.
 *
 * A frame is the length of its payload (8 bytes, little-endian), the payload,
 * which is a whole safetensors file, and the payload's XXH3 (64 bits,
 * little-endian). Length 0 alone ends the stream: a connection that closes
 * without it is a peer that went away. Each call has one deadline for all of
 * its bytes. A sender holds no copy of the data; a receiver takes memory as
 * bytes arrive, whatever length was announced, and never more than it allows.
 * Nothing here is a secret or proves who the other side is. */
#ifndef TRAIN_FRAMES_H
#define TRAIN_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include <train/safetensors.h>
#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_frames train_frames_t;

typedef struct train_frames_options {
    size_t size;        /* sizeof (train_frames_options_t) */
    const char *peer;   /* copied: what errors call the other side, a host or
                           rank; NULL = "the other side" */
    int64_t timeout_ms; /* of each call; 0 = 60,000 */
    uint64_t max_bytes; /* longest payload to take; 0 = 1 GiB */
} train_frames_options_t;

/* train_frames_open - frames over a connected socket.
 *   fd           stream socket (TCP or Unix); taken over on success: closed by
 *                train_frames_close; made close-on-exec and non-blocking
 *   opts         NULL = all defaults
 *   ret_frames   end with train_frames_close
 * TRAIN_EINVAL: no stream socket. One thread at a time a direction: one may
 * send while another receives. */
train_status_t train_frames_open (int fd, const train_frames_options_t *opts,
                                  train_frames_t **ret_frames,
                                  train_error_t *err);

/* train_frames_send - one set of tensors; entries and metadata as for
 * train_safetensors_write. TRAIN_OK: the bytes are the kernel's; whether the
 * other side has read them, only an answer tells. Two sides that both send
 * more than sockets hold, and do not read, run into the deadline.
 * TRAIN_EINVAL: nothing was sent. TRAIN_EPEER: the other side is gone.
 * TRAIN_ETIMEDOUT. After these two, TRAIN_ESTATE to each later send. */
train_status_t train_frames_send (train_frames_t *frames,
                                  const train_st_entry_t *entries, size_t n,
                                  const train_st_meta_t *meta, size_t n_meta,
                                  train_error_t *err);

/* train_frames_end - say that nothing more comes. Sends then are
 * TRAIN_ESTATE. */
train_status_t train_frames_end (train_frames_t *frames, train_error_t *err);

/* train_frames_recv - the next set of tensors.
 *   ret_file   in memory of its own; end with train_safetensors_close, also
 *              after train_frames_close. NULL with TRAIN_OK: the other side
 *              has ended the stream, now or before
 * TRAIN_EPEER: it went away, at a named byte; TRAIN_ETIMEDOUT; TRAIN_EFORMAT:
 * too long, or no safetensors; TRAIN_ECORRUPT: the sum differs; TRAIN_ENOMEM.
 * All name the peer; after each the next is TRAIN_ESTATE. */
train_status_t train_frames_recv (train_frames_t *frames,
                                  train_safetensors_t **ret_file,
                                  train_error_t *err);

/* Closes the socket; NULL is fine. Without train_frames_end before, the other
 * side gets TRAIN_EPEER. */
void train_frames_close (train_frames_t *frames);

#ifdef __cplusplus
}
#endif
#endif
