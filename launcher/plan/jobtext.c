/* SPDX-License-Identifier: Apache-2.0
 * jobtext.c - numbers out of the texts that Slurm gives of jobs */
#include "plan/jobtext.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NUMBER_MAX ((uint64_t)INT64_MAX >> 30)

/* MiB in "64G", "6026M", "1.50T", a bare number is MiB. */
static int64_t memory (double value, const char *unit)
{
    switch (*unit) {
    case 'K':
        return (int64_t)(value / 1024);
    case 'G':
        return (int64_t)(value * 1024);
    case 'T':
        return (int64_t)(value * 1024 * 1024);
    case 'P':
        return (int64_t)(value * 1024 * 1024 * 1024);
    default:
        return (int64_t)value;
    }
}

int64_t jobtext_tres (const char *tres, const char *name)
{
    size_t n = strlen (name);

    for (const char *p = tres; p; p = (p = strchr (p, ',')) ? p + 1 : NULL)
        if (!strncmp (p, name, n) && p[n] == '=') {
            char *end;
            double value = strtod (p + n + 1, &end);

            if (end == p + n + 1 || !(value >= 0 && value < 1e12))
                return -1;
            return strcmp (name, "mem") ? (int64_t)value : memory (value, end);
        }
    return -1;
}

/* A number at *p; false when there is none. */
static bool take (const char **p, uint64_t *ret)
{
    char *end;

    if (**p < '0' || **p > '9')
        return false;
    *ret = strtoull (*p, &end, 10);
    *p = end;
    return *ret < NUMBER_MAX;
}

struct range {
    uint64_t first, last, step;
};

/* One range of a list at *p, which goes behind it and its comma; NULL at the
 * end. */
static bool take_range (const char **p, struct range *ret)
{
    if (!*p || !take (p, &ret->first))
        return false;
    ret->last = ret->first;
    ret->step = 1;
    if (**p == '-' && (++*p, !take (p, &ret->last)))
        return false;
    if (**p == ':' && (++*p, !take (p, &ret->step)))
        return false;
    *p = **p == ',' ? *p + 1 : NULL;
    return true;
}

uint32_t jobtext_tasks (const char *list, uint32_t most)
{
    const char *limit = list ? strchr (list, '%') : NULL;
    uint64_t sum = 0, running;
    struct range r;

    for (const char *p = list; take_range (&p, &r);)
        if (r.last >= r.first && r.step)
            sum += (r.last - r.first) / r.step + 1;
    if (limit && (limit++, take (&limit, &running)) && running && running < sum)
        sum = running;
    return sum > most ? most : sum ? (uint32_t)sum : 1;
}

bool jobtext_has_task (const char *list, uint64_t task)
{
    struct range r;

    for (const char *p = list; take_range (&p, &r);)
        if (r.step && task >= r.first && task <= r.last
            && (task - r.first) % r.step == 0)
            return true;
    return list && strstr (list, "...");
}

uint32_t jobtext_gpus (const char *gres, char type[GRES_NAME_MAX])
{
    struct gres_list list;
    uint64_t sum = 0;

    type[0] = '\0';
    if (!gres || gres_parse (gres, &list, NULL) != RV_OK)
        return 0;
    for (size_t i = 0; i < list.n; i++) {
        const struct gres_entry *entry = &list.entry[i];

        if (strcmp (entry->name, "gpu") || entry->count == 0)
            continue;
        if (sum == 0)
            memcpy (type, entry->type, GRES_NAME_MAX);
        else if (strcasecmp (type, entry->type))
            type[0] = '\0';
        sum += entry->count < UINT16_MAX ? entry->count : UINT16_MAX;
    }
    gres_fini (&list);
    return sum > UINT16_MAX ? UINT16_MAX : (uint32_t)sum;
}
