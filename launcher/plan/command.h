/* SPDX-License-Identifier: Apache-2.0
 * command.h - what a command line tells about the job that runs it.
 *
 * The command itself travels unchanged; this only looks at it: does it start
 * the processes of a node itself (torchrun, accelerate, deepspeed, python -m
 * torch.distributed.run), how many a node, and what to call the job.
 *
 * Wrappers before the program are looked through: env [NAME=VALUE], uv run,
 * poetry run, conda run, time, nice, nohup, numactl, nsys profile and the
 * like, with their options and the values of these. */
#ifndef RV_PLAN_COMMAND_H
#define RV_PLAN_COMMAND_H

#include <stdint.h>

#include "plan/error.h"

#define COMMAND_NAME_MAX 64 /* of a job name, with its NUL */

enum command_launch {
    COMMAND_PER_GPU,  /* one task a GPU */
    COMMAND_PER_NODE, /* one task a node: the command starts the others */
};

/* Whose command line it is, where the command starts the others. */
enum command_tool {
    COMMAND_NO_TOOL,
    COMMAND_TORCHRUN, /* also torch.distributed.run and .launch */
    COMMAND_ACCELERATE,
    COMMAND_DEEPSPEED,
};

struct command {
    enum command_launch launch;
    enum command_tool tool;
    int options, options_end; /* argv[options .. options_end): the tool's */
    int program; /* index of what runs in the end: a program, or the script of
                    an interpreter or tool; -1: a module, or text on the line */
    uint32_t nproc;  /* --nproc_per_node=K; 0 = not given, or not a number */
    uint32_t nnodes; /* --nnodes=N; 0 = not given, or a range */
    char name[COMMAND_NAME_MAX]; /* never empty; [a-z0-9-], at most 20 */
};

/* command_scan - look at a command.
 *   argc   > 0
 *   argv   (argc) borrowed for the call
 *   ret    written on success
 * RV_EINVAL when --nproc_per_node or --nnodes has a value that no launcher
 * takes (0, "2x"). */
int command_scan (int argc, char *const argv[], struct command *ret,
                  struct rv_error *err);

/* command_option - what an option of the tool's own says, the last time it stands there.
 *   argv   what command_scan looked at
 *   name   without "--" and with '-' in it, as "rdzv-backend"
 * Returns its value, the next word for one without '=' (so a flag gives some
 * text too), or NULL when it is not there. */
const char *command_option (const struct command *cmd, char *const argv[],
                            const char *name);

/* command_name_check - is [name] fit for a job, a file name and a terminal?
 * Letters, digits, '.', '_', '-'; the first a letter or digit; at most 63; not
 * digits alone, because a number names a job id. RV_EINVAL says which
 * character is wrong and offers a name that would do. */
int command_name_check (const char *name, struct rv_error *err);

#endif
