/* SPDX-License-Identifier: Apache-2.0
 * known_fan.c - which of several jobs stands for their request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "known_fan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "known_index.h"
#include "siblings.h"

/* Ids begin anew with a new cluster. */
static bool is_same (const struct cluster_job *live, const struct request *req)
{
    return !strcmp (live->name, req->name)
           && (siblings_is_of (req->dir, live->command)
               || llabs (live->submitted_at - req->created_at) < 3600);
}

/* Of two jobs the one that Slurm starts first, as far as it says. */
static bool is_sooner (const struct cluster_job *a, const struct cluster_job *b)
{
    int64_t x = a->pending ? a->expected_at : 1;
    int64_t y = b->pending ? b->expected_at : 1;

    return x && (!y || x < y);
}

/* One job of the request more, of which [best] is the first so far. */
static void weigh (const struct known *known, struct request *req,
                   uint32_t job_id, const struct cluster_job **best)
{
    const struct cluster_job *live = known_live (known, job_id);

    if (!live || !live->active || !is_same (live, req))
        return;
    req->n_waiting++;
    if (!*best || is_sooner (live, *best))
        *best = live;
}

static void choose (const struct known *known, struct request *req)
{
    const struct cluster_job *best = NULL;
    bool is_root = false;

    for (size_t i = 0; i < req->n_roots; i++) {
        weigh (known, req, req->root[i], &best);
        is_root = is_root || req->root[i] == req->job_id;
    }
    if (!is_root)
        weigh (known, req, req->job_id, &best);
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

static void mark (const struct known *known, const struct request *req,
                  const struct cluster_job *live, bool *beside)
{
    if (live && known_is_beside (req, live))
        beside[live - known->jobs.job] = true;
}

/* Those that are noted, and those that Slurm alone tells of. */
static void mark_all (const struct known *known, const struct request *req,
                      bool *beside)
{
    size_t at = known_of_folder (known, req->dir);

    for (size_t i = 0; i < req->n_roots; i++)
        mark (known, req, known_live (known, req->root[i]), beside);
    for (; at < known->jobs.n
           && siblings_is_of (req->dir, known->by_command[at]->command);
         at++)
        mark (known, req, known->by_command[at], beside);
}

int known_fan_drop (struct known *known, struct rv_error *err)
{
    bool *beside = calloc (known->jobs.n + 1, sizeof (*beside));
    size_t n = 0;

    if (!beside)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t k = 0; k < known->reqs.n; k++)
        if (known->reqs.req[k].n_roots > 1)
            mark_all (known, &known->reqs.req[k], beside);
    for (size_t i = 0; i < known->n; i++) {
        struct known_job *job = &known->job[i];

        if (job->req || !beside[job->live - known->jobs.job])
            known->job[n++] = *job;
    }
    known->n = n;
    free (beside);
    return RV_OK;
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
