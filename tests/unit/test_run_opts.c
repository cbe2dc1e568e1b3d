/* SPDX-License-Identifier: Apache-2.0
 * test_run_opts.c - the words of `rv run` */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run_opts.h"

#define WORDS 12

struct bad {
    char *argv[WORDS];
    int code;
    const char *says;
};

static const struct bad bads[] = {
    {{"run"}, RV_EINVAL, "no command"},
    {{"run", "-g", "2"}, RV_EINVAL, "no command"},
    {{"run", "--"}, RV_EINVAL, "no command"},
    {{"run", ""}, RV_EINVAL, "empty"},
    {{"run", "-g", "2x", "true"}, RV_EINVAL, "2x"},
    {{"run", "-g", "-1", "true"}, RV_EINVAL, "-1"},
    {{"run", "-g", "", "true"}, RV_EINVAL, "''"},
    {{"run", "-g", "99999999999999999999", "true"}, RV_EINVAL, "9999"},
    {{"run", "--gpus=", "true"}, RV_EINVAL, "''"},
    {{"run", "--time", "-5", "true"}, RV_EINVAL, "--time"},
    {{"run", "--time=soon", "true"}, RV_EINVAL, "--time"},
    {{"run", "--mem=200GB", "true"}, RV_EINVAL, "200G"},
    {{"run", "--mem=0", "true"}, RV_EINVAL, "--mem"},
    {{"run", "--vram=0", "true"}, RV_EINVAL, "--vram"},
    {{"run", "--vram=80GB", "true"}, RV_EINVAL, "80G"},
    {{"run", "--single-node", "--nodes=2", "true"}, RV_EINVAL, "leave one out"},
    {{"run", "--fanout=0", "true"}, RV_EINVAL, "--fanout"},
    {{"run", "--fanout=17", "true"}, RV_EINVAL, "1 to 16"},
    {{"run", "--no-fanout=2", "true"}, RV_EINVAL, "--no-fanout"},
    {{"run", "--nodes=0", "true"}, RV_EINVAL, "--nodes"},
    {{"run", "--name=../x", "true"}, RV_EINVAL, "--name"},
    {{"run", "--name=a\n#SBATCH", "true"}, RV_EINVAL, "--name"},
    {{"run", "-p", "a b", "true"}, RV_EINVAL, "-p"},
    {{"run", "-t", "", "true"}, RV_EINVAL, "-t"},
    {{"run", "--mig", "-t", "a", "true"}, RV_EINVAL, "both name a type"},
    {{"run", "-f", "--dry-run", "true"}, RV_EINVAL, "--dry-run"},
    {{"run", "-f", "--json", "true"}, RV_EINVAL, "--json"},
    {{"run", "-z", "true"}, RV_EINVAL, "-z"},
    {{"run", "--gpu-count=2", "true"}, RV_EINVAL, "--gpu-count"},
    {{"run", "--json=1", "true"}, RV_EINVAL, "--json"},
    {{"run", "-g"}, RV_EINVAL, "value"},
    {{"run", "-M", "x", "true"}, RV_ENOTSUP, "one cluster"},
    {{"run", "--clusters=x", "true"}, RV_ENOTSUP, "one cluster"},
    {{"run", "--slurm=--nodes=2", "true"}, RV_EINVAL, "--nodes"},
    {{"run", "-f", "--array=0-3", "true"}, RV_EINVAL, "--array"},
};

static int count (char *const argv[])
{
    int n = 0;

    while (n < WORDS && argv[n])
        n++;
    return n;
}

static void refused (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (bads) / sizeof (bads[0]); i++) {
        char *argv[WORDS + 1] = {NULL};
        struct run_opts opts;
        struct rv_error err = {0};

        memcpy (argv, bads[i].argv, sizeof (bads[i].argv));
        memset (&opts, 0x5a, sizeof (opts));
        if (run_opts_parse (count (bads[i].argv), argv, &opts, &err)
                != bads[i].code
            || !strstr (err.text, bads[i].says))
            fail_msg ("row %zu: %d %s", i, err.code, err.text);
        assert_int_equal (((unsigned char *)&opts)[0], 0x5a);
    }
}

