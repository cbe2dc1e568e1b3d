/* SPDX-License-Identifier: Apache-2.0
 * attention_graph.c - causal attention as a graph of cuDNN's small operations
 *
 * cuDNN knows the pattern and runs it as one flash kernel; what is virtual here
 * never exists there. Queries, keys and values are strided views of one packed
 * array, so nothing is copied. The formulas are Dao 2023's, arXiv:2307.08691. */
#include "config.h"

#include "kernels/attention_graph.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

static void failed (struct graph *g, const char *what, int kind, int status)
{
    char more[160] = "";

    g->api->last_error (more, sizeof (more));
    snprintf (g->why, sizeof (g->why), "%s of descriptor %d: %s%s%s", what,
              kind, g->api->error_text (status), more[0] ? ": " : "", more);
}

void *graph_make (struct graph *g, int kind)
{
    void *desc = NULL;
    int status;

    if (g->why[0])
        return NULL;
    if (g->n_descs == GRAPH_DESCS) {
        snprintf (g->why, sizeof (g->why), "more than %d descriptors",
                  GRAPH_DESCS);
        return NULL;
    }
    status = g->api->desc_create (kind, &desc);
    if (status != 0) {
        failed (g, "making", kind, status);
        return NULL;
    }
    g->descs[g->n_descs++] = desc;
    return desc;
}

void graph_set (struct graph *g, void *desc, int name, int type, int64_t n,
                const void *value)
{
    int status;

    if (g->why[0])
        return;
    status = g->api->desc_set (desc, name, type, n, value);
    if (status != 0)
        failed (g, "setting", name, status);
}

void graph_close (struct graph *g, void *desc)
{
    int status;

    if (g->why[0])
        return;
    status = g->api->desc_finalize (desc);
    if (status != 0)
        failed (g, "finalizing", g->n_descs, status);
}

static void set_desc (struct graph *g, void *desc, int name, void *value)
{
    graph_set (g, desc, name, DNN_T_DESCRIPTOR, 1, &value);
}

static void set_int (struct graph *g, void *desc, int name, int type, int value)
{
    graph_set (g, desc, name, type, 1, &value);
}

struct dims {
    int64_t n[4];
};

enum place { VIRTUAL, MEMORY, BY_VALUE };

static void *tensor (struct graph *g, int64_t id, int type, struct dims dim,
                     struct dims stride, enum place place)
{
    void *t = graph_make (g, DNN_TENSOR);
    int64_t align = 16;
    bool yes = true;

    set_int (g, t, DNN_TENSOR_TYPE, DNN_T_DATA_TYPE, type);
    graph_set (g, t, DNN_TENSOR_DIMS, DNN_T_INT64, 4, dim.n);
    graph_set (g, t, DNN_TENSOR_STRIDES, DNN_T_INT64, 4, stride.n);
    graph_set (g, t, DNN_TENSOR_ID, DNN_T_INT64, 1, &id);
    graph_set (g, t, DNN_TENSOR_ALIGNMENT, DNN_T_INT64, 1, &align);
    if (place == VIRTUAL)
        graph_set (g, t, DNN_TENSOR_VIRTUAL, DNN_T_BOOLEAN, 1, &yes);
    if (place == BY_VALUE)
        graph_set (g, t, DNN_TENSOR_BY_VALUE, DNN_T_BOOLEAN, 1, &yes);
    graph_close (g, t);
    return t;
}

static struct dims compact (struct dims d)
{
    return (struct dims){
        {d.n[1] * d.n[2] * d.n[3], d.n[2] * d.n[3], d.n[3], 1}};
}

/* Between operations. */
static void *inner (struct graph *g, int type, struct dims dim)
{
    return tensor (g, g->next_id++, type, dim, compact (dim), VIRTUAL);
}

static void *scalar (struct graph *g, int64_t id)
{
    struct dims one = {{1, 1, 1, 1}};

    return tensor (g, id, DNN_F32, one, one, BY_VALUE);
}

