/* SPDX-License-Identifier: Apache-2.0
 * task.c - one rank: join the job, agree, run the program, report its end
 *
 * PMIx is left before the program starts: a client that ends without finalize
 * takes the step down, and the program may want to be one itself. When the
 * program ends badly we become a client again, only to abort the step with its
 * status. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/agree.h"
#include "exec/child.h"
#include "exec/claim.h"
#include "exec/deliver.h"
#include "exec/diagnose.h"
#include "exec/envv.h"
#include "exec/exec.h"
#include "exec/head.h"
#include "exec/launch.h"
#include "exec/log.h"
#include "exec/oom.h"
#include "exec/report.h"
#include "plan/rank_env.h"
#include "proc.h"
#include "rv/job.h"

#define CANCEL_MS 10000 /* for scancel, when slurmstepd is gone */
#define QUIET_S   5     /* for another rank's abort to end us */

/* What is known of the rank once the job handle is closed. */
struct rank {
    const struct exec_task *t;
    struct report_id id;
    uint32_t size, local_size, node, nodes, step_id;
    char boot[16];
    struct meeting meet;
    struct oom before; /* the program started */
    bool urged;        /* it was told to save its state */
};

static const char *get_cb (void *arg, const char *name)
{
    return envv_get (arg, name);
}

static int set_cb (void *arg, const char *name, const char *value)
{
    return envv_set (arg, name, value);
}

static uint32_t count_cpus (void)
{
    cpu_set_t set;

    return sched_getaffinity (0, sizeof (set), &set)
               ? 0
               : (uint32_t)CPU_COUNT (&set);
}

/* How many processes a launcher like torchrun shall start here. */
static uint32_t processes (const struct rank *r)
{
    int visible = rank_env_visible (getenv ("CUDA_VISIBLE_DEVICES"));

    return launch_processes (&r->t->cmd, visible > 0 ? (uint32_t)visible
                                                     : r->t->gpus_per_node);
}

static struct launch launch_of (const struct rank *r)
{
    return (struct launch){.cmd = &r->t->cmd,
                           .argv = r->t->argv,
                           .rank = r->id.rank,
                           .size = r->size,
                           .node = r->node,
                           .nodes = r->nodes,
                           .processes = processes (r),
                           .job_id = r->id.job_id,
                           .step_id = r->step_id,
                           .restart = r->id.restart,
                           .local_addr = r->meet.local_addr};
}

/* Do the variables that stand here belong to another step? */
static bool is_stale (const struct rank *r)
{
    const char *step = getenv ("RV_STEP");
    char here[32];

    snprintf (here, sizeof (here), "%u.%u", r->id.job_id, r->step_id);
    return step && strcmp (step, here) != 0;
}

/* A second client of a rank does not find PMIX_LOCAL_RANK with libpmix 4's
 * default store, and MPI_Init aborts; "hash" cures it. With libpmix 5 hash
 * loses PMIX_LOCAL_SIZE. */
static bool wants_hash (const struct rank *r, const struct envv *env)
{
    const char *version = envv_get (env, "PMIX_VERSION");

    return !strcmp (r->boot, "pmix") && version && !strncmp (version, "4.", 2)
           && !envv_get (env, "PMIX_MCA_gds");
}

/* They go before what stands there: "rv env list" is what a job gets. */
static int add_secrets (const struct rank *r, struct envv *env)
{
    const struct envfile *s = &r->t->secrets;

    for (size_t i = 0; i < s->n; i++)
        if (envv_set (env, s->var[i].name, s->var[i].value))
            return -1;
    return 0;
}

