/* SPDX-License-Identifier: Apache-2.0
 * limits.c - what the user's association and QOS allow */
#include "plan/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"

static bool typed (const struct limit *l)
{
    return l->type && l->type[0];
}

static bool of_type (const struct limit *l, const char *type)
{
    return !typed (l) || !strcasecmp (l->type, type);
}

static const char *space (const struct limit *l)
{
    return l->each[0] ? " " : "";
}

/* "; --qos=big allows 8" of the QOS that allows the most, where that is
 * enough. */
static void other_qos (const struct limits *limits, uint32_t gpus, char *buf,
                       size_t size)
{
    const struct limit_qos *best = NULL;

    buf[0] = '\0';
    for (size_t i = 0; i < limits->n_qos; i++)
        if (limits->qos[i].gpus >= gpus
            && (!best || limits->qos[i].gpus > best->gpus))
            best = &limits->qos[i];
    if (best && best->gpus == UINT64_MAX)
        snprintf (buf, size, ", or --qos=%s", best->name);
    else if (best)
        snprintf (buf, size, ", or --qos=%s, which allows %llu", best->name,
                  (unsigned long long)best->gpus);
}

int limits_beyond (const struct limits *limits, const struct limit *l,
                   uint32_t gpus, struct rv_error *err)
{
    char qos[128] = "";

    /* What another QOS says of this type is not known. */
    if (!typed (l))
        other_qos (limits, gpus, qos, sizeof (qos));
    return error_set (err, RV_EINVAL,
                      "%s allows %llu %s%sGPU%s%s%s; %u are asked: -g %llu "
                      "would work%s",
                      l->holder, (unsigned long long)l->most,
                      typed (l) ? l->type : "", typed (l) ? " " : "",
                      l->most == 1 ? "" : "s", space (l), l->each, gpus,
                      (unsigned long long)l->most, qos);
}

static bool counts_gpus (const struct limit *l)
{
    return l->kind == LIMIT_GPUS || l->kind == LIMIT_GPUS_JOB;
}

const struct limit *limits_of_type (const struct limits *limits,
                                    const char *type, uint32_t gpus)
{
    for (size_t i = 0; i < limits->n; i++) {
        const struct limit *l = &limits->limit[i];

        if (counts_gpus (l) && typed (l) && of_type (l, type) && gpus > l->most)
            return l;
    }
    return NULL;
}

static int check_wall (const struct limit *l, int64_t *time_s, bool fixed,
                       int64_t time_min_s, struct rv_error *err)
{
    int64_t most = (int64_t)l->most;
    char buf[32];

    if (*time_s >= 0 && *time_s <= most)
        return RV_OK;
    if (fixed ? !time_min_s || time_min_s > most : time_min_s > most)
        return error_set (err, RV_EINVAL,
                          "%s allows at most %s a job; give --time=%s or less",
                          l->holder,
                          duration_format_slurm (most, buf, sizeof (buf)), buf);
    *time_s = most;
    return RV_OK;
}

int limits_check (const struct limits *limits, uint32_t gpus, int64_t *time_s,
                  bool fixed, int64_t time_min_s, struct rv_error *err)
{
    int rc = RV_OK;

    for (size_t i = 0; !rc && i < limits->n; i++) {
        const struct limit *l = &limits->limit[i];

        if (counts_gpus (l) && !typed (l) && gpus > l->most)
            rc = limits_beyond (limits, l, gpus, err);
        else if (l->kind == LIMIT_WALL)
            rc = check_wall (l, time_s, fixed, time_min_s, err);
        else if (l->kind == LIMIT_SUBMIT && l->used >= l->most)
            rc = error_set (err, RV_EINVAL,
                            "%s allows %llu job%s%s%s to wait or run together, "
                            "and %llu do; wait until one has ended",
                            l->holder, (unsigned long long)l->most,
                            l->most == 1 ? "" : "s", space (l), l->each,
                            (unsigned long long)l->used);
    }
    return rc;
}

bool limits_wait (const struct limits *limits, const char *type, uint32_t gpus,
                  char *buf, size_t size)
{
    for (size_t i = 0; i < limits->n; i++) {
        const struct limit *l = &limits->limit[i];
        uint64_t want = l->kind == LIMIT_GPUS   ? gpus
                        : l->kind == LIMIT_JOBS ? 1
                                                : 0;

        if (!want || !of_type (l, type) || l->used + want <= l->most)
            continue;
        snprintf (buf, size, "%s allows %llu %s%s%s%s%s, %llu are in use",
                  l->holder, (unsigned long long)l->most,
                  typed (l) ? l->type : "", typed (l) ? " " : "",
                  l->kind == LIMIT_GPUS ? "GPUs" : "running jobs", space (l),
                  l->each, (unsigned long long)l->used);
        return true;
    }
    return false;
}

uint32_t limits_submits (const struct limits *limits)
{
    uint64_t left = UINT32_MAX;

    for (size_t i = 0; i < limits->n; i++) {
        const struct limit *l = &limits->limit[i];
        uint64_t here = l->used < l->most ? l->most - l->used : 0;

        if (l->kind == LIMIT_SUBMIT && here < left)
            left = here;
    }
    return (uint32_t)left;
}

void limits_fini (struct limits *limits)
{
    for (size_t i = 0; i < limits->n; i++) {
        free (limits->limit[i].holder);
        free (limits->limit[i].each);
        free (limits->limit[i].type);
    }
    for (size_t i = 0; i < limits->n_qos; i++)
        free (limits->qos[i].name);
    free (limits->limit);
    free (limits->qos);
    memset (limits, 0, sizeof (*limits));
}
