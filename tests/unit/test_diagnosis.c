/* SPDX-License-Identifier: Apache-2.0
 * test_diagnosis.c - control groups, advice and the words for a failure */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/advice.h"
#include "exec/diagnose.h"
#include "exec/oom.h"
#include "failure.h"

/* Debian 12 with version 1 for Slurm, as such a machine shows it. */
static const char v1_self[] = "9:name=systemd:/\n"
                              "6:cpu,cpuacct:/slurm_n1/uid_0/job_5\n"
                              "4:memory:/slurm_n1/uid_0/job_5/step_0/task_1\n"
                              "0::/system.slice\n";
static const char v1_mounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup "
    "rw,cpu,cpuacct\n"
    "35 31 0:33 / /sys/fs/cgroup/memory rw shared:15 - cgroup cgroup "
    "rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
static const char v2_self[] =
    "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_2\n";
static const char v2_mounts[] =
    "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 "
    "rw,nsdelegate\n";

static void test_oom_folder (void **state)
{
    static const struct {
        const char *self, *mounts, *folder;
        enum oom_version version;
    } v[] = {
        {"", "", "", OOM_NONE},
        {"nonsense\n:\n1:x\n", v2_mounts, "", OOM_NONE},
        {v2_self, "", "", OOM_NONE},
        {v2_self, "1 2 3 4\n - \nshort - cgroup2\n", "", OOM_NONE},
        {v1_self, v2_mounts, "", OOM_NONE},
        {v1_self, v1_mounts,
         "/sys/fs/cgroup/memory/slurm_n1/uid_0/job_5/step_0/task_1", OOM_V1},
        {v2_self, v2_mounts,
         "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/"
         "task_2",
         OOM_V2},
        {"0::/", v2_mounts, "/sys/fs/cgroup", OOM_V2},
        /* version 2 beside version 1 without a memory controller */
        {"3:cpu:/a\n0::/b\n", v1_mounts, "/sys/fs/cgroup/unified/b", OOM_V2},
        /* "memory" is a word of its own */
        {"3:hugememory:/a\n0::/b\n", v1_mounts, "/sys/fs/cgroup/unified/b",
         OOM_V2},
        /* a container shows a part of the tree, or another */
        {"4:memory:/docker/abc/job_5\n",
         "9 8 0:1 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup "
         "rw,memory\n",
         "/sys/fs/cgroup/memory/job_5", OOM_V1},
        {"4:memory:/docker/abc\n",
         "9 8 0:1 /docker/abc /m ro - cgroup cgroup rw,memory\n", "/m", OOM_V1},
        {"4:memory:/docker/abcd\n",
         "9 8 0:1 /docker/abc /m ro - cgroup cgroup rw,memory\n", "/m", OOM_V1},
    };
    char buf[300], tiny[8];

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++) {
        assert_int_equal (
            oom_folder (v[i].self, v[i].mounts, buf, sizeof (buf)),
            v[i].version);
        assert_string_equal (buf, v[i].folder);
    }
    assert_int_equal (oom_folder (v2_self, v2_mounts, tiny, sizeof (tiny)),
                      OOM_NONE);
    assert_string_equal (tiny, "");
}

static void test_oom_count (void **state)
{
    static const char events[] = "low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\n"
                                 "oom_group_kill 0\n";
    static const char control[] = "oom_kill_disable 0\nunder_oom 0\n"
                                  "oom_kill 12";
    static const char old[] = "oom_kill_disable 1\nunder_oom 0\n";

    (void)state;
    assert_int_equal (oom_count ("", "oom_kill"), -1);
    assert_int_equal (oom_count ("oom_kill", "oom_kill"), -1);
    assert_int_equal (oom_count ("oom_kill x\n", "oom_kill"), -1);
    assert_int_equal (oom_count ("oom_kill 3x\n", "oom_kill"), -1);
    assert_int_equal (oom_count ("oom_kill -3\n", "oom_kill"), -1);
    assert_int_equal (oom_count (old, "oom_kill"), -1);
    assert_int_equal (oom_count (events, "oom_kill"), 1);
    assert_int_equal (oom_count (events, "oom"), 2);
    assert_int_equal (oom_count (control, "oom_kill"), 12);
}

