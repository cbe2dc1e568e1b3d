/* SPDX-License-Identifier: Apache-2.0
 * batch.c - the batch step of a request: start the tasks, say how it ended */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "exec/child.h"
#include "exec/claim.h"
#include "exec/diagnose.h"
#include "exec/exec.h"
#include "exec/granted.h"
#include "exec/log.h"
#include "exec/report.h"
#include "exec/results.h"
#include "exec/segment_ask.h"
#include "exec/segment_run.h"
#include "exec/step_again.h"
#include "jobfile.h"
#include "plan/fsio.h"
#include "proc.h"
#include "where.h"

#define LIST_MS 20000

struct args {
    char **v;
    size_t n;
    bool failed; /* out of memory */
};

__attribute__ ((format (printf, 2, 3))) static void add (struct args *a,
                                                         const char *fmt, ...)
{
    char **grown = realloc (a->v, (a->n + 2) * sizeof (*grown));
    va_list ap;

    if (!grown) {
        a->failed = true;
        return;
    }
    a->v = grown;
    va_start (ap, fmt);
    if (vasprintf (&a->v[a->n], fmt, ap) < 0) {
        a->v[a->n] = NULL;
        a->failed = true;
    } else
        a->v[++a->n] = NULL;
    va_end (ap);
}

static void args_fini (struct args *a)
{
    for (size_t i = 0; i < a->n; i++)
        free (a->v[i]);
    free (a->v);
    *a = (struct args){0};
}

/* Has this cluster PMIx? srun --mpi=list only lists plugins: no controller is
 * asked, and it takes a few milliseconds. */
static bool has_pmix (void)
{
    char *const argv[] = {"srun", "--mpi=list", NULL};
    struct proc_opts opts = {.deadline_ms = LIST_MS};
    struct proc_result r;
    bool found;

    if (proc_run (argv, &opts, &r, NULL))
        return false;
    found = strstr (r.out, "pmix") || strstr (r.err, "pmix");
    proc_result_fini (&r);
    return found;
}

static void add_logs (struct args *a, const struct exec_request *q,
                      uint32_t job_id)
{
    char *dir = jobfile_pattern (q->log_dir);
    char *name = jobfile_pattern (q->name);

    if (!dir || !name)
        a->failed = true;
    else {
        add (a, "--output=%s/%s-%u.r%%t.out", dir, name, job_id);
        add (a, "--error=%s/%s-%u.r%%t.err", dir, name, job_id);
    }
    free (dir);
    free (name);
}

static int make_args (struct args *a, const struct exec_request *q,
                      const char *dir, uint32_t job_id, struct rv_error *err)
{
    char *self = NULL;
    int rc = where_program ("rv-exec", &self, err);

    if (rc)
        return rc;
    add (a, "srun");
    add (a, "--export=ALL"); /* job.sh's, where the job itself has NONE */
    add (a, "--mpi=%s", has_pmix () ? "pmix" : "none");
    add (a, "--nodes=%u", q->nodes);
    add (a, "--ntasks=%u", q->tasks);
    add (a, "--ntasks-per-node=%u", q->tasks_per_node);
    if (q->cpus_per_task) /* sbatch's is not inherited from 22.05 on */
        add (a, "--cpus-per-task=%u", q->cpus_per_task);
    add_logs (a, q, job_id);
    add (a, "--open-mode=append");
    add (a, "--kill-on-bad-exit=1");
    for (size_t i = 0; q->srun_options[i]; i++)
        add (a, "%s", q->srun_options[i]);
    add (a, "%s", self);
    add (a, "--task");
    add (a, "%s", dir);
    free (self);
    return a->failed ? error_set (err, RV_ENOMEM, "out of memory") : RV_OK;
}

static void describe (const json_t *cause, char *buf, size_t size)
{
    int rank = (int)json_integer_value (json_object_get (cause, "rank"));
    const char *node = json_string_value (json_object_get (cause, "node"));
    const char *name =
        json_string_value (json_object_get (cause, "signal_name"));

    if (name)
        snprintf (buf, size, "rank %d on %s was killed by signal %d (%s)", rank,
                  node ? node : "?",
                  (int)json_integer_value (json_object_get (cause, "signal")),
                  name);
    else
        snprintf (
            buf, size, "rank %d on %s ended with exit status %d", rank,
            node ? node : "?",
            (int)json_integer_value (json_object_get (cause, "exit_status")));
}

