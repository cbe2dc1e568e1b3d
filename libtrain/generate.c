/* SPDX-License-Identifier: Apache-2.0
 * generate.c - draw tokens, and add them to texts until they end */
#include "config.h"

#include <train/generate.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"
#include "generate_impl.h"
#include "opts.h"

#include "kernels/decode.h"

static train_status_t check_options (const train_generate_options_t *o,
                                     train_error_t *err)
{
    if (o->max_new < 1 || o->at_once < 0)
        return err_set (err, TRAIN_EINVAL,
                        "generate: max_new is %d and at_once %d: must be 1 and "
                        "0 or above",
                        o->max_new, o->at_once);
    if (!(o->temperature >= 0) || !isfinite (o->temperature))
        return err_set (err, TRAIN_EINVAL,
                        "generate: temperature is %g: must be 0 or above",
                        o->temperature);
    if (o->top_k < 0 || !(o->top_p >= 0 && o->top_p <= 1)
        || !(o->min_p >= 0 && o->min_p <= 1))
        return err_set (err, TRAIN_EINVAL,
                        "generate: top_k is %d, top_p %g and min_p %g: must be "
                        "0 or above, and within 0 and 1",
                        o->top_k, o->top_p, o->min_p);
    if (o->group < 0 || o->first < 0)
        return err_set (
            err, TRAIN_EINVAL,
            "generate: group is %d and first %d: must be 0 or above", o->group,
            o->first);
    if (!(o->repetition >= 0) || !isfinite (o->repetition))
        return err_set (err, TRAIN_EINVAL,
                        "generate: repetition is %g: must be 0 or above",
                        o->repetition);
    return TRAIN_OK;
}

/* One run over B texts. */
struct run {
    struct kv_cache *cache;
    train_decoder_t *m;
    const train_generate_options_t *o;
    const int32_t *const *prompts;
    const int *n;
    int32_t *ids;    /* (B,max_new) */
    int *added;      /* (B) */
    int *text, *fed; /* (slots): a slot's text, or -1; tokens in the cache */
    int *lead;       /* (slots): the slot that reads its prompt, or -1 */
    int *drawer;     /* (slots): whose the draws of a feed are */
    double *row, *p; /* (V) */
    int32_t *order;  /* (V) */
    bool *seen;      /* (V) */
    size_t slots, rows, V;
    int B, next; /* texts that have entered */
    bool plain;  /* all tokens are drawn by their chances */
};

static bool stops (const train_generate_options_t *o, int32_t id)
{
    for (size_t i = 0; i < o->n_stop; i++)
        if (o->stop[i] == id)
            return true;
    return false;
}

/* Token [t] of text [b], of the prompt or added. */
static int32_t token_of (const struct run *r, int b, int t)
{
    if (t < r->n[b])
        return r->prompts[b][t];
    return r->ids[(size_t)b * (size_t)r->o->max_new + (size_t)(t - r->n[b])];
}

/* A row of logits in double. */
static void widen (const struct run *r, const void *logits, size_t i)
{
    size_t first = i * r->V;

    for (size_t v = 0; v < r->V; v++)
        switch (r->m->config.dtype) {
        case TRAIN_F64:
            r->row[v] = ((const double *)logits)[first + v];
            break;
        case TRAIN_BF16:
            r->row[v] =
                (double)half_from_bf16 (((const uint16_t *)logits)[first + v]);
            break;
        case TRAIN_F16:
            r->row[v] =
                (double)half_from_f16 (((const uint16_t *)logits)[first + v]);
            break;
        default:
            r->row[v] = (double)((const float *)logits)[first + v];
        }
}

/* Each token that the text has counts once. */
static void discourage (struct run *r, int b)
{
    int length = r->n[b] + r->added[b];

    for (int t = 0; t < length; t++)
        r->seen[token_of (r, b, t)] = false;
    for (int t = 0; t < length; t++) {
        int32_t id = token_of (r, b, t);

        if (!r->seen[id])
            r->row[id] *=
                r->row[id] < 0 ? r->o->repetition : 1 / r->o->repetition;
        r->seen[id] = true;
    }
}

