/* SPDX-License-Identifier: Apache-2.0
 * known_secrets.c - copies of secrets that no job needs any more */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "known_secrets.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster.h"
#include "known_index.h"
#include "siblings.h"

#define GONE_S 3600 /* longer than any rv run takes to submit */

void known_forget_ended (const struct known *known)
{
    const struct request *last = NULL;

    for (size_t i = 0; i < known->n; i++) {
        const struct known_job *job = &known->job[i];

        /* Tasks of one array stand together. */
        if (!job->live || job->live->active || !job->req || job->req == last)
            continue;
        last = job->req;
        if (request_has_secrets (job->req)
            && known_all_ended (known, job->req, 0))
            request_forget (job->req);
    }
}

/* By its script, or by number and name, where the folder has another path by
 * now. */
static bool is_active (const struct known *known, const struct request *req)
{
    for (size_t i = known_of_folder (known, req->dir); i < known->jobs.n; i++) {
        if (!siblings_is_of (req->dir, known->by_command[i]->command))
            break;
        if (known->by_command[i]->active)
            return true;
    }
    for (size_t i = 0; i < known->n; i++)
        if (known->job[i].req == req && known_active (&known->job[i]))
            return true;
    return false;
}

static bool may_be_gone (const struct request *req, int64_t now)
{
    return req->secrets && req->created_at < now - GONE_S;
}

void known_forget_gone (const struct known *known, const char *cluster,
                        int64_t now)
{
    for (size_t i = 0; i < known->reqs.n; i++) {
        const struct request *req = &known->reqs.req[i];

        if (may_be_gone (req, now) && !strcmp (req->cluster, cluster)
            && !is_active (known, req))
            request_forget (req);
    }
}

void known_forget_secrets (const struct known *known)
{
    int64_t now = (int64_t)time (NULL);
    char *cluster = NULL;
    bool any = false;

    known_forget_ended (known);
    for (size_t i = 0; i < known->reqs.n && !any; i++)
        any = may_be_gone (&known->reqs.req[i], now);
    if (any && cluster_name (&cluster, NULL) == RV_OK && *cluster)
        known_forget_gone (known, cluster, now);
    free (cluster);
}