static void push (struct graph *g, void *op)
{
    graph_close (g, op);
    if (!g->why[0] && g->n_ops == GRAPH_OPS)
        snprintf (g->why, sizeof (g->why), "more than %d operations",
                  GRAPH_OPS);
    if (!g->why[0])
        g->ops[g->n_ops++] = op;
}

static void matmul (struct graph *g, void *c, void *a, void *b)
{
    void *how = graph_make (g, DNN_MATMUL), *op;

    set_int (g, how, DNN_MATMUL_PREC, DNN_T_DATA_TYPE, DNN_F32);
    graph_close (g, how);
    op = graph_make (g, DNN_OP_MATMUL);
    set_desc (g, op, DNN_OP_MATMUL_A, a);
    set_desc (g, op, DNN_OP_MATMUL_B, b);
    set_desc (g, op, DNN_OP_MATMUL_C, c);
    set_desc (g, op, DNN_OP_MATMUL_M, how);
    push (g, op);
}

/*   b, mask   NULL where [mode] takes none
 *   axis      of DNN_GEN_INDEX, else -1 */
static void *pointwise (struct graph *g, void *y, int mode, int prec, void *x,
                        void *b, void *mask, int64_t axis)
{
    void *how = graph_make (g, DNN_POINTWISE), *op;

    set_int (g, how, DNN_POINTWISE_MODE, DNN_T_POINTWISE_MODE, mode);
    set_int (g, how, DNN_POINTWISE_PREC, DNN_T_DATA_TYPE, prec);
    if (axis >= 0)
        graph_set (g, how, DNN_POINTWISE_AXIS, DNN_T_INT64, 1, &axis);
    graph_close (g, how);
    op = graph_make (g, DNN_OP_POINTWISE);
    set_desc (g, op, DNN_OP_POINTWISE_PW, how);
    set_desc (g, op, DNN_OP_POINTWISE_X, x);
    if (b)
        set_desc (g, op, DNN_OP_POINTWISE_B, b);
    if (mask)
        set_desc (g, op, DNN_OP_POINTWISE_T, mask);
    set_desc (g, op, DNN_OP_POINTWISE_Y, y);
    push (g, op);
    return y;
}

/* y = mode (x, b) in f32. */
static void *apply (struct graph *g, void *y, int mode, void *x, void *b)
{
    return pointwise (g, y, mode, DNN_F32, x, b, NULL, -1);
}

static void reduce (struct graph *g, void *y, int with, void *x)
{
    void *how = graph_make (g, DNN_REDUCTION), *op;

    set_int (g, how, DNN_REDUCTION_OPERATOR, DNN_T_REDUCTION, with);
    set_int (g, how, DNN_REDUCTION_PREC, DNN_T_DATA_TYPE, DNN_F32);
    graph_close (g, how);
    op = graph_make (g, DNN_OP_REDUCTION);
    set_desc (g, op, DNN_OP_REDUCTION_X, x);
    set_desc (g, op, DNN_OP_REDUCTION_Y, y);
    set_desc (g, op, DNN_OP_REDUCTION_R, how);
    push (g, op);
}

static void *reshape (struct graph *g, void *y, void *x)
{
    void *op = graph_make (g, DNN_OP_RESHAPE);

    set_desc (g, op, DNN_OP_RESHAPE_X, x);
    set_desc (g, op, DNN_OP_RESHAPE_Y, y);
    push (g, op);
    return y;
}

/* The sizes of one call, and the tensors both passes begin with. */
struct sizes {
    int64_t B, T, H, G, D, row;
    int half; /* the dtype */
    struct dims square, heads, column;
    void *q, *k_turned, *y, *lse, *scale, *masked;
};

/* [heads] heads of the packed rows; turned: (B,heads,D,T). */
static void *packed (struct graph *g, const struct sizes *z, int64_t id,
                     int64_t heads, bool turned, enum place place)
{
    int64_t batch = z->T * z->row;
    struct dims dim = {{z->B, heads, z->T, z->D}};
    struct dims at = {{batch, z->D, z->row, 1}};

    if (turned) {
        dim = (struct dims){{z->B, heads, z->D, z->T}};
        at = (struct dims){{batch, z->D, 1, z->row}};
    }
    return tensor (g, id, z->half, dim, at, place);
}

