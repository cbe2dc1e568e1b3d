/* SPDX-License-Identifier: Apache-2.0
 * wish.c - what a user asked of a client of Slurm, and what it becomes
 *
 * srun reads GPUs, tasks and CPUs a GPU from its environment. Four GPUs on
 * two nodes of two need all three: with SLURM_GPUS and SLURM_NTASKS alone the
 * tasks fall 3+1. CPUs a GPU exclude -c; then tasks a node spread them. sbatch
 * and salloc read GPUs alone, and no number of tasks. */
#include "config.h"

#include "wish.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"

/* Options that ask Slurm for GPUs, and their variables. */
static const struct {
    const char *option, *variable;
    bool any_gres; /* only when the value speaks of GPUs */
} rivals[] = {
    {"gpus", "GPUS", false},
    {"gpus-per-node", "GPUS_PER_NODE", false},
    {"gpus-per-socket", "GPUS_PER_SOCKET", false},
    {"gpus-per-task", "GPUS_PER_TASK", false},
    {"gres", "GRES", true},
    {"ntasks-per-gpu", "NTASKS_PER_GPU", false},
    {"ntasks-per-tres", "NTASKS_PER_TRES", false},
    {"tres-per-task", "TRES_PER_TASK", true},
};
#define N_RIVALS (sizeof (rivals) / sizeof (rivals[0]))

static const char *prefix (enum cli_client client)
{
    switch (client) {
    case CLI_SBATCH:
        return "SBATCH_";
    case CLI_SALLOC:
        return "SALLOC_";
    default:
        return "SLURM_";
    }
}

const char *wish_partition_name (enum cli_client client)
{
    return client == CLI_SBATCH   ? "SBATCH_PARTITION"
           : client == CLI_SALLOC ? "SALLOC_PARTITION"
                                  : "SLURM_PARTITION";
}

const char *wish_constraint_name (enum cli_client client)
{
    return client == CLI_SBATCH   ? "SBATCH_CONSTRAINT"
           : client == CLI_SALLOC ? "SALLOC_CONSTRAINT"
                                  : "SLURM_CONSTRAINT";
}

static const char *gpus_name (enum cli_client client)
{
    switch (client) {
    case CLI_SBATCH:
        return "SBATCH_GPUS";
    case CLI_SALLOC:
        return "SALLOC_GPUS";
    default:
        return "SLURM_GPUS";
    }
}

/* "none" takes away what was asked and so is a rival too. */
static bool speaks_of_gpus (const char *value)
{
    return strcasestr (value, "gpu") || strcasecmp (value, "none") == 0;
}

static void note_rival (struct wish *w, size_t i, const char *dashes,
                        const char *name, const char *value)
{
    if (rivals[i].any_gres && (!value || !speaks_of_gpus (value)))
        return;
    snprintf (w->conflict, sizeof (w->conflict), "%s%s", dashes, name);
}

static void init_rivals (struct wish *w, wish_get_f get)
{
    for (size_t i = 0; i < N_RIVALS; i++) {
        char name[64];
        const char *value;

        snprintf (name, sizeof (name), "%s%s", prefix (w->client),
                  rivals[i].variable);
        value = get (name);
        if (value)
            note_rival (w, i, "", name, value);
    }
}

/* number - 0 for NULL, -1 for a range, a list or another text. */
static long number (const char *value)
{
    long n = -1;

    if (!value)
        return 0;
    return count_parse (value, INT32_MAX, &n, NULL) ? -1 : n;
}

static void init_srun (struct wish *w, wish_get_f get)
{
    w->inside = get ("SLURM_JOB_ID") != NULL;
    w->tasks = number (get ("SLURM_NTASKS") ? get ("SLURM_NTASKS")
                                            : get ("SLURM_NPROCS"));
    w->tasks_per_node = number (get ("SLURM_NTASKS_PER_NODE"));
    w->nodes = number (get ("SLURM_JOB_NUM_NODES"));
    /* Which of the two srun reads depends on its release. */
    w->cpus_per_task =
        get ("SRUN_CPUS_PER_TASK") || get ("SLURM_CPUS_PER_TASK");
    w->cpus_per_gpu = get ("SLURM_CPUS_PER_GPU");
    w->mpi = get ("SLURM_MPI_TYPE");
    w->partition = get ("SLURM_PARTITION");
    w->kill = get ("SLURM_KILL_BAD_EXIT") != NULL;
}

/* Slurm's word for an option without a value. */
static const char *option_text (const char *value)
{
    return value && strcmp (value, "(null)") == 0 ? "" : value;
}

