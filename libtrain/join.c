/* SPDX-License-Identifier: Apache-2.0
 * join.c - find the ranks of a group, by variables or through librvjob */
#include "join.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "home.h"
#include "layout.h"
#include "meet.h"
#include "sock.h"

#define MAX_SIZE    65536
#define DEFAULT_S   600
#define AGENT_PORTS 8 /* tried above MASTER_PORT under torchrun */

/* What the variables say; the others must fit to it. */
struct vars {
    int rank, size, local_rank, local_size;
    int node; /* NODE_RANK or GROUP_RANK, or -1 */
    const char *host;
    int port;
};

static const char *get (const char *name)
{
    const char *value = getenv (name);

    return value && *value ? value : NULL;
}

static train_status_t get_int (const char *name, long min, long max, int *ret,
                               train_error_t *err)
{
    const char *text = get (name);
    char *end;
    long value;

    errno = 0;
    value = text ? strtol (text, &end, 10) : 0;
    if (!text || errno || *end || value < min || value > max)
        return err_set (err, TRAIN_EFORMAT,
                        "%s='%s' is not a whole number from %ld to %ld", name,
                        text ? text : "", min, max);
    *ret = (int)value;
    return TRAIN_OK;
}

/* RV_STEP stands beside every RANK that rv sets: in a shell under another step
 * both are left over. */
static bool is_stale (void)
{
    const char *set = get ("RV_STEP"), *job = get ("SLURM_JOB_ID");
    const char *step = get ("SLURM_STEP_ID");
    char now[64];

    if (!set || !job || !step)
        return false;
    snprintf (now, sizeof (now), "%s.%s", job, step);
    return strcmp (set, now) != 0;
}

static bool have_vars (void)
{
    static const char *const need[] = {
        "RANK",        "WORLD_SIZE",  "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "MASTER_ADDR", "MASTER_PORT",
    };

    for (size_t i = 0; i < sizeof (need) / sizeof (*need); i++) {
        if (!get (need[i]))
            return false;
    }
    return !is_stale ();
}

static train_status_t read_vars (struct vars *v, train_error_t *err)
{
    const char *node = get ("NODE_RANK") ? "NODE_RANK" : "GROUP_RANK";
    train_status_t status = get_int ("WORLD_SIZE", 1, MAX_SIZE, &v->size, err);

    if (status == TRAIN_OK)
        status = get_int ("RANK", 0, v->size - 1, &v->rank, err);
    if (status == TRAIN_OK)
        status = get_int ("LOCAL_WORLD_SIZE", 1, v->size, &v->local_size, err);
    if (status == TRAIN_OK)
        status =
            get_int ("LOCAL_RANK", 0, v->local_size - 1, &v->local_rank, err);
    if (status == TRAIN_OK)
        status = get_int ("MASTER_PORT", 1, 65535, &v->port, err);
    v->node = -1;
    if (status == TRAIN_OK && get (node))
        status = get_int (node, 0, MAX_SIZE, &v->node, err);
    v->host = get ("MASTER_ADDR");
    return status;
}

/* As rv_job_timeout_ms, for those who have no handle of librvjob:
 * NCCL_TIMEOUT is anybody's, so a strange value there is passed over. */
static train_status_t read_timeout (int64_t *ret_ms, train_error_t *err)
{
    int seconds = DEFAULT_S;
    train_status_t status = TRAIN_OK;

    if (get ("RV_NCCL_TIMEOUT"))
        status = get_int ("RV_NCCL_TIMEOUT", 1, INT_MAX, &seconds, err);
    else
        (void)get_int ("NCCL_TIMEOUT", 1, INT_MAX, &seconds, NULL);
    *ret_ms = (int64_t)seconds * 1000;
    return status;
}

/* Not a secret: it keeps ranks of another job, step or group out. */
uint64_t join_token (const char *name, int size)
{
    const char *step = get ("RV_STEP"), *run = get ("TORCHELASTIC_RUN_ID");
    char text[512];
    int n = snprintf (text, sizeof (text), "%s|%s|%d|%s", step ? step : "",
                      run ? run : "", size, name);

    return XXH3_64bits (text,
                        (size_t)n < sizeof (text) ? (size_t)n : sizeof (text));
}

