/* SPDX-License-Identifier: Apache-2.0
 * train/graph.h - calls of a group that are recorded once and replayed as one,
 * by a CUDA graph (CUDA C++ Programming Guide, "CUDA Graphs").
 *
 * For groups with backend "nccl". Between train_graph_begin and train_graph_end
 * the tensor calls of the group are recorded and not run: each is compared as
 * ever, so a difference is TRAIN_EMISMATCH there, and returns at once. So is
 * what the program gives the group's stream between them (kernels, copies), in
 * that order; a group whose stream is CUDA's default, which cannot be recorded,
 * records its calls alone. Memory that is recorded, also that of the tensors,
 * lives until the graph is destroyed and is what each launch reads and writes.
 *
 * A launch is one call of the group, with the deadline of one, and may be in a
 * learnt step like any other. The GPU counts in it where a recorded call begins
 * and ends. What ends a launch says how far this rank's GPU had come; and if a
 * graph does not end though every rank has launched it, the error names the
 * recorded call, and the rank that is furthest back: either in the call, or
 * before it, in the program's own work. */
#ifndef TRAIN_GRAPH_H
#define TRAIN_GRAPH_H

#include <train/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_graph train_graph_t;

/* train_graph_begin - record from here on. Every rank of the group calls it.
 * Until the end the group makes no asynchronous call, barrier, step, object
 * call, split or launch: TRAIN_ESTATE, and nothing is recorded of it.
 * TRAIN_ENOTSUP: another backend. TRAIN_ESTATE: it records already, a step is
 * open, or the group is broken. TRAIN_EDEVICE: also the stream is recorded by
 * somebody else. TRAIN_ENOMEM. The group stays sound. */
train_status_t train_graph_begin (train_group_t *group, train_error_t *err);

/* train_graph_end - end that.
 *   ret_graph   end with train_graph_destroy
 * TRAIN_EINVAL: no call with elements was recorded. TRAIN_ESTATE: it does not
 * record, or a recorded call broke the group, which ends the record too.
 * TRAIN_EDEVICE: what the program gave the stream cannot be recorded.
 * After an error there is no graph, and the group no longer records. */
train_status_t train_graph_end (train_group_t *group, train_graph_t **ret_graph,
                                train_error_t *err);

/* train_graph_launch - run what was recorded, after the work that the group's
 * stream has been given, and wait for its end. Every rank launches the graph
 * that it recorded at the same place: else TRAIN_EMISMATCH.
 * Errors as every call has them; TRAIN_ESTATE also when the group is gone. */
train_status_t train_graph_launch (train_graph_t *graph, train_error_t *err);
train_status_t train_graph_launch_async (train_graph_t *graph,
                                         train_work_t **ret_work,
                                         train_error_t *err);

/* train_graph_destroy - NULL is fine. Before or after its group; waits for
 * asynchronous calls of it. Of one rank alone. */
void train_graph_destroy (train_graph_t *graph);

#ifdef __cplusplus
}
#endif
#endif
