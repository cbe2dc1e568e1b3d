/* SPDX-License-Identifier: Apache-2.0
 * group_survive.c - a new group of the ranks that are left of a broken one
 *
 * Every rank listens from the beginning of a group on, and knows where the
 * others do. A survivor visits the ranks below its own in order: who has ended
 * refuses, who has stopped does not answer, and the first that answers decides.
 * Whom nobody below answers decides itself: it waits until every rank above has
 * come or refuses, or the time is over, and tells those who came who they all
 * are. Their connections to it are the meeting of the new group. */
#include "group_survive.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "err.h"
#include "meet_impl.h"
#include "sock.h"

#define SURVIVE_MAGIC 0x31525653544e5256u
#define CONNECT_MS    2000
#define LATE_MS       1000 /* for an answer, when the time is over */
#define SAY_MS        2000
#define SLICE_MS      50
#define KNOCK_MS      500
#define HERE          0x45524548u /* the first answer */

/* The first bytes of a visitor. */
struct hello {
    uint64_t magic, nonce;
    uint32_t rank, size;
};

struct seat {
    uint64_t nonce; /* of rank 0 counts */
    uint32_t port;  /* 0: does not listen */
    uint32_t zero;
    char address[JOIN_ADDRESS_MAX];
};

struct survive {
    int listener; /* -1: none */
    uint64_t nonce;
    struct seat *seats; /* (size) */
};

/* One search on its way. */
struct search {
    train_group_t *group;
    struct survive *survive;
    int *guests; /* (size) connections of ranks above; -1 */
    bool *ended; /* (size) ranks that refuse */
    int64_t over_ms;
    struct pollfd *polls; /* (size + 2) */
};

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "group: no memory for its survivors");
}

train_status_t survive_init (struct survive **ret, const train_group_t *group,
                             struct join *join, train_error_t *err)
{
    const char *host = strchr (group->address, '.') ? NULL : "::";
    struct survive *survive = calloc (1, sizeof (*survive));
    struct seat mine = {0};
    uint16_t port = 0;
    train_status_t status;

    if (!survive)
        return no_memory (err);
    *ret = survive;
    survive->listener = -1;
    survive->seats = calloc ((size_t)join->size, sizeof (*survive->seats));
    if (!survive->seats)
        return no_memory (err);
    if (join->nodes == 1)
        host = group->address;
    /* a rank without a port is one that cannot be found again, no more */
    if (getrandom (&mine.nonce, sizeof (mine.nonce), 0) == sizeof (mine.nonce)
        && sock_listen (host, 0, &survive->listener, &port, NULL) == TRAIN_OK)
        mine.port = port;
    snprintf (mine.address, sizeof (mine.address), "%s", group->address);
    status = join_exchange (join, survive->seats, &mine, sizeof (mine), err);
    for (int r = 0; status == TRAIN_OK && r < join->size; r++)
        survive->seats[r].address[JOIN_ADDRESS_MAX - 1] = '\0';
    survive->nonce = survive->seats[0].nonce;
    return status;
}

void survive_fini (struct survive *survive)
{
    if (!survive)
        return;
    sock_close (&survive->listener);
    free (survive->seats);
    free (survive);
}

/* A connection to [rank], or -1: it has ended, or cannot be reached. */
static int call_on (struct search *s, int rank)
{
    const struct seat *seat = &s->survive->seats[rank];
    char list[JOIN_ADDRESS_MAX], *save = NULL;
    int fd = -1;

    snprintf (list, sizeof (list), "%s", seat->address);
    for (char *a = strtok_r (list, " ", &save); a && seat->port;
         a = strtok_r (NULL, " ", &save)) {
        if (sock_connect (a, (uint16_t)seat->port, clock_ms () + CONNECT_MS,
                          &fd, NULL)
            == TRAIN_OK)
            return fd;
    }
    s->ended[rank] = true;
    return -1;
}