void wish_init (struct wish *w, enum cli_client client, wish_get_f get)
{
    char clusters[32];

    *w = (struct wish){.client = client};
    if (client == CLI_SRUN)
        init_srun (w, get);
    if (client == CLI_SRUN || !get ("SLURM_JOB_ID")) {
        w->gpu = get (WISH_OPTION_ENV "rv_gpu");
        w->timeout = get (WISH_OPTION_ENV "rv_nccl_timeout");
        w->env = get (WISH_OPTION_ENV "rv_env");
        w->differ = get (WISH_OPTION_ENV "rv_differ");
        w->mig = option_text (get (WISH_OPTION_ENV "rv_mig"));
        w->mig_asked = w->mig != NULL;
        w->isolate_asked = get (WISH_OPTION_ENV "rv_isolate") != NULL;
        w->gpu_asked = w->gpu != NULL;
        w->env_asked = w->env != NULL;
        w->timeout_asked = w->timeout != NULL;
        w->differ_asked = w->differ != NULL;
    }
    snprintf (clusters, sizeof (clusters), "%sCLUSTERS", prefix (client));
    w->elsewhere = get (clusters) || get ("SLURM_CLUSTERS");
    init_rivals (w, get);
}

static void seen_rival (struct wish *w, const char *name, const char *value)
{
    for (size_t i = 0; i < N_RIVALS; i++)
        if (strcmp (name, rivals[i].option) == 0)
            note_rival (w, i, "--", name, value);
}

void wish_seen_script (void *wish, const char *name, const char *value)
{
    struct wish *w = wish;

    seen_rival (w, name, value);
    if (strcmp (name, "rv-gpu") == 0) {
        w->script_gpu_asked = true;
        snprintf (w->script_gpu, sizeof (w->script_gpu), "%s",
                  value ? value : "");
    } else if (strcmp (name, "rv-mig") == 0) {
        w->script_mig_asked = true;
        snprintf (w->script_mig, sizeof (w->script_mig), "%s",
                  value ? value : "");
    } else if (strcmp (name, "partition") == 0 && value && !w->partition) {
        snprintf (w->script_partition, sizeof (w->script_partition), "%s",
                  value);
        w->partition = w->script_partition;
    } else if (strcmp (name, "constraint") == 0 && value && !w->constraint) {
        snprintf (w->script_constraint, sizeof (w->script_constraint), "%s",
                  value);
        w->constraint = w->script_constraint;
    } else if (strcmp (name, "ntasks") == 0 && !w->tasks) {
        w->tasks = number (value);
    } else if (strcmp (name, "nodes") == 0 && !w->nodes) {
        w->nodes = number (value);
    } else if ((strcmp (name, "ntasks-per-node") == 0
                || strcmp (name, "tasks-per-node") == 0)
               && !w->tasks_per_node) {
        w->tasks_per_node = number (value);
    }
}

void wish_take_script (struct wish *w)
{
    if (!w->gpu_asked && w->script_gpu_asked) {
        w->gpu_asked = true;
        w->gpu = w->script_gpu;
    }
    if (!w->mig_asked && w->script_mig_asked) {
        w->mig_asked = true;
        w->mig = w->script_mig;
    }
}

void wish_seen (void *wish, const char *name, const char *value)
{
    struct wish *w = wish;

    seen_rival (w, name, value);
    if (strcmp (name, "rv-gpu") == 0)
        w->gpu_asked = true, w->gpu = value;
    else if (strcmp (name, "rv-mig") == 0)
        w->mig_asked = true, w->mig = value;
    else if (strcmp (name, "rv-isolate") == 0)
        w->isolate_asked = true;
    else if (strcmp (name, "rv-nccl-timeout") == 0)
        w->timeout_asked = true, w->timeout = value;
    else if (strcmp (name, "rv-differ") == 0)
        w->differ_asked = true, w->differ = value;
    else if (strcmp (name, "rv-env") == 0)
        w->env_asked = true, w->env = value;
    else if (strcmp (name, "cpus-per-gpu") == 0)
        w->cpus_per_gpu = value;
    else if (strcmp (name, "partition") == 0)
        w->partition = value;
    else if (strcmp (name, "constraint") == 0)
        w->constraint = value;
    else if (strcmp (name, "mpi") == 0)
        w->mpi = value;
    else if (strcmp (name, "nodes") == 0)
        w->nodes = number (value);
    else if (strcmp (name, "ntasks") == 0)
        w->tasks = number (value);
    else if (strcmp (name, "ntasks-per-node") == 0
             || strcmp (name, "tasks-per-node") == 0)
        w->tasks_per_node = number (value);
    else if (strcmp (name, "cpus-per-task") == 0)
        w->cpus_per_task = true;
    else if (strcmp (name, "kill-on-bad-exit") == 0)
        w->kill = true;
    else if (strcmp (name, "clusters") == 0 || strcmp (name, "cluster") == 0)
        w->elsewhere = true;
    else if (strcmp (name, "wrap") == 0)
        w->wrap = true;
    else if (strcmp (name, "jobid") == 0)
        w->inside = true;
}

