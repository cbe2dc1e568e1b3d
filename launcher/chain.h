/* SPDX-License-Identifier: Apache-2.0
 * chain.h - go on in another job, where Slurm may not put the first one back:
 * the same submission once more, behind the end of the job that it follows. */
#ifndef RV_CHAIN_H
#define RV_CHAIN_H

#include <jansson.h>
#include <stdint.h>

#include "plan/error.h"

/* What is chained to what. Texts are borrowed. */
struct chain {
    const char *dir;     /* of the request */
    uint32_t job_id;     /* the job that ends */
    uint32_t first;      /* the chain's first job, whose logs go on */
    uint32_t submitted;  /* the job of jobs/J.json: its own, or its array's */
    const char *task;    /* index of the array's task; NULL: no array */
    const char *exclude; /* a node that the new job shall not get; NULL */
};

/* chain_argv - the words of the next sbatch.
 *   job   what jobs/J.json says of the submission
 *   ret   NULL-terminated; free with submit_argv_free
 * RV_EFORMAT when [job] is no rv.job/1. */
int chain_argv (const struct chain *c, const json_t *job, char ***ret,
                struct rv_error *err);

/* chain_submit - submit it and note the new job in the request's folder.
 *   ret_job_id   written on success */
int chain_submit (const struct chain *c, uint32_t *ret_job_id,
                  struct rv_error *err);

#endif
