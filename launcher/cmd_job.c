/* SPDX-License-Identifier: Apache-2.0
 * cmd_job.c - what the commands about jobs share: options and loading */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cmd_job.h"

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>

#include "cluster_account.h"
#include "settings.h"

static int take_all (struct cmd_ctx *ctx, int c, const char *value, void *arg)
{
    (void)ctx;
    (void)c;
    (void)value;
    *(bool *)arg = true;
    return CMD_OK;
}

int cmd_job_options (struct cmd_ctx *ctx, int argc, char **argv,
                     const char *what, bool *ret_all, bool *ret_done)
{
    static const struct option options[] = {
        {"all", no_argument, NULL, 'a'},
        {NULL, 0, NULL, 0},
    };

    *ret_all = false;
    return cmd_options (ctx, argc, argv, "a", options, what, take_all, ret_all,
                        ret_done);
}

int cmd_job_known (const struct cmd_ctx *ctx, const char *what,
                   struct known *ret)
{
    struct settings settings;
    struct rv_error err = {0};
    int status = settings_load (&settings, &err);

    if (status != RV_OK)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot %s: %s", what,
                         err.text);
    status = known_load (settings.state_dir, false, ret, &err);
    settings_fini (&settings);
    if (status != RV_OK)
        return cmd_fail (ctx, cmd_job_status (status), cmd_job_hint (status),
                         "cannot %s: %s", what, err.text);
    return CMD_OK;
}

void cmd_job_account (int64_t since, struct account *ret)
{
    struct rv_error err = {0};

    if (account_load (since, ret, &err) != RV_OK)
        fprintf (stderr,
                 "rv: cannot ask slurmdbd: %s; what slurmctld and rv's own "
                 "files tell is shown\n",
                 err.text);
}
