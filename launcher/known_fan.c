/* SPDX-License-Identifier: Apache-2.0
 * known_fan.c - which of several jobs stands for their request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "known_fan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "siblings.h"

/* Ids begin anew with a new cluster. */
static bool is_same (const struct cluster_job *live, const struct request *req)
{
    return !strcmp (live->name, req->name)
           && llabs (live->submitted_at - req->created_at) < 3600;
}

/* Of two jobs the one that Slurm starts first, as far as it says. */
static bool is_sooner (const struct cluster_job *a, const struct cluster_job *b)
{
    int64_t x = a->pending ? a->expected_at : 1;
    int64_t y = b->pending ? b->expected_at : 1;

    return x && (!y || x < y);
}

static void choose (const struct known *known, struct request *req)
{
    const struct cluster_job *best = NULL;

    for (size_t i = 0; i < known->jobs.n; i++) {
        const struct cluster_job *live = &known->jobs.job[i];

        if (!live->active || !request_has_job (req, live->job_id)
            || !is_same (live, req))
            continue;
        req->n_waiting++;
        if (!best || is_sooner (live, best))
            best = live;
    }
    if (best && best->job_id != req->job_id)
        request_turn_to (req, best->job_id);
}

void known_fan_choose (struct known *known)
{
    for (size_t i = 0; i < known->reqs.n; i++)
        if (known->reqs.req[i].n_roots > 1 && !known->reqs.req[i].claimed)
            choose (known, &known->reqs.req[i]);
}

bool known_is_beside (const struct request *req, const struct cluster_job *live)
{
    return req->n_roots > 1 && live->job_id != req->job_id
           && is_same (live, req)
           && (request_has_job (req, live->job_id)
               || siblings_is_of (req->dir, live->command));
}

void known_fan_drop (struct known *known)
{
    size_t n = 0;

    for (size_t i = 0; i < known->n; i++) {
        struct known_job *job = &known->job[i];
        bool beside = false;

        for (size_t k = 0; k < known->reqs.n && !job->req && !beside; k++)
            beside = known_is_beside (&known->reqs.req[k], job->live);
        if (!beside)
            known->job[n++] = *job;
    }
    known->n = n;
}

bool known_fan_has (const struct request *req, const char *word)
{
    char id[16];

    for (size_t i = 0; i < req->n_roots; i++) {
        snprintf (id, sizeof (id), "%u", req->root[i]);
        if (!strcmp (id, word))
            return true;
    }
    return false;
}
