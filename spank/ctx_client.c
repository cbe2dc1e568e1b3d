/* SPDX-License-Identifier: Apache-2.0
 * ctx_client.c - srun, sbatch, salloc: options become Slurm's own request
 *
 * Runs as the user, before the job exists. */
#include <stdio.h>
#include <stdlib.h>

#include "args.h"
#include "ctx.h"

static struct plugin_args args;

int client_init (spank_t sp, int argc, char **argv)
{
    struct rv_error err = {0};

    (void)sp;
    if (args_parse (argc, argv, &args, &err)) {
        fprintf (stderr, "rv: cannot read plugstack.conf: %s\n", err.text);
        exit (1);
    }
    return 0;
}