/* Who comes shows that it is of this group and is told to wait. */
static void let_in (struct search *s)
{
    struct hello h;
    uint32_t here = HERE;
    int fd = sock_accept (s->survive->listener);

    if (fd < 0)
        return;
    if (sock_recv (fd, &h, sizeof (h), clock_ms () + SAY_MS) < 0
        || h.magic != SURVIVE_MAGIC || h.nonce != s->survive->nonce
        || h.size != (uint32_t)s->group->size
        || h.rank <= (uint32_t)s->group->rank || h.rank >= h.size
        || sock_send (fd, &here, sizeof (here), clock_ms () + SAY_MS) < 0) {
        sock_close (&fd); /* a stranger, or a knock of a rank that looks */
        return;
    }
    sock_close (&s->guests[h.rank]);
    s->guests[h.rank] = fd;
}

/* Receive guests until something can be read from [fd], -1 for none, or
 * until a moment; guests that end are let go. Returns whether it can. */
static bool attend (struct search *s, int fd, int64_t until_ms)
{
    int n = s->group->size;

    for (;;) {
        s->polls[n] = (struct pollfd){s->survive->listener, POLLIN, 0};
        s->polls[n + 1] = (struct pollfd){fd, POLLIN, 0};
        for (int r = 0; r < n; r++)
            s->polls[r] = (struct pollfd){s->guests[r], POLLIN, 0};
        poll (s->polls, (nfds_t)n + 2, clock_left (until_ms, SLICE_MS));
        for (int r = 0; r < n; r++) {
            if (s->polls[r].revents) {
                sock_close (&s->guests[r]); /* a guest says nothing */
                s->ended[r] = true;
            }
        }
        if (s->polls[n].revents)
            let_in (s);
        if (fd >= 0 && s->polls[n + 1].revents)
            return true;
        if (clock_left (until_ms, 1) == 0)
            return false;
    }
}

/* To a rank below: does it answer? Its connection, or -1. */
static int visit (struct search *s, int rank)
{
    struct hello h = {SURVIVE_MAGIC, s->survive->nonce,
                      (uint32_t)s->group->rank, (uint32_t)s->group->size};
    int64_t until_ms = clock_ms () + LATE_MS;
    int fd = call_on (s, rank);
    uint32_t here = 0;

    if (fd < 0)
        return -1;
    if (until_ms < s->over_ms)
        until_ms = s->over_ms;
    if (sock_send (fd, &h, sizeof (h), until_ms) < 0
        || !attend (s, fd, until_ms)
        || sock_recv (fd, &here, sizeof (here), clock_ms () + SAY_MS) < 0
        || here != HERE)
        sock_close (&fd);
    return fd;
}

/* The ranks that are left, told by the one that decides.
 *   ranks   (size) written; returns their number in *ret_n */
static train_status_t hear_verdict (struct search *s, int fd, int *ranks,
                                    int *ret_n, train_error_t *err)
{
    int64_t until_ms = clock_ms () + 2 * s->group->timeout_ms + SAY_MS
                       + s->group->rank * (LATE_MS + CONNECT_MS);
    struct meet_word word = {0};
    char text[sizeof (err->text)];

    if (!attend (s, fd, until_ms)
        || sock_recv (fd, &word, sizeof (word), clock_ms () + SAY_MS) < 0)
        return err_set (err, TRAIN_EPEER,
                        "group '%s': the survivor that decides ended too; try "
                        "again",
                        s->group->name);
    if (word.code != TRAIN_OK && word.len < sizeof (text)
        && sock_recv (fd, text, word.len, clock_ms () + SAY_MS) == 0) {
        text[word.len] = '\0';
        return err_set (err, (train_status_t)word.code, "%s", text);
    }
    *ret_n = (int)(word.len / sizeof (*ranks));
    if (word.code != TRAIN_OK || *ret_n < 1 || *ret_n > s->group->size
        || sock_recv (fd, ranks, (size_t)*ret_n * sizeof (*ranks),
                      clock_ms () + SAY_MS)
               < 0)
        return err_set (err, TRAIN_EPEER,
                        "group '%s': the survivor that decides ended too; try "
                        "again",
                        s->group->name);
    return TRAIN_OK;
}

