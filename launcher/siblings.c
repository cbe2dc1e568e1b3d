/* SPDX-License-Identifier: Apache-2.0
 * siblings.c - end the other jobs of a request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "siblings.h"

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "plan/fsio.h"

/* The first job of its chain. */
static uint32_t root_of (const char *jobs, uint32_t job_id)
{
    char name[32], *path;
    json_t *json;
    uint32_t root;

    snprintf (name, sizeof (name), "%u.json", job_id);
    if (!(path = fsio_join (jobs, name)))
        return job_id;
    json = json_load_file (path, 0, NULL);
    root = (uint32_t)json_integer_value (json_object_get (json, "continues"));
    json_decref (json);
    free (path);
    return root ? root : job_id;
}

static int stop_one (uint32_t job_id, unsigned *ret_n, struct rv_error *err)
{
    struct rv_error why = {0};
    int rc = cluster_cancel (job_id, &why);

    if (rc == RV_OK)
        ++*ret_n;
    if (rc == RV_OK || rc == RV_ESTATE || rc == RV_ENOTFOUND)
        return RV_OK;
    return error_set (err, rc, "job %u: %s", job_id, why.text);
}

int siblings_stop (const char *dir, uint32_t job_id, unsigned *ret_n,
                   struct rv_error *err)
{
    char *jobs = fsio_join (dir, "jobs");
    DIR *d = jobs ? opendir (jobs) : NULL;
    struct dirent *e;
    uint32_t root;
    int status = RV_OK;

    *ret_n = 0;
    if (!d) {
        error_set (err, RV_ENOTFOUND, "%s: %s", jobs ? jobs : dir,
                   strerror (errno));
        free (jobs);
        return RV_ENOTFOUND;
    }
    root = root_of (jobs, job_id);
    while ((e = readdir (d))) {
        char *end;
        unsigned long id = strtoul (e->d_name, &end, 10);
        int rc;

        if (strcmp (end, ".json") || !id || id > UINT32_MAX || id == job_id
            || root_of (jobs, (uint32_t)id) == root)
            continue;
        rc = stop_one ((uint32_t)id, ret_n, err);
        status = status ? status : rc;
    }
    closedir (d);
    free (jobs);
    return status;
}
