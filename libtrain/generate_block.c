/* SPDX-License-Identifier: Apache-2.0
 * generate_block.c - the layers of a decoder over kept keys and values
 *
 * Many rows go through the products of training. Few rows on a GPU are bound by
 * the weights' way from memory, and have kernels that take norms, sums and silu
 * with it; each of these begins while the one before it ends. So do many where
 * they must not tell by their bits how many they are. */
#include <math.h>

#include "err.h"
#include "generate_impl.h"

#include "kernels/decode_product.h"

#define FEW 64 /* rows */

#define W(name) decoder_weight (m, l + 1, m->blocks[l].name)

bool kv_few (const struct kv_cache *c, size_t N)
{
    return c->own && (N <= FEW || c->same);
}

/* Nothing but kernels is between those of a pass. */
static bool early (const train_decoder_t *m)
{
    return !m->hooks.before && !m->hooks.after;
}

/* Is the weight of a norm there while another unit is? */
static bool has_norms (const struct kv_cache *c)
{
    return c->norms || early (c->m);
}

/* Whether products of few rows make the norms between them, for which they
 * read a weight of the unit behind. Rows of f16 may be too great unnormed. */
static bool linked (const struct kv_cache *c)
{
    return has_norms (c) && c->m->config.dtype == TRAIN_BF16;
}

/* [p] makes the norm of weight [w] with the product behind it, which takes it. */
static void link_give (struct kv_cache *c, struct kern_product *p,
                       const void *w)
{
    p->next = w;
    p->scaled = c->norm;
    p->squares = c->squares;
}

/* The norm before block l, or of L the last. */
static const void *norm_of (const struct kv_cache *c, size_t l)
{
    const train_decoder_t *m = c->m;

    if (c->norms)
        return (const char *)c->norms + l * m->dims.C * m->kern->elem_size;
    if (l == m->dims.L)
        return decoder_weight (m, l + 1, m->norm_f);
    return decoder_weight (m, l + 1, m->blocks[l].norm1);
}

static void link_take (struct kv_cache *c, struct kern_product *p,
                       const struct kern_product *from)
{
    p->x = c->norm;
    p->norm = NULL;
    p->sums = c->squares;
    p->n_sums = kern_product_squares (from->in, from->out);
}

/* y = x w^T and more. */
static train_status_t product (struct kv_cache *c, struct kern_product p,
                               train_error_t *err)
{
    train_decoder_t *m = c->m;

    p.eps = m->config.norm_eps;
    p.normed = p.norm ? c->norm : NULL;
    p.early = early (m);
    if (!kern_product_fits (&p))
        return err_set (err, TRAIN_EINVAL,
                        "generate: weights of %zu x %zu are not aligned to 16 "
                        "bytes",
                        p.out, p.in);
    m->kern->product (&p, m->stream);
    return TRAIN_OK;
}

/* A library of the host sums few rows otherwise than many. */
static train_status_t linear (struct kv_cache *c, void *y, const void *x,
                              const void *w, size_t N, size_t in, size_t out,
                              train_error_t *err)
{
    size_t each = c->same && !c->m->gpu ? 1 : N, E = c->m->kern->elem_size;

    for (size_t n = 0; n < N; n += each)
        TRY (c->m->work->linear (c->m, (char *)y + n * out * E,
                                 (const char *)x + n * in * E, w, each, in, out,
                                 err));
    return TRAIN_OK;
}

