/* SPDX-License-Identifier: Apache-2.0
 * cluster_account.c - what slurmdbd keeps of this user's jobs
 *
 * As in cluster.c, what runs in the child is not freed. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cluster_account.h"

#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/slurmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proc.h"
#include "record.h"

#define ANSWER_MS 10000
#define DAY       86400
#define GPU       "gpu"
#define TYPES_MAX 64

/* The kinds of GPUs that the database counts, by its numbers for them. */
struct kinds {
    struct {
        uint32_t id;
        const char *type; /* "" = all of them */
    } kind[TYPES_MAX];
    size_t n;
};

static void find_kinds (void *db, struct kinds *kinds)
{
    slurmdb_tres_cond_t cond;
    const slurmdb_tres_rec_t *tres;
    struct xlist *list;
    struct listIterator *it;

    slurmdb_init_tres_cond (&cond, false);
    list = slurmdb_tres_get (db, &cond);
    it = list ? slurm_list_iterator_create (list) : NULL;
    while (it && kinds->n < TYPES_MAX && (tres = slurm_list_next (it))) {
        size_t len = strlen (GPU);

        if (!tres->type || strcmp (tres->type, "gres") || !tres->name
            || strncmp (tres->name, GPU, len)
            || (tres->name[len] && tres->name[len] != ':'))
            continue;
        kinds->kind[kinds->n].id = tres->id;
        kinds->kind[kinds->n++].type =
            tres->name[len] ? tres->name + len + 1 : "";
    }
}

/* The count of one kind in "1=2,4=1,1001=8". */
static int64_t count_of (const char *tres, uint32_t id)
{
    const char *at = tres;
    char *end;

    while (at && *at) {
        unsigned long here = strtoul (at, &end, 10);

        if (*end == '=' && here == id)
            return strtoll (end + 1, NULL, 10);
        at = strchr (end, ',');
        at = at ? at + 1 : NULL;
    }
    return 0;
}

/* GPUs of a job, -1 where the database counts none; their type where it is one
 * and is counted. */
static int64_t count_gpus (const struct kinds *kinds, const char *tres,
                           const char **ret_type)
{
    int64_t all = 0, typed = 0;
    size_t n_types = 0;

    *ret_type = "";
    for (size_t i = 0; i < kinds->n; i++) {
        int64_t n = count_of (tres, kinds->kind[i].id);

        if (!kinds->kind[i].type[0])
            all = n;
        else if (n) {
            typed += n;
            *ret_type = n_types++ ? "" : kinds->kind[i].type;
        }
    }
    if (typed < all)
        *ret_type = "";
    return kinds->n == 0 ? -1 : all > typed ? all : typed;
}

static void put_run (struct record_out *out, const struct kinds *kinds,
                     const slurmdb_job_rec_t *job)
{
    const char *type, *tres = job->tres_alloc_str;
    bool limit = job->timelimit != INFINITE && job->timelimit != NO_VAL;
    bool exited = WIFEXITED (job->exitcode);
    bool task = job->array_job_id && job->array_task_id != NO_VAL;
    int64_t gpus =
        count_gpus (kinds, tres && *tres ? tres : job->tres_req_str, &type);

    record_int (out, job->jobid);
    record_int (out, job->array_job_id);
    record_int (out, task ? (int64_t)job->array_task_id : -1);
    record_text (out, job->jobname);
    record_text (out, job->partition);
    record_text (out, job->start ? job->nodes : "");
    record_text (out, cluster_state_name (job->state));
    record_text (out, type);
    record_int (out, (job->state & JOB_STATE_BASE) == JOB_PENDING);
    record_int (out, job->alloc_nodes);
    record_int (out, gpus);
    record_int (out, (int64_t)job->submit);
    record_int (out, (int64_t)job->start);
    record_int (out, (int64_t)job->end);
    record_int (out, job->suspended);
    record_int (out, limit ? (int64_t)job->timelimit * 60
                           : (int64_t)STRATEGY_UNLIMITED);
    record_int (out, exited ? WEXITSTATUS (job->exitcode) : 0);
    record_int (out,
                WIFSIGNALED (job->exitcode) ? WTERMSIG (job->exitcode) : 0);
    record_end (out);
}

/* A site may allow so many days at once alone (MaxQueryTimeRange). */
static struct xlist *ask_jobs (void *db, slurmdb_job_cond_t *cond)
{
    struct xlist *list;
    time_t now = time (NULL);

    cond->usage_end = now;
    do {
        errno = 0;
        list = slurmdb_jobs_get (db, cond);
        if (list || errno != ESLURM_DB_QUERY_TOO_WIDE
            || now - cond->usage_start <= DAY)
            return list;
        cond->usage_start = now - (now - cond->usage_start) / 2;
    } while (true);
}

static struct xlist *list_of (char *text)
{
    struct xlist *list = slurm_list_create (NULL);

    slurm_list_append (list, text);
    return list;
}

