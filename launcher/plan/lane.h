/* SPDX-License-Identifier: Apache-2.0
 * lane.h - what one node has free, from now on. Internal to libplan.
 *
 * A lane is a list of stretches of time, each with the CPUs, memory and GPUs
 * that are free in it; the last goes on for ever. Taking something splits
 * stretches, nothing gives back. */
#ifndef RV_PLAN_LANE_H
#define RV_PLAN_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LANE_SLOTS 4 /* distinct GPU types of a node; more are left out */
#define LANE_NEVER INT64_MAX /* a time that does not come */
#define LANE_ANY   (-1)      /* type of a need: any whole GPU */
#define LANE_NONE  (-2)      /* a type that no node has */

struct lane_free {
    int64_t from; /* until the next one's */
    uint64_t mem_mb;
    uint32_t cpus;
    uint16_t gpu[LANE_SLOTS + 1]; /* of each slot; last, whole ones of any */
};

struct lane {
    struct lane_free *part;
    uint32_t n, room;
    uint32_t threads;
    int16_t type[LANE_SLOTS]; /* of the slots; LANE_NONE behind the last */
    bool slice[LANE_SLOTS];   /* MIG slices serve those who name them alone */
    struct lane_free all;     /* of the node; from is not used */
};

struct lane_need {
    int type;   /* LANE_ANY or one of the lanes' */
    bool slice; /* of MIG slices */
    uint32_t gpus, cpus;
    uint64_t mem_mb;
    bool whole; /* nobody else on the node */
};

/* lane_earliest - from when on, [from] at the earliest, the need fits for
 * [time_s] seconds (below 0: for ever). LANE_NEVER when it does not before
 * [limit]. */
int64_t lane_earliest (const struct lane *lane, const struct lane_need *need,
                       int64_t from, int64_t time_s, int64_t limit);

/* lane_until - if the need fits at [at], until when; else [at]. */
int64_t lane_until (const struct lane *lane, const struct lane_need *need,
                    int64_t at);

/* lane_take - take the need out of [from, from + time_s); what is not there is
 * not taken. Returns 0, or -1 out of memory (nothing was taken). */
int lane_take (struct lane *lane, const struct lane_need *need, int64_t from,
               int64_t time_s);

/* lane_end - from + time_s without overflow; time_s below 0 is for ever. */
int64_t lane_end (int64_t from, int64_t time_s);

#endif
