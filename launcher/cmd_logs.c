/* SPDX-License-Identifier: Apache-2.0
 * cmd_logs.c - rv logs: what a job has written, and what it still writes */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_job.h"
#include "follow.h"
#include "plan/duration.h"
#include "plan/hostlist.h"
#include "settings.h"

static const char usage[] =
    "Usage: rv logs [JOB|NAME] [-f] [--out|--err] [--rank N|--node NODE]\n"
    "               [--tail N] [--raw|--json]\n"
    "Standard output of the ranks on standard output, the rest on standard\n"
    "error. Without JOB the newest job of rv run that runs, else the newest.\n"
    "Of a line drawn over and over, as progress bars are, the last state.\n"
    "  -f, --follow   go on until the job ends\n"
    "      --out      only what the ranks wrote to standard output\n"
    "      --err      only what they wrote to standard error\n"
    "      --rank N   only rank N, without a label before each line\n"
    "      --node NODE  only the ranks of that node (a name, or its index)\n"
    "      --tail N   begin N lines before the end of each log\n"
    "      --no-label no \"N: \" before the lines of several ranks\n"
    "      --raw      bytes as they are, bars and all, without labels\n"
    "      --json     one JSON object a line on standard output, rv.log/1\n";

struct logs_opts {
    const char *word, *node;
    struct follow_opts follow;
    bool go_on, only_out, only_err, no_label;
};

enum {
    OPT_OUT = 256,
    OPT_ERR,
    OPT_RANK,
    OPT_TAIL,
    OPT_NO_LABEL,
    OPT_NODE,
    OPT_RAW,
    OPT_JSON
};

static const struct option long_options[] = {
    {"follow", no_argument, NULL, 'f'},
    {"out", no_argument, NULL, OPT_OUT},
    {"err", no_argument, NULL, OPT_ERR},
    {"rank", required_argument, NULL, OPT_RANK},
    {"tail", required_argument, NULL, OPT_TAIL},
    {"no-label", no_argument, NULL, OPT_NO_LABEL},
    {"node", required_argument, NULL, OPT_NODE},
    {"raw", no_argument, NULL, OPT_RAW},
    {NULL, 0, NULL, 0},
};

/* A whole number from 0 on. */
static bool parse_number (const char *text, long max, long *ret)
{
    if (!strcmp (text, "0")) {
        *ret = 0;
        return true;
    }
    return count_parse (text, max, ret, NULL) == RV_OK;
}

static int take_option (struct cmd_ctx *ctx, int c, const char *value,
                        void *arg)
{
    struct logs_opts *opts = arg;
    long n;

    switch (c) {
    case 'f':
        opts->go_on = true;
        break;
    case OPT_OUT:
        opts->only_out = true;
        break;
    case OPT_ERR:
        opts->only_err = true;
        break;
    case OPT_NO_LABEL:
        opts->no_label = true;
        break;
    case OPT_NODE:
        opts->node = value;
        break;
    case OPT_RAW:
        opts->follow.raw = true;
        break;
    case OPT_RANK:
        if (!parse_number (value, 1 << 20, &n))
            return cmd_usage_error (ctx,
                                    "cannot show logs: --rank takes a "
                                    "rank, not '%s'",
                                    value);
        opts->follow.rank = (int)n;
        break;
    case OPT_TAIL:
        if (!parse_number (value, 1L << 30, &n))
            return cmd_usage_error (ctx,
                                    "cannot show logs: --tail takes a "
                                    "number of lines, not '%s'",
                                    value);
        opts->follow.tail = n;
        break;
    }
    return CMD_OK;
}

static int parse (struct cmd_ctx *ctx, int argc, char **argv,
                  struct logs_opts *opts, bool *ret_done)
{
    int status = cmd_options (ctx, argc, argv, "f", long_options, "show logs",
                              take_option, opts, ret_done);

    if (*ret_done)
        return status;
    *ret_done = true;
    opts->follow.json = ctx->json;
    if (opts->only_out && opts->only_err)
        return cmd_usage_error (ctx, "cannot show logs: --out and --err "
                                     "exclude each other; leave both out for "
                                     "both");
    if (opts->node && opts->follow.rank >= 0)
        return cmd_usage_error (ctx, "cannot show logs: --rank and --node "
                                     "exclude each other");
    if (opts->follow.raw && opts->follow.json)
        return cmd_usage_error (ctx, "cannot show logs: --raw and --json "
                                     "exclude each other");
    if (argc - optind > 1)
        return cmd_usage_error (ctx, "cannot show logs: name one job, not %d",
                                argc - optind);
    opts->word = argv[optind];
    *ret_done = false;
    return CMD_OK;
}

/* Which ranks are on [node]. They stand evenly, in the order of the nodes. */
static int find_node (struct cmd_ctx *ctx, const struct request *req,
                      const char *nodes, const char *node,
                      struct follow_opts *opts)
{
    struct hostlist list = {0};
    struct rv_error err = {0};
    size_t at;
    bool none;

