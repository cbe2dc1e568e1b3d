/* SPDX-License-Identifier: Apache-2.0
 * generate_cache.c - a forward of new tokens over kept keys and values
 *
 * The rows are tokens of any texts at any positions, so prompts of several
 * lengths and single tokens are one case, on the host and on a GPU. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "generate_impl.h"

struct kv_cache {
    train_decoder_t *m;
    size_t slots, T, rows, wants;
    void *k, *v;         /* (L,S,G,T,D) */
    void *cosine, *sine; /* (T,D/2) */
    void *scratch;       /* of attention on the host */
    void *x, *x2, *norm, *qkv, *att, *tmp, *raw, *gate_up, *act, *rstd;
    void *picked, *logits; /* (wants,C), (wants,V) */
    void *ids_at,
        *drawn_at; /* int32, where the kernels are: (3 rows + 3 wants),
                              (2 wants): ids and the bits of their logp */
    int32_t *pairs_at, *host_pairs; /* (3 slots): from, to, n */
    int32_t *host_ids, *host_drawn; /* pinned */
    void *host_logits;              /* where the others are on a GPU */
    void *graph;                    /* of a step of graph_rows, drawn so: */
    size_t graph_rows, warm_rows;   /* a step of so many has been run */
    double graph_heat;
    uint64_t graph_seed;
};

static size_t real_size (const struct kv_cache *c)
{
    return c->m->kern->real_size;
}

/* Both tables of T positions into host memory, in [real]. */
static void tables (const struct kv_cache *c, char *cosine, char *sine)
{
    const train_decoder_config_t *f = &c->m->config;
    double scale = decoder_rope_scale (f);
    size_t half = c->m->dims.D / 2;

    for (size_t j = 0; j < half; j++) {
        double rate = decoder_rope_rate (f, c->T, j);

        for (size_t t = 0; t < c->T; t++) {
            double x = scale * cos ((double)t * rate);
            double y = scale * sin ((double)t * rate);

            if (real_size (c) == sizeof (float)) {
                ((float *)(void *)cosine)[t * half + j] = (float)x;
                ((float *)(void *)sine)[t * half + j] = (float)y;
            } else {
                ((double *)(void *)cosine)[t * half + j] = x;
                ((double *)(void *)sine)[t * half + j] = y;
            }
        }
    }
}

static train_status_t send_tables (struct kv_cache *c, train_error_t *err)
{
    size_t bytes = c->T * (c->m->dims.D / 2) * real_size (c);
    const struct backend_ops *ops = c->m->ops;
    train_status_t status;
    char *own = malloc (2 * bytes);

    if (!own)
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    tables (c, own, own + bytes);
    status = ops->copy (c->cosine, own, bytes, c->m->stream, err);
    if (status == TRAIN_OK)
        status = ops->copy (c->sine, own + bytes, bytes, c->m->stream, err);
    if (status == TRAIN_OK)
        status = ops->sync (c->m->stream, err);
    free (own);
    return status;
}

struct part {
    void **p;
    size_t bytes;
};

enum { PARTS = 20 };

static void parts_of (struct kv_cache *c, struct part part[PARTS])
{
    const struct decoder_dims *d = &c->m->dims;
    size_t E = c->m->kern->elem_size, R = real_size (c), N = c->rows * E;
    size_t kept = d->L * c->slots * d->G * c->T * d->D * E;
    size_t table = c->T * (d->D / 2) * R;
    const struct part all[PARTS] = {
        {&c->k, kept},
        {&c->v, kept},
        {&c->cosine, table},
        {&c->sine, table},
        {&c->scratch, c->m->gpu ? 0 : (c->T + d->D) * R},
        {&c->x, N * d->C},
        {&c->x2, N * d->C},
        {&c->norm, N * d->C},
        {&c->qkv, N * d->Q},
        {&c->att, N * d->H * d->D},
        {&c->tmp, N * d->C},
        {&c->raw, d->norm ? N * (d->H + d->G) * d->D : 0},
        {&c->gate_up, 2 * N * d->F},
        {&c->act, N * d->F},
        {&c->rstd, c->rows * (d->H + d->G) * R},
        {&c->picked, c->wants * d->C * E},
        {&c->logits, c->wants * d->V * E},
        {(void **)&c->pairs_at, 3 * c->slots * sizeof (int32_t)},
        {&c->ids_at, (c->rows + c->wants) * 3 * sizeof (int32_t)},
        {&c->drawn_at, 2 * c->wants * sizeof (int32_t)},
    };

    memcpy (part, all, sizeof (all));
}

