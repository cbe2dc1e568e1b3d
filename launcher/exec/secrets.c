/* SPDX-License-Identifier: Apache-2.0
 * secrets.c - the user's secrets on their way to a rank, and their end */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* How many names are in a folder. */
static unsigned long n_names (const char *path)
{
    DIR *d = opendir (path);
    struct dirent *entry;
    unsigned long n = 0;

    while (d && (entry = readdir (d)))
        n += entry->d_name[0] != '.';
    if (d)
        closedir (d);
    return n;
}

/* A task of an array will not want them again. With the last one the request's
 * copy goes, of which all have a link: tasks that are still to begin need it. */
static void end_task (const char *own, const char *task)
{
    const char *count = getenv ("SLURM_ARRAY_TASK_COUNT");
    size_t len = strlen (own),
           up = strlen ("/" SECRETS_TASKS "/") + strlen (task);
    char *dir = len > up ? strndup (own, len - up) : NULL;
    char *ended = dir ? fsio_join (dir, SECRETS_TASKS "/.ended") : NULL;
    char *mark = ended ? fsio_join (ended, task) : NULL;
    int fd = -1;

    if (mark && (mkdir (ended, 0700) == 0 || errno == EEXIST))
        fd = open (mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0 && !close (fd) && count
        && n_names (ended) >= strtoul (count, NULL, 10))
        secrets_forget (dir);
    free (mark);
    free (ended);
    free (dir);
}

void exec_secrets_forget (const char *dir, uint32_t job_id, uint32_t restart,
                          enum secrets_end how)
{
    const char *task = getenv ("SLURM_ARRAY_TASK_ID");
    char *path;

    if (how != SECRETS_DONE && !job_has_ended (job_id, restart, how))
        return;
    if ((path = fsio_join (dir, SECRETS_FILE)))
        unlink (path);
    free (path);
    if (task)
        end_task (dir, task);
}
