/* SPDX-License-Identifier: Apache-2.0
 * sock.h - TCP with deadlines. Inside libtrain only.
 *
 * All descriptors are close-on-exec, non-blocking, without delay of small
 * writes (TCP_NODELAY), with keep-alive, and raise no SIGPIPE. Deadlines are
 * moments on clock_ms. */
#ifndef TRAIN_SOCK_H
#define TRAIN_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <train/status.h>

/* clock_ms - milliseconds of a clock that never jumps (CLOCK_MONOTONIC). */
int64_t clock_ms (void);
/* clock_s - seconds of the same clock, to tell how long something took. */
double clock_s (void);

/* clock_left - milliseconds until [deadline_ms], 0..[max]; for poll. */
int clock_left (int64_t deadline_ms, int max);

/* clock_span - [ms] of a caller, but no more than a deadline may lie ahead: 68
 * years, as much as RV_NCCL_TIMEOUT can say. */
static inline int64_t clock_span (int64_t ms)
{
    const int64_t most = (int64_t)INT32_MAX * 1000;

    return ms < most ? ms : most;
}

/* sock_listen - a listening socket.
 *   host       numeric address, NULL = all addresses of this node
 *   port       0 = any free; a port that another socket holds bound, but not
 *              listening, with SO_REUSEADDR is taken
 *   ret_port   the port; may be NULL
 * TRAIN_EIO with the reason; errno is EADDRINUSE or EADDRNOTAVAIL then. */
train_status_t sock_listen (const char *host, uint16_t port, int *ret_fd,
                            uint16_t *ret_port, train_error_t *err);

/* sock_accept - next connection, or -1 with errno (EAGAIN: none waits). Where
 * descriptors or memory are short it takes a moment to say so: poll finds the
 * connection that waits again at once. */
int sock_accept (int listener);

/* sock_is_short - does [error] say that descriptors or memory are? */
bool sock_is_short (int error);

/* sock_connect - one attempt to each address of [host].
 *   host   name or numeric address
 * TRAIN_EPEER when nobody listens there or it cannot be reached (a retry may
 * help), TRAIN_ETIMEDOUT, TRAIN_EINVAL when the name is unknown. */
train_status_t sock_connect (const char *host, uint16_t port,
                             int64_t deadline_ms, int *ret_fd,
                             train_error_t *err);

/* sock_send, sock_recv - all [n] bytes, or -1 with errno: ETIMEDOUT, and
 * ECONNRESET also for an orderly end of the other side. */
int sock_send (int fd, const void *buf, size_t n, int64_t deadline_ms);
int sock_recv (int fd, void *buf, size_t n, int64_t deadline_ms);

/* sock_local_host - numeric address of this side of a connection.
 *   text   (size) written; "" if it cannot be had */
void sock_local_host (int fd, char *text, size_t size);

/* sock_close - close and set to -1; -1 is fine. Keeps errno. */
void sock_close (int *fd);

#endif
