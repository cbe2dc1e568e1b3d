/* SPDX-License-Identifier: Apache-2.0
 * cmd_help.c - rv help and rv version */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cmd_job.h"
#include "jsonout.h"
#include "version.h"

static const char head[] =
    "Usage: rv [--sandbox[=DIR]] [--json] COMMAND [ARG...]\n"
    "       rv help [COMMAND] | rv version\n"
    "GPU jobs on Slurm.\n"
    "\n"
    "Commands:\n";
static const char tail[] =
    "\n"
    "Global options, before the command:\n"
    "  --sandbox[=DIR]  use the private Slurm that 'rv sandbox up' started\n"
    "  --json           one JSON object on stdout, where a command has it\n"
    "  --help           this text; 'rv help COMMAND' tells more\n"
    "  --version        version, and what it was built for\n"
    "\n"
    "Exit statuses: 0 done, 1 failed, 2 usage, 3 no controller, 4 no such "
    "job,\n"
    "5 cannot be met as asked. man rv, and man rv-COMMAND, tell all.\n";

void cmd_overview (FILE *f)
{
    fputs (head, f);
    cmd_list (f);
    fputs (tail, f);
}

static int help_json (const struct cmd *about)
{
    json_t *list = json_array ();
    const struct cmd *cmd;

    for (size_t i = 0; (cmd = cmd_at (i)); i++)
        if (cmd->summary && (!about || cmd == about))
            json_array_append_new (
                list, json_pack ("{s:s, s:s, s:s, s:b}", "name", cmd->name,
                                 "summary", cmd->summary, "usage", cmd->usage,
                                 "json", (int)cmd->json));
    return jsonout_print (json_pack ("{s:s, s:o}", "schema", "rv.help/1",
                                     "commands", list))
               ? CMD_FAILED
               : CMD_OK;
}

static int help_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    const struct cmd *about = NULL;
    bool done;
    int status = cmd_plain_options (ctx, &argc, argv, "tell", &done);

    if (done)
        return status;
    if (argc > 2)
        return cmd_usage_error (ctx, "cannot tell: name one command");
    if (argc == 2 && !(about = cmd_find (argv[1])))
        return cmd_unknown (ctx, argv[1]);
    if (ctx->json)
        return help_json (about);
    if (about)
        fputs (about->usage, stdout);
    else
        cmd_overview (stdout);
    return CMD_OK;
}

static json_t *version_of (const char *text)
{
    return strcmp (text, "none") ? json_string (text) : json_null ();
}

static int version_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    bool done;
    int status = cmd_plain_options (ctx, &argc, argv, "tell", &done);

    if (done)
        return status;
    if (argc > 1)
        return cmd_usage_error (ctx, "cannot tell: no word stands behind");
    if (!ctx->json) {
        puts (RV_VERSION_LINE ("rv"));
        return CMD_OK;
    }
    return jsonout_print (json_pack ("{s:s, s:s, s:o, s:o, s:o, s:o}", "schema",
                                     "rv.version/1", "version", PACKAGE_VERSION,
                                     "slurm", version_of (RV_SLURM_VERSION),
                                     "pmix", version_of (RV_PMIX_VERSION),
                                     "cuda", version_of (RV_CUDA_VERSION),
                                     "nccl", version_of (RV_NCCL_VERSION)))
               ? CMD_FAILED
               : CMD_OK;
}

const struct cmd cmd_help_about = {
    .name = "help",
    .summary = "tell what a command does and takes",
    .usage = "usage: rv help [--json] [COMMAND]\n"
             "The commands, or what COMMAND takes; 'man rv-COMMAND' tells "
             "all.\n"
             "      --json  one JSON object on standard output, rv.help/1\n",
    .json = true,
    .local = true,
    .run = help_run,
};

const struct cmd cmd_version = {
    .name = "version",
    .summary = "rv's version, and what it was built for",
    .usage = "usage: rv version [--json]\n"
             "      --json  one JSON object on standard output, "
             "rv.version/1\n",
    .json = true,
    .local = true,
    .run = version_run,
};
