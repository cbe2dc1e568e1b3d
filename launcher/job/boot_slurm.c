/* SPDX-License-Identifier: Apache-2.0
 * boot_slurm.c - boot by the variables of a Slurm step, values over TCP
 *
 * Nothing is opened before the first fence; then rank 0 listens on a port that
 * all ranks compute (exchange.h). Every address by which rank 0 might be
 * reached is tried: the token tells whether it is the right one. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/exchange.h"
#include "plan/hostlist.h"

#define PORT_FIRST 20000 /* 20000..31999 lies below the ephemeral range */
#define PORT_COUNT 12000
#define PORT_STEP  997 /* prime to PORT_COUNT: alternatives do not bunch up */

struct priv {
    struct exchange *x; /* NULL in a step of one task */
    struct epoch {
        unsigned char *all;
        size_t len;
    } * epoch; /* (n) */
    size_t n;
};

/* FNV-1a. What it mixes is the same in all tasks of a step and, put together,
 * in no other: srun's port and the controller tell clusters apart. Each
 * component of a heterogeneous step has a port of its own.
 *
 * It is no secret: squeue and scontrol show any user all of it but srun's port,
 * which is one of some ten thousand. Another user who reaches rank 0's port, or who
 * sits on it on a node that is shared, can take a rank's or rank 0's place and
 * read or give values; nothing that is mixed in here would help, since whoever
 * sits there is shown the token. To keep him out both sides would have to prove a
 * secret without telling it, and so would MASTER_PORT's users, NCCL and torch's
 * store among them, which ask nobody. */
static uint64_t step_token (void)
{
    static const char *const name[] = {
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_JOB_UID",
        "SLURM_STEP_NODELIST",
        "SLURM_CLUSTER_NAME",
        "SLURM_WORKING_CLUSTER",
        "SLURM_SRUN_COMM_HOST",
        "SLURM_RESTART_COUNT",
        "SLURM_STEP_LAUNCHER_PORT",
    };
    size_t n = sizeof (name) / sizeof (name[0]);
    uint64_t hash = 0xcbf29ce484222325;

    if (getenv ("SLURM_HET_SIZE"))
        n--;
    for (size_t i = 0; i < n; i++) {
        const char *c = getenv (name[i]);

        do {
            hash = (hash ^ (unsigned char)(c ? *c : 0)) * 0x100000001b3;
        } while (c && *c++);
    }
    return hash;
}

static void fill_ports (const struct rv_job *job, uint16_t *port)
{
    uint64_t first = 31 * (uint64_t)job->job_id + job->step_id;

    for (unsigned i = 0; i < EXCHANGE_PORTS; i++)
        port[i] = (uint16_t)(PORT_FIRST + (first + i * PORT_STEP) % PORT_COUNT);
}

static struct exchange *make_exchange (const struct rv_job *job,
                                       rv_job_error_t *err)
{
    const char *list = getenv ("SLURM_STEP_NODELIST"), *quick[4];
    struct exchange_opts o = {.token = step_token (),
                              .rank = job->rank,
                              .size = job->size,
                              .local = job->nodes == 1,
                              .quick = quick};
    struct rv_error plan_err = {0};
    struct hostlist hosts = {0};
    struct exchange *x;
    size_t n = 0;

    if (hostlist_parse (list ? list : "", &hosts, &plan_err)) {
        job_error (err, RV_JOB_EFORMAT, "SLURM_STEP_NODELIST: %s",
                   plan_err.text);
        return NULL;
    }
    if (!o.local && getenv ("RV_HEAD_ADDR"))
        quick[n++] = getenv ("RV_HEAD_ADDR");
    quick[n++] =
        "127.0.0.1"; /* several nodes on one machine, as in a sandbox */
    if (!o.local && getenv ("SLURM_LAUNCH_NODE_IPADDR"))
        quick[n++] = getenv ("SLURM_LAUNCH_NODE_IPADDR");
    quick[n] = NULL;
    if (!o.local && hosts.n)
        o.lookup = hosts.host[0];
    fill_ports (job, o.port);
    if (!(x = exchange_create (&o)))
        job_error (err, RV_JOB_ENOMEM, "out of memory");
    hostlist_fini (&hosts);
    return x;
}

static void op_close (struct rv_job *job)
{
    struct priv *p = job->priv;

    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++)
        free (p->epoch[i].all);
    free (p->epoch);
    exchange_destroy (p->x);
    free (p);
    job->priv = NULL;
}

static rv_job_status_t op_open (struct rv_job *job, bool asked, int64_t end_ms,
                                rv_job_error_t *err)
{
    rv_job_status_t status = job_step_facts (job, err);
    struct priv *p;

    (void)asked;
    (void)end_ms;
    if (status)
        return status;
    if (!(p = calloc (1, sizeof (*p))))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    if (job->size > 1 && !(p->x = make_exchange (job, err))) {
        free (p);
        return err && err->code ? err->code : RV_JOB_EFORMAT;
    }
    job->priv = p;
    return RV_JOB_OK;
}

/* One task: the frame that an exchange would give. */
static rv_job_status_t alone (const void *blob, size_t len,
                              unsigned char **ret_all, size_t *ret_len,
                              rv_job_error_t *err)
{
    unsigned char *all = malloc (len + 4);

    if (!all)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    exchange_put32 (all, (uint32_t)len);
    if (len)
        memcpy (all + 4, blob, len);
    *ret_all = all;
    *ret_len = len + 4;
    return RV_JOB_OK;
}

static rv_job_status_t op_fence (struct rv_job *job, uint32_t epoch,
                                 const void *blob, size_t len, int64_t end_ms,
                                 rv_job_error_t *err)
{
    struct priv *p = job->priv;
    struct epoch *grown = realloc (p->epoch, (p->n + 1) * sizeof (*grown)), e;
    rv_job_status_t status;

    if (!grown)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    p->epoch = grown;
    status = p->x ? exchange_swap (p->x, epoch, blob, len, end_ms, &e.all,
                                   &e.len, err)
                  : alone (blob, len, &e.all, &e.len, err);
    if (!status)
        p->epoch[p->n++] = e;
    return status;
}

static rv_job_status_t op_fetch (struct rv_job *job, uint32_t epoch,
                                 uint32_t rank, void **ret_blob,
                                 size_t *ret_len, rv_job_error_t *err)
{
    const struct priv *p = job->priv;
    size_t len = 0;
    const unsigned char *blob =
        exchange_find (p->epoch[epoch].all, p->epoch[epoch].len, rank, &len);
    void *copy = malloc (len ? len : 1);

    if (!copy)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    if (len)
        memcpy (copy, blob, len);
    *ret_blob = copy;
    *ret_len = len;
    return RV_JOB_OK;
}

const struct boot_ops boot_slurm = {
    .name = "slurm",
    .open = op_open,
    .fence = op_fence,
    .fetch = op_fetch,
    .close = op_close,
};
