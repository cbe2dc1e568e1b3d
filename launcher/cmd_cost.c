/* SPDX-License-Identifier: Apache-2.0
 * cmd_cost.c - rv cost: the GPU hours of this user's jobs
 *
 * From slurmdbd where there is one; what it does not know, or all where there is
 * none, from the requests' own files. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <dirent.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cmd_job.h"
#include "cost.h"
#include "jsonout.h"
#include "known_account.h"
#include "known_index.h"
#include "plan/duration.h"
#include "plan/fsio.h"
#include "settings.h"

static const char usage[] =
    "usage: rv cost [--since T] [--json]\n"
    "GPU hours of your jobs, and what they cost by rv.conf's prices.\n"
    "      --since T  what ran in the last T: 12h, 30d (default: 30d)\n"
    "      --json     one JSON object on standard output, rv.cost/1\n";

struct line {
    const struct request *req;     /* NULL: not of rv run */
    const struct cluster_job *run; /* its last; NULL: not of slurmdbd */
    int64_t elapsed_s;
    double gpu_hours, cost; /* cost < 0: rv.conf has no price */
    bool running, lost;
};

struct bill {
    struct settings settings;
    struct known known;
    struct account account;
    const struct request **owner; /* of the account's runs */
    int64_t since, now;
    struct line *line; /* requests, newest first, then what slurmdbd adds */
    size_t n;
};

static json_t *load (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name);
    json_t *json = path ? json_load_file (path, 0, NULL) : NULL;

    free (path);
    return json;
}

static void add_folder (const struct bill *bill, const char *dir,
                        struct line *line)
{
    json_t *segments = load (dir, "segments.json");

    line->elapsed_s += cost_elapsed (segments, bill->since, bill->now,
                                     line->running, &line->lost);
    json_decref (segments);
}

/* Each task of an array ran for itself. */
static void add_array (const struct bill *bill, const char *dir,
                       struct line *line)
{
    char *root = fsio_join (dir, "array");
    DIR *list = root ? opendir (root) : NULL;
    struct dirent *entry;

    while (list && (entry = readdir (list))) {
        char *task =
            entry->d_name[0] == '.' ? NULL : fsio_join (root, entry->d_name);

        if (task)
            add_folder (bill, task, line);
        free (task);
    }
    if (list)
        closedir (list);
    free (root);
}

static const char *type_of (const struct line *line)
{
    if (line->req)
        return line->req->gpu_type;
    return line->run->gpu_type ? line->run->gpu_type : "";
}

static int64_t gpus_of (const struct line *line)
{
    return line->req ? (int64_t)line->req->gpus : line->run->gpus;
}

/* Add the line, unless nothing of it is to be told. */
static void keep (struct bill *bill, const struct line *line)
{
    double price = cost_per_hour (&bill->settings.conf, type_of (line));

    if (!line->elapsed_s && !line->lost && !line->running)
        return;
    bill->line[bill->n] = *line;
    bill->line[bill->n++].cost = price < 0 ? -1 : line->gpu_hours * price;
}

/* What slurmdbd says of one more run. Of one without an end the controller must
 * know: else its end was lost. */
static void add_run (const struct bill *bill, const struct cluster_job *run,
                     struct line *line)
{
    int64_t s = cost_of_run (run->started_at, run->ended_at, run->suspended_s,
                             bill->since, bill->now);
    int64_t gpus;

    line->run = run;
    if (!run->ended_at && !known_live (&bill->known, run->job_id)) {
        line->lost = true;
        return;
    }
    gpus = run->gpus >= 0 ? run->gpus : gpus_of (line);
    line->elapsed_s += s;
    line->gpu_hours += (double)(s * gpus) / 3600;
}

