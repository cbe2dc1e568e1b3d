/* SPDX-License-Identifier: Apache-2.0
 * cmd_attach.c - rv attach: a shell, or a command, beside a running job */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "jobstep.h"
#include "jsonout.h"
#include "proc.h"
#include "submit.h"

static const char usage[] =
    "usage: rv attach [JOB] [--node NODE] [--json] [-- COMMAND [ARGUMENT...]]\n"
    "A shell, or COMMAND, on a node of a job that runs, with the job's CPUs "
    "and\n"
    "GPUs; by default of your newest. It ends with the job, not the job with "
    "it.\n"
    "The status is the command's; 4 no such job, 5 it does not run, or has no\n"
    "such node.\n"
    "      --node NODE  which of the job's nodes, or its index (default: its "
    "first)\n"
    "      --json       run COMMAND to its end without input, then what it "
    "wrote and\n"
    "                   its status in one JSON object, rv.attach/1\n";

/* What a program wrote as text: a string would end at a NUL. */
static json_t *text_json (char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        text[i] = text[i] ? text[i] : '?';
    return jsonout_text (text);
}

static int report (const struct cmd_ctx *ctx, const struct jobstep *step,
                   char *const words[])
{
    char **env = submit_environ ();
    struct proc_opts opts = {.env = env};
    struct proc_result r;
    struct rv_error err = {.text = "out of memory"};
    int status;

    if (!env || !words || proc_run (words, &opts, &r, &err)) {
        submit_argv_free (env);
        return cmd_fail (ctx, CMD_NEVER_STARTED, NULL,
                         "cannot attach to job %u (%s): %s", step->job_id,
                         step->name, err.text);
    }
    status = r.status;
    if (jsonout_print (json_pack (
            "{s:s, s:I, s:o, s:s, s:i, s:o, s:o}", "schema", "rv.attach/1",
            "job_id", (json_int_t)step->job_id, "name",
            jsonout_text (step->name), "node", step->node, "exit_status",
            r.status, "stdout", text_json (r.out, r.out_len), "stderr",
            text_json (r.err, r.err_len))))
        status = CMD_FAILED;
    proc_result_fini (&r);
    submit_argv_free (env);
    return status;
}

/* The words before "--". */
static int read_words (struct cmd_ctx *ctx, int argc, char **argv,
                       const char **ret_job, const char **ret_node)
{
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];

        if (!strcmp (word, "--json"))
            ctx->json = true;
        else if (!strncmp (word, "--node=", 7))
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
    if ((status = read_words (ctx, n, argv, &job, &node)) != CMD_OK)
        return status;
    if (ctx->json && command == shell)
        return cmd_usage_error (ctx, "cannot attach: --json needs a command "
                                     "behind --, for a shell has no end to "
                                     "report");
    status = jobstep_find (ctx, "attach to", job, node, &step);
    if (status != CMD_OK)
        return status;
    words = jobstep_argv (&step, false, !ctx->json && isatty (STDIN_FILENO),
                          command);
    if (command == shell)
        fprintf (stderr, "rv: in job %u (%s) on %s; exit leaves it\n",
                 step.job_id, step.name, step.node);
    status = ctx->json ? report (ctx, &step, words) : jobstep_exec (ctx, words);
    submit_argv_free (words);
    jobstep_fini (&step);
    return status;
}

const struct cmd cmd_attach = {
    .name = "attach",
    .summary = "a shell or a command beside a running job",
    .usage = usage,
    .json = true,
    .run = cmd_attach_run,
};
