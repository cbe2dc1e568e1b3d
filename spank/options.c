/* SPDX-License-Identifier: Apache-2.0
 * options.c - the options that the plugin adds to srun, sbatch and salloc */
#include "options.h"

#include <stddef.h>
#include <stdio.h>

#include "ctx.h"

static int option_cb (int val, const char *optarg, int remote)
{
    return remote ? stepd_option ((enum option)val, optarg)
                  : client_option ((enum option)val, optarg);
}

/* cli_table.c repeats names and kinds for the scan of the command line.
 * Every text is a char array because spank.h asks for char *. */
static char differ_name[] = "rv-differ", differ_arg[] = "list",
            differ_usage[] = "what ranks may differ in when they start";
static char env_name[] = "rv-env", env_arg[] = "on|off",
            env_usage[] = "variables of the rank, such as RANK and WORLD_SIZE";
static char gpu_name[] = "rv-gpu", gpu_arg[] = "[type:]n",
            gpu_usage[] = "whole GPUs of the job, such as 4 or a100:4";
static char isolate_name[] = "rv-isolate",
            isolate_usage[] = "each task sees one GPU of its own";
static char mig_name[] = "rv-mig", mig_arg[] = "profile[:n]",
            mig_usage[] = "MIG slices, one a task, such as 1g.10gb:4";
static char timeout_name[] = "rv-nccl-timeout", timeout_arg[] = "duration",
            timeout_usage[] = "deadline of every wait, such as 90s or 30m";

static struct spank_option options[] = {
    {differ_name, differ_arg, differ_usage, 1, OPTION_DIFFER, option_cb},
    {env_name, env_arg, env_usage, 1, OPTION_ENV, option_cb},
    {gpu_name, gpu_arg, gpu_usage, 1, OPTION_GPU, option_cb},
    {isolate_name, NULL, isolate_usage, 0, OPTION_ISOLATE, option_cb},
    {mig_name, mig_arg, mig_usage, 2, OPTION_MIG, option_cb},
    {timeout_name, timeout_arg, timeout_usage, 1, OPTION_NCCL_TIMEOUT,
     option_cb},
};

size_t options_count (void)
{
    return sizeof (options) / sizeof (options[0]);
}

void options_word (size_t i, char *buf, size_t size)
{
    snprintf (buf, size, "_SLURM_SPANK_OPTION_rv_%s", options[i].name);
    for (char *c = buf; *c; c++)
        if (*c == '-')
            *c = '_';
}

void options_register (spank_t sp)
{
    for (size_t i = 0; i < options_count (); i++)
        spank_option_register (sp, &options[i]);
}
