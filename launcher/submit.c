/* SPDX-License-Identifier: Apache-2.0
 * submit.c - the sbatch(1) call of a plan */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "submit.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobfile.h"
#include "plan/duration.h"
#include "plan/fsio.h"
#include "proc.h"

#define WORDS_MAX 128
#define SUBMIT_MS 120000 /* a busy controller may take its time */

struct words {
    char *word[WORDS_MAX + 1];
    size_t n;
    bool failed;
};

static void add (struct words *w, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));
static void add (struct words *w, const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    if (w->n == WORDS_MAX || vasprintf (&w->word[w->n], fmt, ap) < 0) {
        w->word[w->n] = NULL;
        w->failed = true;
    } else {
        w->n++;
    }
    va_end (ap);
}

static void add_log (struct words *w, const char *option,
                     const struct request *req, const char *end)
{
    char *dir = jobfile_pattern (req->log_dir);

    if (dir)
        add (w, "%s=%s/%s-%%j.batch.%s", option, dir, req->name, end);
    else
        w->failed = true;
    free (dir);
}

/* What the plan has found. */
static void add_plan (struct words *w, const struct strategy_plan *plan)
{
    char time[32];

    add (w, "--partition=%s", plan->partition);
    add (w, "--nodes=%u", plan->nodes);
    add (w, "--ntasks-per-node=%u", plan->tasks_per_node);
    add (w, "--cpus-per-task=%u", plan->cpus_per_task);
    if (plan->gpus_per_node)
        add (w, "--gres=gpu:%s%s%u", plan->type, plan->type[0] ? ":" : "",
             plan->gpus_per_node);
    if (plan->mem_mb)
        add (w, "--mem=%lluM", (unsigned long long)plan->mem_mb);
    add (w, "--time=%s",
         duration_format_slurm (plan->time_s, time, sizeof (time)));
    if (plan->time_min_s)
        add (w, "--time-min=%s",
             duration_format_slurm (plan->time_min_s, time, sizeof (time)));
}

/* The words as an argv; NULL when out of memory. */
static char **take_words (struct words *w)
{
    char **argv = calloc (w->n + 1, sizeof (*argv));

    if (argv && !w->failed) {
        memcpy (argv, w->word, w->n * sizeof (*argv));
        return argv;
    }
    for (size_t i = 0; i < w->n; i++)
        free (w->word[i]);
    free (argv);
    return NULL;
}

char **submit_argv (const struct strategy_plan *plan, const struct request *req,
                    const struct submit_more *more)
{
    const char *constraint =
        more->constraint ? more->constraint : plan->constraint;
    struct words w = {.n = 0};
    char file[32];

    add (&w, "sbatch");
    add (&w, "--parsable");
    add (&w, "--job-name=%s", req->name);
    add_plan (&w, plan);
    if (constraint)
        add (&w, "--constraint=%s", constraint);
    if (more->account)
        add (&w, "--account=%s", more->account);
    if (more->qos)
        add (&w, "--qos=%s", more->qos);
    if (req->checkpoint.signal) {
        /* To the batch step alone: rv-exec tells the ranks. */
        add (&w, "--signal=B:USR1@%u", req->checkpoint.seconds);
        add (&w, "--requeue");
    }
    for (size_t i = 0; more->words && more->words[i]; i++)
        add (&w, "%s", more->words[i]);
    add_log (&w, "--output", req, "out");
    add_log (&w, "--error", req, "err");
    add (&w, "--open-mode=append");
    jobfile_name ("job", "sh", req->candidate, file, sizeof (file));
    add (&w, "%s/%s", req->dir, file);
    return take_words (&w);
}

void submit_argv_free (char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free (argv[i]);
    free (argv);
}

static bool begins (const char *s, const char *head)
{
    return !strncmp (s, head, strlen (head));
}

/* Does this "NAME=VALUE" tell a client of Slurm how to spread GPUs and tasks?
 * The plan does, by options, and beside some of them Slurm takes it for a
 * contradiction (snakemake/snakemake-executor-plugin-slurm#342). */
static bool lays_out (const char *e)
{
    static const char *const client[] = {"SLURM_", "SRUN_", "SBATCH_"};
    static const char *const what[] = {
        "CPUS_PER_GPU=",    "CPUS_PER_TASK=",   "GPUS=",
        "GPUS_PER_NODE=",   "GPUS_PER_SOCKET=", "GPUS_PER_TASK=",
        "NTASKS_PER_CORE=", "NTASKS_PER_GPU=",  "NTASKS_PER_SOCKET=",
        "NTASKS_PER_TRES=", "TRES_PER_TASK=",
    };

    for (size_t i = 0; i < sizeof (client) / sizeof (client[0]); i++) {
        if (!begins (e, client[i]))
            continue;
        e += strlen (client[i]);
        for (size_t j = 0; j < sizeof (what) / sizeof (what[0]); j++)
            if (begins (e, what[j]))
                return true;
        /* other resources are the user's to add */
        return begins (e, "GRES=") && strstr (e, "gpu");
    }
    return false;
}

/* Does it say what rv does? sbatch would wait for the job's end, or make an
 * array of it; the ranks' srun would end them by another limit, refuse the
 * job's memory, or write names of ranks into their logs. */
static bool is_rvs (const char *e)
{
    static const char *const all[] = {
        "SBATCH_ARRAY_INX=",  "SBATCH_WAIT=",       "SLURM_LABELIO=",
        "SLURM_MEM_PER_CPU=", "SLURM_MEM_PER_GPU=", "SLURM_MEM_PER_NODE=",
        "SLURM_MULTI_PROG=",  "SLURM_TIMELIMIT=",
    };

    for (size_t i = 0; i < sizeof (all) / sizeof (all[0]); i++)
        if (begins (e, all[i]))
            return true;
    return false;
}

