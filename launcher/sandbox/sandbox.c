/* SPDX-License-Identifier: Apache-2.0
 * sandbox.c - rv sandbox: options, and what each verb prints */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/sandbox.h"

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/duration.h"
#include "proc.h"
#include "sandbox/folder.h"
#include "sandbox/state.h"
#include "sandbox/updown.h"
#include "where.h"

struct options {
    const char *dir;
    char dir_words[SANDBOX_MAX_DIR + 8]; /* " --dir D", "" for the default */
    struct sandbox_wish wish;
    bool shaped; /* an option that only `up` takes was given */
    bool help;
};

static const char usage[] =
    "Usage: rv sandbox up [--nodes N] [--gpus N] [--mig N] [--cpus N] [--type "
    "T]\n"
    "                     [--made-up] [--no-plugin] [--cgroup] [--accounting]\n"
    "                     [--dir D] [--json]\n"
    "       rv sandbox down|status|env [--dir D] [--json]\n"
    "A private, real Slurm on this machine, for you alone.\n"
    "\n"
    "  up           start it; when it is up already, that is all right\n"
    "  down         end its jobs and daemons, remove its folder\n"
    "  status       tell whether it is up (0) or not (3)\n"
    "  env          lines for a shell: eval \"$(rv sandbox env)\"\n"
    "\n"
    "  --nodes N    virtual nodes n1..nN (2)\n"
    "  --gpus N     GPUs of all nodes together (4, or the machine's own)\n"
    "  --mig N      MIG slices of type " SANDBOX_MIG
    ", made up like the GPUs (0)\n"
    "  --cpus N     CPUs a node claims (its share, at least one a GPU)\n"
    "  --type T     type of the GPUs (a100, or the machine's own)\n"
    "  --made-up    no real GPUs even where there are some\n"
    "  --no-plugin  without spank_rv.so\n"
    "  --cgroup     control groups give a job its own GPUs and memory alone\n"
    "  --accounting with slurmdbd, its database, an account and limits\n"
    "  --dir D      its folder (${XDG_RUNTIME_DIR:-/tmp}/rv-sandbox-UID)\n"
    "  --json       one JSON object on stdout\n";

/* ---- what is printed ---- */

static json_t *daemons_json (const struct sandbox *sb)
{
    json_t *list = json_array ();

    for (int i = 0; i < sb->n_daemons; i++)
        json_array_append_new (
            list, json_pack ("{s:s, s:i, s:b}", "name", sb->daemon[i].name,
                             "pid", (int)sb->daemon[i].pid, "alive",
                             sandbox_alive (sb, &sb->daemon[i])));
    return list;
}

static json_t *env_json (const char *conf, const char *path)
{
    return json_pack ("{s:s?, s:s?}", "SLURM_CONF", conf, "PATH", path);
}

/* PATH with the folder of this program first, malloc'ed, so that rv and rv-exec
 * are found. */
static int own_path (char **ret_path, struct rv_error *err)
{
    const char *path = getenv ("PATH");
    char *self = NULL;
    size_t len;
    int rc = where_self (&self, err);

    if (rc)
        return rc;
    path = path && *path ? path : "/usr/local/bin:/usr/bin:/bin";
    len = strlen (self);
    if (!strncmp (path, self, len) && (path[len] == ':' || !path[len]))
        *ret_path = strdup (path);
    else if (asprintf (ret_path, "%s:%s", self, path) < 0)
        *ret_path = NULL;
    free (self);
    return *ret_path ? RV_OK : error_set (err, RV_ENOMEM, "out of memory");
}

