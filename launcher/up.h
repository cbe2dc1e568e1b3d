/* SPDX-License-Identifier: Apache-2.0
 * up.h - rv up: a plan of `rv run` as an allocation with a shell in it. */
#ifndef RV_UP_H
#define RV_UP_H

#include <stdint.h>

#include "cmd.h"
#include "plan/envfile.h"
#include "run_opts.h"

/* Lines of help; static. */
extern const char up_help[];

/* up_words - argv of `rv up` with "--" and the user's shell behind it, so that
 * run_opts_parse finds a command. NULL when out of memory. */
char **up_words (int argc, char *argv[]);

/* up_command - after run_opts_parse of those argc + 2 words: leave the shell,
 * or the command that the user gave. RV_EINVAL for options of rv run that have
 * no meaning here. */
int up_command (struct run_opts *opts, struct rv_error *err);

/* up_argv - turn sbatch's words into salloc's, with the srun of the shell
 * behind them.
 *   batch   of submit_argv, taken
 *   tasks_per_node   of an srun that is typed in the shell
 *   step    words for srun, NULL-terminated; NULL = none
 * NULL when out of memory. */
char **up_argv (char **batch_take, uint32_t tasks_per_node, char *const step[],
                char *const command[]);

/* up_exec - become salloc, with the user's secrets in the shell's environment.
 * Returns an exit status when that failed; it has been printed. */
int up_exec (const struct cmd_ctx *ctx, char *const argv[],
             const struct envfile *secrets);

#endif
