/* SPDX-License-Identifier: Apache-2.0
 * test_job.c - librvjob without a cluster: deadlines, boots, ports */
#include "config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "job/job_impl.h"

/* A step of Slurm that never was, or none. */
static const char *const step_vars[] = {"SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_PROCID",
                                        "SLURM_LOCALID",
                                        "SLURM_NODEID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "SLURM_STEP_NODELIST",
                                        "SLURMD_NODENAME",
                                        "SLURM_NTASKS",
                                        "PMIX_NAMESPACE",
                                        "PMIX_RANK",
                                        "RV_BOOT",
                                        "RV_STEP",
                                        "RV_HEAD_ADDR",
                                        "RV_NCCL_TIMEOUT",
                                        "NCCL_TIMEOUT",
                                        "SLURM_LAUNCH_NODE_IPADDR"};

static int no_step (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (step_vars) / sizeof (step_vars[0]); i++)
        unsetenv (step_vars[i]);
    return 0;
}

static void set_step (const char *rank, const char *size, const char *local,
                      const char *node, const char *layout, const char *hosts)
{
    no_step (NULL);
    setenv ("SLURM_JOB_ID", "71", 1);
    setenv ("SLURM_STEP_ID", "3", 1);
    setenv ("SLURM_PROCID", rank, 1);
    setenv ("SLURM_STEP_NUM_TASKS", size, 1);
    setenv ("SLURM_LOCALID", local, 1);
    setenv ("SLURM_NODEID", node, 1);
    setenv ("SLURM_STEP_TASKS_PER_NODE", layout, 1);
    setenv ("SLURM_STEP_NODELIST", hosts, 1);
}

static sem_t go;

static int slow_call (void *arg)
{
    struct timespec until;

    (void)arg;
    clock_gettime (CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    sem_timedwait (&go, &until);
    return 42;
}

static pthread_mutex_t undo_lock = PTHREAD_MUTEX_INITIALIZER;
static int undo_result;

static void slow_undo (void *arg, int result)
{
    pthread_mutex_lock (&undo_lock);
    undo_result = result;
    pthread_mutex_unlock (&undo_lock);
    free (arg);
}

static void test_deadline (void **state)
{
    void *arg = malloc (1); /* undo frees it */
    int result = 0;

    (void)state;
    assert_int_equal (sem_init (&go, 0, 1), 0);
    assert_int_equal (deadline_call (slow_call, slow_undo, arg,
                                     job_now_ms () + 60000, &result),
                      0);
    assert_int_equal (result, 42);
    result = 7;
    assert_int_equal (
        deadline_call (slow_call, slow_undo, arg, job_now_ms () + 30, &result),
        RV_JOB_ETIMEDOUT);
    assert_int_equal (result, 7);
    assert_int_equal (undo_result, 0);
    sem_post (&go);
    /* The late return is taken back by the thread that made the call. */
    for (int seen = 0; seen != 42;) {
        pthread_mutex_lock (&undo_lock);
        seen = undo_result;
        pthread_mutex_unlock (&undo_lock);
        poll (NULL, 0, 5);
    }
}

static void test_init_arguments (void **state)
{
    struct {
        rv_job_options_t now;
        int64_t more;
    } later = {.now = {.size = sizeof (later)}};
    rv_job_options_t opts = {.size = 4};
    rv_job_error_t err = {0};
    rv_job_t *job = NULL;

    (void)state;
    assert_int_equal (rv_job_init (NULL, NULL, &err), RV_JOB_EINVAL);
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_EINVAL);
    opts.size = sizeof (opts);
    opts.timeout_ms = -1;
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_EINVAL);
    assert_non_null (strstr (err.text, "timeout_ms"));
    opts.size = offsetof (rv_job_options_t, timeout_ms); /* an older program */
    opts.boot = "mpi";
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_EINVAL);
    assert_non_null (strstr (err.text, "pmix, slurm, single"));
    later.now.timeout_ms = -1;
    later.more = 1;
    assert_int_equal (rv_job_init (&later.now, &job, &err), RV_JOB_EINVAL);
    assert_non_null (strstr (err.text, "not zero past"));
    later.more = 0;
    assert_int_equal (rv_job_init (&later.now, &job, &err), RV_JOB_EINVAL);
    assert_non_null (strstr (err.text, "timeout_ms"));
    opts.size = sizeof (opts);
    opts.boot = NULL;
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_EINVAL);
    opts.timeout_ms = 0;
    opts.boot = "mpi";
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_EINVAL);
    assert_non_null (strstr (err.text, "pmix, slurm, single"));
    opts.boot = "pmix";
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_ENOTSUP);
    opts.boot = "slurm";
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_ENOTSUP);
    setenv ("RV_BOOT", "slurm", 1);
    assert_int_equal (rv_job_init (NULL, &job, &err), RV_JOB_ENOTSUP);
    assert_null (job);
    rv_job_finalize (NULL);
}

