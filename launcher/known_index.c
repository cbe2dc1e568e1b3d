/* SPDX-License-Identifier: Apache-2.0
 * known_index.c - a user's jobs in Slurm by number and by script */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "known_index.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/fsio.h"

static int by_id (const void *a, const void *b)
{
    uint32_t x = (*(const struct cluster_job *const *)a)->job_id;
    uint32_t y = (*(const struct cluster_job *const *)b)->job_id;

    return x < y ? -1 : x > y;
}

static int by_command (const void *a, const void *b)
{
    return strcmp ((*(const struct cluster_job *const *)a)->command,
                   (*(const struct cluster_job *const *)b)->command);
}

int known_index (struct known *known, struct rv_error *err)
{
    size_t n = known->jobs.n;

    known->by_id = calloc (n + 1, sizeof (struct cluster_job *));
    known->by_command = calloc (n + 1, sizeof (struct cluster_job *));
    if (!known->by_id || !known->by_command)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        known->by_id[i] = known->by_command[i] = &known->jobs.job[i];
    qsort (known->by_id, n, sizeof (struct cluster_job *), by_id);
    qsort (known->by_command, n, sizeof (struct cluster_job *), by_command);
    return RV_OK;
}

const struct cluster_job *known_live (const struct known *known,
                                      uint32_t job_id)
{
    size_t low = 0, high = known->jobs.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (known->by_id[middle]->job_id == job_id)
            return known->by_id[middle];
        if (known->by_id[middle]->job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

size_t known_of_folder (const struct known *known, const char *dir)
{
    size_t low = 0, high = known->jobs.n, len = strlen (dir);

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *command = known->by_command[middle]->command;
        int order = strncmp (command, dir, len);

        /* "/job" as siblings_is_of has it */
        if (order < 0 || (!order && strncmp (command + len, "/job", 4) < 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Tasks of an array have ids of their own, which no file tells. */
static bool array_runs (const struct known *known, const struct request *req)
{
    char *path = fsio_join (req->dir, "array");
    bool runs = path && access (path, F_OK) == 0, found = false;

    free (path);
    for (size_t i = 0; runs && i < known->jobs.n && !found; i++)
        found = known->jobs.job[i].active
                && !strcmp (known->jobs.job[i].name, req->name);
    return found;
}

bool known_all_ended (const struct known *known, const struct request *req,
                      uint32_t cancelled)
{
    char *path = fsio_join (req->dir, "jobs");
    DIR *dir = path ? opendir (path) : NULL;
    struct dirent *entry;
    bool ended = dir != NULL && !array_runs (known, req);

    while (ended && (entry = readdir (dir))) {
        uint32_t id = (uint32_t)strtoul (entry->d_name, NULL, 10);
        const struct cluster_job *live = known_live (known, id);

        ended = !id || id == cancelled || (live && !live->active);
    }
    if (dir)
        closedir (dir);
    free (path);
    return ended;
}
