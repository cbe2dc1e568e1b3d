/* SPDX-License-Identifier: Apache-2.0
 * envedit.c - put variables into the environment and take them out again */
#include "envedit.h"

#include <stdlib.h>

#include "plan/rank_env.h"

bool envedit_set (struct envedit *e, const char *name, const char *value)
{
    if (e->n == ENVEDIT_MAX || getenv (name) || setenv (name, value, 1) != 0)
        return false;
    e->name[e->n++] = name;
    return true;
}

void envedit_undo (struct envedit *e)
{
    while (e->n > 0)
        unsetenv (e->name[--e->n]);
}

void envedit_drop_rank (void)
{
    static const char *const of_rank[] = {
        "RANK",        "WORLD_SIZE",   "LOCAL_RANK", "LOCAL_WORLD_SIZE",
        "NODE_RANK",   "GROUP_RANK",   "RV_STEP",    "MASTER_ADDR",
        "MASTER_PORT", "RV_HEAD_ADDR", "RV_PLUGIN",  "RV_NCCL_TIMEOUT",
        "RV_BOOT",     "RV_SET",
    };
    /* the user's own, unless RV_SET has them */
    static const char *const defaults[] = {
        "OMP_NUM_THREADS",
        "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
        "DEEPSPEED_TIMEOUT",
    };
    const char *set = getenv ("RV_SET");

    if (!getenv ("RV_STEP"))
        return;
    for (size_t i = 0; i < sizeof (defaults) / sizeof (defaults[0]); i++)
        if (rank_env_is_ours (set, defaults[i], getenv (defaults[i])))
            unsetenv (defaults[i]);
    for (size_t i = 0; i < sizeof (of_rank) / sizeof (of_rank[0]); i++)
        unsetenv (of_rank[i]);
}
