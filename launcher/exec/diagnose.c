/* SPDX-License-Identifier: Apache-2.0
 * diagnose.c - put together what is known of a bad end */
#include "config.h"

#include "exec/diagnose.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/report.h"
#include "failure.h"

static char *join_lines (const json_t *list)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream (&text, &size);

    if (!f)
        return NULL;
    for (size_t i = 0; i < json_array_size (list); i++) {
        const char *line = json_string_value (json_array_get (list, i));

        fprintf (f, "%s\n", line ? line : "");
    }
    if (fclose (f)) {
        free (text);
        return NULL;
    }
    return text;
}

const struct advice *diagnose_advice (const json_t *rank, const char *slurm)
{
    const json_t *status = json_object_get (rank, "exit_status");
    char *tail = join_lines (json_object_get (rank, "stderr_tail"));
    struct advice_in in = {
        .exit_status =
            json_is_integer (status) ? (int)json_integer_value (status) : -1,
        .signal = (int)json_integer_value (json_object_get (rank, "signal")),
        .oom = json_is_true (json_object_get (rank, "out_of_memory")),
        .told_to_end =
            !rank || json_is_true (json_object_get (rank, "told_to_end")),
        .tail = tail,
        .slurm = slurm,
    };
    const struct advice *advice = advice_for (&in);

    free (tail);
    return advice;
}

/* The one that it uses, as far as can be told: the only one, or that of its
 * local rank. */
static json_t *device_of (const json_t *rank)
{
    const char *all = json_string_value (json_object_get (rank, "devices"));
    json_int_t local =
        json_integer_value (json_object_get (rank, "local_rank"));
    const char *p = all;

    if (!all || !*all)
        return json_null ();
    if (!strchr (all, ','))
        return json_string (all);
    for (; p && local > 0; local--)
        p = (p = strchr (p, ',')) ? p + 1 : NULL;
    return p && *p ? json_stringn (p, strcspn (p, ",")) : json_null ();
}

static void copy (json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get (from, key);

    json_object_set (to, key, value ? value : json_null ());
}

static void set_list (json_t *to, const char *key, json_t *list)
{
    if (list)
        json_object_set (to, key, list);
    else
        json_object_set_new (to, key, json_array ());
}

/* What can be said of a rank that left no report. */
static void set_silent (json_t *j, const struct diagnose_in *in)
{
    char node[128];

    diagnose_node (in->slurm ? in->slurm : "", (uint32_t)in->silent_rank, node,
                   sizeof (node));
    json_object_set_new (j, "rank", json_integer (in->silent_rank));
    if (*node)
        json_object_set_new (j, "node", json_string (node));
}

/* No rank was first: the node is to blame. */
static void set_lost_node (json_t *j, const struct diagnose_in *in)
{
    char node[128];

    diagnose_lost_node (in->slurm, node, sizeof (node));
    if (*node)
        json_object_set_new (j, "node", json_string (node));
}

static void set_rank (json_t *j, const struct diagnose_in *in)
{
    static const char *const key[] = {
        "rank",   "node",        "local_rank",    "devices",    "exit_status",
        "signal", "signal_name", "out_of_memory", "started_at", "ended_at"};
    json_t *tail = json_object_get (in->rank, "stderr_tail");

    for (size_t i = 0; i < sizeof (key) / sizeof (*key); i++)
        copy (j, in->rank, key[i]);
    json_object_set_new (j, "device", device_of (in->rank));
    json_object_set_new (j, "after_s",
                         in->rank ? json_real (report_seconds (in->rank))
                                  : json_null ());
    set_list (j, "stderr_tail", tail);
}

json_t *diagnose (const struct diagnose_in *in)
{
    const struct advice *advice =
        in->kind ? advice_of (in->kind) : diagnose_advice (in->rank, in->slurm);
    json_t *j = json_object ();

    json_object_set_new (j, "schema", json_string ("rv.failure/1"));
    json_object_set_new (j, "job_id", json_integer (in->job_id));
    json_object_set_new (j, "restart", json_integer (in->restart));
    json_object_set_new (j, "message", json_string (in->message));
    json_object_set_new (j, "kind",
                         advice ? json_string (advice->kind) : json_null ());
    json_object_set_new (j, "advice",
                         advice ? json_string (advice->text) : json_null ());
    set_rank (j, in);
    if (in->silent_rank >= 0)
        set_silent (j, in);
    else if (!in->rank)
        set_lost_node (j, in);
    json_object_set_new (j, "ranks",
                         in->ranks ? json_integer (in->ranks) : json_null ());
    set_list (j, "well", in->well);
    set_list (j, "failed", in->failed);
    set_list (j, "silent", in->silent);
    return j;
}

void diagnose_say (const json_t *failure)
{
    char *text = failure_lines (failure, true);

    if (text && write (STDERR_FILENO, text, strlen (text)) < 0) {
        /* nobody listens; the file and the status still tell */
    }
    free (text);
}

void diagnose_node (const char *slurm, uint32_t rank, char *ret, size_t size)
{
    char node[128];
    unsigned task;

    ret[0] = '\0';
    for (; *slurm; slurm += *slurm == '\n') {
        if (sscanf (slurm, "srun: error: %127[^: \n]: task %9u: ", node, &task)
                == 2
            && task == rank) {
            snprintf (ret, size, "%s", node);
            return;
        }
        slurm += strcspn (slurm, "\n");
    }
}

void diagnose_lost_node (const char *slurm, char *ret, size_t size)
{
    static const char word[] = "srun: error: Node failure on ";
    const char *at = slurm ? strstr (slurm, word) : NULL;

    at = at ? at + strlen (word) : "";
    snprintf (ret, size, "%.*s", (int)strcspn (at, " \n"), at);
}
