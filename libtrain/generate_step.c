/* SPDX-License-Identifier: Apache-2.0
 * generate_step.c - tokens that are fed as they are drawn, some at a time without
 * the host */
#include <string.h>

#include "err.h"
#include "generate_impl.h"

#include "kernels/decode.h"

void kv_drop_graphs (struct kv_cache *c)
{
    for (size_t i = 0; i < KV_GRAPHS; i++) {
        if (c->graphs[i].graph)
            c->m->ops->graph->destroy (c->graphs[i].graph);
        c->graphs[i] = (struct kv_graph){0};
    }
}

static struct kv_texts texts_in (int32_t *p, size_t N)
{
    return (struct kv_texts){.tokens = p,
                             .slot = p + N,
                             .at = p + 2 * N,
                             .text = p + 3 * N,
                             .end = p + 4 * N,
                             .count = p + 5 * N,
                             .lead = p + 6 * N,
                             .shared = p + 7 * N};
}

struct kv_texts kv_texts (struct kv_cache *c, size_t N)
{
    return texts_in (c->host_texts, N);
}

static train_status_t renew (struct kv_cache *c, void **at, size_t bytes,
                             train_error_t *err)
{
    c->m->ops->free (*at);
    *at = NULL;
    return c->m->ops->alloc (c->m->device, bytes, at, err);
}

static train_status_t take_rules (struct kv_cache *c,
                                  const train_generate_options_t *o,
                                  train_error_t *err)
{
    const struct backend_ops *ops = c->m->ops;
    size_t stop = o->n_stop * sizeof (*o->stop);
    size_t seen = c->slots * kern_seen_words (c->m->dims.V) * sizeof (uint32_t);

    if (o->batch_invariant && c->m->gpu && !c->own)
        return err_set (err, TRAIN_ENOTSUP,
                        "generate: batch_invariant on a GPU is of bf16 and f16 "
                        "alone, of compute capability 9, and of widths that "
                        "are multiples of 64 (of the vocabulary, of 8)");
    c->same = o->batch_invariant;
    TRY (ops->sync (c->m->stream, err));
    kv_drop_graphs (c);
    TRY (renew (c, (void **)&c->stop_at, stop, err));
    TRY (renew (c, (void **)&c->seen, o->repetition > 0 ? seen : 0, err));
    c->n_stop = o->n_stop;
    c->rules = (struct kern_draw_rules){.heat = o->temperature,
                                        .repetition = o->repetition,
                                        .top_p = o->top_p,
                                        .min_p = o->min_p,
                                        .top_k = o->top_k,
                                        .seed = o->seed};
    if (stop > 0)
        TRY (ops->copy (c->stop_at, o->stop, stop, c->m->stream, err));
    return ops->sync (c->m->stream, err);
}

train_status_t kv_rules (struct kv_cache *c, const train_generate_options_t *o,
                         train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status = take_rules (c, o, err);

    c->m->ops->leave (before);
    return status;
}

/* Does a step end with the embeddings of the next one's tokens? */
static bool chained (const struct kv_cache *c, size_t N)
{
    return kv_few (c, N) && kv_alone (c);
}

/* One step on the device. */
static train_status_t step (struct kv_cache *c, size_t N, train_error_t *err)
{
    train_decoder_t *m = c->m;
    struct kv_texts t = texts_in (c->texts_at, N);
    struct kv_rows r = {.tokens = t.tokens,
                        .slot = t.slot,
                        .at = t.at,
                        .lead = t.lead,
                        .shared = t.shared};
    int32_t *ids = c->drawn_at;
    float *logp = (void *)(ids + N);
    struct kern_advance a = {
        .tokens = t.tokens,
        .at = t.at,
        .count = t.count,
        .told = c->told,
        .told_logp = (void *)(c->told + N * KV_STEPS),
        .ids = ids,
        .logp = logp,
        .end = t.end,
        .stop = c->stop_at,
        .N = N,
        .most = KV_STEPS,
        .n_stop = c->n_stop,
    };

    if (c->seen)
        m->kern->had (c->seen, t.tokens, t.slot, t.at, N, m->dims.V, m->stream);
    if (!chained (c, N))
        TRY (kv_embed (c, t.tokens, N, err));
    for (size_t l = 0; l < m->dims.L; l++)
        TRY (kv_block (c, l, &r, N, true, err));
    TRY (kv_head (c, &r, N, N, err));
    m->kern->draw (ids, logp, c->logits, t.text, t.at, t.slot, c->seen, N,
                   m->dims.V, &c->rules, c->scratch, m->stream);
    if (chained (c, N))
        kv_begin (c, t.tokens, N, &a);
    else
        m->kern->advance (&a, m->stream);
    return TRAIN_OK;
}