/* For who reads the batch log alone; the last words of a rank are in its own
 * log, but what never ran has none. */
static void say_cause (const json_t *cause, const char *message)
{
    const json_t *tail = json_object_get (cause, "stderr_tail");
    const char *last =
        json_string_value (json_array_get (tail, json_array_size (tail) - 1));

    log_line (LOG_ERROR, "%s%s%s", message, last && *last ? ": " : "",
              last ? last : "");
}

/* How the job ended, while it is being found out. */
struct ending {
    const char *dir;
    const struct exec_request *q;
    const struct child_result *c; /* of srun */
    struct report_status *s;
    int64_t silent_rank; /* < 0: none */
    bool begun;          /* the command has, in this run */
    bool told;           /* somebody wanted it to end: no failure */
    bool bad;            /* it is to be told how */
    const char *kind;    /* which only slurmctld knew; NULL: none */
    char message[300];
};

/* Nobody is to blame: the cause goes, and the job ends as SIGTERM ends one. */
static void end_told (struct ending *e, const char *why)
{
    json_decref (e->s->first_cause);
    e->s->first_cause = NULL;
    e->s->signal = SIGTERM;
    e->s->exit_status = 128 + SIGTERM;
    e->told = !why;
    snprintf (e->message, sizeof (e->message),
              "the job was told to end (SIGTERM)%s%s", why ? ": " : "",
              why ? why : "");
}

/* Does Slurm say that it ended the job itself, and no rank went before? */
static bool ended_by_slurm (struct ending *e)
{
    const json_t *cause = e->s->first_cause;
    const struct advice *why;
    char node[128], text[160];

    if (cause && !json_is_true (json_object_get (cause, "told_to_end")))
        return false;
    why = diagnose_advice (NULL, e->c->tail);
    if (!why || !why->what)
        return false;
    diagnose_lost_node (e->c->tail, node, sizeof (node));
    snprintf (text, sizeof (text), "node %s failed", node);
    end_told (e, *node ? text : why->what);
    return true;
}

/* All that reported were told to end, and one is silent: it went first, and
 * its rv-exec with it. Not so when the batch step was told to end too. */
static bool one_is_silent (struct ending *e)
{
    struct report_status *s = e->s;
    char node[128];
    uint32_t rank;

    if (e->c->term
        || !json_is_true (json_object_get (s->first_cause, "told_to_end"))
        || !report_missing (e->dir, s->job_id, s->restart, e->q->tasks, &rank))
        return false;
    json_decref (s->first_cause);
    s->first_cause = NULL;
    s->signal = SIGKILL;
    s->exit_status = 128 + SIGKILL;
    e->silent_rank = rank;
    diagnose_node (e->c->tail ? e->c->tail : "", rank, node, sizeof (node));
    snprintf (e->message, sizeof (e->message),
              "rank %u%s%s left no report: its rv-exec was killed, or its node "
              "was lost",
              rank, *node ? " on " : "", node);
    return true;
}

/* All ranks were told to end, and Slurm has not said why: within a preemption's
 * grace time it only does when that is over. */
static void ask_why (struct ending *e)
{
    static const char *const kind[] = {[SAID_TIMEOUT] = "time_limit",
                                       [SAID_PREEMPTED] = "preemption",
                                       [SAID_NODE_FAIL] = "node_failure",
                                       [SAID_UNKNOWN] = NULL};
    struct segment_answer a = {0};
    struct rv_error err = {0};

    if (segment_ask (e->s->job_id, e->s->restart, &a, &err))
        log_line (LOG_WARN, "asking Slurm why the job was told to end: %s",
                  err.text);
    else
        e->kind = a.preempting ? "preemption" : kind[a.said];
    end_told (e, e->kind ? advice_of (e->kind)->what : NULL);
}