static train_status_t open_meet (struct join *join, const struct vars *v,
                                 train_error_t *err)
{
    const char *agent = get ("TORCHELASTIC_USE_AGENT_STORE");
    bool taken = agent && strcmp (agent, "True") == 0;
    struct meet_place place = {
        .called = "MASTER_ADDR ",
        .hosts = v->host,
        .port = (uint16_t)(v->port + (taken ? 1 : 0)),
        .n_ports = taken ? AGENT_PORTS : 1,
        .token = join_token (join->name, v->size),
    };

    if (v->port > 65535 - AGENT_PORTS && taken)
        return err_set (err, TRAIN_EINVAL,
                        "MASTER_PORT %d leaves no port above it", v->port);
    return meet_open (&join->meet, &place, join->rank, join->size,
                      join->deadline_ms, err);
}

static train_status_t open_by_vars (struct join *join, struct layout_in *mine,
                                    int64_t timeout_ms, train_error_t *err)
{
    struct vars v;
    train_status_t status = read_vars (&v, err);

    if (status == TRAIN_OK)
        status = read_timeout (&join->timeout_ms, err);
    if (status != TRAIN_OK)
        return status;
    join->rank = v.rank;
    join->size = v.size;
    join->deadline_ms =
        clock_ms () + (timeout_ms ? timeout_ms : join->timeout_ms);
    /* without a number of the node: ranks of a node follow each other */
    mine->key = v.node >= 0 ? v.node : v.rank - v.local_rank;
    mine->local_size = v.local_size;
    return v.size > 1 ? open_meet (join, &v, err) : TRAIN_OK;
}

static train_status_t job_error (const rv_job_error_t *why, train_error_t *err)
{
    return err_set (err, (train_status_t)why->code, "%s", why->text);
}

static train_status_t open_by_job (struct join *join, struct layout_in *mine,
                                   int64_t timeout_ms, train_error_t *err)
{
    rv_job_error_t why;
    const char *size = get ("WORLD_SIZE");

    if (rv_job_init (NULL, &join->job, &why) != RV_JOB_OK)
        return job_error (&why, err);
    join->rank = (int)rv_job_rank (join->job);
    join->size = (int)rv_job_size (join->job);
    join->timeout_ms = rv_job_timeout_ms (join->job);
    join->deadline_ms =
        clock_ms () + (timeout_ms ? timeout_ms : join->timeout_ms);
    mine->key = (int32_t)rv_job_node (join->job);
    mine->local_size = (int32_t)rv_job_local_size (join->job);
    /* never train alone by mistake where four were meant */
    if (join->size == 1 && size && strcmp (size, "1") != 0 && !is_stale ()
        && strcmp (rv_job_boot (join->job), "single") == 0)
        return err_set (err, TRAIN_EINVAL,
                        "WORLD_SIZE=%s, but not all of RANK, LOCAL_RANK, "
                        "LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set",
                        size);
    return TRAIN_OK;
}

train_status_t join_open (struct join *ret, const char *name,
                          int64_t timeout_ms, train_error_t *err)
{
    struct layout_in mine = {0};
    train_status_t status;

    *ret = (struct join){.name = name};
    if (have_vars ())
        status = open_by_vars (ret, &mine, timeout_ms, err);
    else if (home_is_made ())
        status = home_open (ret, &mine, timeout_ms, err);
    else
        status = open_by_job (ret, &mine, timeout_ms, err);
    if (status == TRAIN_OK) {
        struct layout_in *all = calloc ((size_t)ret->size, sizeof (*all));

        ret->node_of = calloc ((size_t)ret->size, sizeof (*ret->node_of));
        if (!all || !ret->node_of)
            status = err_set (err, TRAIN_ENOMEM, "no memory for %d ranks",
                              ret->size);
        if (status == TRAIN_OK)
            status = join_exchange (ret, all, &mine, sizeof (mine), err);
        if (status == TRAIN_OK)
            status =
                layout_nodes (all, ret->size, ret->node_of, &ret->nodes, err);
        free (all);
    }
    if (status == TRAIN_OK && ret->size > 1 && join_is_pmix (ret))
        status = home_make (ret, &mine, err);
    if (status != TRAIN_OK) {
        home_forget ();
        return err_prefix (err, status, "group '%s'", name);
    }
    layout_local (ret->node_of, ret->size, ret->rank, &ret->local_rank,
                  &ret->local_size);
    ret->node = ret->node_of[ret->rank];
    return TRAIN_OK;
}

