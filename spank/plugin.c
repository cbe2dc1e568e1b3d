/* SPDX-License-Identifier: Apache-2.0
 * plugin.c - the hooks of spank_rv.so; each goes to the file of its context
 *
 * slurmd loads the plugin too, and nothing is done there. Where plugstack.conf
 * and a file that it includes both name it, Slurm calls each hook once for each
 * line: the first counts. */
#include <stdbool.h>

#include "ctx.h"

SPANK_PLUGIN (rv, 1)

static unsigned n_lines; /* of plugstack.conf that name this file */

/* is_other - is this call of a hook that of another line than the first? A hook
 * may run several times in a process: init_post_opt does for each component of a
 * heterogeneous job. */
static bool is_other (unsigned *n_calls)
{
    return n_lines > 1 && (*n_calls)++ % n_lines > 0;
}

int slurm_spank_init (spank_t sp, int argc, char **argv)
{
    if (n_lines++ > 0)
        return 0;
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
    static unsigned n_calls;

    (void)sp;
    (void)argc;
    (void)argv;
    if (is_other (&n_calls))
        return 0;
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
    static unsigned n_calls;

    (void)argc;
    (void)argv;
    if (is_other (&n_calls))
        return 0;
    return client_user_init (sp);
}

/* Called in slurmstepd alone. */
int slurm_spank_user_init (spank_t sp, int argc, char **argv)
{
    static unsigned n_calls;

    (void)argc;
    (void)argv;
    if (is_other (&n_calls))
        return 0;
    return stepd_user_init (sp);
}

int slurm_spank_task_init (spank_t sp, int argc, char **argv)
{
    static unsigned n_calls;

    (void)argc;
    (void)argv;
    if (is_other (&n_calls))
        return 0;
    return stepd_task_init (sp);
}

/* Called by slurmd's own child, around a job. */
int slurm_spank_job_prolog (spank_t sp, int argc, char **argv)
{
    static unsigned n_calls;

    (void)sp;
    if (is_other (&n_calls))
        return 0;
    return script_check (argc, argv);
}

int slurm_spank_job_epilog (spank_t sp, int argc, char **argv)
{
    static unsigned n_calls;

    (void)sp;
    if (is_other (&n_calls))
        return 0;
    return script_check (argc, argv);
}
