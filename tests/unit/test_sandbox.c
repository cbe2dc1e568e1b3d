/* SPDX-License-Identifier: Apache-2.0
 * test_sandbox.c - record, configuration, ports and identity of a sandbox,
 * without a daemon */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"
#include "sandbox/files.h"
#include "sandbox/ident.h"
#include "sandbox/ports.h"
#include "sandbox/site.h"
#include "sandbox/state.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static char tmp[] = "/tmp/rv-test-sb-XXXXXX";
static char dir[SANDBOX_MAX_DIR + 1];

static int setup (void **state)
{
    (void)state;
    if (!mkdtemp (tmp))
        return 1;
    snprintf (dir, sizeof (dir), "%s/s", tmp);
    return 0;
}

static int teardown (void **state)
{
    (void)state;
    return fsio_remove_tree (tmp, NULL);
}

/* ---- record ---- */

static void record_survives (void **state)
{
    const char *argv[] = {"/usr/sbin/slurmd", "-D", "", "a b\n", NULL};
    struct sandbox sb = {.nodes = 2,
                         .gpus = 3,
                         .cpus = 4,
                         .ready = true,
                         .cgroup = true,
                         .accounting = true};
    struct sandbox back;

    snprintf (sb.dir, sizeof (sb.dir), "%s", tmp);
    snprintf (sb.cluster, sizeof (sb.cluster), "rv01234567");
    snprintf (sb.type, sizeof (sb.type), "a100");
    sb.port[0] = 1;
    sb.port[2] = 65535;
    assert_int_equal (sandbox_add (&sb, "n1", argv, NULL), RV_OK);
    sb.daemon[0].pid = 77;
    sb.daemon[0].start = (uint64_t)1 << 40;
    assert_int_equal (sandbox_save (&sb, NULL), RV_OK);
    assert_int_equal (sandbox_load (tmp, &back, NULL), RV_OK);
    assert_int_equal (back.nodes, 2);
    assert_int_equal (back.gpus, 3);
    assert_int_equal (back.cpus, 4);
    assert_true (back.ready && !back.real_gpus && !back.pmix && back.cgroup
                 && back.accounting);
    assert_null (back.plugin);
    assert_string_equal (back.cluster, sb.cluster);
    assert_string_equal (back.type, "a100");
    assert_int_equal (back.port[2], 65535);
    assert_int_equal (back.n_daemons, 1);
    assert_int_equal (back.daemon[0].pid, 77);
    assert_true (back.daemon[0].start == (uint64_t)1 << 40);
    for (int i = 0; argv[i]; i++)
        assert_string_equal (back.daemon[0].argv[i], argv[i]);
    assert_null (back.daemon[0].argv[4]);
    sandbox_fini (&back);
    back.plugin = NULL;
    sb.plugin = strdup ("/x/spank_rv.so");
    assert_int_equal (sandbox_save (&sb, NULL), RV_OK);
    assert_int_equal (sandbox_load (tmp, &back, NULL), RV_OK);
    assert_string_equal (back.plugin, "/x/spank_rv.so");
    sandbox_fini (&back);
    sandbox_fini (&sb);
    sandbox_fini (NULL);
    (void)state;
}

static void bad_records (void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"schema\":\"rv.sandbox.state/1\"}",
        "{\"schema\":\"other/1\",\"cluster\":\"c\",\"boot_id\":\"\",\"type\":"
        "\"\",\"plugin\":null,\"nodes\":1,\"gpus\":0,\"cpus\":1,\"real_gpus\":"
        "false,\"pmix\":false,\"cgroup\":false,\"ready\":true,\"ports\":[],"
        "\"daemons\":[]}",
        "{\"schema\":\"rv.sandbox.state/1\",\"cluster\":\"c\",\"boot_id\":\"\","
        "\"type\":\"\",\"plugin\":null,\"nodes\":9999,\"gpus\":0,\"cpus\":1,"
        "\"real_gpus\":false,\"pmix\":false,\"cgroup\":false,\"ready\":true,"
        "\"ports\":[],"
        "\"daemons\":[]}",
        "{\"schema\":\"rv.sandbox.state/1\",\"cluster\":\"c\",\"boot_id\":\"\","
        "\"type\":\"\",\"plugin\":null,\"nodes\":1,\"gpus\":0,\"cpus\":1,"
        "\"real_gpus\":false,\"pmix\":false,\"cgroup\":false,\"ready\":true,"
        "\"ports\":[],"
        "\"daemons\":[{\"name\":\"n1\",\"pid\":2,\"start_time\":3,\"argv\":[4]}"
        "]}",
    };
    char *path = fsio_join (tmp, SANDBOX_STATE);
    struct sandbox sb;

    for (size_t i = 0; i < LENGTH (bad); i++) {
        struct rv_error err = {0};

        assert_int_equal (
            fsio_write (path, bad[i], strlen (bad[i]), 0600, NULL), RV_OK);
        assert_int_equal (sandbox_load (tmp, &sb, &err), RV_EFORMAT);
        assert_non_null (strstr (err.text, SANDBOX_STATE));
    }
    unlink (path);
    assert_int_equal (sandbox_load (tmp, &sb, NULL), RV_ENOTFOUND);
    free (path);
    (void)state;
}

