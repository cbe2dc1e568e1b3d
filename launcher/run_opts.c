/* SPDX-License-Identifier: Apache-2.0
 * run_opts.c - the words of `rv run`, before anything is asked of Slurm */
#include "run_opts.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plan/command.h"
#include "plan/duration.h"
#include "plan/fanout.h"
#include "plan/outpath.h"

#define GPUS_MAX 65536

enum {
    OPT_TIME = 256,
    OPT_NAME,
    OPT_MEM,
    OPT_NODES,
    OPT_SINGLE_NODE,
    OPT_VRAM,
    OPT_TIME_MIN,
    OPT_MIG,
    OPT_CHECKPOINT,
    OPT_FANOUT,
    OPT_NO_FANOUT,
    OPT_DRY_RUN,
    OPT_JSON,
    OPT_SLURM,
    OPT_SNAPSHOT,
    OPT_OUTPUT,
};

static const struct option long_options[] = {
    {"gpu", required_argument, NULL, 'g'},
    {"gpus", required_argument, NULL, 'g'},
    {"type", required_argument, NULL, 't'},
    {"mig", optional_argument, NULL, OPT_MIG},
    {"time", required_argument, NULL, OPT_TIME},
    {"time-min", required_argument, NULL, OPT_TIME_MIN},
    {"checkpoint", optional_argument, NULL, OPT_CHECKPOINT},
    {"fanout", required_argument, NULL, OPT_FANOUT},
    {"no-fanout", no_argument, NULL, OPT_NO_FANOUT},
    {"name", required_argument, NULL, OPT_NAME},
    {"mem", required_argument, NULL, OPT_MEM},
    {"partition", required_argument, NULL, 'p'},
    {"account", required_argument, NULL, 'A'},
    {"qos", required_argument, NULL, 'q'},
    {"nodes", required_argument, NULL, OPT_NODES},
    {"single-node", no_argument, NULL, OPT_SINGLE_NODE},
    {"vram", required_argument, NULL, OPT_VRAM},
    {"snapshot", no_argument, NULL, OPT_SNAPSHOT},
    {"output", required_argument, NULL, OPT_OUTPUT},
    {"follow", no_argument, NULL, 'f'},
    {"label", no_argument, NULL, 'l'},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"json", no_argument, NULL, OPT_JSON},
    {"help", no_argument, NULL, 'h'},
    /* Slurm's own, see run_slurm.h */
    {"reservation", required_argument, NULL, OPT_SLURM},
    {"exclude", required_argument, NULL, 'x'},
    {"nodelist", required_argument, NULL, 'w'},
    {"constraint", required_argument, NULL, 'C'},
    {"dependency", required_argument, NULL, OPT_SLURM},
    {"array", required_argument, NULL, OPT_SLURM},
    {"mail-type", required_argument, NULL, OPT_SLURM},
    {"mail-user", required_argument, NULL, OPT_SLURM},
    {"exclusive", optional_argument, NULL, OPT_SLURM},
    {"slurm", required_argument, NULL, OPT_SLURM},
    {"clusters", required_argument, NULL, 'M'},
    {"container-image", required_argument, NULL, OPT_SLURM},
    {"container-mounts", required_argument, NULL, OPT_SLURM},
    {"container-workdir", required_argument, NULL, OPT_SLURM},
    {"container-name", required_argument, NULL, OPT_SLURM},
    {"container-save", required_argument, NULL, OPT_SLURM},
    {"container-mount-home", no_argument, NULL, OPT_SLURM},
    {"no-container-mount-home", no_argument, NULL, OPT_SLURM},
    {"container-remap-root", no_argument, NULL, OPT_SLURM},
    {"no-container-remap-root", no_argument, NULL, OPT_SLURM},
    {"container-entrypoint", no_argument, NULL, OPT_SLURM},
    {"no-container-entrypoint", no_argument, NULL, OPT_SLURM},
    {"container-entrypoint-log", no_argument, NULL, OPT_SLURM},
    {"container-writable", no_argument, NULL, OPT_SLURM},
    {"container-readonly", no_argument, NULL, OPT_SLURM},
    {"container-env", required_argument, NULL, OPT_SLURM},
    {NULL, 0, NULL, 0},
};

