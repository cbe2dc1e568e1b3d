/* SPDX-License-Identifier: Apache-2.0
 * test_sandbox_files.c - the files that rv sandbox writes for Slurm */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"
#include "sandbox/files.h"
#include "sandbox/state.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void has_line (const char *text, const char *line)
{
    size_t len = strlen (line);

    for (const char *p = text; (p = strstr (p, line)); p++)
        if ((p == text || p[-1] == '\n') && p[len] == '\n')
            return;
    fail_msg ("no line '%s' in:\n%s", line, text);
}

static void slurm_conf (void **state)
{
    struct sandbox sb = {.dir = "/d",
                         .cluster = "rv0",
                         .type = "h100",
                         .nodes = 2,
                         .gpus = 3,
                         .cpus = 4,
                         .pmix = true,
                         .port = {100, 101, 102}};
    struct files_site site = {.user = "joe",
                              .mem_mb = 1000,
                              .slurm_release = 2205,
                              .first_job_id = 77};
    char *text = files_slurm_conf (&sb, &site);

    has_line (text, "ClusterName=rv0");
    has_line (text, "SlurmUser=joe");
    has_line (text, "AuthInfo=socket=/d/munge.socket");
    has_line (text, "CommunicationParameters=NoInAddrAny,NoCtldInAddrAny");
    has_line (text, "MpiDefault=pmix");
    has_line (text, "ProctrackType=proctrack/linuxproc");
    has_line (text, "TaskPlugin=task/none");
    has_line (text, "SlurmdSpoolDir=/d/%n/spool");
    has_line (text, "TmpFS=/d/%n/tmp");
    has_line (text, "GresTypes=gpu");
    has_line (text, "NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 "
                    "Port=101 CPUs=4 Boards=1 SocketsPerBoard=1 "
                    "CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500 "
                    "Gres=gpu:h100:2 State=UNKNOWN");
    has_line (text, "FirstJobId=77");
    has_line (text, "DefMemPerCPU=125");
    has_line (text, "PartitionName=gpu Nodes=n[1-2] Default=YES "
                    "MaxTime=INFINITE State=UP");
    assert_null (strstr (text, "TaskProlog"));
    free (text);
    sb.gpus = 0;
    sb.pmix = false;
    text = files_slurm_conf (&sb, &site);
    has_line (text, "MpiDefault=none");
    assert_null (strstr (text, "Gres"));
    free (text);
    (void)state;
}

static void gres_conf (void **state)
{
    struct sandbox sb = {.dir = "/d", .type = "h100", .nodes = 3, .gpus = 3};
    char *text = files_gres_conf (&sb);

    assert_string_equal (
        text, "NodeName=n1 Name=gpu Type=h100 File=/d/n1/dev/gpu[0-0]\n"
              "NodeName=n2 Name=gpu Type=h100 File=/d/n2/dev/gpu[0-0]\n"
              "NodeName=n3 Name=gpu Type=h100 File=/d/n3/dev/gpu[0-0]"
              "\n");
    free (text);
    sb.nodes = 2;
    sb.real_gpus = true;
    text = files_gres_conf (&sb);
    assert_string_equal (
        text, "NodeName=n1 Name=gpu Type=h100 File=/dev/nvidia[0-1]\n"
              "NodeName=n2 Name=gpu Type=h100 File=/dev/nvidia[2-2]\n");
    free (text);
    (void)state;
}

static void cgroup_conf (void **state)
{
    struct files_site site = {.slurm_release = 2205};
    struct sandbox sb = {.dir = "/d"};
    char *text = files_cgroup_conf (&sb, &site);

    assert_string_equal (text, "CgroupPlugin=cgroup/v1\n");
    free (text);
    site.slurm_release = 2411;
    text = files_cgroup_conf (&sb, &site);
    assert_string_equal (text, "CgroupPlugin=disabled\n");
    free (text);
    sb.cgroup = true;
    for (int swap = 0; swap <= 1; swap++) {
        site.swap = swap;
        text = files_cgroup_conf (&sb, &site);
        has_line (text, "CgroupPlugin=cgroup/v1");
        has_line (text, "CgroupMountpoint=/d/cgroup");
        has_line (text, "ConstrainDevices=yes");
        has_line (text, "ConstrainRAMSpace=yes");
        assert_int_equal (strstr (text, "AllowedSwapSpace=0\n") != NULL, swap);
        free (text);
    }
    (void)state;
}

/* The script is run, not read: two nodes of two real GPUs. */
static void task_prolog (void **state)
{
    static const struct {
        const char *node, *before, *out;
    } vector[] = {
        {"SLURMD_NODENAME=n1", "CUDA_VISIBLE_DEVICES=0,1",
         "export CUDA_VISIBLE_DEVICES=0,1\n"},
        {"SLURMD_NODENAME=n2", "CUDA_VISIBLE_DEVICES=0,1",
         "export CUDA_VISIBLE_DEVICES=2,3\n"},
        {"SLURMD_NODENAME=n2", "CUDA_VISIBLE_DEVICES=1",
         "export CUDA_VISIBLE_DEVICES=3\n"},
        {"SLURMD_NODENAME=n2", "CUDA_VISIBLE_DEVICES=2,3", ""},
        {"SLURMD_NODENAME=n2", "CUDA_VISIBLE_DEVICES=GPU-1a", ""},
        {"SLURMD_NODENAME=n2", "CUDA_VISIBLE_DEVICES=", ""},
        {"SLURMD_NODENAME=n2", "X=", ""},
        {"SLURMD_NODENAME=n9", "CUDA_VISIBLE_DEVICES=0", ""},
    };
    struct sandbox sb = {.nodes = 2, .gpus = 4, .real_gpus = true};
    char *script = files_task_prolog (&sb);

    for (size_t i = 0; i < LENGTH (vector); i++) {
        char *argv[] = {"/bin/sh", "-eu", "-s", NULL};
        char *env[] = {(char *)vector[i].node, (char *)vector[i].before, NULL};
        struct proc_opts opts = {
            .env = env, .input = script, .input_len = strlen (script)};
        struct proc_result result;

        if (vector[i].before[0] == 'X')
            argv[1] = "-e"; /* unset is not an error of the script */
        assert_int_equal (proc_run (argv, &opts, &result, NULL), RV_OK);
        assert_int_equal (result.status, 0);
        assert_string_equal (result.out, vector[i].out);
        proc_result_fini (&result);
    }
    free (script);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (slurm_conf),
        cmocka_unit_test (gres_conf),
        cmocka_unit_test (cgroup_conf),
        cmocka_unit_test (task_prolog),
    };

    return cmocka_run_group_tests_name ("sandbox_files", tests, NULL, NULL);
}