/* Every key always; what is not known is null. [sb] NULL: nothing is there. */
static json_t *sandbox_json (const char *dir, const char *state,
                             const struct sandbox *sb, double up_s)
{
    json_t *all = json_pack ("{s:s, s:s, s:s}", "schema", "rv.sandbox/1",
                             "state", state, "dir", dir);
    json_t *up = up_s < 0 ? json_null () : json_real (up_s);
    char conf[SANDBOX_MAX_DIR + 16];
    char *path = NULL;

    snprintf (conf, sizeof (conf), "%s/slurm.conf", dir);
    if (sb)
        own_path (&path, NULL);
    json_object_set_new (all, "nodes",
                         sb ? json_integer (sb->nodes) : json_null ());
    json_object_set_new (all, "gpus",
                         sb ? json_integer (sb->gpus) : json_null ());
    json_object_set_new (all, "mig",
                         sb ? json_integer (sb->mig) : json_null ());
    json_object_set_new (all, "cpus_per_node",
                         sb ? json_integer (sb->cpus) : json_null ());
    json_object_set_new (all, "gpu_type",
                         sb && sb->gpus ? json_string (sb->type)
                                        : json_null ());
    json_object_set_new (all, "real_gpus",
                         sb ? json_boolean (sb->real_gpus) : json_null ());
    json_object_set_new (all, "pmix",
                         sb ? json_boolean (sb->pmix) : json_null ());
    json_object_set_new (all, "cgroup",
                         sb ? json_boolean (sb->cgroup) : json_null ());
    json_object_set_new (all, "accounting",
                         sb ? json_boolean (sb->accounting) : json_null ());
    json_object_set_new (all, "plugin",
                         sb && sb->plugin ? json_string (sb->plugin)
                                          : json_null ());
    json_object_set_new (all, "env", env_json (sb ? conf : NULL, path));
    json_object_set_new (all, "daemons",
                         sb ? daemons_json (sb) : json_array ());
    json_object_set_new (all, "up_s", up);
    free (path);
    return all;
}

static int print_json (json_t *all)
{
    int rc = json_dumpf (all, stdout, JSON_COMPACT | JSON_REAL_PRECISION (6));

    json_decref (all);
    return rc || putchar ('\n') == EOF ? CMD_FAILED : CMD_OK;
}

static void print_shape (const struct sandbox *sb)
{
    printf ("%d node%s of %d CPU%s, ", sb->nodes, sb->nodes > 1 ? "s" : "",
            sb->cpus, sb->cpus > 1 ? "s" : "");
    if (sb->gpus)
        printf ("%d %s%s GPU%s", sb->gpus, sb->real_gpus ? "" : "made-up ",
                sb->type, sb->gpus > 1 ? "s" : "");
    else
        printf ("no GPUs");
    if (sb->mig)
        printf (", %d made-up " SANDBOX_MIG " slice%s", sb->mig,
                sb->mig > 1 ? "s" : "");
    printf (", %s, %s%s%s", sb->pmix ? "PMIx" : "no PMIx",
            sb->plugin ? "plugin" : "no plugin",
            sb->cgroup ? ", control groups" : "",
            sb->accounting ? ", accounting" : "");
}

/* ---- finding one ---- */

/* The sandbox of [dir] if it is up. RV_ENOTFOUND none, RV_ESTATE not up. */
static int find_up (const char *dir, struct sandbox *sb, struct rv_error *err)
{
    bool busy = false;
    const char *dead;
    int rc = folder_check (dir, &busy, err);

    if (!rc)
        rc = sandbox_load (dir, sb, err);
    if (rc == RV_ENOTFOUND && busy)
        return error_set (err, RV_ESTATE,
                          "an 'up' or 'down' of the one in %s is at work", dir);
    if (rc == RV_ENOTFOUND)
        return error_set (err, rc, "none is up in %s", dir);
    if (rc || sandbox_is_up (sb, &dead))
        return rc;
    if (busy)
        error_set (err, RV_ESTATE,
                   "an 'up' or 'down' of the one in %s is at work", dir);
    else if (dead)
        error_set (err, RV_ESTATE, "%s of the one in %s does not run", dead,
                   dir);
    else
        error_set (err, RV_ESTATE, "the one in %s has not come up", dir);
    sandbox_fini (sb);
    return RV_ESTATE;
}

int sandbox_use (const char *dir, struct rv_error *err)
{
    char real[SANDBOX_MAX_DIR + 1], conf[SANDBOX_MAX_DIR + 16], *path = NULL;
    struct sandbox sb;
    int rc = folder_resolve (dir, real, err);

    if (rc || (rc = find_up (real, &sb, err)))
        return rc;
    sandbox_fini (&sb);
    if ((rc = own_path (&path, err)))
        return rc;
    snprintf (conf, sizeof (conf), "%s/slurm.conf", real);
    if (setenv ("SLURM_CONF", conf, 1) || setenv ("PATH", path, 1))
        rc = error_set (err, RV_ENOMEM, "out of memory");
    free (path);
    return rc;
}