int wish_parse_env (const char *text, bool *ret_on, struct rv_error *err)
{
    if (!text || (strcmp (text, "on") != 0 && strcmp (text, "off") != 0))
        return error_set (err, RV_EINVAL, "it is on or off");
    *ret_on = strcmp (text, "on") == 0;
    return RV_OK;
}

int wish_check (const struct wish *w, struct rv_error *err)
{
    if (w->conflict[0])
        return error_set (err, RV_EINVAL,
                          "%s asks for GPUs too; keep one of the two",
                          w->conflict);
    return RV_OK;
}

/* tasks_asked - how many tasks the user asks for, 0 when that is not said or
 * is no one number. */
static uint64_t tasks_asked (const struct wish *w)
{
    if (w->tasks > 0)
        return (uint64_t)w->tasks;
    if (w->tasks == 0 && w->tasks_per_node > 0 && w->nodes > 0)
        return (uint64_t)w->tasks_per_node * (uint64_t)w->nodes;
    /* sbatch and salloc make one task of silence. */
    if (w->tasks == 0 && w->tasks_per_node == 0 && w->client != CLI_SRUN)
        return w->nodes > 0 ? (uint64_t)w->nodes : 1;
    return 0;
}

int wish_check_mig (const struct wish *w, uint32_t count, struct rv_error *err)
{
    uint64_t tasks = tasks_asked (w);

    if (w->gpu_asked)
        return error_set (err, RV_EINVAL,
                          "--rv-gpu asks for whole GPUs too; keep one of the "
                          "two");
    if (w->conflict[0])
        return error_set (err, RV_EINVAL,
                          "%s asks for GPUs too; keep one of the two",
                          w->conflict);
    if (tasks > 0 && tasks < count)
        return error_set (err, RV_EINVAL,
                          "%" PRIu32 " slices for %" PRIu64 " task%s, and a "
                          "process of CUDA uses one; start %" PRIu32
                          " tasks (-n %" PRIu32 "), ask for fewer slices, or "
                          "for a larger profile or whole GPUs (--rv-gpu)",
                          count, tasks, tasks == 1 ? "" : "s", count, count);
    if (tasks > count)
        return error_set (err, RV_EINVAL,
                          "%" PRIu64 " tasks for %" PRIu32 " slice%s; each "
                          "task needs its own: ask for PROFILE:%" PRIu64
                          " or start %" PRIu32 " (-n %" PRIu32 ")",
                          tasks, count, count == 1 ? "" : "s", tasks, count,
                          count);
    return RV_OK;
}

int wish_check_nccl (const char *version, const char *enable, uint32_t count,
                     char ret_warn[256], struct rv_error *err)
{
    int major = 0, minor = 0;

    ret_warn[0] = '\0';
    if (count < 2 || enable)
        return RV_OK;
    if (!version || sscanf (version, "%6d.%6d", &major, &minor) != 2) {
        snprintf (ret_warn, 256,
                  "slices may lie on one card, where ranks that use NCCL need "
                  "2.30 and NCCL_MULTI_RANK_GPU_ENABLE=1; this machine does "
                  "not tell the job's NCCL");
        return RV_OK;
    }
    if (major > 2 || (major == 2 && minor >= 30)) {
        snprintf (ret_warn, 256,
                  "slices may lie on one card: ranks that use NCCL need "
                  "NCCL_MULTI_RANK_GPU_ENABLE=1 then");
        return RV_OK;
    }
    return error_set (err, RV_EINVAL,
                      "slices may lie on one card, and NCCL %s refuses two "
                      "ranks there; use one slice, whole GPUs (--rv-gpu), NCCL "
                      "2.30 with NCCL_MULTI_RANK_GPU_ENABLE=1, or set that to "
                      "0 if no rank uses NCCL",
                      version);
}

/* add - one variable more; [n] is how many there are. */
__attribute__ ((format (printf, 4, 5))) static size_t add (struct wish_var *ret,
                                                           size_t n,
                                                           const char *name,
                                                           const char *fmt, ...)
{
    va_list ap;

    ret[n].name = name;
    va_start (ap, fmt);
    vsnprintf (ret[n].value, sizeof (ret[n].value), fmt, ap);
    va_end (ap);
    return n + 1;
}

/* spread - tasks lie where the GPUs lie, [k] on each. */
static size_t spread (const struct wish *w, const struct gpu_request *req,
                      const struct wish_site *site, uint32_t k,
                      struct wish_var *ret, size_t n)
{
    uint32_t per = req->count < site->per_node ? req->count : site->per_node;

