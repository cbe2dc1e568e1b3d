/* SPDX-License-Identifier: Apache-2.0
 * test_reqdir.c - what rv leaves for a job, and reads of what a job left */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "plan/fsio.h"
#include "known_fan.h"
#include "known_index.h"
#include "reqdir.h"
#include "submit.h"

struct fixture {
    char dir[64], state_dir[96];
    struct strategy_plan plan;
    struct request_new from;
};

static char *words[] = {"sh", "-c", "echo '$(x)' \"y\"\n", "", "\xc3\xa9"};

static int setup (void **state)
{
    struct fixture *f = calloc (1, sizeof (*f));

    snprintf (f->dir, sizeof (f->dir), "/tmp/test_reqdir.XXXXXX");
    if (!mkdtemp (f->dir))
        return -1;
    /* A home that would break out of a careless script. */
    snprintf (f->state_dir, sizeof (f->state_dir), "%s/it's $(100%%)", f->dir);
    f->plan = (struct strategy_plan){.partition = "gpu",
                                     .type = "a100",
                                     .gpus = 4,
                                     .nodes = 2,
                                     .gpus_per_node = 2,
                                     .tasks_per_node = 2,
                                     .tasks = 4,
                                     .cpus_per_task = 3,
                                     .mem_mb = 1000,
                                     .time_s = 10740};
    f->from = (struct request_new){.state_dir = f->state_dir,
                                   .name = "train",
                                   .rv_exec = "/opt/a b/rv-exec",
                                   .plan = &f->plan,
                                   .argc = 5,
                                   .argv = words};
    *state = f;
    return 0;
}

static int teardown (void **state)
{
    struct fixture *f = *state;

    fsio_remove_tree (f->dir, NULL);
    free (f);
    return 0;
}

static void put (const struct request *req, const char *name, const char *text)
{
    char *path = fsio_join (req->dir, name);

    assert_int_equal (fsio_write (path, text, strlen (text), 0600, NULL),
                      RV_OK);
    free (path);
}

static void make (struct fixture *f, struct request *req)
{
    assert_int_equal (request_begin (&f->from, req, NULL), RV_OK);
    assert_int_equal (request_write (&f->from, req, NULL), RV_OK);
}

static void not_writable (void **state)
{
    struct fixture *f = *state;
    struct request req;
    struct rv_error err;

    f->from.state_dir = "/proc/nowhere";
    assert_int_equal (request_begin (&f->from, &req, NULL), RV_OK);
    assert_int_not_equal (request_write (&f->from, &req, &err), RV_OK);
    assert_non_null (strstr (err.text, "/proc/nowhere"));
    request_fini (&req);
    request_fini (NULL);
}

/* Words come back as they were: spaces, quotes, newlines, empty, bytes. */
static void argv_unchanged (void **state)
{
    struct fixture *f = *state;
    struct request req;
    char *path, *buf, *at;
    size_t len;

    make (f, &req);
    path = fsio_join (req.dir, "argv");
    assert_int_equal (fsio_read (path, 4096, &buf, &len, NULL), RV_OK);
    at = buf;
    for (size_t i = 0; i < sizeof (words) / sizeof (words[0]); i++) {
        assert_true ((size_t)(at - buf) < len);
        assert_string_equal (at, words[i]);
        at += strlen (at) + 1;
    }
    assert_int_equal (at - buf, len);
    free (buf);
    free (path);
    request_fini (&req);
}

static void private_modes (void **state)
{
    static const struct {
        const char *name;
        mode_t mode;
    } v[] = {
        {"", 0700},        {"argv", 0600},
        {"job.sh", 0700},  {"request.json", 0600},
        {"secrets", 0600},
    };
    struct fixture *f = *state;
    struct envfile_var var = {"TOKEN", "a\nb"};
    struct envfile env = {&var, 1};
    mode_t was = umask (0);
    struct request req;
    struct stat st;

    f->from.secrets = &env;
    make (f, &req);
    umask (was);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *path = fsio_join (req.dir, v[i].name);

        assert_int_equal (stat (path, &st), 0);
        assert_int_equal (st.st_mode & 0777, v[i].mode);
        free (path);
    }
    request_discard (&req);
    assert_int_equal (stat (req.dir, &st), -1);
    request_fini (&req);
}