const char run_opts_help[] =
    "usage: rv run [OPTION...] [--] COMMAND [ARGUMENT...]\n"
    "  -g, --gpus N        GPUs of the job (default 1; 0: one task without)\n"
    "  -t, --type TYPE     GPU type (default: the one that starts first)\n"
    "      --mig[=PROFILE] N MIG slices, one a task, in the place of GPUs\n"
    "      --time T        limit: 90m 2h 3d, or as sbatch takes it (2:59:00)\n"
    "      --time-min T    a limit down to T will do, to start earlier\n"
    "      --checkpoint[=SIGNAL@SECONDS] signal the ranks before the limit,\n"
    "                      and go on in the next segment (default USR1@120)\n"
    "      --fanout N      jobs that may wait at once where one cannot say "
    "all, "
    "of\n"
    "                      which the first runs the command (rv.conf's "
    "fanout)\n"
    "      --no-fanout     one job, as --fanout 1\n"
    "      --snapshot      run in a copy of the files that git tracks, as "
    "they\n"
    "                      are now: edits while the job waits do not matter\n"
    "      --output PATHS  with --snapshot: bring these back when it ends;\n"
    "                      names below here, commas between, * and ? allowed\n"
    "      --name NAME     name of the job (default: from the command)\n"
    "      --mem SIZE      memory a node (default: the GPUs' share)\n"
    "      --vram SIZE     GPUs with at least this memory each\n"
    "      --nodes N       spread over N nodes (default: as few as can)\n"
    "      --single-node   one node, as --nodes 1\n"
    "  -p, --partition P   as sbatch's, and so are the next\n"
    "  -A, --account A     to whom the job is charged\n"
    "  -q, --qos Q         quality of service\n"
    "  -x, --exclude N     not on these nodes\n"
    "  -w, --nodelist N    on these nodes\n"
    "  -C, --constraint F  nodes with these features alone\n"
    "      --reservation R\n"
    "      --dependency D  such as afterok:1207\n"
    "      --array A       several jobs, such as 0-9%3; not with -f\n"
    "      --mail-type T, --mail-user U\n"
    "      --exclusive[=WHOM] whole nodes\n"
    "      --container-image I, --container-mounts M, and pyxis's others: the\n"
    "                      ranks run in that container\n"
    "      --slurm=OPTION  any other option of sbatch: --slurm=--nice=100\n"
    "  -f, --follow        show the output until the job ends\n"
    "  -l, --label         with -f: begin each line with its rank\n"
    "      --dry-run       print the plan and the sbatch line, submit "
    "nothing\n"
    "      --json          one JSON object on standard output\n"
    "Options end at the first word that is none: those behind the command are\n"
    "its own. Defaults stand in rv.conf(5). With -f the status is the\n"
    "command's; else 0, 1 failed or refused, 2 usage, 3 no controller, 5 "
    "cannot\n"
    "be met as asked.\n"
    "  rv run -g 4 -t a100 --time 2h -f -- python train.py --lr 3e-4\n"
    "  rv run -g 8 torchrun --nproc_per_node=4 train.py\n";

static int parse_gpus (const char *text, struct run_opts *opts,
                       struct rv_error *err)
{
    long n = 0;

    if (strcmp (text, "0") && count_parse (text, GPUS_MAX, &n, NULL) != RV_OK)
        return error_set (err, RV_EINVAL,
                          "-g takes a whole number of GPUs up to %d, not '%s'",
                          GPUS_MAX, text);
    opts->gpus = (uint32_t)n;
    opts->gpus_given = true;
    return RV_OK;
}

static int parse_nodes (const char *text, struct run_opts *opts,
                        struct rv_error *err)
{
    long n;

