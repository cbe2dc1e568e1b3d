/* SPDX-License-Identifier: Apache-2.0
 * attention_graph.h - causal attention as a graph of cuDNN's small operations.
 * For attention_cudnn.c. */
#ifndef KERN_ATTENTION_GRAPH_H
#define KERN_ATTENTION_GRAPH_H

#include "kernels/attention.h"
#include "kernels/cudnn_api.h"

/* Ids of the tensors that a call gives pointers to. */
enum attention_id {
    AT_Q = 1,
    AT_K,
    AT_V,
    AT_Y,
    AT_LSE,
    AT_SCALE, /* this one and the next two: a float of the host */
    AT_MASKED,
    AT_ONE,
    AT_DQ,
    AT_DK,
    AT_DV,
    AT_DY,
    AT_ROWSUM, /* (B,H,T) f32, of the scratch */
    AT_DQ_SUM, /* (B,H,T,D) f32, of the scratch; not in the deterministic one */
    AT_IDS,
};

#define GRAPH_DESCS 160
#define GRAPH_OPS   32

/*   graph   the finalized graph, one of [descs]
 *   why     empty: all went well so far */
struct graph {
    const struct cudnn_api *api;
    void *graph, *descs[GRAPH_DESCS], *ops[GRAPH_OPS];
    int n_descs, n_ops;
    int64_t next_id;
    char why[256];
};

/* graph_fwd, graph_bwd - build [g] for [s] (B, T, H, G, D, dtype; the backward:
 * deterministic too).
 *   handle   cuDNN's; NULL where there is no GPU
 * False: g->why says why. graph_drop either way. */
bool graph_fwd (struct graph *g, const struct cudnn_api *api, void *handle,
                const struct attention_shape *s);
bool graph_bwd (struct graph *g, const struct cudnn_api *api, void *handle,
                const struct attention_shape *s);

void graph_drop (struct graph *g);

/* graph_make - a descriptor that graph_drop destroys; NULL: g->why is set.
 * graph_set, graph_close - an attribute; finalize. After the first failure all
 * three do nothing. */
void *graph_make (struct graph *g, int kind);
void graph_set (struct graph *g, void *desc, int name, int type, int64_t n,
                const void *value);
void graph_close (struct graph *g, void *desc);

#endif
