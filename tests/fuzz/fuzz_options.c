/* SPDX-License-Identifier: Apache-2.0
 * fuzz_options.c - a command line of srun, sbatch or salloc, one word a line
 *
 * The first byte chooses the client. What the scan sees is what getopt_long(3)
 * sees, given the same table, up to the first word that getopt refuses. */
#include <getopt.h>

#include "fuzz.h"
#include "spank/cli_table.h"
#include "spank/wish.h"

#define SEEN_MAX 1024 /* letters of a cluster count too */

struct seen {
    const char *name[SEEN_MAX], *value[SEEN_MAX];
    size_t n;
};

static void note (void *arg, const char *name, const char *value)
{
    struct seen *s = arg;

    FUZZ_CHECK (name && *name);
    if (s->n < SEEN_MAX) {
        s->name[s->n] = name;
        s->value[s->n++] = value;
    }
}

static int has_arg (enum cli_kind kind)
{
    return kind == CLI_VALUE   ? required_argument
           : kind == CLI_MAYBE ? optional_argument
                               : no_argument;
}

/* The table of [client] as getopt wants it; val is the index. */
static size_t getopt_table (enum cli_client client, struct option *longs,
                            char *shorts)
{
    size_t n = 0;

    *shorts++ = '+';
    for (size_t i = 0; i < cli_table_n; i++) {
        const struct cli_option *o = &cli_table[i];

        if (!(o->clients & client))
            continue;
        longs[n++] =
            (struct option){o->name, has_arg (o->kind), NULL, 1000 + (int)i};
        if (!o->letter)
            continue;
        *shorts++ = o->letter;
        for (int colons = has_arg (o->kind); colons > 0; colons--)
            *shorts++ = ':';
    }
    longs[n] = (struct option){0};
    *shorts = '\0';
    return n;
}

static const struct cli_option *by_letter (enum cli_client client, int c)
{
    for (size_t i = 0; i < cli_table_n; i++)
        if (cli_table[i].letter == c && (cli_table[i].clients & client))
            return &cli_table[i];
    return NULL;
}

/* getopt says where the options end, too, if it refused nothing. */
static void compare (enum cli_client client, int argc, char **argv,
                     const struct seen *s, int stop)
{
    struct option longs[256];
    char shorts[256];
    size_t k = 0;
    int c;

    FUZZ_CHECK (cli_table_n < 200);
    getopt_table (client, longs, shorts);
    optind = 0;
    opterr = 0;
    while ((c = getopt_long (argc, argv, shorts, longs, NULL)) != -1) {
        const struct cli_option *o;

        if (c == '?')
            return;
        o = c >= 1000 ? &cli_table[c - 1000] : by_letter (client, c);
        FUZZ_CHECK (o && k < s->n);
        FUZZ_CHECK (strcmp (s->name[k], o->name) == 0);
        FUZZ_CHECK (s->value[k] == optarg);
        if (++k == SEEN_MAX)
            return;
    }
    FUZZ_CHECK (k == s->n && stop == optind);
}

static const char *no_variable (const char *name)
{
    (void)name;
    return NULL;
}

/* What the wish becomes: numbers that Slurm can read, in its own variables. */
static void become (enum cli_client client, int argc, char **argv)
{
    struct wish_site site = {.per_node = 4, .cpus_per_gpu = 2, .type = "a100"};
    struct wish_var vars[WISH_VARS_MAX];
    struct gpu_request req;
    struct rv_error err = {0};
    struct wish w;
    size_t n;

    wish_init (&w, client, no_variable);
    cli_scan (client, argc, argv, wish_seen, &w);
    FUZZ_CHECK (wish_check (&w, &err) == 0 || err.text[0]);
    if (!w.gpu_asked || !w.gpu || request_parse_gpu (w.gpu, &req, &err))
        return;
    n = wish_vars (&w, &req, &site, vars);
    FUZZ_CHECK (n <= WISH_VARS_MAX && (n > 0 || w.inside));
    for (size_t i = 0; i < n; i++) {
        const char *number = strrchr (vars[i].value, ':');

        number = number ? number + 1 : vars[i].value;
        FUZZ_CHECK (vars[i].name[0] == 'S' && *number);
        FUZZ_CHECK (number[strspn (number, "0123456789")] == '\0');
        FUZZ_CHECK (strcmp (number, "0") != 0);
    }
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    static const enum cli_client clients[] = {CLI_SRUN, CLI_SBATCH, CLI_SALLOC};
    enum cli_client client = clients[size > 0 ? data[0] % 3 : 0];
    char *buf = fuzz_text (data, size), **argv;
    struct seen s = {.n = 0};
    int argc, stop;

    for (size_t i = 0; i < size; i++)
        if (buf[i] == '\n')
            buf[i] = '\0';
    argc = cli_split (buf, size + 1, &argv);
    FUZZ_CHECK (argc >= 1 && !argv[argc]);
    stop = cli_scan (client, argc, argv, note, &s);
    FUZZ_CHECK (stop >= 1 && stop <= argc);
    compare (client, argc, argv, &s, stop);
    become (client, argc, argv);
    for (int i = 0; i < argc; i++)
        FUZZ_CHECK (!cli_might_be (argv[i], "rv-gpu")
                    || strncmp (argv[i], "--rv-g", 6) == 0);
    free (argv);
    free (buf);
    return 0;
}