    if (count_parse (text, GPUS_MAX, &n, NULL) != RV_OK)
        return error_set (err, RV_EINVAL,
                          "--nodes takes a whole number above 0, not '%s'",
                          text);
    opts->nodes = (uint32_t)n;
    return RV_OK;
}

static int parse_time (const char *text, struct run_opts *opts,
                       struct rv_error *err)
{
    if (duration_parse_slurm (text, &opts->time_s, err) != RV_OK) {
        error_prefix (err, "--time");
        return RV_EINVAL;
    }
    opts->time_given = true;
    return RV_OK;
}

static int parse_time_min (const char *text, struct run_opts *opts,
                           struct rv_error *err)
{
    int64_t seconds;

    if (duration_parse_slurm (text, &seconds, err) != RV_OK) {
        error_prefix (err, "--time-min");
        return RV_EINVAL;
    }
    if (seconds < 60)
        return error_set (err, RV_EINVAL,
                          "--time-min takes a minute or more, not '%s'", text);
    opts->time_min_s = seconds;
    return RV_OK;
}

/* A size above 0; [none] says what leaving the option out gives. */
static int parse_size (const char *option, const char *text, const char *none,
                       int64_t *ret, struct rv_error *err)
{
    int64_t bytes;

    if (size_parse (text, &bytes, err) != RV_OK) {
        error_prefix (err, "%s", option);
        return RV_EINVAL;
    }
    if (bytes <= 0)
        return error_set (err, RV_EINVAL,
                          "%s=%s is no memory; leave it out for %s", option,
                          text, none);
    *ret = bytes;
    return RV_OK;
}

/* A word that sbatch would get as the value of an option. */
static int parse_word (const char *option, const char *text, const char **ret,
                       struct rv_error *err)
{
    if (!text[0] || text[strcspn (text, " \t\n\r")])
        return error_set (err, RV_EINVAL, "%s takes one word, not '%s'", option,
                          text);
    *ret = text;
    return RV_OK;
}

/* "a,b" of "a , b", in its place: Slurm takes no blanks there. Text without
 * them is not written to. */
static void close_commas (char *text)
{
    static const char blanks[] = " \t";
    char *comma = text;

    while ((comma = strchr (comma, ','))) {
        char *from = comma, *to = comma + 1;

        while (from > text && strchr (blanks, from[-1]))
            from--;
        to += strspn (to, blanks);
        if (to - from > 1) {
            *from = ',';
            memmove (from + 1, to, strlen (to) + 1);
        }
        comma = from + 1;
    }
}

static int parse_fanout (const char *text, struct run_opts *opts,
                         struct rv_error *err)
{
    if (fanout_parse (text, &opts->fanout))
        return RV_OK;
    return error_set (err, RV_EINVAL,
                      "--fanout takes off, on or a number from 1 to %d, not "
                      "'%s'",
                      FANOUT_MOST, text);
}

static int parse_checkpoint (const char *text, struct run_opts *opts,
                             struct rv_error *err)
{
    if (checkpoint_parse (text, &opts->checkpoint, err) == RV_OK)
        return RV_OK;
    error_prefix (err, "--checkpoint");
    return RV_EINVAL;
}

static int parse_name (const char *text, struct run_opts *opts,
                       struct rv_error *err)
{
    if (command_name_check (text, err) != RV_OK) {
        error_prefix (err, "--name");
        return RV_EINVAL;
    }
    opts->name = text;
    return RV_OK;
}

static int parse_output (const char *text, struct run_opts *opts,
                         struct rv_error *err)
{
    char **list = NULL;
    size_t n = 0;

    if (opts->n_output == RUN_OUTPUTS_MAX)
        return error_set (err, RV_EINVAL,
                          "more than %d times --output; one takes a list, with "
                          "commas",
                          RUN_OUTPUTS_MAX);
    if (outpath_parse (text, &list, &n, err) != RV_OK) {
        error_prefix (err, "--output");
        outpath_free (list);
        return RV_EINVAL;
    }
    outpath_free (list);
    opts->output[opts->n_output++] = text;
    return RV_OK;
}

