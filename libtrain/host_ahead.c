/* SPDX-License-Identifier: Apache-2.0
 * host_ahead.c - words that come behind data which has no place yet
 *
 * Data of a call that this leader has not come to stays in its connection, and
 * so would what another leader says after it: that the call has failed. So the
 * thread of a leader in no call reads on, into memory of its own, hears the
 * words, and leaves the data there for the call. */
#include "config.h"

#include "host.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define AHEAD_MAX ((size_t)4 << 20)

bool net_is_word (uint32_t type)
{
    return type == FRAME_CALL || type == FRAME_FAIL || type == FRAME_LEAVE
           || type == FRAME_HERE || type == FRAME_TAKEN;
}

ssize_t ahead_recv (struct peer *peer, char *to, size_t n)
{
    size_t left = peer->ahead_n - peer->ahead_at;

    if (left == 0)
        return recv (peer->fd, to, n, 0);
    n = n < left ? n : left;
    memcpy (to, peer->ahead + peer->ahead_at, n);
    peer->ahead_at += n;
    if (peer->ahead_at == peer->ahead_n)
        peer->ahead_at = peer->ahead_n = 0;
    return (ssize_t)n;
}

static void read_on (struct peer *peer)
{
    ssize_t n = 1;

    if (!peer->ahead && !(peer->ahead = malloc (AHEAD_MAX)))
        return;
    while (n > 0 && peer->ahead_n < AHEAD_MAX) {
        n = recv (peer->fd, peer->ahead + peer->ahead_n,
                  AHEAD_MAX - peer->ahead_n, 0);
        peer->ahead_n += n > 0 ? (size_t)n : 0;
    }
}

/* A word that was heard stays where it is, as one that says nothing. */
static void hear (struct host *host, int node)
{
    struct peer *peer = &host->peers[node];
    size_t at =
        peer->ahead_at + (peer->in.len - (peer->got - sizeof (peer->in)));
    struct frame f;

    while (at + sizeof (f) <= peer->ahead_n) {
        char *data = peer->ahead + at + sizeof (f);

        memcpy (&f, peer->ahead + at, sizeof (f));
        if (f.len > peer->ahead_n - at - sizeof (f))
            break;
        if (net_is_word (f.type) && f.len < sizeof (peer->text)
            && net_take_word (host, node, &f, data)) {
            f.type = FRAME_TAKEN;
            memcpy (peer->ahead + at, &f, sizeof (f));
        }
        at += sizeof (f) + f.len;
    }
}

void net_look_ahead (struct host *host)
{
    for (int n = 0; n < host->nodes; n++) {
        struct peer *peer = &host->peers[n];
        bool stuck =
            peer->fd >= 0 && peer->got >= sizeof (peer->in) && !peer->to;

        if (stuck && peer->stuck) { /* for a slice */
            read_on (peer);
            hear (host, n);
        }
        peer->stuck = stuck;
    }
}
