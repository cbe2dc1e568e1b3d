/* SPDX-License-Identifier: Apache-2.0
 * agree.c - where the ranks of a step meet: rank 0's address and ports */
#include "config.h"

#include "exec/agree.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "exec/log.h"

#define HOST_MAX 128
#define MEET_MAX 512

/* What two processes share when 127.0.0.1 is the same place for both. */
static void host_id (char *buf, size_t size)
{
    char boot[64] = "", net[48] = "";
    int fd = open ("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read (fd, boot, sizeof (boot) - 1);

    if (fd >= 0)
        close (fd);
    if (n > 0)
        boot[strcspn (boot, "\n")] = '\0';
    n = readlink ("/proc/self/ns/net", net, sizeof (net) - 1);
    if (n > 0)
        net[n] = '\0';
    /* Without either nobody can be said to share it. */
    if (boot[0] && net[0])
        snprintf (buf, size, "%s %s", boot, net);
    else
        snprintf (buf, size, "? %s %d", log_node (), (int)getpid ());
}

/* Rank 0's part: "PORT CAUSEPORT TOKEN TIMEOUT ADDRESS...". */
static rv_job_status_t offer (rv_job_t *job, struct meeting *m,
                              rv_job_error_t *err)
{
    char text[MEET_MAX], addr[MEET_MAX / 2];
    rv_job_status_t status;
    int n;

    if ((status = rv_job_reserve_port (job, &m->port, &m->port_fd, err))
        || (status = rv_job_address (job, addr, sizeof (addr), err)))
        return status;
    cause_listen (&m->cause, rv_job_size (job), rv_job_nodes (job) == 1);
    n = snprintf (text, sizeof (text), "%u %u %" PRIu64 " %" PRId64 " %s",
                  m->port, m->cause.port, m->cause.token,
                  rv_job_timeout_ms (job) / 1000, addr);
    return rv_job_put (job, "meet", text, (size_t)n, err);
}

static rv_job_status_t one_host (rv_job_t *job, bool *ret, rv_job_error_t *err)
{
    char first[HOST_MAX], other[HOST_MAX];
    size_t first_len, len;
    rv_job_status_t status;

    *ret = true;
    if (rv_job_nodes (job) == 1)
        return RV_JOB_OK;
    status =
        rv_job_get (job, 0, "host", first, sizeof (first), &first_len, err);
    for (uint32_t r = 1; !status && *ret && r < rv_job_size (job); r++) {
        status = rv_job_get (job, r, "host", other, sizeof (other), &len, err);
        *ret = !status && len == first_len && !memcmp (first, other, len);
    }
    return status;
}

static rv_job_status_t read_offer (rv_job_t *job, struct meeting *m,
                                   rv_job_error_t *err)
{
    char text[MEET_MAX + 1];
    unsigned port, cause_port;
    size_t len = 0;
    rv_job_status_t status =
        rv_job_get (job, 0, "meet", text, MEET_MAX, &len, err);

    if (status)
        return status;
    text[len] = '\0';
    if (sscanf (text, "%5u %5u %" SCNu64 " %" SCNd64 " %63s", &port,
                &cause_port, &m->cause.token, &m->timeout_s, m->addr)
            != 5
        || port > UINT16_MAX || cause_port > UINT16_MAX) {
        snprintf (err->text, sizeof (err->text), "rank 0 offers nonsense");
        return err->code = RV_JOB_EFORMAT;
    }
    m->port = (uint16_t)port;
    m->cause.port = (uint16_t)cause_port;
    return RV_JOB_OK;
}

/* The first of our own addresses, as rank 0 offers its first. */
static rv_job_status_t local_addr (rv_job_t *job, bool same, struct meeting *m,
                                   rv_job_error_t *err)
{
    char addr[MEET_MAX / 2] = "127.0.0.1";
    rv_job_status_t status =
        same ? RV_JOB_OK : rv_job_address (job, addr, sizeof (addr), err);

    addr[strcspn (addr, " ")] = '\0';
    snprintf (m->local_addr, sizeof (m->local_addr), "%.63s", addr);
    return status;
}

rv_job_status_t agree (rv_job_t *job, struct meeting *ret, rv_job_error_t *err)
{
    char host[HOST_MAX];
    rv_job_status_t status = RV_JOB_OK;
    bool same = false;

    *ret = (struct meeting){.port_fd = -1};
    cause_init (&ret->cause, rv_job_rank (job));
    host_id (host, sizeof (host));
    if (rv_job_rank (job) == 0)
        status = offer (job, ret, err);
    if (status || (status = rv_job_put (job, "host", host, strlen (host), err))
        || (status = rv_job_fence (job, 0, err))
        || (status = read_offer (job, ret, err))
        || (status = one_host (job, &same, err)))
        return status;
    if (same)
        snprintf (ret->addr, sizeof (ret->addr), "127.0.0.1");
    if ((status = local_addr (job, same, ret, err)))
        return status;
    snprintf (ret->cause.addr, sizeof (ret->cause.addr), "%s", ret->addr);
    return RV_JOB_OK;
}