static void end_by_rank (struct ending *e)
{
    const json_t *cause = e->s->first_cause;
    int signal = (int)json_integer_value (json_object_get (cause, "signal"));

    e->s->signal = signal;
    e->s->exit_status =
        signal
            ? 128 + signal
            : (int)json_integer_value (json_object_get (cause, "exit_status"));
    describe (cause, e->message, sizeof (e->message));
}

static void end_by_srun (struct ending *e, unsigned ranks)
{
    int srun = child_status (e->c);

    if (ranks == 0 && srun < 126 && !e->begun) {
        e->s->exit_status = EXEC_FAILED;
        snprintf (e->message, sizeof (e->message),
                  "no rank started: srun ended with exit status %d; its reason "
                  "is in the batch log",
                  srun);
        return;
    }
    e->s->exit_status = srun;
    e->s->signal = srun > 128 ? srun - 128 : 0;
    snprintf (e->message, sizeof (e->message),
              "no rank %s, but srun ended with exit status %d",
              ranks ? "ended badly" : "could leave a report", srun);
}

/* Say it once, and leave it as failure.json. */
static void tell (const struct ending *e)
{
    const struct report_status *s = e->s;
    const json_t *rank = json_object_get (s->first_cause, "rank");
    struct diagnose_in in = {.job_id = s->job_id,
                             .restart = s->restart,
                             .ranks = e->q->tasks,
                             .message = e->message,
                             .rank = s->first_cause,
                             .slurm = e->c->tail,
                             .kind = e->kind,
                             .silent_rank = e->silent_rank};
    struct rv_error err = {0};
    json_t *failure;

    report_others (e->dir, s->job_id, s->restart, e->q->tasks,
                   rank ? json_integer_value (rank) : e->silent_rank,
                   rank != NULL, &in.well, &in.failed, &in.silent);
    failure = diagnose (&in);
    say_cause (s->first_cause, e->message);
    diagnose_say (failure);
    if (report_failure (e->dir, failure, &err))
        log_line (LOG_WARN, "cannot write the failure: %s", err.text);
    json_decref (failure);
    json_decref (in.well);
    json_decref (in.failed);
    json_decref (in.silent);
}

/* Turn srun's end and the ranks' reports into the job's. */
static void conclude (struct ending *e)
{
    struct report_status *s = e->s;
    struct rv_error err = {0};
    unsigned ranks = 0;

    s->done = true;
    s->ended = e->c->ended;
    if (report_first_cause (e->dir, s->job_id, s->restart, &s->first_cause,
                            &ranks, &err))
        log_line (LOG_WARN, "cannot read the ranks' reports: %s", err.text);
    if (child_status (e->c) == 0 && !s->first_cause)
        return;
    if (ended_by_slurm (e)) {
        /* told above */
    } else if (e->c->term
               && (!s->first_cause
                   || json_integer_value (
                          json_object_get (s->first_cause, "signal"))
                          == SIGTERM))
        end_told (e, NULL);
    else if (one_is_silent (e)) {
        /* told above */
    } else if (json_is_true (json_object_get (s->first_cause, "told_to_end")))
        ask_why (e);
    else if (s->first_cause)
        end_by_rank (e);
    else
        end_by_srun (e, ranks);
    s->message = e->message;
    e->bad = !e->told;
}

/* Does the job go on? What ended badly is told where it does not. */
static void follow_up (struct ending *e, struct segment_run *seg,
                       struct segment_next *next)
{
    struct report_status *s = e->s;
    const struct advice *why = diagnose_advice (s->first_cause, e->c->tail);
    const struct advice *slurm = diagnose_advice (NULL, e->c->tail);
    struct segment_end end = {
        .exit_status = s->exit_status,
        .told = e->told || e->c->term
                || report_told (e->dir, s->job_id, s->restart, e->q->tasks),
        .hardware = why && !strcmp (why->kind, "hardware"),
        .node = json_string_value (json_object_get (s->first_cause, "node")),
        .slurm_kind = slurm ? slurm->kind : e->kind,
    };

