/* SPDX-License-Identifier: Apache-2.0
 * command.c - what a command line tells about the job that runs it
 *
 * A program that runs another one is described by one row of a table: which
 * of its options stand alone and which take the next word. An option that a
 * table does not know takes the next word unless that looks like a script. */
#include "plan/command.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "plan/duration.h"

#define NAME_AUTO_MAX 20 /* characters of a name made from a command */

struct wrapper {
    const char *name;       /* basename; "*" at the end matches any rest */
    const char *verb;       /* word that must follow, NULL = none */
    const char *flags;      /* " -a --bc " options without a value */
    const char *values;     /* options that take the next word */
    bool assignments;       /* NAME=VALUE may stand before the program */
    enum command_tool tool; /* starts the processes of a node */
};

static const struct wrapper wrappers[] = {
    {"env", NULL, " -i -0 --ignore-environment ", " -u --unset -C --chdir ",
     true, COMMAND_NO_TOOL},
    {"uv", "run",
     " --no-sync --frozen --locked --isolated --no-project --active -q -v "
     "--quiet --verbose --offline --all-extras --no-dev --dev --exact ",
     " --with --with-editable --with-requirements --python -p --extra --group "
     "--project --directory --env-file --index --package ",
     false, COMMAND_NO_TOOL},
    {"poetry", "run", " ", " -C -P --directory --project ", false,
     COMMAND_NO_TOOL},
    {"pixi", "run", " ", " -e --environment --manifest-path ", false,
     COMMAND_NO_TOOL},
    {"conda", "run", " --no-capture-output --live-stream -v ",
     " -n --name -p --prefix --cwd ", false, COMMAND_NO_TOOL},
    {"time", NULL, " -p -v -a ", " -f -o ", false, COMMAND_NO_TOOL},
    {"nice", NULL, " ", " -n --adjustment ", false, COMMAND_NO_TOOL},
    {"nohup", NULL, " ", " ", false, COMMAND_NO_TOOL},
    {"stdbuf", NULL, " ", " -i -o -e ", false, COMMAND_NO_TOOL},
    {"timeout", NULL, " --foreground --preserve-status -v ",
     " -k --kill-after -s --signal ", false, COMMAND_NO_TOOL},
    {"numactl", NULL, " -l --localalloc -s --show ",
     " -C -m -N -p -i --physcpubind --membind --cpunodebind --preferred "
     "--interleave ",
     false, COMMAND_NO_TOOL},
    {"strace", NULL, " -f -ff -c -t -tt -T ", " -e -o -s -p ", false,
     COMMAND_NO_TOOL},
    {"nsys", "profile", " ", " -o -t -w -s -f --output --trace --stats ", false,
     COMMAND_NO_TOOL},
    {"ncu", NULL, " -f ", " -o -k -c -s --set --section --export ", false,
     COMMAND_NO_TOOL},
    {"torchrun", NULL,
     " --standalone -m --module --no-python --no_python --run-path "
     "--run_path ",
     " -r -t --nnodes --nproc_per_node --nproc-per-node ", false,
     COMMAND_TORCHRUN},
    {"accelerate", "launch",
     " --multi_gpu --multi-gpu --cpu --tpu --quiet -q --debug -m --module "
     "--no_python --no-python --use_deepspeed --use_fsdp --use_megatron_lm "
     "--same_network --use_xla ",
     " --num_processes --num_machines --config_file ", false,
     COMMAND_ACCELERATE},
    {"deepspeed", NULL,
     " --module --no_python --no_local_rank --force_multi --no_ssh "
     "--elastic_training --bind_cores_to_rank ",
     " -H -i -e --hostfile --num_nodes --num_gpus --include --exclude ", false,
     COMMAND_DEEPSPEED},
    {"deepspeed.launcher.runner", NULL,
     " --module --no_python --no_local_rank --force_multi --no_ssh "
     "--elastic_training --bind_cores_to_rank ",
     " -H -i -e --hostfile --num_nodes --num_gpus --include --exclude ", false,
     COMMAND_DEEPSPEED},
    {"torch.distributed.run", NULL,
     " --standalone -m --module --no-python --no_python --run-path "
     "--run_path ",
     " -r -t --nnodes --nproc_per_node --nproc-per-node ", false,
     COMMAND_TORCHRUN},
    {"torch.distributed.launch", NULL,
     " --standalone -m --module --no_python --use_env --use-env ",
     " --nnodes --nproc_per_node --nproc-per-node ", false, COMMAND_TORCHRUN},
    {"accelerate.commands.launch", NULL,
     " --multi_gpu --cpu -m --module --no_python --use_deepspeed --use_fsdp ",
     " --num_processes --num_machines --config_file ", false,
     COMMAND_ACCELERATE},
};

/* Options of a Python interpreter that take the next word; -m and -c end the
 * list and are handled apart. */
static const char python_values[] = " -W -X --check-hash-based-pycs ";

static const char *base_name (const char *path)
{
    const char *slash = strrchr (path, '/');

    return slash ? slash + 1 : path;
}

