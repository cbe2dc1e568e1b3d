/* SPDX-License-Identifier: Apache-2.0
 * net.c - addresses by which others reach this node, and a reserved port */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "job/job_impl.h"

#define ADDR_MAX 64

struct addr {
    char text[INET6_ADDRSTRLEN];
    int score; /* lower is better */
};

struct addr_list {
    struct addr a[ADDR_MAX];
    size_t n;
};

/* Bridges of containers and virtual machines: other nodes have the same ones,
 * with the same addresses. */
static bool is_bridge (const char *ifname)
{
    static const char *const prefix[] = {
        "docker", "virbr", "veth", "br-", "cni", "lxc", "podman", "flannel"};

    for (size_t i = 0; i < sizeof (prefix) / sizeof (prefix[0]); i++)
        if (!strncmp (ifname, prefix[i], strlen (prefix[i])))
            return true;
    return false;
}

static const void *sockaddr_bytes (const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
    return &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
}

static bool is_usable (const struct ifaddrs *i)
{
    const struct in6_addr *v6;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)
        || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return true;
    if (i->ifa_addr->sa_family != AF_INET6)
        return false;
    v6 = sockaddr_bytes (i->ifa_addr);
    return !IN6_IS_ADDR_LINKLOCAL (v6) && !IN6_IS_ADDR_LOOPBACK (v6);
}

static void list_interfaces (struct addr_list *list)
{
    struct ifaddrs *all = NULL;

    if (getifaddrs (&all))
        return;
    for (struct ifaddrs *i = all; i && list->n < ADDR_MAX; i = i->ifa_next) {
        struct addr *a = &list->a[list->n];

        if (!is_usable (i)
            || !inet_ntop (i->ifa_addr->sa_family, sockaddr_bytes (i->ifa_addr),
                           a->text, sizeof (a->text)))
            continue;
        a->score = (i->ifa_addr->sa_family == AF_INET6 ? 1000 : 0)
                   + (is_bridge (i->ifa_name) ? 100 : 0) + (int)list->n;
        list->n++;
    }
    freeifaddrs (all);
}

/* Which of our addresses speaks to [peer]? No packet is sent. */
static bool route_source (const char *peer, char *text, size_t size)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_DGRAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV},
                    *ai = NULL;
    struct sockaddr_storage self;
    socklen_t len = sizeof (self);
    bool ok = false;
    int fd;

    if (!peer || !*peer || getaddrinfo (peer, "9", &hints, &ai))
        return false;
    fd = socket (ai->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && !connect (fd, ai->ai_addr, ai->ai_addrlen)
        && !getsockname (fd, (struct sockaddr *)&self, &len))
        ok = inet_ntop (self.ss_family,
                        sockaddr_bytes ((struct sockaddr *)&self), text,
                        (socklen_t)size)
             != NULL;
    if (fd >= 0)
        close (fd);
    freeaddrinfo (ai);
    return ok;
}

static void prefer (struct addr_list *list, const char *text, int score)
{
    for (size_t i = 0; text && i < list->n; i++)
        if (!strcmp (list->a[i].text, text) && list->a[i].score > score)
            list->a[i].score = score;
}

static int by_score (const void *a, const void *b)
{
    return ((const struct addr *)a)->score - ((const struct addr *)b)->score;
}

rv_job_status_t rv_job_address (rv_job_t *job, char *buf, size_t size,
                                rv_job_error_t *err)
{
    struct addr_list list = {.n = 0};
    char source[INET6_ADDRSTRLEN];
    size_t len = 0, need;

    if (!job || !buf || !size)
        return job_error (err, RV_JOB_EINVAL, "job or buf is NULL");
    list_interfaces (&list);
    /* Slurm's own name for the step's first node, then the side on which srun
     * sits: both are networks that the cluster uses. */
    if (job->node == 0)
        prefer (&list, getenv ("RV_HEAD_ADDR"), -2);
    if (route_source (getenv ("SLURM_LAUNCH_NODE_IPADDR"), source,
                      sizeof (source)))
        prefer (&list, source, -1);
    qsort (list.a, list.n, sizeof (list.a[0]), by_score);
    if (list.n < ADDR_MAX && (list.n == 0 || job->nodes == 1))
        snprintf (list.a[list.n++].text, sizeof (list.a[0].text), "127.0.0.1");
    for (size_t i = 0; i < list.n; i++) {
        need = strlen (list.a[i].text) + (len ? 1 : 0);
        if (len + need >= size)
            break;
        len += (size_t)snprintf (buf + len, size - len, "%s%s", len ? " " : "",
                                 list.a[i].text);
    }
    if (!len)
        return job_error (err, RV_JOB_EINVAL, "a buffer of %zu bytes", size);
    return RV_JOB_OK;
}

static int bind_any (int family, uint16_t *ret_port)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr *sa =
        family == AF_INET6 ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t len = family == AF_INET6 ? sizeof (v6) : sizeof (v4);
    int fd = socket (family, SOCK_STREAM | SOCK_CLOEXEC, 0), off = 0, on = 1;

    if (fd < 0)
        return -1;
    if (family == AF_INET6
        && setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof (off)))
        goto fail;
    /* The order is the point: bound without SO_REUSEADDR the port is ours
     * alone, and set afterwards it admits one more bind with SO_REUSEADDR. */
    if (bind (fd, sa, len)
        || setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on))
        || getsockname (fd, sa, &len))
        goto fail;
    *ret_port = ntohs (family == AF_INET6 ? v6.sin6_port : v4.sin_port);
    return fd;
fail:
    close (fd);
    return -1;
}

rv_job_status_t rv_job_reserve_port (rv_job_t *job, uint16_t *ret_port,
                                     int *ret_fd, rv_job_error_t *err)
{
    uint16_t port = 0;
    int fd;

    if (!job || !ret_port || !ret_fd)
        return job_error (err, RV_JOB_EINVAL, "an argument is NULL");
    if ((fd = bind_any (AF_INET6, &port)) < 0)
        fd = bind_any (AF_INET, &port);
    if (fd < 0)
        return job_error (err, RV_JOB_EIO, "no port could be reserved: %s",
                          strerror (errno));
    if (fcntl (fd, F_SETFD, 0)) {
        close (fd);
        return job_error (err, RV_JOB_EIO, "port %u: %s", port,
                          strerror (errno));
    }
    *ret_port = port;
    *ret_fd = fd;
    return RV_JOB_OK;
}
