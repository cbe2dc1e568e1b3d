/* SPDX-License-Identifier: Apache-2.0
 * wish.h - what a user asked of srun, sbatch or salloc, as far as it matters
 * to the plugin, and what it becomes.
 *
 * Pure: words and an environment in; variables of Slurm, or a refusal, out. */
#ifndef RV_SPANK_WISH_H
#define RV_SPANK_WISH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cli.h"
#include "plan/error.h"
#include "plan/request.h"

/* How spank_option_register's options travel in a job's environment. */
#define WISH_OPTION_ENV "SLURM_SPANK__SLURM_SPANK_OPTION_rv_"

struct wish {
    enum cli_client client;
    const char *gpu;     /* text of --rv-gpu, NULL = without a value */
    const char *timeout; /* text of --rv-nccl-timeout, likewise */
    const char *env;     /* text of --rv-env, likewise */
    const char *differ;  /* text of --rv-differ, likewise */
    const char *mig;     /* text of --rv-mig; NULL and "" without a value */
    bool gpu_asked, timeout_asked, env_asked, differ_asked;
    bool mig_asked, isolate_asked;
    bool wrap;             /* sbatch --wrap: there is no script */
    bool script_gpu_asked; /* by a #SBATCH line */
    bool script_mig_asked; /* likewise */
    char script_gpu[128];  /* its value; cut, and so malformed, if longer */
    char script_mig[128];  /* likewise */
    char script_partition[128];
    char script_constraint[128];
    const char *partition;    /* NULL = the default one */
    const char *constraint;   /* of -C */
    const char *cpus_per_gpu; /* text of --cpus-per-gpu */
    const char *mpi;          /* text of --mpi or SLURM_MPI_TYPE */
    char conflict[64];        /* option or variable that asks for GPUs too */
    long nodes;               /* of -N; 0 = not asked, -1 = no one number */
    long tasks;               /* of -n, likewise */
    long tasks_per_node;      /* likewise */
    bool cpus_per_task;       /* the user chose the CPUs of each */
    bool kill;                /* or what a bad exit does */
    bool elsewhere;           /* another cluster (-M) */
    bool inside;              /* srun inside a job, or joining one */
};

/* get: value or NULL; like getenv(3), also as to lifetime. */
typedef const char *(*wish_get_f) (const char *name);

/* wish_init - what the environment says.
 *   w   written
 * Options that the plugin left in a job's environment count for srun, whose
 * steps they govern, and for no sbatch or salloc typed inside a job, which
 * asks for a job of its own. */
void wish_init (struct wish *w, enum cli_client client, wish_get_f get);

/* wish_seen - a cli_seen_f; [wish] is a struct wish. Values are borrowed and
 * must live as long as the wish. A later option takes the place of an earlier
 * one, and any takes the place of the environment's. */
void wish_seen (void *wish, const char *name, const char *value);

/* wish_seen_script - the same for #SBATCH lines, which everything else
 * overrides: --rv-gpu and --rv-mig are noted apart and copied, and so is what
 * asks for GPUs beside them. Tasks and nodes count where the command line has
 * none. */
void wish_seen_script (void *wish, const char *name, const char *value);

/* wish_take_script - the script's --rv-gpu and --rv-mig, unless there are
 * others. */
void wish_take_script (struct wish *w);

struct wish_site {
    uint32_t per_node;        /* GPUs of the type in the fullest node, > 0 */
    uint32_t cpus_per_gpu;    /* that the partition gives a GPU, at least 1 */
    char type[GRES_NAME_MAX]; /* as Slurm spells it, "" = any */
};

#define WISH_VARS_MAX 4

struct wish_var {
    const char *name;
    char value[2 * GRES_NAME_MAX];
};

/* wish_vars - the variables that make the client ask for the GPUs.
 *   req      the request in numbers
 *   ret      (WISH_VARS_MAX) written
 * Returns how many were written. Names that the user has in the environment
 * must be left alone by the caller. */
size_t wish_vars (const struct wish *w, const struct gpu_request *req,
                  const struct wish_site *site,
                  struct wish_var ret[WISH_VARS_MAX]);

/* wish_check - can the request go with what else was asked?
 * RV_EINVAL names the option or variable that asks for GPUs too. */
int wish_check (const struct wish *w, struct rv_error *err);

/* wish_check_mig - can [count] slices go with what else was asked? A process of
 * CUDA uses one slice, so each task has one.
 * RV_EINVAL says what would work. */
int wish_check_mig (const struct wish *w, uint32_t count, struct rv_error *err);

/* wish_check_nccl - may ranks on slices of one card use this NCCL?
 *   version   "2.28.9"; "?" or NULL = nobody knows
 *   enable    NCCL_MULTI_RANK_GPU_ENABLE, NULL = unset. Set to anything, the
 *             user has decided.
 *   ret_warn  written: "" or a line to print
 * RV_EINVAL for one that is known and older than 2.30. */
int wish_check_nccl (const char *version, const char *enable, uint32_t count,
                     char ret_warn[256], struct rv_error *err);

/* wish_parse_env - "on" or "off"; RV_EINVAL otherwise. NULL is neither. */
int wish_parse_env (const char *text, bool *ret_on, struct rv_error *err);

/* wish_partition_name - "SLURM_PARTITION" and so on; wish_constraint_name
 * likewise. */
const char *wish_partition_name (enum cli_client client);
const char *wish_constraint_name (enum cli_client client);

/* wish_dedicated - the type to ask for, so that MIG slices are not taken for
 * whole GPUs.
 *   offers     (n) distinct node configurations; may be empty when unknown
 *   ret_site   type and per_node written; the type is spelled as the nodes
 *              spell it (Slurm compares with case)
 * RV_EINVAL: the type is a MIG profile, or none was named and Slurm might
 * give slices; the text lists the types. */
int wish_dedicated (const struct gpu_request *req,
                    const struct node_offer *offers, size_t n,
                    struct wish_site *ret_site, struct rv_error *err);

#endif
