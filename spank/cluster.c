/* SPDX-License-Identifier: Apache-2.0
 * cluster.c - what the plugin asks slurmctld, in client processes only */
#include "cluster.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <slurm/slurm.h>
#include <stdlib.h>
#include <string.h>

#include "plan/hostlist.h"

/* count_gres - one node more with this gres text. */
static int count_gres (struct cluster_offers *o, const char *gres)
{
    struct node_offer *grown;
    char *copy;

    for (size_t i = 0; i < o->n; i++)
        if (strcmp (o->offer[i].gres, gres) == 0) {
            o->offer[i].nodes++;
            return 0;
        }
    grown = realloc (o->offer, (o->n + 1) * sizeof (*grown));
    if (!grown)
        return -1;
    o->offer = grown;
    copy = strdup (gres);
    if (!copy)
        return -1;
    o->offer[o->n++] = (struct node_offer){.gres = copy, .nodes = 1};
    return 0;
}

int cluster_offers_load (struct cluster_offers *ret)
{
    struct cluster_offers o = {0};
    node_info_msg_t *msg = NULL;
    int rc = 0;

    if (slurm_load_node ((time_t)0, &msg, SHOW_ALL) != 0)
        return -1;
    for (uint32_t i = 0; rc == 0 && i < msg->record_count; i++) {
        const node_info_t *node = &msg->node_array[i];

        if (node->name && node->gres)
            rc = count_gres (&o, node->gres);
    }
    slurm_free_node_info_msg (msg);
    if (rc)
        cluster_offers_fini (&o);
    else
        *ret = o;
    return rc;
}

void cluster_offers_fini (struct cluster_offers *offers)
{
    for (size_t i = 0; i < offers->n; i++)
        free ((char *)offers->offer[i].gres);
    free (offers->offer);
    *offers = (struct cluster_offers){0};
}

static bool is_partition (const partition_info_t *part, const char *name)
{
    size_t len;

    if (!name)
        return part->flags & PART_FLAG_DEFAULT;
    len = strcspn (name, ",");
    return part->name && strlen (part->name) == len
           && strncmp (part->name, name, len) == 0;
}

/* The type of Slurm's lists, and of their iterators, has another name in each
 * release. */
typedef __typeof__ (((slurm_conf_t *)0)->job_defaults_list) defaults_t;
typedef __typeof__ (slurm_list_iterator_create (NULL)) iterator_t;

/* default_cpus - DefCpuPerGPU among job defaults, 0 without it. */
static uint32_t default_cpus (defaults_t defaults)
{
    const job_defaults_t *d;
    iterator_t it;
    uint32_t n = 0;

    if (!defaults)
        return 0;
    it = slurm_list_iterator_create (defaults);
    while ((d = slurm_list_next (it)))
        if (d->type == JOB_DEF_CPU_PER_GPU && d->value < UINT16_MAX)
            n = (uint32_t)d->value;
    slurm_list_iterator_destroy (it);
    return n;
}

static uint32_t site_cpus (void)
{
    slurm_conf_t *conf = NULL;
    uint32_t n;

    if (slurm_load_ctl_conf ((time_t)0, &conf) != 0)
        return 0;
    n = default_cpus (conf->job_defaults_list);
    slurm_free_ctl_conf (conf);
    return n;
}

uint32_t cluster_cpus_per_gpu (const char *partition)
{
    partition_info_msg_t *msg = NULL;
    uint32_t n = 0;

    if (slurm_load_partitions ((time_t)0, &msg, SHOW_ALL) == 0) {
        for (uint32_t i = 0; i < msg->record_count; i++)
            if (is_partition (&msg->partition_array[i], partition))
                n = default_cpus (msg->partition_array[i].job_defaults_list);
        slurm_free_partition_info_msg (msg);
    }
    if (n == 0)
        n = site_cpus ();
    return n ? n : 1;
}

