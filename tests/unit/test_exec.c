/* SPDX-License-Identifier: Apache-2.0
 * test_exec.c - rv-exec without a cluster: environment, requests, child, whose
 * end was the first */
#include "config.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/cause.h"
#include "exec/child.h"
#include "exec/envv.h"
#include "exec/exec.h"
#include "exec/head.h"
#include "exec/report.h"
#include "own_dir.h"
#include "plan/fsio.h"

static void test_envv (void **state)
{
    char *const start[] = {"A=1", "AB=2", "C=", "odd", NULL};
    struct envv e = {0};

    (void)state;
    assert_int_equal (envv_copy (&e, start), 0);
    assert_null (envv_get (&e, "B"));
    assert_string_equal (envv_get (&e, "A"), "1");
    assert_string_equal (envv_get (&e, "C"), "");
    assert_int_equal (envv_set (&e, "A", "x=y z"), 0);
    assert_int_equal (envv_set (&e, "NEW", "\n"), 0);
    assert_int_equal (envv_set (&e, "AB", NULL), 0);
    assert_int_equal (envv_set (&e, "NONE", NULL), 0);
    assert_string_equal (envv_get (&e, "A"), "x=y z");
    assert_string_equal (envv_get (&e, "NEW"), "\n");
    assert_null (envv_get (&e, "AB"));
    assert_int_equal (e.n, 4);
    assert_null (e.v[4]);
    envv_fini (&e);
}

static void test_argv (void **state)
{
    static const char good[] = "prog\0\0a b\0\"$(x)\"\nend";
    struct rv_error err = {0};
    char **argv = NULL;

    (void)state;
    assert_int_equal (exec_argv_split ((char[]){""}, 0, &argv, &err),
                      RV_EFORMAT);
    assert_int_equal (exec_argv_split ((char[]){"ab"}, 2, &argv, &err),
                      RV_EFORMAT);
    assert_int_equal (exec_argv_split ((char[]){"\0a"}, 3, &argv, &err),
                      RV_EFORMAT);
    assert_null (argv);
    assert_int_equal (exec_argv_read (dir, &argv, &err), RV_ENOTFOUND);
    write_file ("argv", good, sizeof (good), 0600);
    assert_int_equal (exec_argv_read (dir, &argv, &err), 0);
    assert_string_equal (argv[0], "prog");
    assert_string_equal (argv[1], "");
    assert_string_equal (argv[2], "a b");
    assert_string_equal (argv[3], "\"$(x)\"\nend");
    assert_null (argv[4]);
    free (argv[0]);
    free (argv);
}

static void test_request (void **state)
{
    static const struct {
        const char *from, *to; /* replaced in a good request */
        const char *why;       /* in the error; NULL: good */
    } v[] = {
        {"", "", NULL},
        {"rv.request/1", "rv.request/2", "schema"},
        {"per_gpu", "per_rank", "launch"},
        {"\"nodes\":2", "\"nodes\":0", "nodes"},
        {"\"tasks\":4", "\"tasks\":\"4\"", "tasks"},
        {"\"gpus\":4", "\"gpus\":-1", "gpus"},
        {"\"log_dir\":\"/l\"", "\"log_dir\":null", "log_dir"},
        {"[\"-l\"]", "[7]", "srun_options"},
        {"{", "", "request.json"},
    };
    static const char good[] =
        "{\"schema\":\"rv.request/1\",\"launch\":\"per_gpu\",\"gpus\":4,"
        "\"nodes\":2,\"tasks\":4,\"tasks_per_node\":2,\"cpus_per_task\":0,"
        "\"name\":\"n\",\"log_dir\":\"/l\",\"srun_options\":[\"-l\"]}";

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        const char *at = strstr (good, v[i].from);
        struct exec_request q = {0};
        struct rv_error err = {0};
        char text[600];
        int n;

        assert_non_null (at);
        n = snprintf (text, sizeof (text), "%.*s%s%s", (int)(at - good), good,
                      v[i].to, at + strlen (v[i].from));
        write_file ("request.json", text, (size_t)n, 0600);
        if (v[i].why) {
            assert_int_equal (exec_request_read (dir, &q, &err), RV_EFORMAT);
            assert_non_null (strstr (err.text, v[i].why));
            continue;
        }
        assert_int_equal (exec_request_read (dir, &q, &err), 0);
        assert_int_equal (q.tasks_per_node, 2);
        assert_string_equal (q.srun_options[0], "-l");
        assert_null (q.srun_options[1]);
        exec_request_fini (&q);
    }
}

