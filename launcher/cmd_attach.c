/* SPDX-License-Identifier: Apache-2.0
 * cmd_attach.c - rv attach: a shell, or a command, beside a running job */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobstep.h"
#include "submit.h"

static const char usage[] =
    "usage: rv attach [JOB] [--node NODE] [-- COMMAND [ARGUMENT...]]\n"
    "A shell, or COMMAND, on a node of a job that runs, with the job's CPUs "
    "and\n"
    "GPUs; by default of your newest. It ends with the job, not the job with "
    "it.\n"
    "The status is the command's; 4 no such job, 5 it does not run, or has no\n"
    "such node.\n"
    "      --node NODE  which of the job's nodes, or its index (default: its "
    "first)\n";

/* The words before "--". */
static int read_words (const struct cmd_ctx *ctx, int argc, char **argv,
                       const char **ret_job, const char **ret_node)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (!strncmp (word, "--node=", 7))
            *ret_node = word + 7;
        else if (!strcmp (word, "--node") && i + 1 < argc)
            *ret_node = argv[++i];
        else if (word[0] == '-')
            return cmd_usage_error (ctx,
                                    "cannot attach: there is no option '%s', "
                                    "or it needs a value; a command stands "
                                    "behind --",
                                    word);
        else if (*ret_job)
            return cmd_usage_error (ctx,
                                    "cannot attach: '%s' is a second job; a "
                                    "command stands behind --",
                                    word);
        else
            *ret_job = word;
    }
    return CMD_OK;
}

static int cmd_attach_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    char *shell[] = {(char *)jobstep_shell (), NULL}, **command = shell;
    const char *job = NULL, *node = NULL;
    struct jobstep step;
    char **words;
    int n = 1, status;

    for (; n < argc && strcmp (argv[n], "--"); n++)
        if (!strcmp (argv[n], "--help") || !strcmp (argv[n], "-h"))
            return cmd_help (ctx);
    if (n + 1 < argc)
        command = argv + n + 1;
    if ((status = read_words (ctx, n, argv, &job, &node)) != CMD_OK
        || (status = jobstep_find (ctx, "attach to", job, node, &step))
               != CMD_OK)
        return status;
    words = jobstep_argv (&step, false, isatty (STDIN_FILENO), command);
    if (command == shell)
        fprintf (stderr, "rv: in job %u (%s) on %s; exit leaves it\n",
                 step.job_id, step.name, step.node);
    status = jobstep_exec (ctx, words);
    submit_argv_free (words);
    jobstep_fini (&step);
    return status;
}

const struct cmd cmd_attach = {
    .name = "attach",
    .summary = "a shell or a command beside a running job",
    .usage = usage,
    .json = false,
    .run = cmd_attach_run,
};