static void test_single (void **state)
{
    rv_job_error_t err = {0};
    rv_job_t *job = NULL;
    char buf[8];
    size_t len = 9;

    (void)state;
    assert_int_equal (rv_job_init (NULL, &job, &err), 0);
    assert_string_equal (rv_job_boot (job), "single");
    assert_non_null (strstr (rv_job_boot_note (job), "pmix: "));
    assert_non_null (strstr (rv_job_boot_note (job), "slurm: "));
    assert_int_equal (rv_job_size (job), 1);
    assert_int_equal (rv_job_rank (job), 0);
    assert_int_equal (rv_job_local_size (job), 1);
    assert_int_equal (rv_job_nodes (job), 1);
    assert_int_equal (rv_job_id (job), 0);
    assert_int_equal (rv_job_put (job, "k", "old", 3, &err), 0);
    assert_int_equal (rv_job_put (job, "k", "new", 3, &err), RV_JOB_EINVAL);
    assert_int_equal (rv_job_get (job, 0, "k", buf, 8, &len, &err),
                      RV_JOB_ENOTFOUND);
    assert_int_equal (rv_job_fence (job, -1, &err), RV_JOB_EINVAL);
    assert_int_equal (rv_job_fence (job, INT64_MAX, &err), 0);
    assert_int_equal (rv_job_get (job, 1, "k", buf, 8, &len, &err),
                      RV_JOB_EINVAL);
    assert_int_equal (rv_job_get (job, 0, "k", buf, 2, &len, &err),
                      RV_JOB_EINVAL);
    assert_int_equal (len, 9);
    assert_int_equal (rv_job_get (job, 0, "k", buf, 8, &len, &err), 0);
    assert_int_equal (len, 3);
    assert_memory_equal (buf, "old", 3);
    assert_int_equal (rv_job_put (job, "k", "new!", 4, &err), 0);
    assert_int_equal (rv_job_fence (job, 0, &err), 0);
    assert_int_equal (rv_job_get (job, 0, "k", buf, 8, &len, &err), 0);
    assert_int_equal (len, 4);
    assert_memory_equal (buf, "new!", 4);
    rv_job_finalize (job);
}

/* Variables of a batch script: SLURM_PROCID=0 and no step. */
static void test_batch_is_single (void **state)
{
    rv_job_t *job = NULL;

    (void)state;
    setenv ("SLURM_JOB_ID", "12", 1);
    setenv ("SLURM_PROCID", "0", 1);
    setenv ("SLURM_NTASKS", "4", 1);
    assert_int_equal (rv_job_init (NULL, &job, NULL), 0);
    assert_string_equal (rv_job_boot (job), "single");
    assert_int_equal (rv_job_id (job), 12);
    rv_job_finalize (job);
}

