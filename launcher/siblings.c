/* SPDX-License-Identifier: Apache-2.0
 * siblings.c - end the other jobs of a request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "siblings.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster.h"
#include "cluster_segment.h"
#include "exec/claim.h"
#include "jobfile.h"
#include "plan/fsio.h"

struct stopping {
    uint32_t winner;
    unsigned n;
    int status; /* the first failure */
    struct rv_error *err;
};

/* The comment tells whoever looks later why the job was cancelled. One that has
 * ended takes none. */
static void stop_one (struct stopping *s, uint32_t job_id)
{
    struct rv_error why = {0};
    json_t *answer = NULL;
    char text[80];
    int rc;

    /* One silence is enough: whoever calls has no time for another. */
    if (s->status == RV_ETIMEDOUT)
        return;
    snprintf (text, sizeof (text), "job %u of this request runs the command",
              s->winner);
    rc = cluster_segment_comment (job_id, text, &answer, &why);
    if (rc == RV_OK)
        json_decref (answer);
    if (rc != RV_ETIMEDOUT)
        rc = cluster_cancel (job_id, &why);
    if (rc == RV_OK)
        s->n++;
    if (rc && rc != RV_ESTATE && rc != RV_ENOTFOUND && !s->status)
        s->status = error_set (s->err, rc, "job %u: %s", job_id, why.text);
}

bool siblings_is_of (const char *dir, const char *command)
{
    size_t n = strlen (dir);

    return !strncmp (command, dir, n) && !strncmp (command + n, "/job", 4)
           && !strchr (command + n + 1, '/');
}

/* Jobs that were submitted, but not noted: rv was killed in between. */
static void stop_unnoted (struct stopping *s, const char *dir,
                          const struct jobfile *noted, size_t n)
{
    struct cluster_jobs jobs;
    struct rv_error why = {0};
    int rc;

    if (s->status == RV_ETIMEDOUT)
        return;
    if ((rc = cluster_jobs_load (&jobs, &why))) {
        if (!s->status)
            s->status = error_set (s->err, rc, "%s", why.text);
        return;
    }
    for (size_t i = 0; i < jobs.n; i++) {
        const struct cluster_job *job = &jobs.job[i];
        bool known = job->job_id == s->winner;

        for (size_t k = 0; k < n && !known; k++)
            known = noted[k].job_id == job->job_id;
        if (!known && job->active && siblings_is_of (dir, job->command))
            stop_one (s, job->job_id);
    }
    cluster_jobs_fini (&jobs);
}

int siblings_stop (const char *dir, uint32_t job_id, unsigned *ret_n,
                   struct rv_error *err)
{
    struct stopping s = {.winner = job_id, .err = err};
    struct jobfile *noted = NULL;
    size_t n = jobfile_list (dir, &noted);
    uint32_t root = jobfile_read (dir, job_id).root;

    *ret_n = 0;
    if (!n)
        return error_set (err, RV_ENOTFOUND, "%s/jobs has no job", dir);
    for (size_t i = 0; i < n; i++)
        if (noted[i].job_id != job_id && noted[i].root != root)
            stop_one (&s, noted[i].job_id);
    stop_unnoted (&s, dir, noted, n);
    free (noted);
    *ret_n = s.n;
    return s.status;
}

int siblings_stop_if_started (const char *dir, uint32_t *ret_winner,
                              struct rv_error *err)
{
    const struct claim c = {.dir = dir};
    struct claim_holder h;
    unsigned n;
    int rc = claim_read (&c, &h, err);

    *ret_winner = 0;
    if (rc || h.number < 0)
        return rc;
    *ret_winner = h.job_id;
    return claim_has_started (dir) ? siblings_stop (dir, h.job_id, &n, err)
                                   : RV_OK;
}
