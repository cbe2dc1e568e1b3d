/* SPDX-License-Identifier: Apache-2.0
 * test_launch.c - what torchrun, accelerate and deepspeed are told, and what
 * cannot start */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "exec/launch.h"

#define WORDS 10
#define N(a)  (sizeof (a) / sizeof ((a)[0]))

static void scan (char *const *argv, struct command *cmd)
{
    struct rv_error err = {0};
    int argc = 0;

    while (argv[argc])
        argc++;
    assert_int_equal (command_scan (argc, argv, cmd, &err), 0);
}

static struct launch four_tasks (const struct command *cmd, char *const *argv,
                                 uint32_t nodes)
{
    return (struct launch){.cmd = cmd,
                           .argv = argv,
                           .rank = nodes - 1,
                           .size = nodes,
                           .node = nodes - 1,
                           .nodes = nodes,
                           .processes = 4,
                           .job_id = 77,
                           .step_id = 3,
                           .local_addr = "10.0.0.2"};
}

static const struct {
    char *argv[WORDS];
    uint32_t size, nodes;
    const char *why; /* NULL: fine */
} checks[] = {
    {{"torchrun", "a.py"}, 4, 2, "this step has 4 tasks on 2 nodes"},
    {{"torchrun", "a.py"}, 2, 1, "2 tasks on 1 node; ask for one"},
    {{"torchrun", "a.py"}, 2, 2, NULL},
    {{"torchrun", "--nnodes=4", "--nproc-per-node=1", "a.py"}, 4, 2, NULL},
    {{"torchrun", "--nnodes=3", "a.py"}, 4, 2, "4 tasks"},
    {{"torchrun", "--standalone", "a.py"}, 2, 2, "--standalone stays on one"},
    {{"torchrun", "--standalone", "a.py"}, 1, 1, NULL},
    {{"torchrun", "a.py", "--standalone"}, 2, 2, NULL}, /* the script's own */
    {{"accelerate", "launch", "a.py"}, 2, 2, NULL},
    {{"accelerate", "launch", "--num_machines=2", "a.py"},
     2,
     2,
     "--num_machines without --machine_rank"},
    {{"accelerate", "launch", "--num_machines", "2", "--machine_rank", "1",
      "a.py"},
     2,
     2,
     NULL},
    {{"deepspeed", "--num_gpus=4", "x/a.py"}, 2, 2, "use 'torchrun a.py'"},
    {{"deepspeed", "--num_gpus=4", "a.py"}, 1, 1, NULL},
    {{"deepspeed", "--hostfile", "h", "--no_ssh", "--node_rank=1", "a.py"},
     2,
     2,
     NULL},
    {{"python3", "a.py", "--standalone"}, 8, 2, NULL},
};

static void what_cannot_start (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (checks); i++) {
        struct rv_error err = {0};
        struct command cmd;
        struct launch l;

        scan (checks[i].argv, &cmd);
        l = four_tasks (&cmd, checks[i].argv, checks[i].nodes);
        l.size = checks[i].size;
        assert_int_equal (launch_check (&l, &err),
                          checks[i].why ? RV_EINVAL : RV_OK);
        if (checks[i].why && !strstr (err.text, checks[i].why))
            fail_msg ("%zu: %s", i, err.text);
    }
}

#define MASTER "MASTER_ADDR=10.0.0.1", "MASTER_PORT=33333"