/* All jobs of a request are one line, tasks of an array too. */
static void add_requests (struct bill *bill)
{
    const struct requests *reqs = &bill->known.reqs;
    struct line *line = bill->line;

    for (size_t i = 0; i < reqs->n; i++)
        line[i].req = &reqs->req[i];
    for (size_t i = 0; i < bill->known.n; i++) {
        const struct known_job *job = &bill->known.job[i];

        if (job->req && known_active (job) && !job->live->pending)
            line[job->req - reqs->req].running = true;
    }
    for (size_t i = 0; bill->owner && i < bill->account.runs.n; i++)
        if (bill->owner[i])
            add_run (bill, &bill->account.runs.job[i],
                     &line[bill->owner[i] - reqs->req]);
    for (size_t i = 0; i < reqs->n; i++) {
        struct line one = line[i];

        if (!one.run) {
            add_folder (bill, one.req->dir, &one);
            add_array (bill, one.req->dir, &one);
            one.gpu_hours = (double)(one.elapsed_s * one.req->gpus) / 3600;
        }
        keep (bill, &one);
    }
}

/* Jobs with GPUs that rv run did not submit: all runs of one are one line. */
static void add_others (struct bill *bill)
{
    const struct cluster_jobs *runs = &bill->account.runs;

    for (size_t i = runs->n, first; i-- > 0; i = first) {
        struct line line = {.run = &runs->job[i]};
        const struct cluster_job *live;

        for (first = i;
             first && runs->job[first - 1].job_id == runs->job[i].job_id;)
            first--;
        if (bill->owner[i] || runs->job[i].gpus <= 0)
            continue;
        live = known_live (&bill->known, runs->job[i].job_id);
        line.running = live && live->active && !live->pending;
        for (size_t k = first; k <= i; k++)
            add_run (bill, &runs->job[k], &line);
        keep (bill, &line);
    }
}

static int make_lines (struct bill *bill, struct rv_error *err)
{
    int status = RV_OK;

    bill->line = calloc (bill->known.reqs.n + bill->account.runs.n + 1,
                         sizeof (*bill->line));
    if (!bill->line)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (bill->account.there)
        status = known_account_owners (&bill->known, &bill->account,
                                       &bill->owner, err);
    if (status == RV_OK)
        add_requests (bill);
    if (status == RV_OK && bill->account.there)
        add_others (bill);
    return status;
}

static void sum (const struct bill *bill, double *ret_hours, double *ret_cost)
{
    *ret_hours = *ret_cost = 0;
    for (size_t i = 0; i < bill->n; i++) {
        *ret_hours += bill->line[i].gpu_hours;
        if (bill->line[i].gpu_hours > 0 && bill->line[i].cost < 0)
            *ret_cost = -1;
        else if (*ret_cost >= 0 && bill->line[i].cost > 0)
            *ret_cost += bill->line[i].cost;
    }
}

static json_t *money (double cost)
{
    return cost < 0 ? json_null () : json_real (cost);
}

static uint32_t job_of (const struct line *line)
{
    return line->req ? line->req->job_id : line->run->job_id;
}

static const char *name_of (const struct line *line)
{
    return line->req ? line->req->name : line->run->name;
}

static json_t *line_json (const struct line *l)
{
    const char *type = type_of (l);

    return json_pack ("{s:I, s:o, s:o, s:o, s:I, s:I, s:f, s:o, s:b, s:b, s:s}",
                      "job_id", (json_int_t)job_of (l), "request_id",
                      l->req ? jsonout_text (l->req->id) : json_null (), "name",
                      jsonout_text (name_of (l)), "gpu_type",
                      type[0] ? jsonout_text (type) : json_null (), "gpus",
                      (json_int_t)gpus_of (l), "elapsed_s",
                      (json_int_t)l->elapsed_s, "gpu_hours", l->gpu_hours,
                      "cost", money (l->cost), "running", l->running,
                      "incomplete", l->lost, "source",
                      l->run ? "slurmdbd" : "files");
}

static int print_json (const struct bill *bill)
{
    json_t *list = json_array ();
    double hours, cost;

    sum (bill, &hours, &cost);
    for (size_t i = 0; i < bill->n; i++)
        json_array_append_new (list, line_json (&bill->line[i]));
    return jsonout_print (json_pack ("{s:s, s:o, s:f, s:o, s:b, s:o}", "schema",
                                     "rv.cost/1", "since",
                                     jsonout_time (bill->since), "gpu_hours",
                                     hours, "cost", money (cost), "accounting",
                                     bill->account.there, "requests", list))
               ? CMD_FAILED
               : CMD_OK;
}