static int make_env (const struct rank *r, struct envv *env)
{
    const char *devices = getenv ("CUDA_VISIBLE_DEVICES");
    uint32_t cpus = count_cpus ();
    struct rank_env_in in = {
        .job_id = r->id.job_id,
        .step_id = r->step_id,
        .rank = r->id.rank,
        .world_size = r->size,
        .local_rank = r->id.local_rank,
        .local_size = r->local_size,
        .node_rank = r->node,
        .cpus = cpus,
        .one_device = rank_env_visible (devices) == 1,
        .master_addr = r->meet.addr,
        .master_port = r->meet.port,
    };
    bool per_node = r->t->cmd.launch == COMMAND_PER_NODE;
    struct launch launch = launch_of (r);

    /* Its processes share the CPUs that this one task has. */
    in.renew_threads = per_node;
    if (per_node && cpus)
        in.cpus = cpus > processes (r) ? cpus / processes (r) : 1;
    if (envv_copy (env, environ) || add_secrets (r, env)
        || rank_env (&in, get_cb, set_cb, env)
        || envv_set (env, "RV_BOOT", r->boot)
        || launch_env (&launch, is_stale (r), env)
        || (wants_hash (r, env) && envv_set (env, "PMIX_MCA_gds", "hash"))) {
        envv_fini (env);
        return -1;
    }
    return 0;
}

static uint32_t restart_count (void)
{
    const char *text = getenv ("SLURM_RESTART_COUNT");

    return text ? (uint32_t)strtoul (text, NULL, 10) : 0;
}

/* srun --kill-on-bad-exit sends SIGTERM when another rank could not join. */
static void on_term (int signal)
{
    (void)signal;
    _exit (getenv ("PMIX_NAMESPACE") ? 128 + SIGTERM : 0);
}

static void while_joining (bool begin)
{
    struct sigaction act = {.sa_handler = begin ? on_term : SIG_DFL};
    sigset_t set;

    sigaction (SIGTERM, &act, NULL);
    sigemptyset (&set);
    sigaddset (&set, SIGTERM);
    sigaddset (&set, SIGINT);
    sigprocmask (begin ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL);
}

static void fill_rank (struct rank *r, const rv_job_t *job)
{
    r->id = (struct report_id){.job_id = rv_job_id (job),
                               .restart = restart_count (),
                               .rank = rv_job_rank (job),
                               .local_rank = rv_job_local_rank (job)};
    r->step_id = rv_job_step (job);
    r->size = rv_job_size (job);
    r->local_size = rv_job_local_size (job);
    r->node = rv_job_node (job);
    r->nodes = rv_job_nodes (job);
    snprintf (r->boot, sizeof (r->boot), "%s", rv_job_boot (job));
}

/* Nobody but libtrain and librvjob reads it, whatever its name promises. */
static void explain_timeout (void)
{
    const char *text = getenv ("NCCL_TIMEOUT");

    if (text)
        log_line (LOG_WARN,
                  "NCCL_TIMEOUT='%.32s' is read by libtrain and librvjob "
                  "alone%s; NCCL and PyTorch have no such variable: give "
                  "init_process_group its timeout",
                  text,
                  getenv ("RV_NCCL_TIMEOUT") ? ", and not where "
                                               "RV_NCCL_TIMEOUT is set"
                                             : ", in seconds");
}

/* Was the plugin asked for, where the step came from? srun's half leaves
 * RV_HEAD_ADDR, a job's options stand in the environment of its steps. */
static bool plugin_expected (void)
{
    static const char option[] = "SLURM_SPANK__SLURM_SPANK_OPTION_rv_";
    const char *off = getenv ("SLURM_SPANK__SLURM_SPANK_OPTION_rv_rv_env");

    if (off && !strcmp (off, "off"))
        return false;
    for (char **e = environ; *e; e++)
        if (!strncmp (*e, option, sizeof (option) - 1))
            return true;
    return getenv ("RV_HEAD_ADDR") != NULL;
}

/* Slurm runs a step on a node without the plugin and tells only slurmd's log.
 * RV_PLUGIN is the plugin's mark in this very step. One rank of the node says
 * it. */
