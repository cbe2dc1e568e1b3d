/* SPDX-License-Identifier: Apache-2.0
 * snapshot.h - a cluster at one moment: nodes, partitions, jobs, reservations,
 * and what rv.conf says of its GPU types.
 *
 * Plain data that the caller fills; whatever it leaves zero is not known, or no
 * limit. Times are Unix seconds. Indices of nodes count from 0 in [node]. */
#ifndef RV_PLAN_SNAPSHOT_H
#define RV_PLAN_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/gres.h"
#include "plan/limits.h"

#define STRATEGY_UNLIMITED ((int64_t)-1) /* of times */

struct strategy_node {
    char *name;
    char *features; /* "a,b"; NULL = not known */
    struct gres_list gres;
    struct gres_list used; /* of them by jobs; untyped counts any type */
    uint32_t cpus;         /* that jobs may use */
    uint32_t threads;      /* a core, >= 1; cores are not shared by tasks */
    uint32_t cpus_used;
    uint64_t mem_mb; /* that jobs may use; <= 1 when the site set none */
    uint64_t mem_used_mb;
    bool usable;   /* not down, drained or failed at this moment */
    bool left_out; /* the request may not have it; others may */
};

struct strategy_partition {
    char *name;
    bool is_default, up;
    bool on_request; /* only where it is named, is the default, or nothing else
                        serves: it may refuse this user, or preempt its jobs */
    bool exclusive;  /* a job has its nodes alone */
    bool own_qos;    /* its QOS goes before the job's: limits of that do not
                        hold here, and its own are not known */
    int64_t max_time_s;       /* STRATEGY_UNLIMITED */
    uint32_t min_nodes;       /* a job */
    uint32_t max_nodes;       /* a job; 0 = no limit */
    uint32_t max_cpus_node;   /* a job; 0 = no limit */
    uint64_t max_mem_node_mb; /* 0 = no limit */
    uint64_t max_mem_cpu_mb;  /* 0 = no limit */
    uint32_t tier;            /* jobs of a higher one go first */
    uint32_t *node;           /* (n_nodes) indices into the cluster's nodes */
    size_t n_nodes;
};

/* A job that runs or waits. What it has or wants is of one node. */
struct strategy_job {
    uint32_t job_id;
    bool running;
    bool exclusive; /* its nodes whole */
    uint32_t count; /* tasks of an array in this record; 0 is 1 */
    uint32_t nodes; /* waiting: how many it wants */
    uint32_t gpus, cpus;
    uint64_t mem_mb;
    char *type;      /* of the GPUs; NULL or "" = any */
    char *partition; /* waiting: "a,b" */
    char *features;  /* waiting: as of -C; NULL = none */
    char *resv;      /* waiting: in that reservation alone; NULL */
    uint64_t priority;
    int64_t end_s;   /* running: when it ends at the latest; 0 = never */
    int64_t begin_s; /* waiting: not before; 0 = at once */
    int64_t time_s;  /* waiting: its limit; STRATEGY_UNLIMITED */
    uint32_t *node;  /* (n_nodes) running: where */
    size_t n_nodes;
};

/* Nodes that are kept for others for a time. */
struct strategy_reservation {
    int64_t start_s, end_s; /* STRATEGY_UNLIMITED: never ends */
    uint32_t *node;         /* (n_nodes) */
    size_t n_nodes;
    char *name; /* NULL: its nodes or times are not fixed */
};

/* What rv.conf says of one type ([gpu TYPE], [mig PROFILE]). Texts are
 * borrowed. Sections that differ in their features alone share a type. */
struct strategy_rule {
    const char *label;       /* the section's head; NULL = the type */
    const char *type;        /* as Slurm knows it; "" = untyped GPUs */
    const char *partition;   /* "a,b": only there; NULL = anywhere */
    const char *constraint;  /* for sbatch -C; NULL = none */
    uint32_t max_per_job;    /* GPUs; 0 = no limit */
    uint32_t max_per_user;   /* GPUs; 0 = no limit */
    uint32_t cpus_per_gpu;   /* 0 = the node's share */
    uint64_t mem_per_gpu_mb; /* 0 = the node's share */
    uint64_t vram_mb;        /* of one GPU; 0 = not said */
    double cost;             /* per GPU and hour; below 0 = not said */
};

struct strategy_cluster {
    char *name; /* ClusterName; NULL = not known */
    struct strategy_node *node;
    size_t n_nodes;
    struct strategy_partition *part;
    size_t n_parts;
    struct strategy_job *job; /* in any order */
    size_t n_jobs;
    struct strategy_reservation *resv;
    size_t n_resv;
    const char *inside;   /* name of the one that the request runs in; NULL */
    struct limits limits; /* of the user */
    int64_t now_s;
    bool memory_shared; /* jobs get no memory of their own */
    bool jobs_hidden;   /* not all jobs can be seen: nothing can be foreseen */
    const struct strategy_rule *rule; /* (n_rules) borrowed */
    size_t n_rules;
};

/* strategy_node_gpus - GPUs of exactly [type] on a node, case ignored; ""
 * counts untyped ones. */
uint32_t strategy_node_gpus (const struct strategy_node *node,
                             const char *type);

/* strategy_rule_name - what users call the type of a rule. */
const char *strategy_rule_name (const struct strategy_rule *rule);

/* strategy_cluster_fini - free what [cluster] owns; it is empty afterwards.
 * NULL is fine. */
void strategy_cluster_fini (struct strategy_cluster *cluster);

#endif
