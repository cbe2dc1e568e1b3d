/* SPDX-License-Identifier: Apache-2.0
 * home.c - the place of later meetings: rank 0's addresses and a port that it keeps
 * bound, and the facts of the first join, which stay as they are */
#include "home.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "err.h"
#include "meet.h"
#include "sock.h"

/* Of rank 0; another's is not looked at. Sent as it stands. */
struct door {
    char hosts[JOIN_ADDRESS_MAX];
    uint64_t nonce;
    uint32_t port, zero;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    pid_t pid; /* whose home it is; 0: none */
    int rank, size;
    int64_t timeout_ms;
    struct layout_in layout;
    struct door door;
    char address[JOIN_ADDRESS_MAX]; /* of this rank's node */
    int hold;                       /* keeps the port on rank 0; else -1 */
} home;

/* On rank 0: no other program gets the port, and it goes to no child. */
static train_status_t reserve (struct join *join, struct door *door,
                               int *ret_fd, train_error_t *err)
{
    rv_job_error_t why;
    uint16_t port;

    if (getrandom (&door->nonce, sizeof (door->nonce), 0)
        != sizeof (door->nonce))
        return err_set (err, TRAIN_EIO, "getrandom failed");
    if (rv_job_reserve_port (join->job, &port, ret_fd, &why) != RV_JOB_OK)
        return err_set (err, (train_status_t)why.code, "%s", why.text);
    if (fcntl (*ret_fd, F_SETFD, FD_CLOEXEC) != 0) {
        sock_close (ret_fd);
        return err_set (err, TRAIN_EIO, "port %u: no FD_CLOEXEC", port);
    }
    door->port = port;
    return join_address (join, door->hosts, sizeof (door->hosts), err);
}

/* What the ranks tell each other of it. */
struct card {
    struct join_word word;
    struct door door;
};

static train_status_t agree (struct join *join, struct card *cards, int *ret_fd,
                             struct door *ret_door, train_error_t *err)
{
    struct card mine = {.door = {.port = 0}};
    train_status_t status = TRAIN_OK;
    train_error_t why = {0};

    if (join->rank == 0)
        status = reserve (join, &mine.door, ret_fd, &why);
    TRY (join_tell (join, cards, &mine.word, sizeof (mine), status, &why, err));
    *ret_door = cards[0].door;
    ret_door->hosts[sizeof (ret_door->hosts) - 1] = '\0';
    return TRAIN_OK;
}

static void keep (const struct join *join, const struct layout_in *mine,
                  const struct door *door, const char *address, int hold)
{
    pthread_mutex_lock (&lock);
    if (home.pid)
        sock_close (&home.hold);
    home.rank = join->rank;
    home.size = join->size;
    home.timeout_ms = join->timeout_ms;
    home.layout = *mine;
    home.door = *door;
    snprintf (home.address, sizeof (home.address), "%s", address);
    home.hold = hold;
    home.pid = getpid ();
    pthread_mutex_unlock (&lock);
}

train_status_t home_make (struct join *join, const struct layout_in *mine,
                          train_error_t *err)
{
    char address[JOIN_ADDRESS_MAX];
    struct card *cards = calloc ((size_t)join->size, sizeof (*cards));
    struct door door;
    train_status_t status;
    int hold = -1;

    if (!cards)
        return err_set (err, TRAIN_ENOMEM, "no memory for %d ranks",
                        join->size);
    status = agree (join, cards, &hold, &door, err);
    free (cards);
    if (status == TRAIN_OK)
        status = join_address (join, address, sizeof (address), err);
    if (status == TRAIN_OK)
        keep (join, mine, &door, address, hold);
    else
        sock_close (&hold);
    return status;
}

bool home_is_made (void)
{
    bool made;

    pthread_mutex_lock (&lock);
    made = home.pid == getpid ();
    pthread_mutex_unlock (&lock);
    return made;
}

train_status_t home_open (struct join *join, struct layout_in *mine,
                          int64_t timeout_ms, train_error_t *err)
{
    struct meet_place place = {
        .called = "",
        .hosts = home.door.hosts,
        .port = (uint16_t)home.door.port,
        .n_ports = 1,
        .token = join_token (join->name, home.size) ^ home.door.nonce,
    };

    join->rank = home.rank;
    join->size = home.size;
    join->timeout_ms = home.timeout_ms;
    join->deadline_ms =
        clock_ms () + (timeout_ms ? timeout_ms : join->timeout_ms);
    join->address = home.address;
    *mine = home.layout;
    TRY (meet_open (&join->meet, &place, join->rank, join->size,
                    join->deadline_ms, err));
    /* by the address that served: another may swallow what is sent there */
    if (join->rank != 0)
        snprintf (home.door.hosts, sizeof (home.door.hosts), "%s",
                  meet_at (join->meet));
    return TRAIN_OK;
}

void home_forget (void)
{
    pthread_mutex_lock (&lock);
    if (home.pid == getpid ()) {
        home.pid = 0;
        sock_close (&home.hold);
    }
    pthread_mutex_unlock (&lock);
}