static const struct {
    char *argv[WORDS];
    char *env[6];
    uint32_t nodes;
    bool stale;
    const char *want[9]; /* PET_*, in this order, "-" where unset */
} vectors[] = {
    /* NNODES NODE_RANK NPROC_PER_NODE MASTER_ADDR MASTER_PORT LOCAL_ADDR
     * RDZV_ENDPOINT RDZV_CONF RDZV_ID */
    {{"python3", "a.py"},
     {MASTER},
     2,
     false,
     {"-", "-", "-", "-", "-", "-", "-", "-", "-"}},
    {{"deepspeed", "a.py"},
     {MASTER},
     1,
     false,
     {"-", "-", "-", "-", "-", "-", "-", "-", "-"}},
    {{"torchrun", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "10.0.0.1", "33333", "10.0.0.2", "-", "-", "-"}},
    /* the user's stay, those of another step do not */
    {{"torchrun", "a.py"},
     {MASTER, "PET_NNODES=9", "PET_NPROC_PER_NODE=2"},
     2,
     false,
     {"9", "1", "2", "10.0.0.1", "33333", "10.0.0.2", "-", "-", "-"}},
    {{"torchrun", "a.py"},
     {MASTER, "PET_NNODES=9", "PET_RDZV_CONF=is_host=1"},
     2,
     true,
     {"2", "1", "4", "10.0.0.1", "33333", "10.0.0.2", "-", "-", "-"}},
    {{"python3", "a.py"},
     {MASTER, "PET_NNODES=9", "PET_NODE_RANK=1"},
     2,
     true,
     {"-", "-", "-", "-", "-", "-", "-", "-", "-"}},
    /* c10d: an endpoint, and every node is told whether it hosts */
    {{"torchrun", "--rdzv-backend=c10d", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "-", "-", "10.0.0.2", "10.0.0.1:33333", "is_host=0",
      "77.3.0"}},
    {{"torchrun", "a.py"},
     {MASTER, "PET_RDZV_BACKEND=c10d"},
     1,
     false,
     {"1", "0", "4", "-", "-", "10.0.0.2", "10.0.0.1:33333", "is_host=1",
      "77.3.0"}},
    {{"torchrun", "--rdzv_backend", "c10d", "--rdzv_endpoint=h:1", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "-", "-", "10.0.0.2", "-", "-", "-"}},
    {{"torchrun", "--rdzv-backend=c10d", "a.py"},
     {"MASTER_ADDR=fd00::1", "MASTER_PORT=33333"},
     2,
     false,
     {"2", "1", "4", "-", "-", "10.0.0.2", "[fd00::1]:33333", "is_host=0",
      "77.3.0"}},
    {{"torchrun", "--rdzv-backend=etcd-v2", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "-", "-", "10.0.0.2", "-", "-", "-"}},
    {{"accelerate", "launch", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "10.0.0.1", "33333", "10.0.0.2", "10.0.0.1:33333", "-",
      "-"}},
    {{"accelerate", "launch", "--num_machines=2", "--machine_rank=1", "a.py"},
     {MASTER},
     2,
     false,
     {"2", "1", "4", "10.0.0.1", "33333", "10.0.0.2", "-", "-", "-"}},
};

static void variables (void **state)
{
    static const char *const name[] = {
        "PET_NNODES",        "PET_NODE_RANK",   "PET_NPROC_PER_NODE",
        "PET_MASTER_ADDR",   "PET_MASTER_PORT", "PET_LOCAL_ADDR",
        "PET_RDZV_ENDPOINT", "PET_RDZV_CONF",   "PET_RDZV_ID"};

    (void)state;
    for (size_t i = 0; i < N (vectors); i++) {
        struct command cmd;
        struct launch l;
        struct envv env;

        scan (vectors[i].argv, &cmd);
        l = four_tasks (&cmd, vectors[i].argv, vectors[i].nodes);
        assert_int_equal (envv_copy (&env, vectors[i].env), 0);
        assert_int_equal (launch_env (&l, vectors[i].stale, &env), 0);
        for (size_t k = 0; k < N (name); k++) {
            const char *value = envv_get (&env, name[k]);

            if (strcmp (value ? value : "-", vectors[i].want[k]) != 0)
                fail_msg ("%zu: %s=%s", i, name[k], value ? value : "-");
        }
        envv_fini (&env);
    }
}

static void tasks_as_nodes (void **state)
{
    char *const argv[] = {"torchrun", "--nnodes=4", "a.py", NULL};
    struct command cmd;
    struct launch l;
    struct envv env = {0};

    (void)state;
    scan (argv, &cmd);
    l = four_tasks (&cmd, argv, 2);
    l.rank = 3;
    l.size = 4;
    assert_int_equal (launch_env (&l, false, &env), 0);
    assert_string_equal (envv_get (&env, "PET_NNODES"), "4");
    assert_string_equal (envv_get (&env, "PET_NODE_RANK"), "3");
    envv_fini (&env);
}

static void processes (void **state)
{
    struct command none = {.nproc = 0}, three = {.nproc = 3};

    (void)state;
    assert_int_equal (launch_processes (&none, 0), 1);
    assert_int_equal (launch_processes (&none, 8), 8);
    assert_int_equal (launch_processes (&three, 8), 3);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (what_cannot_start),
        cmocka_unit_test (variables),
        cmocka_unit_test (tasks_as_nodes),
        cmocka_unit_test (processes),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