static train_status_t allot (struct kv_cache *c, train_error_t *err)
{
    const struct backend_ops *ops = c->m->ops;
    struct part part[PARTS];
    void *ids = NULL, *drawn = NULL, *pairs = NULL;

    parts_of (c, part);
    for (size_t i = 0; i < PARTS; i++)
        TRY (ops->alloc (c->m->device, part[i].bytes, part[i].p, err));
    TRY (ops->pin (c->m->device, part[PARTS - 2].bytes, &ids, err));
    c->host_ids = ids;
    TRY (ops->pin (c->m->device, part[PARTS - 1].bytes, &drawn, err));
    c->host_drawn = drawn;
    TRY (ops->pin (c->m->device, part[PARTS - 3].bytes, &pairs, err));
    c->host_pairs = pairs;
    return send_tables (c, err);
}

/* The products' library is opened by the first pass; there may be none yet. */
static train_status_t open_products (train_decoder_t *m, train_error_t *err)
{
    size_t scratch;

    if (!m->gpu || m->engine)
        return TRAIN_OK;
    return m->work->prepare (m, 1, 128, &scratch, err);
}

static train_status_t make (struct kv_cache *c, train_error_t *err)
{
    train_decoder_t *m = c->m;
    int before = m->ops->enter (m->device);
    train_status_t status = open_products (m, err);

    if (status == TRAIN_OK)
        status = allot (c, err);
    m->ops->leave (before);
    return status;
}

train_status_t kv_create (train_decoder_t *m, size_t slots, size_t T,
                          size_t rows, size_t wants, struct kv_cache **ret,
                          train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t least = d->L * d->G * d->D * sizeof (double), kept;
    struct kv_cache *c;
    train_status_t status;

    if (m->config.rope.kind == TRAIN_ROPE_DYNAMIC)
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: rope is dynamic, whose angles of kept keys "
                        "change with the length; default, linear, llama3 and "
                        "yarn work");
    if (d->lora.rank > 0)
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: the decoder has adapters; one with the "
                        "weights that train_hf_save wrote, which have them, "
                        "works");
    if (__builtin_mul_overflow (slots, T, &kept)
        || __builtin_mul_overflow (kept, least, &kept)
        || !(c = calloc (1, sizeof (*c))))
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    c->m = m;
    c->slots = slots;
    c->T = T;
    c->rows = rows;
    c->wants = wants;
    if ((status = make (c, err)) != TRAIN_OK) {
        kv_destroy (c);
        return err_prefix (err, status,
                           "keys and values of %zu texts of %zu "
                           "tokens",
                           slots, T);
    }
    *ret = c;
    return TRAIN_OK;
}

static void drop_graph (struct kv_cache *c)
{
    if (c->graph)
        c->m->ops->graph->destroy (c->graph);
    c->graph = NULL;
}

void kv_destroy (struct kv_cache *c)
{
    struct part part[PARTS];
    const struct backend_ops *ops;

    if (!c)
        return;
    ops = c->m->ops;
    parts_of (c, part);
    (void)ops->sync (c->m->stream, NULL);
    drop_graph (c);
    for (size_t i = 0; i < PARTS; i++)
        ops->free (*part[i].p);
    if (c->host_ids)
        ops->unpin (c->host_ids, part[PARTS - 2].bytes);
    if (c->host_drawn)
        ops->unpin (c->host_drawn, part[PARTS - 1].bytes);
    if (c->host_pairs)
        ops->unpin (c->host_pairs, part[PARTS - 3].bytes);
    free (c->host_logits);
    free (c);
}

static struct kv_rows rows_at (int32_t *p, size_t N, size_t M)
{
    return (struct kv_rows){.tokens = p,
                            .slot = p + N,
                            .at = p + 2 * N,
                            .last = p + 3 * N,
                            .text = p + 3 * N + M,
                            .pos = p + 3 * N + 2 * M};
}

struct kv_rows kv_rows (struct kv_cache *c, size_t N, size_t M)
{
    return rows_at (c->host_ids, N, M);
}

#define W(name) decoder_weight (m, l + 1, m->blocks[l].name)