bool cluster_mpi_is_pmix (void)
{
    slurm_conf_t *conf = NULL;
    bool pmix;

    if (slurm_load_ctl_conf ((time_t)0, &conf) != 0)
        return false;
    pmix = conf->mpi_default && strncmp (conf->mpi_default, "pmix", 4) == 0;
    slurm_free_ctl_conf (conf);
    return pmix;
}

/* numeric - [name] as an address that other nodes can use. */
static int numeric (const char *name, char *buf, size_t size)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    struct addrinfo *ai = NULL;
    struct in_addr literal;
    int rc = -1;

    if (getaddrinfo (name, NULL, &hints, &ai) != 0) {
        hints.ai_family = AF_INET6;
        if (getaddrinfo (name, NULL, &hints, &ai) != 0)
            return -1;
    }
    if (getnameinfo (ai->ai_addr, ai->ai_addrlen, buf, (socklen_t)size, NULL, 0,
                     NI_NUMERICHOST)
        == 0)
        rc = 0;
    freeaddrinfo (ai);
    if (rc == 0 && (strncmp (buf, "127.", 4) == 0 || strcmp (buf, "::1") == 0)
        && inet_pton (AF_INET, name, &literal) != 1 && strcmp (name, "::1") != 0
        && strcmp (name, "localhost") != 0)
        return -1;
    return rc;
}

static int node_addr (char *name, char *buf, size_t size)
{
    node_info_msg_t *msg = NULL;
    int rc = -1;

    if (slurm_load_node_single (&msg, name, SHOW_ALL) != 0)
        return -1;
    if (msg->record_count > 0 && msg->node_array[0].node_addr)
        rc = numeric (msg->node_array[0].node_addr, buf, size);
    slurm_free_node_info_msg (msg);
    return rc;
}

/* head_node - which of the step's nodes has rank 0: the first, unless hosts
 * were listed (-m arbitrary). */
static uint32_t head_node (const slurm_step_layout_t *layout)
{
    for (uint32_t i = 0; layout->tids && i < layout->node_cnt; i++)
        for (uint32_t k = 0; layout->tids[i] && k < layout->tasks[i]; k++)
            if (layout->tids[i][k] == 0)
                return i;
    return 0;
}

int cluster_head_addr (uint32_t job_id, uint32_t step_id, char *buf,
                       size_t size)
{
    slurm_step_id_t id = {
        .job_id = job_id, .step_id = step_id, .step_het_comp = NO_VAL};
    slurm_step_layout_t *layout = slurm_job_step_layout_get (&id);
    struct hostlist hosts = {0};
    uint32_t head;
    int rc = -1;

    if (!layout)
        return -1;
    head = head_node (layout);
    if (layout->node_list
        && hostlist_parse (layout->node_list, &hosts, NULL) == RV_OK
        && hosts.n > head)
        rc = node_addr (hosts.host[head], buf, size);
    hostlist_fini (&hosts);
    slurm_job_step_layout_free (layout);
    return rc;
}

static bool says_gpu (const char *tres)
{
    return tres && strstr (tres, "gpu");
}

/* What was allocated shows only where the site counts it, so what was asked
 * for counts too. */
static bool job_has_gpus (const slurm_job_info_t *job)
{
    for (uint32_t i = 0; i < job->gres_detail_cnt; i++)
        if (says_gpu (job->gres_detail_str[i]))
            return true;
    return says_gpu (job->tres_alloc_str) || says_gpu (job->tres_per_job)
           || says_gpu (job->tres_per_node) || says_gpu (job->tres_per_socket)
           || says_gpu (job->tres_per_task);
}

bool cluster_job_has_gpus (uint32_t job_id)
{
    job_info_msg_t *msg = NULL;
    bool found = false;

    if (slurm_load_job (&msg, job_id, SHOW_ALL | SHOW_DETAIL) != 0)
        return false;
    for (uint32_t i = 0; i < msg->record_count; i++)
        found = found || job_has_gpus (&msg->job_array[i]);
    slurm_free_job_info_msg (msg);
    return found;
}
