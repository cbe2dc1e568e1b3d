/* SPDX-License-Identifier: Apache-2.0
 * down.c - stop a sandbox: its jobs, its daemons, its folder */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proc.h"
#include "sandbox/cgroup.h"
#include "sandbox/folder.h"
#include "sandbox/ident.h"
#include "sandbox/updown.h"

#define CANCEL_MS 3000 /* for scancel, then for the steps to end */
#define SWEEP_MS  15000

static bool daemon_lives (const struct sandbox *sb, const char *name)
{
    for (int i = 0; i < sb->n_daemons; i++)
        if (!strcmp (sb->daemon[i].name, name))
            return sandbox_alive (sb, &sb->daemon[i]);
    return false;
}

/* Let Slurm end its jobs, so that waiting clients learn of it and programs get
 * their SIGTERM. Whatever fails here is made up for by the sweep. */
static void cancel_jobs (const struct sandbox *sb)
{
    char *argv[] = {"scancel", "--partition=gpu", "--quiet", NULL};
    struct proc_opts opts = {.deadline_ms = CANCEL_MS};
    struct proc_result result;
    long long end = proc_now_ms () + CANCEL_MS;
    char conf[SANDBOX_MAX_DIR + 16];
    bool steps = true;

    if (!daemon_lives (sb, "munged") || !daemon_lives (sb, "slurmctld"))
        return;
    snprintf (conf, sizeof (conf), "%s/slurm.conf", sb->dir);
    if (setenv ("SLURM_CONF", conf, 1) || proc_run (argv, &opts, &result, NULL))
        return;
    proc_result_fini (&result);
    while (steps && proc_now_ms () < end) {
        struct ident_found *found = NULL;
        size_t n = 0;

        steps =
            !ident_scan (sb->dir, NULL, IDENT_STEPD, &found, &n, NULL) && n > 0;
        free (found);
        if (steps)
            poll (NULL, 0, 20);
    }
}

/* Kill what a scan for [kinds] finds until it finds nothing; begin with
 * signals after [grace_ms]. */
static int sweep_kinds (const char *dir, const char *cluster, int kinds,
                        int grace_ms, struct rv_error *err)
{
    long long start = proc_now_ms ();
    struct ident_found *found = NULL;
    size_t n = 0;
    int rc;

    while (!(rc = ident_scan (dir, cluster, kinds, &found, &n, err)) && n > 0) {
        if (proc_now_ms () >= start + SWEEP_MS) {
            rc = error_set (err, RV_ETIMEDOUT,
                            "process %d and %zu others do not end",
                            (int)found[0].pid, n - 1);
            break;
        }
        cgroup_thaw (dir);
        for (size_t i = 0; i < n && proc_now_ms () >= start + grace_ms; i++)
            ident_kill_found (&found[i], SIGKILL);
        free (found);
        found = NULL;
        poll (NULL, 0, 5);
    }
    free (found);
    return rc;
}

int sandbox_sweep (const char *dir, const struct sandbox *sb,
                   struct rv_error *err)
{
    const char *cluster = sb ? sb->cluster : NULL;
    int rc;

    for (int i = 0; sb && i < sb->n_daemons; i++)
        if (sandbox_alive (sb, &sb->daemon[i]))
            ident_kill (sb->daemon[i].pid, sb->daemon[i].start,
                        sb->daemon[i].argv, SIGKILL);
    /* A slurmd that dies may have forked a step a moment before; so may a
     * task. */
    rc = sweep_kinds (dir, cluster, IDENT_DAEMON | IDENT_STEPD | IDENT_TASK, 0,
                      err);
    /* An srun whose steps vanished without a word waits for ever. */
    if (!rc)
        rc = sweep_kinds (dir, cluster, IDENT_CLIENT, 1000, err);
    return rc ? rc : cgroup_remove (dir, err);
}

/* A task that takes its own sandbox down would end itself half-way. */
static bool inside_job_of (const struct sandbox *sb)
{
    const char *cluster = getenv ("SLURM_CLUSTER_NAME");

    return cluster && getenv ("SLURM_TASK_PID")
           && !strcmp (cluster, sb->cluster);
}

int sandbox_down (const char *dir, bool *ret_was, struct rv_error *err)
{
    struct sandbox sb = {0};
    int lock, rc = folder_lock (dir, 0, &lock, err);
    bool known;

    *ret_was = rc == RV_OK;
    if (rc)
        return rc == RV_ENOTFOUND || rc == RV_ESTATE ? RV_OK : rc;
    /* No record, or a damaged one: what is found by its files must do. */
    known = !sandbox_load (dir, &sb, NULL);
    if (known && inside_job_of (&sb))
        rc = error_set (err, RV_ESTATE, "this is one of its own jobs");
    if (!rc && known)
        cancel_jobs (&sb);
    if (!rc)
        rc = sandbox_sweep (dir, known ? &sb : NULL, err);
    if (!rc)
        rc = folder_remove (dir, err);
    sandbox_fini (&sb);
    close (lock);
    return rc;
}