static bool in_list (const char *list, const char *word, size_t len)
{
    for (const char *p = list; (p = strchr (p, ' ')) && p[1]; p++)
        if (!strncmp (p + 1, word, len) && p[1 + len] == ' ')
            return true;
    return false;
}

/* python, python3, python3.11, pypy3 */
static bool is_python (const char *word)
{
    const char *name = base_name (word), *rest;

    if (!strncmp (name, "python", 6))
        rest = name + 6;
    else if (!strncmp (name, "pypy", 4))
        rest = name + 4;
    else
        return false;
    return rest[strspn (rest, "0123456789.")] == '\0';
}

static bool is_assignment (const char *word)
{
    size_t n = strcspn (word, "=");

    if (word[n] != '=' || n == 0 || isdigit ((unsigned char)word[0]))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum ((unsigned char)word[i]) && word[i] != '_')
            return false;
    return true;
}

/* A word that is more likely the script than the value of an option. */
static bool looks_like_script (const char *word)
{
    const char *dot = strrchr (word, '.');

    return dot
           && (!strcmp (dot, ".py") || !strcmp (dot, ".sh")
               || !strcmp (dot, ".bash") || !strcmp (dot, ".pyz"));
}

static const struct wrapper *wrapper_find (const char *word)
{
    const char *name = base_name (word);

    for (size_t i = 0; i < sizeof (wrappers) / sizeof (wrappers[0]); i++)
        if (!strcmp (wrappers[i].name, name))
            return &wrappers[i];
    return NULL;
}

/* The value of the option at argv[i] if its name is one of [names]; NULL if it
 * is another option or has none. */
static const char *option_value (int argc, char *const argv[], int i,
                                 const char *names)
{
    size_t n = strcspn (argv[i], "=");

    if (!in_list (names, argv[i], n))
        return NULL;
    if (argv[i][n] == '=')
        return argv[i] + n + 1;
    return i + 1 < argc ? argv[i + 1] : NULL;
}

static int take_count (const char *option, const char *value, uint32_t *ret,
                       struct rv_error *err)
{
    long n;

    if (!isdigit ((unsigned char)value[0]) || strchr (value, ':'))
        return RV_OK; /* gpu, auto, cpu; 1:4 */
    if (count_parse (value, 65536, &n, NULL) != RV_OK)
        return error_set (err, RV_EINVAL,
                          "%s=%s is not a count; give a whole number above 0",
                          option, value);
    *ret = (uint32_t)n;
    return RV_OK;
}

static int launcher_option (int argc, char *const argv[], int i,
                            struct command *cmd, struct rv_error *err)
{
    const char *value;

    value = option_value (argc, argv, i,
                          " --nproc_per_node --nproc-per-node --num_gpus ");
    if (value)
        return take_count ("--nproc-per-node", value, &cmd->nproc, err);
    value =
        option_value (argc, argv, i, " --nnodes --num_nodes --num_machines ");
    if (value)
        return take_count ("--nnodes", value, &cmd->nnodes, err);
    return RV_OK;
}

/* Step over the options of a wrapper that begin at argv[i]. Returns the index
 * of the word after them, argc if there is none. */
static int skip_options (int argc, char *const argv[], int i,
                         const struct wrapper *w, struct command *cmd,
                         struct rv_error *err, int *status)
{
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *word = argv[i];
        size_t n = strcspn (word, "=");

        if (!strcmp (word, "--"))
            return i + 1;
        if (w->tool
            && (*status = launcher_option (argc, argv, i, cmd, err)) != RV_OK)
            return argc;
        i++;
        if (word[n] == '=' || in_list (w->flags, word, n) || i >= argc)
            continue;
        if (in_list (w->values, word, n)
            || (argv[i][0] != '-' && !looks_like_script (argv[i])
                && !wrapper_find (argv[i]) && !is_python (argv[i]) && w->tool))
            i++;
    }
    return i;
}

/* Step over an interpreter's own options. *ret_module is set when the program
 * is a module (-m), *ret_inline when its text stands on the line (-c). */
static int skip_python (int argc, char *const argv[], int i, bool *ret_module,
                        bool *ret_inline)
{
    while (i < argc && argv[i][0] == '-' && argv[i][1]) {
        const char *word = argv[i++];
        size_t n = strlen (word);

        if (word[1] != '-' && word[n - 1] == 'm') {
            *ret_module = true;
            return i;
        }
        if (word[1] != '-' && word[n - 1] == 'c') {
            *ret_inline = true;
            return i;
        }
        if (in_list (python_values, word, n))
            i++;
    }
    return i;
}

