/* SPDX-License-Identifier: Apache-2.0
 * up.c - rv up: a plan of `rv run` as an allocation with a shell in it
 *
 * salloc(1) waits for the nodes, and its command is an srun of one task on the
 * first node; what is typed there may start steps of its own beside it. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "up.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobstep.h"
#include "submit.h"

const char up_help[] =
    "usage: rv up [OPTION...] [-- COMMAND [ARGUMENT...]]\n"
    "A shell, or COMMAND, on the first node of an allocation that ends with "
    "it.\n"
    "It waits until there is one. Options are those of rv run (rv help run), "
    "but\n"
    "-f, -l, --array, --checkpoint, --fanout, --snapshot and --output; 'srun\n"
    "PROGRAM' in the shell starts one task a GPU on all nodes. The status is\n"
    "the shell's; 125 salloc could not be started.\n"
    "      --dry-run  print the plan and the salloc call, allocate nothing\n"
    "      --json     with --dry-run: one JSON object, rv.run/1\n"
    "  rv up -g 2 --time 1h\n";

char **up_words (int argc, char *argv[])
{
    char **words = calloc ((size_t)argc + 3, sizeof (*words));

    if (!words)
        return NULL;
    memcpy (words, argv, (size_t)argc * sizeof (*words));
    words[argc] = (char *)"--";
    words[argc + 1] = (char *)jobstep_shell ();
    return words;
}

int up_command (struct run_opts *opts, struct rv_error *err)
{
    if (opts->argc > 2) { /* the user's, and "--" and the shell behind it */
        opts->argc -= 2;
        opts->argv[opts->argc] = NULL;
    } else if (opts->argc == 2) { /* "--" alone was given */
        opts->argc = 1;
        opts->argv++;
    }
    if (opts->follow || opts->label || opts->slurm.array
        || opts->checkpoint.signal || opts->fanout || opts->snapshot)
        return error_set (err, RV_EINVAL,
                          "-f, -l, --array, --checkpoint, --fanout and "
                          "--snapshot are of "
                          "rv run: here a shell is at the other end");
    return RV_OK;
}

/* What is about a batch script alone. */
static bool of_batch (const char *word)
{
    static const char *const heads[] = {
        "--parsable", "--output=", "--error=", "--open-mode="};

    for (size_t i = 0; i < sizeof (heads) / sizeof (heads[0]); i++)
        if (!strncmp (word, heads[i], strlen (heads[i])))
            return true;
    return false;
}

static size_t count (char *const words[])
{
    size_t n = 0;

    while (words && words[n])
        n++;
    return n;
}

/* Put copies of [from] behind the [*n] words. */
static bool append (char **words, size_t *n, char *const from[])
{
    for (size_t i = 0; from && from[i]; i++)
        if (!(words[(*n)++] = strdup (from[i])))
            return false;
    return true;
}

char **up_argv (char **batch_take, uint32_t tasks_per_node, char *const step[],
                char *const command[])
{
    size_t n_batch = count (batch_take), n = 0;
    char **words =
        calloc (n_batch + count (step) + count (command) + 16, sizeof (*words));
    char *shell[] = {(char *)"srun", (char *)"--nodes=1", (char *)"--ntasks=1",
                     (char *)"--ntasks-per-node=1", (char *)"--overlap",
                     /* for an srun in the shell: nodes and tasks of the job */
                     (char *)"--preserve-env", (char *)"--mpi=none",
                     (char *)(isatty (STDIN_FILENO) ? "--pty" : "--unbuffered"),
                     NULL};
    char tasks[48];
    char *const env[] = {(char *)"env", tasks, NULL};
    bool ok = words && (words[n++] = strdup ("salloc"));

    /* That of the shell's own step is 1, and an srun in it would warn. */
    snprintf (tasks, sizeof (tasks), "SLURM_NTASKS_PER_NODE=%u",
              tasks_per_node);
    /* the first is sbatch, the last its script */
    for (size_t i = 1; ok && i + 1 < n_batch; i++)
        if (!of_batch (batch_take[i]))
            ok = (words[n++] = strdup (batch_take[i])) != NULL;
    ok = ok && append (words, &n, shell) && append (words, &n, step)
         && append (words, &n, env) && append (words, &n, command);
    submit_argv_free (batch_take);
    if (!ok) {
        submit_argv_free (words);
        return NULL;
    }
    return words;
}

int up_exec (const struct cmd_ctx *ctx, char *const argv[],
             const struct envfile *secrets)
{
    /* The environment goes to the shell alone: salloc's request has none. */
    for (size_t i = 0; i < secrets->n; i++)
        setenv (secrets->var[i].name, secrets->var[i].value, 1);
    return jobstep_exec (ctx, argv);
}