/* What is recorded runs nothing. */
static train_status_t record (struct kv_cache *c, struct kv_graph *g,
                              train_error_t *err)
{
    train_decoder_t *m = c->m;
    const struct backend_graph *ops = m->ops->graph;
    train_status_t status, end;

    TRY (ops->begin (m->stream, m->device, err));
    status = step (c, g->rows, err);
    end = ops->end (m->stream, m->device, status == TRAIN_OK ? &g->graph : NULL,
                    status == TRAIN_OK ? err : NULL);
    return status != TRAIN_OK ? status : end;
}

/* The place of steps of N rows; NULL: none is left. */
static struct kv_graph *graph_of (struct kv_cache *c, size_t N)
{
    for (size_t i = 0; i < KV_GRAPHS; i++) {
        struct kv_graph *g = &c->graphs[i];

        if (g->rows == 0)
            g->rows = N;
        if (g->rows == N)
            return g;
    }
    return NULL;
}

static bool replays (const struct kv_cache *c)
{
    return c->m->gpu && c->m->ops->graph && kv_alone (c);
}

/* The first step of a shape lets the products choose their ways. A graph's launch
 * tells by itself what could not begin; of kernels sync does, an event does not. */
static train_status_t go (struct kv_cache *c, size_t N, train_error_t *err)
{
    train_decoder_t *m = c->m;
    struct kv_graph *g = replays (c) ? graph_of (c, N) : NULL;

    if (!g || !g->warm) {
        if (g)
            g->warm = true;
        TRY (step (c, N, err));
        return kv_alone (c) ? m->ops->sync (m->stream, err) : TRAIN_OK;
    }
    if (!g->graph)
        TRY (record (c, g, err));
    return m->ops->graph->launch (g->graph, m->stream, m->device, err);
}

bool kv_alone (const struct kv_cache *c)
{
    const train_decoder_t *m = c->m;

    return !m->together && !m->hooks.before && !m->hooks.after;
}

train_status_t kv_record (struct kv_cache *c, size_t N, train_error_t *err)
{
    struct kv_graph *g = replays (c) && kv_few (c, N) ? graph_of (c, N) : NULL;
    train_status_t status;
    int before;

    if (!g || g->graph)
        return TRAIN_OK;
    g->warm = true; /* our own products have nothing to choose */
    before = c->m->ops->enter (c->m->device);
    status = record (c, g, err);
    c->m->ops->leave (before);
    return status;
}

train_status_t kv_send (struct kv_cache *c, size_t N, train_error_t *err)
{
    int before = c->m->ops->enter (c->m->device);
    train_status_t status =
        c->m->ops->copy (c->texts_at, c->host_texts,
                         KV_LISTS * N * sizeof (int32_t), c->m->stream, err);

    if (status == TRAIN_OK && chained (c, N))
        kv_begin (c, texts_in (c->texts_at, N).tokens, N, NULL);
    c->m->ops->leave (before);
    return status;
}

train_status_t kv_end (struct kv_cache *c, size_t N, size_t i,
                       train_error_t *err)
{
    struct kv_texts host = kv_texts (c, N), there = texts_in (c->texts_at, N);

    host.end[i] = 0;
    return c->m->ops->copy (there.end + i, host.end + i, sizeof (*host.end),
                            c->m->stream, err);
}

static train_status_t steps (struct kv_cache *c, size_t N, int n,
                             train_error_t *err)
{
    train_decoder_t *m = c->m;

    for (int i = 0; i < n; i++)
        TRY (go (c, N, err));
    return m->ops->event_record (c->done[c->begun++ % KV_AHEAD], m->device,
                                 m->stream, err);
}

train_status_t kv_steps (struct kv_cache *c, size_t N, int n,
                         train_error_t *err)
{
    train_status_t status;
    int before;

    TRY (decoder_meet (c->m, n, err));
    before = c->m->ops->enter (c->m->device);
    status = steps (c, N, n, err);
    c->m->ops->leave (before);
    return status;
}

train_status_t kv_told (struct kv_cache *c, size_t N, struct kv_drawn *ret,
                        train_error_t *err)
{
    void *done = c->done[c->waited++ % KV_AHEAD];

    *ret = (struct kv_drawn){c->told, (void *)(c->told + N * KV_STEPS)};
    return kv_alone (c) ? c->m->ops->event_sync (done, err)
                        : decoder_wait (c->m, err);
}
