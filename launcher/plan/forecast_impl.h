/* SPDX-License-Identifier: Apache-2.0
 * forecast_impl.h - what the files of the forecast share. Internal to libplan.
 */
#ifndef RV_PLAN_FORECAST_IMPL_H
#define RV_PLAN_FORECAST_IMPL_H

#include "plan/forecast.h"
#include "plan/lane.h"

#define FORECAST_TYPES    256
#define FORECAST_MEMO     4096 /* a power of two */
#define FORECAST_FEATURES 32   /* expressions that are remembered */
#define FORECAST_PARTS    64   /* partitions of one job */
#define FORECAST_GPUS     9    /* whole GPUs 0 to 7, and 8 or more */
#define FORECAST_TIMES    8    /* steps of time limits */
#define FORECAST_GROUP    16   /* nodes that are passed over at once */
#define FORECAST_KINDS    (FORECAST_GPUS * FORECAST_TIMES)

/* The nodes that -C of some jobs allows. */
struct forecast_filter {
    const char *expr;
    bool *node; /* (n_nodes) */
};

/* Jobs that want the same never start in another order than they are placed:
 * the last one's start is where the search for the next begins. */
struct forecast_memo {
    uint64_t key; /* 0 = empty */
    int64_t start;
};

/* A waiting job's place in the queue. */
struct forecast_turn {
    uint64_t priority;
    uint32_t tier, job_id;
    uint32_t job; /* of the cluster's */
};

struct forecast {
    const struct strategy_cluster *cluster;
    struct lane *lane; /* (n_nodes) */
    /* From when on a node could serve the least of all needs of a kind, for
     * each of FORECAST_KINDS; never too late. A lane only fills, so each is
     * brought up to date from where it was, and only where somebody asks. */
    int64_t *opens; /* (kinds, n_nodes) */
    int64_t *low; /* (kinds, groups of nodes) never above the least of opens */
    bool *fresh;  /* as opens: exact */
    bool *has;    /* (types, n_nodes) has the node GPUs of the type? */
    const char *type[FORECAST_TYPES];
    bool slice[FORECAST_TYPES]; /* a MIG profile? */
    int n_types;
    struct forecast_turn *order; /* (n_order) first to last */
    size_t n_order, next;
    struct forecast_filter filter[FORECAST_FEATURES];
    size_t n_filters;
    bool *both; /* (n_nodes) where more than one expression decides */
    struct forecast_memo memo[FORECAST_MEMO];
    bool *left; /* (n_nodes) those that a narrowed need may have */
    /* (n_nodes) of a search over several nodes: which are looked at, from when
     * on each fits, and a copy to sort */
    uint32_t *near;
    int64_t *when, *pick;
    uint32_t *found; /* (n_nodes) the nodes it found */
    size_t *waiting; /* (n_parts) jobs that start after now */
    uint64_t visits; /* looks at a lane so far */
    bool cut;
};

/* forecast_type - the number of a type, LANE_ANY for none, LANE_NONE for one
 * that no node has. */
int forecast_type (const struct forecast *f, const char *type);

/* forecast_build - lanes from nodes, running jobs and reservations. Returns 0,
 * or -1 when out of memory. */
int forecast_build (struct forecast *f);

/* forecast_took - something was taken from a node. */
void forecast_took (struct forecast *f, uint32_t node);

/* forecast_kind - of a need, the index of f->opens / n_nodes. */
size_t forecast_kind (const struct lane_need *one, int64_t time_s);

/* forecast_groups - how many whole groups so many nodes have. */
static inline size_t forecast_groups (size_t n_nodes)
{
    return n_nodes / FORECAST_GROUP;
}

/* forecast_has - which nodes have GPUs of the type that is asked for; NULL = it
 * does not matter. */
const bool *forecast_has (const struct forecast *f,
                          const struct lane_need *one);

/* forecast_opens - f->opens of a node, brought up to date. */
int64_t forecast_opens (struct forecast *f, size_t kind, uint32_t node);

/* forecast_find - the earliest start of a need on [nodes] of the part's nodes.
 *   from    not before
 *   limit   starts from there on are of no use
 * Returns it with the nodes in f->found; FORECAST_NEVER. */
int64_t forecast_find (struct forecast *f, const struct forecast_need *need,
                       const struct lane_need *one, int64_t from,
                       int64_t limit);

/* forecast_nth - the k-th smallest (from 0) of v (n > k), which is put in another
 * order. */
int64_t forecast_nth (int64_t *v, size_t n, size_t k);

/* forecast_filter - may a node with that number serve, by the features of the
 * need? NULL = each may. Valid until the next call. */
const bool *forecast_filter (struct forecast *f,
                             const struct forecast_need *need);

#endif
