/* SPDX-License-Identifier: Apache-2.0
 * cost.c - how long a request has run, and what that costs */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cost.h"

#include <string.h>
#include <strings.h>

#include "plan/timefmt.h"

int64_t cost_elapsed (const json_t *segments, int64_t since, int64_t now,
                      bool active, bool *ret_lost)
{
    const json_t *list = json_object_get (segments, "segments");
    size_t n = json_array_size (list);
    int64_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        const json_t *segment = json_array_get (list, i);
        const json_t *elapsed = json_object_get (segment, "elapsed_s");
        const char *text =
            json_string_value (json_object_get (segment, "started_at"));
        struct timespec started;
        int64_t end;

        if (!text || timefmt_parse (text, &started, NULL))
            continue;
        if (json_is_integer (elapsed))
            end = started.tv_sec + json_integer_value (elapsed);
        else if (active && i == n - 1)
            end = now;
        else {
            *ret_lost = true;
            continue;
        }
        if (end > since)
            sum += end - (started.tv_sec > since ? started.tv_sec : since);
    }
    return sum;
}

int64_t cost_of_run (int64_t started, int64_t ended, int64_t suspended_s,
                     int64_t since, int64_t now)
{
    int64_t end = ended ? ended : now;
    int64_t whole = end - started - suspended_s;

    if (!started || whole <= 0 || end <= since)
        return 0;
    /* When it was suspended is not known. */
    return whole < end - since ? whole : end - since;
}

/* The type that Slurm knows: "gpu:a100" or the head of the section. */
static bool is_type (const char *gres, const char *head, const char *type)
{
    if (gres && !strncmp (gres, "gpu:", 4))
        return !strcasecmp (gres + 4, type);
    if (gres && !strcmp (gres, "gpu"))
        return !*type;
    return !strcasecmp (head, type);
}

double cost_per_hour (const struct site_conf *conf, const char *type)
{
    for (size_t i = 0; i < conf->n_gpu; i++)
        if (conf->gpu[i].cost >= 0
            && is_type (conf->gpu[i].gres, conf->gpu[i].type, type))
            return conf->gpu[i].cost;
    for (size_t i = 0; i < conf->n_mig; i++)
        if (conf->mig[i].cost >= 0
            && is_type (conf->mig[i].gres, conf->mig[i].profile, type))
            return conf->mig[i].cost;
    return -1;
}