/* PMIx keeps what was put for the life of the step, so every exchange of a
 * process needs a key of its own; ranks create their groups in one order. */
static unsigned next_key (void)
{
    static atomic_uint n;

    return atomic_fetch_add (&n, 1);
}

static train_status_t exchange_by_job (struct join *join, char *all,
                                       const void *mine, size_t len,
                                       train_error_t *err)
{
    int64_t left_ms = join->deadline_ms - clock_ms ();
    rv_job_error_t why;
    char key[32];

    snprintf (key, sizeof (key), "train.%u", next_key ());
    if (rv_job_put (join->job, key, mine, len, &why) != RV_JOB_OK
        || rv_job_fence (join->job, left_ms > 1 ? left_ms : 1, &why)
               != RV_JOB_OK)
        return job_error (&why, err);
    for (int r = 0; r < join->size; r++) {
        size_t got = 0;

        if (rv_job_get (join->job, (uint32_t)r, key, all + (size_t)r * len, len,
                        &got, &why)
            != RV_JOB_OK)
            return job_error (&why, err);
        if (got != len)
            return err_set (err, TRAIN_EMISMATCH,
                            "rank %d exchanges %zu bytes, rank %d %zu: not the "
                            "same program or version",
                            r, got, join->rank, len);
    }
    return TRAIN_OK;
}

train_status_t join_exchange (struct join *join, void *all, const void *mine,
                              size_t len, train_error_t *err)
{
    if (len == 0 || len > JOIN_EXCHANGE_MAX)
        return err_set (err, TRAIN_EINVAL, "exchange of %zu bytes", len);
    if (join->exchange)
        return join->exchange (join, all, mine, len, err);
    if (join->size == 1) {
        memcpy (all, mine, len);
        return TRAIN_OK;
    }
    if (join->meet)
        return meet_exchange (join->meet, all, mine, len, join->deadline_ms,
                              err);
    return exchange_by_job (join, all, mine, len, err);
}

static train_status_t any_failed (char *cards, size_t len, int size,
                                  train_error_t *err)
{
    const struct join_word *worst = NULL;
    int who = 0;

    for (int r = 0; r < size; r++) {
        struct join_word *word = (struct join_word *)(cards + (size_t)r * len);

        word->text[sizeof (word->text) - 1] = '\0';
        if (word->code != TRAIN_OK
            && (!worst
                || (worst->code == TRAIN_ETIMEDOUT
                    && word->code != TRAIN_ETIMEDOUT))) {
            worst = word;
            who = r;
        }
    }
    if (!worst)
        return TRAIN_OK;
    return err_set (err, (train_status_t)worst->code, "rank %d: %s", who,
                    worst->text);
}

train_status_t join_tell (struct join *join, void *cards,
                          struct join_word *mine, size_t len,
                          train_status_t status, const train_error_t *why,
                          train_error_t *err)
{
    mine->code = (int32_t)status;
    if (status != TRAIN_OK)
        snprintf (mine->text, sizeof (mine->text), "%.*s",
                  (int)sizeof (mine->text) - 1, why->text);
    TRY (join_exchange (join, cards, mine, len, err));
    return any_failed (cards, len, join->size, err);
}

train_status_t join_address (struct join *join, char *text, size_t size,
                             train_error_t *err)
{
    rv_job_error_t why;

    if (join->address)
        snprintf (text, size, "%s", join->address);
    else if (join->meet)
        snprintf (text, size, "%s", meet_host (join->meet));
    else if (rv_job_address (join->job, text, size, &why) != RV_JOB_OK)
        return job_error (&why, err);
    return TRAIN_OK;
}

static atomic_bool pmix_ended;

bool join_ended_pmix (void)
{
    return pmix_ended;
}

bool join_is_pmix (const struct join *join)
{
    return join->job && strcmp (rv_job_boot (join->job), "pmix") == 0;
}

void join_close (struct join *join)
{
    if (join_is_pmix (join))
        pmix_ended = true;
    meet_close (join->meet);
    rv_job_finalize (join->job);
    free (join->node_of);
    join->meet = NULL;
    join->job = NULL;
    join->node_of = NULL;
}
