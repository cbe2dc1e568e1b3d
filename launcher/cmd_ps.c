/* SPDX-License-Identifier: Apache-2.0
 * cmd_ps.c - rv ps: the jobs of this user */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd_job.h"
#include "jsonout.h"
#include "known_account.h"
#include "plan/duration.h"
#include "plan/waiting.h"

#define LAST_S ((int64_t)30 * 86400)

static const char usage[] =
    "Usage: rv ps [-a] [--json] [JOB...]\n"
    "The jobs of this user that have not ended, oldest first; with JOB, by\n"
    "number or name, these, ended or not.\n"
    "  -a, --all   ended ones too: every request, what Slurm still knows, and\n"
    "              of 30 days what slurmdbd keeps\n"
    "      --json  one JSON object on standard output\n";

/* A job as ps shows it; texts are borrowed. */
struct row {
    const struct known_job *job;
    const char *state;
    int64_t gpus, elapsed_s; /* -1 = unknown */
    int exit_status;         /* -1 = none, or unknown */
};

/* The state of a job that Slurm has forgotten, from what it left. */
static const char *left_state (const struct request_status *status)
{
    if (!status->done)
        return "UNKNOWN";
    return status->exit_status == 0 ? "COMPLETED" : "FAILED";
}

static void fill_row (const struct known_job *job, struct row *row)
{
    struct request_status status = {.exit_status = -1};
    const struct cluster_job *live = job->live;
    struct request req;

    /* One that has never started has left nothing. */
    if (job->req && !(live && live->pending && !live->restarts)
        && known_request (job, &req, NULL) == RV_OK) {
        request_status (req.dir, job->job_id, &status, NULL);
        free (req.dir);
    }
    memset (row, 0, sizeof (*row));
    row->job = job;
    row->state = live ? live->state : left_state (&status);
    row->gpus = job->req ? (int64_t)job->req->gpus : live->gpus;
    row->exit_status = status.done ? status.exit_status : -1;
    row->elapsed_s = -1;
    if (live && live->started_at) {
        int64_t end = live->ended_at ? live->ended_at : time (NULL);

        end -= live->suspended_s;
        row->elapsed_s = end > live->started_at ? end - live->started_at : 0;
    }
    /* No file of a request tells how another's job ended. */
    if (row->exit_status < 0 && live && live->ended_at && !job->req
        && (!strcmp (live->state, "COMPLETED")
            || !strcmp (live->state, "FAILED")))
        row->exit_status =
            live->exit_signal ? 128 + live->exit_signal : live->exit_status;
    request_status_fini (&status);
}

static json_t *number_or_null (int64_t n)
{
    return n >= 0 ? json_integer (n) : json_null ();
}

/* All jobs of its request. */
static json_t *jobs_json (const struct known_job *job)
{
    json_t *list = json_array ();

    if (!job->req || job->req->n_roots < 2)
        json_array_append_new (list, json_integer (job->job_id));
    else
        for (size_t i = 0; i < job->req->n_roots; i++)
            json_array_append_new (list, json_integer (job->req->root[i]));
    return list;
}

static struct waiting waiting_of (const struct cluster_job *live)
{
    return (struct waiting){.reason = live->reason,
                            .put_back = live->restarts > 0,
                            .begins_at = live->begins_at,
                            .expected_at = live->expected_at};
}

/* Of a job that waits; else null. */
static json_t *expected_json (const struct cluster_job *live)
{
    const struct waiting w = waiting_of (live);

    return jsonout_time (waiting_start (&w, time (NULL)));
}

static json_t *why_json (const struct cluster_job *live)
{
    const struct waiting w = waiting_of (live);
    char why[256];

    waiting_why (&w, why, sizeof (why));
    return why[0] ? jsonout_text (why) : json_null ();
}

/* "" = none, or unknown */
static const char *type_of (const struct known_job *job)
{
    if (job->req)
        return job->req->gpu_type;
    return job->live->gpu_type ? job->live->gpu_type : "";
}

static json_t *row_json (const struct row *row)
{
    const struct cluster_job *live = row->job->live;
    const struct request *req = row->job->req;
    const char *type = type_of (row->job);
    int64_t submitted = live ? live->submitted_at : req->created_at;
    bool waits = live && live->pending;

    return json_pack (
        "{s:I, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "job_id", (json_int_t)row->job->job_id, "name",
        jsonout_text (row->job->name), "state", row->state, "reason",
        live && live->reason[0] ? jsonout_text (live->reason) : json_null (),
        "partition", live ? jsonout_text (live->partition) : json_null (),
        "nodes", live ? json_integer (live->nodes) : json_null (), "node_list",
        live && live->node_list[0] ? jsonout_text (live->node_list)
                                   : json_null (),
        "gpus", number_or_null (row->gpus), "gpu_type",
        type[0] ? jsonout_text (type) : json_null (), "submitted_at",
        jsonout_time (submitted), "started_at",
        jsonout_time (live ? live->started_at : 0), "ended_at",
        jsonout_time (live ? live->ended_at : 0), "time_limit_s",
        live ? json_integer (live->time_limit_s) : json_null (), "elapsed_s",
        number_or_null (row->elapsed_s), "exit_status",
        number_or_null (row->exit_status), "request_id",
        req ? jsonout_text (req->id) : json_null (), "log_dir",
        req ? jsonout_text (req->log_dir) : json_null (), "jobs",
        jobs_json (row->job), "expected_at",
        waits ? expected_json (live) : json_null (), "why",
        waits ? why_json (live) : json_null ());
}

