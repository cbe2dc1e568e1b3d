/* SPDX-License-Identifier: Apache-2.0
 * lane.c - what one node has free, from now on */
#include "plan/lane.h"

#include <stdlib.h>
#include <string.h>

int64_t lane_end (int64_t from, int64_t time_s)
{
    int64_t end;

    if (time_s < 0 || __builtin_add_overflow (from, time_s, &end))
        return LANE_NEVER;
    return end;
}

/* Tasks of different jobs never share a core. */
static uint32_t whole_cores (const struct lane *lane, uint32_t cpus)
{
    uint32_t over = lane->threads > 1 ? cpus % lane->threads : 0;

    return over ? cpus + lane->threads - over : cpus;
}

/* A need as one lane counts it. */
struct wish {
    int slot; /* of gpu[]; LANE_NONE: the node has no such type */
    uint32_t gpus, cpus;
    uint64_t mem_mb;
    bool whole;
};

static struct wish wish_of (const struct lane *lane,
                            const struct lane_need *need)
{
    struct wish wish = {LANE_SLOTS, need->gpus, whole_cores (lane, need->cpus),
                        need->mem_mb, need->whole};

    if (need->type == LANE_ANY || need->gpus == 0)
        return wish;
    wish.slot = LANE_NONE;
    for (int i = 0; i < LANE_SLOTS; i++)
        if (lane->type[i] == need->type)
            wish.slot = i;
    return wish;
}

static bool fits (const struct lane *lane, const struct lane_free *free,
                  const struct wish *wish)
{
    if (free->gpu[wish->slot] < wish->gpus || free->cpus < wish->cpus
        || free->mem_mb < wish->mem_mb)
        return false;
    return !wish->whole
           || (free->cpus == lane->all.cpus
               && !memcmp (free->gpu, lane->all.gpu, sizeof (free->gpu)));
}

/* When stretch [i] is over. */
static int64_t part_end (const struct lane *lane, uint32_t i)
{
    return i + 1 < lane->n ? lane->part[i + 1].from : LANE_NEVER;
}

/* The stretch that [at] is in, or the first. */
static uint32_t part_at (const struct lane *lane, int64_t at)
{
    uint32_t low = 0, high = lane->n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (lane->part[middle].from <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t lane_earliest (const struct lane *lane, const struct lane_need *need,
                       int64_t from, int64_t time_s, int64_t limit)
{
    const struct wish wish = wish_of (lane, need);
    int64_t start = from;

    if (wish.slot == LANE_NONE)
        return LANE_NEVER;
    for (uint32_t i = part_at (lane, from); i < lane->n && start < limit; i++) {
        if (!fits (lane, &lane->part[i], &wish))
            start = part_end (lane, i);
        else if (part_end (lane, i) >= lane_end (start, time_s))
            return start;
    }
    return LANE_NEVER;
}

int64_t lane_until (const struct lane *lane, const struct lane_need *need,
                    int64_t at)
{
    const struct wish wish = wish_of (lane, need);

    if (wish.slot == LANE_NONE)
        return at;
    for (uint32_t i = part_at (lane, at); i < lane->n; i++)
        if (!fits (lane, &lane->part[i], &wish))
            return lane->part[i].from > at ? lane->part[i].from : at;
    return LANE_NEVER;
}

/* Let a stretch begin at [at]; returns its index, or lane->n for never. Room
 * has been made. */
static uint32_t split (struct lane *lane, int64_t at)
{
    uint32_t i = part_at (lane, at);

    if (lane->part[i].from < at)
        i++;
    if (at == LANE_NEVER || (i < lane->n && lane->part[i].from == at))
        return i;
    if (i == 0)
        return 0;
    memmove (&lane->part[i + 1], &lane->part[i],
             (lane->n - i) * sizeof (*lane->part));
    lane->part[i] = lane->part[i - 1];
    lane->part[i].from = at;
    lane->n++;
    return i;
}

/* From the slot that is meant, or from any of whole GPUs. */
static void take_gpus (const struct lane *lane, struct lane_free *free,
                       const struct wish *wish)
{
    uint32_t left = wish->gpus;

    for (int i = 0; i < LANE_SLOTS && left; i++) {
        uint32_t n = free->gpu[i] < left ? free->gpu[i] : left;

        if (wish->slot == LANE_SLOTS ? lane->slice[i] : wish->slot != i)
            continue;
        free->gpu[i] = (uint16_t)(free->gpu[i] - n);
        left -= n;
        if (!lane->slice[i])
            free->gpu[LANE_SLOTS] = (uint16_t)(free->gpu[LANE_SLOTS] - n);
    }
}

static void take_from (const struct lane *lane, struct lane_free *free,
                       const struct wish *wish)
{
    if (wish->whole) {
        free->cpus = 0;
        free->mem_mb = 0;
        memset (free->gpu, 0, sizeof (free->gpu));
        return;
    }
    free->cpus -= wish->cpus < free->cpus ? wish->cpus : free->cpus;
    free->mem_mb -= wish->mem_mb < free->mem_mb ? wish->mem_mb : free->mem_mb;
    take_gpus (lane, free, wish);
}

int lane_take (struct lane *lane, const struct lane_need *need, int64_t from,
               int64_t time_s)
{
    const struct wish wish = wish_of (lane, need);
    uint32_t i, end;

    if (lane->n + 2 > lane->room) {
        uint32_t room = 2 * (lane->n + 2);
        struct lane_free *p = realloc (lane->part, room * sizeof (*p));

        if (!p)
            return -1;
        lane->part = p;
        lane->room = room;
    }
    i = split (lane, from);
    end = split (lane, lane_end (from, time_s));
    for (; i < end; i++)
        take_from (lane, &lane->part[i], &wish);
    return 0;
}