static void miss_plugin (const struct rank *r)
{
    if (r->id.local_rank != 0 || !strcmp (r->boot, "single")
        || (getenv ("RV_PLUGIN") && !is_stale (r)) || !plugin_expected ())
        return;
    log_line (LOG_WARN,
              "spank_rv.so did not run on %s, and an --rv option was given: "
              "the file or its line in plugstack.conf is missing there; "
              "rv-exec sets RANK and the rest, but no deadline and no device "
              "(rv doctor lists such nodes)",
              log_node ());
}

/* The ranks differ, or the step does not suit the command. Rank 0 says it and
 * ends the step; the others leave it time to. */
static int refuse (const struct rank *r, rv_job_t *job, const char *why)
{
    char text[700];

    snprintf (text, sizeof (text), "cannot start '%.100s': %s", r->t->argv[0],
              why);
    if (r->id.rank == 0)
        rv_job_abort (job, EXEC_FAILED, text);
    if (!strcmp (r->boot, "pmix"))
        poll (NULL, 0, QUIET_S * 1000);
    rv_job_finalize (job);
    return EXEC_FAILED;
}

/* Join and agree. 0, or the exit status; an error has been said. */
static int join (struct rank *r)
{
    struct agree_in in = {.cmd = &r->t->cmd, .argv = r->t->argv};
    struct rv_error why = {0};
    struct launch launch;
    rv_job_error_t err = {0};
    rv_job_t *job = NULL;
    rv_job_status_t status;
    char text[600];
    bool own_head;

    own_head = head_export ();
    status = rv_job_init (NULL, &job, &err);
    if (own_head)
        unsetenv ("RV_HEAD_ADDR");
    if (status) {
        log_line (LOG_ERROR, "cannot join the job: %s", err.text);
        return EXEC_FAILED;
    }
    fill_rank (r, job);
    log_rank (r->id.rank);
    if (r->id.rank == 0)
        log_line (LOG_INFO, "boot %s, %u ranks on %u nodes%s%s", r->boot,
                  r->size, r->nodes, *rv_job_boot_note (job) ? "; " : "",
                  rv_job_boot_note (job));
    miss_plugin (r);
    launch = launch_of (r);
    if (r->id.rank == 0) {
        explain_timeout ();
        if (launch_check (&launch, &why))
            in.refuse = why.text;
    }
    status = agree (job, &in, &r->meet, &err);
    if (status == RV_JOB_EMISMATCH)
        return refuse (r, job, err.text);
    if (status) {
        snprintf (text, sizeof (text), "cannot agree with the other ranks: %s",
                  err.text);
        rv_job_abort (job, EXEC_FAILED, text);
    }
    rv_job_finalize (job);
    if (r->id.rank == 0)
        log_line (LOG_INFO, "master %s port %u", r->meet.addr, r->meet.port);
    return 0;
}

static void cannot_run (const char *program, int error, char *buf, size_t size)
{
    snprintf (
        buf, size, "cannot run '%.200s': %s; %s", program, strerror (error),
        error == ENOENT ? "give its path, or a PATH that has it on this node"
                        : "it must be an executable file");
}

static void say_cause (const struct rank *r, const struct child_result *c)
{
    const char *program = r->t->argv[0];
    char text[400];

    if (c->exec_errno) {
        cannot_run (program, c->exec_errno, text, sizeof (text));
        log_line (LOG_ERROR, "%s", text);
    } else if (c->signal)
        log_line (LOG_ERROR, "'%s' was killed by signal %d (%s)", program,
                  c->signal, child_signal_name (c->signal));
    else
        log_line (LOG_ERROR, "'%s' ended with exit status %d", program,
                  c->exit_status);
}

/* Every rank but this one and those that asked for the word as well. */
static void split_others (const struct rank *r, json_t *well, json_t *failed)
{
    const struct cause *c = &r->meet.cause;

    for (uint32_t rank = 0; rank < r->size; rank++) {
        bool bad = false;

        for (size_t i = 0; i < c->n_others; i++)
            bad = bad || c->other[i] == rank;
        if (rank != r->id.rank)
            json_array_append_new (bad ? failed : well, json_integer (rank));
    }
}