    if (w->nodes > 0 && req->count % w->nodes == 0)
        per = req->count / (uint32_t)w->nodes;
    if (w->cpus_per_task)
        return add (ret, n, "SLURM_NTASKS_PER_NODE", "%" PRIu32, per * k);
    if (w->cpus_per_gpu)
        return n;
    return add (ret, n, "SLURM_CPUS_PER_GPU", "%" PRIu32,
                k > site->cpus_per_gpu ? k : site->cpus_per_gpu);
}

static size_t srun_vars (const struct wish *w, const struct gpu_request *req,
                         const struct wish_site *site, struct wish_var *ret,
                         size_t n)
{
    uint32_t nodes = (req->count + site->per_node - 1) / site->per_node;

    if (w->tasks_per_node) {
        if (w->tasks_per_node > 0 && !w->tasks && !w->nodes)
            n = add (ret, n, "SLURM_NTASKS", "%ld", nodes * w->tasks_per_node);
        return n;
    }
    if (!w->tasks) {
        n = add (ret, n, "SLURM_NTASKS", "%" PRIu32, req->count);
        return spread (w, req, site, 1, ret, n);
    }
    if (w->tasks > 0 && w->tasks % req->count == 0)
        return spread (w, req, site, (uint32_t)w->tasks / req->count, ret, n);
    return n;
}

size_t wish_vars (const struct wish *w, const struct gpu_request *req,
                  const struct wish_site *site,
                  struct wish_var ret[WISH_VARS_MAX])
{
    size_t n = 0;

    if (w->inside)
        return 0;
    n = add (ret, n, gpus_name (w->client), "%s%s%" PRIu32, site->type,
             site->type[0] ? ":" : "", req->count);
    return w->client == CLI_SRUN ? srun_vars (w, req, site, ret, n) : n;
}

struct types {
    char name[16][GRES_NAME_MAX]; /* whole GPUs */
    size_t n;
    bool mig;
};

static void add_type (struct types *t, const struct gres_entry *e)
{
    if (gres_is_mig (e->type)) {
        t->mig = true;
        return;
    }
    for (size_t i = 0; i < t->n; i++)
        if (strcmp (t->name[i], e->type) == 0)
            return;
    if (t->n < sizeof (t->name) / sizeof (t->name[0]))
        memcpy (t->name[t->n++], e->type, GRES_NAME_MAX);
}

/* look - note the types of one node and how many GPUs of [type] it has. */
static int look (const char *gres, const char *type, struct types *t,
                 char *spelled, uint64_t *most, struct rv_error *err)
{
    struct gres_list list;
    uint64_t count;
    int rc = gres_parse (gres, &list, err);

    if (rc)
        return rc;
    for (size_t i = 0; i < list.n; i++) {
        const struct gres_entry *e = &list.entry[i];

        if (strcmp (e->name, "gpu") != 0)
            continue;
        add_type (t, e);
        if (type[0] && strcasecmp (type, e->type) == 0)
            memcpy (spelled, e->type, GRES_NAME_MAX);
    }
    count = gres_count (&list, type);
    if (count > *most)
        *most = count;
    gres_fini (&list);
    return RV_OK;
}

static int refuse_untyped (const struct types *t, uint32_t count,
                           struct rv_error *err)
{
    char names[256] = "";
    size_t used = 0;

    for (size_t i = 0; i < t->n && used < sizeof (names); i++)
        used += (size_t)snprintf (names + used, sizeof (names) - used, "%s%s",
                                  i ? ", " : "", t->name[i]);
    return error_set (err, RV_EINVAL,
                      "this cluster has MIG slices, which Slurm would give "
                      "too; name a type: %s (--rv-gpu=%s:%" PRIu32 ")",
                      names, t->name[0], count);
}

int wish_dedicated (const struct gpu_request *req,
                    const struct node_offer *offers, size_t n,
                    struct wish_site *ret_site, struct rv_error *err)
{
    char spelled[GRES_NAME_MAX];
    struct types t = {0};
    uint64_t most = 0;

    if (gres_is_mig (req->type))
        return error_set (err, RV_EINVAL,
                          "'%s' is a MIG profile and no whole GPU; use "
                          "--rv-mig=%s:%" PRIu32,
                          req->type, req->type, req->count);
    memcpy (spelled, req->type, sizeof (spelled));
    for (size_t i = 0; i < n; i++) {
        int rc = look (offers[i].gres, req->type, &t, spelled, &most, err);

        if (rc)
            return rc;
    }
    if (!req->type[0] && t.mig && t.n > 1)
        return refuse_untyped (&t, req->count, err);
    if (!req->type[0] && t.mig && t.n == 1)
        memcpy (spelled, t.name[0], sizeof (spelled));
    memcpy (ret_site->type, spelled, sizeof (spelled));
    ret_site->per_node = most ? (uint32_t)most : req->count;
    return RV_OK;
}
