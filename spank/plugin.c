/* SPDX-License-Identifier: Apache-2.0
 * plugin.c - the hooks of spank_rv.so; each goes to the file of its context
 *
 * slurmd loads the plugin too, and nothing is done there. */
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

int slurm_spank_init_post_opt (spank_t sp, int argc, char **argv)
{
    (void)sp;
    (void)argc;
    (void)argv;
    switch (spank_context ()) {
    case S_CTX_LOCAL:
    case S_CTX_ALLOCATOR:
        return client_post_opt ();
    default:
        return 0;
    }
}

/* Called in srun alone. */
int slurm_spank_local_user_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return client_user_init (sp);
}

/* Called in slurmstepd alone. */
int slurm_spank_user_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return stepd_user_init (sp);
}

int slurm_spank_task_init (spank_t sp, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return stepd_task_init (sp);
}

/* Called by slurmd's own child, around a job. */
int slurm_spank_job_prolog (spank_t sp, int argc, char **argv)
{
    (void)sp;
    return script_check (argc, argv);
}

int slurm_spank_job_epilog (spank_t sp, int argc, char **argv)
{
    (void)sp;
    return script_check (argc, argv);
}