/* The copy goes, and the request stays; without secrets there is none. */
static void secrets_forgotten (void **state)
{
    struct fixture *f = *state;
    struct envfile_var var = {"TOKEN", "a\nb"};
    struct envfile env = {&var, 1};
    struct request req;
    struct stat st;
    char *path, *task, *link_of;

    f->from.secrets = &env;
    make (f, &req);
    path = fsio_join (req.dir, "secrets");
    assert_int_equal (stat (path, &st), 0);
    task = fsio_join (req.dir, "array/2");
    link_of = fsio_join (task, "secrets");
    assert_int_equal (fsio_mkdir_p (task, 0700, NULL), 0);
    assert_int_equal (link (path, link_of), 0);
    request_forget (&req);
    assert_int_equal (stat (link_of, &st), -1);
    assert_int_equal (stat (task, &st), 0);
    free (link_of);
    free (task);
    request_forget (&req);
    assert_int_equal (stat (path, &st), -1);
    assert_int_equal (stat (req.dir, &st), 0);
    free (path);
    request_fini (&req);
    env.n = 0;
    make (f, &req);
    path = fsio_join (req.dir, "secrets");
    assert_int_equal (stat (path, &st), -1);
    free (path);
    request_fini (&req);
}

/* The script is run by a real shell, with a program in place of rv-exec that
 * prints what it was given. */
static void job_sh (void **state)
{
    struct fixture *f = *state;
    struct site_env site = {"SITE_A", "a 'b' $(c)"};
    char exec_path[128], out_path[96], line[1024], *path;
    struct request req;
    FILE *file;

    snprintf (exec_path, sizeof (exec_path), "%s/rv exec's", f->dir);
    snprintf (out_path, sizeof (out_path), "%s/out", f->dir);
    file = fopen (exec_path, "we");
    fprintf (file,
             "#!/bin/sh\nprintf '%%s|' \"$#\" \"$1\" \"$2\" \"$RV_REQUEST_ID\" "
             "\"$RV_REQUEST_DIR\" \"$RV_OUTPUT_DIR\" \"$RV_CHECKPOINT_DIR\" "
             "\"$RV_SEGMENT\" \"$RV_TOTAL_ELAPSED\" \"$PYTHONUNBUFFERED\" "
             "\"$TOKENIZERS_PARALLELISM\" \"$RV_NCCL_TIMEOUT\" "
             "\"$TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC\" \"$DEEPSPEED_TIMEOUT\" "
             "\"$SITE_A\" "
             ">'%s'\n",
             out_path);
    fclose (file);
    chmod (exec_path, 0700);
    f->from.rv_exec = exec_path;
    f->from.nccl_timeout_s = 90;
    f->from.env = &site;
    f->from.n_env = 1;
    make (f, &req);
    path = fsio_join (req.dir, "job.sh");
    if (fork () == 0) {
        setenv ("SLURM_JOB_ID", "77", 1);
        setenv ("PYTHONUNBUFFERED", "0", 1); /* the user's own stays */
        unsetenv ("TOKENIZERS_PARALLELISM");
        unsetenv ("RV_NCCL_TIMEOUT");
        unsetenv ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC");
        unsetenv ("DEEPSPEED_TIMEOUT");
        unsetenv ("SITE_A");
        execl (path, path, NULL);
        _exit (127);
    }
    assert_true (wait (NULL) > 0);
    file = fopen (out_path, "re");
    assert_non_null (file);
    assert_non_null (fgets (line, sizeof (line), file));
    fclose (file);
    {
        char want[1024];

        snprintf (want, sizeof (want),
                  "2|--batch|%s|%s|%s|%s/outputs/train-77|"
                  "%s/checkpoints/train-%s|0|0|0|false|90|480|2|a 'b' $(c)|",
                  req.dir, req.id, req.dir, f->state_dir, f->state_dir, req.id);
        assert_string_equal (line, want);
    }
    free (path);
    request_fini (&req);
}