/* The block under say_cause's line. */
static void say_more (const struct rank *r, const struct child_result *c)
{
    json_t *rank = report_rank_json (&r->id, c);
    struct diagnose_in in = {.job_id = r->id.job_id,
                             .restart = r->id.restart,
                             .ranks = r->size,
                             .message = "",
                             .rank = rank,
                             .silent_rank = -1};
    json_t *failure;

    if (r->meet.cause.knows_others) {
        in.well = json_array ();
        in.failed = json_array ();
        split_others (r, in.well, in.failed);
    }
    failure = diagnose (&in);
    diagnose_say (failure);
    json_decref (failure);
    json_decref (in.well);
    json_decref (in.failed);
    json_decref (rank);
}

/* Without PMIx srun ends the step by SIGTERM when one rank failed, and takes
 * the largest status of all: that rank's must be it. */
static int told_status (const struct rank *r, const struct child_result *c)
{
    if (!strcmp (r->boot, "slurm") && c->step_signal == SIGTERM)
        return 0;
    return child_status (c);
}

/* Another rank has the word and ends the step; give it time to. */
static int wait_quietly (const struct rank *r, const struct child_result *c)
{
    struct timespec limit = {.tv_sec = QUIET_S};
    sigset_t set;

    sigemptyset (&set);
    sigaddset (&set, SIGTERM);
    if (sigtimedwait (&set, NULL, &limit) != SIGTERM)
        return child_status (c);
    return strcmp (r->boot, "slurm") ? child_status (c) : 0;
}

static void abort_step (const struct rank *r, int status)
{
    rv_job_options_t opts = {.size = sizeof (opts), .boot = r->boot};
    rv_job_error_t err = {0};
    rv_job_t *job = NULL;

    if (strcmp (r->boot, "pmix"))
        return;
    if (rv_job_init (&opts, &job, &err))
        log_line (LOG_INFO, "cannot end the other ranks: %s", err.text);
    else
        rv_job_abort (job, status, NULL);
}

/* Returns true when the batch step will read this end in a report. */
static bool report (const struct rank *r, struct child_result *c)
{
    struct rv_error err = {0};
    char text[400];

    if (!r->t->dir)
        return false;
    if (c->exec_errno || c->orphan) { /* what it could not say itself */
        if (c->orphan)
            snprintf (text, sizeof (text),
                      "slurmstepd ended under this rank; see slurmd's log");
        else
            cannot_run (r->t->argv[0], c->exec_errno, text, sizeof (text));
        free (c->tail);
        c->tail = strdup (text);
    }
    if (report_rank (r->t->dir, &r->id, c, &err) == RV_OK)
        return true;
    log_line (LOG_WARN, "cannot write the report: %s", err.text);
    return false;
}

static int out_of_memory (const struct rank *r, const struct child_result *c)
{
    struct oom now = oom_now ();

    return oom_happened (&r->before, &now, c->signal == SIGKILL);
}

/* The step may be killed before its ranks have found out who was first: PMIx
 * and MPI end it a moment after one of theirs died. */
static void report_early (void *arg, const struct child_result *c)
{
    struct rank *r = arg;
    struct report_id id = r->id;
    struct child_result early = *c;

    id.provisional = true;
    early.oom = out_of_memory (r, c);
    report_rank (r->t->dir, &id, &early, NULL);
}

/* Nobody else will learn of it: slurmd does not watch slurmstepd, srun waits
 * on, and PMIx went with slurmstepd. So one rank of the node asks Slurm to end
 * the step, and then ends what the children have left in its process group,
 * which is that of all the step's tasks here, and itself. */
static void end_orphans (const struct rank *r)
{
    char step[32];
    char *const argv[] = {"scancel", step, NULL};
    struct proc_opts opts = {.deadline_ms = CANCEL_MS};
    struct proc_result result;
    struct rv_error err = {0};

    snprintf (step, sizeof (step), "%u.%u", r->id.job_id, r->step_id);
    if (proc_run (argv, &opts, &result, &err))
        log_line (LOG_WARN, "cannot end the step: %s", err.text);
    else
        proc_result_fini (&result);
    /* Others may still be writing their reports. */
    poll (NULL, 0, ORPHAN_MS + 1000);
    kill (0, SIGKILL);
}

