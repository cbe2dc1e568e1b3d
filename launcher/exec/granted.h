/* SPDX-License-Identifier: Apache-2.0
 * granted.h - what a job was given, beside what its request asked for.
 *
 * Between the two stand the site's job_submit plugin, `scontrol update`, and
 * rv's own plan of one job for several GPU types. */
#ifndef RV_EXEC_GRANTED_H
#define RV_EXEC_GRANTED_H

#include <stddef.h>

#include "exec/exec.h"
#include "plan/error.h"

/* granted_compare - pure.
 *   show   what `scontrol show job --details` prints of one job
 *   q      the request
 *   ret    (size) "2 a100 on n1, 2 a100 on n2"; "" without GPUs
 * RV_EMISMATCH: fewer nodes, CPUs, GPUs or less memory than asked, more nodes,
 * another type, or nodes of several types; the text names node and both values.
 * RV_EFORMAT where [show] tells of no node, or of a job that is not RUNNING: one
 * that completes gives its nodes back one by one. RV_EINVAL for a list of nodes
 * that cannot be read. Lists may be of any length. What a cluster does not count
 * (memory, single CPUs) is not compared, and more of a node is no fault: whole
 * nodes have more. */
int granted_compare (const char *show, const struct exec_request *q, char *ret,
                     size_t size, struct rv_error *err);

/* granted_check - ask scontrol, compare, and say which GPU type came where the
 * request left it open. Where Slurm does not answer that is a warning and the
 * job goes on. RV_EMISMATCH as above. */
int granted_check (const struct exec_request *q, uint32_t job_id,
                   struct rv_error *err);

#endif
