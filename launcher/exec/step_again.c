/* SPDX-License-Identifier: Apache-2.0
 * step_again.c - srun, through a restart of slurmctld
 *
 * srun asks slurmctld what the job has and then for a step, each for
 * MessageTimeout. Where that is shorter than slurmctld is away, the job would
 * end without its command, though nothing is wrong with it. */
#include "config.h"

#include "exec/step_again.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "exec/claim.h"
#include "exec/log.h"
#include "exec/report.h"
#include "exec/segment_ask.h"
#include "proc.h"

#define FIRST_MS 500
#define LAST_MS  8000

bool step_lost_slurmctld (const struct child_result *c)
{
    const char *t = c->tail;
    bool silent, late;

    if (!t || c->exec_errno || c->signal || c->exit_status == 0)
        return false;
    silent = strstr (t, "Unable to contact slurm controller") != NULL;
    late = strstr (t, "Socket timed out on send/recv operation")
           || strstr (t, "Zero Bytes were transmitted or received");
    /* What the job has is only read; a step that was asked for may be there. */
    return ((silent || late) && strstr (t, "Unable to confirm allocation"))
           || (silent && strstr (t, "Unable to create step"));
}

/* A signal to end waits until child_run takes it. */
static bool told_to_end (void)
{
    sigset_t set;

    return sigpending (&set) == 0
           && (sigismember (&set, SIGTERM) || sigismember (&set, SIGINT));
}

/* Has a rank begun, or ended? */
static bool any_rank (const char *dir, const struct segment_run *r)
{
    unsigned ranks = 0;
    json_t *cause = NULL;
    struct rv_error why = {0};

    if (report_first_cause (dir, r->job_id, r->restart, &cause, &ranks, &why))
        return true;
    json_decref (cause);
    return ranks > 0;
}

/* Until slurmctld answers. false: the job is to end, or over. */
static bool wait_for_slurmctld (const struct segment_run *r)
{
    struct segment_answer a;
    struct rv_error err = {0};
    int wait = FIRST_MS;

    log_line (LOG_WARN, "slurmctld does not answer, so that the command cannot "
                        "start; trying again until it does");
    while (segment_ask (r->job_id, r->restart, &a, &err)) {
        if (told_to_end ())
            return false;
        poll (NULL, 0, wait);
        wait = wait < LAST_MS ? 2 * wait : LAST_MS;
    }
    /* One that has just started may not know the job yet: srun will say. */
    return !told_to_end ()
           && (a.said == SAID_RUNNING || a.said == SAID_UNKNOWN);
}

int step_run (const char *dir, const struct segment_run *r,
              const struct child_opts *opts, struct child_result *ret,
              struct rv_error *err)
{
    char *srun = proc_find (opts->argv[0]);
    struct child_opts found = *opts;
    int rc;

    found.path = srun;
    rc = child_run (&found, ret, err);
    while (rc == RV_OK && step_lost_slurmctld (ret) && !ret->term
           && !any_rank (dir, r) && wait_for_slurmctld (r)) {
        child_result_fini (ret);
        *ret = (struct child_result){0};
        rc = child_run (&found, ret, err);
    }
    free (srun);
    return rc;
}
