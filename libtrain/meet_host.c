/* SPDX-License-Identifier: Apache-2.0
 * meet_host.c - rank 0 receives the others
 *
 * Whoever connects is a guest until its greeting is complete and right; guests
 * cost nothing but a slot and are shown out after a while, so a stray program
 * cannot hold the meeting up. */
#include "meet_impl.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"
#include "err.h"
#include "sock.h"

#define MAX_GUESTS 64
#define GUEST_MS   10000
#define SAY_MS     5000
#define BIND_MS    5000

struct guest {
    int fd; /* -1 = free */
    size_t got;
    int64_t until_ms;
    struct meet_greeting hello;
};

struct party {
    struct meet *meet;
    const struct meet_place *place;
    int listener;
    int n_came;
    int short_of; /* errno where the last guest could not be let in */
    struct guest guests[MAX_GUESTS];
    struct pollfd *polls; /* 1 + MAX_GUESTS + size */
};

static bool is_absent (const void *arg, int rank)
{
    const struct meet *meet = arg;

    return rank != 0 && meet->fds[rank] < 0;
}

/* All who are there hear the same. */
static train_status_t give_up (struct meet *meet, const train_error_t *why,
                               train_error_t *err)
{
    for (int r = 1; r < meet->size; r++) {
        if (meet->fds[r] >= 0)
            meet_say (meet->fds[r], why->code, why->text, strlen (why->text),
                      clock_ms () + SAY_MS);
    }
    return err_set (err, why->code, "%s", why->text);
}

static void refuse (struct guest *guest, const char *text)
{
    meet_say (guest->fd, TRAIN_EMISMATCH, text, strlen (text),
              clock_ms () + 100);
    sock_close (&guest->fd);
}

static void refuse_other (struct guest *guest, const struct meet_place *place)
{
    char text[400];

    snprintf (text, sizeof (text),
              "at %s%s port %u another group meets (another job, step, size or "
              "name)",
              place->called, place->hosts, place->port);
    refuse (guest, text);
}

static void judge (struct party *party, struct guest *guest)
{
    struct meet *meet = party->meet;
    struct meet_greeting want =
        meet_greeting_of (party->place, (int)guest->hello.rank, meet->size);
    uint32_t rank = guest->hello.rank;

    if (memcmp (guest->hello.magic, want.magic, sizeof (want.magic)) != 0)
        sock_close (&guest->fd); /* not one of us, would not understand */
    else if (memcmp (&guest->hello, &want, sizeof (want)) != 0)
        refuse_other (guest, party->place);
    else if (rank == 0 || rank >= (uint32_t)meet->size || meet->fds[rank] >= 0)
        refuse (guest, "two processes claim this RANK");
    else if (meet_say (guest->fd, TRAIN_OK, NULL, 0, clock_ms () + SAY_MS) < 0)
        sock_close (&guest->fd);
    else {
        meet->fds[rank] = guest->fd;
        guest->fd = -1;
        party->n_came++;
    }
}

static void hear_guest (struct party *party, struct guest *guest)
{
    ssize_t n = recv (guest->fd, (char *)&guest->hello + guest->got,
                      sizeof (guest->hello) - guest->got, 0);

    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR))
            sock_close (&guest->fd);
        return;
    }
    guest->got += (size_t)n;
    if (guest->got == sizeof (guest->hello))
        judge (party, guest);
}

static void let_in (struct party *party)
{
    int fd;

    while ((fd = sock_accept (party->listener)) >= 0) {
        struct guest *free_one = NULL;

        party->short_of = 0;
        for (int i = 0; i < MAX_GUESTS && !free_one; i++) {
            if (party->guests[i].fd < 0)
                free_one = &party->guests[i];
        }
        if (!free_one) {
            sock_close (&fd);
            return;
        }
        *free_one =
            (struct guest){.fd = fd, .until_ms = clock_ms () + GUEST_MS};
    }
    if (sock_is_short (errno))
        party->short_of = errno;
}

/* Nothing is expected from those who have come: what can be read is an end. */
static train_status_t check_came (struct meet *meet, const struct pollfd *polls,
                                  train_error_t *err)
{
    for (int r = 1; r < meet->size; r++) {
        if (meet->fds[r] >= 0 && polls[r].fd == meet->fds[r]
            && polls[r].revents)
            return err_set (err, TRAIN_EPEER,
                            "rank %d ended while the ranks met", r);
    }
    return TRAIN_OK;
}

/* poll(2): EINVAL where there are more entries than files may be open. */
static train_status_t cannot_poll (const struct meet *meet, nfds_t n,
                                   train_error_t *err)
{
    if (errno == EINVAL)
        return err_set (err, TRAIN_EIO,
                        "to meet %d ranks takes a limit of open files (ulimit "
                        "-n) of %ju at least",
                        meet->size, (uintmax_t)n);
    return err_set (err, TRAIN_EIO, "poll: %s", strerror (errno));
}