static train_status_t attend (struct kv_cache *c, size_t l,
                              const struct kv_rows *r, size_t N, bool alone)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    size_t layer = l * c->slots * d->G * c->T * d->D * m->kern->elem_size;
    void *k = (char *)c->k + layer, *v = (char *)c->v + layer;
    double scale = 1 / sqrt ((double)d->D);

    if (d->norm)
        m->kern->headnorm_fwd (c->qkv, c->raw, c->rstd, W (q_norm), W (k_norm),
                               N, d->H, d->G, d->D, m->config.norm_eps,
                               m->stream);
    if (alone) {
        m->kern->attend_fwd (c->att, k, v, c->qkv, c->cosine, c->sine, r->slot,
                             r->at, r->lead, r->shared, N, c->T, d->H, d->G,
                             d->D, scale, early (m), c->scratch, m->stream);
        return TRAIN_OK;
    }
    m->kern->keep_fwd (k, v, c->qkv, c->cosine, c->sine, r->slot, r->at, N,
                       c->T, d->H, d->G, d->D, m->stream);
    if (r->starts) {
        m->kern->attention_fwd (c->att, c->rstd, c->qkv, r->starts, c->scratch,
                                1, N, d->H, d->G, d->D, scale, m->stream);
        return TRAIN_OK;
    }
    m->kern->decode_fwd (c->att, c->qkv, k, v, r->slot, r->at, N, c->T, d->H,
                         d->G, d->D, scale, c->scratch, m->stream);
    return TRAIN_OK;
}

/* x is the stream into the block and out of it. */
static train_status_t block_few (struct kv_cache *c, size_t l,
                                 const struct kv_rows *r, size_t N, bool alone,
                                 train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct decoder_dims *d = &m->dims;
    struct kern_product qkv = {.y = c->qkv,
                               .x = c->x,
                               .w = W (qkv),
                               .N = N,
                               .in = d->C,
                               .out = d->Q,
                               .norm = W (norm1),
                               .bias = d->bias ? W (bias) : NULL};
    struct kern_product out = {.y = c->x2,
                               .x = c->att,
                               .w = W (out),
                               .N = N,
                               .in = d->H * d->D,
                               .out = d->C,
                               .add = c->x};
    struct kern_product gate_up = {.y = c->act,
                                   .x = c->x2,
                                   .w = W (gate_up),
                                   .N = N,
                                   .in = d->C,
                                   .out = d->F,
                                   .norm = W (norm2),
                                   .pair = true};
    struct kern_product down = {.y = c->x,
                                .x = c->act,
                                .w = W (down),
                                .N = N,
                                .in = d->F,
                                .out = d->C,
                                .add = c->x2};

    if (linked (c)) {
        link_take (c, &qkv, &down);
        link_give (c, &out, W (norm2));
        link_take (c, &gate_up, &out);
        link_give (c, &down, norm_of (c, l + 1));
    }
    TRY (product (c, qkv, err));
    TRY (attend (c, l, r, N, alone));
    TRY (product (c, out, err));
    TRY (product (c, gate_up, err));
    return product (c, down, err);
}

/* A block's first sum and norm are made by the one before, as in
 * decoder_pass.c: x is the stream into it, tmp what is to be added. */
static train_status_t block_many (struct kv_cache *c, size_t l,
                                  const struct kv_rows *r, size_t N, bool alone,
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
    TRY (linear (c, c->qkv, c->norm, W (qkv), N, d->C, d->Q, err));
    if (d->bias)
        m->kern->bias_fwd (c->qkv, W (bias), N, d->Q, m->stream);
    TRY (attend (c, l, r, N, alone));
    TRY (linear (c, c->tmp, c->att, W (out), N, d->H * d->D, d->C, err));
    m->kern->addnorm_fwd (c->norm, c->x2, c->rstd, c->x, c->tmp, W (norm2), N,
                          d->C, eps, m->stream);
    TRY (linear (c, c->gate_up, c->norm, W (gate_up), N, d->C, 2 * d->F, err));
    m->kern->swiglu_fwd (c->act, c->gate_up, N, d->F, m->stream);
    return linear (c, c->tmp, c->act, W (down), N, d->F, d->C, err);
}

static train_status_t keep_norm (struct kv_cache *c, size_t u,
                                 train_error_t *err)
{
    train_decoder_t *m = c->m;
    size_t bytes = m->dims.C * m->kern->elem_size;
    size_t at = u <= m->dims.L ? m->blocks[u - 1].norm1 : m->norm_f;

    return m->ops->copy ((char *)c->norms + (u - 1) * bytes,
                         decoder_weight (m, u, at), bytes, m->stream, err);
}