static void asks_for_json (void **state)
{
    static const struct {
        char *argv[WORDS];
        bool json;
    } v[] = {
        {{"run", "--json", "true"}, true},
        {{"run", "-g", "1", "-t", "h100", "--json", "true"}, true},
        {{"run", "--nope", "--json", "true"}, true},
        {{"run", "-g", "--json", "true"}, false}, /* a value */
        {{"run", "true", "--json"}, false},
        {{"run", "--", "--json"}, false},
        {{"run"}, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *argv[WORDS + 1] = {NULL};

        memcpy (argv, v[i].argv, sizeof (v[i].argv));
        if (run_opts_json (count (v[i].argv), argv) != v[i].json)
            fail_msg ("row %zu", i);
    }
}

static void defaults (void **state)
{
    char *argv[] = {"run", "true", NULL};
    struct run_opts opts;

    (void)state;
    assert_int_equal (run_opts_parse (2, argv, &opts, NULL), RV_OK);
    assert_false (opts.gpus_given);
    assert_false (opts.time_given);
    assert_int_equal (opts.gpus, 1);
    assert_int_equal (opts.nodes, 0);
    assert_null (opts.type);
    assert_int_equal (opts.argc, 1);
    assert_ptr_equal (opts.argv, argv + 1);
    assert_false (opts.follow || opts.json || opts.dry_run || opts.label);
}

/* Options behind the command are its own, but may be a slip. */
static void misplaced (void **state)
{
    static const struct {
        char *argv[WORDS];
        const char *word;
    } v[] = {
        {{"run", "a.out", "--gpus", "2"}, "--gpus"},
        {{"run", "-g", "1", "a.out", "x", "--time=1h"}, "--time=1h"},
        {{"run", "a.out", "-g", "2"}, "-g"},
        {{"run", "a.out", "--dry-run"}, "--dry-run"},
        {{"run", "--", "a.out", "--gpus", "2"}, NULL},
        {{"run", "a.out", "--", "--gpus", "2"}, NULL},
        {{"run", "a.out", "--gpus-per-node", "-f", "--timeout=3"}, NULL},
        {{"run", "--gpus", "2", "a.out"}, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *argv[WORDS + 1] = {NULL};
        struct run_opts opts;
        const char *word;

        memcpy (argv, v[i].argv, sizeof (v[i].argv));
        assert_int_equal (run_opts_parse (count (v[i].argv), argv, &opts, NULL),
                          RV_OK);
        word = run_opts_misplaced (&opts);
        if (!word != !v[i].word || (word && strcmp (word, v[i].word)))
            fail_msg ("row %zu: %s", i, word ? word : "none");
    }
}

static void slurm_options (void **state)
{
    char *argv[] = {"run",         "-x",
                    "n1",          "--nodelist=n2",
                    "-Cfast",      "--exclusive",
                    "--slurm",     "--nice=1",
                    "--array=0-1", "--mail-type=END",
                    "true",        NULL};
    static const char *const want[] = {"exclude", "nodelist", "exclusive",
                                       NULL,      "array",    "mail-type"};
    struct run_opts opts;

    (void)state;
    assert_int_equal (run_opts_parse (11, argv, &opts, NULL), RV_OK);
    assert_int_equal (opts.slurm.n, 6);
    for (size_t i = 0; i < 6; i++)
        if (want[i])
            assert_string_equal (opts.slurm.opt[i].name, want[i]);
        else
            assert_null (opts.slurm.opt[i].name);
    assert_string_equal (opts.slurm.constraint, "fast");
    assert_null (opts.slurm.opt[2].value);
    assert_string_equal (opts.slurm.opt[3].value, "--nice=1");
}

static void all_given (void **state)
{
    char *argv[] = {"run",        "-fl",       "-g0",       "-t",     "A100",
                    "--time=1-2", "--mem",     "2G",        "-p",     "a,b",
                    "-Aacc",      "-qq",       "--nodes=3", "--name", "x.1_",
                    "--",         "--dry-run", "-f",        NULL};
    struct run_opts opts;

    (void)state;
    assert_int_equal (run_opts_parse (18, argv, &opts, NULL), RV_OK);
    assert_true (opts.follow && opts.label && opts.gpus_given);
    assert_int_equal (opts.gpus, 0);
    assert_string_equal (opts.type, "A100");
    assert_int_equal (opts.time_s, 26 * 3600);
    assert_int_equal (opts.mem_bytes, (int64_t)2 << 30);
    assert_string_equal (opts.partition, "a,b");
    assert_string_equal (opts.account, "acc");
    assert_string_equal (opts.qos, "q");
    assert_int_equal (opts.nodes, 3);
    assert_string_equal (opts.name, "x.1_");
    assert_int_equal (opts.argc, 2);
    assert_string_equal (opts.argv[0], "--dry-run");
}

/* The command's own options are not ours, and keep their order. */
static void stops_at_command (void **state)
{
    char *argv[] = {"run", "-g2", "python", "-g", "x", "--json", "-f", NULL};
    struct run_opts opts;

    (void)state;
    assert_int_equal (run_opts_parse (7, argv, &opts, NULL), RV_OK);
    assert_int_equal (opts.gpus, 2);
    assert_false (opts.json || opts.follow);
    assert_int_equal (opts.argc, 5);
    assert_string_equal (opts.argv[0], "python");
    assert_string_equal (opts.argv[4], "-f");
}

static void memory_and_nodes (void **state)
{
    char *argv[] = {"run", "--vram=80G", "--single-node", "true", NULL};
    struct run_opts opts;

    (void)state;
    assert_int_equal (run_opts_parse (4, argv, &opts, NULL), RV_OK);
    assert_int_equal (opts.vram_bytes, (int64_t)80 << 30);
    assert_int_equal (opts.nodes, 1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (asks_for_json),
        cmocka_unit_test (defaults),
        cmocka_unit_test (misplaced),
        cmocka_unit_test (slurm_options),
        cmocka_unit_test (all_given),
        cmocka_unit_test (stops_at_command),
        cmocka_unit_test (memory_and_nodes),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