static train_status_t party_step (struct party *party, int64_t deadline_ms,
                                  train_error_t *err)
{
    struct pollfd *guests = party->polls + 1, *came = guests + MAX_GUESTS;
    struct meet *meet = party->meet;
    nfds_t n = (nfds_t)(1 + MAX_GUESTS + meet->size);
    int64_t now;

    party->polls[0] = (struct pollfd){party->listener, POLLIN, 0};
    for (int i = 0; i < MAX_GUESTS; i++)
        guests[i] = (struct pollfd){party->guests[i].fd, POLLIN, 0};
    for (int r = 0; r < meet->size; r++)
        came[r] = (struct pollfd){meet->fds[r], POLLIN, 0};
    if (poll (party->polls, n, clock_left (deadline_ms, 1000)) < 0
        && errno != EINTR)
        return cannot_poll (meet, n, err);
    now = clock_ms ();
    for (int i = 0; i < MAX_GUESTS; i++) {
        if (party->guests[i].fd >= 0 && guests[i].revents)
            hear_guest (party, &party->guests[i]);
        if (party->guests[i].fd >= 0 && now > party->guests[i].until_ms)
            sock_close (&party->guests[i].fd);
    }
    if (party->polls[0].revents)
        let_in (party);
    return check_came (meet, came, err);
}

static train_status_t wait_for_all (struct party *party, int64_t deadline_ms,
                                    train_error_t *err)
{
    struct meet *meet = party->meet;
    train_error_t why;
    char ranks[160];

    while (party->n_came < meet->size - 1) {
        if (party_step (party, deadline_ms, &why) != TRAIN_OK)
            return give_up (meet, &why, err);
        if (party->n_came < meet->size - 1
            && clock_left (deadline_ms, 1) == 0) {
            comm_ranks (is_absent, meet, meet->size, ranks, sizeof (ranks));
            err_set (
                &why, TRAIN_ETIMEDOUT,
                "%s did not come to the meeting at %s%s port %u within the "
                "deadline%s%s%s",
                ranks, party->place->called, party->place->hosts,
                party->place->port,
                party->short_of ? ": rank 0 could not let them in: " : "",
                party->short_of ? strerror (party->short_of) : "",
                party->short_of ? " (ulimit -n must be above the number of "
                                  "ranks)"
                                : "");
            return give_up (meet, &why, err);
        }
    }
    return TRAIN_OK;
}

static bool is_numeric (const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *list;

    if (getaddrinfo (host, NULL, &hints, &list) != 0)
        return false;
    freeaddrinfo (list);
    return true;
}

/* A name may stand for the loopback here and for the network elsewhere
 * (Debian's /etc/hosts), so only a numeric address is bound as it is. */
static train_status_t bind_place (struct party *party, int64_t deadline_ms,
                                  train_error_t *err)
{
    const struct meet_place *place = party->place;
    const char *host = is_numeric (place->hosts) ? place->hosts : NULL;
    int64_t until_ms = clock_ms () + BIND_MS;
    train_status_t status;

    if (until_ms > deadline_ms)
        until_ms = deadline_ms;
    for (int i = 0;; i = (i + 1) % place->n_ports) {
        status = sock_listen (host, (uint16_t)(place->port + i),
                              &party->listener, NULL, err);
        if (status == TRAIN_OK)
            return TRAIN_OK;
        if (errno == EADDRNOTAVAIL && host) {
            host = NULL;
            continue;
        }
        if (errno != EADDRINUSE || clock_left (until_ms, 1) == 0)
            return err_prefix (err, status, "rank 0 cannot hold the meeting");
        if (i == place->n_ports - 1)
            poll (NULL, 0, 50);
    }
}

/* The address by which another machine talks to us, if one does. */
static void note_host (struct meet *meet, const struct meet_place *place)
{
    snprintf (meet->host, sizeof (meet->host), "%s", place->hosts);
    for (int r = 1; r < meet->size; r++) {
        char text[sizeof (meet->host)];

        sock_local_host (meet->fds[r], text, sizeof (text));
        if (text[0] == '\0')
            continue;
        snprintf (meet->host, sizeof (meet->host), "%s", text);
        if (strncmp (text, "127.", 4) != 0 && strcmp (text, "::1") != 0)
            return;
    }
}

static train_status_t welcome_all (struct meet *meet, train_error_t *err)
{
    train_error_t why;

    for (int r = 1; r < meet->size; r++) {
        if (meet_say (meet->fds[r], TRAIN_OK, NULL, 0, clock_ms () + SAY_MS)
            < 0) {
            err_set (&why, TRAIN_EPEER, "rank %d ended while the ranks met", r);
            return give_up (meet, &why, err);
        }
    }
    return TRAIN_OK;
}

