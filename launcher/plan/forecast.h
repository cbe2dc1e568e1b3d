/* SPDX-License-Identifier: Apache-2.0
 * forecast.h - when a job would start, by our own backfill of a snapshot.
 *
 * Running jobs keep their share of their nodes until their limit, reservations
 * keep theirs, and waiting jobs are given the earliest place that fits them,
 * in the order of partition tier, priority and job id; so a later job fills a
 * hole where it delays none before it. A new job stands behind all that wait
 * in partitions of its tier or a higher one. That is what Slurm's backfill
 * does with every job in its window; preemption, licenses, limits of accounts,
 * nodes that a waiting job names or excludes, and fair-share changes to come
 * are not foreseen.
 *
 * Pure. One thread. */
#ifndef RV_PLAN_FORECAST_H
#define RV_PLAN_FORECAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/snapshot.h"

#define FORECAST_NEVER INT64_MAX

struct forecast_need {
    const struct strategy_partition *part;
    const char *type;     /* of the GPUs; NULL or "" = any whole ones */
    const char *features; /* as of -C; NULL = none */
    const char *also;     /* as well; NULL = none */
    bool whole;           /* nodes that nobody else has */
    bool narrowed;        /* only nodes that are not left_out */
    uint32_t nodes;
    uint32_t gpus, cpus; /* a node */
    uint64_t mem_mb;     /* a node */
    int64_t time_s;      /* STRATEGY_UNLIMITED */
};

struct forecast;

/* forecast_new - running jobs and reservations are in, no waiting job yet.
 *   cluster   borrowed until forecast_free
 * NULL when out of memory. */
struct forecast *forecast_new (const struct strategy_cluster *cluster);
void forecast_free (struct forecast *f); /* NULL is fine */

/* forecast_queue - give the waiting jobs of partitions of at least this tier
 * their places; those that have theirs keep them. Tiers must not rise from call
 * to call. Returns 0, or -1 when out of memory. */
int forecast_queue (struct forecast *f, uint32_t tier);

/* forecast_start - when the need could start; FORECAST_NEVER where it cannot.
 * Takes nothing. */
int64_t forecast_start (struct forecast *f, const struct forecast_need *need);

/* forecast_longest - for how many seconds at most it could run if it started
 * now; STRATEGY_UNLIMITED, 0 where it cannot. need->time_s does not count. */
int64_t forecast_longest (struct forecast *f, const struct forecast_need *need);

/* forecast_waiting - jobs of the queue so far that wait beyond now and may use
 * nodes of [part]. */
size_t forecast_waiting (const struct forecast *f,
                         const struct strategy_partition *part);

/* forecast_cut - the queue was too long to be looked at whole: starts are not
 * before what was found, and may be later. */
bool forecast_cut (const struct forecast *f);

#endif
