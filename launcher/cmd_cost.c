/* SPDX-License-Identifier: Apache-2.0
 * cmd_cost.c - rv cost: the GPU hours of this user's requests
 *
 * From the requests' own files, so it works without accounting. Slurm is asked
 * only which jobs still run. */
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
#include "plan/duration.h"
#include "plan/fsio.h"
#include "settings.h"

static const char usage[] =
    "usage: rv cost [--since T] [--json]\n"
    "GPU hours of your requests, and what they cost by rv.conf's prices.\n"
    "      --since T  what ran in the last T: 12h, 30d (default: 30d)\n"
    "      --json     one JSON object on standard output, rv.cost/1\n";

struct line {
    const struct request *req;
    int64_t elapsed_s;
    double gpu_hours, cost; /* cost < 0: rv.conf has no price */
    bool running, lost;
};

struct bill {
    struct settings settings;
    struct known known;
    int64_t since, now;
    struct line *line; /* newest first */
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

static void make_line (struct bill *bill, const struct known_job *job)
{
    struct line line = {.req = job->req,
                        .running = job->live && job->live->active
                                   && !job->live->pending};
    double price = cost_per_hour (&bill->settings.conf, job->req->gpu_type);

    add_folder (bill, job->req->dir, &line);
    add_array (bill, job->req->dir, &line);
    if (!line.elapsed_s && !line.lost && !line.running)
        return;
    line.gpu_hours = (double)line.elapsed_s * job->req->gpus / 3600;
    line.cost = price < 0 ? -1 : line.gpu_hours * price;
    bill->line[bill->n++] = line;
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

static int print_json (const struct bill *bill)
{
    json_t *list = json_array ();
    double hours, cost;

    sum (bill, &hours, &cost);
    for (size_t i = 0; i < bill->n; i++) {
        const struct line *l = &bill->line[i];
        const struct request *r = l->req;

        json_array_append_new (
            list,
            json_pack (
                "{s:I, s:s, s:o, s:o, s:I, s:I, s:f, s:o, s:b, s:b}", "job_id",
                (json_int_t)r->job_id, "request_id", r->id, "name",
                jsonout_text (r->name), "gpu_type",
                r->gpu_type[0] ? jsonout_text (r->gpu_type) : json_null (),
                "gpus", (json_int_t)r->gpus, "elapsed_s",
                (json_int_t)l->elapsed_s, "gpu_hours", l->gpu_hours, "cost",
                money (l->cost), "running", l->running, "incomplete", l->lost));
    }
    return jsonout_print (
               json_pack ("{s:s, s:o, s:f, s:o, s:o}", "schema", "rv.cost/1",
                          "since", jsonout_time (bill->since), "gpu_hours",
                          hours, "cost", money (cost), "requests", list))
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
        printf ("%-8u %-20.20s %-16.16s %5u %11s %9.2f %9s%s%s\n",
                l->req->job_id, l->req->name,
                l->req->gpu_type[0] ? l->req->gpu_type : "-", l->req->gpus,
                name, l->gpu_hours, buf, l->running ? " runs" : "",
                l->lost ? " +" : "");
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

static int make_bill (struct cmd_ctx *ctx, int64_t last_s)
{
    struct bill bill = {.now = time (NULL)};
    struct rv_error err = {0};
    int status;

    if (settings_load (&bill.settings, &err) != RV_OK)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot tell the cost: %s",
                         err.text);
    bill.since = bill.now - last_s;
    if (known_load (bill.settings.state_dir, true, &bill.known, &err)
        != RV_OK) {
        settings_fini (&bill.settings);
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot tell the cost: %s",
                         err.text);
    }
    bill.line = calloc (bill.known.n + 1, sizeof (*bill.line));
    for (size_t i = 0; bill.line && i < bill.known.n; i++)
        if (bill.known.job[i].req)
            make_line (&bill, &bill.known.job[i]);
    status = !bill.line  ? CMD_FAILED
             : ctx->json ? print_json (&bill)
                         : print_text (&bill);
    free (bill.line);
    known_fini (&bill.known);
    settings_fini (&bill.settings);
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