static void money_text (double cost, char *buf, size_t size)
{
    if (cost < 0)
        snprintf (buf, size, "-");
    else
        snprintf (buf, size, "%.2f", cost);
}

static int print_text (const struct bill *bill)
{
    char buf[32], name[32];
    bool lost = false;
    double hours, cost;

    printf ("%-8s %-20s %-16s %5s %11s %9s %9s\n", "JOB", "NAME", "TYPE",
            "GPUS", "ELAPSED", "GPU-HOURS", "COST");
    for (size_t i = 0; i < bill->n; i++) {
        const struct line *l = &bill->line[i];

        duration_format_slurm (l->elapsed_s, name, sizeof (name));
        money_text (l->cost, buf, sizeof (buf));
        printf ("%-8u %-20.20s %-16.16s %5lld %11s %9.2f %9s%s%s\n", job_of (l),
                name_of (l), type_of (l)[0] ? type_of (l) : "-",
                (long long)gpus_of (l), name, l->gpu_hours, buf,
                l->running ? " runs" : "", l->lost ? " +" : "");
        lost = lost || l->lost;
    }
    sum (bill, &hours, &cost);
    money_text (cost, buf, sizeof (buf));
    printf ("%-8s %-20s %-16s %5s %11s %9.2f %9s\n", "total", "", "", "", "",
            hours, buf);
    if (lost)
        fprintf (stderr, "rv: where a + stands, a start of the job left no end "
                         "and is not counted\n");
    if (cost < 0)
        fprintf (stderr, "rv: rv.conf has no cost for some of these types\n");
    return CMD_OK;
}

static void bill_fini (struct bill *bill)
{
    free (bill->line);
    free (bill->owner);
    known_fini (&bill->known);
    account_fini (&bill->account);
    settings_fini (&bill->settings);
}

static int make_bill (struct cmd_ctx *ctx, int64_t last_s)
{
    struct bill bill = {.now = time (NULL)};
    struct rv_error err = {0};
    int status = settings_load (&bill.settings, &err);

    bill.since = bill.now - last_s;
    if (status == RV_OK)
        status = known_load (bill.settings.state_dir, true, &bill.known, &err);
    if (status == RV_OK) {
        cmd_job_account (bill.since, &bill.account);
        status = make_lines (&bill, &err);
    }
    if (status != RV_OK) {
        bill_fini (&bill);
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot tell the cost: %s",
                         err.text);
    }
    if (bill.account.no_gpus)
        fprintf (stderr, "rv: slurmdbd counts no GPUs (AccountingStorageTRES): "
                         "jobs that rv run did not submit are left out\n");
    status = ctx->json ? print_json (&bill) : print_text (&bill);
    bill_fini (&bill);
    return status;
}

static int take_since (struct cmd_ctx *ctx, int c, const char *value, void *arg)
{
    struct rv_error err = {0};

    (void)c;
    if (duration_parse (value, arg, &err) != RV_OK)
        return cmd_usage_error (ctx, "cannot tell the cost: --since: %s",
                                err.text);
    return CMD_OK;
}

static int cmd_cost_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        {"since", required_argument, NULL, 's'},
        {NULL, 0, NULL, 0},
    };
    int64_t ms = (int64_t)30 * 86400 * 1000;
    bool done;
    int status = cmd_options (ctx, argc, argv, "", options, "tell the cost",
                              take_since, &ms, &done);

    if (done)
        return status;
    if (optind < argc)
        return cmd_usage_error (ctx, "cannot tell the cost: no word stands "
                                     "behind");
    return make_bill (ctx, ms / 1000);
}

const struct cmd cmd_cost = {
    .name = "cost",
    .summary = "GPU hours of your jobs, and their price",
    .usage = usage,
    .json = true,
    .run = cmd_cost_run,
};
