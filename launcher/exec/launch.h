/* SPDX-License-Identifier: Apache-2.0
 * launch.h - commands that start the processes of a node themselves: torchrun,
 * accelerate, deepspeed.
 *
 * They get one task a node and are told the rest by variables, never by words
 * on their command line. torchrun reads PET_NAME as the default of --name
 * (torch/distributed/argparse_util.py), so the user's own arguments win;
 * accelerate hands to torchrun's parser what it does not know itself
 * (accelerate/commands/launch.py), so the same variables serve it; the
 * deepspeed command reads none (deepspeed/launcher/runner.py). */
#ifndef RV_EXEC_LAUNCH_H
#define RV_EXEC_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "exec/envv.h"
#include "plan/command.h"

struct launch {
    const struct command *cmd;
    char *const *argv;
    uint32_t rank, size, node, nodes; /* of the step's tasks */
    uint32_t processes;               /* to start on this node */
    uint32_t job_id, step_id, restart;
    const char *local_addr; /* numeric, of this node; "" = unknown */
};

/* launch_check - can the command run on a step of this layout? What the ranks
 * are told by variables does for one task a node, unless the user counts each
 * task as a node by --nnodes. RV_EINVAL with what would work. Any command that
 * is no such tool is fine. */
int launch_check (const struct launch *l, struct rv_error *err);

/* launch_processes - how many processes the tool will start on this node, as
 * far as its command line tells; else [visible]. At least 1. */
uint32_t launch_processes (const struct command *cmd, uint32_t visible);

/* launch_env - add the tool's variables to [env], which holds RV_STEP of this
 * step, MASTER_ADDR and MASTER_PORT already.
 *   stale   the tool's variables that stand there are of another step
 * What the user set stays. Returns 0, -1 when out of memory. */
int launch_env (const struct launch *l, bool stale, struct envv *env);

#endif
