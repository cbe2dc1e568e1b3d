/* SPDX-License-Identifier: Apache-2.0
 * submit_again.c - submit a request, through a restart of slurmctld too, once
 *
 * Where sbatch lost slurmctld, nobody knows whether there is a job. Its script
 * tells, which is its own: once slurmctld answers again, a job with
 * that script is the one, and without one sbatch is called again. */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cluster.h"
#include "proc.h"
#include "submit.h"

#define PATIENCE_MS 300000
#define PAUSE_MS    500

static void pause_ms (long ms)
{
    const struct timespec ts = {ms / 1000, ms % 1000 * 1000000};

    nanosleep (&ts, NULL);
}

/* RV_OK and 0 when slurmctld says that there is none. */
static int find_job (const char *script, uint32_t *ret, struct rv_error *err)
{
    struct cluster_jobs jobs;
    int status = cluster_jobs_load (&jobs, err);

    if (status != RV_OK)
        return status;
    *ret = 0;
    for (size_t i = 0; i < jobs.n && !*ret; i++)
        if (!strcmp (jobs.job[i].command, script))
            *ret = jobs.job[i].job_id;
    cluster_jobs_fini (&jobs);
    return RV_OK;
}

/* sbatch ended well and did not name the job: [err] says what it printed. */
static int find_unnamed (const char *script, uint32_t *ret,
                         struct rv_error *err)
{
    struct rv_error why = {0};

    if (find_job (script, ret, &why) != RV_OK)
        return error_set (err, RV_ETIMEDOUT,
                          "sbatch named no job, and there may be one: rv ps "
                          "shows it then");
    return *ret ? RV_OK : RV_EFORMAT;
}

int submit_again (char *const argv[], uint32_t *ret_job_id,
                  struct rv_error *err)
{
    const char *script = NULL;
    int64_t end = proc_now_ms () + PATIENCE_MS;
    int status = submit_run (argv, ret_job_id, err);
    struct rv_error why;

    for (size_t i = 0; argv[i]; i++)
        script = argv[i];
    if (status == RV_EFORMAT && script)
        return find_unnamed (script, ret_job_id, err);
    if (status != RV_ETIMEDOUT || !script)
        return status;
    fprintf (stderr, "rv: %s; asking again until slurmctld answers\n",
             err->text);
    while (proc_now_ms () < end) {
        pause_ms (PAUSE_MS);
        if (find_job (script, ret_job_id, &why) != RV_OK)
            continue;
        if (*ret_job_id)
            return RV_OK;
        status = submit_run (argv, ret_job_id, err);
        if (status != RV_ETIMEDOUT)
            return status;
    }
    return error_set (err, RV_ETIMEDOUT,
                      "slurmctld did not answer for %d minutes, and may have "
                      "taken the job: rv ps shows it then",
                      PATIENCE_MS / 60000);
}
