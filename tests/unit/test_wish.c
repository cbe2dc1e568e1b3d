/* SPDX-License-Identifier: Apache-2.0
 * test_wish.c - what is asked of a client, and the variables it becomes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "spank/wish.h"

static const char *const *fake_env; /* "NAME=value", NULL */

static const char *get (const char *name)
{
    size_t len = strlen (name);

    for (size_t i = 0; fake_env && fake_env[i]; i++)
        if (strncmp (fake_env[i], name, len) == 0 && fake_env[i][len] == '=')
            return fake_env[i] + len + 1;
    return NULL;
}

struct vector {
    enum cli_client client;
    const char *env[4];
    const char *line; /* options, words by blanks */
    const char *conflict;
    const char *vars; /* for a100:4, two a node: "NAME=value " */
};

#define SPANK "SLURM_SPANK__SLURM_SPANK_OPTION_rv_"

static const struct vector vectors[] = {
    /* rivals, refused */
    {CLI_SRUN, {0}, "--gres=gpu:1", "--gres", NULL},
    {CLI_SRUN, {0}, "--gres gpu:1", "--gres", NULL},
    {CLI_SRUN, {0}, "--gres=none", "--gres", NULL},
    {CLI_SRUN, {0}, "-G 2", "--gpus", NULL},
    {CLI_SRUN, {0}, "-G2", "--gpus", NULL},
    {CLI_SRUN, {0}, "--gpus=2", "--gpus", NULL},
    {CLI_SRUN, {0}, "--gpus-per-n=2", "--gpus-per-node", NULL},
    {CLI_SRUN, {0}, "--gpus-per-socket=2", "--gpus-per-socket", NULL},
    {CLI_SRUN, {0}, "--gpus-per-task=2", "--gpus-per-task", NULL},
    {CLI_SRUN, {0}, "--ntasks-per-gpu=1", "--ntasks-per-gpu", NULL},
    {CLI_SRUN, {0}, "--ntasks-per-tres=1", "--ntasks-per-tres", NULL},
    {CLI_SRUN, {0}, "--tres-per-task=gres/gpu:1", "--tres-per-task", NULL},
    {CLI_SRUN, {"SLURM_GPUS=2"}, "", "SLURM_GPUS", NULL},
    {CLI_SRUN, {"SLURM_GRES=gpu:2"}, "", "SLURM_GRES", NULL},
    {CLI_SRUN, {"SLURM_NTASKS_PER_GPU=1"}, "", "SLURM_NTASKS_PER_GPU", NULL},
    {CLI_SBATCH, {"SBATCH_GPUS=2"}, "", "SBATCH_GPUS", NULL},
    {CLI_SBATCH, {"SBATCH_GPUS_PER_NODE=2"}, "", "SBATCH_GPUS_PER_NODE", NULL},
    {CLI_SALLOC, {"SALLOC_GRES=gpu:2"}, "", "SALLOC_GRES", NULL},
    /* no rivals */
    {CLI_SRUN,
     {"SBATCH_GPUS=2"},
     "--gres=tmpdisk:5",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_CPUS_PER_GPU=3 "},
    {CLI_SRUN,
     {"SLURM_GRES=license:1"},
     "--tres-per-task=cpu:2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_CPUS_PER_GPU=3 "},
    {CLI_SBATCH, {"SLURM_GPUS=2"}, "", "", "SBATCH_GPUS=a100:4 "},
    /* srun: tasks, unless the user chose them */
    {CLI_SRUN,
     {0},
     "",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_CPUS_PER_GPU=3 "},
    {CLI_SRUN, {0}, "-n 2", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {0}, "-n 6", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {0}, "-n x", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {0}, "-n 4", "", "SLURM_GPUS=a100:4 SLURM_CPUS_PER_GPU=3 "},
    {CLI_SRUN, {0}, "-n 16", "", "SLURM_GPUS=a100:4 SLURM_CPUS_PER_GPU=4 "},
    {CLI_SRUN,
     {0},
     "-n 4 -c 2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS_PER_NODE=2 "},
    {CLI_SRUN,
     {0},
     "-n 8 -c 2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS_PER_NODE=4 "},
    {CLI_SRUN,
     {0},
     "--ntasks-per-node=2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 "},
    {CLI_SRUN,
     {0},
     "--tasks-per-node=1",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=2 "},
    {CLI_SRUN, {0}, "--ntasks-per-node=1 -N4", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {0}, "--ntasks-per-node=1 -n2", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {0}, "--ntasks-per-node=x", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN, {"SLURM_NTASKS=6"}, "", "", "SLURM_GPUS=a100:4 "},
    {CLI_SRUN,
     {"SLURM_NPROCS=8"},
     "",
     "",
     "SLURM_GPUS=a100:4 SLURM_CPUS_PER_GPU=3 "},
    {CLI_SRUN,
     {"SLURM_NTASKS_PER_NODE=2"},
     "",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 "},
    {CLI_SRUN,
     {0},
     "--cpus-per-gpu=2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 "},
    {CLI_SRUN,
     {"SLURM_CPUS_PER_GPU=2"},
     "",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 "},
    {CLI_SRUN,
     {0},
     "-c 2",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "},
    {CLI_SRUN,
     {"SRUN_CPUS_PER_TASK=2"},
     "",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "},
    {CLI_SRUN,
     {0},
     "-c2 -N4",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=1 "},
    {CLI_SRUN,
     {0},
     "-c2 -N3",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "},
    {CLI_SRUN,
     {0},
     "-c2 -N2-4",
     "",
     "SLURM_GPUS=a100:4 SLURM_NTASKS=4 SLURM_NTASKS_PER_NODE=2 "},
    /* in a job nothing is allocated */
    {CLI_SRUN, {"SLURM_JOB_ID=7"}, "", "", ""},
    {CLI_SRUN, {0}, "--jobid=7", "", ""},
    {CLI_SRUN, {0}, "--jobid 7", "", ""},
    {CLI_SBATCH, {"SLURM_JOB_ID=7"}, "", "", "SBATCH_GPUS=a100:4 "},
    {CLI_SALLOC, {"SLURM_JOB_ID=7"}, "", "", "SALLOC_GPUS=a100:4 "},
    /* sbatch and salloc read no tasks */
    {CLI_SALLOC, {0}, "-n 2 -c 2", "", "SALLOC_GPUS=a100:4 "},
};

static void note_words (struct wish *w, const char *line)
{
    static char buf[256]; /* the wish borrows from it */
    char *argv[32] = {"x"}, *rest = NULL;
    int argc = 1;

    snprintf (buf, sizeof (buf), "%s", line);
    for (char *p = strtok_r (buf, " ", &rest); p;
         p = strtok_r (NULL, " ", &rest))
        argv[argc++] = p;
    cli_scan (w->client, argc, argv, wish_seen, w);
}

static void becomes (void **state)
{
    const struct gpu_request req = {.type = "A100", .count = 4};
    const struct wish_site site = {
        .per_node = 2, .cpus_per_gpu = 3, .type = "a100"};

    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        const struct vector *v = &vectors[i];
        struct wish_var vars[WISH_VARS_MAX];
        struct rv_error err = {0};
        char text[256] = "";
        struct wish w;
        size_t n;

        fake_env = v->env;
        wish_init (&w, v->client, get);
        note_words (&w, v->line);
        if (strcmp (w.conflict, v->conflict) != 0)
            fail_msg ("case %zu: conflict '%s'", i, w.conflict);
        assert_int_equal (wish_check (&w, &err),
                          v->conflict[0] ? RV_EINVAL : RV_OK);
        if (v->conflict[0]) {
            assert_non_null (strstr (err.text, v->conflict));
            assert_non_null (strstr (err.text, "keep one"));
            continue;
        }
        n = wish_vars (&w, &req, &site, vars);
        for (size_t k = 0; k < n; k++)
            snprintf (text + strlen (text), sizeof (text) - strlen (text),
                      "%s=%s ", vars[k].name, vars[k].value);
        if (strcmp (text, v->vars) != 0)
            fail_msg ("case %zu: got '%s', want '%s'", i, text, v->vars);
    }
}

static void options_of_the_environment (void **state)
{
    const char *const in_job[] = {"SLURM_JOB_ID=7", SPANK "rv_gpu=2",
                                  SPANK "rv_nccl_timeout=30m", NULL};
    struct wish w;

    (void)state;
    fake_env = in_job;
    /* A step is governed by its job's submission ... */
    wish_init (&w, CLI_SRUN, get);
    assert_true (w.gpu_asked && w.timeout_asked && w.inside);
    assert_string_equal (w.gpu, "2");
    assert_string_equal (w.timeout, "30m");
    /* ... unless it is asked otherwise; another job is not. */
    note_words (&w, "--rv-nccl-timeout=5m --rv-gpu=4 --rv-gpu=8");
    assert_string_equal (w.gpu, "8");
    assert_string_equal (w.timeout, "5m");
    wish_init (&w, CLI_SBATCH, get);
    assert_false (w.gpu_asked || w.timeout_asked || w.inside);
    wish_init (&w, CLI_SALLOC, get);
    assert_false (w.gpu_asked || w.timeout_asked);
    /* Outside a job the user exported them. */
    fake_env = in_job + 1;
    wish_init (&w, CLI_SBATCH, get);
    assert_true (w.gpu_asked && w.timeout_asked);
    fake_env = NULL;
    wish_init (&w, CLI_SRUN, get);
    assert_false (w.gpu_asked || w.timeout_asked || w.inside || w.tasks);
    note_words (&w, "--rv-gpu"); /* without a value */
    assert_true (w.gpu_asked);
    assert_null (w.gpu);
}

static void other_facts (void **state)
{
    const char *const env[] = {"SLURM_MPI_TYPE=pmi2", "SLURM_CLUSTERS=b",
                               "SLURM_KILL_BAD_EXIT=0", "SLURM_PARTITION=a",
                               NULL};
    struct wish w;

    (void)state;
    fake_env = env;
    wish_init (&w, CLI_SRUN, get);
    assert_string_equal (w.mpi, "pmi2");
    assert_string_equal (w.partition, "a");
    assert_true (w.elsewhere && w.kill);
    fake_env = NULL;
    wish_init (&w, CLI_SRUN, get);
    assert_null (w.mpi);
    assert_null (w.partition);
    assert_false (w.elsewhere || w.kill);
    note_words (&w, "--mpi=pmix -K -M b -p c");
    assert_string_equal (w.mpi, "pmix");
    assert_string_equal (w.partition, "c");
    assert_true (w.elsewhere && w.kill);
}

static void env_is_on_or_off (void **state)
{
    static const char *const bad[] = {NULL, "", "ON", "yes", "on ", "offf"};
    struct rv_error err = {0};
    struct wish w;
    bool on = true;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        assert_int_equal (wish_parse_env (bad[i], &on, &err), RV_EINVAL);
        assert_true (on);
    }
    assert_int_equal (wish_parse_env ("off", &on, NULL), RV_OK);
    assert_false (on);
    assert_int_equal (wish_parse_env ("on", &on, NULL), RV_OK);
    assert_true (on);
    fake_env = NULL;
    wish_init (&w, CLI_SRUN, get);
    assert_false (w.env_asked);
    note_words (&w, "--rv-e off");
    assert_true (w.env_asked);
    assert_string_equal (w.env, "off");
}

static void script_lines (void **state)
{
    char value[] = "a100:2", longer[200];
    struct wish w;

    (void)state;
    fake_env = NULL;
    wish_init (&w, CLI_SBATCH, get);
    wish_seen_script (&w, "nodes", "2");
    wish_seen_script (&w, "gpus", "2");
    wish_take_script (&w);
    assert_false (w.gpu_asked);
    assert_int_equal (w.nodes, 2);
    wish_seen_script (&w, "ntasks", "4");
    assert_int_equal (w.tasks, 4);
    assert_string_equal (w.conflict, "--gpus");
    wish_seen_script (&w, "rv-mig", NULL);
    wish_take_script (&w);
    assert_true (w.mig_asked);
    assert_string_equal (w.mig, "");
    /* the last line counts; its text is copied */
    wish_seen_script (&w, "rv-gpu", "9");
    wish_seen_script (&w, "rv-gpu", value);
    value[0] = 'x';
    wish_take_script (&w);
    assert_true (w.gpu_asked);
    assert_string_equal (w.gpu, "a100:2");
    /* the command line comes before it */
    wish_init (&w, CLI_SBATCH, get);
    note_words (&w, "--rv-gpu=4 --wrap=x");
    wish_seen_script (&w, "rv-gpu", "9");
    wish_take_script (&w);
    assert_string_equal (w.gpu, "4");
    assert_true (w.wrap);
    /* no value, and far too much of it: both malformed later */
    wish_init (&w, CLI_SBATCH, get);
    wish_seen_script (&w, "rv-gpu", NULL);
    wish_take_script (&w);
    assert_string_equal (w.gpu, "");
    memset (longer, '1', sizeof (longer));
    longer[sizeof (longer) - 1] = '\0';
    wish_seen_script (&w, "rv-gpu", longer);
    assert_int_equal (strlen (w.gpu), sizeof (w.script_gpu) - 1);
}

static int dedicated (const char *type, uint32_t count,
                      const struct node_offer *offers, size_t n,
                      struct wish_site *site, struct rv_error *err)
{
    struct gpu_request req = {.count = count};

    snprintf (req.type, sizeof (req.type), "%s", type);
    return wish_dedicated (&req, offers, n, site, err);
}

static void no_slices_for_gpus (void **state)
{
    const struct node_offer one[] = {{"gpu:A100:2", 4}, {"gpu:A100:8", 1}};
    const struct node_offer mig[] = {{"gpu:a100:2,gpu:1g.10gb:7", 2}};
    const struct node_offer two[] = {{"gpu:a100:2,gpu:1g.10gb:7", 2},
                                     {"gpu:h100:8", 1}};
    struct wish_site s = {0};
    struct rv_error err = {0};

    (void)state;
    assert_int_equal (dedicated ("", 3, two, 2, &s, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "name a type: a100, h100"));
    assert_non_null (strstr (err.text, "--rv-gpu=a100:3"));
    assert_int_equal (dedicated ("", 3, two, 2, &s, NULL), RV_EINVAL);
    assert_string_equal (s.type, "");
    assert_int_equal (dedicated ("1G.10gb", 3, mig, 1, &s, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "use --rv-mig=1G.10gb:3"));
    /* untyped, where every GPU is whole */
    assert_int_equal (dedicated ("", 3, one, 2, &s, &err), RV_OK);
    assert_string_equal (s.type, "");
    assert_int_equal (s.per_node, 8);
    /* spelled as the nodes spell it */
    assert_int_equal (dedicated ("a100", 3, one, 1, &s, &err), RV_OK);
    assert_string_equal (s.type, "A100");
    assert_int_equal (s.per_node, 2);
    assert_int_equal (dedicated ("h100", 3, two, 2, &s, &err), RV_OK);
    assert_string_equal (s.type, "h100");
    assert_int_equal (s.per_node, 8);
    /* the one whole type there is */
    assert_int_equal (dedicated ("", 3, mig, 1, &s, &err), RV_OK);
    assert_string_equal (s.type, "a100");
    /* no answer from the controller */
    assert_int_equal (dedicated ("x", 3, NULL, 0, &s, &err), RV_OK);
    assert_string_equal (s.type, "x");
    assert_int_equal (s.per_node, 3);
}

static void mig (void **state)
{
    static const struct {
        struct wish w;
        uint32_t count;
        const char *says; /* NULL: fine */
    } c[] = {
        {{.client = CLI_SRUN}, 4, NULL},
        {{.client = CLI_SRUN, .tasks = 4}, 4, NULL},
        {{.client = CLI_SRUN, .tasks = -1}, 4, NULL},
        {{.client = CLI_SRUN, .tasks_per_node = 2, .nodes = 2}, 4, NULL},
        {{.client = CLI_SBATCH}, 1, NULL},
        {{.client = CLI_SBATCH, .tasks = 2}, 2, NULL},
        {{.client = CLI_SRUN, .gpu_asked = true}, 1, "--rv-gpu asks for"},
        {{.client = CLI_SRUN, .conflict = "--gres"}, 1, "--gres asks for GPUs"},
        {{.client = CLI_SRUN, .tasks = 1}, 2, "2 slices for 1 task, and"},
        {{.client = CLI_SRUN, .tasks = 3}, 2, "3 tasks for 2 slices; each"},
        {{.client = CLI_SRUN, .tasks_per_node = 2, .nodes = 2},
         3,
         "4 tasks for 3 slices"},
        {{.client = CLI_SBATCH}, 2, "start 2 tasks (-n 2)"},
        {{.client = CLI_SALLOC, .nodes = 3}, 2, "3 tasks for 2 slices"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (c) / sizeof (c[0]); i++) {
        struct rv_error err = {0};
        int rc = wish_check_mig (&c[i].w, c[i].count, &err);

        assert_int_equal (rc, c[i].says ? RV_EINVAL : RV_OK);
        if (c[i].says && !strstr (err.text, c[i].says))
            fail_msg ("case %zu: '%s'", i, err.text);
        assert_int_equal (wish_check_mig (&c[i].w, c[i].count, NULL), rc);
    }
}

static void nccl (void **state)
{
    static const struct {
        const char *version, *enable;
        uint32_t count;
        int rc;
        const char *warn; /* "": none */
    } c[] = {
        {"2.28.9", NULL, 1, RV_OK, ""},
        {"2.28.9", "1", 2, RV_OK, ""},
        {"2.28.9", "0", 2, RV_OK, ""},
        {"2.28.9", NULL, 2, RV_EINVAL, ""},
        {"1.9", NULL, 2, RV_EINVAL, ""},
        {"2.30.1", NULL, 2, RV_OK, "NCCL_MULTI_RANK_GPU_ENABLE=1 then"},
        {"3.0", NULL, 2, RV_OK, "NCCL_MULTI_RANK_GPU_ENABLE=1 then"},
        {"?", NULL, 2, RV_OK, "does not tell the job's NCCL"},
        {NULL, NULL, 2, RV_OK, "does not tell the job's NCCL"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (c) / sizeof (c[0]); i++) {
        char warn[256] = "untouched";

        assert_int_equal (
            wish_check_nccl (c[i].version, c[i].enable, c[i].count, warn, NULL),
            c[i].rc);
        if (c[i].warn[0] ? !strstr (warn, c[i].warn) : warn[0] != 0)
            fail_msg ("case %zu: '%s'", i, warn);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (mig),
        cmocka_unit_test (nccl),
        cmocka_unit_test (becomes),
        cmocka_unit_test (options_of_the_environment),
        cmocka_unit_test (other_facts),
        cmocka_unit_test (env_is_on_or_off),
        cmocka_unit_test (script_lines),
        cmocka_unit_test (no_slices_for_gpus),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