static void test_node_addr (void **state)
{
    char addr[16];

    (void)state;
    assert_false (head_node_addr ("", addr, sizeof (addr)));
    assert_false (head_node_addr ("NodeName=n NodeAddr= X=1", addr, 16));
    assert_false (head_node_addr ("A NodeAddr=0123456789abcdef", addr, 16));
    assert_true (head_node_addr ("NodeName=n1 Arch=x NodeAddr=10.0.0.7 "
                                 "NodeHostName=n1\n",
                                 addr, sizeof (addr)));
    assert_string_equal (addr, "10.0.0.7");
    assert_true (head_node_addr ("N NodeAddr=fd00::7\n", addr, 16));
    assert_string_equal (addr, "fd00::7");
}

static void test_forwards (void **state)
{
    (void)state;
    /* a terminal's signal reached the whole foreground group */
    assert_false (child_forwards (SI_KERNEL, false, false));
    /* somebody's kill(1) of us alone */
    assert_true (child_forwards (SI_USER, false, true));
    /* the step's: linuxproc signals the tree, cgroup the task alone */
    assert_false (child_forwards (SI_USER, true, true));
    assert_true (child_forwards (SI_USER, true, false));
}

static void test_cgroup (void **state)
{
    static const struct {
        const char *text;
        bool yes;
    } v[] = {
        {"", false},
        {"0::/user.slice\n", false},
        {"0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n", true},
        {"0::/system.slice/slurmstepd.scope/job_7\n", false},
        {"4:memory:/slurm/uid_0/job_7/step_0\n0::/init.scope\n", false},
        {"9:cpuset:/\n4:freezer:/slurm/uid_0/job_7/step_0\n", true},
        {"4:freezer:/slurm/uid_0/job_7\n5:cpuset:/x/step_0\n", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        assert_int_equal (child_tracks_cgroup (v[i].text), v[i].yes);
}

static void test_tail (void **state)
{
    (void)state;
    assert_string_equal (tail_trim ("", 3), "");
    assert_string_equal (tail_trim ("a", 1), "a");
    assert_string_equal (tail_trim ("a\nb\nc\n", 2), "b\nc\n");
    assert_string_equal (tail_trim ("a\nb\nc", 2), "b\nc");
    assert_string_equal (tail_trim ("a\n\n\n", 2), "\n\n");
    assert_string_equal (tail_trim ("a\nb\n", 9), "a\nb\n");
}

extern char **environ;

static struct child_result run_sh (const char *script, bool tail)
{
    char *const argv[] = {"sh", "-c", (char *)script, NULL};
    struct child_opts opts = {.argv = argv, .env = environ, .tail = tail};
    struct child_result r;
    struct rv_error err = {0};

    assert_int_equal (child_run (&opts, &r, &err), 0);
    return r;
}

/* fd 2 becomes [fd] while a script runs. */
static struct child_result run_with_stderr (const char *script, int fd)
{
    int saved = dup (STDERR_FILENO);
    struct child_result r;

    dup2 (fd, STDERR_FILENO);
    r = run_sh (script, true);
    dup2 (saved, STDERR_FILENO);
    close (saved);
    return r;
}

static void test_child_ends (void **state)
{
    char *const missing[] = {"/no/such/program", NULL};
    char *const folder[] = {"/tmp", NULL};
    struct child_opts opts = {.argv = missing, .env = environ};
    struct child_result r = run_sh ("exit 7", false);

    (void)state;
    assert_int_equal (child_status (&r), 7);
    assert_int_equal (r.signal, 0);
    assert_null (r.tail);
    child_result_fini (&r);
    r = run_sh ("kill -SEGV $$", false);
    assert_int_equal (r.signal, SIGSEGV);
    assert_int_equal (child_status (&r), 139);
    assert_string_equal (child_signal_name (r.signal), "SEGV");
    child_result_fini (&r);
    assert_int_equal (child_run (&opts, &r, NULL), 0);
    assert_int_equal (child_status (&r), 127);
    child_result_fini (&r);
    opts.argv = folder;
    assert_int_equal (child_run (&opts, &r, NULL), 0);
    assert_int_equal (child_status (&r), 126);
    child_result_fini (&r);
}

static void test_child_signals (void **state)
{
    struct child_result r;

    (void)state;
    /* Our own kill reaches the child, once, and it is not the step's. */
    r = run_sh ("n=0; trap 'n=$((n+1))' USR1; trap 'exit $((40+n))' TERM; "
                "kill -USR1 $PPID; sleep 0.2; kill -TERM $PPID; "
                "while :; do sleep 0.05; done",
                false);
    assert_int_equal (child_status (&r), 41);
    assert_true (r.term);
    assert_int_equal (r.step_signal, 0);
    child_result_fini (&r);
}

/* A number that a script has written, once it is whole. */
static pid_t pid_in (const char *name)
{
    char *path = fsio_join (dir, name), text[24] = "";
    FILE *f;

    for (int i = 0; !strchr (text, '\n') && i < 1000; i++) {
        if ((f = fopen (path, "re"))) {
            if (!fgets (text, sizeof (text), f))
                text[0] = '\0';
            fclose (f);
        }
        poll (NULL, 0, 10);
    }
    free (path);
    return (pid_t)strtol (text, NULL, 10);
}

/* What a child leaves: ended where it failed, but not when it ended well. */
static void test_child_leaves (void **state)
{
    static const struct {
        const char *end;
        bool adopt, stays;
    } v[] = {
        {"exit 3", true, false},
        {"kill -9 $$", true, false},
        {"exit 0", true, true},
        {"exit 3", false, true},
    };
    char script[300];

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *argv[] = {"sh", "-c", script, NULL};
        struct child_opts opts = {
            .argv = argv, .env = environ, .adopt = v[i].adopt};
        struct child_result r;
        pid_t left[2];

        /* one at once, and one below that; neither minds SIGTERM */
        snprintf (script, sizeof (script),
                  "trap '' TERM; cd %s; rm -f a b; (sleep 90 & echo $! >b; "
                  "sleep 91) & echo $! >a; until [ -s b ]; do sleep 0.01; "
                  "done; %s",
                  dir, v[i].end);
        assert_int_equal (child_run (&opts, &r, NULL), 0);
        child_result_fini (&r);
        left[0] = pid_in ("a");
        left[1] = pid_in ("b");
        for (int k = 0; k < 2; k++) {
            assert_true (left[k] > 1);
            assert_int_equal (kill (left[k], 0), v[i].stays ? 0 : -1);
            kill (left[k], SIGKILL);
        }
        prctl (PR_SET_CHILD_SUBREAPER, 0);
        while (waitpid (-1, NULL, 0) > 0)
            ;
    }
}

static void test_child_tail (void **state)
{
    char path[64], got[64] = "";
    struct child_result r;
    int fd, pipes[2];

    (void)state;
    /* A file: written by the child itself, read afterwards, from where this
     * child began. */
    snprintf (path, sizeof (path), "%s/err", dir);
    fd = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_int_equal (write (fd, "before\n", 7), 7);
    r = run_with_stderr ("echo one >&2; echo two >&2; exit 3", fd);
    assert_string_equal (r.tail, "one\ntwo\n");
    child_result_fini (&r);
    close (fd);
    /* A pipe: passed on and kept. */
    assert_int_equal (pipe2 (pipes, O_CLOEXEC), 0);
    r = run_with_stderr ("printf 'a\\nb' >&2", pipes[1]);
    assert_string_equal (r.tail, "a\nb");
    assert_int_equal (read (pipes[0], got, sizeof (got)), 3);
    assert_string_equal (got, "a\nb");
    child_result_fini (&r);
    close (pipes[0]);
    close (pipes[1]);
    /* Much of it: the last lines stay. */
    fd = open ("/dev/null", O_WRONLY | O_CLOEXEC);
    r = run_with_stderr ("seq 1 5000 >&2", fd);
    assert_memory_equal (r.tail, "4981\n", 5);
    assert_string_equal (r.tail + strlen (r.tail) - 5, "5000\n");
    child_result_fini (&r);
    close (fd);
}

/* Four ranks ask rank 0's rv-exec, whose own child ends badly too. */
struct asker {
    struct cause c;
    int signal;
    bool ours;
};

static void *ask (void *arg)
{
    struct asker *a = arg;

    a->ours = cause_is_ours (&a->c, a->signal);
    return NULL;
}

static void test_cause (void **state)
{
    static const int signals[][5] = {
        {0, 0, SIGKILL, 0, 0},
        {SIGSEGV, 0, SIGABRT, 0, SIGTERM},
        {0, 0, 0, 0, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (signals) / sizeof (signals[0]); i++) {
        struct asker a[5];
        pthread_t thread[5];
        int winners = 0;

        cause_init (&a[0].c, 0);
        cause_listen (&a[0].c, 5, true);
        assert_int_not_equal (a[0].c.port, 0);
        for (uint32_t r = 0; r < 5; r++) {
            a[r].signal = signals[i][r];
            if (r) {
                cause_init (&a[r].c, r);
                a[r].c.port = a[0].c.port;
                a[r].c.token = a[0].c.token;
                snprintf (a[r].c.addr, sizeof (a[r].c.addr), "127.0.0.1");
            }
        }
        for (int r = 0; r < 5; r++)
            assert_int_equal (pthread_create (&thread[r], NULL, ask, &a[r]), 0);
        for (int r = 0; r < 5; r++) {
            pthread_join (thread[r], NULL);
            winners += a[r].ours;
            if (a[r].ours) { /* in whatever time the others asked */
                assert_true (a[r].c.knows_others);
                assert_true (a[r].c.n_others < 5);
                for (size_t k = 0; k < a[r].c.n_others; k++)
                    assert_true (a[r].c.other[k] < 5
                                 && a[r].c.other[k] != (uint32_t)r);
            }
        }
        assert_int_equal (winners, 1);
        for (int r = 0; r < 5; r++)
            if (report_is_fatal_signal (signals[i][r]))
                assert_true (a[r].ours);
        for (int r = 4; r >= 0; r--)
            cause_fini (&a[r].c);
    }
}

/* knock - a rank that says it ended badly, and waits for the word. */
static int knock (const struct cause *c)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons (c->port),
                             .sin_addr.s_addr = htonl (INADDR_LOOPBACK)};
    unsigned char claim[20] = "rvca";
    int fd = socket (AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    for (int i = 0; i < 8; i++)
        claim[4 + i] = (unsigned char)(c->token >> 8 * i);
    claim[12] = 1;
    assert_int_equal (connect (fd, (struct sockaddr *)&to, sizeof (to)), 0);
    assert_int_equal (write (fd, claim, sizeof (claim)), sizeof (claim));
    return fd;
}

static int64_t since (const struct timespec *t)
{
    struct timespec now;

    clock_gettime (CLOCK_MONOTONIC, &now);
    return (now.tv_sec - t->tv_sec) * 1000
           + (now.tv_nsec - t->tv_nsec) / 1000000;
}

/* watch_for - as child_run has it, until somebody is chosen; returns how often
 * it woke up. */
static int watch_for (struct cause *c, int most_ms)
{
    struct child_watch w = cause_watch (c);
    struct timespec start;
    int woke = 0;

    clock_gettime (CLOCK_MONOTONIC, &start);
    while (!c->decided && since (&start) < most_ms) {
        struct pollfd p[8];
        int wait_ms = -1, left = most_ms - (int)since (&start);
        size_t n = w.fill (w.arg, p, 8, &wait_ms);

        if (poll (p, (nfds_t)n, wait_ms < 0 || wait_ms > left ? left : wait_ms)
            > 0)
            woke++;
        w.serve (w.arg, p, n);
    }
    return woke;
}

/* Without a descriptor for who knocks rank 0 says so once, waits, and hears
 * them when there is one. */
static void test_cause_files (void **state)
{
    struct cause c;
    struct rlimit limit, less;
    char path[64], got[1024] = "";
    int saved = dup (STDERR_FILENO), log, fd, woke;

    (void)state;
    snprintf (path, sizeof (path), "%s/said", dir);
    log = open (path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cause_init (&c, 0);
    cause_listen (&c, 2, true);
    fd = knock (&c);
    getrlimit (RLIMIT_NOFILE, &limit);
    less = limit;
    less.rlim_cur = (rlim_t)fd + 1;
    dup2 (log, STDERR_FILENO);
    setrlimit (RLIMIT_NOFILE, &less);
    woke = watch_for (&c, 450);
    setrlimit (RLIMIT_NOFILE, &limit);
    dup2 (saved, STDERR_FILENO);
    assert_false (c.decided);
    assert_in_range (woke, 1, 10);
    assert_true (pread (log, got, sizeof (got) - 1, 0) > 0);
    assert_non_null (strstr (got, "Too many open files"));
    assert_ptr_equal (strchr (got, '\n'), got + strlen (got) - 1);
    watch_for (&c, 20000);
    assert_true (c.decided);
    assert_int_equal (read (fd, got, 1), 1);
    assert_int_equal (got[0], 'y');
    close (fd);
    close (log);
    close (saved);
    cause_fini (&c);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_envv),
        cmocka_unit_test (test_argv),
        cmocka_unit_test (test_request),
        cmocka_unit_test (test_node_addr),
        cmocka_unit_test (test_forwards),
        cmocka_unit_test (test_cgroup),
        cmocka_unit_test (test_tail),
        cmocka_unit_test (test_child_ends),
        cmocka_unit_test (test_child_signals),
        cmocka_unit_test (test_child_leaves),
        cmocka_unit_test (test_child_tail),
        cmocka_unit_test (test_cause),
        cmocka_unit_test (test_cause_files),
    };

    if (child_init ())
        return 1;
    return cmocka_run_group_tests (tests, make_dir, remove_dir);
}
