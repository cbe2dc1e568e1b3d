/* SPDX-License-Identifier: Apache-2.0
 * test_cli.c - command lines as srun, sbatch and salloc read them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "spank/cli.h"
#include "spank/cli_table.h"

struct seen {
    char text[512]; /* "name=value name " */
};

static void note (void *arg, const char *name, const char *value)
{
    struct seen *s = arg;
    size_t n = strlen (s->text);

    snprintf (s->text + n, sizeof (s->text) - n, "%s%s%s ", name,
              value ? "=" : "", value ? value : "");
}

struct vector {
    enum cli_client client;
    const char *line; /* words by blanks */
    const char *seen;
    int stop;
};

static const struct vector vectors[] = {
    /* no word, no option, and what is not ours */
    {CLI_SRUN, "srun", "", 1},
    {CLI_SRUN, "srun hostname", "", 1},
    {CLI_SRUN, "srun hostname --rv-gpu=2", "", 1},
    {CLI_SRUN, "srun -- --rv-gpu=2", "", 2},
    {CLI_SRUN, "srun - --rv-gpu=2", "", 1},
    {CLI_SRUN, "srun -N2 -- a -n 3", "nodes=2 ", 3},
    {CLI_SRUN, "srun --unknown x --rv-gpu=2", "", 2},
    {CLI_SRUN, "srun --unknown=x --rv-gpu=2 a", "rv-gpu=2 ", 3},
    /* a value that is missing */
    {CLI_SRUN, "srun --rv-gpu", "rv-gpu ", 2},
    {CLI_SRUN, "srun -n", "ntasks ", 2},
    {CLI_SRUN, "srun --rv-gpu=", "rv-gpu= ", 2},
    /* values in the word and in the next */
    {CLI_SRUN, "srun --rv-gpu=2 a", "rv-gpu=2 ", 2},
    {CLI_SRUN, "srun --rv-gpu 2 a", "rv-gpu=2 ", 3},
    {CLI_SRUN, "srun --rv-gpu -1 a", "rv-gpu=-1 ", 3},
    {CLI_SRUN, "srun --rv-gpu -- a", "rv-gpu=-- ", 3},
    {CLI_SRUN, "srun --rv-gpu=a=b a", "rv-gpu=a=b ", 2},
    {CLI_SRUN, "srun -p gpu --rv-gpu=2 a", "partition=gpu rv-gpu=2 ", 4},
    {CLI_SRUN, "srun -pgpu --rv-gpu 2 a", "partition=gpu rv-gpu=2 ", 4},
    {CLI_SRUN, "srun --part gpu --rv-gpu=2 a", "partition=gpu rv-gpu=2 ", 4},
    {CLI_SRUN, "srun -vvp gpu --rv-gpu=2 a",
     "verbose verbose partition=gpu rv-gpu=2 ", 4},
    {CLI_SRUN, "srun -lN2 -n4 a", "label nodes=2 ntasks=4 ", 3},
    {CLI_SRUN, "srun -J=x a", "job-name==x ", 2},
    /* optional values stand in the same word */
    {CLI_SRUN, "srun -K0 --rv-gpu=2 a", "kill-on-bad-exit=0 rv-gpu=2 ", 3},
    {CLI_SRUN, "srun -K 0", "kill-on-bad-exit ", 2},
    {CLI_SRUN, "srun --exclusive user", "exclusive ", 2},
    {CLI_SRUN, "srun --exclusive=user --rv-mig a", "exclusive=user rv-mig ", 3},
    {CLI_SRUN, "srun --pty --rv-gpu=2 bash", "pty rv-gpu=2 ", 3},
    {CLI_SRUN, "srun --x11 --rv-gpu=2 bash", "x11 rv-gpu=2 ", 3},
    /* abbreviations */
    {CLI_SRUN, "srun --rv-g=2 a", "rv-gpu=2 ", 2},
    {CLI_SRUN, "srun --rv-g 2 a", "rv-gpu=2 ", 3},
    {CLI_SRUN, "srun --rv-nccl 30m a", "rv-nccl-timeout=30m ", 3},
    {CLI_SRUN, "srun --rv-=2 a", "", 2},         /* ambiguous */
    {CLI_SRUN, "srun --gpus=2 a", "gpus=2 ", 2}, /* exact beats longer ones */
    {CLI_SRUN, "srun --gpus-per-n 2 a", "gpus-per-node=2 ", 3},
    {CLI_SRUN, "srun --ntasks-per-g=1 a", "ntasks-per-gpu=1 ", 2},
    /* the same letter, another client */
    {CLI_SRUN, "srun -W 5 --rv-gpu=2 a", "wait=5 rv-gpu=2 ", 4},
    {CLI_SBATCH, "sbatch -W --rv-gpu=2 a", "wait rv-gpu=2 ", 3},
    {CLI_SBATCH, "sbatch --wrap hostname --rv-gpu=2", "wrap=hostname rv-gpu=2 ",
     4},
    {CLI_SBATCH, "sbatch -a 1-2 -o x --rv-gpu a100:2 job.sh 1",
     "array=1-2 output=x rv-gpu=a100:2 ", 7},
    {CLI_SBATCH, "sbatch --mpi pmix a", "", 2}, /* srun's alone */
    {CLI_SALLOC, "salloc -K --rv-gpu=2", "kill-command rv-gpu=2 ", 3},
    {CLI_SALLOC, "salloc --no-shell --rv-gpu=2", "no-shell rv-gpu=2 ", 3},
};

