/* SPDX-License-Identifier: Apache-2.0
 * cmd_env.c - rv env: the variables that only the ranks of the user's jobs see
 *
 * Values come from standard input or a file, never from the command line,
 * which every user of the machine can read, and are never printed. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

#include "cmd_job.h"
#include "jsonout.h"
#include "plan/fsio.h"
#include "secrets.h"

static const char usage[] =
    "usage: rv env set [--raw] NAME     value from standard input\n"
    "       rv env list\n"
    "       rv env rm NAME...\n"
    "       rv env import FILE          NAME=VALUE lines; -: standard input\n"
    "Variables that rv run gives to the ranks of your jobs, and to nobody\n"
    "else. They stand in ~/.config/rv/env, which you alone can read.\n"
    "      --raw    keep the newline at the end of the value\n"
    "      --json   one JSON object on standard output\n"
    "      --help   this text\n";

/* What one call works on. */
struct work {
    struct cmd_ctx *ctx;
    char *path;
    struct envfile env;
    json_t *changed; /* names */
    bool raw, changes;
    int lock; /* -1 until load */
};

static int fail (const struct work *w, const char *what,
                 const struct rv_error *err)
{
    return cmd_fail (w->ctx, CMD_FAILED, NULL, "cannot %s: %s", what,
                     err->text);
}

/* The last thing before a change: nobody waits for us while we wait for a
 * value. */
static int load (struct work *w, struct rv_error *err)
{
    int rc = w->changes ? secrets_lock (w->path, &w->lock, err) : RV_OK;

    if (rc == RV_OK)
        rc = secrets_read (w->path, &w->env, err);
    return rc == RV_ENOTFOUND ? RV_OK : rc;
}

/* One line of a terminal that does not show it. ^C gives up. */
static int ask (const char *name, char **ret, size_t *ret_len,
                struct rv_error *err)
{
    struct termios was, quiet;
    char *line = NULL;
    size_t size = 0;
    ssize_t n;

    if (tcgetattr (STDIN_FILENO, &was))
        return error_set (err, RV_EIO, "the terminal: %s", strerror (errno));
    quiet = was;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ISIG);
    /* Before the question: what is typed behind that must not be seen. */
    tcsetattr (STDIN_FILENO, TCSAFLUSH, &quiet);
    fprintf (stderr, "value of %s (not shown): ", name);
    fflush (stderr);
    n = getline (&line, &size, stdin);
    tcsetattr (STDIN_FILENO, TCSAFLUSH, &was);
    fputc ('\n', stderr);
    if (n > 0 && line[n - 1] == '\n' && !strchr (line, '\003')) {
        *ret = line;
        *ret_len = (size_t)n;
        return RV_OK;
    }
    envfile_wipe (line, n > 0 ? (size_t)n : 0);
    /* A terminal cuts lines at 4095 bytes. */
    return error_set (err, RV_EIO,
                      n > 4000 ? "the line is too long for a terminal; put it "
                                 "into a file of yours: rv env set %s <FILE"
                               : "no value of '%s' was given",
                      name);
}

static int read_value (const struct work *w, const char *name, char **ret,
                       struct rv_error *err)
{
    bool terminal = isatty (STDIN_FILENO);
    char *value = NULL;
    size_t len = 0;
    int rc = terminal ? ask (name, &value, &len, err)
                      : fsio_read_fd (STDIN_FILENO, "standard input",
                                      ENVFILE_MAX, &value, &len, err);

    if (rc)
        return rc;
    if (memchr (value, '\0', len)) {
        envfile_wipe (value, len);
        return error_set (err, RV_EINVAL,
                          "a NUL byte is in it, which no variable can have");
    }
    if (len && value[len - 1] == '\n' && (terminal || !w->raw))
        value[len - 1] = '\0';
    *ret = value;
    return RV_OK;
}

static int do_set (struct work *w, int argc, char **argv)
{
    char what[96], *value = NULL;
    struct rv_error err = {0};
    const char *equals;
    int rc;

    if (argc != 1)
        return cmd_usage_error (w->ctx, "cannot set a variable: name one");
    if ((equals = strchr (argv[0], '=')))
        return cmd_fail (w->ctx, CMD_USAGE,
                         "give it on standard input: rv env set NAME <FILE",
                         "cannot set '%.*s': every user of this machine can "
                         "read a value on a command line",
                         (int)(equals - argv[0] > 64 ? 64 : equals - argv[0]),
                         argv[0]);
    snprintf (what, sizeof (what), "set '%.64s'", argv[0]);
    if (envfile_check (argv[0], &err))
        return cmd_usage_error (w->ctx, "cannot %s: %s", what, err.text);
    if ((rc = read_value (w, argv[0], &value, &err)) == RV_OK
        && (rc = load (w, &err)) == RV_OK)
        rc = envfile_set (&w->env, argv[0], value, &err);
    envfile_wipe (value, value ? strlen (value) : 0);
    if (rc)
        return fail (w, what, &err);
    json_array_append_new (w->changed, json_string (argv[0]));
    return CMD_OK;
}