static void test_slurm_facts (void **state)
{
    static const struct {
        const char *rank, *size, *local, *node, *layout;
        int status;
        uint32_t local_size, nodes;
    } v[] = {
        {"4", "6", "1", "1", "3(x2)", 0, 3, 2},
        {"3", "4", "0", "1", "3,1", 0, 1, 2},
        {"6", "7", "0", "3", "2(x3),1", 0, 1, 4},
        {"7", "7", "0", "3", "2(x3),1", RV_JOB_EFORMAT, 0, 0},
        {"6", "7", "1", "3", "2(x3),1", RV_JOB_EFORMAT, 0, 0},
        {"6", "7", "0", "4", "2(x3),1", RV_JOB_EFORMAT, 0, 0},
        {"6", "8", "0", "3", "2(x3),1", RV_JOB_EFORMAT, 0, 0},
        {"1", "4", "0", "1", "2(", RV_JOB_EFORMAT, 0, 0},
        {"-1", "4", "0", "1", "3,1", RV_JOB_EFORMAT, 0, 0},
        {"1x", "4", "0", "1", "3,1", RV_JOB_EFORMAT, 0, 0},
        {"1", "", "0", "1", "3,1", RV_JOB_EFORMAT, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        rv_job_error_t err = {0};
        rv_job_t *job = NULL;

        set_step (v[i].rank, v[i].size, v[i].local, v[i].node, v[i].layout,
                  "n[1-4]");
        assert_int_equal (rv_job_init (NULL, &job, &err), v[i].status);
        if (v[i].status) {
            assert_true (err.text[0] != '\0');
            continue;
        }
        assert_string_equal (rv_job_boot (job), "slurm");
        assert_int_equal (rv_job_local_size (job), v[i].local_size);
        assert_int_equal (rv_job_nodes (job), v[i].nodes);
        assert_int_equal (rv_job_id (job), 71);
        assert_int_equal (rv_job_step (job), 3);
        rv_job_finalize (job);
    }
}

/* "srun -n1 -w n2 : -n2 -w n1": the list is sorted, the numbers are not. */
static void test_heterogeneous_facts (void **state)
{
    static const struct {
        const char *name, *node, *local;
        int status;
        uint32_t local_size;
    } v[] = {
        {"n1", "1", "1", 0, 2},
        {"n2", "0", "0", 0, 1},
        {"n2", "0", "1", RV_JOB_EFORMAT, 0},
        {"n9", "0", "1", 0, 2}, /* not listed: its number is all there is */
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        rv_job_t *job = NULL;

        set_step ("1", "3", v[i].local, v[i].node, "2,1", "n[1-2]");
        setenv ("SLURMD_NODENAME", v[i].name, 1);
        assert_int_equal (rv_job_init (NULL, &job, NULL), v[i].status);
        if (v[i].status)
            continue;
        assert_int_equal (rv_job_local_size (job), v[i].local_size);
        rv_job_finalize (job);
    }
}

static void test_stale_variables (void **state)
{
    rv_job_options_t opts = {.size = sizeof (opts), .boot = "pmix"};
    rv_job_error_t err = {0};
    rv_job_t *job = NULL;

    (void)state;
    set_step ("0", "1", "0", "0", "1", "n1");
    setenv ("RV_BOOT", "pmix", 1);
    setenv ("RV_STEP", "71.2", 1); /* another step's: not asked for */
    assert_int_equal (rv_job_init (NULL, &job, &err), 0);
    assert_string_equal (rv_job_boot (job), "slurm");
    rv_job_finalize (job);
    setenv ("RV_STEP", "71.3", 1);
    assert_int_equal (rv_job_init (NULL, &job, &err), RV_JOB_ENOTSUP);
    setenv ("PMIX_NAMESPACE", "slurm.pmix.71.2", 1);
    setenv ("PMIX_RANK", "0", 1);
    assert_int_equal (rv_job_init (&opts, &job, &err), RV_JOB_ENOTSUP);
}

static void test_timeout (void **state)
{
    static const struct {
        const char *rv, *nccl;
        int64_t ms;
    } v[] = {
        {NULL, NULL, 600000}, {"90", "5", 90000},  {NULL, "5", 5000},
        {"", "7", 7000},      {NULL, "x", 600000}, {"10s", NULL, -1},
        {"-3", NULL, -1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        rv_job_error_t err = {0};
        rv_job_t *job = NULL;
        rv_job_status_t status;

        no_step (NULL);
        if (v[i].rv)
            setenv ("RV_NCCL_TIMEOUT", v[i].rv, 1);
        if (v[i].nccl)
            setenv ("NCCL_TIMEOUT", v[i].nccl, 1);
        status = rv_job_init (NULL, &job, &err);
        assert_int_equal (status, v[i].ms < 0 ? RV_JOB_EFORMAT : RV_JOB_OK);
        if (status)
            continue;
        assert_int_equal (rv_job_timeout_ms (job), v[i].ms);
        rv_job_finalize (job);
    }
}

static void test_address (void **state)
{
    rv_job_t *job = NULL;
    char buf[1024], *last;

    (void)state;
    assert_int_equal (rv_job_init (NULL, &job, NULL), 0);
    assert_int_equal (rv_job_address (job, NULL, 4, NULL), RV_JOB_EINVAL);
    assert_int_equal (rv_job_address (job, buf, 3, NULL), RV_JOB_EINVAL);
    assert_int_equal (rv_job_address (job, buf, sizeof (buf), NULL), 0);
    last = strrchr (buf, ' ');
    assert_string_equal (last ? last + 1 : buf, "127.0.0.1");
    rv_job_finalize (job);
}

static int bind_to (int family, uint16_t port, bool reuse)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6,
                              .sin6_port = htons (port)};
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons (port)};
    int fd = socket (family, SOCK_STREAM, 0), on = 1, off = 0;

    if (family == AF_INET6)
        setsockopt (fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof (off));
    if (reuse)
        setsockopt (fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof (on));
    if (bind (fd,
              family == AF_INET6 ? (struct sockaddr *)&v6
                                 : (struct sockaddr *)&v4,
              family == AF_INET6 ? sizeof (v6) : sizeof (v4))
        || (reuse && listen (fd, 1))) {
        close (fd);
        return -1;
    }
    return fd;
}