static int end (struct rank *r, struct child_result *c)
{
    int status = child_status (c);
    bool reported = report (r, c);

    if (c->orphan && r->id.local_rank == 0)
        end_orphans (r);
    if (c->orphan || status == 0)
        return 0;
    if (child_told_to_end (c))
        return told_status (r, c);
    /* The others may still be saving; the batch step reads the report. */
    if (reported && r->urged && !report_is_fatal_signal (c->signal))
        return 0;
    if (r->size > 1 && !cause_is_ours (&r->meet.cause, c->signal))
        return wait_quietly (r, c);
    if (!reported) /* else the batch step says it, once */
    {
        say_cause (r, c);
        if (!c->exec_errno && strcmp (r->boot, "single"))
            say_more (r, c);
    }
    if (r->size > 1)
        abort_step (r, status);
    return status;
}

/* The batch step says by SIGURG that it is time to save: it does no harm where
 * Slurm hands it to every process. */
static bool urged (void *arg, const struct child_result *c, int signal)
{
    struct rank *r = arg;
    size_t n;

    if (signal != SIGURG || !r->t->checkpoint_signal)
        return false;
    n = deliver_signal (c->pid, r->t->checkpoint_signal,
                        r->t->cmd.tool != COMMAND_NO_TOOL);
    r->urged = true;
    log_line (LOG_INFO, "SIG%s to %zu process%s",
              checkpoint_signal_name (r->t->checkpoint_signal), n,
              n == 1 ? "" : "es");
    return true;
}

/* From now on no other job of the request may run the command. */
static void begun (void *arg)
{
    const struct rank *r = arg;
    struct rv_error err = {0};

    if (r->id.rank == 0 && claim_started (r->t->dir, &err))
        log_line (LOG_WARN, "cannot note that the command has begun: %s",
                  err.text);
}

/* How the command is run; what is told meanwhile is told of [r]. */
static struct child_opts child_opts_of (struct rank *r, const struct envv *env)
{
    const struct exec_task *t = r->t;
    bool in_step = strcmp (r->boot, "single") != 0;
    struct child_opts opts = {.argv = t->argv,
                              .env = env->v,
                              .in_step = in_step,
                              .adopt = in_step,
                              .agent = t->cmd.tool != COMMAND_NO_TOOL,
                              .tail = t->dir || in_step};

    if (t->dir && in_step) {
        opts.ended = report_early;
        opts.ended_arg = r;
        opts.signalled = urged;
        opts.signalled_arg = r;
        opts.begun = begun;
        opts.begun_arg = r;
    }
    return opts;
}

int exec_task (const struct exec_task *t)
{
    struct rank r = {.t = t};
    struct child_watch watch;
    struct child_opts opts;
    struct child_result c;
    struct rv_error err = {0};
    struct envv env = {0};
    int status;

    while_joining (true);
    status = join (&r);
    while_joining (false);
    if (status)
        return status;
    if (make_env (&r, &env)) {
        log_line (LOG_ERROR, "out of memory");
        return EXEC_FAILED;
    }
    opts = child_opts_of (&r, &env);
    r.before = oom_now ();
    watch = cause_watch (&r.meet.cause);
    if (r.id.rank == 0)
        opts.watch = &watch;
    if (child_run (&opts, &c, &err)) {
        log_line (LOG_ERROR, "cannot run '%s': %s", t->argv[0], err.text);
        status = EXEC_FAILED;
    } else {
        if (t->dir || child_status (&c)) /* else nobody is told */
            c.oom = out_of_memory (&r, &c);
        status = end (&r, &c);
    }
    child_result_fini (&c);
    cause_fini (&r.meet.cause);
    envv_fini (&env);
    return status;
}
