/* SPDX-License-Identifier: Apache-2.0
 * cmd.c - the table of commands, and how commands report a failure */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "cmd.h"

#include <getopt.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cmd_job.h"
#include "jsonout.h"
#include "sandbox/sandbox.h"

/* One line a command, in the order of `rv --help`. */
static const struct cmd *const table[] = {
    &cmd_run,     &cmd_up,      &cmd_ps,      &cmd_logs,       &cmd_stop,
    &cmd_status,  &cmd_cost,    &cmd_attach,  &cmd_forward,    &cmd_gpu,
    &cmd_env,     &cmd_doctor,  &cmd_sandbox, &cmd_completion, &cmd_help_about,
    &cmd_version, &cmd_segment,
};
#define N_TABLE (sizeof (table) / sizeof (table[0]))

const struct cmd *cmd_find (const char *name)
{
    for (size_t i = 0; i < N_TABLE; i++)
        if (!strcmp (table[i]->name, name))
            return table[i];
    return NULL;
}

/* Levenshtein's distance; names are short, longer ones count as far away. */
static size_t distance (const char *a, const char *b)
{
    enum { MAX = 32 };
    size_t row[MAX + 1], la = strlen (a), lb = strlen (b);

    if (la > MAX || lb > MAX)
        return MAX;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);

            diagonal = row[j];
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return row[lb];
}

const struct cmd *cmd_nearest (const char *name)
{
    const struct cmd *nearest = NULL;
    size_t best = 3, len = strlen (name);

    for (size_t i = 0; i < N_TABLE; i++) {
        size_t d = table[i]->summary ? distance (name, table[i]->name) : best;

        /* "ps" is two edits away from every word of two letters */
        if (d < best && d < len) {
            best = d;
            nearest = table[i];
        }
    }
    return nearest;
}

void cmd_list (FILE *f)
{
    for (size_t i = 0; i < N_TABLE; i++)
        if (table[i]->summary)
            fprintf (f, "  %-10s %s\n", table[i]->name, table[i]->summary);
}

void cmd_names (char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < N_TABLE && used < size; i++)
        if (table[i]->summary)
            used += (size_t)snprintf (buf + used, size - used, "%s%s",
                                      i ? ", " : "", table[i]->name);
}

const struct cmd *cmd_at (size_t i)
{
    return i < N_TABLE ? table[i] : NULL;
}

int cmd_unknown (const struct cmd_ctx *ctx, const char *name)
{
    const struct cmd *near = cmd_nearest (name);
    char names[256], hint[320];

    cmd_names (names, sizeof (names));
    snprintf (hint, sizeof (hint), "%s%s%sthis version has: %s",
              near ? "did you mean '" : "", near ? near->name : "",
              near ? "'? " : "", names);
    return cmd_fail (ctx, CMD_USAGE, hint, "there is no command '%s'", name);
}

int cmd_help (const struct cmd_ctx *ctx)
{
    fputs (ctx->cmd->usage, stdout);
    return CMD_OK;
}

void cmd_look_json (struct cmd_ctx *ctx, int argc, char *const argv[])
{
    for (int i = 1; i < argc && strcmp (argv[i], "--"); i++)
        ctx->json = ctx->json || !strcmp (argv[i], "--json");
}

enum { OPTIONS_MAX = 16 };

int cmd_options (struct cmd_ctx *ctx, int argc, char **argv, const char *shorts,
                 const struct option *longs, const char *doing,
                 int (*take) (struct cmd_ctx *ctx, int c, const char *value,
                              void *arg),
                 void *arg, bool *ret_done)
{
    struct option all[OPTIONS_MAX + 3] = {
        {"json", no_argument, NULL, 'J'},
        {"help", no_argument, NULL, 'h'},
    };
    char letters[OPTIONS_MAX + 3];
    int c, status;

    for (size_t i = 0; i < OPTIONS_MAX && longs[i].name; i++)
        all[i + 2] = longs[i];
    snprintf (letters, sizeof (letters), "%sh", shorts);
    cmd_look_json (ctx, argc, argv);
    optind = 0;
    opterr = 0;
    *ret_done = true;
    while ((c = getopt_long (argc, argv, letters, all, NULL)) != -1) {
        if (c == 'h')
            return cmd_help (ctx);
        if (c == '?')
            return cmd_usage_error (ctx,
                                    "cannot %s: there is no option '%.64s', or "
                                    "its value is missing",
                                    doing, argv[optind - 1]);
        if (c != 'J' && (status = take (ctx, c, optarg, arg)) != CMD_OK)
            return status;
    }
    *ret_done = false;
    return CMD_OK;
}

int cmd_plain_options (struct cmd_ctx *ctx, int *argc, char **argv,
                       const char *verb, bool *ret_done)
{
    int words = 1;

    cmd_look_json (ctx, *argc, argv);
    *ret_done = true;
    for (int i = 1; i < *argc; i++)
        if (!strcmp (argv[i], "--help") || !strcmp (argv[i], "-h"))
            return cmd_help (ctx);
    for (int i = 1; i < *argc; i++) {
        if (argv[i][0] != '-')
            argv[words++] = argv[i];
        else if (strcmp (argv[i], "--json"))
            return cmd_usage_error (ctx, "cannot %s: there is no option '%s'",
                                    verb, argv[i]);
    }
    *argc = words;
    *ret_done = false;
    return CMD_OK;
}

static int vfail (const struct cmd_ctx *ctx, int status, const char *hint,
                  const char *fmt, va_list ap)
    __attribute__ ((format (printf, 4, 0)));

static int vfail (const struct cmd_ctx *ctx, int status, const char *hint,
                  const char *fmt, va_list ap)
{
    struct rv_error err;
    json_t *json;

    error_vformat (err.text, sizeof (err.text), fmt, ap);
    if (!ctx->json) {
        fprintf (stderr, "rv: %s%s%s\n", err.text, hint ? "; " : "",
                 hint ? hint : "");
        return status;
    }
    json = json_pack ("{s:s, s:i, s:o, s:o}", "schema", "rv.error/1", "status",
                      status, "message", jsonout_text (err.text), "hint",
                      jsonout_text (hint));
    if (jsonout_print (json))
        fprintf (stderr, "rv: %s\n", err.text);
    return status;
}

int cmd_fail (const struct cmd_ctx *ctx, int status, const char *hint,
              const char *fmt, ...)
{
    va_list ap;

    va_start (ap, fmt);
    status = vfail (ctx, status, hint, fmt, ap);
    va_end (ap);
    return status;
}

int cmd_usage_error (const struct cmd_ctx *ctx, const char *fmt, ...)
{
    char hint[64];
    va_list ap;
    int status;

    snprintf (hint, sizeof (hint), "see 'rv%s%s --help'", ctx->cmd ? " " : "",
              ctx->cmd ? ctx->cmd->name : "");
    va_start (ap, fmt);
    status = vfail (ctx, CMD_USAGE, hint, fmt, ap);
    va_end (ap);
    return status;
}
