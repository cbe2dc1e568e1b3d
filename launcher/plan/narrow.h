/* SPDX-License-Identifier: Apache-2.0
 * narrow.h - leave of a snapshot what one request may have, as sbatch's own
 * options say it. Nodes that are left out are marked: jobs of others go on to
 * use them. */
#ifndef RV_PLAN_NARROW_H
#define RV_PLAN_NARROW_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/error.h"
#include "plan/snapshot.h"

/* narrow_exclude - sbatch -x: all but the nodes of [list]. What is no list of
 * names is sbatch's to refuse, and changes nothing. */
void narrow_exclude (struct strategy_cluster *cluster, const char *list);

/* narrow_nodelist - sbatch -w: a job has all nodes of [list].
 *   gpus       of the job; 0 = none
 *   nodes      how many it asks for; where that is 0, written: as many as the
 *              list has
 *   ret_done   false: nothing was changed, as the list is no list of nodes of
 *              this cluster (which sbatch refuses) or the job has others too
 * RV_EINVAL where the list is longer than the job, or its GPUs do not go evenly
 * on these nodes; RV_ENOMEM. */
int narrow_nodelist (struct strategy_cluster *cluster, const char *list,
                     uint32_t gpus, uint32_t *nodes, bool *ret_done,
                     struct rv_error *err);

/* narrow_reservation - sbatch --reservation: the nodes of that one, while it
 * lasts. False, and nothing was changed, where it is not known, its nodes are
 * not fixed, or memory is out. */
bool narrow_reservation (struct strategy_cluster *cluster, const char *name);

#endif
