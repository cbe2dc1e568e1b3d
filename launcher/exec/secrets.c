/* SPDX-License-Identifier: Apache-2.0
 * secrets.c - the user's secrets on their way to a rank, and their end */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "plan/fsio.h"
#include "proc.h"
#include "secrets.h"

#define ASK_MS 10000 /* a job that is told to end has 30 s (KillWait) */

int exec_secrets_read (const char *dir, uint32_t n, struct envfile *ret,
                       struct rv_error *err)
{
    char *path = fsio_join (dir, SECRETS_FILE);
    struct envfile env = {0};
    int rc;

    if (!path)
        return error_set (err, RV_ENOMEM, "out of memory");
    rc = n ? secrets_read (path, &env, err) : RV_OK;
    if (rc == RV_ENOTFOUND)
        error_set (err, rc,
                   "%s is gone: the job had ended, and then Slurm put it back "
                   "into the queue; submit it again with rv run",
                   path);
    if (rc == RV_OK && env.n != n) {
        rc = error_set (err, RV_EFORMAT, "%s: it has %zu variables, not %u",
                        path, env.n, n);
        envfile_fini (&env);
    }
    free (path);
    if (rc == RV_OK)
        *ret = env;
    return rc;
}

/* Does what scontrol shows of a job say that it is over? A job that is put back
 * into the queue completes first too, but its restarts are counted at once,
 * before any process is told. One that ends by itself is still RUNNING, but so
 * is one whose grace time runs. */
static bool shows_end (const char *text, uint32_t restart, enum secrets_end how)
{
    static const char *const ends[] = {"COMPLETING",   "COMPLETED", "CANCELLED",
                                       "TIMEOUT",      "FAILED",    "DEADLINE",
                                       "OUT_OF_MEMORY"};
    const char *state = strstr (text, " JobState=");
    const char *count = strstr (text, " Restarts=");

    if (!state || !count
        || strtoul (count + strlen (" Restarts="), NULL, 10) != restart)
        return false;
    state += strlen (" JobState=");
    if (how == SECRETS_FAILED && !strncmp (state, "RUNNING", 7))
        return true;
    for (size_t i = 0; i < sizeof (ends) / sizeof (ends[0]); i++)
        if (!strncmp (state, ends[i], strlen (ends[i])))
            return true;
    return false;
}

static bool job_has_ended (uint32_t job_id, uint32_t restart,
                           enum secrets_end how)
{
    char id[16];
    char *const argv[] = {"scontrol", "show", "job", "--oneliner", id, NULL};
    struct proc_opts opts = {.deadline_ms = ASK_MS};
    struct proc_result r;
    bool ended;

    snprintf (id, sizeof (id), "%u", job_id);
    if (proc_run (argv, &opts, &r, NULL))
        return false;
    ended = r.status == 0 && shows_end (r.out, restart, how);
    proc_result_fini (&r);
    return ended;
}

void exec_secrets_forget (const char *dir, uint32_t job_id, uint32_t restart,
                          enum secrets_end how)
{
    char *path;

    if (how != SECRETS_DONE && !job_has_ended (job_id, restart, how))
        return;
    if ((path = fsio_join (dir, SECRETS_FILE)))
        unlink (path);
    free (path);
}
