/* SPDX-License-Identifier: Apache-2.0
 * cmd_status.c - rv status: which GPUs are free, used and down, who waits */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster_status.h"
#include "cmd_job.h"
#include "jsonout.h"

#define DOWN_LINES 20 /* of text; --json has all */

static const char usage[] =
    "usage: rv status [--json]\n"
    "GPUs of each partition by type: free, used by jobs, and down, and how "
    "many\n"
    "jobs wait for how many. A partition that is default has a *.\n"
    "      --json  one JSON object on standard output, rv.cluster/1\n";

static long long number (const json_t *object, const char *key)
{
    return json_integer_value (json_object_get (object, key));
}

static const char *string (const json_t *object, const char *key)
{
    const char *s = json_string_value (json_object_get (object, key));

    return s ? s : "";
}

/* "1 job runs, 2 wait for 6 GPUs" */
static char *queue_words (const json_t *part, char *buf, size_t size)
{
    long long running = number (part, "running_jobs");
    long long pending = number (part, "pending_jobs");
    long long gpus = number (part, "pending_gpus");
    char run[64], wait[64] = "nobody waits", on[40] = "";

    if (!json_is_true (json_object_get (part, "up"))) {
        snprintf (buf, size, "closed: no job starts here");
        return buf;
    }
    if (json_is_null (json_object_get (part, "pending_jobs"))) {
        snprintf (buf, size, "the queue is hidden by the site");
        return buf;
    }
    snprintf (run, sizeof (run), "%lld job%s run%s, ", running,
              running == 1 ? "" : "s", running == 1 ? "s" : "");
    if (gpus)
        snprintf (on, sizeof (on), " for %lld GPU%s", gpus,
                  gpus == 1 ? "" : "s");
    if (pending)
        snprintf (wait, sizeof (wait), "%lld wait%s%s", pending,
                  pending == 1 ? "s" : "", on);
    snprintf (buf, size, "%s%s", running ? run : "", wait);
    return buf;
}

static void print_partition (const json_t *part)
{
    const json_t *gpus = json_object_get (part, "gpus");
    bool is_default = json_is_true (json_object_get (part, "default"));
    char name[80], queue[160];

    snprintf (name, sizeof (name), "%.70s%s", string (part, "name"),
              is_default ? "*" : "");
    queue_words (part, queue, sizeof (queue));
    if (json_array_size (gpus) == 0)
        printf ("%-16s %-16s %5s %5s %5s %6s  %s\n", name, "no GPU", "-", "-",
                "-", "-", queue);
    for (size_t i = 0; i < json_array_size (gpus); i++) {
        const json_t *gpu = json_array_get (gpus, i);
        const char *type = string (gpu, "type");

        printf ("%-16s %-16s %5lld %5lld %5lld %6lld  %s\n", i ? "" : name,
                *type ? type : "GPU", number (gpu, "free"),
                number (gpu, "used"), number (gpu, "down"),
                number (gpu, "total"), i ? "" : queue);
    }
}

static int print_text (const json_t *state)
{
    const json_t *parts = json_object_get (state, "partitions");
    const json_t *down = json_object_get (state, "down_nodes");
    size_t n = json_array_size (down);

    printf ("%-16s %-16s %5s %5s %5s %6s  %s\n", "PARTITION", "TYPE", "FREE",
            "USED", "DOWN", "TOTAL", "QUEUE");
    for (size_t i = 0; i < json_array_size (parts); i++)
        print_partition (json_array_get (parts, i));
    for (size_t i = 0; i < n && i < DOWN_LINES; i++) {
        const json_t *node = json_array_get (down, i);
        const char *reason = string (node, "reason");

        printf ("%s %s%s%s\n", string (node, "name"), string (node, "state"),
                *reason ? ": " : "", reason);
    }
    if (n > DOWN_LINES)
        printf ("and %zu more nodes are down\n", n - DOWN_LINES);
    return CMD_OK;
}

static int cmd_status_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    struct rv_error err = {0};
    json_t *state = NULL;
    int status;

    cmd_look_json (ctx, argc, argv);
    for (int i = 1; i < argc; i++) {
        if (!strcmp (argv[i], "--help") || !strcmp (argv[i], "-h"))
            return cmd_help (ctx);
        if (strcmp (argv[i], "--json"))
            return cmd_usage_error (ctx,
                                    "cannot show the cluster: '%s' is no "
                                    "option of it",
                                    argv[i]);
    }
    status = cluster_status_load (&state, &err);
    if (status != RV_OK)
        return cmd_fail (ctx, cmd_job_status (status), cmd_job_hint (status),
                         "cannot show the cluster: %s", err.text);
    if (ctx->json)
        status = jsonout_print (json_pack (
                     "{s:s, s:O, s:O}", "schema", "rv.cluster/1", "partitions",
                     json_object_get (state, "partitions"), "down_nodes",
                     json_object_get (state, "down_nodes")))
                     ? CMD_FAILED
                     : CMD_OK;
    else
        status = print_text (state);
    json_decref (state);
    return status;
}

const struct cmd cmd_status = {
    .name = "status",
    .summary = "which GPUs are free, and who waits",
    .usage = usage,
    .json = true,
    .run = cmd_status_run,
};
