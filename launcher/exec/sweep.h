/* SPDX-License-Identifier: Apache-2.0
 * sweep.h - end what a program has left running.
 *
 * Data workers and the like outlive a program that failed; where Slurm follows
 * parents (proctrack/linuxproc) nobody ends them any more, and they keep the
 * memory of their GPUs (goodfire-ai/spd#552). So rv-exec becomes the parent of
 * what loses its own, which also keeps it in Slurm's sight meanwhile. */
#ifndef RV_EXEC_SWEEP_H
#define RV_EXEC_SWEEP_H

/* sweep_adopt - from now on orphans below this process become its children.
 * The caller reaps them. */
void sweep_adopt (void);

/* sweep_children - kill all processes below this one, children after children,
 * and reap them; returns once there is none, or after [within_ms]. */
void sweep_children (int within_ms);

#endif
