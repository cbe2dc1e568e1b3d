/* SPDX-License-Identifier: Apache-2.0
 * known_account.c - jobs that Slurm's controller has forgotten */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "known_account.h"

#include <stdlib.h>
#include <string.h>

#include "jobfile.h"
#include "known_index.h"

#define EARLY_S 60 /* clocks differ */

/* Which request a job id is of. */
struct owner {
    uint32_t job_id;
    const struct request *req;
};

struct owners {
    struct owner *owner; /* by job id */
    size_t n, room;
};

static bool put (struct owners *o, uint32_t job_id, const struct request *req)
{
    if (o->n == o->room) {
        size_t room = o->room ? 2 * o->room : 64;
        struct owner *grown = realloc (o->owner, room * sizeof (*grown));

        if (!grown)
            return false;
        o->owner = grown;
        o->room = room;
    }
    o->owner[o->n++] = (struct owner){job_id, req};
    return true;
}

/* The jobs of a chain between its first and its last stand in its files alone.
 */
static bool put_request (struct owners *o, const struct request *req)
{
    struct jobfile *jobs = NULL;
    size_t n = req->log_id ? jobfile_list (req->dir, &jobs) : 0;
    bool ok = put (o, req->job_id, req);

    for (size_t i = 0; ok && i < n; i++)
        ok = put (o, jobs[i].job_id, req);
    for (size_t i = 0; ok && !n && i < req->n_roots; i++)
        ok = put (o, req->root[i], req);
    free (jobs);
    return ok;
}

static int by_id (const void *a, const void *b)
{
    uint32_t x = ((const struct owner *)a)->job_id;
    uint32_t y = ((const struct owner *)b)->job_id;

    return x < y ? -1 : x > y;
}

/* Ids begin anew with a new cluster: of several it is the last that was made
 * before. */
static const struct request *find (const struct owners *o, uint32_t job_id,
                                   const struct cluster_job *run)
{
    const struct request *best = NULL;
    size_t low = 0, high = o->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (o->owner[middle].job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < o->n && o->owner[low].job_id == job_id; low++) {
        const struct request *req = o->owner[low].req;

        if (!strcmp (req->name, run->name)
            && req->created_at <= run->submitted_at + EARLY_S
            && (!best || req->created_at > best->created_at))
            best = req;
    }
    return best;
}

int known_account_owners (const struct known *known,
                          const struct account *account,
                          const struct request ***ret, struct rv_error *err)
{
    struct owners o = {0};
    const struct request **out =
        calloc (account->runs.n + 1, sizeof (struct request *));
    bool ok = out;

    for (size_t i = 0; ok && i < known->reqs.n; i++)
        ok = put_request (&o, &known->reqs.req[i]);
    if (!ok || !out) {
        free (o.owner);
        free (out);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    if (o.n)
        qsort (o.owner, o.n, sizeof (*o.owner), by_id);
    for (size_t i = 0; i < account->runs.n; i++) {
        const struct cluster_job *run = &account->runs.job[i];

        out[i] = find (&o, run->job_id, run);
        if (!out[i] && run->array_id)
            out[i] = find (&o, run->array_id, run);
    }
    free (o.owner);
    *ret = out;
    return RV_OK;
}

/* The first of its runs, or of a larger number. */
static size_t first_run (const struct account *account, uint32_t job_id)
{
    size_t low = 0, high = account->runs.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (account->runs.job[middle].job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The last run of that job, with an end; NULL = none. */
static const struct cluster_job *last_run (const struct account *account,
                                           const struct request *const *owner,
                                           const struct known_job *job)
{
    const struct cluster_job *last = NULL;

    for (size_t i = first_run (account, job->job_id);
         i < account->runs.n && account->runs.job[i].job_id == job->job_id; i++)
        if (owner[i] == job->req)
            last = &account->runs.job[i];
    return last && !last->active ? last : NULL;
}

/* Is it shown already, or one of several of a request, which another stands for?
 */
static bool is_shown (const struct known *known, const struct cluster_job *run,
                      const struct request *owner)
{
    if (known_live (known, run->job_id) || (owner && !run->array_id))
        return true;
    for (size_t i = 0; owner && i < known->n; i++)
        if (known->job[i].job_id == run->job_id && known->job[i].req == owner)
            return true;
    return false;
}

static int newest_first (const void *a, const void *b)
{
    uint32_t x = ((const struct known_job *)a)->job_id;
    uint32_t y = ((const struct known_job *)b)->job_id;

    return x < y ? 1 : x > y ? -1 : 0;
}

static void fill (struct known *known, const struct account *account,
                  const struct request *const *owner)
{
    for (size_t i = 0; i < known->n; i++) {
        struct known_job *job = &known->job[i];

        if (job->live || !(job->live = last_run (account, owner, job)))
            continue;
        job->array_id = job->live->array_id;
        job->task = job->live->array_task;
    }
}

int known_account_add (struct known *known, const struct account *account,
                       struct rv_error *err)
{
    const struct request **owner = NULL;
    int status = known_account_owners (known, account, &owner, err);
    struct known_job *grown;
    size_t n = account->runs.n;

    if (status != RV_OK)
        return status;
    grown = realloc (known->job, (known->n + n + 1) * sizeof (*grown));
    if (!grown) {
        free (owner);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    known->job = grown;
    fill (known, account, owner);
    for (size_t i = 0; i < n; i++) {
        const struct cluster_job *run = &account->runs.job[i];
        bool is_last = i + 1 == n || run[1].job_id != run->job_id;

        if (is_last && !run->active && !is_shown (known, run, owner[i]))
            known->job[known->n++] =
                (struct known_job){.job_id = run->job_id,
                                   .name = run->name,
                                   .live = run,
                                   .req = owner[i],
                                   .array_id = run->array_id,
                                   .task = run->array_task};
    }
    free (owner);
    qsort (known->job, known->n, sizeof (*known->job), newest_first);
    return RV_OK;
}

int64_t known_account_since (const struct known *known, int64_t now,
                             int64_t last_s)
{
    int64_t since = now - last_s;

    for (size_t i = 0; i < known->n; i++)
        if (!known->job[i].live && known->job[i].req->created_at < since)
            since = known->job[i].req->created_at;
    return since;
}