static int words (char *line, char *argv[32])
{
    char *rest = NULL;
    int argc = 0;

    for (char *w = strtok_r (line, " ", &rest); w;
         w = strtok_r (NULL, " ", &rest))
        argv[argc++] = w;
    return argc;
}

static void scans (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        const struct vector *v = &vectors[i];
        struct seen seen = {0};
        char line[256], *argv[32];
        int argc, stop;

        snprintf (line, sizeof (line), "%s", v->line);
        argc = words (line, argv);
        stop = cli_scan (v->client, argc, argv, note, &seen);
        if (strcmp (seen.text, v->seen) != 0 || stop != v->stop)
            fail_msg ("'%s': got '%s' stop %d, want '%s' stop %d", v->line,
                      seen.text, stop, v->seen, v->stop);
    }
}

static void suspects (void **state)
{
    (void)state;
    assert_false (cli_might_be ("", "rv-gpu"));
    assert_false (cli_might_be ("--", "rv-gpu"));
    assert_false (cli_might_be ("rv-gpu", "rv-gpu"));
    assert_false (cli_might_be ("-rv-gpu", "rv-gpu"));
    assert_false (cli_might_be ("--rv-", "rv-gpu"));
    assert_false (cli_might_be ("--rv-gpux", "rv-gpu"));
    assert_false (cli_might_be ("--rv-nccl-timeout=1s", "rv-gpu"));
    assert_true (cli_might_be ("--rv-g", "rv-gpu"));
    assert_true (cli_might_be ("--rv-gp=2", "rv-gpu"));
    assert_true (cli_might_be ("--rv-gpu", "rv-gpu"));
    assert_true (cli_might_be ("--rv-gpu=", "rv-gpu"));
}

static void splits (void **state)
{
    char open_end[] = {'a', '\0', 'b'};
    char three[] = "srun\0\0--rv-gpu=2"; /* an empty word in the middle */
    char **argv = NULL;

    (void)state;
    assert_int_equal (cli_split (open_end, sizeof (open_end), &argv), -1);
    assert_null (argv);
    assert_int_equal (cli_split (three, 0, &argv), 0);
    assert_null (argv[0]);
    free (argv);
    assert_int_equal (cli_split (three, sizeof (three), &argv), 3);
    assert_string_equal (argv[0], "srun");
    assert_string_equal (argv[1], "");
    assert_string_equal (argv[2], "--rv-gpu=2");
    assert_null (argv[3]);
    free (argv);
}

/* A name twice for one client, or a letter twice, would hide an option. */
static void table_is_unique (void **state)
{
    (void)state;
    for (size_t i = 0; i < cli_table_n; i++)
        for (size_t j = i + 1; j < cli_table_n; j++) {
            const struct cli_option *a = &cli_table[i], *b = &cli_table[j];

            if (!(a->clients & b->clients))
                continue;
            if (strcmp (a->name, b->name) == 0)
                fail_msg ("--%s stands twice", a->name);
            if (a->letter && a->letter == b->letter)
                fail_msg ("-%c is --%s and --%s", a->letter, a->name, b->name);
        }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (scans),
        cmocka_unit_test (suspects),
        cmocka_unit_test (splits),
        cmocka_unit_test (table_is_unique),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
