/* SPDX-License-Identifier: Apache-2.0
 * cmd_completion.c - rv completion: what bash, zsh or fish reads to complete
 * rv's command lines, for those whose rv is not installed where they look */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "cmd_job.h"
#include "completion_text.h"
#include "jsonout.h"

static const struct {
    const char *name, *text;
} shells[] = {
    {"bash", completion_bash},
    {"zsh", completion_zsh},
    {"fish", completion_fish},
};

static int print (const struct cmd_ctx *ctx, const char *name, const char *text)
{
    if (!ctx->json) {
        fputs (text, stdout);
        return CMD_OK;
    }
    return jsonout_print (json_pack ("{s:s, s:s, s:s}", "schema",
                                     "rv.completion/1", "shell", name, "text",
                                     text))
               ? CMD_FAILED
               : CMD_OK;
}

static int completion_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    bool done;
    int status = cmd_plain_options (ctx, &argc, argv, "complete", &done);

    if (done)
        return status;
    if (argc != 2)
        return cmd_usage_error (ctx, "cannot complete: name one shell: bash, "
                                     "zsh or fish");
    for (size_t i = 0; i < sizeof (shells) / sizeof (shells[0]); i++)
        if (!strcmp (argv[1], shells[i].name))
            return print (ctx, shells[i].name, shells[i].text);
    return cmd_usage_error (ctx,
                            "cannot complete: there are bash, zsh and fish, "
                            "not '%s'",
                            argv[1]);
}

const struct cmd cmd_completion = {
    .name = "completion",
    .summary = "what bash, zsh or fish needs to complete rv's words",
    .usage = "usage: rv completion [--json] bash|zsh|fish\n"
             "Prints what that shell reads:\n"
             "  bash   source <(rv completion bash)\n"
             "  zsh    source <(rv completion zsh), behind compinit\n"
             "  fish   rv completion fish | source\n"
             "      --json  one JSON object on standard output, "
             "rv.completion/1\n",
    .json = true,
    .local = true,
    .run = completion_run,
};
