/* SPDX-License-Identifier: Apache-2.0
 * jobstep.c - a step of rv's own beside those of a running job */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "jobstep.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"
#include "submit.h"

void jobstep_fini (struct jobstep *step)
{
    free (step->name);
    hostlist_fini (&step->nodes);
    memset (step, 0, sizeof (*step));
}

static int choose_node (const struct cmd_ctx *ctx, const char *what,
                        const char *node, struct jobstep *step)
{
    size_t i = node ? hostlist_find (&step->nodes, node) : 0;

    if (i < step->nodes.n) {
        step->node = step->nodes.host[i];
        return CMD_OK;
    }
    return cmd_fail (ctx, CMD_UNMET, "'rv ps' shows its nodes",
                     "cannot %s job %u (%s): it has no node '%.64s'", what,
                     step->job_id, step->name, node ? node : "");
}

static int use (const struct cmd_ctx *ctx, const char *what,
                const struct known_job *job, const char *node,
                struct jobstep *ret)
{
    const struct cluster_job *live = job->live;
    struct jobstep step = {.job_id = job->job_id,
                           .gpus = live ? live->gpus : -1};
    struct rv_error err = {0};
    int status;

    if (!known_active (job))
        return cmd_fail (ctx, CMD_NO_JOB, NULL,
                         "cannot %s job %u (%s): it has ended", what,
                         job->job_id, job->name);
    if (job->req)
        step.gpus = (int64_t)job->req->gpus;
    if (live->pending || !live->node_list[0])
        return cmd_fail (ctx, CMD_UNMET, "try again when it runs",
                         "cannot %s job %u (%s): it is %s%s%s", what,
                         job->job_id, job->name, live->state,
                         live->reason[0] ? ": " : "", live->reason);
    if (!(step.name = strdup (job->name)))
        status = CMD_FAILED;
    else if (hostlist_parse (live->node_list, &step.nodes, &err))
        status = cmd_fail (ctx, CMD_FAILED, NULL, "cannot %s job %u (%s): %s",
                           what, job->job_id, job->name, err.text);
    else
        status = choose_node (ctx, what, node, &step);
    if (status != CMD_OK)
        jobstep_fini (&step);
    else
        *ret = step;
    return status;
}

int jobstep_find (const struct cmd_ctx *ctx, const char *what, const char *word,
                  const char *node, struct jobstep *ret)
{
    const struct known_job *job;
    struct rv_error err = {0};
    struct known known;
    char doing[64];
    int status;

    snprintf (doing, sizeof (doing), "%s a job", what);
    if ((status = cmd_job_known (ctx, doing, &known)) != CMD_OK)
        return status;
    if (known_find (&known, word, &job, NULL, &err) != RV_OK)
        status = cmd_fail (ctx, CMD_NO_JOB, "'rv ps' lists those that run",
                           "cannot %s '%s': %s", what, word ? word : "a job",
                           err.text);
    else
        status = use (ctx, what, job, node, ret);
    known_fini (&known);
    return status;
}

struct words {
    char **word;
    size_t n;
    bool failed;
};

static void add (struct words *w, const char *head, const char *value)
{
    char **grown = realloc (w->word, (w->n + 2) * sizeof (*grown));

    if (grown)
        w->word = grown;
    if (!grown || asprintf (&w->word[w->n], "%s%s", head, value) < 0)
        w->failed = true;
    else
        w->word[++w->n] = NULL;
}

char **jobstep_argv (const struct jobstep *step, bool all, bool pty,
                     char *const command[])
{
    struct words w = {.n = 0};
    char number[16];

    add (&w, "", "srun");
    snprintf (number, sizeof (number), "%u", step->job_id);
    add (&w, "--jobid=", number);
    snprintf (number, sizeof (number), "%zu", all ? step->nodes.n : 1);
    add (&w, "--nodes=", number);
    add (&w, "--ntasks=", number);
    add (&w, "", "--ntasks-per-node=1");
    if (!all)
        add (&w, "--nodelist=", step->node);
    add (&w, "", "--overlap");
    add (&w, "", "--mpi=none");
    /* Without a buffer srun would label pieces of lines. */
    add (&w, "", all ? "--label" : "--unbuffered");
    if (pty)
        add (&w, "", "--pty");
    for (size_t i = 0; command[i]; i++)
        add (&w, "", command[i]);
    if (w.failed) {
        submit_argv_free (w.word);
        return NULL;
    }
    return w.word;
}

const char *jobstep_shell (void)
{
    const char *shell = getenv ("SHELL");

    return shell && *shell ? shell : "/bin/sh";
}

int jobstep_exec (const struct cmd_ctx *ctx, char *const argv[])
{
    char **env = submit_environ ();

    if (env && argv) {
        char *found = proc_find (argv[0]);

        fflush (NULL);
        execvpe (found ? found : argv[0], argv, env);
    }
    return cmd_fail (ctx, CMD_NEVER_STARTED, NULL, "cannot start %s: %s",
                     argv ? argv[0] : "srun",
                     env && argv ? strerror (errno) : "out of memory");
}