static int32_t draw_row (struct run *r, const void *logits, size_t i, int b,
                         int pos, float *logp)
{
    int32_t id;

    widen (r, logits, i);
    if (r->o->repetition > 0)
        discourage (r, b);
    id = generate_draw (r->row, r->p, r->order, r->V, r->o,
                        draw_chance (r->o->seed, (uint32_t)(r->o->first + b),
                                     (uint32_t)pos + 1));
    if (r->o->ret_logp && id >= 0) {
        widen (r, logits, i); /* as it was */
        *logp = generate_logp (r->row, r->V, r->o->temperature, id);
    }
    return id;
}

/* Does the text of [slot] go on with token [id] behind it? */
static train_status_t take (struct run *r, size_t slot, int32_t id, float logp,
                            train_error_t *err)
{
    int b = r->text[slot];
    size_t to;
    bool on;

    if (id < 0)
        return err_set (err, TRAIN_ENONFINITE,
                        "generate: a logit of text %d at position %d is no "
                        "number",
                        b, r->fed[slot] - 1);
    to = (size_t)b * (size_t)r->o->max_new + (size_t)r->added[b]++;
    r->ids[to] = id;
    if (r->o->ret_logp)
        r->o->ret_logp[to] = logp;
    on = !r->o->on_token || r->o->on_token (r->o->arg, b, id);
    if (!on || r->added[b] == r->o->max_new || stops (r->o, id))
        r->text[slot] = -1;
    return TRAIN_OK;
}

/* Draw behind the M rows whose logits are wanted, for the slots of [drawer].
 *   step   the rows are a step's, whose first [alive] are texts */
static train_status_t draw_all (struct run *r, size_t N, size_t M, bool step,
                                size_t alive, train_error_t *err)
{
    struct kv_rows rows = kv_rows (r->cache, N, M);
    const struct train_generate_options *o = r->o;
    struct kv_drawn drawn = {0};
    const void *logits = NULL;

    if (r->plain && step)
        TRY (kv_step (r->cache, N, o->temperature, o->seed, &drawn, err));
    else if (r->plain)
        TRY (kv_draw (r->cache, N, M, o->temperature, o->seed, &drawn, err));
    else
        TRY (kv_logits (r->cache, M, &logits, err));
    for (size_t i = 0; i < alive; i++) {
        float logp = r->plain ? drawn.logp[i] : 0;
        int32_t id = r->plain ? drawn.ids[i]
                              : draw_row (r, logits, i, r->text[r->drawer[i]],
                                          rows.pos[i], &logp);

        TRY (take (r, (size_t)r->drawer[i], id, logp, err));
    }
    return TRAIN_OK;
}

/* Rows of prompts that are not in the cache, as many as there is room for.
 *   ret_M   texts whose prompts they end */
static size_t count_rows (const struct run *r, size_t *ret_M)
{
    size_t N = 0;

    *ret_M = 0;
    for (size_t s = 0; s < r->slots && N < r->rows; s++) {
        int b = r->text[s];
        size_t rest = b < 0 ? 0 : (size_t)(r->n[b] - r->fed[s]);

        if (b < 0 || r->fed[s] >= r->n[b] || r->lead[s] >= 0)
            continue;
        if (rest <= r->rows - N)
            for (size_t f = 0; f < r->slots; f++)
                *ret_M += f == s || (r->text[f] >= 0 && r->lead[f] == (int)s);
        N += rest <= r->rows - N ? rest : r->rows - N;
    }
    return N;
}

/* The prompt of slot [s] ends with row i: a draw for it and for all that follow
 * it, which are noted as copies. */
static void end_prompt (struct run *r, size_t s, size_t i, struct kv_rows *rows,
                        size_t *ends, size_t *copies)
{
    struct kv_pairs pairs = kv_pairs (r->cache);

    for (size_t f = 0; f < r->slots; f++) {
        if (f != s && (r->text[f] < 0 || r->lead[f] != (int)s))
            continue;
        rows->last[*ends] = (int32_t)i;
        rows->text[*ends] = r->o->first + r->text[f];
        rows->pos[*ends] = rows->at[i];
        r->drawer[(*ends)++] = (int)f;
        if (f == s)
            continue;
        r->lead[f] = -1;
        r->fed[f] = r->fed[s];
        pairs.from[*copies] = (int32_t)s;
        pairs.to[*copies] = (int32_t)f;
        pairs.n[(*copies)++] = r->fed[s];
    }
}

