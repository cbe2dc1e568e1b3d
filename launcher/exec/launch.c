/* SPDX-License-Identifier: Apache-2.0
 * launch.c - commands that start the processes of a node themselves */
#define _GNU_SOURCE
#include "exec/launch.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name (const char *path)
{
    const char *slash = strrchr (path, '/');

    return slash ? slash + 1 : path;
}

static const char *option (const struct launch *l, const char *name)
{
    return command_option (l->cmd, l->argv, name);
}

static const char *tool_name (const struct launch *l)
{
    static const char *const name[] = {"", "torchrun", "accelerate",
                                       "deepspeed"};

    return name[l->cmd->tool];
}

/* The user takes each task for a node: "--nnodes=8" on 8 tasks. */
static bool tasks_are_nodes (const struct launch *l)
{
    return l->size > l->nodes && l->cmd->nnodes == l->size;
}

static int check_several_nodes (const struct launch *l, struct rv_error *err)
{
    if (option (l, "standalone"))
        return error_set (err, RV_EINVAL,
                          "--standalone stays on one node, and this step has "
                          "%u; leave it out, or ask for one node (-N1)",
                          l->nodes);
    if (l->cmd->tool == COMMAND_ACCELERATE && option (l, "num-machines")
        && !option (l, "machine-rank"))
        return error_set (err, RV_EINVAL,
                          "accelerate --num_machines without --machine_rank "
                          "makes every node the first; leave it out, the %u "
                          "nodes are told by variables",
                          l->nodes);
    if (l->cmd->tool == COMMAND_DEEPSPEED && !option (l, "no-ssh")
        && !option (l, "hostfile") && !option (l, "launcher"))
        return error_set (err, RV_EINVAL,
                          "the deepspeed command learns of nodes from its "
                          "arguments alone and would train on each of the %u "
                          "by itself; use 'torchrun %s', or python with one "
                          "task a GPU",
                          l->nodes,
                          l->cmd->program >= 0
                              ? base_name (l->argv[l->cmd->program])
                              : "SCRIPT");
    return RV_OK;
}

int launch_check (const struct launch *l, struct rv_error *err)
{
    if (l->cmd->tool == COMMAND_NO_TOOL)
        return RV_OK;
    if (l->size > l->nodes && !tasks_are_nodes (l))
        return error_set (err, RV_EINVAL,
                          "%s starts the processes of a node itself, and this "
                          "step has %u tasks on %u node%s; ask for one a node "
                          "(srun --ntasks-per-node=1)",
                          tool_name (l), l->size, l->nodes,
                          l->nodes == 1 ? "" : "s");
    return l->nodes > 1 ? check_several_nodes (l, err) : RV_OK;
}

uint32_t launch_processes (const struct command *cmd, uint32_t visible)
{
    return cmd->nproc ? cmd->nproc : visible ? visible : 1;
}

/* All that launch_env may have written, here or in the step before. */
static const char *const ours[] = {
    "PET_NNODES",      "PET_NODE_RANK",   "PET_NPROC_PER_NODE",
    "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_LOCAL_ADDR",
    "PET_RDZV_ID",     "PET_RDZV_CONF",   "PET_RDZV_ENDPOINT",
};

static int set (struct envv *env, const char *name, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

static int set (struct envv *env, const char *name, const char *fmt, ...)
{
    char text[160];
    va_list ap;

    if (envv_get (env, name))
        return 0;
    va_start (ap, fmt);
    vsnprintf (text, sizeof (text), fmt, ap);
    va_end (ap);
    return envv_set (env, name, text);
}

/* The endpoint of a rendezvous; an IPv6 address needs brackets there. */
static int set_endpoint (struct envv *env)
{
    const char *addr = envv_get (env, "MASTER_ADDR"),
               *port = envv_get (env, "MASTER_PORT");
    bool v6 = addr && strchr (addr, ':');

    if (!addr || !port)
        return 0;
    return set (env, "PET_RDZV_ENDPOINT", "%s%s%s:%s", v6 ? "[" : "", addr,
                v6 ? "]" : "", port);
}

/* Host election by name goes wrong where a node has several (pytorch/pytorch
 * #73656, #67547), so every node is told. What the user says of the endpoint
 * stands alone. */
static int set_c10d (const struct launch *l, struct envv *env)
{
    if (option (l, "rdzv-endpoint") || envv_get (env, "PET_RDZV_ENDPOINT"))
        return 0;
    return set_endpoint (env)
           || set (env, "PET_RDZV_CONF", "is_host=%d", l->rank == 0)
           || set (env, "PET_RDZV_ID", "%" PRIu32 ".%" PRIu32 ".%" PRIu32,
                   l->job_id, l->step_id, l->restart);
}

static int set_static (const struct launch *l, struct envv *env)
{
    const char *addr = envv_get (env, "MASTER_ADDR"),
               *port = envv_get (env, "MASTER_PORT");

    return (addr && set (env, "PET_MASTER_ADDR", "%s", addr))
           || (port && set (env, "PET_MASTER_PORT", "%s", port))
           /* accelerate puts a port of its own in the place of the last */
           || (l->cmd->tool == COMMAND_ACCELERATE && !option (l, "num-machines")
               && !option (l, "main-process-ip") && set_endpoint (env));
}

int launch_env (const struct launch *l, bool stale, struct envv *env)
{
    const char *backend = option (l, "rdzv-backend");
    bool each = tasks_are_nodes (l);

    for (size_t i = 0; stale && i < sizeof (ours) / sizeof (ours[0]); i++)
        if (envv_set (env, ours[i], NULL))
            return -1;
    if (l->cmd->tool == COMMAND_NO_TOOL || l->cmd->tool == COMMAND_DEEPSPEED)
        return 0;
    if (set (env, "PET_NNODES", "%u", each ? l->size : l->nodes)
        || set (env, "PET_NODE_RANK", "%u", each ? l->rank : l->node)
        || set (env, "PET_NPROC_PER_NODE", "%u", l->processes)
        /* torchrun advertises its host's full name otherwise, which may be
         * unknown elsewhere (pytorch/pytorch#150532, #85300) */
        || (l->local_addr[0]
            && set (env, "PET_LOCAL_ADDR", "%s", l->local_addr)))
        return -1;
    if (!backend)
        backend = envv_get (env, "PET_RDZV_BACKEND");
    if (!backend || !strcmp (backend, "static"))
        return set_static (l, env);
    return strcmp (backend, "c10d") ? 0 : set_c10d (l, env);
}
