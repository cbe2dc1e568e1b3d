/* SPDX-License-Identifier: Apache-2.0
 * plugin.c - the hooks of spank_rv.so; each goes to the file of its context */
#include "ctx.h"

SPANK_PLUGIN (rv, 1)

int slurm_spank_init (spank_t sp, int argc, char **argv)
{
    switch (spank_context ()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        return client_init (sp, argc, argv);
    case S_CTX_REMOTE:
        return stepd_init (sp, argc, argv);
    default:
        return 0;
    }
}

/* Called in slurmstepd alone. */
int slurm_spank_task_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return stepd_task_init (sp);
}
