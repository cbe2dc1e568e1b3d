/* SPDX-License-Identifier: Apache-2.0
 * taskmap.c - tasks per node as Slurm writes them ("2(x3),1") */
#include "plan/taskmap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TASKMAP_NODES_MAX 65536

/* Digits at *p to a number; false when there are none or it does not fit. */
static bool take_number (const char **p, uint32_t *ret)
{
    const char *start = *p;
    uint32_t value = 0;

    for (; **p >= '0' && **p <= '9'; (*p)++) {
        if (__builtin_mul_overflow (value, 10u, &value)
            || __builtin_add_overflow (value, (uint32_t)(**p - '0'), &value))
            return false;
    }
    *ret = value;
    return *p > start;
}

/* One "T" or "T(xN)" at *p. */
static bool take_group (const char **p, uint32_t *tasks, uint32_t *repeat)
{
    *repeat = 1;
    if (!take_number (p, tasks))
        return false;
    if (**p != '(')
        return true;
    if (*++*p != 'x')
        return false;
    ++*p;
    return take_number (p, repeat) && *repeat > 0 && *(*p)++ == ')';
}

static int append (struct taskmap *map, uint32_t tasks, uint32_t repeat)
{
    uint32_t *p, more;

    if (repeat > TASKMAP_NODES_MAX - map->n
        || __builtin_mul_overflow (tasks, repeat, &more)
        || __builtin_add_overflow (map->total, more, &map->total))
        return RV_EINVAL;
    p = realloc (map->tasks, (map->n + repeat) * sizeof (*p));
    if (!p)
        return RV_ENOMEM;
    map->tasks = p;
    for (uint32_t i = 0; i < repeat; i++)
        map->tasks[map->n++] = tasks;
    return 0;
}

int taskmap_parse (const char *text, struct taskmap *map, struct rv_error *err)
{
    const char *p = text;
    int rc;

    if (!map)
        return error_set (err, RV_EINVAL, "taskmap_parse: no result");
    *map = (struct taskmap){0};
    if (!text || !*text)
        return error_set (err, RV_EINVAL, "no tasks per node");
    for (;; p++) {
        uint32_t tasks, repeat;

        if (!take_group (&p, &tasks, &repeat) || (*p && *p != ',')) {
            taskmap_fini (map);
            return error_set (err, RV_EINVAL,
                              "tasks per node '%.200s': malformed at position "
                              "%zu; expected text such as 2(x3),1",
                              text, (size_t)(p - text) + 1);
        }
        if ((rc = append (map, tasks, repeat)) != 0) {
            taskmap_fini (map);
            return error_set (err, rc,
                              rc == RV_ENOMEM
                                  ? "out of memory"
                                  : "tasks per node '%.200s': more "
                                    "than 65536 nodes or 2^32 tasks",
                              text);
        }
        if (!*p)
            return 0;
    }
}

void taskmap_fini (struct taskmap *map)
{
    if (!map)
        return;
    free (map->tasks);
    *map = (struct taskmap){0};
}