/* Which word getopt_long did not like. */
static int bad_option (int argc, char *argv[], int c, struct rv_error *err)
{
    const char *word = optind > 0 && optind <= argc ? argv[optind - 1] : "?";

    if (c == ':')
        return error_set (err, RV_EINVAL, "option %s needs a value", word);
    if (optopt && optopt < 256 && strncmp (word, "--", 2))
        return error_set (err, RV_EINVAL,
                          "there is no option -%c; options of the command come "
                          "after it, and after -- where it begins with '-'",
                          optopt);
    return error_set (err, RV_EINVAL,
                      "there is no option %s, or it is ambiguous, or takes no "
                      "value",
                      word);
}

/* The long name of an option that has a letter. */
static const char *long_name (int letter)
{
    const struct option *o = long_options;

    while (o->val != letter)
        o++;
    return o->name;
}

static void take_flag (int c, struct run_opts *opts)
{
    switch (c) {
    case OPT_NO_FANOUT:
        opts->fanout = 1;
        break;
    case OPT_SNAPSHOT:
        opts->snapshot = true;
        break;
    case OPT_SINGLE_NODE:
        opts->single_node = true;
        break;
    case 'f':
        opts->follow = true;
        break;
    case 'l':
        opts->label = true;
        break;
    case OPT_DRY_RUN:
        opts->dry_run = true;
        break;
    case OPT_JSON:
        opts->json = true;
        break;
    case 'h':
        opts->help = true;
        break;
    }
}

static int take_option (int c, int index, struct run_opts *opts,
                        struct rv_error *err)
{
    switch (c) {
    case OPT_SLURM:
        return run_slurm_add (&opts->slurm, long_options[index].name, optarg,
                              err);
    case 'x':
    case 'w':
        close_commas (optarg);
        return run_slurm_add (&opts->slurm, long_name (c), optarg, err);
    case 'C':
    case 'M':
        return run_slurm_add (&opts->slurm, long_name (c), optarg, err);
    case 'g':
        return parse_gpus (optarg, opts, err);
    case 't':
        return parse_word ("-t", optarg, &opts->type, err);
    case 'p':
        close_commas (optarg);
        return parse_word ("-p", optarg, &opts->partition, err);
    case 'A':
        return parse_word ("-A", optarg, &opts->account, err);
    case 'q':
        return parse_word ("-q", optarg, &opts->qos, err);
    case OPT_TIME:
        return parse_time (optarg, opts, err);
    case OPT_TIME_MIN:
        return parse_time_min (optarg, opts, err);
    case OPT_NAME:
        return parse_name (optarg, opts, err);
    case OPT_MEM:
        return parse_size ("--mem", optarg, "the GPUs' share", &opts->mem_bytes,
                           err);
    case OPT_VRAM:
        return parse_size ("--vram", optarg, "any", &opts->vram_bytes, err);
    case OPT_NODES:
        return parse_nodes (optarg, opts, err);
    case OPT_CHECKPOINT:
        return parse_checkpoint (optarg, opts, err);
    case OPT_FANOUT:
        return parse_fanout (optarg, opts, err);
    case OPT_OUTPUT:
        return parse_output (optarg, opts, err);
    case OPT_MIG:
        opts->mig = true;
        return optarg ? parse_word ("--mig", optarg, &opts->mig_profile, err)
                      : RV_OK;
    }
    take_flag (c, opts);
    return RV_OK;
}

static int check_snapshot (const struct run_opts *opts, struct rv_error *err)
{
    for (size_t i = 0; i < opts->slurm.n; i++)
        if (!opts->slurm.opt[i].name
            && (!strncmp (opts->slurm.opt[i].value, "--chdir", 7)
                || !strncmp (opts->slurm.opt[i].value, "-D", 2)))
            return error_set (err, RV_EINVAL,
                              "--snapshot runs in the copy of this folder, and "
                              "--slurm=%.64s in another; leave one out",
                              opts->slurm.opt[i].value);
    return RV_OK;
}

