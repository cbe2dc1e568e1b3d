/* SPDX-License-Identifier: Apache-2.0
 * envedit.c - put variables into the environment and take them out again */
#include "envedit.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void drop_if (const char *name, int64_t value)
{
    const char *text = getenv (name);
    char ours[24];

    snprintf (ours, sizeof (ours), "%" PRId64, value);
    if (text && strcmp (text, ours) == 0)
        unsetenv (name);
}

void envedit_drop_rank (void)
{
    static const char *const names[] = {
        "RANK",         "WORLD_SIZE", "LOCAL_RANK",      "LOCAL_WORLD_SIZE",
        "NODE_RANK",    "GROUP_RANK", "MASTER_ADDR",     "MASTER_PORT",
        "RV_HEAD_ADDR", "RV_PLUGIN",  "RV_NCCL_TIMEOUT", "RV_STEP",
        "RV_DIFFER",
    };
    const char *timeout = getenv ("RV_NCCL_TIMEOUT");
    int64_t t = timeout ? strtoll (timeout, NULL, 10) : 0;

    if (!getenv ("RV_STEP"))
        return;
    if (t > 0) {
        drop_if ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", t > 480 ? t : 480);
        drop_if ("DEEPSPEED_TIMEOUT", t / 60 + (t % 60 != 0));
    }
    for (size_t i = 0; i < sizeof (names) / sizeof (names[0]); i++)
        unsetenv (names[i]);
}
