/* SPDX-License-Identifier: Apache-2.0
 * sandbox.c - rv sandbox: options, and what each verb prints */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/sandbox.h"

int sandbox_use (const char *dir, struct rv_error *err)
{
    return error_set (err, RV_ENOTFOUND, "no sandbox is up in %s",
                      dir ? dir : "the default folder");
}

static int run (struct cmd_ctx *ctx, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cmd_fail (ctx, CMD_FAILED, NULL,
                     "cannot start a sandbox: not in this version");
}

const struct cmd cmd_sandbox = {
    .name = "sandbox",
    .summary = "a private Slurm on this machine: up, down, status, env",
    .usage = "Usage: rv sandbox up|down|status|env\n",
    .json = true,
    .run = run,
};