static int check_follow (const struct run_opts *opts, struct rv_error *err)
{
    if (opts->dry_run)
        return error_set (err, RV_EINVAL,
                          "-f follows a job and --dry-run submits none; leave "
                          "one out");
    if (opts->slurm.array)
        return error_set (err, RV_EINVAL,
                          "-f follows one job and --array submits several; "
                          "leave one out");
    if (opts->json)
        return error_set (err, RV_EINVAL,
                          "-f prints the command's output and --json one "
                          "object; leave one out");
    return RV_OK;
}

int run_opts_check (const struct run_opts *opts, struct rv_error *err)
{
    int rc;

    if (opts->help)
        return RV_OK;
    if (opts->argc == 0)
        return error_set (err, RV_EINVAL, "there is no command");
    if (opts->argv[0][0] == '\0')
        return error_set (err, RV_EINVAL, "the command is an empty word");
    if (opts->mig && opts->type)
        return error_set (err, RV_EINVAL,
                          "--mig and -t both name a type; leave one out");
    if (opts->time_given && opts->time_s >= 0
        && opts->time_min_s > opts->time_s)
        return error_set (err, RV_EINVAL,
                          "--time-min is longer than --time; give the shorter "
                          "of both as --time-min");
    if (opts->single_node && opts->nodes > 1)
        return error_set (err, RV_EINVAL,
                          "--single-node and --nodes=%u differ; leave one out",
                          opts->nodes);
    if (opts->n_output && !opts->snapshot)
        return error_set (err, RV_EINVAL,
                          "--output brings results out of a snapshot, and "
                          "without one the job writes here itself; add "
                          "--snapshot, or leave it out");
    if (opts->snapshot && (rc = check_snapshot (opts, err)))
        return rc;
    return opts->follow ? check_follow (opts, err) : RV_OK;
}

static int next_option (int argc, char *argv[], int *ret_index)
{
    return getopt_long (argc, argv, "+:g:t:p:A:q:x:w:C:M:flh", long_options,
                        ret_index);
}

const char *run_opts_misplaced (const struct run_opts *opts)
{
    static const char *const ours[] = {
        "gpu",      "gpus",   "type",        "mig",       "vram",
        "time",     "mem",    "qos",         "partition", "account",
        "nodes",    "follow", "single-node", "dry-run",   "checkpoint",
        "time-min", "fanout", "no-fanout",   "snapshot",
    };

    for (int i = 1; i < opts->argc && !opts->dashes; i++) {
        const char *word = opts->argv[i];

        if (!strcmp (word, "--"))
            break;
        if (!strcmp (word, "-g"))
            return word;
        for (size_t k = 0; k < sizeof (ours) / sizeof (ours[0]); k++) {
            size_t len = strlen (ours[k]);

            if (!strncmp (word, "--", 2) && !strncmp (word + 2, ours[k], len)
                && (word[2 + len] == '\0' || word[2 + len] == '='))
                return word;
        }
    }
    return NULL;
}

bool run_opts_json (int argc, char *argv[])
{
    bool json = false;
    int c, index;

    optind = 0;
    opterr = 0;
    while ((c = next_option (argc, argv, &index)) != -1)
        json = json || c == OPT_JSON;
    return json;
}

int run_opts_parse (int argc, char *argv[], struct run_opts *opts,
                    struct rv_error *err)
{
    struct run_opts out = {.gpus = 1};
    int c, index, status;

    optind = 0; /* 0, not 1: glibc then forgets an earlier parse */
    opterr = 0;
    while ((c = next_option (argc, argv, &index)) != -1) {
        if (c == '?' || c == ':')
            return bad_option (argc, argv, c, err);
        if ((status = take_option (c, index, &out, err)) != RV_OK)
            return status;
    }
    out.dashes = !strcmp (argv[optind - 1], "--");
    out.argc = argc - optind;
    out.argv = argv + optind;
    if ((status = run_opts_check (&out, err)) != RV_OK)
        return status;
    if (out.single_node)
        out.nodes = 1;
    *opts = out;
    return RV_OK;
}