static void shares (void **state)
{
    static const struct {
        int nodes, gpus, share[4], first[4];
    } vector[] = {
        {1, 4, {4}, {0}},
        {2, 4, {2, 2}, {0, 2}},
        {2, 5, {3, 2}, {0, 3}},
        {3, 2, {1, 1, 0}, {0, 1, 2}},
        {4, 0, {0, 0, 0, 0}, {0, 0, 0, 0}},
        {4, 7, {2, 2, 2, 1}, {0, 2, 4, 6}},
    };

    for (size_t i = 0; i < LENGTH (vector); i++) {
        struct sandbox sb = {.nodes = vector[i].nodes, .gpus = vector[i].gpus};

        for (int k = 1; k <= sb.nodes; k++) {
            assert_int_equal (sandbox_share (&sb, k), vector[i].share[k - 1]);
            assert_int_equal (sandbox_first (&sb, k), vector[i].first[k - 1]);
        }
    }
    (void)state;
}

/* ---- configuration ---- */

static void gpu_types (void **state)
{
    static const struct {
        const char *model, *type;
    } vector[] = {
        {" \t NVIDIA H100 80GB HBM3\nIRQ: 3", "h100"},
        {"NVIDIA A100-SXM4-80GB", "a100"},
        {"Tesla V100-SXM2-32GB", "v100"},
        {"NVIDIA L40S", "l40s"},
        {"NVIDIA GeForce RTX 3090", "rtx3090"},
        {"NVIDIA RTX A6000", "a6000"},
        {"NVIDIA", ""},
        {"", ""},
        {"?? [unknown]", ""},
    };

    for (size_t i = 0; i < LENGTH (vector); i++) {
        char type[64];

        site_gpu_type (vector[i].model, type, sizeof (type));
        assert_string_equal (type, vector[i].type);
    }
    (void)state;
}

/* ---- ports ---- */

static int listen_on (int port, int reuse)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons ((uint16_t)port),
                               .sin_addr.s_addr = htonl (INADDR_LOOPBACK)};
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (reuse)
        setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof (reuse));
    if (bind (fd, (struct sockaddr *)&addr, sizeof (addr)) || listen (fd, 1)) {
        close (fd);
        return -1;
    }
    return fd;
}

static void reserved_ports (void **state)
{
    int fd[3], port[3], server;

    assert_int_equal (ports_reserve (3, fd, port, NULL), RV_OK);
    for (int i = 0; i < 3; i++) {
        assert_in_range (port[i], PORTS_FIRST, PORTS_LAST);
        assert_int_not_equal (port[i], port[(i + 1) % 3]);
        assert_int_equal (listen_on (port[i], 0), -1);
        assert_false (ports_listening (port[i]));
    }
    /* What slurmctld does works while the reservation stands. */
    server = listen_on (port[0], 1);
    assert_true (server >= 0);
    assert_true (ports_listening (port[0]));
    close (server);
    for (int i = 0; i < 3; i++)
        close (fd[i]);
    (void)state;
}

/* ---- identity ---- */

/* A child that runs `sleep 60`, with [env]; killed by the test. */
static pid_t sleeper (char **env)
{
    char *argv[] = {"sleep", "60", NULL};
    pid_t pid;

    assert_int_equal (proc_spawn (argv, env, NULL, -1, -1, -1, &pid, NULL), 0);
    return pid;
}

static void end (pid_t pid)
{
    kill (pid, SIGKILL);
    assert_int_equal (waitpid (pid, NULL, 0), pid);
}

