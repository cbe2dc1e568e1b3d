/* SPDX-License-Identifier: Apache-2.0
 * diagnose.h - put together what is known of a bad end: failure.json, and the
 * block on stderr. */
#ifndef RV_EXEC_DIAGNOSE_H
#define RV_EXEC_DIAGNOSE_H

#include <jansson.h>
#include <stdint.h>

#include "exec/advice.h"

struct diagnose_in {
    uint32_t job_id, restart;
    uint32_t ranks;      /* of the step; 0: unknown */
    const char *message; /* the line that names the cause */
    const json_t *rank;  /* the first cause, as in rank-N.json; NULL: none */
    const char *slurm;   /* last lines that Slurm wrote; NULL: none */
    const char *kind;    /* that is known from elsewhere; NULL: none is */
    /* A rank whose rv-exec died without a report; < 0: none. */
    int64_t silent_rank;
    /* Ranks, in order; borrowed; NULL: unknown. */
    json_t *well, *failed, *silent;
};

/* diagnose_advice - what the table knows of this end; NULL: nothing. */
const struct advice *diagnose_advice (const json_t *rank, const char *slurm);

/* diagnose - an object as in failure.json (schema rv.failure/1); NULL when out
 * of memory. */
json_t *diagnose (const struct diagnose_in *in);

/* diagnose_say - the block under the line that names the cause, in one write;
 * a failure without anything to add prints nothing. */
void diagnose_say (const json_t *failure);

/* diagnose_node - which node does srun name for the task [rank]? Its lines are
 * "srun: error: NODE: task RANK: WHAT".
 *   ret   "" when no line does; 64 bytes are enough for a name */
void diagnose_node (const char *slurm, uint32_t rank, char *ret, size_t size);

/* diagnose_lost_node - which node, or list of nodes, does srun call lost? Its
 * line is "srun: error: Node failure on NODE".
 *   slurm   NULL: nothing was said
 *   ret     "" when no line does */
void diagnose_lost_node (const char *slurm, char *ret, size_t size);

#endif