/* ---- verbs ---- */

static void up_hint (int rc, const struct options *opts, char *ret, size_t size)
{
    switch (rc) {
    case RV_EMISMATCH:
        snprintf (ret, size,
                  "'rv sandbox down%s' ends it, --dir takes another folder",
                  opts->dir_words);
        break;
    case RV_ENOTFOUND:
        snprintf (ret, size, "install it, or see --help");
        break;
    case RV_ENOTSUP:
        snprintf (ret, size, "without --cgroup jobs are not confined");
        break;
    default:
        snprintf (ret, size, "see 'rv sandbox up --help'");
    }
}

static int up_status (int rc)
{
    switch (rc) {
    case RV_EMISMATCH:
    case RV_EINVAL:
    case RV_ENOTSUP:
        return CMD_UNMET;
    case RV_EABORTED:
        return 128 + SIGINT;
    default:
        return CMD_FAILED;
    }
}

static int verb_up (struct cmd_ctx *ctx, const char *dir,
                    const struct options *opts)
{
    long long t0 = proc_now_ms ();
    struct rv_error err = {0};
    struct sandbox sb = {0};
    char hint[SANDBOX_MAX_DIR + 80];
    bool was;
    double s;
    int rc = sandbox_up (dir, &opts->wish, &sb, &was, &err);

    if (rc) {
        up_hint (rc, opts, hint, sizeof (hint));
        return cmd_fail (ctx, up_status (rc), hint,
                         "cannot start the sandbox: %s", err.text);
    }
    s = (double)(proc_now_ms () - t0) / 1000;
    if (ctx->json) {
        rc = print_json (sandbox_json (dir, "up", &sb, was ? -1 : s));
    } else {
        printf ("sandbox %s in %s: ", was ? "was up already" : "up", dir);
        print_shape (&sb);
        if (!was)
            printf (", %.2f s", s);
        printf ("\nuse it: rv --sandbox%s%s COMMAND, or: eval \"$(rv sandbox "
                "env%s)\"\n",
                opts->dir ? "=" : "", opts->dir ? dir : "", opts->dir_words);
    }
    sandbox_fini (&sb);
    return rc;
}

static int verb_down (struct cmd_ctx *ctx, const char *dir,
                      const struct options *opts)
{
    struct rv_error err = {0};
    bool was;
    int rc = sandbox_down (dir, &was, &err);

    (void)opts;
    if (rc)
        return cmd_fail (ctx, CMD_FAILED,
                         rc == RV_ESTATE ? "call it from outside" : NULL,
                         "cannot take the sandbox down: %s", err.text);
    if (ctx->json)
        return print_json (sandbox_json (dir, "down", NULL, -1));
    printf (was ? "sandbox in %s is down and removed\n"
                : "no sandbox in %s, nothing to take down\n",
            dir);
    return CMD_OK;
}

/* "up", "down", "busy" or "broken", NULL with [err] when the folder is no
 * sandbox's; *ret_known: [sb] has what its record says. A look at the lock and
 * one at the record are not one look, so what seems broken is looked at twice:
 * an `up` may have come between. */
static const char *find_state (const char *dir, struct sandbox *sb,
                               bool *ret_known, struct rv_error *err)
{
    bool busy;

    *ret_known = false;
    for (int i = 0; i < 2; i++) {
        int rc = folder_check (dir, &busy, err);

        sandbox_fini (sb);
        *ret_known = !rc && !sandbox_load (dir, sb, NULL);
        if (rc)
            return rc == RV_ENOTFOUND ? "down" : NULL;
        if (*ret_known && sandbox_is_up (sb, NULL))
            return "up";
        if (busy)
            return "busy";
    }
    return "broken";
}