static int do_rm (struct work *w, int argc, char **argv)
{
    struct rv_error err = {0};

    if (argc == 0)
        return cmd_usage_error (w->ctx, "cannot remove a variable: name it");
    if (load (w, &err))
        return fail (w, "remove variables", &err);
    for (int i = 0; i < argc; i++) {
        if (envfile_unset (&w->env, argv[i], &err))
            return cmd_fail (w->ctx, CMD_FAILED,
                             "'rv env list' names those that there are",
                             "cannot remove '%.64s': %s", argv[i], err.text);
        json_array_append_new (w->changed, json_string (argv[i]));
    }
    return CMD_OK;
}

static int read_import (const char *path, struct envfile *ret,
                        struct rv_error *err)
{
    bool input = !strcmp (path, "-");
    const char *name = input ? "standard input" : path;
    char *text = NULL;
    size_t len = 0;
    int rc =
        input ? fsio_read_fd (STDIN_FILENO, name, ENVFILE_MAX, &text, &len, err)
              : fsio_read (path, ENVFILE_MAX, &text, &len, err);

    if (rc == RV_OK)
        rc = envfile_parse (text, len, name, ret, err);
    envfile_wipe (text, len);
    return rc;
}

static int do_import (struct work *w, int argc, char **argv)
{
    struct rv_error err = {0};
    struct envfile from = {0};
    int rc;

    if (argc != 1)
        return cmd_usage_error (w->ctx, "cannot import: name one file");
    if ((rc = read_import (argv[0], &from, &err)) == RV_OK)
        rc = load (w, &err);
    for (size_t i = 0; rc == RV_OK && i < from.n; i++)
        if (!(rc = envfile_set (&w->env, from.var[i].name, from.var[i].value,
                                &err)))
            json_array_append_new (w->changed, json_string (from.var[i].name));
    envfile_fini (&from);
    return rc ? fail (w, "import", &err) : CMD_OK;
}

static int do_list (struct work *w, int argc, char **argv)
{
    struct rv_error err = {0};

    (void)argv;
    if (argc)
        return cmd_usage_error (w->ctx, "cannot list: no word stands behind");
    return load (w, &err) ? fail (w, "list the variables", &err) : CMD_OK;
}

static int print_json (const struct work *w, const char *verb)
{
    json_t *list = json_array ();

    for (size_t i = 0; i < w->env.n; i++)
        json_array_append_new (list, json_pack ("{s:s, s:s}", "name",
                                                w->env.var[i].name, "value",
                                                "********"));
    return jsonout_print (json_pack ("{s:s, s:s, s:o, s:O, s:o}", "schema",
                                     "rv.env/1", "action", verb, "file",
                                     jsonout_text (w->path), "changed",
                                     w->changed, "variables", list))
               ? CMD_FAILED
               : CMD_OK;
}

static int print (const struct work *w, const char *verb)
{
    if (w->ctx->json)
        return print_json (w, verb);
    if (!strcmp (verb, "list"))
        for (size_t i = 0; i < w->env.n; i++)
            printf ("%s=********\n", w->env.var[i].name);
    for (size_t i = 0; i < json_array_size (w->changed); i++)
        printf ("%s %s\n", strcmp (verb, "rm") ? "set" : "removed",
                json_string_value (json_array_get (w->changed, i)));
    return CMD_OK;
}

static const struct verb {
    const char *name;
    bool changes;
    int (*run) (struct work *w, int argc, char **argv);
} verbs[] = {
    {"set", true, do_set},
    {"list", false, do_list},
    {"rm", true, do_rm},
    {"import", true, do_import},
};

static int do_verb (struct work *w, const struct verb *verb, int argc,
                    char **argv)
{
    struct rv_error err = {0};
    int status;

    if (secrets_path (&w->path, &err))
        return fail (w, "find your variables", &err);
    w->changes = verb->changes;
    status = verb->run (w, argc, argv);
    if (status == CMD_OK && w->changes
        && secrets_write (w->path, &w->env, &err))
        status = fail (w, "change your variables", &err);
    if (w->lock >= 0)
        close (w->lock);
    return status == CMD_OK ? print (w, verb->name) : status;
}

static int take_raw (struct cmd_ctx *ctx, int c, const char *value, void *arg)
{
    (void)ctx;
    (void)c;
    (void)value;
    ((struct work *)arg)->raw = true;
    return CMD_OK;
}

static int cmd_env_run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct option options[] = {
        {"raw", no_argument, NULL, 'r'},
        {NULL, 0, NULL, 0},
    };
    struct work w = {.ctx = ctx, .lock = -1};
    const struct verb *verb = NULL;
    bool done;
    int status = cmd_options (ctx, argc, argv, "", options, "use env", take_raw,
                              &w, &done);

    if (done)
        return status;
    for (size_t i = 0; optind < argc && i < sizeof (verbs) / sizeof (*verbs);
         i++)
        if (!strcmp (argv[optind], verbs[i].name))
            verb = &verbs[i];
    if (!verb)
        return cmd_usage_error (ctx,
                                optind < argc
                                    ? "cannot use env: it has set, list, "
                                      "rm and import, not '%.64s'"
                                    : "cannot use env: say set, list, rm "
                                      "or import",
                                argv[optind]);
    w.changed = json_array ();
    status = do_verb (&w, verb, argc - optind - 1, argv + optind + 1);
    json_decref (w.changed);
    envfile_fini (&w.env);
    free (w.path);
    return status;
}

const struct cmd cmd_env = {
    .name = "env",
    .summary = "variables that your jobs alone see: tokens, keys",
    .usage = usage,
    .json = true,
    .local = true,
    .run = cmd_env_run,
};