static train_status_t attention (struct kv_cache *c, size_t l,
                                 const struct kv_rows *r, size_t N,
                                 train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    size_t layer = l * c->slots * d->G * c->T * d->D * m->kern->elem_size;
    void *k = (char *)c->k + layer, *v = (char *)c->v + layer;

    TRY (m->work->linear (m, c->qkv, c->norm, W (qkv), N, d->C, d->Q, err));
    if (d->bias)
        m->kern->bias_fwd (c->qkv, W (bias), N, d->Q, m->stream);
    if (d->norm)
        m->kern->headnorm_fwd (c->qkv, c->raw, c->rstd, W (q_norm), W (k_norm),
                               N, d->H, d->G, d->D, m->config.norm_eps,
                               m->stream);
    m->kern->keep_fwd (k, v, c->qkv, c->cosine, c->sine, r->slot, r->at, N,
                       c->T, d->H, d->G, d->D, m->stream);
    m->kern->decode_fwd (c->att, c->qkv, k, v, r->slot, r->at, N, c->T, d->H,
                         d->G, d->D, 1 / sqrt ((double)d->D), c->scratch,
                         m->stream);
    return m->work->linear (m, c->tmp, c->att, W (out), N, d->H * d->D, d->C,
                            err);
}

/* A block's first sum and norm are made by the one before, as in
 * decoder_pass.c: x is the stream into it, tmp what is to be added. */
static train_status_t block (struct kv_cache *c, size_t l,
                             const struct kv_rows *r, size_t N,
                             train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    double eps = m->config.norm_eps;

    if (l == 0)
        m->kern->rmsnorm_fwd (c->norm, c->rstd, c->x, W (norm1), N, d->C, eps,
                              m->stream);
    else
        m->kern->addnorm_fwd (c->norm, c->x, c->rstd, c->x2, c->tmp, W (norm1),
                              N, d->C, eps, m->stream);
    TRY (attention (c, l, r, N, err));
    m->kern->addnorm_fwd (c->norm, c->x2, c->rstd, c->x, c->tmp, W (norm2), N,
                          d->C, eps, m->stream);
    TRY (m->work->linear (m, c->gate_up, c->norm, W (gate_up), N, d->C,
                          2 * d->F, err));
    m->kern->swiglu_fwd (c->act, c->gate_up, N, d->F, m->stream);
    return m->work->linear (m, c->tmp, c->act, W (down), N, d->F, d->C, err);
}

/* The norm of all rows, and the head of those that are wanted. */
static train_status_t head (struct kv_cache *c, const struct kv_rows *r,
                            size_t N, size_t M, train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    size_t last = d->L + 1, unit = m->config.tie ? 0 : last;

    TRY (decoder_enter (m, last, false, err));
    m->kern->addnorm_fwd (c->norm, c->x, c->rstd, c->x2, c->tmp,
                          decoder_weight (m, last, m->norm_f), N, d->C,
                          m->config.norm_eps, m->stream);
    if (unit != last)
        TRY (decoder_turn (m, last, unit, false, err));
    if (M > 0) {
        m->kern->embedding_fwd (c->picked, c->norm, r->last, M, d->C,
                                m->stream);
        TRY (m->work->linear (m, c->logits, c->picked,
                              decoder_weight (m, unit, m->head), M, d->C, d->V,
                              err));
    }
    return decoder_leave (m, unit, false, err);
}

static train_status_t forward (struct kv_cache *c, size_t N, size_t M,
                               train_error_t *err)
{
    train_decoder_t *m = c->m;
    struct kv_rows r = rows_at (c->ids_at, N, M);

    TRY (m->ops->copy (c->ids_at, c->host_ids, (N + M) * 3 * sizeof (int32_t),
                       m->stream, err));
    TRY (decoder_enter (m, 0, false, err));
    m->kern->embedding_fwd (c->x, decoder_weight (m, 0, m->embed), r.tokens, N,
                            m->dims.C, m->stream);
    TRY (decoder_leave (m, 0, false, err));
    for (size_t l = 0; l < m->dims.L; l++) {
        TRY (decoder_enter (m, l + 1, false, err));
        TRY (block (c, l, &r, N, err));
        TRY (decoder_leave (m, l + 1, false, err));
    }
    return head (c, &r, N, M, err);
}

train_status_t kv_feed (struct kv_cache *c, size_t N, size_t M,
                        train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = forward (c, N, M, err);

    c->m->ops->leave (before);
    if (status == TRAIN_OK) /* the ids may be written again */
        status = c->m->ops->sync (c->m->stream, err);
    return status;
}

train_status_t kv_logits (struct kv_cache *c, size_t M, const void **ret,
                          train_error_t *err)
{
    train_decoder_t *m = c->m;
    size_t row = m->dims.V * m->kern->elem_size;

    if (!c->host_logits && !(c->host_logits = malloc (c->wants * row)))
        return err_set (err, TRAIN_ENOMEM, "no memory for logits");
    TRY (m->ops->copy (c->host_logits, c->logits, M * row, m->stream, err));
    TRY (m->ops->sync (m->stream, err));
    *ret = c->host_logits;
    return TRAIN_OK;
}