static void reads_back (void **state)
{
    struct fixture *f = *state;
    char *argv[] = {"sbatch", "x", NULL};
    struct request first, second;
    struct requests list;

    assert_int_equal (requests_load (f->state_dir, 0, &list, NULL), RV_OK);
    assert_int_equal (list.n, 0);
    requests_fini (&list);
    make (f, &first);
    make (f, &second);
    assert_int_equal (request_submitted (&first, 41, argv, NULL), RV_OK);
    assert_int_equal (requests_load (f->state_dir, 0, &list, NULL), RV_OK);
    assert_int_equal (list.n, 1); /* the second has no job */
    assert_string_equal (list.req[0].id, first.id);
    assert_string_equal (list.req[0].name, "train");
    assert_string_equal (list.req[0].gpu_type, "a100");
    assert_int_equal (list.req[0].job_id, 41);
    assert_int_equal (list.req[0].gpus, 4);
    assert_int_equal (list.req[0].tasks, 4);
    assert_int_equal (list.req[0].created_at, first.created_at);
    requests_fini (&list);
    put (&first, "request.json", "{ not json");
    assert_int_equal (requests_load (f->state_dir, 0, &list, NULL), RV_OK);
    assert_int_equal (list.n, 0);
    requests_fini (&list);
    request_fini (&first);
    request_fini (&second);
}

/* The only request of the folder, as rv sees it. */
static struct requests only (struct fixture *f)
{
    struct requests list;

    assert_int_equal (requests_load (f->state_dir, 0, &list, NULL), RV_OK);
    assert_int_equal (list.n, 1);
    return list;
}

static void is_job (struct fixture *f, uint32_t job_id, uint32_t log_id,
                    const char *type, bool claimed)
{
    struct requests list = only (f);

    assert_int_equal (list.req[0].job_id, job_id);
    assert_int_equal (list.req[0].log_id, log_id);
    assert_string_equal (list.req[0].gpu_type, type);
    assert_int_equal (list.req[0].claimed, claimed);
    requests_fini (&list);
}

/* A request of two jobs: 41 by the first plan, 42 by another one. */
static void make_two (struct fixture *f, struct request *req)
{
    char *argv[] = {"sbatch", "x", NULL};

    f->from.candidates = 2;
    make (f, req);
    assert_int_equal (request_submitted (req, 41, argv, NULL), RV_OK);
    is_job (f, 41, 0, "a100", false);
    snprintf (f->plan.type, sizeof (f->plan.type), "v100");
    f->plan.tasks = 2;
    f->from.candidate = 2;
    assert_int_equal (request_add (&f->from, req, NULL), RV_OK);
    assert_int_equal (request_submitted (req, 42, argv, NULL), RV_OK);
}

static void several_jobs (void **state)
{
    struct fixture *f = *state;
    char *argv[] = {"sbatch", "x", NULL};
    struct requests list;
    struct request req;

    make_two (f, &req);
    is_job (f, 41, 0, "a100", false); /* nobody runs: the first */
    list = only (f);
    assert_int_equal (list.req[0].n_roots, 2);
    assert_true (request_has_job (&list.req[0], 42));
    assert_false (request_has_job (&list.req[0], 43));
    assert_int_equal (request_turn_to (&list.req[0], 42), RV_OK);
    assert_int_equal (list.req[0].tasks, 2);
    assert_string_equal (list.req[0].gpu_type, "v100");
    requests_fini (&list);
    put (&req, "claim", "job 42 restart 0 first 42\n");
    is_job (f, 42, 0, "v100", true);
    /* it goes on in another job */
    req.log_id = 42;
    assert_int_equal (request_submitted (&req, 50, argv, NULL), RV_OK);
    is_job (f, 50, 42, "v100", true);
    /* 41 takes over */
    put (&req, "claim.1", "job 41 restart 0 first 41\n");
    is_job (f, 41, 0, "a100", true);
    /* one that was submitted and not noted */
    put (&req, "claim.2", "job 60 restart 0 first 60\n");
    is_job (f, 60, 0, "a100", true);
    request_fini (&req);
}

