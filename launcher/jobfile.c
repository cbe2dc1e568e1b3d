/* SPDX-License-Identifier: Apache-2.0
 * jobfile.c - what jobs/J.json of a request's folder notes of a submission */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "jobfile.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/fsio.h"

static uint32_t number (const json_t *json, const char *key)
{
    return (uint32_t)json_integer_value (json_object_get (json, key));
}

struct jobfile jobfile_read (const char *dir, uint32_t job_id)
{
    struct jobfile out = {.job_id = job_id, .root = job_id, .candidate = 1};
    char name[32], *path;
    json_t *json;

    snprintf (name, sizeof (name), "jobs/%u.json", job_id);
    if (!(path = fsio_join (dir, name)))
        return out;
    json = json_load_file (path, 0, NULL);
    if (number (json, "continues"))
        out.root = number (json, "continues");
    if (number (json, "candidate"))
        out.candidate = number (json, "candidate");
    json_decref (json);
    free (path);
    return out;
}

static int by_id (const void *a, const void *b)
{
    uint32_t x = ((const struct jobfile *)a)->job_id;
    uint32_t y = ((const struct jobfile *)b)->job_id;

    return x > y ? 1 : x < y ? -1 : 0;
}

size_t jobfile_list (const char *dir, struct jobfile **ret)
{
    char *path = fsio_join (dir, "jobs");
    DIR *jobs = path ? opendir (path) : NULL;
    struct jobfile *list = NULL;
    struct dirent *entry;
    size_t n = 0;

    while (jobs && (entry = readdir (jobs))) {
        char *end;
        unsigned long id = strtoul (entry->d_name, &end, 10);
        struct jobfile *grown;

        if (strcmp (end, ".json") || id == 0 || id > UINT32_MAX)
            continue;
        if (!(grown = realloc (list, (n + 1) * sizeof (*list))))
            break;
        list = grown;
        list[n++] = (struct jobfile){(uint32_t)id, (uint32_t)id, 1};
    }
    if (jobs)
        closedir (jobs);
    free (path);
    /* One job is its own root, whatever its file says. */
    for (size_t i = 0; i < n && n > 1; i++)
        list[i] = jobfile_read (dir, list[i].job_id);
    if (n > 1)
        qsort (list, n, sizeof (*list), by_id);
    *ret = list;
    return n;
}

void jobfile_name (const char *head, const char *end, unsigned candidate,
                   char *buf, size_t size)
{
    if (candidate > 1)
        snprintf (buf, size, "%s-%u.%s", head, candidate, end);
    else
        snprintf (buf, size, "%s.%s", head, end);
}

char *jobfile_pattern (const char *name)
{
    char *out = malloc (2 * strlen (name) + 1), *to = out;

    for (; out && *name; name++) {
        if (*name == '%')
            *to++ = '%';
        *to++ = *name;
    }
    if (out)
        *to = '\0';
    return out;
}