    segment_run_end (seg, &end, next);
    s->waiting = next->waits;
    s->next_job_id = next->job_id;
    s->done = !next->waits;
    if (next->stopped && !e->told)
        end_told (e, NULL);
    if (*next->message && (next->waits || !e->bad || next->stopped))
        s->message = next->message;
    /* Broken hardware is worth a word, though the job goes on. */
    if (e->bad && (next->waits ? end.hardware : !next->stopped))
        tell (e);
    if (next->waits) {
        json_decref (s->first_cause);
        s->first_cause = NULL;
    }
}

static void write_status (const char *dir, const struct report_status *s)
{
    struct rv_error err = {0};

    if (report_status (dir, s, &err))
        log_line (LOG_ERROR, "cannot write the status: %s", err.text);
}

static int refuse (const char *dir, struct report_status *s, const char *what,
                   const struct rv_error *err)
{
    log_line (LOG_ERROR, "cannot %s: %s", what, err->text);
    clock_gettime (CLOCK_REALTIME, &s->ended);
    s->done = true;
    s->exit_status = EXEC_FAILED;
    s->message = err->text;
    write_status (dir, s);
    exec_secrets_forget (dir, s->job_id, s->restart, SECRETS_FAILED);
    return EXEC_FAILED;
}

static enum secrets_end secrets_end (const char *dir,
                                     const struct exec_request *q,
                                     const struct child_result *c,
                                     const struct report_status *s)
{
    if (c->term || report_told (dir, s->job_id, s->restart, q->tasks))
        return SECRETS_TOLD;
    return s->exit_status ? SECRETS_FAILED : SECRETS_DONE;
}

static int run (const char *dir, const struct exec_request *q,
                struct segment_run *seg, struct report_status *s)
{
    struct segment_next next;
    struct child_watch watch;
    struct child_result c = {0};
    struct rv_error err = {0};
    struct args a = {0};
    struct ending e = {.dir = dir, .q = q, .c = &c, .s = s, .silent_rank = -1};
    int rc;

    if (!(rc = make_args (&a, q, dir, seg->log.log_id, &err))) {
        struct child_opts opts = {
            .argv = a.v, .env = environ, .tail = true, .in_step = true};

        segment_run_watch (seg, &watch, &opts);
        rc = step_run (dir, seg, &opts, &c, &err);
    }
    if (!rc && c.exec_errno)
        rc =
            error_set (&err, RV_ENOTFOUND, "srun: %s", strerror (c.exec_errno));
    if (rc)
        refuse (dir, s, "start the tasks", &err);
    else {
        e.begun = seg->log.number == 0 && claim_has_started (dir);
        conclude (&e);
        results_bring (dir, seg, &c);
        follow_up (&e, seg, &next);
        write_status (dir, s);
        json_decref (s->first_cause);
    }
    if (q->secrets && !s->waiting)
        exec_secrets_forget (dir, s->job_id, s->restart,
                             secrets_end (dir, q, &c, s));
    args_fini (&a);
    child_result_fini (&c);
    return s->waiting ? 0 : s->exit_status;
}

static uint32_t number_from_env (const char *name)
{
    const char *text = getenv (name);

    return text ? (uint32_t)strtoul (text, NULL, 10) : 0;
}

/* The folder that this job writes to: an array's tasks have one each, with the
 * request in it. malloc'ed. */
static char *own_folder (const char *dir, struct rv_error *err)
{
    static const char *const shared[] = {"request.json", "argv", "secrets"};
    const char *task = getenv ("SLURM_ARRAY_TASK_ID");
    char name[40], *own;

    if (!task)
        return strdup (dir);
    snprintf (name, sizeof (name), "array/%.20s", task);
    if (!(own = fsio_join (dir, name)) || fsio_mkdir_p (own, 0700, err))
        return own;
    for (size_t i = 0; i < sizeof (shared) / sizeof (shared[0]); i++) {
        char *from = fsio_join (dir, shared[i]),
             *to = fsio_join (own, shared[i]);

        if (from && to && link (from, to) && errno != EEXIST && errno != ENOENT)
            error_set (err, RV_EIO, "%s: %s", to, strerror (errno));
        free (from);
        free (to);
    }
    return own;
}