char **submit_environ (void)
{
    bool inside = getenv ("SLURM_JOB_ID") != NULL;
    size_t n = 0, out = 0;
    char **env;

    while (environ[n])
        n++;
    env = calloc (n + 1, sizeof (*env));
    for (size_t i = 0; env && i < n; i++) {
        const char *e = environ[i];

        if (begins (e, "PMIX_") || begins (e, "PMI_") || lays_out (e)
            || is_rvs (e))
            continue;
        if (inside && (begins (e, "SLURM_") || begins (e, "SLURMD_"))
            && !begins (e, "SLURM_CONF"))
            continue;
        if (!(env[out] = strdup (e))) {
            submit_argv_free (env);
            return NULL;
        }
        out++;
    }
    return env;
}

/* "QOSMaxSubmitJobPerUserLimit", "AssocGrpSubmitJobsLimit": the user has as many
 * jobs as may be submitted. The word in [text], not terminated; NULL = none. */
static const char *submit_limit (const char *text, int *ret_len)
{
    static const char word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                               "abcdefghijklmnopqrstuvwxyz";

    for (size_t n; *(text += strcspn (text, word)); text += n) {
        const char *at = strstr (text, "SubmitJob");

        n = strspn (text, word);
        if (at && at < text + n && n > 5 && begins (text + n - 5, "Limit")) {
            *ret_len = (int)n;
            return text;
        }
    }
    return NULL;
}

/* Slurm's words (slurm_strerror) for a controller that is not there, or that
 * went while it was asked. */
static bool lost_controller (const char *text)
{
    static const char *const words[] = {
        "Unable to contact slurm controller",
        "Communication connection failure",
        "Socket timed out on send/recv operation",
        "Zero Bytes were transmitted or received",
        "Connection reset by peer", /* of its system, when it is killed */
        "Slurm controller in standby mode",
    };

    for (size_t i = 0; i < sizeof (words) / sizeof (words[0]); i++)
        if (strstr (text, words[i]))
            return true;
    return false;
}

/* sbatch's own words, less its prefix. A filter of the site may say more than a
 * line: that goes to stderr as it is. */
static int refused (const struct proc_result *result, struct rv_error *err)
{
    const char *newline = strchr (result->err, '\n');
    const char *text = result->err, *limit;
    char line[400];
    int n = 0;

    if (lost_controller (text))
        return error_set (err, RV_ETIMEDOUT, "sbatch lost slurmctld");
    limit = submit_limit (text, &n);
    if (limit)
        return error_set (err, RV_ESTATE,
                          "sbatch: %.*s: as many jobs wait and run as the "
                          "account or QOS allows",
                          n, limit);
    if ((newline && newline[1]) || result->err_len >= sizeof (line) - 32) {
        fputs (result->err, stderr);
        return error_set (err, RV_EINVAL,
                          "sbatch refused it, for the reason above");
    }
    if (begins (text, "sbatch: "))
        text += strlen ("sbatch: ");
    if (begins (text, "error: "))
        text += strlen ("error: ");
    snprintf (line, sizeof (line), "%.*s", (int)strcspn (text, "\n"), text);
    if (!line[0])
        snprintf (line, sizeof (line), "it ended with status %d",
                  result->status);
    return error_set (err, RV_EINVAL, "sbatch: %s", line);
}

/* The last line that is an id, "12345" or "12345;cluster", 0 without one: a site's
 * own sbatch or filter may say more there. */
static uint32_t id_of (const char *out)
{
    uint32_t id = 0;

    for (const char *at = out; *at; at += *at == '\n') {
        unsigned long number = 0;
        char *end = NULL;

        if (*at >= '1' && *at <= '9')
            number = strtoul (at, &end, 10);
        if (end && number <= UINT32_MAX && strchr ("\n;", *end))
            id = (uint32_t)number;
        at += strcspn (at, "\n");
    }
    return id;
}

int submit_run (char *const argv[], uint32_t *ret_job_id, struct rv_error *err)
{
    struct proc_opts opts = {.deadline_ms = SUBMIT_MS};
    struct proc_result result;
    char **env = submit_environ ();
    uint32_t id;
    int status;

    if (!env)
        return error_set (err, RV_ENOMEM, "out of memory");
    opts.env = env;
    status = proc_run (argv, &opts, &result, err);
    submit_argv_free (env);
    if (status != RV_OK)
        return status;
    /* With an id there is a job, however sbatch ended. */
    if ((id = id_of (result.out)))
        *ret_job_id = id;
    else if (result.status)
        status = refused (&result, err);
    else
        status =
            error_set (err, RV_EFORMAT, "sbatch printed no job id but '%.100s'",
                       result.out);
    /* What sbatch says beside success is for the user. */
    if (status == RV_OK && result.err_len)
        fputs (result.err, stderr);
    proc_result_fini (&result);
    return status;
}

int submit_has_option (const char *name, struct rv_error *err)
{
    char *const argv[] = {"srun", "--help", NULL};
    struct proc_opts opts = {.deadline_ms = 20000};
    struct proc_result result;
    char word[64];
    int status = proc_run (argv, &opts, &result, err);

    if (status != RV_OK)
        return status;
    snprintf (word, sizeof (word), "--%s", name);
    if (!strstr (result.out, word))
        status = error_set (err, RV_ENOTSUP,
                            "srun here has no %s: the plugin that brings it "
                            "(pyxis) is not installed",
                            word);
    proc_result_fini (&result);
    return status;
}
