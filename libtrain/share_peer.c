/* SPDX-License-Identifier: Apache-2.0
 * share_peer.c - messages about shared tensors between two processes */
#include "config.h"

#include "share_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "err.h"
#include "opts.h"
#include "sock.h"

#define DEFAULT_TIMEOUT_MS 60000

static train_status_t check_socket (int fd, train_error_t *err)
{
    int type = 0, domain = 0, own;
    socklen_t n = sizeof (type), m = sizeof (domain);

    if (fd < 0 || getsockopt (fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0
        || getsockopt (fd, SOL_SOCKET, SO_DOMAIN, &domain, &m) < 0
        || type != SOCK_SEQPACKET || domain != AF_UNIX)
        return err_set (err, TRAIN_EINVAL,
                        "share: no Unix socket of type SOCK_SEQPACKET");
    if ((own = fcntl (fd, F_GETFD)) < 0
        || fcntl (fd, F_SETFD, own | FD_CLOEXEC) < 0)
        return err_set (err, TRAIN_EIO, "share: %s", strerror (errno));
    return TRAIN_OK;
}

static char *name_of (int fd, const char *name)
{
    struct ucred cred = {0};
    socklen_t n = sizeof (cred);
    char *out = NULL;

    if (name)
        return strdup (name);
    getsockopt (fd, SOL_SOCKET, SO_PEERCRED, &cred, &n);
    return asprintf (&out, "pid %d", (int)cred.pid) < 0 ? NULL : out;
}

train_status_t train_peer_open (int fd, const train_peer_options_t *opts,
                                train_peer_t **ret_peer, train_error_t *err)
{
    train_peer_options_t o;
    train_status_t status;
    train_peer_t *p;

    if (!ret_peer)
        return err_set (err, TRAIN_EINVAL, "share: no result");
    if ((status = opts_read (&o, sizeof (o), opts, "share", err)) != TRAIN_OK)
        return status;
    if (o.timeout_ms < 0 || o.device < -1)
        return err_set (err, TRAIN_EINVAL, "share: a negative deadline or GPU");
    if ((status = check_socket (fd, err)) != TRAIN_OK)
        return status;
    p = calloc (1, sizeof (*p));
    if (!p || !(p->name = name_of (fd, o.name))) {
        free (p);
        return err_set (err, TRAIN_ENOMEM, "share: no memory");
    }
    p->fd = fd;
    p->timeout_ms =
        o.timeout_ms ? clock_span (o.timeout_ms) : DEFAULT_TIMEOUT_MS;
    p->max_bytes = o.max_bytes ? o.max_bytes : SIZE_MAX / 2;
    p->device = o.device;
    p->log = o.log;
    p->log_arg = o.log_arg;
    p->again.fd = -1;
    *ret_peer = p;
    return TRAIN_OK;
}

void share_ungive (train_peer_t *p, struct given *given)
{
    struct given **at = &p->given;

    while (*at != given)
        at = &(*at)->next;
    *at = given->next;
    given->share->refs--;
    free (given);
}

/* All that the peer has of ours. [lives]: it may have memory mapped that must
 * not be freed under it, so those references stay counted. */
static void drop_given (train_peer_t *p, bool lives)
{
    while (p->given) {
        struct given *g = p->given;
        bool stays = lives && g->msg.kind == TRAIN_SHARE_CUDA_IPC;

        g->share->refs += stays;
        share_ungive (p, g);
    }
}

void train_peer_close (train_peer_t *peer)
{
    if (!peer)
        return;
    drop_given (peer, !peer->ended);
    for (; peer->queued > 0; peer->queued--) {
        sock_close (&peer->queue[peer->first].fd);
        peer->first = (peer->first + 1) % SHARE_QUEUE;
    }
    sock_close (&peer->again.fd);
    /* Mappings go with the last tensor in them. */
    for (struct train_taken *t = peer->taken; t; t = t->next)
        t->peer = NULL;
    for (int i = 0; i < SHARE_GPUS; i++)
        share_lane_close (&peer->lane[i]);
    sock_close (&peer->fd);
    free (peer->name);
    free (peer);
}

static train_status_t ended (train_peer_t *p, train_error_t *err)
{
    p->ended = true;
    drop_given (p, false);
    return err_set (err, TRAIN_EPEER, "%s: the process ended", p->name);
}

static train_status_t broken (train_peer_t *p, const char *why,
                              train_error_t *err)
{
    p->broken = true;
    return err_set (err, TRAIN_EFORMAT, "%s: %s", p->name, why);
}

static train_status_t await (train_peer_t *p, short events, int64_t deadline_ms,
                             train_error_t *err)
{
    struct pollfd fd = {.fd = p->fd, .events = events};
    int rc;

    do {
        rc = poll (&fd, 1, clock_left (deadline_ms, 1000));
    } while ((rc < 0 && errno == EINTR)
             || (rc == 0 && clock_left (deadline_ms, 1) > 0));
    if (rc > 0)
        return TRAIN_OK;
    return err_set (err, rc == 0 ? TRAIN_ETIMEDOUT : TRAIN_EIO,
                    "%s: nothing from it in %lld ms", p->name,
                    (long long)p->timeout_ms);
}

union control {
    char bytes[CMSG_SPACE (sizeof (int))];
    struct cmsghdr align;
};

train_status_t share_send (train_peer_t *p, const struct share_msg *msg, int fd,
                           int64_t deadline_ms, train_error_t *err)
{
    struct iovec iov = {(void *)msg, sizeof (*msg)};
    union control control = {{0}};
    struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
    train_status_t status;

    if (p->ended)
        return ended (p, err);
    if (fd >= 0) {
        struct cmsghdr *c;

        h.msg_control = control.bytes;
        h.msg_controllen = sizeof (control.bytes);
        c = CMSG_FIRSTHDR (&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN (sizeof (fd));
        memcpy (CMSG_DATA (c), &fd, sizeof (fd));
    }
    while (sendmsg (p->fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EPIPE || errno == ECONNRESET)
            return ended (p, err);
        if (errno == EAGAIN)
            status = await (p, POLLOUT, deadline_ms, err);
        else if (errno == EINTR)
            status = TRAIN_OK;
        else
            status =
                err_set (err, TRAIN_EIO, "%s: %s", p->name, strerror (errno));
        if (status != TRAIN_OK)
            return status;
    }
    return TRAIN_OK;
}

/* The first descriptor of a message; more of them are closed. */
static int first_fd (struct msghdr *h)
{
    int first = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR (h); c; c = CMSG_NXTHDR (h, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN (0)) / sizeof (int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy (&fd, CMSG_DATA (c) + i * sizeof (int), sizeof (int));
            if (first < 0)
                first = fd;
            else
                close (fd);
        }
    }
    return first;
}

static struct given *find_given (const train_peer_t *p,
                                 const struct share_msg *msg)
{
    struct given *g = p->given;

    while (g && (g->msg.id != msg->id || g->msg.seq != msg->seq))
        g = g->next;
    return g;
}

static train_status_t answered (train_peer_t *p, struct share_msg *msg,
                                int64_t deadline_ms, train_error_t *err)
{
    struct given *g = find_given (p, msg);

    if (!g)
        return broken (p,
                       msg->op == SHARE_RELEASE
                           ? "it released what it does not have"
                           : "it refused what it was not given",
                       err);
    if (msg->op == SHARE_RELEASE) {
        share_ungive (p, g);
        return TRAIN_OK;
    }
    if (!g->share->gpu || g->msg.kind == TRAIN_SHARE_MEMFD)
        return broken (p, "it refused host memory", err);
    msg->text[SHARE_TEXT - 1] = '\0';
    for (char *c = msg->text; *c; c++)
        *c = *c < ' ' || *c > '~' ? '?' : *c; /* it goes to a log */
    return share_again (p, g, msg->text, deadline_ms, err);
}

static train_status_t act (train_peer_t *p, struct share_msg *msg, int fd,
                           int64_t deadline_ms, train_error_t *err)
{
    size_t at = (p->first + p->queued) % SHARE_QUEUE;

    if (msg->magic != SHARE_MAGIC || msg->op > SHARE_AGAIN || msg->op == 0) {
        sock_close (&fd);
        return broken (p, "it does not speak of shares", err);
    }
    if (msg->op == SHARE_RELEASE || msg->op == SHARE_REFUSE) {
        sock_close (&fd);
        return answered (p, msg, deadline_ms, err);
    }
    if (msg->op == SHARE_AGAIN) {
        sock_close (&p->again.fd);
        p->again = (struct waiting){.msg = *msg, .fd = fd};
        p->answered = true;
        return TRAIN_OK;
    }
    if (p->queued == SHARE_QUEUE) {
        sock_close (&fd);
        return broken (p, "it gives more than is taken", err);
    }
    p->queue[at] = (struct waiting){.msg = *msg, .fd = fd};
    p->queued++;
    return TRAIN_OK;
}

train_status_t share_read (train_peer_t *p, int64_t deadline_ms,
                           train_error_t *err)
{
    struct share_msg msg;
    struct iovec iov = {&msg, sizeof (msg)};
    union control control;
    struct msghdr h = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof (control.bytes)};
    train_status_t status;
    ssize_t n;
    int fd;

    if (p->ended)
        return ended (p, err);
    if (p->broken)
        return err_set (err, TRAIN_ESTATE, "%s: an earlier message was wrong",
                        p->name);
    if ((status = await (p, POLLIN, deadline_ms, err)) != TRAIN_OK)
        return status;
    n = recvmsg (p->fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return TRAIN_OK;
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return ended (p, err);
    if (n < 0)
        return err_set (err, TRAIN_EIO, "%s: %s", p->name, strerror (errno));
    fd = first_fd (&h);
    if (n != sizeof (msg) || (h.msg_flags & MSG_TRUNC)) {
        sock_close (&fd);
        return broken (p, "a message of another length", err);
    }
    return act (p, &msg, fd, deadline_ms, err);
}