/* Of jobs that wait the one that should start first has the line. */
static void stands_for_it (void **state)
{
    struct fixture *f = *state;
    static const struct {
        int64_t expected[2];
        bool active[2], pending[2];
        uint32_t job_id;
        size_t waiting;
    } v[] = {
        {{0, 0}, {true, true}, {true, true}, 41, 2},
        {{900, 500}, {true, true}, {true, true}, 42, 2},
        {{0, 500}, {true, true}, {true, true}, 42, 2},
        {{500, 500}, {true, true}, {true, true}, 41, 2},
        {{500, 0}, {true, true}, {true, false}, 42, 2}, /* it has begun */
        {{500, 900}, {false, true}, {false, true}, 42, 1},
        {{0, 0}, {false, false}, {false, false}, 41, 0},
    };
    struct request req;

    make_two (f, &req);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct cluster_job job[3];
        struct known_job line[3];
        struct known known = {.job = line, .n = 3};

        known.reqs = only (f);
        for (int k = 0; k < 3; k++) {
            job[k] = (struct cluster_job){
                .job_id = 41 + (uint32_t)k,
                .name = "train",
                .command = "/elsewhere/job.sh",
                .submitted_at = req.created_at,
                .active = k < 2 ? v[i].active[k] : true,
                .pending = k < 2 ? v[i].pending[k] : true,
                .expected_at = k < 2 ? v[i].expected[k] : 1,
            };
            line[k] = (struct known_job){
                .job_id = job[k].job_id, .name = "train", .live = &job[k]};
        }
        known.jobs = (struct cluster_jobs){.job = job, .n = 3};
        assert_int_equal (known_index (&known, NULL), RV_OK);
        known_fan_choose (&known);
        assert_int_equal (known.reqs.req[0].job_id, v[i].job_id);
        assert_int_equal (known.reqs.req[0].n_waiting, v[i].waiting);
        line[v[i].job_id - 41].req = &known.reqs.req[0];
        assert_int_equal (known_fan_drop (&known, NULL), RV_OK);
        assert_int_equal (known.n, 2); /* of it, and another's of that name */
        assert_int_equal (line[0].job_id, v[i].job_id);
        assert_int_equal (line[1].job_id, 43);
        assert_true (known_fan_has (&known.reqs.req[0], "41"));
        assert_true (known_fan_has (&known.reqs.req[0], "42"));
        assert_false (known_fan_has (&known.reqs.req[0], "43"));
        requests_fini (&known.reqs);
        free (known.by_id);
        free (known.by_command);
    }
    request_fini (&req);
}

static void statuses (void **state)
{
    static const struct {
        const char *text;
        bool started, done;
        int exit_status;
        const char *cause;
    } v[] = {
        {"{\"job_id\":5,\"state\":\"running\"}", true, false, -1, NULL},
        {"{\"job_id\":4,\"state\":\"done\",\"exit_status\":0}", false, false,
         -1, NULL},
        {"{\"job_id\":5,\"state\":\"done\",\"exit_status\":0}", true, true, 0,
         NULL},
        {"{\"job_id\":5,\"state\":\"done\",\"exit_status\":null,\"signal\":9,"
         "\"first_cause\":null,\"message\":null}",
         true, true, 137, NULL},
        {"{\"job_id\":5,\"state\":\"done\",\"exit_status\":null,\"signal\":"
         "null,\"message\":\"no srun\"}",
         true, true, -1, "no srun"},
        {"{\"job_id\":5,\"state\":\"done\",\"exit_status\":139,\"first_cause\":"
         "{\"rank\":2,\"node\":\"n2\",\"exit_status\":null,\"signal\":11,"
         "\"signal_name\":\"SIGSEGV\",\"stderr_tail\":[\"a\",\"b\"]}}",
         true, true, 139, "rank 2 on n2 was ended by signal 11 (SIGSEGV): b"},
        {"{\"job_id\":5,\"state\":\"done\",\"exit_status\":7,\"first_cause\":"
         "{\"rank\":0,\"node\":\"n1\",\"exit_status\":7,\"signal\":null,"
         "\"stderr_tail\":[]}}",
         true, true, 7, "rank 0 on n1 ended with status 7"},
    };
    struct fixture *f = *state;
    struct request_status status;
    struct request req;

    make (f, &req);
    assert_int_equal (request_status (req.dir, 5, &status, NULL), RV_OK);
    assert_false (status.started || status.done);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        put (&req, "status.json", v[i].text);
        assert_int_equal (request_status (req.dir, 5, &status, NULL), RV_OK);
        assert_int_equal (status.started, v[i].started);
        assert_int_equal (status.done, v[i].done);
        assert_int_equal (status.exit_status, v[i].exit_status);
        assert_int_equal (status.names_rank,
                          strstr (v[i].text, "\"rank\"") != NULL);
        if (v[i].cause)
            assert_string_equal (status.cause, v[i].cause);
        else
            assert_null (status.cause);
        assert_null (status.nodes);
        request_status_fini (&status);
    }
    put (&req, "status.json", "{\"job_id\":5,\"nodes\":\"n[1-2]\"}");
    assert_int_equal (request_status (req.dir, 5, &status, NULL), RV_OK);
    assert_string_equal (status.nodes, "n[1-2]");
    request_status_fini (&status);
    assert_int_equal (request_status (req.dir, 4, &status, NULL), RV_OK);
    assert_null (status.nodes); /* of another job */
    put (&req, "status.json", "{");
    assert_int_equal (request_status (req.dir, 5, &status, NULL), RV_EFORMAT);
    request_fini (&req);
}

