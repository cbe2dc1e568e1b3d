/* SPDX-License-Identifier: Apache-2.0
 * generate_cache.c - a forward of new tokens over kept keys and values
 *
 * The rows are tokens of any texts at any positions, so prompts of several
 * lengths and single tokens are one case, on the host and on a GPU. */
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "generate_impl.h"

#include "kernels/decode_product.h"

static size_t real_size (const struct kv_cache *c)
{
    return c->m->kern->real_size;
}

static train_status_t send_tables (struct kv_cache *c, train_error_t *err)
{
    size_t bytes = c->T * (c->m->dims.D / 2) * real_size (c);
    const struct backend_ops *ops = c->m->ops;
    train_status_t status;
    char *own = malloc (2 * bytes);

    if (!own)
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    decoder_rope_tables (c->m, c->T, own, own + bytes);
    status = ops->copy (c->cosine, own, bytes, c->m->stream, err);
    if (status == TRAIN_OK)
        status = ops->copy (c->sine, own + bytes, bytes, c->m->stream, err);
    if (status == TRAIN_OK)
        status = ops->sync (c->m->stream, err);
    free (own);
    return status;
}

static size_t host_scratch (const struct kv_cache *c)
{
    size_t attend = (c->T + c->m->dims.D) * real_size (c);
    size_t draw = kern_draw_scratch (c->m->dims.V);

    return attend > draw ? attend : draw;
}

struct part {
    void **p;
    size_t bytes;
};

enum { PARTS = 23 };

/* Most sums of squares of a row that a product makes. */
static size_t sums_of (const struct decoder_dims *d)
{
    size_t out = kern_product_squares (d->H * d->D, d->C);
    size_t down = kern_product_squares (d->F, d->C);

    return out > down ? out : down;
}

/* Of products that make norms, where a unit's weights come and go. */
static size_t norms_bytes (const struct kv_cache *c)
{
    const train_decoder_t *m = c->m;
    bool apart = m->hooks.before || m->hooks.after;

    return c->own && apart ? (m->dims.L + 1) * m->dims.C * m->kern->elem_size
                           : 0;
}

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
        {&c->scratch, c->m->gpu ? 0 : host_scratch (c)},
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
        {(void **)&c->squares, c->rows * sums_of (d) * sizeof (float)},
        {&c->norms, norms_bytes (c)},
        {&c->picked, c->wants * d->C * E},
        {&c->logits, c->wants * d->V * E},
        {(void **)&c->texts_at, KV_LISTS * c->slots * sizeof (int32_t)},
        {(void **)&c->pairs_at, 3 * c->slots * sizeof (int32_t)},
        {&c->ids_at, (4 * c->rows + 4 * c->wants) * sizeof (int32_t)},
        {&c->drawn_at, 2 * c->wants * sizeof (int32_t)},
    };

    memcpy (part, all, sizeof (all));
}

/* Whether all products of a step are of shapes that our kernel takes, on a GPU
 * that it is for. */
static bool own_products (const train_decoder_t *m)
{
    const struct decoder_dims *d = &m->dims;
    const size_t shapes[][2] = {{d->C, d->Q},
                                {d->H * d->D, d->C},
                                {d->C, d->F},
                                {d->F, d->C},
                                {d->C, d->V}};
    bool all = m->kern->product && m->kern->product_served ();

    for (size_t i = 0; i < sizeof (shapes) / sizeof (*shapes); i++)
        all = all && shapes[i][0] % 64 == 0 && shapes[i][1] % 8 == 0;
    return all;
}

size_t kv_feed_rows (bool gpu, size_t all, size_t slots)
{
    size_t most = gpu ? 8192 : 512; /* memory */
    size_t rows = all < most ? all : most;

    return rows < slots ? slots : rows;
}

/* The last of the parts stand in pinned memory as well, and what steps tell there
 * alone. */
enum { TWICE = 4, PINNED };

static void pinned_of (struct kv_cache *c, struct part part[PINNED])
{
    int32_t **all[TWICE] = {&c->host_texts, &c->host_pairs, &c->host_ids,
                            &c->host_drawn};
    struct part parts[PARTS];

    parts_of (c, parts);
    for (size_t i = 0; i < TWICE; i++)
        part[i] =
            (struct part){(void **)all[i], parts[PARTS - TWICE + i].bytes};
    part[TWICE] = (struct part){(void **)&c->told,
                                2 * c->slots * KV_STEPS * sizeof (int)};
}