/* Has every rank above come, or ended? A connection that is accepted by the
 * kernel of a stopped rank says nothing, so only a refusal counts.
 *   knock_ms   when those who have not come are tried again */
static bool all_known (struct search *s, int64_t *knock_ms)
{
    bool all = true, knock = clock_ms () >= *knock_ms;

    if (knock)
        *knock_ms = clock_ms () + KNOCK_MS;

    for (int r = s->group->rank + 1; r < s->group->size; r++) {
        int fd;

        if (s->guests[r] >= 0 || s->ended[r])
            continue;
        if (knock) {
            fd = call_on (s, r);
            sock_close (&fd);
        }
        all &= s->ended[r];
    }
    return all;
}

static bool is_absent (const void *arg, int rank)
{
    const struct search *s = arg;

    return rank != s->group->rank && s->guests[rank] < 0;
}

static void tell (struct search *s, train_status_t code, const void *data,
                  size_t len)
{
    for (int r = 0; r < s->group->size; r++) {
        if (s->guests[r] >= 0
            && meet_say (s->guests[r], code, data, len, clock_ms () + SAY_MS)
                   < 0)
            s->ended[r] = true; /* the meeting will find out */
    }
}

/* The lowest that is left: wait for the others, and say who they all are. */
static train_status_t decide (struct search *s, int min_size, int *ranks,
                              int *ret_n, train_error_t *err)
{
    int64_t now = clock_ms (), until_ms = now + s->group->timeout_ms;
    int64_t knock_ms = now;
    train_error_t why;
    char absent[160];
    int n = 0;

    while (!all_known (s, &knock_ms) && clock_left (until_ms, 1) > 0)
        attend (s, -1, clock_ms () + SLICE_MS);
    for (int r = 0; r < s->group->size; r++) {
        if (r == s->group->rank || s->guests[r] >= 0)
            ranks[n++] = r;
    }
    *ret_n = n;
    if (n >= min_size) {
        tell (s, TRAIN_OK, ranks, (size_t)n * sizeof (*ranks));
        return TRAIN_OK;
    }
    comm_ranks (is_absent, s, s->group->size, absent, sizeof (absent));
    err_set (&why, TRAIN_EPEER,
             "group '%s': %d of %d ranks are left, %d are asked for; %s did "
             "not come",
             s->group->name, n, s->group->size, min_size, absent);
    tell (s, why.code, why.text, strlen (why.text));
    return err_set (err, why.code, "%s", why.text);
}

/* Find the others.
 *   ret_fd   to the one that decides; -1 when it is this rank */
static train_status_t find (struct search *s, int min_size, int *ranks,
                            int *ret_n, int *ret_fd, train_error_t *err)
{
    train_status_t status;
    int fd = -1;

    for (int r = 0; r < s->group->rank && fd < 0; r++)
        fd = visit (s, r);
    if (fd < 0)
        return decide (s, min_size, ranks, ret_n, err);
    status = hear_verdict (s, fd, ranks, ret_n, err);
    if (status == TRAIN_OK)
        *ret_fd = fd;
    else
        sock_close (&fd);
    return status;
}

/* The connections as a meeting, which owns them from now on. */
static struct meet *make_meet (struct search *s, const int *ranks, int n,
                               int rank, int *fd)
{
    struct meet *meet = calloc (1, sizeof (*meet));

    if (!meet)
        return NULL;
    meet->rank = rank;
    meet->size = n;
    meet->fd = *fd;
    *fd = -1;
    if (rank > 0)
        return meet;
    if (!(meet->fds = malloc ((size_t)n * sizeof (int)))) {
        meet_close (meet);
        return NULL;
    }
    for (int r = 0; r < n; r++) {
        meet->fds[r] = s->guests[ranks[r]];
        s->guests[ranks[r]] = -1;
    }
    return meet;
}

