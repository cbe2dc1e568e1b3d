/* SPDX-License-Identifier: Apache-2.0
 * ctx_stepd.c - slurmstepd: the environment of each task
 *
 * stepd_init runs as root and only keeps the plugstack words; it cannot fail
 * the step, so a bad word is logged and the plugin then does nothing.
 * stepd_task_init runs as the user in the task's own process, reads no file
 * and loads no library. */
#include "config.h"

#include <slurm/slurm.h>
#include <stdbool.h>

#include "args.h"
#include "ctx.h"

static struct plugin_args args;
static bool disabled;

int stepd_init (spank_t sp, int argc, char **argv)
{
    struct rv_error err = {0};

    (void)sp;
    if (args_parse (argc, argv, &args, &err)) {
        slurm_error ("rv: cannot read plugstack.conf: %s", err.text);
        disabled = true;
    }
    return 0;
}

/* The batch script, the interactive shell and the extern step are no ranks:
 * what stands in their environment would reach every step they start. */
static bool is_rank (spank_t sp)
{
    uint32_t step = SLURM_BATCH_SCRIPT;

    return spank_get_item (sp, S_JOB_STEPID, &step) == ESPANK_SUCCESS
           && step <= SLURM_MAX_NORMAL_STEP_ID;
}

int stepd_task_init (spank_t sp)
{
    char dir[8];

    if (disabled || !is_rank (sp))
        return 0;
    if (spank_getenv (sp, "RV_REQUEST_DIR", dir, sizeof (dir))
        == ESPANK_ENV_NOEXIST)
        return 0;
    spank_setenv (sp, "RV_PLUGIN", PACKAGE_VERSION, 1);
    return 0;
}
