/* SPDX-License-Identifier: Apache-2.0
 * cause.c - one rank names the cause, however many end badly */
#include "config.h"

#include "exec/cause.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "exec/log.h"
#include "exec/report.h"

#define CLAIM_SIZE 20
#define CLAIMS_MAX 4096
#define ANSWER_MS  3000
#define GONE_MS    400 /* rank 0 vanished: are we being ended as well? */
#define DEAF_MS    100 /* without a file descriptor for who knocks */

static int64_t now_ms (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void put_le (unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get_le (const unsigned char *p, int n)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

void cause_init (struct cause *c, uint32_t rank)
{
    *c = (struct cause){.rank = rank, .listen_fd = -1};
}

static int listen_any (int family, bool loopback, uint16_t *ret_port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr *sa =
        family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t len = family == AF_INET6 ? sizeof (v6) : sizeof (v4);
    int fd = socket (family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int off = 0;

    if (fd < 0)
        return -1;
    v4.sin_addr.s_addr = htonl (loopback ? INADDR_LOOPBACK : INADDR_ANY);
    if ((family == AF_INET6
         && setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof (off)))
        || bind (fd, sa, len) || listen (fd, SOMAXCONN)
        || getsockname (fd, sa, &len)) {
        close (fd);
        return -1;
    }
    *ret_port = ntohs (family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return fd;
}

void cause_listen (struct cause *c, uint32_t size, bool loopback)
{
    if (size < 2
        || getrandom (&c->token, sizeof (c->token), GRND_NONBLOCK)
               != sizeof (c->token))
        return;
    if (!loopback)
        c->listen_fd = listen_any (AF_INET6, false, &c->port);
    if (c->listen_fd < 0)
        c->listen_fd = listen_any (AF_INET, loopback, &c->port);
}

static struct cause_claim *add (struct cause *c, int fd)
{
    struct cause_claim *grown =
        c->n < CLAIMS_MAX ? realloc (c->claim, (c->n + 1) * sizeof (*grown))
                          : NULL;

    if (!grown)
        return NULL;
    c->claim = grown;
    c->claim[c->n] = (struct cause_claim){.fd = fd};
    return &c->claim[c->n++];
}

static void answer (struct cause_claim *q, const void *word, size_t len)
{
    if (q->fd >= 0) {
        if (send (q->fd, word, len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
            /* it was ended meanwhile */
        }
        close (q->fd);
    }
    q->fd = -1;
    q->whole = false;
    q->have = CLAIM_SIZE + 1; /* answered */
}

static void note_claim (struct cause *c, struct cause_claim *q, uint32_t rank,
                        int signal)
{
    q->rank = rank;
    q->signal = signal;
    q->whole = true;
    if (c->decided)
        answer (q, "n", 1);
    else if (!c->decide_ms)
        c->decide_ms = now_ms () + CAUSE_WINDOW_MS;
}

/* All that asked but [best]. */
static void note_others (struct cause *c, const struct cause_claim *best)
{
    c->knows_others = true;
    c->n_others = 0;
    for (size_t i = 0; i < c->n && c->n_others < CAUSE_OTHERS; i++)
        if (c->claim[i].whole && &c->claim[i] != best)
            c->other[c->n_others++] = c->claim[i].rank;
}

static void answer_yes (struct cause *c, struct cause_claim *best)
{
    unsigned char word[5 + 4 * CAUSE_OTHERS] = "y";

    put_le (word + 1, c->n_others, 4);
    for (size_t i = 0; i < c->n_others; i++)
        put_le (word + 5 + 4 * i, c->other[i], 4);
    answer (best, word, 5 + 4 * c->n_others);
}

/* Choose among those that asked; true when it is our own child. */
static bool decide (struct cause *c)
{
    struct cause_claim *best = NULL;
    bool ours;

    for (size_t i = 0; i < c->n; i++)
        if (c->claim[i].whole
            && (!best
                || (report_is_fatal_signal (c->claim[i].signal)
                    && !report_is_fatal_signal (best->signal))))
            best = &c->claim[i];
    if (!best)
        return false;
    ours = best->fd < 0;
    note_others (c, best);
    answer_yes (c, best);
    c->decided = true;
    for (size_t i = 0; i < c->n; i++)
        if (c->claim[i].whole)
            answer (&c->claim[i], "n", 1);
    return ours;
}

static void read_claim (struct cause *c, struct cause_claim *q)
{
    ssize_t n = recv (q->fd, q->buf + q->have, CLAIM_SIZE - q->have, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        q->have += (size_t)n;
    if (n > 0 && q->have < CLAIM_SIZE)
        return;
    if (n <= 0 || memcmp (q->buf, "rvca", 4)
        || get_le (q->buf + 4, 8) != c->token) {
        close (q->fd);
        q->fd = -1;
        q->have = CLAIM_SIZE + 1;
        return;
    }
    note_claim (c, q, (uint32_t)get_le (q->buf + 12, 4),
                (int)get_le (q->buf + 16, 4));
}

/* Who knocks waits in the kernel's queue until there is a descriptor again:
 * poll would find the listener ready at once, and each time. */
static void take_connection (struct cause *c)
{
    int fd = accept4 (c->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0 && !add (c, fd))
        close (fd);
    if (fd >= 0
        || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS
            && errno != ENOMEM))
        return;
    c->deaf_until_ms = now_ms () + DEAF_MS;
    if (!c->said_deaf)
        log_line (LOG_WARN,
                  "cannot hear other ranks say how they ended: %s; trying "
                  "again, a limit of open files above the number of ranks "
                  "(ulimit -n) would do",
                  strerror (errno));
    c->said_deaf = true;
}

static void wake_at (int64_t when_ms, int *wait_ms)
{
    int64_t left = when_ms - now_ms ();

    if (left < 0)
        left = 0;
    if (*wait_ms < 0 || left < *wait_ms)
        *wait_ms = (int)left;
}

static size_t op_fill (void *arg, struct pollfd *p, size_t max,
                       int *ret_wait_ms)
{
    struct cause *c = arg;
    bool deaf = now_ms () < c->deaf_until_ms;
    size_t n = 0;

    if (c->listen_fd < 0)
        return 0;
    p[n++] = (struct pollfd){.fd = deaf ? -1 : c->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < c->n && n < max; i++)
        if (c->claim[i].fd >= 0 && !c->claim[i].whole)
            p[n++] = (struct pollfd){.fd = c->claim[i].fd, .events = POLLIN};
    if (c->decide_ms && !c->decided)
        wake_at (c->decide_ms, ret_wait_ms);
    if (deaf)
        wake_at (c->deaf_until_ms, ret_wait_ms);
    return n;
}

static void op_serve (void *arg, const struct pollfd *p, size_t n)
{
    struct cause *c = arg;

    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; p[i].revents && k < c->n; k++)
            if (c->claim[k].fd == p[i].fd && !c->claim[k].whole) {
                read_claim (c, &c->claim[k]);
                break;
            }
    if (n && p[0].revents)
        take_connection (c);
    if (c->decide_ms && !c->decided && now_ms () >= c->decide_ms)
        decide (c);
}

struct child_watch cause_watch (struct cause *c)
{
    return (struct child_watch){.fill = op_fill, .serve = op_serve, .arg = c};
}

/* Our own child ended badly: join the queue and keep serving it. */
static bool ask_ourselves (struct cause *c, int signal)
{
    struct pollfd p[64];
    struct cause_claim *q;

    if (c->decided)
        return false;
    if (!(q = add (c, -1)))
        return true;
    note_claim (c, q, c->rank, signal);
    while (now_ms () < c->decide_ms) {
        int wait_ms = -1;
        size_t n = op_fill (c, p, 64, &wait_ms);

        if (poll (p, (nfds_t)n, wait_ms) > 0) {
            int64_t when = c->decide_ms;

            c->decide_ms = INT64_MAX; /* chosen below, not in serve */
            op_serve (c, p, n);
            c->decide_ms = when;
        }
    }
    return decide (c);
}

static int connect_to (const char *addr, uint16_t port, int64_t end_ms)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST};
    struct addrinfo *ai = NULL;
    struct pollfd p = {.events = POLLOUT};
    socklen_t len = sizeof (int);
    int failed = 0;
    char text[8];

    snprintf (text, sizeof (text), "%u", port);
    if (getaddrinfo (addr, text, &hints, &ai))
        return -1;
    p.fd =
        socket (ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p.fd >= 0 && connect (p.fd, ai->ai_addr, ai->ai_addrlen)
        && (errno != EINPROGRESS || poll (&p, 1, (int)(end_ms - now_ms ())) <= 0
            || getsockopt (p.fd, SOL_SOCKET, SO_ERROR, &failed, &len)
            || failed)) {
        close (p.fd);
        p.fd = -1;
    }
    freeaddrinfo (ai);
    return p.fd;
}

/* Rank 0's answer; an answer that is not whole leaves the others unknown. */
static void read_others (struct cause *c, const unsigned char *word, ssize_t n)
{
    uint64_t count = n >= 5 ? get_le (word + 1, 4) : CAUSE_OTHERS + 1;

    if (count > CAUSE_OTHERS || (uint64_t)n != 5 + 4 * count)
        return;
    c->knows_others = true;
    for (c->n_others = 0; c->n_others < count; c->n_others++)
        c->other[c->n_others] =
            (uint32_t)get_le (word + 5 + 4 * c->n_others, 4);
}

bool cause_is_ours (struct cause *c, int signal)
{
    unsigned char claim[CLAIM_SIZE] = "rvca";
    int64_t end_ms = now_ms () + ANSWER_MS, left;
    unsigned char word[5 + 4 * CAUSE_OTHERS] = "y";
    ssize_t n = 0;
    int fd;

    if (c->port == 0)
        return true;
    if (c->rank == 0)
        return ask_ourselves (c, signal);
    if ((fd = connect_to (c->addr, c->port, end_ms)) < 0) {
        poll (NULL, 0, GONE_MS);
        return true;
    }
    put_le (claim + 4, c->token, 8);
    put_le (claim + 12, c->rank, 4);
    put_le (claim + 16, (uint64_t)signal, 4);
    left = end_ms - now_ms ();
    if (send (fd, claim, sizeof (claim), MSG_NOSIGNAL) < 0
        || poll (&(struct pollfd){.fd = fd, .events = POLLIN}, 1,
                 left > 0 ? (int)left : 0)
               <= 0
        || (n = recv (fd, word, sizeof (word), MSG_DONTWAIT)) <= 0)
        poll (NULL, 0, GONE_MS);
    close (fd);
    read_others (c, word, n);
    return word[0] == 'y';
}

void cause_fini (struct cause *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->claim[i].fd >= 0)
            close (c->claim[i].fd);
    free (c->claim);
    if (c->listen_fd >= 0)
        close (c->listen_fd);
    cause_init (c, c->rank);
}
