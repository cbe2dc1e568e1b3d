/* SPDX-License-Identifier: Apache-2.0
 * cmd.h - the table of rv's commands and what all of them share.
 *
 * A command is one file launcher/cmd_NAME.c (or a folder) with one function
 * and one line in the table of cmd.c. It parses its own options, `--help`
 * (cmd_help) and `--json` among them; main.c takes the global ones that stand
 * before the command. Commands run in one thread and may keep memory until the
 * process ends. */
#ifndef RV_CMD_H
#define RV_CMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "plan/error.h"

/* Exit statuses of rv; `run -f` and `attach` add the command's own. */
enum cmd_exit {
    CMD_OK = 0,
    CMD_FAILED = 1,
    CMD_USAGE = 2,
    CMD_NO_CONTROLLER = 3, /* none, or it does not answer */
    CMD_NO_JOB = 4,        /* no such job, or ambiguous */
    CMD_UNMET = 5,         /* cannot be met as asked */
    CMD_NEVER_STARTED = 125,
};

struct cmd;

struct cmd_ctx {
    const struct cmd *cmd; /* the command that runs, NULL before it is known */
    bool json;             /* `--json` was seen: stdout is for JSON alone */
};

struct cmd {
    const char *name;    /* "sandbox" */
    const char *summary; /* half a line for the list of `rv --help`; NULL: it
                            is for rv-exec, and not listed */
    const char *usage;   /* lines of `rv NAME --help`, ending in a newline */
    bool json;           /* takes --json */
    bool local;          /* needs no cluster */
    bool wraps;          /* words of another command follow its options, so it
                            refuses -M itself */

    /* run (required) - do it. argv[0] is the command's name; argv ends in
     * NULL. Returns an exit status; what went wrong has been printed. */
    int (*run) (struct cmd_ctx *ctx, int argc, char **argv);
};

/* cmd_find - the command of that exact name, or NULL. */
const struct cmd *cmd_find (const char *name);

/* cmd_nearest - the command whose name is closest to [name], or NULL when
 * none is near enough to be a slip of the fingers. */
const struct cmd *cmd_nearest (const char *name);

/* cmd_list - write the table, one command a line, to [f]. */
void cmd_list (FILE *f);

/* cmd_names - "sandbox, run, ps" into [buf]; cut where it ends. */
void cmd_names (char *buf, size_t size);

/* cmd_at - the table's [i]th command; NULL behind the last. */
const struct cmd *cmd_at (size_t i);

/* cmd_overview - write what `rv help` prints to [f]. */
void cmd_overview (FILE *f);

/* cmd_unknown - report that there is no command [name]. Returns CMD_USAGE. */
int cmd_unknown (const struct cmd_ctx *ctx, const char *name);

/* cmd_help - write usage of ctx->cmd to stdout. Returns CMD_OK. */
int cmd_help (const struct cmd_ctx *ctx);

/* cmd_look_json - set ctx->json where "--json" is among the words before "--":
 * it decides how a bad option is reported, wherever that stands. For commands
 * whose words are all their own. */
void cmd_look_json (struct cmd_ctx *ctx, int argc, char *const argv[]);

struct option;

/* cmd_options - read a command's options with getopt_long(3): --help (and -h)
 * prints the usage, --json is noted in [ctx] wherever it stands. Afterwards
 * optind is the first word.
 *   shorts     letters as getopt takes them, without h
 *   longs      ends in zeros; has no --json and no --help
 *   doing      "forward": stands in messages
 *   take       gets each other option and its value (NULL: none) and returns
 *              CMD_OK, or a status after it has told why; NULL for none
 *   ret_done   the command is over, and the value is its exit status */
int cmd_options (struct cmd_ctx *ctx, int argc, char **argv, const char *shorts,
                 const struct option *longs, const char *doing,
                 int (*take) (struct cmd_ctx *ctx, int c, const char *value,
                              void *arg),
                 void *arg, bool *ret_done);

/* cmd_plain_options - for commands that take --json and --help alone: read
 * them, wherever they stand, and leave the words.
 *   argc       words that are left, argv[0] among them
 *   verb       "tell": stands in messages
 *   ret_done   the command is over, and the value is its exit status */
int cmd_plain_options (struct cmd_ctx *ctx, int *argc, char **argv,
                       const char *verb, bool *ret_done);

/* cmd_fail - report one failure, once: "rv: MESSAGE; HINT" on stderr, or with
 * ctx->json an rv.error/1 object on stdout.
 *   status   an exit status, returned
 *   hint     what would work; NULL for none
 *   fmt      "cannot <verb> <object>: <why>" */
int cmd_fail (const struct cmd_ctx *ctx, int status, const char *hint,
              const char *fmt, ...) __attribute__ ((format (printf, 4, 5)));

/* cmd_usage_error - cmd_fail with CMD_USAGE and the hint "see 'rv NAME
 * --help'". */
int cmd_usage_error (const struct cmd_ctx *ctx, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));

#endif
