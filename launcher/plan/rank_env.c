/* SPDX-License-Identifier: Apache-2.0
 * rank_env.c - the variables of one rank, from the facts of its step */
#include "plan/rank_env.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NCCL_TIMEOUT_DEFAULT_S 600
#define TORCH_HEARTBEAT_MIN_S  480 /* PyTorch's own default */

/* RV_SET: the rank for which the variables were written, and those written
 * only because they were unset, with their values. */
#define SET_MAX 192

struct writer {
    rank_env_get_f get;
    rank_env_set_f set;
    void *arg;
    bool stale;           /* what stands is of another step */
    bool other_job;       /* ... and even of another job */
    bool other_rank;      /* ... or of another rank of this step */
    char before[SET_MAX]; /* RV_SET as found, "" = unset */
    char after[SET_MAX];  /* RV_SET to write */
    int rc; /* first failure of [set]; nothing is written after it */
};

static bool is_set (struct writer *w, const char *name)
{
    return w->get (w->arg, name) != NULL;
}

static void put_text (struct writer *w, const char *name, const char *value)
{
    if (w->rc == 0)
        w->rc = w->set (w->arg, name, value);
}

static void put_number (struct writer *w, const char *name, int64_t value)
{
    char text[24];

    snprintf (text, sizeof (text), "%" PRId64, value);
    put_text (w, name, text);
}

/* A variable of the rank: written where unset or stale. */
static void put_rank (struct writer *w, const char *name, uint32_t value)
{
    if (w->stale || w->other_rank || !is_set (w, name))
        put_number (w, name, value);
}

static void note (struct writer *w, const char *name, const char *value)
{
    size_t n = strlen (w->after), more = strlen (name) + strlen (value) + 2;

    if (n + more < sizeof (w->after))
        snprintf (w->after + n, sizeof (w->after) - n, "%s%s=%s", n ? " " : "",
                  name, value);
}

bool rank_env_is_ours (const char *set, const char *name, const char *value)
{
    size_t n = strlen (name), v = value ? strlen (value) : 0;
    const char *p = value ? set : NULL;

    while (p && *p) {
        if (strncmp (p, name, n) == 0 && p[n] == '='
            && strncmp (p + n + 1, value, v) == 0
            && (p[n + 1 + v] == '\0' || p[n + 1 + v] == ' '))
            return true;
        p += strcspn (p, " ");
        p += *p == ' ';
    }
    return false;
}

static bool is_ours (struct writer *w, const char *name)
{
    return rank_env_is_ours (w->before, name, w->get (w->arg, name));
}

/* keep - one that is ours stays, and marked; of another job it goes. */
static void keep (struct writer *w, const char *name)
{
    if (!is_ours (w, name))
        return;
    if (w->other_job)
        put_text (w, name, NULL);
    else
        note (w, name, w->get (w->arg, name));
}

static void put_ours (struct writer *w, const char *name, int64_t value)
{
    char text[24];

    snprintf (text, sizeof (text), "%" PRId64, value);
    put_text (w, name, text);
    note (w, name, text);
}

/* A value that the user may give: written where unset, or where it is ours
 * and [renew]. What is ours stays marked. */
static void put_default (struct writer *w, const char *name, int64_t value,
                         bool renew)
{
    if (!is_set (w, name) || (renew && is_ours (w, name)))
        put_ours (w, name, value);
    else
        keep (w, name);
}

static void put_ranks (struct writer *w, const struct rank_env_in *in)
{
    put_rank (w, "RANK", in->rank);
    put_rank (w, "WORLD_SIZE", in->world_size);
    put_rank (w, "LOCAL_RANK", in->one_device ? 0 : in->local_rank);
    put_rank (w, "LOCAL_WORLD_SIZE", in->local_size);
    put_rank (w, "NODE_RANK", in->node_rank);
    put_rank (w, "GROUP_RANK", in->node_rank);
}

/* Does MASTER_PORT hold what the formula gives, and so what we wrote? */
static bool is_formula_port (struct writer *w, const struct rank_env_in *in)
{
    const char *value = w->get (w->arg, "MASTER_PORT");
    char text[8];

    snprintf (text, sizeof (text), "%u",
              (unsigned)rank_env_formula_port (in->job_id, in->step_id));
    return value && strcmp (value, text) == 0;
}

