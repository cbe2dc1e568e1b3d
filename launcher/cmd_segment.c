/* SPDX-License-Identifier: Apache-2.0
 * cmd_segment.c - rv segment: what rv-exec asks of Slurm about its own job
 *
 * Not for people: no list of commands names it. The answer is one JSON object.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chain.h"
#include "cluster_segment.h"
#include "cmd_job.h"
#include "jsonout.h"

static const char usage[] =
    "Usage: rv segment ask JOB\n"
    "       rv segment requeue JOB [NODE]\n"
    "       rv segment comment JOB TEXT\n"
    "       rv segment chain DIR JOB FIRST SUBMITTED [TASK]\n"
    "What the batch step of a job asks about that job: what slurmctld says of\n"
    "it; to put it back into the queue, not on NODE again; to submit another\n"
    "job that goes on behind it. One JSON object on standard output.\n";

static int failed (const struct cmd_ctx *ctx, const char *verb, int status,
                   const struct rv_error *err)
{
    int exit = status == RV_ENOTFOUND ? CMD_NO_JOB : cmd_job_status (status);

    return cmd_fail (ctx, exit, NULL, "cannot %s for the batch step: %s", verb,
                     err->text);
}

static uint32_t job_of (const char *word)
{
    char *end;
    unsigned long id = strtoul (word, &end, 10);

    return *end || id > UINT32_MAX ? 0 : (uint32_t)id;
}

static int ask (struct cmd_ctx *ctx, uint32_t job_id, const char *verb,
                const char *word)
{
    struct rv_error err = {0};
    json_t *answer = NULL;
    int status = !strcmp (verb, "requeue")
                     ? cluster_segment_requeue (job_id, word, &answer, &err)
                 : !strcmp (verb, "comment")
                     ? cluster_segment_comment (job_id, word, &answer, &err)
                     : cluster_segment_ask (job_id, &answer, &err);

    if (status)
        return failed (ctx, verb, status, &err);
    return jsonout_print (answer) ? CMD_FAILED : CMD_OK;
}

static int chain (struct cmd_ctx *ctx, char **word, int n)
{
    struct chain c = {.dir = word[0],
                      .job_id = job_of (word[1]),
                      .first = job_of (word[2]),
                      .submitted = job_of (word[3]),
                      .task = n > 4 ? word[4] : NULL};
    struct rv_error err = {0};
    uint32_t job_id = 0;
    int status;

    if (!c.job_id || !c.first || !c.submitted)
        return cmd_usage_error (ctx, "cannot go on: a job id is a number");
    if ((status = chain_submit (&c, &job_id, &err)) && !job_id)
        return failed (ctx, "chain a job", status, &err);
    if (status)
        fprintf (stderr, "rv: job %u was submitted, but cannot be noted: %s\n",
                 job_id, err.text);
    return jsonout_print (json_pack ("{s:s, s:I, s:s}", "schema",
                                     "rv.segment/1", "job_id",
                                     (json_int_t)job_id, "done", "chained"))
               ? CMD_FAILED
               : CMD_OK;
}

static int cmd_segment_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";

    if (!strcmp (verb, "--help"))
        return cmd_help (ctx);
    /* Slurm ends the batch step, and with it us, the moment the job is back
     * in the queue; the answer shall still arrive. */
    signal (SIGTERM, SIG_IGN);
    if (!strcmp (verb, "ask") && argc == 3 && job_of (argv[2]))
        return ask (ctx, job_of (argv[2]), verb, NULL);
    if (!strcmp (verb, "requeue") && (argc == 3 || argc == 4)
        && job_of (argv[2]))
        return ask (ctx, job_of (argv[2]), verb, argv[3]);
    if (!strcmp (verb, "comment") && argc == 4 && job_of (argv[2]))
        return ask (ctx, job_of (argv[2]), verb, argv[3]);
    if (!strcmp (verb, "chain") && (argc == 6 || argc == 7))
        return chain (ctx, argv + 2, argc - 2);
    return cmd_usage_error (ctx, "cannot serve the batch step: these words "
                                 "are none of its questions");
}

const struct cmd cmd_segment = {
    .name = "segment",
    .usage = usage,
    .run = cmd_segment_run,
};