static train_status_t draw (struct kv_cache *c, size_t N, size_t M, double heat,
                            uint64_t seed, train_error_t *err)
{
    struct kv_rows r = rows_at (c->ids_at, N, M);
    train_decoder_t *m = c->m;

    int32_t *ids = c->drawn_at;

    m->kern->draw (ids, (float *)(void *)(ids + M), c->logits, r.text, r.pos, M,
                   m->dims.V, heat, seed, m->stream);
    return m->ops->copy (c->host_drawn, ids, 2 * M * sizeof (int32_t),
                         m->stream, err);
}

static struct kv_drawn drawn (const struct kv_cache *c, size_t M)
{
    return (struct kv_drawn){c->host_drawn, (void *)(c->host_drawn + M)};
}

train_status_t kv_draw (struct kv_cache *c, size_t N, size_t M, double heat,
                        uint64_t seed, struct kv_drawn *ret, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = draw (c, N, M, heat, seed, err);

    c->m->ops->leave (before);
    if (status == TRAIN_OK)
        status = c->m->ops->sync (c->m->stream, err);
    *ret = drawn (c, M);
    return status;
}

static train_status_t both (struct kv_cache *c, size_t N, double heat,
                            uint64_t seed, train_error_t *err)
{
    TRY (forward (c, N, N, err));
    return draw (c, N, N, heat, seed, err);
}

/* What is recorded is launched at once: a record runs nothing. */
static train_status_t record (struct kv_cache *c, size_t N, double heat,
                              uint64_t seed, train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct backend_graph *g = m->ops->graph;
    train_status_t status, end;

    drop_graph (c);
    TRY (g->begin (m->stream, m->device, err));
    status = both (c, N, heat, seed, err);
    end = g->end (m->stream, m->device, status == TRAIN_OK ? &c->graph : NULL,
                  status == TRAIN_OK ? err : NULL);
    if (status != TRAIN_OK || end != TRAIN_OK)
        return status != TRAIN_OK ? status : end;
    c->graph_rows = N;
    c->graph_heat = heat;
    c->graph_seed = seed;
    return TRAIN_OK;
}

static bool same (double a, double b)
{
    return memcmp (&a, &b, sizeof (a)) == 0;
}

/* The first step of a shape lets the products choose their ways. */
static train_status_t step (struct kv_cache *c, size_t N, double heat,
                            uint64_t seed, train_error_t *err)
{
    train_decoder_t *m = c->m;
    bool graph = m->gpu && m->ops->graph && !m->hooks.before && !m->hooks.after;

    if (!graph || c->warm_rows != N) {
        c->warm_rows = N;
        return both (c, N, heat, seed, err);
    }
    if (!c->graph || c->graph_rows != N || !same (c->graph_heat, heat)
        || c->graph_seed != seed)
        TRY (record (c, N, heat, seed, err));
    return m->ops->graph->launch (c->graph, m->stream, m->device, err);
}

train_status_t kv_step (struct kv_cache *c, size_t N, double heat,
                        uint64_t seed, struct kv_drawn *ret, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = step (c, N, heat, seed, err);

    c->m->ops->leave (before);
    if (status == TRAIN_OK)
        status = c->m->ops->sync (c->m->stream, err);
    *ret = drawn (c, N);
    return status;
}

struct kv_pairs kv_pairs (struct kv_cache *c)
{
    return (struct kv_pairs){c->host_pairs, c->host_pairs + c->slots,
                             c->host_pairs + 2 * c->slots};
}

static train_status_t share (struct kv_cache *c, size_t P, train_error_t *err)
{
    const struct decoder_dims *d = &c->m->dims;
    int32_t *p = c->pairs_at;

    TRY (c->m->ops->copy (p, c->host_pairs, 3 * c->slots * sizeof (*p),
                          c->m->stream, err));
    c->m->kern->share_fwd (c->k, c->v, p, p + c->slots, p + 2 * c->slots, P,
                           d->L, c->slots, d->G, c->T, d->D, c->m->stream);
    return TRAIN_OK;
}

train_status_t kv_share (struct kv_cache *c, size_t P, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = share (c, P, err);

    c->m->ops->leave (before);
    if (status == TRAIN_OK) /* the pairs may be written again */
        status = c->m->ops->sync (c->m->stream, err);
    return status;
}
