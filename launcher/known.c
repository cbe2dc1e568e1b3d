/* SPDX-License-Identifier: Apache-2.0
 * known.c - the jobs of this user, from Slurm and from the requests' folders,
 * and which of them a word names */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd_job.h"
#include "known_fan.h"
#include "known_index.h"
#include "known_secrets.h"
#include "plan/duration.h"
#include "plan/fsio.h"
#include "plan/jobtext.h"
#include "siblings.h"

#define LOST_S 3600 /* longer than any rv run takes to submit */

int cmd_job_status (int code)
{
    switch (code) {
    case RV_ETIMEDOUT:
    case RV_EMISMATCH: /* of another release */
    case RV_ENOTFOUND: /* no configuration file */
        return CMD_NO_CONTROLLER;
    case RV_ENOTSUP: /* a federation */
        return CMD_UNMET;
    default:
        return CMD_FAILED;
    }
}

const char *cmd_job_hint (int code)
{
    if (cmd_job_status (code) != CMD_NO_CONTROLLER || code == RV_EMISMATCH)
        return NULL;
    return "'rv sandbox up' starts a private Slurm, 'rv --sandbox ...' uses it";
}

bool known_active (const struct known_job *job)
{
    return job->live && job->live->active;
}

static int newest_first (const void *a, const void *b)
{
    uint32_t x = ((const struct known_job *)a)->job_id;
    uint32_t y = ((const struct known_job *)b)->job_id;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* Is [req] what was submitted as this job, or as the array it is of? */
static bool made_of (const struct request *req, const struct cluster_job *live)
{
    return (live->job_id == req->job_id || live->array_id == req->job_id)
           && !strcmp (live->name, req->name)
           /* Ids begin anew with a new cluster; a requeue is a new submission
            * for Slurm, at any time. */
           && (siblings_is_of (req->dir, live->command)
               || llabs (live->submitted_at - req->created_at) < 3600);
}

static bool add (struct known *known, const struct known_job *job)
{
    /* Room for 1, 2, 4, 8 ... */
    if ((known->n & (known->n - 1)) == 0) {
        struct known_job *grown =
            realloc (known->job, 2 * (known->n + 1) * sizeof (*grown));

        if (!grown)
            return false;
        known->job = grown;
    }
    known->job[known->n++] = *job;
    return true;
}

/* A request of which Slurm knows nothing any more; an array's tasks have left
 * folders. */
static bool add_forgotten (struct known *known, const struct request *req)
{
    struct known_job job = {
        .job_id = req->job_id, .name = req->name, .req = req, .task = -1};
    struct request_task *tasks;
    bool ok = true;
    size_t n;

    tasks = request_tasks (req->dir, &n);
    for (size_t i = 0; ok && i < n; i++) {
        job.job_id = tasks[i].job_id;
        job.array_id = req->job_id;
        job.task = tasks[i].task;
        ok = add (known, &job);
    }
    free (tasks);
    return n ? ok : add (known, &job);
}

static int by_id (const void *a, const void *b)
{
    uint32_t x = (*(const struct request *const *)a)->job_id;
    uint32_t y = (*(const struct request *const *)b)->job_id;

    return x < y ? -1 : x > y;
}

/* The first request of the sorted [order] with that job id or a larger one. */
static size_t first_of (const struct request *const *order, size_t n,
                        uint32_t job_id)
{
    size_t low = 0, high = n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (order[middle]->job_id < job_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first submitted first. */
static void add_root (struct request *req, uint32_t job_id)
{
    size_t i = req->n_roots;

    if (i == REQUEST_ROOTS)
        return;
    for (; i && req->root[i - 1] > job_id; i--)
        req->root[i] = req->root[i - 1];
    req->root[i] = job_id;
    req->n_roots++;
}

/* The jobs of a request that no file names, by their scripts. Of several the
 * one that runs, or the first. */
static void find_jobs (const struct known *known, struct request *lost)
{
    const struct cluster_job *best = NULL;

    for (size_t i = known_of_folder (known, lost->dir);
         i < known->jobs.n && !lost->torn; i++) {
        const struct cluster_job *job = known->by_command[i];
        bool runs = job->active && !job->pending;
        bool best_runs = best && best->active && !best->pending;

        if (!siblings_is_of (lost->dir, job->command))
            break;
        if (!best || runs > best_runs
            || (runs == best_runs && job->job_id < best->job_id))
            best = job;
        add_root (lost, job->job_id);
    }
    lost->job_id = best ? best->job_id : 0;
}

/* rv run was killed while sbatch ran: Slurm tells which job it became. */
static void adopt (struct known *known)
{
    struct requests *reqs = &known->reqs;
    size_t n = reqs->n + reqs->n_lost, kept = 0;
    struct request *all =
        reqs->n_lost ? realloc (reqs->req, n * sizeof (*all)) : NULL;

    if (!all)
        return;
    reqs->req = all;
    for (size_t i = 0; i < reqs->n_lost; i++) {
        struct request *lost = &reqs->lost[i];

        find_jobs (known, lost);
        if (lost->job_id)
            reqs->req[reqs->n++] = *lost;
        else
            reqs->lost[kept++] = *lost;
    }
    reqs->n_lost = kept;
}

/* Give [job] the request that was submitted as [job_id]. */
static void match (const struct known *known,
                   const struct request *const *order, bool *taken,
                   struct known_job *job, uint32_t job_id)
{
    for (size_t j = first_of (order, known->reqs.n, job_id);
         j < known->reqs.n && order[j]->job_id == job_id; j++)
        if (made_of (order[j], job->live)) {
            job->req = order[j];
            taken[j] = true;
        }
}

static int join (struct known *known, struct rv_error *err)
{
    int status;
    const struct request **order =
        calloc (known->reqs.n + 1, sizeof (struct request *));
    bool *taken = calloc (known->reqs.n + 1, sizeof (*taken));
    bool ok = order && taken;

    for (size_t i = 0; ok && i < known->reqs.n; i++)
        order[i] = &known->reqs.req[i];
    if (ok)
        qsort (order, known->reqs.n, sizeof (struct request *), by_id);
    for (size_t i = 0; ok && i < known->jobs.n; i++) {
        const struct cluster_job *live = &known->jobs.job[i];

        ok = add (known, &(struct known_job){.job_id = live->job_id,
                                             .name = live->name,
                                             .live = live,
                                             .array_id = live->array_id,
                                             .task = live->array_task});
    }
    for (size_t i = 0; ok && i < known->jobs.n; i++) {
        match (known, order, taken, &known->job[i], known->job[i].job_id);
        if (known->job[i].array_id)
            match (known, order, taken, &known->job[i], known->job[i].array_id);
    }
    for (size_t j = 0; ok && j < known->reqs.n; j++)
        ok = taken[j] || add_forgotten (known, order[j]);
    free (order);
    free (taken);
    if (!ok)
        return error_set (err, RV_ENOMEM, "out of memory");
    if ((status = known_fan_drop (known, err)))
        return status;
    if (known->n)
        qsort (known->job, known->n, sizeof (*known->job), newest_first);
    return RV_OK;
}

const char *known_id (const struct known_job *job, char buf[KNOWN_ID_SIZE])
{
    if (job->array_id && job->task >= 0)
        snprintf (buf, KNOWN_ID_SIZE, "%u_%lld", job->array_id,
                  (long long)job->task);
    else
        snprintf (buf, KNOWN_ID_SIZE, "%u", job->job_id);
    return buf;
}

int known_request (const struct known_job *job, struct request *ret,
                   struct rv_error *err)
{
    char name[32];

    *ret = *job->req;
    if (job->array_id && job->task >= 0) {
        snprintf (name, sizeof (name), "array/%lld", (long long)job->task);
        ret->dir = fsio_join (job->req->dir, name);
        ret->job_id = job->job_id;
        ret->log_id = 0;
    } else {
        ret->dir = strdup (job->req->dir);
    }
    return ret->dir ? RV_OK : error_set (err, RV_ENOMEM, "out of memory");
}

/* What is left of an rv run that was killed: no job of this cluster has its
 * script, and nobody can be about to submit it. */
static void clear_lost (const struct known *known)
{
    struct rv_error err = {0};
    int64_t before = (int64_t)time (NULL) - LOST_S;
    char *name = NULL;
    bool any = false;

    for (size_t i = 0; i < known->reqs.n_lost; i++) {
        const struct request *lost = &known->reqs.lost[i];

        if (lost->created_at < before && lost->torn)
            request_discard (lost);
        any = any || (lost->created_at < before && !lost->torn);
    }
    if (!any || cluster_name (&name, &err) != RV_OK || !name[0]) {
        free (name);
        return;
    }
    for (size_t i = 0; i < known->reqs.n_lost; i++) {
        const struct request *lost = &known->reqs.lost[i];

        if (lost->created_at < before && !lost->torn
            && !strcmp (lost->cluster, name))
            request_discard (lost);
    }
    free (name);
}

void known_cancelled (const struct known *known, const struct known_job *job)
{
    if (job->req && job->live && job->live->pending
        && known_all_ended (known, job->req, job->job_id))
        request_forget (job->req);
}

int known_join (struct known *known, bool online, struct rv_error *err)
{
    int status = known_index (known, err);

    if (status != RV_OK)
        return status;
    if (online)
        adopt (known);
    known_fan_choose (known);
    return join (known, err);
}

int known_load (const char *state_dir, bool offline, struct known *ret,
                struct rv_error *err)
{
    struct known out = {.n = 0};
    bool online = false;
    int status;

    /* The folders first: a job that is noted after this look at them is among
     * Slurm's, and one that is not among Slurm's was not to be noted. */
    status = requests_load (state_dir, 0, &out.reqs, err);
    if (status == RV_OK) {
        status = cluster_jobs_load (&out.jobs, err);
        online = status == RV_OK;
        if (offline && status != RV_OK) {
            out.unasked.code = status;
            if (err)
                out.unasked = *err;
            status = RV_OK;
        }
    }
    if (status == RV_OK)
        status = known_join (&out, online, err);
    if (online && status == RV_OK)
        clear_lost (&out);
    if (status != RV_OK) {
        known_fini (&out);
        return status;
    }
    if (online)
        known_forget_secrets (&out);
    *ret = out;
    return RV_OK;
}

void known_fini (struct known *known)
{
    cluster_jobs_fini (&known->jobs);
    requests_fini (&known->reqs);
    free (known->by_id);
    free (known->by_command);
    free (known->job);
    memset (known, 0, sizeof (*known));
}

typedef bool (*match_f) (const struct known_job *job, const char *word);

bool known_is_task (const struct known_job *job, const char *word)
{
    const char *task = strchr (word, '_');
    char array[16];
    long n;

    snprintf (array, sizeof (array), "%u_", job->array_id);
    if (!job->array_id || job->task >= 0 || !job->live || !task
        || strncmp (word, array, strlen (array)))
        return false;
    if (!strcmp (task + 1, "0"))
        n = 0;
    else if (count_parse (task + 1, INT32_MAX, &n, NULL) != RV_OK)
        return false;
    return jobtext_has_task (job->live->waiting_tasks, (uint64_t)n);
}

static bool match_id (const struct known_job *job, const char *word)
{
    char id[KNOWN_ID_SIZE], array[16], own[16];
    const char *last = job->req ? strrchr (job->req->id, '-') : NULL;

    snprintf (own, sizeof (own), "%u", job->job_id);
    snprintf (array, sizeof (array), "%u", job->array_id);
    return !strcmp (own, word) || !strcmp (known_id (job, id), word)
           || (job->array_id && !strcmp (array, word))
           || known_is_task (job, word)
           || (job->req
               && (!strcmp (job->req->id, word)
                   || known_fan_has (job->req, word)))
           || (last && !strcmp (last + 1, word));
}

static bool match_name (const struct known_job *job, const char *word)
{
    return !strcmp (job->name, word);
}

static bool match_prefix (const struct known_job *job, const char *word)
{
    return !strncmp (job->name, word, strlen (word));
}

static bool is_number (const char *word)
{
    return !word[strspn (word, "0123456789_")];
}

static bool match_suffix (const struct known_job *job, const char *word)
{
    size_t name = strlen (job->name), len = strlen (word);

    return !is_number (word) && len <= name
           && !strcmp (job->name + name - len, word);
}

static bool match_part (const struct known_job *job, const char *word)
{
    return !is_number (word) && strstr (job->name, word);
}

/* "12 train, 14 train2" */
static int ambiguous (const struct known *known, const char *word,
                      match_f match, bool active, struct rv_error *err)
{
    char list[300] = "", id[KNOWN_ID_SIZE];
    size_t used = 0;

    for (size_t i = 0; i < known->n && used < sizeof (list); i++)
        if (match (&known->job[i], word)
            && known_active (&known->job[i]) == active)
            used += (size_t)snprintf (
                list + used, sizeof (list) - used, "%s%s %s", used ? ", " : "",
                known_id (&known->job[i], id), known->job[i].name);
    return error_set (err, RV_EMISMATCH, "'%s' names several jobs: %s", word,
                      list);
}

/* Among the matches that are active, or not: one is the answer. Several ended
 * ones of one name are runs of one thing: the newest. Tasks of one array are
 * the array, where the caller can do with that. */
static int find_among (const struct known *known, const char *word,
                       match_f match, bool active, const struct known_job **ret,
                       bool *ret_whole, struct rv_error *err)
{
    const struct known_job *found = NULL;

    for (size_t i = 0; i < known->n; i++) {
        const struct known_job *job = &known->job[i];
        bool one_array =
            found && found->array_id && found->array_id == job->array_id;

        if (!match (job, word) || known_active (job) != active)
            continue;
        if (one_array && ret_whole)
            *ret_whole = true;
        else if (found
                 && (active || one_array || strcmp (found->name, job->name)))
            return ambiguous (known, word, match, active, err);
        if (!found)
            found = job;
    }
    *ret = found;
    return RV_OK;
}

/* The newest job of rv run, by the time of its request; within one second by
 * the job's number, in the order of which they stand. */
static const struct known_job *latest (const struct known *known, bool runs)
{
    const struct known_job *best = NULL;

    for (size_t i = 0; i < known->n; i++) {
        const struct known_job *job = &known->job[i];

        if (job->req && (!runs || (known_active (job) && !job->live->pending))
            && (!best || job->req->created_at > best->req->created_at))
            best = job;
    }
    return best;
}

int known_find (const struct known *known, const char *word,
                const struct known_job **ret, bool *ret_whole,
                struct rv_error *err)
{
    static const match_f ways[] = {match_id, match_name, match_prefix,
                                   match_suffix, match_part};
    int status = RV_OK;

    *ret = NULL;
    if (ret_whole)
        *ret_whole = false;
    if (!word) {
        *ret = latest (known, true);
        *ret = *ret ? *ret : latest (known, false);
        return *ret ? RV_OK
                    : error_set (err, RV_ENOTFOUND,
                                 "rv run has submitted no job yet");
    }
    for (size_t i = 0; *word && i < sizeof (ways) / sizeof (ways[0]); i++)
        for (int active = 1; active >= 0; active--) {
            status =
                find_among (known, word, ways[i], active, ret, ret_whole, err);
            if (status != RV_OK || *ret)
                return status;
        }
    if (known->unasked.code)
        return error_set (err, RV_ETIMEDOUT,
                          "no request here has the id or name '%s', and of "
                          "other jobs nothing is known: %s",
                          word, known->unasked.text);
    return error_set (err, RV_ENOTFOUND, "no job has the id or name '%s'",
                      word);
}