static train_status_t begin (struct search *s, const int *ranks, int n, int *fd,
                             const char *name, train_group_t **ret_group,
                             train_error_t *err)
{
    train_group_t *group = s->group;
    struct join join = {
        .timeout_ms = group->timeout_ms,
        .deadline_ms = clock_ms () + group->timeout_ms,
        .name = name ? name : "survivors",
        .address = group->address,
    };
    train_status_t status = group_members (group, ranks, n, &join, err);

    if (status == TRAIN_OK
        && !(join.meet = make_meet (s, ranks, n, join.rank, fd)))
        status = no_memory (err);
    if (status == TRAIN_OK)
        status = group_begin (&join, NULL, group->where, group, ranks,
                              ret_group, err);
    join_close (&join);
    return status;
}

static train_status_t search_init (struct search *s, train_group_t *group,
                                   train_error_t *err)
{
    size_t size = (size_t)group->size;

    *s = (struct search){.group = group, .survive = group->survive};
    s->over_ms = clock_ms () + group->timeout_ms;
    s->guests = malloc (size * sizeof (*s->guests));
    s->ended = calloc (size, sizeof (*s->ended));
    s->polls = calloc (size + 2, sizeof (*s->polls));
    for (size_t r = 0; s->guests && r < size; r++)
        s->guests[r] = -1;
    return s->guests && s->ended && s->polls ? TRAIN_OK : no_memory (err);
}

static void search_fini (struct search *s)
{
    for (int r = 0; s->guests && r < s->group->size; r++)
        sock_close (&s->guests[r]);
    free (s->guests);
    free (s->ended);
    free (s->polls);
}

static train_status_t check (const train_group_t *group, int min_size,
                             const char *name, train_group_t **ret_group,
                             train_error_t *err)
{
    if (!group || !ret_group)
        return err_set (err, TRAIN_EINVAL, "group: no group or no result");
    if (min_size < 0 || min_size > group->size)
        return err_set (err, TRAIN_EINVAL,
                        "group '%s': at least %d survivors of %d ranks",
                        group->name, min_size, group->size);
    if (group_check_name (name, err) != TRAIN_OK)
        return TRAIN_EINVAL;
    if (group->ops == &comm_mpi)
        return err_set (err, TRAIN_ENOTSUP,
                        "group '%s': backend mpi has no survivors: mpirun and "
                        "Slurm end every rank of a step with any of them; "
                        "backend host has",
                        group->name);
    if (group->size == 1 || group->survive->listener < 0)
        return err_set (err, TRAIN_ESTATE,
                        group->size == 1
                            ? "group '%s': its only rank has lost nobody"
                            : "group '%s': this rank has no port by which "
                              "survivors could find it",
                        group->name);
    return TRAIN_OK;
}

train_status_t train_group_survivors (train_group_t *group, int min_size,
                                      const char *name,
                                      train_group_t **ret_group,
                                      train_error_t *err)
{
    train_status_t status;
    struct search s;
    int *ranks, n = 0, fd = -1;

    if (group)
        work_drain (group);
    status = check (group, min_size, name, ret_group, err);
    if (status != TRAIN_OK)
        return status;
    if (min_size == 0)
        min_size = group->size / 2 + 1;
    status = search_init (&s, group, err);
    ranks = malloc ((size_t)group->size * sizeof (*ranks));
    if (status == TRAIN_OK && !ranks)
        status = no_memory (err);
    if (status == TRAIN_OK)
        status = find (&s, min_size, ranks, &n, &fd, err);
    if (status == TRAIN_OK)
        status = begin (&s, ranks, n, &fd, name, ret_group, err);
    if (status == TRAIN_OK && group->failure.code == TRAIN_OK)
        err_set (&group->failure, TRAIN_ESTATE, "its survivors have parted");
    sock_close (&fd);
    free (ranks);
    search_fini (&s);
    return status;
}
