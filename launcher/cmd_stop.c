/* SPDX-License-Identifier: Apache-2.0
 * cmd_stop.c - rv stop: end jobs */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_job.h"
#include "jsonout.h"
#include "known_fan.h"
#include "siblings.h"

static const char usage[] =
    "Usage: rv stop JOB|NAME... [--json]\n"
    "       rv stop -a [--json]\n"
    "Ends jobs, waiting or running, as scancel does.\n"
    "  -a, --all   every job of rv run that has not ended\n"
    "      --json  one JSON object on standard output\n";

static void note (const struct cmd_ctx *ctx, const char *id, uint32_t job_id,
                  const char *name, json_t *stopped)
{
    json_array_append_new (stopped, json_pack ("{s:I, s:o}", "job_id",
                                               (json_int_t)job_id, "name",
                                               jsonout_text (name)));
    if (!ctx->json)
        printf ("stopped job %s (%s)\n", id, name);
}

/* The other jobs of its request, first: else one of them would start. One that
 * has just ended is as good as stopped. */
static int stop_beside (struct cmd_ctx *ctx, const struct known *known,
                        const struct request *req, json_t *stopped)
{
    int worst = CMD_OK;

    for (size_t i = 0; i < known->jobs.n; i++) {
        const struct cluster_job *live = &known->jobs.job[i];
        struct rv_error err = {0};
        char id[16];
        int status;

        if (!live->active || !known_is_beside (req, live))
            continue;
        snprintf (id, sizeof (id), "%u", live->job_id);
        status = cluster_cancel (live->job_id, &err);
        if (status == RV_OK)
            note (ctx, id, live->job_id, live->name, stopped);
        else if (status != RV_ESTATE && status != RV_ENOTFOUND)
            worst =
                cmd_fail (ctx, cmd_job_status (status), cmd_job_hint (status),
                          "cannot stop job %u (%s): %s", live->job_id,
                          live->name, err.text);
    }
    return worst;
}

/* End one job, or with [whole] the array that it is of, and note it. */
static int stop_one (struct cmd_ctx *ctx, const struct known *known,
                     const struct known_job *job, bool whole, json_t *stopped)
{
    uint32_t job_id = whole ? job->array_id : job->job_id;
    struct rv_error err = {0};
    char id[KNOWN_ID_SIZE];
    int status;

    if (whole)
        snprintf (id, sizeof (id), "%u", job_id);
    else
        known_id (job, id);
    if (!known_active (job))
        return cmd_fail (ctx, CMD_NO_JOB, "'rv ps' lists those that have not",
                         "cannot stop job %s (%s): it has ended", id,
                         job->name);
    if (job->req
        && (status = stop_beside (ctx, known, job->req, stopped)) != CMD_OK)
        return status;
    status = cluster_cancel_named (id, &err);
    if (status == RV_ESTATE || status == RV_ENOTFOUND)
        return cmd_fail (ctx, CMD_NO_JOB, NULL,
                         "cannot stop job %s (%s): it has just ended", id,
                         job->name);
    if (status != RV_OK)
        return cmd_fail (ctx, cmd_job_status (status), cmd_job_hint (status),
                         "cannot stop job %s (%s): %s", id, job->name,
                         err.text);
    known_cancelled (known, job);
    note (ctx, id, job_id, job->name, stopped);
    return CMD_OK;
}

static int stop_all (struct cmd_ctx *ctx, const struct known *known,
                     json_t *stopped)
{
    int worst = CMD_OK;

    for (size_t i = 0; i < known->n; i++)
        if (known->job[i].req && known_active (&known->job[i])) {
            int status = stop_one (ctx, known, &known->job[i], false, stopped);

            worst = worst ? worst : status;
        }
    if (!ctx->json && worst == CMD_OK && json_array_size (stopped) == 0)
        fprintf (stderr, "rv: no job of rv run is waiting or running\n");
    return worst;
}

/* A job may be named twice, by its id and its name. */
static bool first_of (const struct known_job **jobs, int i)
{
    for (int k = 0; k < i; k++)
        if (jobs[k] == jobs[i])
            return false;
    return true;
}

/* All words are resolved before the first job is ended: a slip in the last
 * one must not leave half of the work done. */
static int stop_named (struct cmd_ctx *ctx, const struct known *known, int argc,
                       char **argv, json_t *stopped)
{
    const struct known_job **jobs = calloc ((size_t)argc, sizeof (*jobs));
    bool *whole = calloc ((size_t)argc, sizeof (*whole));
    struct rv_error err = {0};
    bool ok = jobs && whole;
    int status = ok ? CMD_OK : CMD_FAILED;

    for (int i = 0; ok && i < argc && status == CMD_OK; i++)
        if (known_find (known, argv[i], &jobs[i], &whole[i], &err) != RV_OK)
            status = cmd_fail (ctx, CMD_NO_JOB, NULL, "cannot stop '%s': %s",
                               argv[i], err.text);
    for (int i = 0; ok && i < argc && status == CMD_OK; i++)
        if (first_of (jobs, i))
            status = stop_one (ctx, known, jobs[i], whole[i], stopped);
    free (whole);
    free (jobs);
    return status;
}

static int stop (struct cmd_ctx *ctx, bool all, int argc, char **argv)
{
    struct known known;
    json_t *stopped;
    int status = cmd_job_known (ctx, "stop jobs", &known);

    if (status != CMD_OK)
        return status;
    stopped = json_array ();
    status = all ? stop_all (ctx, &known, stopped)
                 : stop_named (ctx, &known, argc, argv, stopped);
    if (ctx->json && status == CMD_OK
        && jsonout_print (
            json_pack ("{s:s, s:O}", "schema", "rv.stop/1", "jobs", stopped)))
        status = CMD_FAILED;
    json_decref (stopped);
    known_fini (&known);
    return status;
}

/* For rv-exec, in the job that runs the command. */
static int stop_siblings (struct cmd_ctx *ctx, const char *dir)
{
    const char *self = getenv ("SLURM_JOB_ID");
    struct rv_error err = {0};
    unsigned n = 0;
    int status;

    if (!self || getenv ("SLURM_ARRAY_JOB_ID"))
        return cmd_usage_error (ctx, "cannot stop siblings: this is %s",
                                self ? "an array, whose tasks are none"
                                     : "no job");
    status = siblings_stop (dir, (uint32_t)strtoul (self, NULL, 10), &n, &err);
    if (status != RV_OK)
        return cmd_fail (ctx, cmd_job_status (status), NULL,
                         "cannot stop siblings: %s", err.text);
    return CMD_OK;
}

static int cmd_stop_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    bool all, done;
    int status;

    if (argc == 3 && !strcmp (argv[1], "--siblings"))
        return stop_siblings (ctx, argv[2]);
    status = cmd_job_options (ctx, argc, argv, "stop jobs", &all, &done);

    if (done)
        return status;
    if (all == (optind < argc))
        return cmd_usage_error (ctx, all ? "cannot stop jobs: -a and names "
                                           "exclude each other"
                                         : "cannot stop jobs: name one, or "
                                           "all with -a");
    return stop (ctx, all, argc - optind, argv + optind);
}

const struct cmd cmd_stop = {
    .name = "stop",
    .summary = "end jobs",
    .usage = usage,
    .json = true,
    .run = cmd_stop_run,
};
