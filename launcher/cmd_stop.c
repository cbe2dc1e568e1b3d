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

struct stop {
    struct cmd_ctx errors; /* how failures are told */
    const struct known *known;
    json_t *stopped; /* what was ended */
    bool json, all;
};

static void note (struct stop *s, const char *id, uint32_t job_id,
                  const char *name)
{
    json_array_append_new (s->stopped, json_pack ("{s:I, s:o}", "job_id",
                                                  (json_int_t)job_id, "name",
                                                  jsonout_text (name)));
    if (!s->json)
        printf ("stopped job %s (%s)\n", id, name);
}

/* The other jobs of its request, first: else one of them would start. One that
 * has just ended is as good as stopped. */
static int stop_beside (struct stop *s, const struct request *req)
{
    int worst = CMD_OK;

    for (size_t i = 0; i < s->known->jobs.n; i++) {
        const struct cluster_job *live = &s->known->jobs.job[i];
        struct rv_error err = {0};
        char id[16];
        int status;

        if (!live->active || !known_is_beside (req, live))
            continue;
        snprintf (id, sizeof (id), "%u", live->job_id);
        status = cluster_cancel (live->job_id, &err);
        if (status == RV_OK)
            note (s, id, live->job_id, live->name);
        else if (status != RV_ESTATE && status != RV_ENOTFOUND)
            worst =
                cmd_fail (&s->errors, cmd_job_status (status),
                          cmd_job_hint (status), "cannot stop job %u (%s): %s",
                          live->job_id, live->name, err.text);
    }
    return worst;
}

/* What a word, or -a, means. */
struct target {
    const struct known_job *job;
    const char *task; /* a task of those of its array that wait; NULL = none */
    bool whole;       /* the array that it is of */
};

static void target_id (const struct target *t, char buf[KNOWN_ID_SIZE])
{
    if (t->task)
        snprintf (buf, KNOWN_ID_SIZE, "%s", t->task);
    else if (t->whole)
        snprintf (buf, KNOWN_ID_SIZE, "%u", t->job->array_id);
    else
        known_id (t->job, buf);
}

/* Where all are to end, one that has just ended is as good as stopped. */
static int stop_one (struct stop *s, const struct target *t)
{
    const struct known_job *job = t->job;
    struct rv_error err = {0};
    char id[KNOWN_ID_SIZE];
    int status;

    target_id (t, id);
    if (!known_active (job))
        return cmd_fail (
            &s->errors, CMD_NO_JOB, "'rv ps' lists those that have not",
            "cannot stop job %s (%s): it has ended", id, job->name);
    if (job->req && (status = stop_beside (s, job->req)) != CMD_OK)
        return status;
    status = cluster_cancel_named (id, &err);
    if (status == RV_ESTATE || status == RV_ENOTFOUND)
        return s->all ? CMD_OK
                      : cmd_fail (&s->errors, CMD_NO_JOB, NULL,
                                  "cannot stop job %s (%s): it has just ended",
                                  id, job->name);
    if (status != RV_OK)
        return cmd_fail (&s->errors, cmd_job_status (status),
                         cmd_job_hint (status), "cannot stop job %s (%s): %s",
                         id, job->name, err.text);
    if (!t->task)
        known_cancelled (s->known, job);
    note (s, id, t->whole || t->task ? job->array_id : job->job_id, job->name);
    return CMD_OK;
}

/* What fails for one must not keep the others; --json has one object to say so
 * in, and each one's line goes to standard error. */
static int stop_all (const struct cmd_ctx *ctx, struct stop *s)
{
    int worst = CMD_OK;

    s->all = true;
    s->errors.json = false;
    for (size_t i = 0; i < s->known->n; i++)
        if (s->known->job[i].req && known_active (&s->known->job[i])) {
            int status =
                stop_one (s, &(struct target){.job = &s->known->job[i]});

            worst = worst ? worst : status;
        }
    if (worst && s->json)
        return cmd_fail (ctx, worst, "standard error says which, and why",
                         "cannot stop all jobs");
    if (!s->json && worst == CMD_OK && json_array_size (s->stopped) == 0)
        fprintf (stderr, "rv: no job of rv run is waiting or running\n");
    return worst;
}

/* A job may be named twice, by its id and its name. */
static bool first_of (const struct target *t, int i)
{
    for (int k = 0; k < i; k++)
        if (t[k].job == t[i].job && !t[k].task && !t[i].task)
            return false;
    return true;
}

/* All words are resolved before the first job is ended: a slip in the last
 * one must not leave half of the work done. */
static int stop_named (struct stop *s, int argc, char **argv)
{
    struct target *t = calloc ((size_t)argc, sizeof (*t));
    struct rv_error err = {0};
    int status = t ? CMD_OK : CMD_FAILED;

    for (int i = 0; t && i < argc && status == CMD_OK; i++) {
        if (known_find (s->known, argv[i], &t[i].job, &t[i].whole, &err)
            != RV_OK)
            status = cmd_fail (&s->errors, CMD_NO_JOB, NULL,
                               "cannot stop '%s': %s", argv[i], err.text);
        else if (known_is_task (t[i].job, argv[i]))
            t[i].task = argv[i];
    }
    for (int i = 0; t && i < argc && status == CMD_OK; i++)
        if (first_of (t, i))
            status = stop_one (s, &t[i]);
    free (t);
    return status;
}

static int stop (struct cmd_ctx *ctx, bool all, int argc, char **argv)
{
    struct known known;
    struct stop s = {.errors = *ctx, .known = &known, .json = ctx->json};
    int status = cmd_job_known (ctx, "stop jobs", &known);

    if (status != CMD_OK)
        return status;
    s.stopped = json_array ();
    status = all ? stop_all (ctx, &s) : stop_named (&s, argc, argv);
    if (ctx->json && status == CMD_OK
        && jsonout_print (
            json_pack ("{s:s, s:O}", "schema", "rv.stop/1", "jobs", s.stopped)))
        status = CMD_FAILED;
    json_decref (s.stopped);
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