/* The visits of a forward. */
train_status_t kv_keep_norms (struct kv_cache *c, train_error_t *err)
{
    train_decoder_t *m = c->m;
    size_t n = decoder_n_units (m);

    for (size_t i = 0; i < n + m->config.tie; i++) {
        size_t u = i < n ? i : 0;

        TRY (decoder_enter (m, u, false, err));
        if (u > 0)
            TRY (keep_norm (c, u, err));
        TRY (decoder_leave (m, u, false, err));
    }
    return TRAIN_OK;
}

train_status_t kv_block (struct kv_cache *c, size_t l, const struct kv_rows *r,
                         size_t N, bool alone, train_error_t *err)
{
    TRY (decoder_enter (c->m, l + 1, false, err));
    TRY (kv_few (c, N) ? block_few (c, l, r, N, alone, err)
                       : block_many (c, l, r, N, alone, err));
    return decoder_leave (c->m, l + 1, false, err);
}

void kv_begin (struct kv_cache *c, const int32_t *tokens, size_t N,
               const struct kern_advance *advance)
{
    train_decoder_t *m = c->m;
    struct kern_product_begin b = {
        .y = c->x,
        .w = decoder_weight (m, 0, m->embed),
        .tokens = tokens,
        .N = N,
        .C = m->dims.C,
        .next = linked (c) ? norm_of (c, 0) : NULL,
        .scaled = c->norm,
        .squares = c->squares,
        .n_squares = kern_product_squares (m->dims.F, m->dims.C),
        .advance = advance,
        .early = early (m),
    };

    m->kern->product_begin (&b, m->stream);
}

train_status_t kv_embed (struct kv_cache *c, const int32_t *tokens, size_t N,
                         train_error_t *err)
{
    train_decoder_t *m = c->m;

    TRY (decoder_enter (m, 0, false, err));
    if (kv_few (c, N))
        kv_begin (c, tokens, N, NULL);
    else
        m->kern->embedding_fwd (c->x, decoder_weight (m, 0, m->embed), tokens,
                                N, m->dims.C, m->stream);
    return decoder_leave (m, 0, false, err);
}

/* Logits of M rows that are normed, or with [norm] are not yet. */
static train_status_t logits (struct kv_cache *c, const void *rows,
                              const void *w, const void *norm, size_t M,
                              train_error_t *err)
{
    train_decoder_t *m = c->m;
    struct kern_product p = {.y = c->logits,
                             .x = rows,
                             .w = w,
                             .N = M,
                             .in = m->dims.C,
                             .out = m->dims.V,
                             .norm = norm};

    struct kern_product down = {.in = m->dims.F, .out = m->dims.C};

    if (norm && rows == c->x && linked (c))
        link_take (c, &p, &down);
    if (norm)
        return product (c, p, err);
    return linear (c, c->logits, rows, w, M, m->dims.C, m->dims.V, err);
}

train_status_t kv_head (struct kv_cache *c, const struct kv_rows *r, size_t N,
                        size_t M, train_error_t *err)
{
    train_decoder_t *m = c->m;
    size_t last = m->dims.L + 1, unit = m->config.tie ? 0 : last;
    const void *norm, *rows = r->last ? c->picked : c->norm;
    bool fused;

    TRY (decoder_enter (m, last, false, err));
    norm = norm_of (c, m->dims.L);
    /* with hooks, a unit's weights may be gone when the next is entered */
    fused = kv_few (c, N) && (unit == last || has_norms (c));
    if (!fused && kv_few (c, N))
        m->kern->rmsnorm_fwd (c->norm, c->rstd, c->x, norm, N, m->dims.C,
                              m->config.norm_eps, m->stream);
    else if (!fused)
        m->kern->addnorm_fwd (c->norm, c->x, c->rstd, c->x2, c->tmp, norm, N,
                              m->dims.C, m->config.norm_eps, m->stream);
    if (unit != last)
        TRY (decoder_turn (m, last, unit, false, err));
    if (M > 0 && r->last)
        m->kern->embedding_fwd (c->picked, fused ? c->x : c->norm, r->last, M,
                                m->dims.C, m->stream);
    if (M > 0)
        TRY (logits (c, r->last || !fused ? rows : c->x,
                     decoder_weight (m, unit, m->head), fused ? norm : NULL, M,
                     err));
    return decoder_leave (m, unit, false, err);
}
