/* SPDX-License-Identifier: Apache-2.0
 * jobfile.h - what jobs/J.json of a request's folder notes of a submission, for
 * rv and for rv-exec. */
#ifndef RV_JOBFILE_H
#define RV_JOBFILE_H

#include <stddef.h>
#include <stdint.h>

struct jobfile {
    uint32_t job_id;
    uint32_t root;      /* first job of its chain; job_id where there is none */
    unsigned candidate; /* which of the request's plans it follows, from 1 */
};

/* jobfile_read - what is noted of the job; one that is not is its own root and
 * the first candidate.
 *   dir   of the request */
struct jobfile jobfile_read (const char *dir, uint32_t job_id);

/* jobfile_list - all that are noted, by id, the first submitted first.
 *   ret   malloc'ed; NULL when none, or out of memory
 * Returns how many. */
size_t jobfile_list (const char *dir, struct jobfile **ret);

/* jobfile_name - of a file of which each candidate has one: "request.json" for
 * the first, "request-2.json" for the second. 0 is the first.
 *   buf   (size) written */
void jobfile_name (const char *head, const char *end, unsigned candidate,
                   char *buf, size_t size);

/* Begins the reason why a job that was given other than it asked for has not
 * begun: rv-exec writes it, and rv run -f says it once. */
#define JOBFILE_NOT_GRANTED "not granted as asked: "

/* jobfile_pattern - a name of a file or folder as a pattern of sbatch and srun,
 * which expand '%': malloc'ed, NULL when out of memory. */
char *jobfile_pattern (const char *name);

#endif