    if (!nodes || !*nodes)
        return cmd_fail (ctx, CMD_UNMET, "--rank shows one rank",
                         "cannot show logs of job %u by node: Slurm does not "
                         "tell its nodes",
                         req->job_id);
    if (hostlist_parse (nodes, &list, &err))
        return cmd_fail (ctx, CMD_FAILED, NULL,
                         "cannot show logs of job %u: %s", req->job_id,
                         err.text);
    at = hostlist_find (&list, node);
    none = at == list.n || req->tasks % list.n;
    opts->n_ranks = (int)(req->tasks / list.n);
    opts->rank = (int)at * opts->n_ranks;
    hostlist_fini (&list);
    if (none)
        return cmd_fail (ctx, CMD_UNMET, NULL,
                         "cannot show logs of job %u: it has no node '%.64s'; "
                         "its nodes are %.200s",
                         req->job_id, node, nodes);
    return CMD_OK;
}

static int show (struct cmd_ctx *ctx, const struct request *req,
                 const char *nodes, struct logs_opts *opts)
{
    struct rv_error err = {0};
    int status, ignored; /* the command's status is not ours */

    if (opts->follow.rank >= (int)req->tasks)
        return cmd_fail (ctx, CMD_USAGE, NULL,
                         "cannot show logs of job %u: it has ranks 0 to %u, "
                         "not %d",
                         req->job_id, req->tasks - 1, opts->follow.rank);
    opts->follow.out = !opts->only_err;
    opts->follow.err = !opts->only_out;
    if (opts->node
        && (status = find_node (ctx, req, nodes, opts->node, &opts->follow)))
        return status;
    opts->follow.batch = !opts->only_out && !opts->only_err
                         && opts->follow.rank < 0 && !opts->follow.raw;
    opts->follow.label = (opts->follow.rank < 0 || opts->follow.n_ranks > 1)
                         && req->tasks > 1 && !opts->no_label;
    status = opts->go_on ? follow_job (req, &opts->follow, &ignored, &err)
                         : follow_show (req, &opts->follow, &err);
    if (status != RV_OK)
        return cmd_fail (
            ctx, CMD_FAILED,
            status == RV_ENOTFOUND ? "'rv ps' shows whether it runs" : NULL,
            "cannot show logs of job %u: %s", req->job_id, err.text);
    return CMD_OK;
}

/* The job's own word comes first: of a job that is ending Slurm names only the
 * nodes that have not ended yet, and of one long ended none.
 * malloc'ed; NULL: nobody tells. */
static char *all_nodes (const struct request *req, const struct known_job *job)
{
    struct request_status told;
    char *ret = NULL;

    if (request_status (req->dir, req->job_id, &told, NULL) == RV_OK) {
        ret = told.nodes;
        told.nodes = NULL;
        request_status_fini (&told);
    }
    if (!ret && job->live)
        ret = strdup (job->live->node_list);
    return ret;
}

static int show_job (struct cmd_ctx *ctx, const struct known_job *job,
                     struct logs_opts *opts)
{
    struct rv_error err = {0};
    struct request req;
    char *nodes;
    int status;

    if (known_request (job, &req, &err) != RV_OK)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot show logs: %s",
                         err.text);
    nodes = all_nodes (&req, job);
    status = show (ctx, &req, nodes, opts);
    free (nodes);
    free (req.dir);
    return status;
}

static int find_and_show (struct cmd_ctx *ctx, struct logs_opts *opts)
{
    struct settings settings;
    struct rv_error err = {0};
    const struct known_job *job;
    struct known known;
    int status = settings_load (&settings, &err);

    if (status != RV_OK)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot show logs: %s",
                         err.text);
    /* Logs are files: they can be read without a controller. */
    status = known_load (settings.state_dir, true, &known, &err);
    settings_fini (&settings);
    if (status != RV_OK)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot show logs: %s",
                         err.text);
    status = known_find (&known, opts->word, &job, NULL, &err);
    if (status != RV_OK)
        status = cmd_fail (
            ctx, status == RV_ETIMEDOUT ? CMD_NO_CONTROLLER : CMD_NO_JOB, NULL,
            "cannot show logs: %s", err.text);
    else if (!job->req)
        status = cmd_fail (ctx, CMD_NO_JOB,
                           "its output is where its own submission put it",
                           "cannot show logs of job %u: 'rv run' did not "
                           "submit it",
                           job->job_id);
    else
        status = show_job (ctx, job, opts);
    known_fini (&known);
    return status;
}

static int cmd_logs_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    struct logs_opts opts = {.follow = {.rank = -1, .tail = -1}};
    bool done;
    int status = parse (ctx, argc, argv, &opts, &done);

    if (done)
        return status;
    return find_and_show (ctx, &opts);
}

const struct cmd cmd_logs = {
    .name = "logs",
    .summary = "show what a job has written; -f follows it",
    .usage = usage,
    .json = true,
    .run = cmd_logs_run,
};