static void put_master (struct writer *w, const struct rank_env_in *in,
                        bool same_step)
{
    bool ours = w->stale || (same_step && is_formula_port (w, in));

    if (in->master_addr && (ours || !is_set (w, "MASTER_ADDR")))
        put_text (w, "MASTER_ADDR", in->master_addr);
    if (in->master_port && (ours || !is_set (w, "MASTER_PORT")))
        put_number (w, "MASTER_PORT", in->master_port);
}

static void put_threads (struct writer *w, const struct rank_env_in *in)
{
    uint32_t threads = in->cpus / (in->local_size ? in->local_size : 1);

    if (in->cpus > 0)
        put_default (w, "OMP_NUM_THREADS", threads ? threads : 1,
                     w->stale || w->other_rank || in->renew_threads);
    else
        keep (w, "OMP_NUM_THREADS");
}

/* Without a deadline of its own a step has that of the step that started it,
 * in one job. */
static void put_timeouts (struct writer *w, int64_t t)
{
    if (t > 0) {
        put_ours (w, "RV_NCCL_TIMEOUT", t);
        put_default (w, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                     t > TORCH_HEARTBEAT_MIN_S ? t : TORCH_HEARTBEAT_MIN_S,
                     true);
        put_default (w, "DEEPSPEED_TIMEOUT", t / 60 + (t % 60 != 0), true);
        return;
    }
    keep (w, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC");
    keep (w, "DEEPSPEED_TIMEOUT");
    if (is_set (w, "NCCL_TIMEOUT"))
        keep (w, "RV_NCCL_TIMEOUT");
    else
        put_default (w, "RV_NCCL_TIMEOUT", NCCL_TIMEOUT_DEFAULT_S,
                     w->other_job);
}

/* look_back - whose are the variables that stand? Returns whether they are
 * of this very step. */
static bool look_back (struct writer *w, const struct rank_env_in *in)
{
    const char *step = w->get (w->arg, "RV_STEP");
    char here[24], job[16], rank[16];
    bool same, same_job;

    snprintf (here, sizeof (here), "%" PRIu32 ".%" PRIu32, in->job_id,
              in->step_id);
    snprintf (job, sizeof (job), "%" PRIu32 ".", in->job_id);
    snprintf (rank, sizeof (rank), "%" PRIu32, in->rank);
    same = step && strcmp (step, here) == 0;
    same_job = step && strncmp (step, job, strlen (job)) == 0;
    w->stale = step && !same;
    w->other_job = step && !same_job;
    step = w->get (w->arg, "RV_SET");
    snprintf (w->before, sizeof (w->before), "%s", step ? step : "");
    note (w, "RANK", rank);
    /* A plugin that starts a container may give all tasks of a node the
     * environment of one. */
    w->other_rank =
        same && w->before[0] && !rank_env_is_ours (w->before, "RANK", rank);
    return same;
}

int rank_env (const struct rank_env_in *in, rank_env_get_f get,
              rank_env_set_f set, void *arg)
{
    struct writer w = {.get = get, .set = set, .arg = arg};
    char step[24];
    bool same = look_back (&w, in);

    snprintf (step, sizeof (step), "%" PRIu32 ".%" PRIu32, in->job_id,
              in->step_id);
    /* With RV_STEP renewed it would pass for this step's. */
    if (w.stale && is_set (&w, "RV_BOOT"))
        put_text (&w, "RV_BOOT", NULL);
    put_ranks (&w, in);
    put_master (&w, in, same);
    put_threads (&w, in);
    put_timeouts (&w, in->nccl_timeout_s);
    put_text (&w, "RV_SET", w.after);
    put_text (&w, "RV_STEP", step);
    return w.rc;
}

uint16_t rank_env_formula_port (uint32_t job_id, uint32_t step_id)
{
    uint64_t sum = 31 * (uint64_t)job_id + step_id;

    return (uint16_t)(20000 + sum % 12000);
}

int rank_env_visible (const char *cuda_visible_devices)
{
    const char *p = cuda_visible_devices;
    int n = 0;

    if (!p)
        return -1;
    if (strcasecmp (p, "NoDevFiles") == 0)
        return 0;
    while (*p && *p != ',' && *p != '-') {
        n++;
        p += strcspn (p, ",");
        if (*p == ',')
            p++;
    }
    return n;
}