static train_status_t feed_prompts (struct run *r, size_t N, size_t M,
                                    train_error_t *err)
{
    struct kv_rows rows = kv_rows (r->cache, N, M);
    size_t i = 0, ends = 0, copies = 0;

    for (size_t s = 0; s < r->slots && i < N; s++) {
        int b = r->text[s];
        bool new = b >= 0 && r->fed[s] < r->n[b] && r->lead[s] < 0;

        for (; new &&i < N && r->fed[s] < r->n[b]; i++) {
            rows.tokens[i] = r->prompts[b][r->fed[s]];
            rows.slot[i] = (int32_t)s;
            rows.at[i] = r->fed[s]++;
        }
        if (new && r->fed[s] == r->n[b])
            end_prompt (r, s, i - 1, &rows, &ends, &copies);
    }
    TRY (kv_feed (r->cache, N, M, err));
    if (copies > 0)
        TRY (kv_share (r->cache, copies, err));
    return M > 0 ? draw_all (r, N, M, false, M, err) : TRAIN_OK;
}

/* A text that enters slot [s] follows another of its group that has yet to be
 * read, or copies from one that has been all but its last token. */
static void find_lead (struct run *r, size_t s, size_t *copies)
{
    struct kv_pairs pairs = kv_pairs (r->cache);
    int b = r->text[s];

    r->lead[s] = -1;
    for (size_t f = 0; r->o->group > 1 && f < r->slots; f++) {
        int other = r->text[f];

        if (f == s || other < 0 || other / r->o->group != b / r->o->group)
            continue;
        if (r->fed[f] < r->n[b]) {
            r->lead[s] = r->lead[f] < 0 ? (int)f : r->lead[f];
            return;
        }
        if (r->n[b] > 1) {
            pairs.from[*copies] = (int32_t)f;
            pairs.to[*copies] = (int32_t)s;
            pairs.n[(*copies)++] = r->fed[s] = r->n[b] - 1;
        }
        return;
    }
}

/* Waiting texts enter free slots, until none waits or none is free. */
static train_status_t enter (struct run *r, train_error_t *err)
{
    size_t N, M;

    for (;;) {
        size_t copies = 0;

        for (size_t s = 0; s < r->slots && r->next < r->B; s++)
            if (r->text[s] < 0) {
                r->text[s] = r->next++;
                r->fed[s] = 0;
                find_lead (r, s, &copies);
            }
        if (copies > 0)
            TRY (kv_share (r->cache, copies, err));
        if ((N = count_rows (r, &M)) == 0)
            return TRAIN_OK;
        TRY (feed_prompts (r, N, M, err));
    }
}

/* Rows of a step: texts, made up to a number that stays for many steps, so that
 * a GPU can replay it. */
static size_t step_rows (const struct run *r, size_t alive)
{
    size_t N = r->slots;

    while (r->m->gpu && N / 2 >= alive)
        N /= 2;
    return r->m->gpu ? N : alive;
}

static void fill_step (struct run *r, size_t N)
{
    struct kv_rows rows = kv_rows (r->cache, N, N);
    size_t i = 0;

    for (size_t s = 0; s < r->slots; s++) {
        int b = r->text[s];

        if (b < 0)
            continue;
        rows.tokens[i] = token_of (r, b, r->fed[s]);
        rows.slot[i] = (int32_t)s;
        rows.text[i] = r->o->first + b;
        rows.last[i] = (int32_t)i;
        r->drawer[i] = (int)s;
        rows.at[i] = rows.pos[i] = r->fed[s]++;
        i++;
    }
    for (; i < N; i++) {
        rows.tokens[i] = rows.slot[i] = rows.text[i] = 0;
        rows.last[i] = (int32_t)i;
        rows.at[i] = rows.pos[i] = -1;
    }
}

/* One token more for every text. */
static train_status_t turn (struct run *r, size_t alive, train_error_t *err)
{
    size_t N = step_rows (r, alive);

    fill_step (r, N);
    if (!r->plain)
        TRY (kv_feed (r->cache, N, N, err));
    return draw_all (r, N, N, true, alive, err);
}

static train_status_t run_all (struct run *r, train_error_t *err)
{
    size_t alive;

    for (;;) {
        TRY (enter (r, err));
        alive = 0;
        for (size_t s = 0; s < r->slots; s++)
            alive += r->text[s] >= 0;
        if (alive == 0)
            return TRAIN_OK;
        TRY (turn (r, alive, err));
    }
}