static const char *find (char **argv, const char *head)
{
    for (int i = 0; argv[i]; i++)
        if (!strncmp (argv[i], head, strlen (head)))
            return argv[i];
    return NULL;
}

static void sbatch_words (void **state)
{
    struct fixture *f = *state;
    struct request req;
    char **argv, want[256];

    assert_int_equal (request_begin (&f->from, &req, NULL), RV_OK);
    argv = submit_argv (
        &f->plan, &req,
        &(struct submit_more){.account = "acc", .constraint = "f"});
    assert_string_equal (find (argv, "--gres"), "--gres=gpu:a100:2");
    assert_string_equal (find (argv, "--mem"), "--mem=1000M");
    assert_string_equal (find (argv, "--time"), "--time=02:59:00");
    assert_string_equal (find (argv, "--account"), "--account=acc");
    assert_null (find (argv, "--qos"));
    assert_null (find (argv, "--rv"));
    /* Slurm expands '%': a '%' of the folder is doubled, %j is ours */
    snprintf (want, sizeof (want),
              "--output=%s/it's $(100%%%%)/logs/train-%%j.batch.out", f->dir);
    assert_string_equal (find (argv, "--output"), want);
    submit_argv_free (argv);
    f->plan.type[0] = '\0';
    f->plan.mem_mb = 0;
    argv = submit_argv (&f->plan, &req, &(struct submit_more){.qos = "q"});
    assert_string_equal (find (argv, "--gres"), "--gres=gpu:2");
    assert_null (find (argv, "--mem"));
    assert_string_equal (find (argv, "--qos"), "--qos=q");
    submit_argv_free (argv);
    request_fini (&req);
}

/* Inside a job its variables do not reach the new one. */
static void environment (void **state)
{
    char **env;

    (void)state;
    setenv ("PMIX_RANK", "3", 1);
    setenv ("SLURM_NTASKS", "9", 1);
    setenv ("SLURM_CONF", "/x", 1);
    setenv ("SLURM_NTASKS_PER_GPU", "1", 1);
    setenv ("SLURM_TRES_PER_TASK", "cpu:1", 1);
    setenv ("SBATCH_GPUS", "3", 1);
    setenv ("SBATCH_GRES", "gpu:1", 1);
    setenv ("SLURM_GRES", "nvme", 1);
    setenv ("SBATCH_WAIT", "1", 1);
    setenv ("SBATCH_WAIT_ALL_NODES", "1", 1);
    setenv ("SLURM_TIMELIMIT", "1", 1);
    unsetenv ("SLURM_JOB_ID");
    env = submit_environ ();
    assert_null (find (env, "PMIX_"));
    assert_non_null (find (env, "SLURM_NTASKS="));
    assert_null (find (env, "SLURM_NTASKS_PER_GPU="));
    assert_null (find (env, "SLURM_TRES_PER_TASK="));
    assert_null (find (env, "SBATCH_G"));
    assert_non_null (find (env, "SLURM_GRES="));
    assert_null (find (env, "SBATCH_WAIT="));
    assert_non_null (find (env, "SBATCH_WAIT_ALL_NODES="));
    assert_null (find (env, "SLURM_TIMELIMIT="));
    submit_argv_free (env);
    setenv ("SLURM_JOB_ID", "1", 1);
    env = submit_environ ();
    assert_null (find (env, "SLURM_NTASKS="));
    assert_null (find (env, "SLURM_JOB_ID="));
    assert_string_equal (find (env, "SLURM_CONF="), "SLURM_CONF=/x");
    submit_argv_free (env);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown (not_writable, setup, teardown),
        cmocka_unit_test_setup_teardown (argv_unchanged, setup, teardown),
        cmocka_unit_test_setup_teardown (private_modes, setup, teardown),
        cmocka_unit_test_setup_teardown (secrets_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown (job_sh, setup, teardown),
        cmocka_unit_test_setup_teardown (reads_back, setup, teardown),
        cmocka_unit_test_setup_teardown (several_jobs, setup, teardown),
        cmocka_unit_test_setup_teardown (stands_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown (statuses, setup, teardown),
        cmocka_unit_test_setup_teardown (sbatch_words, setup, teardown),
        cmocka_unit_test (environment),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