static json_t *pack (void *db, struct xlist *list)
{
    struct record_out out = {0};
    struct kinds kinds = {.n = 0};
    const slurmdb_job_rec_t *job;
    struct listIterator *it = slurm_list_iterator_create (list);
    json_t *runs;

    find_kinds (db, &kinds);
    while ((job = slurm_list_next (it)))
        put_run (&out, &kinds, job);
    runs = record_json (&out);
    return json_pack ("{s:b, s:o}", "gpus", kinds.n > 0, "runs", runs);
}

static json_t *ask_account (const void *arg)
{
    slurmdb_job_cond_t cond = {.flags = JOBCOND_FLAG_DUP | JOBCOND_FLAG_NO_STEP
                                        | JOBCOND_FLAG_NO_TRUNC,
                               .usage_start = *(const int64_t *)arg,
                               .db_flags = SLURMDB_JOB_FLAG_NOTSET};
    slurm_conf_t *conf = NULL;
    struct xlist *list;
    uint16_t flags = 0;
    char uid[16];
    void *db;

    if (slurm_load_ctl_conf (0, &conf))
        return NULL;
    if (!conf->accounting_storage_type
        || !strstr (conf->accounting_storage_type, "slurmdbd"))
        return json_object ();
    errno = 0;
    db = slurmdb_connection_get (&flags);
    if (!db || errno)
        return NULL;
    snprintf (uid, sizeof (uid), "%u", (unsigned)getuid ());
    cond.userid_list = list_of (uid);
    cond.cluster_list = list_of (conf->cluster_name);
    list = ask_jobs (db, &cond);
    return list ? pack (db, list) : NULL;
}

static void read_run (struct record_in *in, struct cluster_job *job)
{
    char *text;

    job->job_id = (uint32_t)record_get_int (in);
    job->array_id = (uint32_t)record_get_int (in);
    job->array_task = record_get_int (in);
    job->name = record_get_text (in);
    job->partition = record_get_text (in);
    job->node_list = record_get_text (in);
    text = record_get_text (in);
    job->state = cluster_state_static (text);
    free (text);
    job->gpu_type = record_get_text (in);
    job->pending = record_get_int (in) != 0;
    job->nodes = (uint32_t)record_get_int (in);
    job->gpus = record_get_int (in);
    job->submitted_at = record_get_int (in);
    job->started_at = record_get_int (in);
    job->ended_at = record_get_int (in);
    job->active = job->ended_at == 0;
    job->suspended_s = record_get_int (in);
    job->time_limit_s = record_get_int (in);
    job->exit_status = (int)record_get_int (in);
    job->exit_signal = (int)record_get_int (in);
    job->reason = strdup ("");
    job->command = strdup ("");
    job->waiting_tasks = strdup ("");
    in->failed =
        in->failed || !job->reason || !job->command || !job->waiting_tasks;
    record_next (in);
}

static int by_id (const void *a, const void *b)
{
    const struct cluster_job *x = a, *y = b;

    if (x->job_id != y->job_id)
        return x->job_id < y->job_id ? -1 : 1;
    if (x->submitted_at != y->submitted_at)
        return x->submitted_at < y->submitted_at ? -1 : 1;
    return x->started_at < y->started_at ? -1 : x->started_at > y->started_at;
}

static int read_account (const json_t *json, struct account *ret,
                         struct rv_error *err)
{
    const json_t *runs = json_object_get (json, "runs");
    struct record_in in = record_begin (runs);
    struct cluster_jobs out = {0};

    if (!runs)
        return RV_OK;
    out.job = calloc (record_count (&in) + 1, sizeof (*out.job));
    if (!out.job)
        return error_set (err, RV_ENOMEM, "out of memory");
    while (record_more (&in) && !in.failed)
        read_run (&in, &out.job[out.n++]);
    if (in.failed) {
        cluster_jobs_fini (&out);
        return error_set (err, RV_EFORMAT, "a record is malformed");
    }
    qsort (out.job, out.n, sizeof (*out.job), by_id);
    ret->there = true;
    ret->no_gpus = !json_is_true (json_object_get (json, "gpus"));
    ret->runs = out;
    return RV_OK;
}

int account_load (int64_t since, struct account *ret, struct rv_error *err)
{
    int64_t end = proc_now_ms () + ANSWER_MS;
    bool done = false, reached = false;
    struct slurm_ask ask;
    json_t *json = NULL;
    int status = slurm_ask_begin (&ask, ask_account, &since, err);

    memset (ret, 0, sizeof (*ret));
    while (status == RV_OK && !done && proc_now_ms () < end) {
        status = slurm_ask_poll (&ask, 100, &done, &json, err);
        reached = reached || (!done && ask.reached);
    }
    if (!done)
        slurm_ask_cancel (&ask);
    /* The controller, or its configuration, is not there. */
    if (status == RV_ENOTFOUND || (status == RV_ETIMEDOUT && !reached))
        return RV_OK;
    if (!done || status == RV_ETIMEDOUT)
        return error_set (err, RV_ETIMEDOUT, "it does not answer");
    if (status == RV_OK)
        status = read_account (json, ret, err);
    json_decref (json);
    return status;
}

void account_fini (struct account *account)
{
    if (account)
        cluster_jobs_fini (&account->runs);
}