static void test_oom_happened (void **state)
{
    static const struct {
        struct oom before, after;
        bool killed;
        int happened;
    } v[] = {
        {{-1, -1}, {-1, -1}, true, -1}, {{0, -1}, {-1, -1}, true, -1},
        {{-1, -1}, {4, -1}, true, -1},  {{3, -1}, {3, -1}, true, 0},
        {{3, -1}, {4, -1}, true, 1},    {{3, -1}, {4, -1}, false, 1},
        {{0, 5}, {0, 9}, true, 0},      {{-1, 5}, {-1, 9}, true, 1},
        {{-1, 5}, {-1, 9}, false, 0},   {{-1, 5}, {-1, 5}, true, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++)
        assert_int_equal (oom_happened (&v[i].before, &v[i].after, v[i].killed),
                          v[i].happened);
}

#define CANCELLED "slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026 "

static const struct {
    struct advice_in in;
    const char *kind; /* NULL: nothing is known */
} advised[] = {
    {{0, 0, false, false, "ImportError", NULL}, NULL},
    {{7, 0, false, false, NULL, NULL}, NULL},
    {{7, 0, false, false, "", ""}, NULL},
    {{7, 0, false, false, "all is lost", "srun: error: n1: task 0"}, NULL},
    {{-1, SIGTERM, false, true, NULL, NULL}, NULL},
    {{-1, SIGTERM, false, true, NULL, CANCELLED "DUE TO TIME LIMIT ***"},
     "time_limit"},
    {{0, 0, false, true, "ImportError", CANCELLED "DUE TO TIME LIMIT ***"},
     "time_limit"},
    {{-1, SIGTERM, false, true, NULL, CANCELLED "DUE TO PREEMPTION ***"},
     "preemption"},
    {{-1, SIGKILL, false, true, NULL, CANCELLED "DUE TO NODE FAILURE"},
     "node_failure"},
    {{-1, SIGTERM, false, true, NULL, "srun: error: Node failure on n2"},
     "node_failure"},
    {{-1, SIGTERM, false, true, "ImportError", CANCELLED "***"}, NULL},
    {{-1, SIGTERM, false, true, NULL, "srun: error: n1: task 0: Out Of Memory"},
     "out_of_memory"},
    /* a program that failed by itself before Slurm's limit */
    {{1, 0, false, false, "ImportError: x", "DUE TO TIME LIMIT"},
     "import_error"},
    {{-1, SIGKILL, true, false, NULL, NULL}, "out_of_memory"},
    {{1, 0, true, false, "ImportError", NULL}, "out_of_memory"},
    {{1, 0, false, false, "x\nMemoryError\n", NULL}, "out_of_memory"},
    {{-1, SIGABRT, false, false, "what():  std::bad_alloc", NULL},
     "out_of_memory"},
    {{1, 0, false, false,
      "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried", NULL},
     "gpu_out_of_memory"},
    {{1, 0, false, false, "RuntimeError: No CUDA GPUs are available", NULL},
     "missing_gpu"},
    {{1, 0, false, false, "CUDA error: invalid device ordinal", NULL},
     "missing_gpu"},
    {{1, 0, false, false,
      "NCCL WARN Duplicate GPU detected : rank 1 and rank 0", NULL},
     "shared_gpu"},
    {{1, 0, false, false,
      "NCCL WARN Bootstrap : Address already in use\nncclSystemError", NULL},
     "port_in_use"},
    {{1, 0, false, false,
      "torch.distributed.DistBackendError: NCCL error in: x.cpp, "
      "unhandled system error",
      NULL},
     "nccl"},
    {{1, 0, false, false, "ncclSystemError: System call", NULL}, "nccl"},
    {{1, 0, false, false, "ModuleNotFoundError: No module named 'x'", NULL},
     "import_error"},
    {{127, 0, false, false,
      "./a: error while loading shared libraries: libx.so.1: cannot open "
      "shared object file",
      NULL},
     "missing_library"},
    {{1, 0, false, false,
      "ImportError: libcudart.so.12: cannot open shared object file", NULL},
     "import_error"},
    {{-1, SIGKILL, false, false, NULL, NULL}, "killed"},
    {{-1, SIGSEGV, false, false, "", NULL}, "crash"},
    {{-1, SIGBUS, false, false, "", NULL}, "crash"},
    {{-1, SIGILL, false, false, "", NULL}, "crash"},
    {{-1, SIGUSR1, false, false, "", NULL}, NULL},
};

static void test_advice (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (advised) / sizeof (*advised); i++) {
        const struct advice *a = advice_for (&advised[i].in);

        if (!advised[i].kind) {
            assert_null (a);
            continue;
        }
        assert_non_null (a);
        assert_string_equal (a->kind, advised[i].kind);
        assert_int_equal (a->what != NULL,
                          !strcmp (a->kind, "time_limit")
                              || !strcmp (a->kind, "preemption")
                              || !strcmp (a->kind, "node_failure"));
        assert_true (*a->text && !strchr (a->text, '\n'));
    }
}

static void kinds (void **state)
{
    (void)state;
    assert_null (advice_of ("none"));
    assert_string_equal (advice_of ("preemption")->kind, "preemption");
}

