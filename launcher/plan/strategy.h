/* SPDX-License-Identifier: Apache-2.0
 * strategy.h - which partition, GPU type and node count serve a request.
 *
 * Pure: a snapshot of the cluster and a request in, a plan out. Nothing of one
 * site is compiled in. The plan is what sbatch(1) is asked for with its own
 * options: --gres=gpu:TYPE:K -N --ntasks-per-node -c --mem -p -t. */
#ifndef RV_PLAN_STRATEGY_H
#define RV_PLAN_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/command.h"
#include "plan/error.h"
#include "plan/gres.h"
#include "plan/snapshot.h"

struct strategy_request {
    uint32_t gpus;         /* of the job; 0 = one task without a GPU */
    const char *type;      /* as Slurm knows it; NULL or "" = any */
    const char *rule;      /* name of the one rule meant; NULL = any */
    uint64_t vram_mb;      /* of a GPU, at least; 0 = any */
    const char *partition; /* "a" or "a,b"; NULL or "" = any, default first */
    int64_t time_s;        /* STRATEGY_UNLIMITED; > 0 else */
    bool time_fixed;       /* false: time_s shrinks to the partition's limit */
    int64_t time_min_s;    /* shorter limits will do down to it; 0 = none */
    int64_t mem_bytes;     /* a node; 0 = the node's share */
    uint32_t nodes;        /* 0 = as few as hold the GPUs evenly */
    uint32_t nproc;        /* GPUs a node that the command fixes; 0 = free */
    enum command_launch launch;
    bool segments; /* it goes on in a further job: a shorter limit will do */
    const char *constraint; /* of the user's -C, on top of rv.conf's; NULL */
    bool exclusive;         /* nodes that nobody else has */
    const char *unforeseen; /* an option that no forecast knows of; NULL */
};

struct strategy_plan {
    const char *partition;            /* lives as long as the cluster */
    const char *constraint;           /* likewise; NULL = none */
    const struct strategy_rule *rule; /* that applies; NULL = none */
    char type[GRES_NAME_MAX]; /* as the cluster spells it; "" = untyped, or no
                                 GPU */
    const char *found_type;   /* the same in the cluster's own memory */
    uint32_t gpus, nodes, gpus_per_node;
    uint32_t tasks_per_node, tasks, cpus_per_task;
    uint64_t mem_mb; /* a node; 0 = ask for none */
    int64_t time_s;
    int64_t time_min_s;  /* Slurm may shorten the limit to it; 0 = it may not */
    bool waits_for_node; /* only nodes that are down now could serve */
};

/* strategy_choose - the first partition and type that can serve the request,
 * on the fewest nodes that hold the GPUs evenly (any divisor of the count).
 *   ret   written on success
 * CPUs and memory are the GPUs' share of the smallest node that could serve, or
 * what a rule says, never more than the node has; two tasks never share a core.
 * A partition that the request names goes before that of a rule.
 * RV_ENOTFOUND (no such type or partition) or RV_EINVAL (cannot be met), with
 * what would work. */
int strategy_choose (const struct strategy_cluster *cluster,
                     const struct strategy_request *req,
                     struct strategy_plan *ret, struct rv_error *err);

#endif