static void test_reserve_port (void **state)
{
    rv_job_t *job = NULL;
    uint16_t port = 0, port2 = 0;
    int fd = -1, fd2 = -1, user;

    (void)state;
    assert_int_equal (rv_job_init (NULL, &job, NULL), 0);
    assert_int_equal (rv_job_reserve_port (job, NULL, &fd, NULL),
                      RV_JOB_EINVAL);
    assert_int_equal (rv_job_reserve_port (job, &port, &fd, NULL), 0);
    assert_int_equal (rv_job_reserve_port (job, &port2, &fd2, NULL), 0);
    assert_int_not_equal (port, port2);
    assert_int_equal (bind_to (AF_INET, port, false), -1);
    assert_int_equal (fcntl (fd, F_GETFD) & FD_CLOEXEC, 0);
    user = bind_to (AF_INET, port, true);
    assert_true (user >= 0);
    assert_int_equal (bind_to (AF_INET, port, true), -1);
    close (user);
    user = bind_to (AF_INET, port, true); /* and again, as after a restart */
    assert_true (user >= 0);
    close (user);
    close (fd);
    close (fd2);
    rv_job_finalize (job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_deadline),
        cmocka_unit_test_setup (test_init_arguments, no_step),
        cmocka_unit_test_setup (test_single, no_step),
        cmocka_unit_test_setup (test_batch_is_single, no_step),
        cmocka_unit_test (test_slurm_facts),
        cmocka_unit_test_setup (test_heterogeneous_facts, no_step),
        cmocka_unit_test (test_stale_variables),
        cmocka_unit_test (test_timeout),
        cmocka_unit_test_setup (test_address, no_step),
        cmocka_unit_test_setup (test_reserve_port, no_step),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