/* Bytes of [n] parts in one piece of memory; with [base] they are told where. */
static size_t lay_out (const struct part *part, size_t n, char *base)
{
    enum { ALIGN = 256 };
    size_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (base && part[i].bytes > 0)
            *part[i].p = base + sum;
        sum += (part[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
    return sum;
}

/* One piece of a GPU's memory and one that is pinned: each takes the driver long.
 * On the host each has its own, whose bounds sanitizers know. */
static train_status_t allot (struct kv_cache *c, train_error_t *err)
{
    const struct backend_ops *ops = c->m->ops;
    struct part part[PARTS], pinned[PINNED];

    parts_of (c, part);
    pinned_of (c, pinned);
    for (size_t i = 0; !c->m->gpu && i < PARTS; i++)
        TRY (ops->alloc (c->m->device, part[i].bytes, part[i].p, err));
    if (c->m->gpu) {
        TRY (ops->alloc (c->m->device, lay_out (part, PARTS, NULL), &c->room,
                         err));
        (void)lay_out (part, PARTS, c->room);
    }
    c->pinned_bytes = lay_out (pinned, PINNED, NULL);
    TRY (ops->pin (c->m->device, c->pinned_bytes, &c->pinned, err));
    (void)lay_out (pinned, PINNED, c->pinned);
    for (size_t i = 0; i < KV_AHEAD; i++)
        TRY (ops->event_create (c->m->device, &c->done[i], err));
    return send_tables (c, err);
}

size_t kv_foresee (train_decoder_t *m, bool gpu, size_t slots, size_t T,
                   size_t rows, bool repetition, size_t *ret_kept)
{
    struct kv_cache c = {.m = m,
                         .slots = slots,
                         .T = T,
                         .rows = rows,
                         .wants = slots,
                         .own = own_products (m)};
    size_t seen = slots * kern_seen_words (m->dims.V) * sizeof (uint32_t);
    size_t sum = repetition ? seen : 0;
    struct part part[PARTS];

    parts_of (&c, part);
    for (size_t i = 0; !gpu && i < PARTS; i++)
        sum += part[i].p == &c.scratch ? host_scratch (&c) : part[i].bytes;
    *ret_kept = part[0].bytes + part[1].bytes;
    return gpu ? sum + lay_out (part, PARTS, NULL) : sum;
}

static train_status_t set_up (struct kv_cache *c, train_error_t *err)
{
    TRY (decoder_open_products (c->m, err));
    c->own = own_products (c->m);
    TRY (allot (c, err));
    if (!c->norms)
        return TRAIN_OK;
    TRY (decoder_meet (c->m, 1, err));
    TRY (kv_keep_norms (c, err));
    return decoder_wait (c->m, err);
}

static train_status_t make (struct kv_cache *c, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = set_up (c, err);

    c->m->ops->leave (before);
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
    if (d->lora.rank > 0 && !m->plain)
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: the decoder has adapters beside its "
                        "weights; train_decoder_merge adds them");
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

void kv_destroy (struct kv_cache *c)
{
    const struct backend_ops *ops;
    struct part part[PARTS];

    if (!c)
        return;
    ops = c->m->ops;
    (void)ops->sync (c->m->stream, NULL);
    kv_drop_graphs (c);
    for (size_t i = 0; i < KV_AHEAD; i++)
        if (c->done[i])
            ops->event_destroy (c->done[i]);
    parts_of (c, part);
    for (size_t i = 0; !c->m->gpu && i < PARTS; i++)
        ops->free (*part[i].p);
    ops->free (c->room);
    if (c->pinned)
        ops->unpin (c->pinned, c->pinned_bytes);
    ops->free (c->stop_at);
    ops->free (c->seen);
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
                            .pos = p + 3 * N + 2 * M,
                            .from = p + 3 * N + 3 * M,
                            .starts = p + 3 * N + 4 * M};
}

struct kv_rows kv_rows (struct kv_cache *c, size_t N, size_t M)
{
    return rows_at (c->host_ids, N, M);
}

/* Do the rows begin their texts? Queries of one text then read each key together,
 * in tiles of all rows: their bits hang on what is beside them. */
static bool find_starts (struct kv_rows *r, size_t N)
{
    for (size_t i = 0; i < N; i++) {
        bool on = i > 0 && r->slot[i] == r->slot[i - 1]
                  && r->at[i] == r->at[i - 1] + 1;

        if (r->at[i] != 0 && !on)
            return false;
        r->starts[i] = (int32_t)i - r->at[i];
    }
    return true;
}

static train_status_t forward (struct kv_cache *c, size_t N, size_t M,
                               train_error_t *err)
{
    train_decoder_t *m = c->m;
    struct kv_rows host = rows_at (c->host_ids, N, M);
    struct kv_rows r = rows_at (c->ids_at, N, M);

    if (!m->gpu || c->same || !find_starts (&host, N))
        r.starts = NULL;
    TRY (m->ops->copy (c->ids_at, c->host_ids,
                       (4 * N + 4 * M) * sizeof (int32_t), m->stream, err));
    if (c->seen)
        m->kern->had (c->seen, r.tokens, r.slot, r.at, N, m->dims.V, m->stream);
    TRY (kv_embed (c, r.tokens, N, err));
    for (size_t l = 0; l < m->dims.L; l++)
        TRY (kv_block (c, l, &r, N, false, err));
    return kv_head (c, &r, N, M, err);
}

train_status_t kv_feed (struct kv_cache *c, size_t N, size_t M, size_t steps,
                        train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (decoder_meet (c->m, 1, err));
    before = c->m->ops->enter (c->m->device);
    status = forward (c, N, M, err);
    c->m->ops->leave (before);
    if (status == TRAIN_OK && steps > 0)
        status = kv_record (c, steps, err);
    if (status == TRAIN_OK) /* the ids may be written again */
        status = decoder_wait (c->m, err);
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

static train_status_t draw (struct kv_cache *c, size_t N, size_t M,
                            train_error_t *err)
{
    struct kv_rows r = rows_at (c->ids_at, N, M);
    train_decoder_t *m = c->m;
    int32_t *ids = c->drawn_at;

    m->kern->draw (ids, (float *)(void *)(ids + M), c->logits, r.text, r.pos,
                   r.from, c->seen, M, m->dims.V, &c->rules, c->scratch,
                   m->stream);
    return m->ops->copy (c->host_drawn, ids, 2 * M * sizeof (int32_t),
                         m->stream, err);
}

static struct kv_drawn drawn (const struct kv_cache *c, size_t M)
{
    return (struct kv_drawn){c->host_drawn, (void *)(c->host_drawn + M)};
}

train_status_t kv_draw (struct kv_cache *c, size_t N, size_t M,
                        struct kv_drawn *ret, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = draw (c, N, M, err);

    c->m->ops->leave (before);
    if (status == TRAIN_OK)
        status = c->m->ops->sync (c->m->stream, err);
    *ret = drawn (c, M);
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
    if (c->seen)
        c->m->kern->had_share (c->seen, p, p + c->slots, P, d->V, c->m->stream);
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
