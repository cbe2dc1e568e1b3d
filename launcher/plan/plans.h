/* SPDX-License-Identifier: Apache-2.0
 * plans.h - all the ways to submit a request as one job, the best first.
 *
 * Pure: a snapshot of the cluster and a request in, strategies out. A strategy
 * is one sbatch call. Where one job can say several partitions, or several GPU
 * types, it does; so a cluster on which nothing needs two calls gives one that
 * leaves Slurm the choice. */
#ifndef RV_PLAN_PLANS_H
#define RV_PLAN_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/strategy.h"

#define PLANS_MAX     16 /* strategies that are kept */
#define PLANS_MEMBERS 32 /* places that one job may name */
#define PLANS_SOON_S  60 /* starts this near to each other are the same */

enum plans_kind {
    PLANS_DIRECT,   /* with the time limit as asked */
    PLANS_BACKFILL, /* Slurm may shorten the limit, to start earlier */
    PLANS_SEGMENTS, /* a shorter limit than asked, and the job goes on */
};

/* What is known of a strategy's start. */
enum plans_start {
    PLANS_AT,      /* start_s */
    PLANS_UNKNOWN, /* jobs are hidden */
    PLANS_NEVER,   /* not while the nodes are as they are */
};

/* A partition and a GPU type of it that the job may get. Borrowed texts. */
struct plans_member {
    const struct strategy_partition *part;
    const struct strategy_rule *rule; /* NULL = none */
    const char *type;
};

struct plans_item {
    struct strategy_plan plan; /* partition, constraint: the texts below */
    enum plans_kind kind;
    char partition[512];  /* "a,b" */
    char constraint[256]; /* "" = none */
    char types[128];      /* "a100|v100" for people; "" = no GPU or no type */
    struct plans_member member[PLANS_MEMBERS];
    size_t n_members, n_types;
    size_t order; /* of the first member in the search */
    enum plans_start known;
    int64_t start_s; /* Unix; now or later */
    bool fits_now;   /* enough is free at this moment */
    double cost;     /* in the site's units, at most; below 0 = not known */
    size_t waiting;  /* jobs before it in its partitions */
    char why[160];   /* one line */
};

struct plans {
    struct plans_item *item; /* (n) the best first */
    size_t n;
    size_t dominated, beyond; /* left out: no better in anything; too many */
    int64_t now_if_s; /* a limit up to this could start now, when the best
                         cannot; 0 = none */
};

/* plan_strategies - every strategy that is better than each before it in
 * something: start, cost, time limit, or number of nodes.
 *   cluster   borrowed until plans_fini
 *   ret       written on success, at least one item
 * Ranked by start (starts within a minute are the same), then by cost, then in
 * the order of rv.conf's sections, partitions (the default first) and nodes.
 * Errors are those of strategy_choose. */
int plan_strategies (const struct strategy_cluster *cluster,
                     const struct strategy_request *req, struct plans *ret,
                     struct rv_error *err);
void plans_fini (struct plans *plans); /* NULL is fine */

#endif
