/* SPDX-License-Identifier: Apache-2.0
 * scale_jobs.c - thousands of jobs for a cluster of a bench, faster than
 * thousands of salloc and sbatch calls
 *
 *   scale_jobs < LINES
 * A line is "alloc|batch NAME PARTITION TRES_PER_NODE NODES CPUS MEM_MB MINUTES
 * FEATURES SCRIPT", "-" for what is not asked: alloc as `salloc --no-shell`
 * takes it at once, batch as `sbatch SCRIPT` waits for it. Prints how many of
 * each there are; status 1 where Slurm refuses one. */
#include <errno.h>
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How the client of a release spells a gres. */
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 5, 0)
#define GRES "gres/"
#else
#define GRES "gres:"
#endif

struct line {
    char how[8], name[64], part[64], tres[64], features[64], script[256];
    unsigned nodes, cpus, mem_mb, minutes;
};

static char *given (char *s)
{
    return strcmp (s, "-") ? s : NULL;
}

static void describe (struct line *line, job_desc_msg_t *job)
{
    static char *no_environment[] = {"PATH=/usr/bin:/bin", NULL};

    slurm_init_job_desc_msg (job);
    job->name = line->name;
    job->partition = given (line->part);
    job->features = given (line->features);
    job->min_nodes = job->max_nodes = line->nodes;
    job->num_tasks = line->nodes;
    job->ntasks_per_node = 1;
    job->cpus_per_task = (uint16_t)line->cpus;
    job->min_cpus = line->nodes * line->cpus;
    job->pn_min_memory = line->mem_mb;
    job->time_limit = line->minutes;
    job->user_id = getuid ();
    job->group_id = getgid ();
    job->work_dir = "/";
    job->std_out = job->std_err = job->std_in = "/dev/null";
    job->environment = no_environment;
    job->env_size = 1;
}

static int allocate (job_desc_msg_t *job)
{
    resource_allocation_response_msg_t *answer = NULL;

    job->immediate = 1;
    if (slurm_allocate_resources (job, &answer) || !answer)
        return -1;
    slurm_free_resource_allocation_response_msg (answer);
    return 0;
}

static int submit (job_desc_msg_t *job, char *path)
{
    submit_response_msg_t *answer = NULL;
    char script[512], *argv[] = {path};

    /* As rv run leaves it. */
    snprintf (script, sizeof (script), "#!/bin/sh\nexec %.400s\n", path);
    job->script = script;
    job->argc = 1;
    job->argv = argv;
    if (slurm_submit_batch_job (job, &answer))
        return -1;
    slurm_free_submit_response_response_msg (answer);
    return 0;
}

int main (void)
{
    unsigned taken = 0, waiting = 0;
    char buf[1024];

    slurm_init (NULL);
    while (fgets (buf, sizeof (buf), stdin)) {
        char tres[80];
        struct line l;
        job_desc_msg_t job;
        int failed;

        if (sscanf (buf, "%7s %63s %63s %63s %u %u %u %u %63s %255s", l.how,
                    l.name, l.part, l.tres, &l.nodes, &l.cpus, &l.mem_mb,
                    &l.minutes, l.features, l.script)
            != 10) {
            fprintf (stderr, "scale_jobs: not a job: %s", buf);
            return 1;
        }
        snprintf (tres, sizeof (tres), GRES "%s", l.tres);
        describe (&l, &job);
        job.tres_per_node = tres;
        if (!strcmp (l.how, "alloc")) {
            failed = allocate (&job);
            taken++;
        } else {
            failed = submit (&job, l.script);
            waiting++;
        }
        if (failed) {
            fprintf (stderr, "scale_jobs: %s: %s", slurm_strerror (errno), buf);
            return 1;
        }
    }
    printf ("%u allocations, %u batch jobs\n", taken, waiting);
    return 0;
}