/* (B,H,T,D) seen in a (B,T,H,D) array. */
static void *rows_of_heads (struct graph *g, const struct sizes *z, int64_t id,
                            int type, enum place place)
{
    struct dims at = {{z->T * z->H * z->D, z->D, z->H * z->D, 1}};

    return tensor (g, id, type, z->heads, at, place);
}

static void start (struct graph *g, struct sizes *z,
                   const struct cudnn_api *api, const struct attention_shape *s)
{
    *g = (struct graph){.api = api, .next_id = AT_IDS};
    *z = (struct sizes){
        .B = (int64_t)s->B,
        .T = (int64_t)s->T,
        .H = (int64_t)s->H,
        .G = (int64_t)s->G,
        .D = (int64_t)s->D,
        .row = (int64_t)((s->H + 2 * s->G) * s->D),
        .half = s->dtype == ATTENTION_F16 ? DNN_F16 : DNN_BF16,
    };
    z->square = (struct dims){{z->B, z->H, z->T, z->T}};
    z->heads = (struct dims){{z->B, z->H, z->T, z->D}};
    z->column = (struct dims){{z->B, z->H, z->T, 1}};
    z->q = packed (g, z, AT_Q, z->H, false, MEMORY);
    z->k_turned = packed (g, z, AT_K, z->G, true, MEMORY);
    z->y = rows_of_heads (g, z, AT_Y, z->half, MEMORY);
    z->lse =
        tensor (g, AT_LSE, DNN_F32, z->column, compact (z->column), MEMORY);
    z->scale = scalar (g, AT_SCALE);
    z->masked = scalar (g, AT_MASKED);
}

static bool finish (struct graph *g, void *handle)
{
    g->graph = graph_make (g, DNN_GRAPH);
    graph_set (g, g->graph, DNN_GRAPH_OPS, DNN_T_DESCRIPTOR, g->n_ops, g->ops);
    if (handle)
        graph_set (g, g->graph, DNN_GRAPH_HANDLE, DNN_T_HANDLE, 1, &handle);
    graph_close (g, g->graph);
    return !g->why[0];
}

/* x where the row is not before the column, else the masked value. */
static void *causal (struct graph *g, const struct sizes *z, void *x)
{
    void *row = inner (g, DNN_I32, z->square);
    void *column = inner (g, DNN_I32, z->square);
    void *mask = inner (g, DNN_BOOL, z->square);

    pointwise (g, row, DNN_GEN_INDEX, DNN_I32, x, NULL, NULL, 2);
    pointwise (g, column, DNN_GEN_INDEX, DNN_I32, x, NULL, NULL, 3);
    pointwise (g, mask, DNN_CMP_GE, DNN_BOOL, row, column, NULL, -1);
    return pointwise (g, inner (g, DNN_F32, z->square), DNN_SELECT, DNN_F32, x,
                      z->masked, mask, -1);
}

bool graph_fwd (struct graph *g, const struct cudnn_api *api, void *handle,
                const struct attention_shape *s)
{
    struct sizes z;
    void *v, *x, *max, *sum, *log_sum, *p;

    start (g, &z, api, s);
    v = packed (g, &z, AT_V, z.G, false, MEMORY);
    x = inner (g, DNN_F32, z.square);
    matmul (g, x, z.q, z.k_turned);
    x = apply (g, inner (g, DNN_F32, z.square), DNN_MUL, x, z.scale);
    x = causal (g, &z, x);
    max = inner (g, DNN_F32, z.column);
    reduce (g, max, DNN_REDUCE_MAX, x);
    x = apply (g, inner (g, DNN_F32, z.square), DNN_SUB, x, max);
    x = apply (g, inner (g, DNN_F32, z.square), DNN_EXP, x, NULL);
    sum = inner (g, DNN_F32, z.column);
    reduce (g, sum, DNN_REDUCE_ADD, x);
    log_sum = apply (g, inner (g, DNN_F32, z.column), DNN_LOG, sum, NULL);
    apply (g, z.lse, DNN_ADD, max, log_sum);
    p = apply (g, inner (g, z.half, z.square), DNN_DIV, x, sum);
    matmul (g, z.y, p, v);
    return finish (g, handle);
}

