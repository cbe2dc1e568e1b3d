/* SPDX-License-Identifier: Apache-2.0
 * layout.h - which rank is on which node: pure. Inside libtrain only. */
#ifndef TRAIN_LAYOUT_H
#define TRAIN_LAYOUT_H

#include <stdint.h>

#include <train/status.h>

/* What one rank says of itself. Sent as it stands. */
struct layout_in {
    int32_t key;        /* the same on all ranks of a node, and no others */
    int32_t local_size; /* how many they are */
};

/* layout_nodes - number the nodes by their lowest rank.
 *   in            (size) by rank
 *   ret_node_of   (size) written
 * TRAIN_EMISMATCH when a node does not have the ranks that one of them says. */
train_status_t layout_nodes (const struct layout_in *in, int size,
                             int *ret_node_of, int *ret_nodes,
                             train_error_t *err);

/* layout_local - place of [rank] among the ranks of its node, and their
 * number. */
void layout_local (const int *node_of, int size, int rank, int *ret_local_rank,
                   int *ret_local_size);

/* A run is a stretch of consecutive ranks on one node: the steps by which a sum
 * in rank order passes from node to node. */
struct layout_run {
    int node;
    int first, count; /* ranks */
};

/* layout_runs - all runs in rank order.
 *   ret_runs   malloc'ed; NULL when out of memory
 * Returns their number. */
int layout_runs (const int *node_of, int size, struct layout_run **ret_runs);

#endif