static void name_set (struct command *cmd, const char *text, size_t len)
{
    size_t out = 0;

    for (size_t i = 0; i < len && out < NAME_AUTO_MAX; i++) {
        int c = tolower ((unsigned char)text[i]);

        if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))
            cmd->name[out++] = (char)c;
        else if (out && cmd->name[out - 1] != '-')
            cmd->name[out++] = '-';
    }
    while (out && cmd->name[out - 1] == '-')
        out--;
    cmd->name[out] = '\0';
    /* Digits alone would read as a job id. */
    if (!out || cmd->name[strspn (cmd->name, "0123456789")] == '\0')
        snprintf (cmd->name, sizeof (cmd->name), "job");
}

/* The script's name without folder and last extension; a module's last part. */
static void name_from (struct command *cmd, const char *word, bool module)
{
    const char *base = base_name (word);
    const char *dot = strrchr (base, '.');

    if (module && dot && dot[1])
        name_set (cmd, dot + 1, strlen (dot + 1));
    else
        name_set (cmd, base,
                  dot && dot > base ? (size_t)(dot - base) : strlen (base));
}

/* One layer: argv[i] is a wrapper. Returns the index of what it runs. */
static int enter_wrapper (int argc, char *const argv[], int i,
                          const struct wrapper *w, struct command *cmd,
                          struct rv_error *err, int *status)
{
    bool timeout = !strcmp (w->name, "timeout");

    if (w->tool) {
        cmd->launch = COMMAND_PER_NODE;
        cmd->tool = w->tool;
        cmd->options = i + 1;
    }
    i = skip_options (argc, argv, i + 1, w, cmd, err, status);
    if (w->verb) {
        if (i >= argc || strcmp (argv[i], w->verb))
            return i; /* "accelerate env": the next word names the job */
        i = skip_options (argc, argv, i + 1, w, cmd, err, status);
    }
    if (w->tool)
        cmd->options_end = i;
    while (w->assignments && i < argc && is_assignment (argv[i]))
        i++;
    return timeout ? i + 1 : i;
}

/* torchrun -m pkg.train: the word after the options is a module. */
static bool runs_module (char *const argv[], int from, int to)
{
    for (int i = from; i < to; i++)
        if (!strcmp (argv[i], "-m") || !strcmp (argv[i], "--module"))
            return true;
    return false;
}

int command_scan (int argc, char *const argv[], struct command *ret,
                  struct rv_error *err)
{
    struct command cmd = {.launch = COMMAND_PER_GPU};
    const struct wrapper *w;
    bool module = false, text = false;
    int i = 0, status = RV_OK;

    if (argc < 1 || !argv || !ret)
        return error_set (err, RV_EINVAL, "no command");
    while (i < argc && status == RV_OK) {
        int begin = i;

        if ((w = wrapper_find (argv[i]))) {
            i = enter_wrapper (argc, argv, i, w, &cmd, err, &status);
            module = w->tool != COMMAND_NO_TOOL && i < argc
                     && runs_module (argv, begin, i);
        } else if (is_python (argv[i]) && !module) {
            i = skip_python (argc, argv, i + 1, &module, &text);
        } else {
            break;
        }
        if (i >= argc || text) {
            i = begin; /* nothing follows: the wrapper itself is the program */
            break;
        }
    }
    if (status != RV_OK)
        return status;
    name_from (&cmd, argv[i], module);
    cmd.program = module || text ? -1 : i;
    *ret = cmd;
    return RV_OK;
}

/* "--rdzv-backend" and "--rdzv_backend" are one option. */
static bool is_option (const char *word, const char *name)
{
    size_t n = strcspn (word, "=");

    if (word[0] != '-' || word[1] != '-' || n - 2 != strlen (name))
        return false;
    for (size_t i = 0; i < n - 2; i++)
        if (word[2 + i] != name[i] && !(word[2 + i] == '_' && name[i] == '-'))
            return false;
    return true;
}

const char *command_option (const struct command *cmd, char *const argv[],
                            const char *name)
{
    const char *value = NULL;

    for (int i = cmd->options; i < cmd->options_end; i++)
        if (is_option (argv[i], name)) {
            const char *equal = strchr (argv[i], '=');

            value = equal                      ? equal + 1
                    : i + 1 < cmd->options_end ? argv[i + 1]
                                               : "";
        }
    return value;
}

int command_name_check (const char *name, struct rv_error *err)
{
    static const char rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                               "uvwxyz0123456789._-";
    struct command fit = {.launch = COMMAND_PER_GPU};
    size_t good;

    if (!name)
        return error_set (err, RV_EINVAL, "no name");
    good = strspn (name, rest);
    if (name[good] == '\0' && good > 0 && good < COMMAND_NAME_MAX
        && isalnum ((unsigned char)name[0])
        && name[strspn (name, "0123456789")] != '\0')
        return RV_OK;
    name_set (&fit, name, strlen (name));
    if (name[good])
        return error_set (err, RV_EINVAL,
                          "the name has a character other than letters, "
                          "digits, '.', '_' and '-'; '%s' would do",
                          fit.name);
    return error_set (err, RV_EINVAL,
                      "a name begins with a letter or digit, is not a number "
                      "and has at most %d characters; '%s' would do",
                      COMMAND_NAME_MAX - 1, fit.name);
}