/* out (B,G,T,D) = turned (x) times y, summed over the query heads of a group. */
static void turned_product (struct graph *g, const struct sizes *z, void *out,
                            void *x, void *y)
{
    int64_t T = z->T;
    struct dims at = {{z->H * T * T, T * T, 1, T}};
    void *xt = tensor (g, g->next_id++, z->half, z->square, at, VIRTUAL), *all;

    reshape (g, xt, x);
    if (z->H == z->G) {
        matmul (g, out, xt, y);
        return;
    }
    all = inner (g, z->half, z->heads);
    matmul (g, all, xt, y);
    reduce (g, out, DNN_REDUCE_ADD, all);
}

/* The sum of dy y of each row. */
static void *row_sums (struct graph *g, const struct sizes *z, void *dy)
{
    void *one = scalar (g, AT_ONE);
    void *x = rows_of_heads (g, z, g->next_id++, DNN_F32, VIRTUAL);
    void *sum = inner (g, DNN_F32, z->column);

    apply (g, x, DNN_MUL, dy, z->y);
    reduce (g, sum, DNN_REDUCE_ADD, x);
    return apply (
        g,
        tensor (g, AT_ROWSUM, DNN_F32, z->column, compact (z->column), MEMORY),
        DNN_MUL, sum, one);
}

static void *probabilities (struct graph *g, const struct sizes *z)
{
    void *x = inner (g, DNN_F32, z->square);

    matmul (g, x, z->q, z->k_turned);
    x = apply (g, inner (g, DNN_F32, z->square), DNN_MUL, x, z->scale);
    x = apply (g, inner (g, DNN_F32, z->square), DNN_SUB, x, z->lse);
    x = causal (g, z, x);
    return apply (g, inner (g, DNN_F32, z->square), DNN_EXP, x, NULL);
}

/* dq = ds k: through sums in f32 that blocks of keys add to in any order, or by
 * cuDNN's way that keeps ds. */
static void dq_product (struct graph *g, const struct sizes *z, void *ds,
                        bool deterministic)
{
    void *dq = packed (g, z, AT_DQ, z->H, false, MEMORY), *sum;
    void *k = packed (g, z, g->next_id++, z->G, false, VIRTUAL);

    reshape (g, k, z->k_turned);
    if (deterministic) {
        matmul (g, dq, ds, k);
        return;
    }
    sum = tensor (g, AT_DQ_SUM, DNN_F32, z->heads, compact (z->heads), MEMORY);
    matmul (g, sum, ds, k);
    apply (g, dq, DNN_IDENTITY, sum, NULL);
}

bool graph_bwd (struct graph *g, const struct cudnn_api *api, void *handle,
                const struct attention_shape *s)
{
    struct sizes z;
    void *dy, *v_turned, *sums, *p, *x, *ds;

    start (g, &z, api, s);
    dy = rows_of_heads (g, &z, AT_DY, z.half, MEMORY);
    v_turned = packed (g, &z, AT_V, z.G, true, MEMORY);
    sums = row_sums (g, &z, dy);
    p = probabilities (g, &z);
    turned_product (g, &z, packed (g, &z, AT_DV, z.G, false, MEMORY), p, dy);
    x = inner (g, DNN_F32, z.square);
    matmul (g, x, dy, v_turned);
    x = apply (g, inner (g, DNN_F32, z.square), DNN_SUB, x, sums);
    x = apply (g, inner (g, DNN_F32, z.square), DNN_MUL, x, p);
    ds = apply (g, inner (g, z.half, z.square), DNN_MUL, x, z.scale);
    turned_product (g, &z, packed (g, &z, AT_DK, z.G, false, MEMORY), ds, z.q);
    dq_product (g, &z, ds, s->deterministic);
    return finish (g, handle);
}

void graph_drop (struct graph *g)
{
    while (g->n_descs > 0)
        (void)g->api->desc_destroy (g->descs[--g->n_descs]);
}
