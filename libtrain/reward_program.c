/* SPDX-License-Identifier: Apache-2.0
 * reward_program.c - the reward that a program gives */
#include "reward_pool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "err.h"

#define PROCESSES_MAX 256
#define TIMEOUT_MS    10000
#define START_MS      60000
#define MAX_FAULTS    100

extern char **environ;

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a program");
}

/* One word of a command line into [to]: '...' as it stands, "..." and \ as a
 * shell has them, without variables. Returns what is behind it, NULL: a quote
 * is open. */
static const char *word (const char *p, char *to)
{
    char quote = 0;

    for (; *p && (quote || (*p != ' ' && *p != '\t')); p++) {
        if (*p == quote)
            quote = 0;
        else if (!quote && (*p == '\'' || *p == '"'))
            quote = *p;
        else if (*p == '\\' && quote != '\'' && p[1])
            *to++ = *++p;
        else
            *to++ = *p;
    }
    *to = '\0';
    return quote ? NULL : p;
}

static void free_words (char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free (list[i]);
    free (list);
}

static train_status_t split (const char *name, const char *command, char ***ret,
                             train_error_t *err)
{
    size_t most = strlen (command) / 2 + 2, n = 0;
    const char *p = command + strspn (command, " \t");

    if (!*p)
        return err_set (err, TRAIN_EINVAL, "%s: program is not set", name);
    if (!(*ret = calloc (most, sizeof (**ret))))
        return no_memory (err);
    while (*p) {
        if (!((*ret)[n] = malloc (strlen (p) + 1)))
            return no_memory (err);
        if (!(p = word (p, (*ret)[n++])))
            return err_set (err, TRAIN_EINVAL,
                            "%s: program %s: a quote is not closed", name,
                            command);
        p += strspn (p, " \t");
    }
    return TRAIN_OK;
}

/* A Python program that forgets to flush would hang. */
static train_status_t environment (char ***ret, train_error_t *err)
{
    size_t n = 0;

    while (environ && environ[n])
        n++;
    if (!(*ret = calloc (n + 2, sizeof (**ret))))
        return no_memory (err);
    for (size_t i = 0; i < n; i++)
        if (!((*ret)[i] = strdup (environ[i])))
            return no_memory (err);
    if (!getenv ("PYTHONUNBUFFERED")
        && !((*ret)[n] = strdup ("PYTHONUNBUFFERED=1")))
        return no_memory (err);
    return TRAIN_OK;
}

static train_status_t check (const train_reward_t *r,
                             const train_reward_options_t *o,
                             train_error_t *err)
{
    if (o->processes < 0 || o->processes > PROCESSES_MAX)
        return err_set (err, TRAIN_EINVAL,
                        "%s: processes %d is not within 1 and %d", r->name,
                        o->processes, PROCESSES_MAX);
    if (o->timeout_ms < 0 || o->start_ms < 0 || o->max_faults < 0)
        return err_set (err, TRAIN_EINVAL,
                        "%s: a time limit or max_faults is below 0", r->name);
    return TRAIN_OK;
}

static train_status_t open_program (train_reward_t *r,
                                    const train_reward_options_t *o,
                                    train_error_t *err)
{
    train_status_t status;
    struct pool *p;

    TRY (check (r, o, err));
    if (!(p = r->pool = calloc (1, sizeof (*p))))
        return no_memory (err);
    TRY (split (r->name, o->program ? o->program : "", &p->argv, err));
    TRY (environment (&p->envp, err));
    p->timeout_s = (double)(o->timeout_ms ? o->timeout_ms : TIMEOUT_MS) / 1000;
    p->start_s = (double)(o->start_ms ? o->start_ms : START_MS) / 1000;
    p->max_faults = o->max_faults ? o->max_faults : MAX_FAULTS;
    p->ends = o->ends;
    p->ends_arg = o->ends_arg;
    p->n = o->processes ? o->processes : 1;
    if (!(p->slot = calloc ((size_t)p->n, sizeof (*p->slot)))) {
        p->n = 0;
        return no_memory (err);
    }
    for (int i = 0; i < p->n; i++)
        p->slot[i] = (struct slot){.proc = {0, -1, -1}, .sample = -1};
    status = o->later ? proc_look (p->argv[0], err) : pool_start (p, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s", r->name);
    r->report.started = o->later ? 0 : p->n;
    return TRAIN_OK;
}

static train_status_t score_program (train_reward_t *r,
                                     const struct reward_view *view, int n,
                                     float *ret, train_error_t *err)
{
    train_status_t status = pool_score (r->pool, view, n, ret, &r->report, err);

    return status == TRAIN_OK ? TRAIN_OK
                              : err_prefix (err, status, "%s", r->name);
}

static void close_program (train_reward_t *r)
{
    struct pool *p = r->pool;

    if (!p)
        return;
    pool_stop (p);
    free_words (p->argv);
    free_words (p->envp);
    free (p->slot);
    free (p);
}

const struct reward_ops reward_program = {open_program, score_program,
                                          close_program};

const char *train_reward_fault (const train_reward_t *r)
{
    return r && r->pool && *r->pool->fault ? r->pool->fault : NULL;
}