static int verb_status (struct cmd_ctx *ctx, const char *dir,
                        const struct options *opts)
{
    struct rv_error err = {0};
    struct sandbox sb = {0};
    bool known, up;
    const char *state = find_state (dir, &sb, &known, &err);
    int rc = CMD_OK;

    if (!state)
        return cmd_fail (ctx, CMD_FAILED, NULL, "cannot read the sandbox: %s",
                         err.text);
    up = !strcmp (state, "up");
    if (ctx->json) {
        rc = print_json (sandbox_json (dir, state, known ? &sb : NULL, -1));
    } else {
        printf ("sandbox in %s: %s", dir, state);
        if (!strcmp (state, "busy"))
            printf (", an 'up' or 'down' is at work");
        if (!strcmp (state, "broken"))
            printf (", 'rv sandbox up%s' or 'down' cleans it", opts->dir_words);
        puts ("");
        if (known) {
            print_shape (&sb);
            puts ("");
        }
        for (int i = 0; i < sb.n_daemons; i++)
            printf ("  %-10s %7d %s\n", sb.daemon[i].name,
                    (int)sb.daemon[i].pid,
                    sandbox_alive (&sb, &sb.daemon[i]) ? "runs" : "is gone");
    }
    sandbox_fini (&sb);
    return up ? rc : CMD_NO_CONTROLLER;
}

/* 'text', safe for a POSIX shell. */
static void print_quoted (const char *text)
{
    putchar ('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs ("'\\''", stdout);
        else
            putchar (*text);
    }
    putchar ('\'');
}

static int verb_env (struct cmd_ctx *ctx, const char *dir,
                     const struct options *opts)
{
    struct rv_error err = {0};
    struct sandbox sb;
    char conf[SANDBOX_MAX_DIR + 16], *path = NULL;
    char hint[SANDBOX_MAX_DIR + 48];
    int rc = find_up (dir, &sb, &err);

    snprintf (hint, sizeof (hint), "start one with 'rv sandbox up%s'",
              opts->dir_words);
    if (rc)
        return cmd_fail (ctx,
                         rc == RV_ENOTFOUND || rc == RV_ESTATE
                             ? CMD_NO_CONTROLLER
                             : CMD_FAILED,
                         hint, "cannot use the sandbox: %s", err.text);
    if (ctx->json) {
        rc = print_json (sandbox_json (dir, "up", &sb, -1));
    } else if (!(rc = own_path (&path, &err))) {
        snprintf (conf, sizeof (conf), "%s/slurm.conf", dir);
        fputs ("export SLURM_CONF=", stdout);
        print_quoted (conf);
        fputs (" PATH=", stdout);
        print_quoted (path);
        puts ("");
        free (path);
    }
    sandbox_fini (&sb);
    return rc ? CMD_FAILED : CMD_OK;
}

/* ---- options ---- */

enum {
    OPT_NODES = 256,
    OPT_GPUS,
    OPT_CPUS,
    OPT_TYPE,
    OPT_DIR,
    OPT_MIG,
    OPT_MADE_UP,
    OPT_NO_PLUGIN,
    OPT_CGROUP,
    OPT_ACCOUNTING,
    OPT_JSON,
    OPT_HELP,
};

static const struct option long_options[] = {
    {"nodes", required_argument, NULL, OPT_NODES},
    {"gpus", required_argument, NULL, OPT_GPUS},
    {"cpus", required_argument, NULL, OPT_CPUS},
    {"type", required_argument, NULL, OPT_TYPE},
    {"dir", required_argument, NULL, OPT_DIR},
    {"mig", required_argument, NULL, OPT_MIG},
    {"made-up", no_argument, NULL, OPT_MADE_UP},
    {"no-plugin", no_argument, NULL, OPT_NO_PLUGIN},
    {"cgroup", no_argument, NULL, OPT_CGROUP},
    {"accounting", no_argument, NULL, OPT_ACCOUNTING},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, OPT_HELP},
    {0},
};

static int take_count (struct cmd_ctx *ctx, const char *name, int max, int *ret)
{
    struct rv_error err = {0};
    long n;

    if (count_parse (optarg, max, &n, &err))
        return cmd_usage_error (ctx, "--%s: %s", name, err.text);
    *ret = (int)n;
    return CMD_OK;
}

