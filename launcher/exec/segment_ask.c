/* SPDX-License-Identifier: Apache-2.0
 * segment_ask.c - ask slurmctld about the own job, by a child */
#include "config.h"

#include "exec/segment_ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/timefmt.h"
#include "proc.h"
#include "where.h"

#define ASK_MS   20000
#define CHAIN_MS 150000

static const char *text_of (const json_t *j, const char *key)
{
    const char *text = json_string_value (json_object_get (j, key));

    return text ? text : "";
}

static enum segment_said said_of (const char *state)
{
    static const struct {
        const char *name;
        enum segment_said said;
    } table[] = {
        {"PENDING", SAID_PENDING},     {"RUNNING", SAID_RUNNING},
        {"SUSPENDED", SAID_RUNNING},   {"CANCELLED", SAID_CANCELLED},
        {"DEADLINE", SAID_CANCELLED},  {"TIMEOUT", SAID_TIMEOUT},
        {"PREEMPTED", SAID_PREEMPTED}, {"NODE_FAIL", SAID_NODE_FAIL},
    };

    for (size_t i = 0; i < sizeof (table) / sizeof (table[0]); i++)
        if (!strcmp (table[i].name, state))
            return table[i].said;
    return SAID_OVER;
}

static bool done_of (const char *text, enum segment_done *ret)
{
    static const char *const name[] = {
        [DONE_ASKED] = "asked",
        [DONE_REQUEUED] = "requeued",
        [DONE_NOT_EXCLUDED] = "requeued, but not excluded",
        [DONE_PENDING] = "pending",
        [DONE_STOPPED] = "stopped",
        [DONE_FORBIDDEN] = "forbidden",
        [DONE_CHAINED] = "chained",
        [DONE_COMMENTED] = "commented",
    };

    for (size_t i = 0; i < sizeof (name) / sizeof (name[0]); i++)
        if (!strcmp (name[i], text)) {
            *ret = (enum segment_done)i;
            return true;
        }
    return false;
}

int segment_answer_read (const json_t *j, uint32_t restart,
                         struct segment_answer *ret, struct rv_error *err)
{
    struct segment_answer a = {
        .said = said_of (text_of (j, "state")),
        .completing = json_is_true (json_object_get (j, "completing")),
        .preempting = json_is_true (json_object_get (j, "preempting")),
        .may_requeue = json_is_true (json_object_get (j, "may_requeue")),
        .job_id = (uint32_t)json_integer_value (json_object_get (j, "job_id")),
    };
    struct timespec end;

    if (strcmp (text_of (j, "schema"), "rv.segment/1")
        || !done_of (text_of (j, "done"), &a.done))
        return error_set (err, RV_EFORMAT, "'rv segment' gave no answer");
    if (timefmt_parse (text_of (j, "end_time"), &end, NULL) == RV_OK)
        a.end_time = end.tv_sec;
    /* Put back, and started anew already. */
    if (json_integer_value (json_object_get (j, "restarts")) > restart)
        a.said = SAID_PENDING;
    *ret = a;
    return RV_OK;
}

/* rv's one line, without its end. */
static int failed (struct proc_result *r, struct rv_error *err)
{
    r->err[strcspn (r->err, "\n")] = '\0';
    return error_set (err, r->status == 4 ? RV_ENOTFOUND : RV_EIO, "%.300s",
                      *r->err ? r->err : "'rv segment' failed");
}

static int call (char *words[], int deadline_ms, uint32_t restart,
                 struct segment_answer *ret, struct rv_error *err)
{
    struct proc_opts opts = {.deadline_ms = deadline_ms};
    struct proc_result r;
    json_t *j;
    int rc;

    if ((rc = where_program ("rv", &words[0], err)))
        return rc;
    rc = proc_run (words, &opts, &r, err);
    free (words[0]);
    if (rc)
        return rc;
    if (r.status)
        rc = failed (&r, err);
    else {
        j = json_loads (r.out, 0, NULL);
        rc = segment_answer_read (j, restart, ret, err);
        json_decref (j);
    }
    proc_result_fini (&r);
    return rc;
}

int segment_ask (uint32_t job_id, uint32_t restart, struct segment_answer *ret,
                 struct rv_error *err)
{
    char id[16];
    char *words[] = {NULL, "segment", "ask", id, NULL};
    int rc;

    snprintf (id, sizeof (id), "%u", job_id);
    rc = call (words, ASK_MS, restart, ret, err);
    if (rc != RV_ENOTFOUND)
        return rc;
    *ret = (struct segment_answer){.said = SAID_UNKNOWN};
    return RV_OK;
}

int segment_requeue (uint32_t job_id, uint32_t restart, const char *exclude,
                     struct segment_answer *ret, struct rv_error *err)
{
    char id[16];
    char *words[] = {NULL, "segment", "requeue", id, (char *)exclude, NULL};

    snprintf (id, sizeof (id), "%u", job_id);
    return call (words, ASK_MS, restart, ret, err);
}

int segment_chain (const char *dir, uint32_t job_id, uint32_t first,
                   struct segment_answer *ret, struct rv_error *err)
{
    const char *array = getenv ("SLURM_ARRAY_JOB_ID");
    char *task = getenv ("SLURM_ARRAY_TASK_ID");
    char id[16], head[16], submitted[16];
    char *words[] = {NULL, "segment", "chain",   (char *)dir,
                     id,   head,      submitted, array ? task : NULL,
                     NULL};

    snprintf (id, sizeof (id), "%u", job_id);
    snprintf (head, sizeof (head), "%u", first);
    snprintf (submitted, sizeof (submitted), "%.15s", array ? array : id);
    return call (words, CHAIN_MS, 0, ret, err);
}

int segment_comment (uint32_t job_id, const char *text, struct rv_error *err)
{
    struct segment_answer a;
    char id[16];
    char *words[] = {NULL, "segment", "comment", id, (char *)text, NULL};

    snprintf (id, sizeof (id), "%u", job_id);
    return call (words, ASK_MS, 0, &a, err);
}
