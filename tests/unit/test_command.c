/* SPDX-License-Identifier: Apache-2.0
 * test_command.c - names, launchers and counts read off a command line */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/command.h"

#define WORDS 12

struct vector {
    char *argv[WORDS];
    const char *name;
    enum command_launch launch;
    uint32_t nproc, nnodes;
};

static void bad_arguments (void **state)
{
    struct command cmd;
    struct rv_error err = {0};
    char *none[] = {NULL};
    char *zero[] = {"torchrun", "--nproc_per_node=0", "x.py", NULL};
    char *text[] = {"torchrun", "--nproc-per-node", "2x", "x.py", NULL};
    char *nodes[] = {"torchrun", "--nnodes=3.5", "x.py", NULL};

    (void)state;
    memset (&cmd, 0x5a, sizeof (cmd));
    assert_int_equal (command_scan (0, none, &cmd, &err), RV_EINVAL);
    assert_int_equal (command_scan (3, zero, &cmd, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "0"));
    assert_int_equal (command_scan (4, text, &cmd, &err), RV_EINVAL);
    assert_non_null (strstr (err.text, "2x"));
    assert_int_equal (command_scan (3, nodes, &cmd, NULL), RV_EINVAL);
    assert_int_equal (((unsigned char *)&cmd)[0], 0x5a); /* untouched */
}

static const struct vector vectors[] = {
    {{"true"}, "true", COMMAND_PER_GPU, 0, 0},
    {{"./Train Model.v2.sh"}, "train-model-v2", COMMAND_PER_GPU, 0, 0},
    {{"/opt/x/nvidia-smi", "-L"}, "nvidia-smi", COMMAND_PER_GPU, 0, 0},
    {{"python", "train.py", "--lr", "0.1"}, "train", COMMAND_PER_GPU, 0, 0},
    {{"python3.11", "-u", "-W", "ignore", "a/b/fit_llm.py"},
     "fit-llm",
     COMMAND_PER_GPU,
     0,
     0},
    {{"python", "-c", "import torch"}, "python", COMMAND_PER_GPU, 0, 0},
    {{"python", "-um", "pkg.sub.main", "x.py"}, "main", COMMAND_PER_GPU, 0, 0},
    {{"env", "-u", "X", "A=1", "B=x y", "python", "t.py"},
     "t",
     COMMAND_PER_GPU,
     0,
     0},
    {{"bash", "-c", "python x.py"}, "bash", COMMAND_PER_GPU, 0, 0},
    {{"timeout", "-k", "5", "1h", "./go.sh"}, "go", COMMAND_PER_GPU, 0, 0},
    /* launchers: options and their values are stepped over */
    {{"torchrun", "--standalone", "train.py"}, "train", COMMAND_PER_NODE, 0, 0},
    {{"torchrun", "--nproc_per_node", "2", "--nnodes=4", "train.py"},
     "train",
     COMMAND_PER_NODE,
     2,
     4},
    {{"/v/bin/torchrun", "--nproc-per-node=8", "--rdzv-conf", "timeout=9", "-m",
      "pkg.train"},
     "train",
     COMMAND_PER_NODE,
     8,
     0},
    {{"torchrun", "--nproc-per-node=gpu", "--nnodes", "1:4", "x.py"},
     "x",
     COMMAND_PER_NODE,
     0,
     0},
    {{"uv", "run", "--with", "numpy", "torchrun", "--nproc_per_node=2", "a.py"},
     "a",
     COMMAND_PER_NODE,
     2,
     0},
    {{"python3", "-m", "torch.distributed.run", "--nproc_per_node=2", "b.py"},
     "b",
     COMMAND_PER_NODE,
     2,
     0},
    {{"accelerate", "launch", "--multi_gpu", "--num_machines", "2", "c.py"},
     "c",
     COMMAND_PER_NODE,
     0,
     2},
    {{"deepspeed", "--num_gpus=2", "--master_port", "29501", "d.py",
      "--deepspeed", "ds.json"},
     "d",
     COMMAND_PER_NODE,
     2,
     0},
    {{"accelerate", "env"}, "env", COMMAND_PER_NODE, 0, 0},
    {{"torchrun"}, "torchrun", COMMAND_PER_NODE, 0, 0},
    /* an argument of the script is no option of the launcher */
    {{"torchrun", "e.py", "--nproc_per_node=3"}, "e", COMMAND_PER_NODE, 0, 0},
    {{"python", "f.py", "torchrun", "--nproc_per_node=3"},
     "f",
     COMMAND_PER_GPU,
     0,
     0},
    /* names that could not be one */
    {{"./12.sh"}, "job", COMMAND_PER_GPU, 0, 0},
    {{"./\xc3\xa9\xc3\xa8.py"}, "job", COMMAND_PER_GPU, 0, 0},
    {{"../$(reboot)\n.py"}, "reboot", COMMAND_PER_GPU, 0, 0},
    {{"a-very-long-name-of-a-script-indeed.py"},
     "a-very-long-name-of",
     COMMAND_PER_GPU,
     0,
     0},
    {{""}, "job", COMMAND_PER_GPU, 0, 0},
};

static void scan (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++) {
        const struct vector *v = &vectors[i];
        struct rv_error err = {0};
        struct command cmd;
        int argc = 0;

        while (argc < WORDS && v->argv[argc])
            argc++;
        assert_int_equal (command_scan (argc, v->argv, &cmd, &err), RV_OK);
        assert_string_equal (cmd.name, v->name);
        assert_int_equal (cmd.launch, v->launch);
        assert_int_equal (cmd.nproc, v->nproc);
        assert_int_equal (cmd.nnodes, v->nnodes);
    }
}

static void names (void **state)
{
    static const char *const good[] = {"a", "Train_2.b-x", "0a"};
    static const char *const bad[] = {"",         "12",      "a b",  "-a",
                                      ".a",       "../x",    "a\nb", "a/b",
                                      "\xc3\xa9", "$(true)", "a%j"};
    char text[80];
    struct rv_error err;

    (void)state;
    for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++)
        assert_int_equal (command_name_check (good[i], NULL), RV_OK);
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        assert_int_equal (command_name_check (bad[i], &err), RV_EINVAL);
        assert_non_null (strstr (err.text, "would do"));
    }
    memset (text, 'x', sizeof (text));
    text[63] = '\0';
    assert_int_equal (command_name_check (text, NULL), RV_OK);
    text[63] = 'x';
    text[64] = '\0';
    assert_int_equal (command_name_check (text, NULL), RV_EINVAL);
    assert_int_equal (command_name_check (NULL, NULL), RV_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments),
        cmocka_unit_test (scan),
        cmocka_unit_test (names),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