static int take_type (struct cmd_ctx *ctx, struct options *opts)
{
    size_t ok = strspn (optarg, "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

    if (!*optarg || optarg[ok] || strlen (optarg) > 32)
        return cmd_usage_error (ctx,
                                "--type: '%s' is not a GPU type: letters, "
                                "digits and ._- make one",
                                optarg);
    opts->wish.type = optarg;
    return CMD_OK;
}

static int take_option (struct cmd_ctx *ctx, int c, struct options *opts)
{
    opts->shaped =
        opts->shaped || (c != OPT_DIR && c != OPT_JSON && c != OPT_HELP);
    switch (c) {
    case OPT_NODES:
        return take_count (ctx, "nodes", SANDBOX_MAX_NODES, &opts->wish.nodes);
    case OPT_GPUS:
        if (!strcmp (optarg, "0")) {
            opts->wish.gpus = 0;
            return CMD_OK;
        }
        return take_count (ctx, "gpus", SANDBOX_MAX_GPUS, &opts->wish.gpus);
    case OPT_CPUS:
        return take_count (ctx, "cpus", SANDBOX_MAX_CPUS, &opts->wish.cpus);
    case OPT_TYPE:
        return take_type (ctx, opts);
    case OPT_DIR:
        opts->dir = optarg;
        return CMD_OK;
    case OPT_MIG:
        if (!strcmp (optarg, "0")) {
            opts->wish.mig = 0;
            return CMD_OK;
        }
        return take_count (ctx, "mig", SANDBOX_MAX_GPUS, &opts->wish.mig);
    case OPT_MADE_UP:
        opts->wish.made_up = true;
        return CMD_OK;
    case OPT_NO_PLUGIN:
        opts->wish.no_plugin = true;
        return CMD_OK;
    case OPT_CGROUP:
        opts->wish.cgroup = true;
        return CMD_OK;
    case OPT_ACCOUNTING:
        opts->wish.accounting = true;
        return CMD_OK;
    case OPT_JSON:
        ctx->json = true;
        return CMD_OK;
    default:
        opts->help = true;
        return CMD_OK;
    }
}

static int parse (struct cmd_ctx *ctx, int argc, char **argv,
                  struct options *opts)
{
    int c, status;

    cmd_look_json (ctx, argc, argv);
    optind = 0; /* glibc: start anew, with the scan order of this string */
    while ((c = getopt_long (argc, argv, ":", long_options, NULL)) != -1) {
        if (c == '?' || c == ':')
            return cmd_usage_error (ctx, "%s '%s'",
                                    c == ':' ? "no value for option"
                                             : "unknown option",
                                    argv[optind - 1]);
        if ((status = take_option (ctx, c, opts)))
            return status;
    }
    return CMD_OK;
}

static int run (struct cmd_ctx *ctx, int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run) (struct cmd_ctx *, const char *, const struct options *);
    } verb[] = {{"up", verb_up},
                {"down", verb_down},
                {"status", verb_status},
                {"env", verb_env}};
    struct options opts = {.wish.gpus = -1};
    char dir[SANDBOX_MAX_DIR + 1];
    struct rv_error err = {0};
    const char *word;
    int status = parse (ctx, argc, argv, &opts);

    if (status)
        return status;
    if (opts.help)
        return cmd_help (ctx);
    word = argv[optind];
    if (!word)
        return cmd_usage_error (ctx, "up, down, status or env?");
    if (argv[optind + 1])
        return cmd_usage_error (ctx, "'%s' is one word too many",
                                argv[optind + 1]);
    for (size_t i = 0; i < sizeof (verb) / sizeof (verb[0]); i++) {
        if (strcmp (word, verb[i].name))
            continue;
        if (opts.shaped && i)
            return cmd_usage_error (
                ctx, "'%s' takes only --dir, --json and --help", word);
        if (folder_resolve (opts.dir, dir, &err))
            return cmd_fail (ctx, CMD_FAILED, NULL,
                             "cannot use the sandbox folder: %s", err.text);
        if (opts.dir)
            snprintf (opts.dir_words, sizeof (opts.dir_words), " --dir %s",
                      dir);
        return verb[i].run (ctx, dir, &opts);
    }
    return cmd_usage_error (ctx, "'%s' is not up, down, status or env", word);
}

const struct cmd cmd_sandbox = {
    .name = "sandbox",
    .summary = "a private Slurm on this machine: up, down, status, env",
    .usage = usage,
    .json = true,
    .local = true,
    .run = run,
};
