/* SPDX-License-Identifier: Apache-2.0
 * head.c - find the step's first node where its name tells nothing */
#define _GNU_SOURCE
#include "exec/head.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/log.h"
#include "job/job_impl.h"
#include "plan/hostlist.h"
#include "proc.h"

struct lookup {
    char name[256];
    char addr[INET6_ADDRSTRLEN]; /* the first that is no loopback, or "" */
};

static bool is_loopback (const struct sockaddr *sa)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)sa;
    const struct sockaddr_in6 *v6 =
        (const struct sockaddr_in6 *)(const void *)sa;

    if (sa->sa_family == AF_INET)
        return ntohl (v4->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK (&v6->sin6_addr);
}

static int do_lookup (void *arg)
{
    struct lookup *l = arg;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *all = NULL;

    if (getaddrinfo (l->name, NULL, &hints, &all))
        return 0;
    for (struct addrinfo *i = all; i && !l->addr[0]; i = i->ai_next)
        if ((i->ai_family == AF_INET || i->ai_family == AF_INET6)
            && !is_loopback (i->ai_addr))
            (void)getnameinfo (i->ai_addr, i->ai_addrlen, l->addr,
                               sizeof (l->addr), NULL, 0, NI_NUMERICHOST);
    freeaddrinfo (all);
    return 0;
}

static void lookup_undo (void *arg, int result)
{
    (void)result;
    free (arg);
}

/* A numeric address of [name] that is no loopback, within the deadline. */
static bool resolve (const char *name, char *buf, size_t size)
{
    struct lookup *l = calloc (1, sizeof (*l));
    rv_job_status_t status;
    int rc;

    if (!l)
        return false;
    snprintf (l->name, sizeof (l->name), "%s", name);
    status = deadline_call (do_lookup, lookup_undo, l,
                            job_now_ms () + HEAD_LOOKUP_MS, &rc);
    if (status == RV_JOB_ETIMEDOUT)
        return false; /* the thread owns it */
    snprintf (buf, size, "%s", status ? "" : l->addr);
    free (l);
    return buf[0] != '\0';
}

bool head_node_addr (const char *text, char *buf, size_t size)
{
    const char *at = strstr (text, " NodeAddr=");
    size_t len;

    if (!at)
        return false;
    at += strlen (" NodeAddr=");
    len = strcspn (at, " \n");
    return len > 0 && snprintf (buf, size, "%.*s", (int)len, at) < (int)size;
}

static bool ask_slurm (char *name, char *buf, size_t size)
{
    char show[] = "scontrol", *const argv[] = {show, "show", "node",
                                               "-o", name,   NULL};
    struct proc_opts opts = {.deadline_ms = HEAD_ASK_MS};
    struct proc_result r;
    bool found;

    if (proc_run (argv, &opts, &r, NULL))
        return false;
    found = r.status == 0 && head_node_addr (r.out, buf, size);
    proc_result_fini (&r);
    return found;
}

static bool is_concerned (void)
{
    const char *nodes = getenv ("SLURM_STEP_NUM_NODES"),
               *node = getenv ("SLURM_NODEID"), *head = getenv ("RV_HEAD_ADDR");

    /* On the first node itself loopback is right. */
    return nodes && node && strtoul (nodes, NULL, 10) > 1
           && strcmp (node, "0") != 0 && !(head && *head)
           && !getenv ("PMIX_NAMESPACE");
}

bool head_export (void)
{
    const char *list = getenv ("SLURM_STEP_NODELIST");
    char addr[INET6_ADDRSTRLEN], said[256], name[256];
    struct hostlist hosts = {0};
    bool set = false;

    if (!is_concerned () || !list || hostlist_parse (list, &hosts, NULL))
        return false;
    if (hosts.n)
        snprintf (name, sizeof (name), "%s", hosts.host[0]);
    if (hosts.n && !resolve (name, addr, sizeof (addr))
        && ask_slurm (name, said, sizeof (said))
        && resolve (said, addr, sizeof (addr))) {
        log_line (LOG_DEBUG, "node %s is at %s", name, addr);
        set = !setenv ("RV_HEAD_ADDR", addr, 1);
    }
    hostlist_fini (&hosts);
    return set;
}
