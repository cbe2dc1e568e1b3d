/* SPDX-License-Identifier: Apache-2.0
 * host_connect.c - the leaders of the nodes find each other */
#include "config.h"

#include "host.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "sock.h"

#define GREET_MS  5000
#define NET_MAGIC 0x31544552544e4f43u

/* First bytes of a leader that connects. */
struct greeting {
    uint64_t magic; /* reads otherwise with another byte order */
    uint64_t nonce;
    uint32_t node, nodes;
};

static struct greeting greeting_of (const struct host *host, int node,
                                    uint64_t nonce)
{
    struct greeting g = {NET_MAGIC, nonce, (uint32_t)node,
                         (uint32_t)host->nodes};

    return g;
}

/* To the leader of a lower node: each of its addresses, best first. */
static train_status_t connect_to (struct host *host, int node,
                                  const struct host_card *card, uint64_t nonce,
                                  int64_t deadline_ms, train_error_t *err)
{
    struct greeting g = greeting_of (host, host->node, nonce);
    char list[sizeof (card->addresses)], *save = NULL;
    train_error_t why = {0};
    int fd = -1;

    memcpy (list, card->addresses, sizeof (list));
    list[sizeof (list) - 1] = '\0';
    for (char *a = strtok_r (list, " ", &save); a;
         a = strtok_r (NULL, " ", &save)) {
        int64_t until_ms = clock_ms () + GREET_MS;

        if (sock_connect (a, card->port,
                          until_ms < deadline_ms ? until_ms : deadline_ms, &fd,
                          &why)
                != TRAIN_OK
            || sock_send (fd, &g, sizeof (g), deadline_ms) < 0) {
            sock_close (&fd);
            continue;
        }
        host->peers[node].fd = fd;
        return TRAIN_OK;
    }
    return err_set (err, TRAIN_EPEER,
                    "rank %d cannot reach rank %d on another node: %s",
                    host->rank, host->leader_of[node],
                    why.text[0] ? why.text : "it has no address");
}

/* A guest that is not one of the awaited leaders is shown out. */
static bool take_guest (struct host *host, int fd, uint64_t nonce)
{
    struct greeting g, want;

    if (sock_recv (fd, &g, sizeof (g), clock_ms () + GREET_MS) < 0)
        return false;
    want = greeting_of (host, (int)g.node, nonce);
    if (memcmp (&g, &want, sizeof (g)) != 0 || (int)g.node <= host->node
        || (int)g.node >= host->nodes || host->peers[g.node].fd >= 0)
        return false;
    host->peers[g.node].fd = fd;
    return true;
}

static train_status_t accept_rest (struct host *host, int listener,
                                   uint64_t nonce, int64_t deadline_ms,
                                   train_error_t *err)
{
    struct pollfd p = {listener, POLLIN, 0};

    for (int n = host->node + 1; n < host->nodes;) {
        int fd = sock_accept (listener);

        if (fd >= 0 && take_guest (host, fd, nonce)) {
            n++;
            continue;
        }
        sock_close (&fd);
        if (clock_left (deadline_ms, 1) == 0)
            return err_set (err, TRAIN_ETIMEDOUT,
                            "a leader of another node did not connect to rank "
                            "%d within the deadline",
                            host->rank);
        poll (&p, 1, clock_left (deadline_ms, 1000));
    }
    return TRAIN_OK;
}

static train_status_t make_peers (struct host *host, train_error_t *err)
{
    size_t n = (size_t)host->nodes;

    /* at most: every call of this node twice (one call ahead), one window of
     * sums a run, one window of results, a sign of life, failure and goodbye */
    host->queue_max =
        (unsigned)(2 * host->local_size + HOST_DEPTH * (host->hops + 1) + 3);
    host->peers = calloc (n, sizeof (*host->peers));
    host->polls = calloc (n + 1, sizeof (*host->polls));
    for (int i = 0; host->peers && i < host->nodes; i++) {
        host->peers[i].fd = -1;
        host->peers[i].queue =
            calloc (host->queue_max, sizeof (*host->peers[i].queue));
        if (!host->peers[i].queue)
            return err_set (err, TRAIN_ENOMEM, "no memory for %zu nodes", n);
    }
    if (!host->peers || !host->polls)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu nodes", n);
    return TRAIN_OK;
}

train_status_t net_init (struct host *host, int listener,
                         const struct host_card *cards, uint64_t nonce,
                         int64_t deadline_ms, train_error_t *err)
{
    train_status_t status = make_peers (host, err);

    for (int n = 0; n < host->node && status == TRAIN_OK; n++)
        status = connect_to (host, n, &cards[host->leader_of[n]], nonce,
                             deadline_ms, err);
    if (status == TRAIN_OK)
        status = accept_rest (host, listener, nonce, deadline_ms, err);
    return status;
}