static void lost_node (void **state)
{
    char node[8];

    (void)state;
    diagnose_lost_node (NULL, node, sizeof (node));
    assert_string_equal (node, "");
    diagnose_lost_node ("srun: error: n2: task 1: Killed\n", node,
                        sizeof (node));
    assert_string_equal (node, "");
    diagnose_lost_node ("a\nsrun: error: Node failure on n2\nb", node,
                        sizeof (node));
    assert_string_equal (node, "n2");
    diagnose_lost_node ("srun: error: Node failure on gpu-node-17", node,
                        sizeof (node));
    assert_string_equal (node, "gpu-nod");
}

static json_t *parse (const char *text)
{
    json_t *j = json_loads (text, 0, NULL);

    assert_non_null (j);
    return j;
}

static void test_node (void **state)
{
    static const char text[] = "srun: error: n1: task 12: Killed\n"
                               "srun: error: n2: tasks 0-1: Terminated\n"
                               "srun: error: gpu-b.x: task 2: Killed";
    char node[64];

    (void)state;
    diagnose_node ("", 0, node, sizeof (node));
    assert_string_equal (node, "");
    diagnose_node (text, 1, node, sizeof (node));
    assert_string_equal (node, "");
    diagnose_node (text, 12, node, sizeof (node));
    assert_string_equal (node, "n1");
    diagnose_node (text, 2, node, sizeof (node));
    assert_string_equal (node, "gpu-b.x");
}

#define RANK                                                                   \
    "{\"rank\":2,\"node\":\"n2\",\"exit_status\":null,\"signal\":9,"           \
    "\"signal_name\":\"KILL\",\"out_of_memory\":true,\"stderr_tail\":["        \
    "\"a\\u001bb\","                                                           \
    "\"\"],\"started_at\":\"2026-11-28T00:43:00.500000+00:00\","               \
    "\"ended_at\":\"2026-11-28T00:43:02.000000+00:00\",\"told_to_end\":false,"

static void test_device (void **state)
{
    static const struct {
        const char *rank, *device;
    } v[] = {
        {RANK "\"devices\":null,\"local_rank\":0}", NULL},
        {RANK "\"devices\":\"\",\"local_rank\":0}", NULL},
        {RANK "\"devices\":\"3\",\"local_rank\":1}", "3"},
        {RANK "\"devices\":\"4,5,7\",\"local_rank\":0}", "4"},
        {RANK "\"devices\":\"4,5,7\",\"local_rank\":2}", "7"},
        {RANK "\"devices\":\"4,5,7\",\"local_rank\":3}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (*v); i++) {
        json_t *rank = parse (v[i].rank);
        struct diagnose_in in = {
            .job_id = 5, .message = "m", .rank = rank, .silent_rank = -1};
        json_t *j = diagnose (&in);
        const char *device = json_string_value (json_object_get (j, "device"));

        assert_int_equal (device != NULL, v[i].device != NULL);
        if (device)
            assert_string_equal (device, v[i].device);
        json_decref (j);
        json_decref (rank);
    }
}

static void test_lines (void **state)
{
    json_t *rank = parse (RANK "\"devices\":\"0,1\",\"local_rank\":1}");
    struct diagnose_in in = {.job_id = 5,
                             .ranks = 9,
                             .message = "m",
                             .rank = rank,
                             .silent_rank = -1,
                             .well = parse ("[0,1,3,5,6,7]"),
                             .failed = parse ("[4]"),
                             .silent = parse ("[8]")};
    json_t *j = diagnose (&in), *none = json_object ();
    char *text = failure_lines (j, true);

    (void)state;
    assert_string_equal (text, "rv:   after 1.5 s, on device 1, out of memory\n"
                               "rv:   still well: 0-1,3,5-7\n"
                               "rv:   ended badly too: 4\n"
                               "rv:   without a report: 8\n"
                               "rv:   last lines of its stderr:\n"
                               "rv:   | a?b\n"
                               "rv:   | \n"
                               "rv:   advice: ask for more by --mem, or use "
                               "less: fewer data workers, smaller batches\n");
    free (text);
    text = failure_lines (j, false);
    assert_null (strstr (text, "|"));
    free (text);
    text = failure_lines (none, true);
    assert_string_equal (text, "");
    free (text);
    json_decref (none);
    json_decref (j);
    json_decref (in.well);
    json_decref (in.failed);
    json_decref (in.silent);
    json_decref (rank);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_oom_folder),
        cmocka_unit_test (test_oom_count),
        cmocka_unit_test (test_oom_happened),
        cmocka_unit_test (test_advice),
        cmocka_unit_test (kinds),
        cmocka_unit_test (lost_node),
        cmocka_unit_test (test_node),
        cmocka_unit_test (test_device),
        cmocka_unit_test (test_lines),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