static void identity (void **state)
{
    char *right[] = {"sleep", "60", NULL},
         *longer[] = {"sleep", "60", "", NULL};
    char *wrong[] = {"sleep", "61", NULL}, *shorter[] = {"sleep", NULL};
    pid_t pid = sleeper (NULL);
    uint64_t start = 0;
    int status;

    assert_true (ident_start (pid, &start));
    assert_true (ident_is (pid, start, right));
    assert_false (ident_is (pid, start + 1, right));
    assert_false (ident_is (pid, start, wrong));
    assert_false (ident_is (pid, start, shorter));
    assert_false (ident_is (pid, start, longer));
    assert_false (ident_is (0, start, right));
    assert_false (ident_is (-1, start, right));
    assert_false (ident_is (1, start, right));
    /* The innocent survives. */
    assert_false (ident_kill (pid, start + 1, right, SIGKILL));
    assert_false (ident_kill (pid, start, wrong, SIGKILL));
    assert_int_equal (waitpid (pid, &status, WNOHANG), 0);
    assert_true (ident_kill (pid, start, right, SIGKILL));
    assert_int_equal (waitpid (pid, &status, 0), pid);
    assert_false (ident_is (pid, start, right));
    (void)state;
}

/* How [pid] is found in a sandbox whose cluster is "rvtest": 0 not at all. */
static int kind_in_scan (pid_t pid)
{
    struct ident_found *found;
    size_t n;
    int kind = 0;

    assert_int_equal (
        ident_scan (tmp, "rvtest",
                    IDENT_DAEMON | IDENT_STEPD | IDENT_TASK | IDENT_CLIENT,
                    &found, &n, NULL),
        RV_OK);
    for (size_t i = 0; i < n; i++)
        if (found[i].pid == pid)
            kind = found[i].kind;
    free (found);
    return kind;
}

static void tasks_are_found_by_cluster (void **state)
{
    static const struct {
        char *env[3];
        int kind;
    } vector[] = {
        {{"SLURM_CLUSTER_NAME=rvtest", "SLURM_TASK_PID=1"}, IDENT_TASK},
        /* salloc's shell */
        {{"SLURM_CLUSTER_NAME=rvtest", "SLURM_JOB_ID=1"}, 0},
        {{"SLURM_CLUSTER_NAME=rvtest2", "SLURM_TASK_PID=1"}, 0},
        {{"XSLURM_CLUSTER_NAME=rvtest", "SLURM_TASK_PID=1"}, 0},
        {{"SLURM_CONF=/x"}, 0},
    };

    for (size_t i = 0; i < LENGTH (vector); i++) {
        pid_t pid = sleeper ((char **)vector[i].env);

        assert_int_equal (kind_in_scan (pid), vector[i].kind);
        end (pid);
    }
    (void)state;
}

static void descendants_are_tasks (void **state)
{
    char *argv[] = {"/bin/sh", "-c",
                    "env -i sleep 60 & echo $!; exec >&-; wait", NULL};
    char *env[] = {"SLURM_CLUSTER_NAME=rvtest", "SLURM_TASK_PID=1",
                   "PATH=/usr/bin:/bin", NULL};
    char text[32] = "";
    int fd[2];
    pid_t pid, inner;

    assert_int_equal (pipe2 (fd, O_CLOEXEC), 0);
    assert_int_equal (proc_spawn (argv, env, NULL, -1, fd[1], -1, &pid, NULL),
                      0);
    close (fd[1]);
    assert_true (read (fd[0], text, sizeof (text) - 1) > 0);
    close (fd[0]);
    inner = (pid_t)strtol (text, NULL, 10);
    assert_int_equal (kind_in_scan (pid), IDENT_TASK);
    assert_int_equal (kind_in_scan (inner), IDENT_TASK);
    kill (inner, SIGKILL);
    end (pid);
    (void)state;
}

/* A program that only has a file of the folder open is no daemon. */
static void readers_are_no_daemons (void **state)
{
    char *path = fsio_join (tmp, "log");
    pid_t pid;
    int fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    char *argv[] = {"sleep", "60", NULL};

    assert_int_equal (proc_spawn (argv, NULL, NULL, fd, fd, fd, &pid, NULL), 0);
    assert_int_equal (kind_in_scan (pid), 0);
    assert_int_equal (kind_in_scan (getpid ()), 0);
    end (pid);
    close (fd);
    free (path);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (record_survives),
        cmocka_unit_test (bad_records),
        cmocka_unit_test (shares),
        cmocka_unit_test (gpu_types),
        cmocka_unit_test (reserved_ports),
        cmocka_unit_test (identity),
        cmocka_unit_test (tasks_are_found_by_cluster),
        cmocka_unit_test (descendants_are_tasks),
        cmocka_unit_test (readers_are_no_daemons),
    };

    return cmocka_run_group_tests (tests, setup, teardown);
}
