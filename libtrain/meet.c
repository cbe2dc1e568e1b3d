/* SPDX-License-Identifier: Apache-2.0
 * meet.c - how a rank comes to the meeting, and what is exchanged there
 *
 * A rank says a greeting of fixed size. Rank 0 answers in words: a status, a
 * length and that many bytes, which are data for TRAIN_OK and a text for
 * anything else. */
#include "meet_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "join.h"
#include "sock.h"

/* Rank 0 knows best what went wrong: wait a little longer than it does. */
#define GRACE_MS  5000
#define ANSWER_MS 10000
#define RETRY_MS  50 /* at most; at first 1 */

int meet_say (int fd, train_status_t code, const void *data, size_t len,
              int64_t deadline_ms)
{
    struct meet_word word = {(uint32_t)code, (uint32_t)len};

    if (sock_send (fd, &word, sizeof (word), deadline_ms) < 0)
        return -1;
    return len ? sock_send (fd, data, len, deadline_ms) : 0;
}

/* The text of a word that is not TRAIN_OK. */
static train_status_t bad_news (int fd, const struct meet_word *word,
                                int64_t deadline_ms, train_error_t *err)
{
    char text[sizeof (err->text)];
    size_t len = word->len;

    if (len >= sizeof (text) || sock_recv (fd, text, len, deadline_ms) < 0)
        return err_set (err, TRAIN_EFORMAT,
                        "rank 0 said something that is not understood");
    text[len] = '\0';
    return err_set (err, (train_status_t)word->code, "%s", text);
}

/* One word from rank 0, with exactly [len] bytes of data. */
static train_status_t listen_to (int fd, void *data, size_t len,
                                 int64_t deadline_ms, train_error_t *err)
{
    struct meet_word word;

    if (sock_recv (fd, &word, sizeof (word), deadline_ms) < 0)
        return err_set (err, errno == ETIMEDOUT ? TRAIN_ETIMEDOUT : TRAIN_EPEER,
                        errno == ETIMEDOUT
                            ? "rank 0 does not answer"
                            : "rank 0 ended while the ranks met");
    if (word.code != TRAIN_OK)
        return bad_news (fd, &word, deadline_ms, err);
    if (word.len != len || sock_recv (fd, data, len, deadline_ms) < 0)
        return err_set (err, TRAIN_EPEER,
                        "rank 0 broke off while the ranks "
                        "met");
    return TRAIN_OK;
}

/* One attempt. TRAIN_EPEER and TRAIN_ETIMEDOUT: nobody (of ours) there yet. */
static train_status_t try_host (struct meet *meet,
                                const struct meet_place *place,
                                const char *host, uint16_t port,
                                int64_t deadline_ms, train_error_t *err)
{
    struct meet_greeting hello =
        meet_greeting_of (place, meet->rank, meet->size);
    int64_t answer_ms = clock_ms () + ANSWER_MS;
    int fd = -1;
    train_status_t status;

    if (answer_ms > deadline_ms)
        answer_ms = deadline_ms;
    status = sock_connect (host, port, answer_ms, &fd, err);
    if (status == TRAIN_OK
        && sock_send (fd, &hello, sizeof (hello), answer_ms) < 0)
        status = err_set (err, TRAIN_EPEER, "%s port %u: %s", host, port,
                          strerror (errno));
    if (status == TRAIN_OK)
        status = listen_to (fd, NULL, 0, answer_ms, err);
    if (status != TRAIN_OK) {
        sock_close (&fd);
        return status;
    }
    meet->fd = fd;
    snprintf (meet->at, sizeof (meet->at), "%s", host);
    return TRAIN_OK;
}

/* Each of the addresses; a meeting of others at one of them is the verdict. */
static train_status_t try_port (struct meet *meet,
                                const struct meet_place *place, uint16_t port,
                                int64_t deadline_ms, train_error_t *err)
{
    train_status_t status = TRAIN_EPEER;
    char list[JOIN_ADDRESS_MAX], *save = NULL;

    snprintf (list, sizeof (list), "%s", place->hosts);
    for (char *host = strtok_r (list, " ", &save); host;
         host = strtok_r (NULL, " ", &save)) {
        status = try_host (meet, place, host, port, deadline_ms, err);
        if (status == TRAIN_OK || status == TRAIN_EMISMATCH)
            break;
    }
    return status;
}

