/* SPDX-License-Identifier: Apache-2.0
 * ctx_script.c - around a job on a node: is the node fit?
 *
 * slurmd runs `slurmstepd spank prolog` and `epilog` as root; a hook that
 * fails, or a crash, would drain the node and hold the job, so the hooks
 * return 0 whatever they find, and everything that may hang or crash happens
 * in children under deadlines. Where plugstack.conf says health=drain, an
 * unfit node is drained through slurmctld: the one exception to never draining
 * one. spank_job_control_getenv crashes in this context; getenv serves. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <slurm/slurm.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "args.h"
#include "child.h"
#include "ctx.h"
#include "health.h"
#include "health_kmsg.h"
#include "health_nvml.h"

#define KMSG       "/dev/kmsg"
#define LOOK_MS    2000
#define DRAIN_MS   5000
#define REPORT_MAX 65536

struct job {
    struct plugin_args args;
    const char *node; /* Slurm's name of this node */
    const char *gpus; /* the job's, by minor */
};

static void put (int fd, enum health_level level, const char *text)
{
    char line[HEALTH_TEXT + 16];
    size_t len = health_format (line, sizeof (line), level, text);

    if (write (fd, line, len) != (ssize_t)len)
        _exit (1); /* nobody listens any more */
}

static void found_cb (void *arg, enum health_level level, const char *text)
{
    put (*(int *)arg, level, text);
}

/* begin_api - once in a child. 22.05's slurmd has done so for its hooks, 24.11's
 * has not, where the first message would end this process. */
static void begin_api (void)
{
    static bool begun;

    if (!begun)
        slurm_init (NULL);
    begun = true;
}

static int unheard; /* errno where slurmd did not say whose a process is */

/* Only its word that no step has the process makes it left over: a slurmd that
 * is busy, or whom we do not reach, is no reason to drain the node. */
static bool has_job (pid_t pid)
{
    uint32_t job;

    begin_api ();
    errno = 0;
    if (slurm_pid2jobid (pid, &job) == 0)
        return true;
    if (errno == ESLURM_INVALID_JOB_ID)
        return false;
    unheard = errno ? errno : SLURM_COMMUNICATIONS_CONNECTION_ERROR;
    return true;
}

static void look_owners (int fd)
{
    char text[HEALTH_TEXT];

    if (!unheard)
        return;
    snprintf (text, sizeof (text),
              "cannot ask slurmd whether processes on its GPUs are of a job: "
              "%s; they are not taken for left-over ones",
              slurm_strerror (unheard));
    put (fd, HEALTH_NOTE, text);
}

static void look_log (int fd, const struct job *job)
{
    struct health_xids xids;
    struct rv_error err = {0};
    uint64_t after = 0;
    bool skip = health_seen_load (HEALTH_STATE_DIR, job->node, &after);

    if (health_kmsg_read (KMSG, skip, after, &xids, &err)) {
        put (fd, HEALTH_NOTE, err.text);
        return;
    }
    health_judge_xids (&xids, found_cb, &fd);
    if (xids.any && dprintf (fd, "seq %" PRIu64 "\n", xids.seq) < 0)
        _exit (1);
}

static void look_gpus (int fd, const struct job *job)
{
    static struct health_gpu gpus[HEALTH_GPUS];
    struct rv_error err = {0};
    size_t n = 0;

    if (health_nvml_read (job->args.nvml, job->gpus, has_job, gpus, &n, &err))
        put (fd, HEALTH_NOTE, err.text);
    for (size_t i = 0; i < n; i++)
        health_judge_gpu (&gpus[i], found_cb, &fd);
    look_owners (fd);
}

/* The child: the log first, which does not hang. */
static void look (int fd, void *arg)
{
    look_log (fd, arg);
    look_gpus (fd, arg);
}

static void log_cb (void *arg, enum health_level level, const char *text)
{
    const struct job *job = arg;

    if (level == HEALTH_BAD)
        slurm_error ("rv: health of %s: %s", job->node, text);
    else
        slurm_info ("rv: health of %s: %s", job->node, text);
}

struct drain {
    const char *node;
    const char *reason;
};

static bool is_drained (const char *node)
{
    node_info_msg_t *msg = NULL;
    bool ret;

    if (slurm_load_node_single (&msg, (char *)node, SHOW_ALL) != 0)
        return false;
    ret = msg->record_count == 1
          && (msg->node_array[0].node_state & NODE_STATE_DRAIN);
    slurm_free_node_info_msg (msg);
    return ret;
}

/* The child that asks slurmctld. Whoever drained the node before had a reason,
 * which stays. */
static void drain (int fd, void *arg)
{
    const struct drain *d = arg;
    update_node_msg_t msg;

    begin_api ();
    if (is_drained (d->node)) {
        put (fd, HEALTH_NOTE, "is drained already");
        return;
    }
    slurm_init_update_node_msg (&msg);
    msg.node_names = (char *)d->node;
    msg.node_state = NODE_STATE_DRAIN;
    msg.reason = (char *)d->reason;
    msg.reason_uid = getuid ();
    if (slurm_update_node (&msg) != 0)
        put (fd, HEALTH_BAD, slurm_strerror (errno));
    else
        put (fd, HEALTH_NOTE, "drained");
}

/* run - a child, its lines into the log. Returns whether it ended well. */
static bool run (child_f f, void *arg, int deadline_ms, const struct job *job,
                 const char *what, struct health_verdict *ret)
{
    static char report[REPORT_MAX];
    size_t len;
    enum child_end end =
        child_run (f, arg, deadline_ms, report, sizeof (report), &len);

    health_read_report (report, len, log_cb, (void *)job, ret);
    if (end == CHILD_TIMEOUT)
        slurm_error ("rv: health of %s: %s did not end within %d s; going on",
                     job->node, what, deadline_ms / 1000);
    else if (end != CHILD_OK)
        slurm_error ("rv: health of %s: %s %s; going on", job->node, what,
                     end == CHILD_CRASHED ? "crashed" : "could not begin");
    return end == CHILD_OK;
}

/* act - true where nothing is left to be done about what was found. */
static bool act (const struct job *job, const struct health_verdict *seen)
{
    char reason[HEALTH_TEXT + 8];
    struct drain d = {job->node, reason};
    struct health_verdict done;

    if (job->args.health != ARGS_HEALTH_DRAIN || seen->n_bad == 0)
        return true;
    snprintf (reason, sizeof (reason), "rv: %s", seen->reason);
    return run (drain, &d, DRAIN_MS, job, "draining it", &done)
           && done.n_bad == 0;
}

int script_check (int argc, char **argv)
{
    struct rv_error err = {0};
    struct health_verdict seen;
    struct job job = {
        .node = getenv ("SLURMD_NODENAME"),
        .gpus = getenv ("SLURM_JOB_GPUS"),
    };

    if (args_parse (argc, argv, &job.args, &err)) {
        slurm_error ("rv: cannot read plugstack.conf: %s", err.text);
        return 0;
    }
    if (job.args.health == ARGS_HEALTH_OFF || !job.node || !job.gpus
        || !job.gpus[0])
        return 0;
    run (look, &job, LOOK_MS, &job, "a look at its GPUs", &seen);
    /* What slurmctld did not hear of is found again next time. */
    if (act (&job, &seen) && seen.has_seq
        && health_seen_save (HEALTH_STATE_DIR, job.node, seen.seq, &err))
        slurm_info ("rv: health of %s: %s", job.node, err.text);
    return 0;
}
