/* SPDX-License-Identifier: Apache-2.0
 * main.c - rv: take the global options, find the command, run it */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "sandbox/sandbox.h"
#include "slurm_ask.h"
#include "version.h"

#define PATIENCE_MS 5000 /* slurmctld may just be restarted */

/* Is [arg] the option [name], alone or with a value behind '='? */
static bool option (const char *arg, const char *name, const char **ret_value)
{
    size_t len = strlen (name);

    if (strncmp (arg, name, len) || (arg[len] && arg[len] != '='))
        return false;
    *ret_value = arg[len] ? arg + len + 1 : NULL;
    return true;
}

/* sbatch would go elsewhere, and squeue's user would look elsewhere. */
static int other_cluster (const struct cmd_ctx *ctx)
{
    static const char *const names[] = {"SLURM_CLUSTERS", "SBATCH_CLUSTERS"};

    for (size_t i = 0; i < sizeof (names) / sizeof (names[0]); i++) {
        const char *value = getenv (names[i]);

        if (value && *value)
            return cmd_fail (ctx, CMD_UNMET, "unset it",
                             "rv works with one cluster, the one of "
                             "SLURM_CONF, and %s names '%s'",
                             names[i], value);
    }
    return CMD_OK;
}

/* -M, -Mother, --clusters=other and what getopt would take for that. */
static bool names_clusters (const char *word)
{
    const char *ignored;

    return !strncmp (word, "-M", 2) || option (word, "--cluster", &ignored)
           || option (word, "--clusters", &ignored);
}

static int other_cluster_option (const struct cmd_ctx *ctx, int argc,
                                 char *const argv[])
{
    for (int i = 1; i < argc && strcmp (argv[i], "--"); i++)
        if (names_clusters (argv[i]))
            return cmd_fail (ctx, CMD_UNMET, "log in to the other",
                             "rv works with one cluster, the one of "
                             "SLURM_CONF, and has no %.64s",
                             argv[i]);
    return CMD_OK;
}

static int run_command (struct cmd_ctx *ctx, int argc, char **argv)
{
    const char *value;

    ctx->cmd = cmd_find (argv[0]);
    if (!ctx->cmd)
        return cmd_unknown (ctx, argv[0]);
    if (ctx->json && !ctx->cmd->json) {
        ctx->json = false;
        return cmd_usage_error (ctx, "'%s' has no --json", argv[0]);
    }
    for (int i = 1; i < argc && argv[i][0] == '-'; i++)
        if (option (argv[i], "--sandbox", &value))
            return cmd_usage_error (ctx,
                                    "'%s' stands before the command: rv %s %s",
                                    argv[i], argv[i], argv[0]);
    if (!ctx->cmd->local && !ctx->cmd->wraps)
        cmd_look_json (ctx, ctx->cmd->json ? argc : 0, argv);
    if (!ctx->cmd->local && other_cluster (ctx) != CMD_OK)
        return CMD_UNMET;
    if (!ctx->cmd->local && !ctx->cmd->wraps
        && other_cluster_option (ctx, argc, argv) != CMD_OK)
        return CMD_UNMET;
    /* What rv-exec asks for it asks again itself. */
    if (ctx->cmd->summary)
        slurm_ask_patience (PATIENCE_MS);
    return ctx->cmd->run (ctx, argc, argv);
}

/* A full disk behind stdout must not look like success. */
static int end (int status)
{
    if (fflush (stdout) == 0 && !ferror (stdout))
        return status;
    fprintf (stderr, "rv: cannot write to stdout: %s\n", strerror (errno));
    return status ? status : CMD_FAILED;
}

/* What stands before the command. */
struct front {
    bool sandbox;
    const char *dir; /* of it; NULL: the default one */
    int at;          /* of the command */
};

/* -1, or the exit status of what has nothing behind it. */
static int take_front (int argc, char **argv, struct cmd_ctx *ctx,
                       struct front *f)
{
    const char *value;

    for (f->at = 1; f->at < argc && argv[f->at][0] == '-'; f->at++) {
        const char *word = argv[f->at];

        if (option (word, "--sandbox", &value)) {
            f->sandbox = true;
            f->dir = value;
            if (value && !*value)
                return cmd_usage_error (ctx, "--sandbox= needs a folder");
        } else if (!strcmp (word, "--json")) {
            ctx->json = true;
        } else if (!strcmp (word, "--help") || !strcmp (word, "-h")) {
            cmd_overview (stdout);
            return end (CMD_OK);
        } else if (!strcmp (word, "--version")) {
            puts (RV_VERSION_LINE ("rv"));
            return end (CMD_OK);
        } else {
            return cmd_usage_error (ctx,
                                    "there is no option '%s' before the "
                                    "command; those of a command stand behind "
                                    "its name",
                                    word);
        }
    }
    return -1;
}

int main (int argc, char **argv)
{
    struct cmd_ctx ctx = {0};
    struct front f = {0};
    struct rv_error err = {0};
    char hint[320];
    int status = take_front (argc, argv, &ctx, &f);

    if (status >= 0)
        return status;
    if (f.at == argc) {
        if (ctx.json)
            return cmd_usage_error (&ctx, "there is no command");
        cmd_overview (stderr);
        return CMD_USAGE;
    }
    if (f.sandbox && sandbox_use (f.dir, &err)) {
        snprintf (hint, sizeof (hint), "start it with 'rv sandbox up%s%s'",
                  f.dir ? " --dir " : "", f.dir ? f.dir : "");
        return cmd_fail (&ctx, CMD_NO_CONTROLLER, hint,
                         "cannot use the sandbox: %s", err.text);
    }
    return end (run_command (&ctx, argc - f.at, argv + f.at));
}
