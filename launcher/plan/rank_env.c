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

struct writer {
    rank_env_get_f get;
    rank_env_set_f set;
    void *arg;
    bool stale; /* the variables that stand are of another step */
    int rc;     /* first failure of [set]; nothing is written after it */
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
    if (w->stale || !is_set (w, name))
        put_number (w, name, value);
}

static void put_if_unset (struct writer *w, const char *name, int64_t value)
{
    if (!is_set (w, name))
        put_number (w, name, value);
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
        put_if_unset (w, "OMP_NUM_THREADS", threads ? threads : 1);
}

static void put_timeouts (struct writer *w, int64_t t)
{
    if (t > 0) {
        put_number (w, "RV_NCCL_TIMEOUT", t);
        put_if_unset (w, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                      t > TORCH_HEARTBEAT_MIN_S ? t : TORCH_HEARTBEAT_MIN_S);
        put_if_unset (w, "DEEPSPEED_TIMEOUT", t / 60 + (t % 60 != 0));
    } else if (!is_set (w, "NCCL_TIMEOUT")) {
        put_if_unset (w, "RV_NCCL_TIMEOUT", NCCL_TIMEOUT_DEFAULT_S);
    }
}

int rank_env (const struct rank_env_in *in, rank_env_get_f get,
              rank_env_set_f set, void *arg)
{
    struct writer w = {.get = get, .set = set, .arg = arg};
    const char *before;
    char step[24];
    bool same;

    snprintf (step, sizeof (step), "%" PRIu32 ".%" PRIu32, in->job_id,
              in->step_id);
    before = get (arg, "RV_STEP");
    same = before && strcmp (before, step) == 0;
    w.stale = before && !same;
    /* With RV_STEP renewed it would pass for this step's. */
    if (w.stale && is_set (&w, "RV_BOOT"))
        put_text (&w, "RV_BOOT", NULL);
    put_ranks (&w, in);
    put_master (&w, in, same);
    put_threads (&w, in);
    put_timeouts (&w, in->nccl_timeout_s);
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