static train_status_t check_groups (const struct run *r, train_error_t *err)
{
    for (int b = 0; r->o->group > 1 && b < r->B; b++) {
        int first = b - b % r->o->group;
        size_t bytes = (size_t)r->n[b] * sizeof (**r->prompts);

        if (r->n[b] != r->n[first]
            || memcmp (r->prompts[b], r->prompts[first], bytes) != 0)
            return err_set (err, TRAIN_EINVAL,
                            "generate: the prompt of text %d is not that of "
                            "text %d, of the same group of %d",
                            b, first, r->o->group);
    }
    return TRAIN_OK;
}

static train_status_t check_prompts (const struct run *r, int *ret_T,
                                     size_t *ret_all, train_error_t *err)
{
    int longest = 0;

    for (int b = 0; b < r->B; b++) {
        if (r->n[b] < 1 || r->n[b] > (1 << 30) - r->o->max_new)
            return err_set (err, TRAIN_EINVAL,
                            "generate: the prompt of text %d has %d tokens: "
                            "at least 1 is needed",
                            b, r->n[b]);
        for (int t = 0; t < r->n[b]; t++)
            if (r->prompts[b][t] < 0 || (size_t)r->prompts[b][t] >= r->V)
                return err_set (err, TRAIN_EINVAL,
                                "generate: id %d of text %d at place %d is not "
                                "within 0 and %zu",
                                (int)r->prompts[b][t], b, t, r->V - 1);
        longest = r->n[b] > longest ? r->n[b] : longest;
        *ret_all += (size_t)r->n[b];
    }
    *ret_T = longest + r->o->max_new;
    return check_groups (r, err);
}

static train_status_t allot (struct run *r, size_t T, size_t all,
                             train_error_t *err)
{
    size_t most = r->m->gpu ? 8192 : 512; /* rows of a feed: memory */

    r->slots = r->o->at_once > 0 && r->o->at_once < r->B ? (size_t)r->o->at_once
                                                         : (size_t)r->B;
    r->rows = all < most ? all : most;
    r->rows = r->rows < r->slots ? r->slots : r->rows;
    r->text = calloc (r->slots, sizeof (*r->text));
    r->fed = calloc (r->slots, sizeof (*r->fed));
    r->lead = calloc (r->slots, sizeof (*r->lead));
    r->drawer = calloc (r->slots, sizeof (*r->drawer));
    r->order = calloc (r->V, sizeof (*r->order));
    r->seen = calloc (r->V, sizeof (*r->seen));
    r->row = calloc (r->V, sizeof (*r->row));
    r->p = calloc (r->V, sizeof (*r->p));
    if (!r->text || !r->fed || !r->lead || !r->drawer || !r->order || !r->seen
        || !r->row || !r->p)
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    for (size_t s = 0; s < r->slots; s++)
        r->text[s] = -1;
    return kv_create (r->m, r->slots, T, r->rows, r->slots, &r->cache, err);
}

static void drop (struct run *r)
{
    kv_destroy (r->cache);
    free (r->text);
    free (r->fed);
    free (r->lead);
    free (r->drawer);
    free (r->order);
    free (r->seen);
    free (r->row);
    free (r->p);
}

train_status_t train_generate (int32_t *ids, int *ret_n, train_decoder_t *m,
                               const int32_t *const *prompts, const int *n,
                               int B, const train_generate_options_t *opts,
                               train_error_t *err)
{
    train_generate_options_t o;
    struct run r = {.o = &o,
                    .m = m,
                    .prompts = prompts,
                    .n = n,
                    .ids = ids,
                    .added = ret_n,
                    .B = B};
    train_status_t status;
    size_t all = 0;
    int T = 0;

    if (!ids || !ret_n || !m || !prompts || !n || B < 1)
        return err_set (err, TRAIN_EINVAL,
                        "generate: an argument is missing, or B is below 1");
    TRY (opts_read (&o, sizeof (o), opts, "generate", err));
    TRY (check_options (&o, err));
    r.V = m->dims.V;
    TRY (check_prompts (&r, &T, &all, err));
    r.plain = (o.repetition <= 0)
              && (o.temperature <= 0
                  || (o.top_k == 0 && (o.top_p <= 0 || o.top_p >= 1)
                      && o.min_p <= 0));
    memset (ret_n, 0, (size_t)B * sizeof (*ret_n));
    status = allot (&r, (size_t)T, all, err);
    if (status == TRAIN_OK)
        status = run_all (&r, err);
    drop (&r);
    return status;
}