/* Under torchrun a port of the row may be a stranger's, so a refusal there is
 * no verdict; nor is what a stranger says at one of several addresses. */
static bool worth_retry (train_status_t status, const struct meet_place *place)
{
    bool row = place->n_ports > 1;

    return status == TRAIN_EPEER || status == TRAIN_ETIMEDOUT
           || (status == TRAIN_EMISMATCH && row)
           || (status == TRAIN_EFORMAT && (row || strchr (place->hosts, ' ')));
}

static train_status_t come (struct meet *meet, const struct meet_place *place,
                            int64_t deadline_ms, train_error_t *err)
{
    struct timespec pause = {0, 1000000L};
    train_error_t why = {0};
    train_status_t status;

    for (int i = 0;; i = (i + 1) % place->n_ports) {
        status = try_port (meet, place, (uint16_t)(place->port + i),
                           deadline_ms, &why);
        if (status == TRAIN_OK)
            break;
        if (!worth_retry (status, place))
            return err_set (err, status, "%s", why.text);
        if (clock_left (deadline_ms, 1) == 0)
            return err_set (err, TRAIN_ETIMEDOUT,
                            "rank 0 did not come to %s%s port %u within the "
                            "deadline (last: %s)",
                            place->called, place->hosts, place->port, why.text);
        if (i == place->n_ports - 1) {
            nanosleep (&pause, NULL);
            if (pause.tv_nsec < RETRY_MS * 1000000L / 2)
                pause.tv_nsec *= 2;
        }
    }
    sock_local_host (meet->fd, meet->host, sizeof (meet->host));
    return listen_to (meet->fd, NULL, 0, deadline_ms + GRACE_MS, err);
}

struct meet_greeting meet_greeting_of (const struct meet_place *place, int rank,
                                       int size)
{
    struct meet_greeting hello = {
        .magic = MEET_MAGIC,
        .order = MEET_ORDER,
        .size = (uint32_t)size,
        .rank = (uint32_t)rank,
        .token = place->token,
    };

    return hello;
}

train_status_t meet_open (struct meet **ret, const struct meet_place *place,
                          int rank, int size, int64_t deadline_ms,
                          train_error_t *err)
{
    struct meet *meet = calloc (1, sizeof (*meet));
    train_status_t status;

    if (!meet)
        return err_set (err, TRAIN_ENOMEM, "no memory to meet the other ranks");
    meet->rank = rank;
    meet->size = size;
    meet->fd = -1;
    status = rank == 0 ? meet_receive (meet, place, deadline_ms, err)
                       : come (meet, place, deadline_ms, err);
    if (status != TRAIN_OK) {
        meet_close (meet);
        return status;
    }
    *ret = meet;
    return TRAIN_OK;
}

train_status_t meet_exchange (struct meet *meet, void *all, const void *mine,
                              size_t len, int64_t deadline_ms,
                              train_error_t *err)
{
    uint32_t n = (uint32_t)len;

    if (meet->rank == 0)
        return meet_collect (meet, all, mine, len, deadline_ms, err);
    if (sock_send (meet->fd, &n, sizeof (n), deadline_ms) < 0
        || sock_send (meet->fd, mine, len, deadline_ms) < 0) {
        /* what rank 0 said before it closed explains more than EPIPE */
        train_status_t status =
            listen_to (meet->fd, all, len * (size_t)meet->size,
                       clock_ms () + ANSWER_MS, err);

        if (status != TRAIN_OK)
            return status;
        return err_set (err, TRAIN_EPEER, "rank 0 ended while the ranks met");
    }
    return listen_to (meet->fd, all, len * (size_t)meet->size,
                      deadline_ms + GRACE_MS, err);
}

const char *meet_host (const struct meet *meet)
{
    return meet->host;
}

const char *meet_at (const struct meet *meet)
{
    return meet->at;
}

void meet_close (struct meet *meet)
{
    if (!meet)
        return;
    sock_close (&meet->fd);
    for (int r = 0; meet->fds && r < meet->size; r++)
        sock_close (&meet->fds[r]);
    free (meet->fds);
    free (meet);
}