/* Which jobs are shown. */
struct choice {
    bool all;
    const bool *named; /* (known->n) just these; NULL */
};

static bool chosen (const struct choice *c, const struct known *known, size_t i)
{
    if (c->named)
        return c->named[i];
    return c->all || known_active (&known->job[i]);
}

static int print_json (const struct known *known, const struct choice *c)
{
    json_t *list = json_array ();
    struct row row;

    for (size_t i = known->n; i-- > 0;)
        if (chosen (c, known, i)) {
            fill_row (&known->job[i], &row);
            json_array_append_new (list, row_json (&row));
        }
    return jsonout_print (
               json_pack ("{s:s, s:o}", "schema", "rv.ps/1", "jobs", list))
               ? CMD_FAILED
               : CMD_OK;
}

/* Why it waits, when it should start, and of how many that wait for it. */
static void put_waiting (const struct row *row, char *buf, size_t size)
{
    const struct request *req = row->job->req;
    const struct waiting w = waiting_of (row->job->live);
    size_t used;

    waiting_text (&w, time (NULL), buf, size);
    used = strlen (buf);
    if (req && req->n_waiting > 1)
        snprintf (buf + used, size - used, "%sfirst of %zu candidates",
                  used ? "; " : "", req->n_waiting);
    if (!buf[0])
        snprintf (buf, size, "-");
}

static void print_row (const struct row *row)
{
    const struct cluster_job *live = row->job->live;
    const char *type = type_of (row->job);
    char id[KNOWN_ID_SIZE], gpus[96] = "-", elapsed[32] = "-", where[320] = "-";

    if (row->gpus >= 0)
        snprintf (gpus, sizeof (gpus), "%lld%s%s", (long long)row->gpus,
                  type[0] ? " " : "", type);
    if (row->elapsed_s >= 0)
        duration_format_slurm (row->elapsed_s, elapsed, sizeof (elapsed));
    if (row->exit_status >= 0)
        snprintf (where, sizeof (where), "status %d", row->exit_status);
    else if (live && live->pending)
        put_waiting (row, where, sizeof (where));
    else if (live && live->node_list[0])
        snprintf (where, sizeof (where), "%.95s", live->node_list);
    printf ("%-8s %-20.20s %-13s %-10s %-10.10s %-10s %s\n",
            known_id (row->job, id), row->job->name, row->state, gpus,
            live ? live->partition : "-", elapsed, where);
}

static int print_table (const struct known *known, const struct choice *c)
{
    bool head = false;
    struct row row;

    for (size_t i = known->n; i-- > 0;) {
        if (!chosen (c, known, i))
            continue;
        if (!head)
            printf ("%-8s %-20s %-13s %-10s %-10s %-10s %s\n", "JOB", "NAME",
                    "STATE", "GPUS", "PARTITION", "ELAPSED",
                    "NODES, OR WHY IT WAITS");
        head = true;
        fill_row (&known->job[i], &row);
        print_row (&row);
    }
    if (!head)
        fprintf (stderr, "rv: no jobs%s\n",
                 c->all ? "" : "; -a shows ended ones");
    return CMD_OK;
}

/* Mark the jobs that the words name; all tasks of an array that one names. */
static int name_jobs (const struct cmd_ctx *ctx, const struct known *known,
                      char **words, bool *named)
{
    struct rv_error err = {0};

    for (; *words; words++) {
        const struct known_job *job;
        bool whole;

        if (known_find (known, *words, &job, &whole, &err) != RV_OK)
            return cmd_fail (ctx, CMD_NO_JOB, "'rv ps -a' lists all",
                             "cannot list jobs: %s", err.text);
        for (size_t i = 0; i < known->n; i++)
            if (&known->job[i] == job
                || (whole && known->job[i].array_id == job->array_id))
                named[i] = true;
    }
    return CMD_OK;
}

static int show (const struct cmd_ctx *ctx, const struct known *known, bool all,
                 char **words)
{
    bool *named = *words ? calloc (known->n + 1, sizeof (*named)) : NULL;
    const struct choice c = {all, named};
    int status = CMD_OK;

    if (*words && !named)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot list jobs: no memory");
    if (named)
        status = name_jobs (ctx, known, words, named);
    if (status == CMD_OK)
        status = ctx->json ? print_json (known, &c) : print_table (known, &c);
    free (named);
    return status;
}

static int cmd_ps_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    struct account account = {.there = false};
    struct rv_error err = {0};
    struct known known;
    bool all, done;
    int status = cmd_job_options (ctx, argc, argv, "list jobs", &all, &done);

    if (done)
        return status;
    all = all || optind < argc;
    status = cmd_job_known (ctx, "list jobs", &known);
    if (status != CMD_OK)
        return status;
    if (all)
        cmd_job_account (known_account_since (&known, time (NULL), LAST_S),
                         &account);
    if (account.there && known_account_add (&known, &account, &err) != RV_OK)
        status =
            cmd_fail (ctx, CMD_FAILED, NULL, "cannot list jobs: %s", err.text);
    else
        status = show (ctx, &known, all, argv + optind);
    known_fini (&known);
    account_fini (&account);
    return status;
}

const struct cmd cmd_ps = {
    .name = "ps",
    .summary = "list your jobs",
    .usage = usage,
    .json = true,
    .run = cmd_ps_run,
};
