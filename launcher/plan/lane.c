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

static bool fits_gpus (const struct lane *lane, const struct lane_free *free,
                       const struct lane_need *need)
{
    uint32_t sum = 0;

    if (need->gpus == 0)
        return true;
    for (int i = 0; i < LANE_SLOTS; i++)
        if (need->type == LANE_ANY ? !lane->slice[i]
                                   : lane->type[i] == need->type)
            sum += free->gpu[i];
    return sum >= need->gpus;
}

static bool fits (const struct lane *lane, const struct lane_free *free,
                  const struct lane_need *need)
{
    if (!fits_gpus (lane, free, need) || free->mem_mb < need->mem_mb)
        return false;
    if (need->whole)
        return free->cpus == lane->all.cpus && free->cpus >= need->cpus
               && !memcmp (free->gpu, lane->all.gpu, sizeof (free->gpu));
    return free->cpus >= whole_cores (lane, need->cpus);
}

/* When stretch [i] is over. */
static int64_t part_end (const struct lane *lane, uint32_t i)
{
    return i + 1 < lane->n ? lane->part[i + 1].from : LANE_NEVER;
}

int64_t lane_earliest (const struct lane *lane, const struct lane_need *need,
                       int64_t from, int64_t time_s)
{
    int64_t start = from;

    for (uint32_t i = 0; i < lane->n; i++) {
        if (part_end (lane, i) <= start)
            continue;
        if (!fits (lane, &lane->part[i], need))
            start = part_end (lane, i);
        else if (part_end (lane, i) >= lane_end (start, time_s))
            return start;
    }
    return LANE_NEVER;
}

int64_t lane_until (const struct lane *lane, const struct lane_need *need,
                    int64_t at)
{
    for (uint32_t i = 0; i < lane->n; i++)
        if (part_end (lane, i) > at && !fits (lane, &lane->part[i], need))
            return lane->part[i].from > at ? lane->part[i].from : at;
    return LANE_NEVER;
}

/* Let a stretch begin at [at]; returns its index, or lane->n for never. Room
 * has been made. */
static uint32_t split (struct lane *lane, int64_t at)
{
    uint32_t i = 0;

    while (i < lane->n && lane->part[i].from < at)
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

static void take_gpus (const struct lane *lane, struct lane_free *free,
                       const struct lane_need *need)
{
    uint32_t left = need->gpus;

    for (int i = 0; i < LANE_SLOTS && left; i++) {
        uint32_t n = free->gpu[i] < left ? free->gpu[i] : left;

        if (need->type == LANE_ANY ? lane->slice[i]
                                   : lane->type[i] != need->type)
            continue;
        free->gpu[i] = (uint16_t)(free->gpu[i] - n);
        left -= n;
    }
}

static void take_from (const struct lane *lane, struct lane_free *free,
                       const struct lane_need *need)
{
    uint32_t cpus = whole_cores (lane, need->cpus);

    if (need->whole) {
        free->cpus = 0;
        free->mem_mb = 0;
        memset (free->gpu, 0, sizeof (free->gpu));
        return;
    }
    free->cpus -= cpus < free->cpus ? cpus : free->cpus;
    free->mem_mb -= need->mem_mb < free->mem_mb ? need->mem_mb : free->mem_mb;
    take_gpus (lane, free, need);
}

int lane_take (struct lane *lane, const struct lane_need *need, int64_t from,
               int64_t time_s)
{
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
        take_from (lane, &lane->part[i], need);
    return 0;
}

int64_t lane_opens (const struct lane *lane, bool gpus)
{
    for (uint32_t i = 0; i < lane->n; i++) {
        const struct lane_free *free = &lane->part[i];
        bool any = !gpus;

        for (int s = 0; s < LANE_SLOTS; s++)
            any = any || free->gpu[s];
        if (any && free->cpus)
            return free->from;
    }
    return LANE_NEVER;
}