train_status_t meet_receive (struct meet *meet, const struct meet_place *place,
                             int64_t deadline_ms, train_error_t *err)
{
    struct party party = {.meet = meet, .place = place, .listener = -1};
    train_status_t status;

    for (int i = 0; i < MAX_GUESTS; i++)
        party.guests[i].fd = -1;
    meet->fds = malloc ((size_t)meet->size * sizeof (*meet->fds));
    party.polls =
        calloc ((size_t)(1 + MAX_GUESTS + meet->size), sizeof (*party.polls));
    if (!meet->fds || !party.polls) {
        free (meet->fds);
        free (party.polls);
        meet->fds = NULL;
        return err_set (err, TRAIN_ENOMEM, "no memory to meet the other ranks");
    }
    for (int r = 0; r < meet->size; r++)
        meet->fds[r] = -1;
    status = bind_place (&party, deadline_ms, err);
    if (status == TRAIN_OK)
        status = wait_for_all (&party, deadline_ms, err);
    /* closed before anybody may go on to a next meeting at this port */
    sock_close (&party.listener);
    for (int i = 0; i < MAX_GUESTS; i++)
        sock_close (&party.guests[i].fd);
    free (party.polls);
    if (status != TRAIN_OK)
        return status;
    note_host (meet, place);
    return welcome_all (meet, err);
}

/* What each rank has sent of its length and bytes so far. */
struct gather {
    struct meet *meet;
    size_t *got;    /* (size) */
    uint32_t *lens; /* (size) */
    struct pollfd *polls;
    char *all;
    size_t len;
};

static bool is_behind (const void *arg, int rank)
{
    const struct gather *g = arg;

    return rank != 0 && g->got[rank] < sizeof (uint32_t) + g->len;
}

static train_status_t take (struct gather *g, int rank, train_error_t *err)
{
    size_t head = sizeof (uint32_t), got = g->got[rank];
    bool in_head = got < head;
    char *to = in_head ? (char *)&g->lens[rank] + got
                       : g->all + (size_t)rank * g->len + (got - head);
    ssize_t n = recv (g->meet->fds[rank], to,
                      in_head ? head - got : head + g->len - got, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return TRAIN_OK;
    if (n <= 0)
        return err_set (err, TRAIN_EPEER, "rank %d ended while the ranks met",
                        rank);
    g->got[rank] += (size_t)n;
    if (g->got[rank] == head && g->lens[rank] != g->len)
        return err_set (err, TRAIN_EMISMATCH,
                        "rank %d exchanges %u bytes, rank 0 %zu: not the same "
                        "program or version",
                        rank, g->lens[rank], g->len);
    return TRAIN_OK;
}

static train_status_t gather_all (struct gather *g, int64_t deadline_ms,
                                  train_error_t *err)
{
    int size = g->meet->size;
    char ranks[160];

    for (;;) {
        int n_behind = 0;

        for (int r = 0; r < size; r++) {
            bool behind = is_behind (g, r);

            g->polls[r] =
                (struct pollfd){behind ? g->meet->fds[r] : -1, POLLIN, 0};
            n_behind += behind;
        }
        if (n_behind == 0)
            return TRAIN_OK;
        if (clock_left (deadline_ms, 1) == 0) {
            comm_ranks (is_behind, g, size, ranks, sizeof (ranks));
            return err_set (err, TRAIN_ETIMEDOUT,
                            "%s said nothing within the deadline while the "
                            "ranks met",
                            ranks);
        }
        poll (g->polls, (nfds_t)size, clock_left (deadline_ms, 1000));
        for (int r = 1; r < size; r++) {
            train_status_t status =
                g->polls[r].revents ? take (g, r, err) : TRAIN_OK;

            if (status != TRAIN_OK)
                return status;
        }
    }
}

static train_status_t spread (struct gather *g, int64_t deadline_ms,
                              train_error_t *err)
{
    for (int r = 1; r < g->meet->size; r++) {
        if (meet_say (g->meet->fds[r], TRAIN_OK, g->all,
                      g->len * (size_t)g->meet->size, deadline_ms)
            < 0)
            return err_set (err, TRAIN_EPEER,
                            "rank %d ended while the ranks met", r);
    }
    return TRAIN_OK;
}

train_status_t meet_collect (struct meet *meet, void *all, const void *mine,
                             size_t len, int64_t deadline_ms,
                             train_error_t *err)
{
    size_t n = (size_t)meet->size;
    struct gather g = {.meet = meet, .all = all, .len = len};
    train_status_t status;
    train_error_t why;

    g.got = calloc (n, sizeof (*g.got));
    g.lens = calloc (n, sizeof (*g.lens));
    g.polls = calloc (n, sizeof (*g.polls));
    memcpy (all, mine, len);
    if (!g.got || !g.lens || !g.polls)
        status = err_set (&why, TRAIN_ENOMEM, "rank 0 has no memory to meet");
    else
        status = gather_all (&g, deadline_ms, &why);
    if (status == TRAIN_OK)
        status = spread (&g, deadline_ms, &why);
    free (g.got);
    free (g.lens);
    free (g.polls);
    return status == TRAIN_OK ? TRAIN_OK : give_up (meet, &why, err);
}