/* Is the claimant's job over? While it completes it may still be put back. */
static enum claim_said ask_claimant (void *arg, uint32_t job_id)
{
    struct segment_answer a;
    struct rv_error err = {0};

    (void)arg;
    if (segment_ask (job_id, UINT32_MAX, &a, &err)) {
        log_line (LOG_WARN, "cannot ask for job %u: %s", job_id, err.text);
        return CLAIM_LIVES;
    }
    return a.said == SAID_UNKNOWN ? CLAIM_UNKNOWN
           : a.completing || a.said == SAID_RUNNING || a.said == SAID_PENDING
               ? CLAIM_LIVES
               : CLAIM_OVER;
}

/* Claim the command for this job. false: another job runs it, or (err.code) it
 * cannot be told. */
static bool claim_it (const struct claim *c, struct rv_error *err)
{
    struct claim_holder h;
    struct rv_error why = {0};
    char text[80];
    bool won = false;

    if (claim_take (c, &won, &h, err) || won)
        return won;
    snprintf (text, sizeof (text), "job %u of this request runs the command",
              h.job_id);
    log_line (LOG_WARN, "%s; this one ends", text);
    if (segment_comment (c->job_id, text, &why))
        log_line (LOG_WARN, "cannot leave a comment: %s", why.text);
    return false;
}

/* The command is this job's: run it, where the job has what was asked for. */
static int run_claimed (const char *own, struct exec_request *q,
                        struct segment_run *seg, struct report_status *s)
{
    struct rv_error err = {0};
    const char *failed =
        exec_request_read (own, q, &err)     ? "read the request"
        : exec_request_enter (q, &err)       ? "enter the snapshot"
        : granted_check (q, s->job_id, &err) ? "run the command"
        : segment_run_begin (seg, own, &err) ? "begin the segment"
                                             : NULL;

    return failed ? refuse (own, s, failed, &err) : run (own, q, seg, s);
}

static int run_segment (const char *dir, const char *own,
                        struct report_status *s)
{
    struct claim claim = {.dir = own,
                          .job_id = s->job_id,
                          .restart = s->restart,
                          .root = jobfile_read (dir, s->job_id).root,
                          .ask = ask_claimant};
    struct exec_request q = {0};
    struct segment_run seg = {.dir = dir,
                              .q = &q,
                              .job_id = s->job_id,
                              .restart = s->restart,
                              .claim = &claim};
    struct rv_error err = {0};
    int status;

    if (!claim_it (&claim, &err)) {
        if (err.code) /* status.json is the claimant's */
            log_line (LOG_ERROR, "cannot claim the command: %s", err.text);
        return err.code ? EXEC_FAILED : 0;
    }

    /* Slurm starts from the beginning what is requeued, what has ended too
     * (NVIDIA/TensorRT-LLM#17654). */
    if (report_is_over (own, s->job_id, s->restart, &status)) {
        log_line (LOG_WARN,
                  "job %u was requeued, but its command ended before, with "
                  "status %d; 'rv run' runs it again",
                  s->job_id, status);
        return status;
    }
    write_status (own, s);
    status = run_claimed (own, &q, &seg, s);
    segment_run_fini (&seg);
    exec_request_fini (&q);
    return status;
}

int exec_batch (const char *dir)
{
    struct report_status s = {.job_id = number_from_env ("SLURM_JOB_ID"),
                              .restart =
                                  number_from_env ("SLURM_RESTART_COUNT"),
                              .nodes = getenv ("SLURM_JOB_NODELIST")};
    struct rv_error err = {0};
    char *own;
    int status = EXEC_FAILED;

    clock_gettime (CLOCK_REALTIME, &s.started);
    if (!s.job_id) {
        log_line (LOG_ERROR, "cannot be the batch step: SLURM_JOB_ID is not "
                             "set; submit the request's job.sh with sbatch");
        return EXEC_FAILED;
    }
    own = own_folder (dir, &err);
    if (!own || err.code)
        log_line (LOG_ERROR, "cannot make the task's folder: %s",
                  own ? err.text : "out of memory");
    else
        status = run_segment (dir, own, &s);
    free (own);
    return status;
}
