/* SPDX-License-Identifier: Apache-2.0
 * generate.c - add tokens to texts until they end */
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
    size_t slots, rows, V;
    int B, next; /* texts that have entered */
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

/* Draw behind the M rows whose logits are wanted, for the slots of [drawer]. */
static train_status_t draw_all (struct run *r, size_t N, size_t M,
                                train_error_t *err)
{
    struct kv_drawn drawn;

    TRY (kv_draw (r->cache, N, M, &drawn, err));
    for (size_t i = 0; i < M; i++)
        TRY (take (r, (size_t)r->drawer[i], drawn.ids[i], drawn.logp[i], err));
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
        rows->from[*ends] = (int32_t)s;
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

/* Rows of a step: texts, made up to a number that stays for many steps, so that
 * a GPU can replay it. */
static size_t step_rows (const struct run *r, size_t alive)
{
    size_t to = alive <= 16 ? 8 : alive <= 64 ? 16 : 64;
    size_t N = (alive + to - 1) / to * to;

    if (!r->m->gpu)
        return alive;
    return N < r->slots ? N : r->slots;
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
    TRY (kv_feed (r->cache, N, M, step_rows (r, r->slots), err));
    if (copies > 0)
        TRY (kv_share (r->cache, copies, err));
    return M > 0 ? draw_all (r, N, M, err) : TRAIN_OK;
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

/* Of a prompt that texts have in common but the last token, which may have been read
 * for some of them alone. */
static void fill_shared (const struct run *r, const struct kv_texts *texts,
                         size_t alive)
{
    for (size_t i = 0; i < alive; i++) {
        int b = r->text[r->drawer[i]];
        size_t first = 0;

        while (r->o->group > 1
               && r->text[r->drawer[first]] / r->o->group != b / r->o->group)
            first++;
        first = r->o->group > 1 ? first : i;
        texts->lead[i] = r->drawer[first];
        texts->shared[i] = first < i ? r->n[b] - 1 : 0;
    }
}

static void fill_texts (struct run *r, size_t N, int *ret_most)
{
    struct kv_texts texts = kv_texts (r->cache, N);
    size_t i = 0;

    *ret_most = 0;
    for (size_t s = 0; s < r->slots; s++) {
        int b = r->text[s], rest;

        if (b < 0)
            continue;
        texts.tokens[i] = token_of (r, b, r->fed[s]);
        texts.slot[i] = (int32_t)s;
        texts.at[i] = r->fed[s];
        texts.text[i] = r->o->first + b;
        texts.end[i] = r->n[b] + r->o->max_new - 1;
        r->drawer[i++] = (int)s;
        rest = r->o->max_new - r->added[b];
        *ret_most = rest > *ret_most ? rest : *ret_most;
    }
    fill_shared (r, &texts, i);
    for (; i < N; i++) {
        texts.tokens[i] = texts.slot[i] = texts.text[i] = texts.end[i] = 0;
        texts.lead[i] = texts.shared[i] = 0;
        texts.at[i] = -1;
    }
    memset (texts.count, 0, N * sizeof (*texts.count));
}

/* What is under way of some texts: steps that have been begun, and those whose
 * tokens were taken, of as many as there may be. */
struct under_way {
    size_t N, alive; /* rows; of them with a text, at first */
    int begun, taken, most;
};

static size_t count_alive (const struct run *r)
{
    size_t alive = 0;

    for (size_t s = 0; s < r->slots; s++)
        alive += r->text[s] >= 0;
    return alive;
}

/* Do steps of as many rows go on with these texts? */
static bool goes_on (const struct run *r, const struct under_way *u)
{
    size_t alive = count_alive (r);

    return alive > 0 && u->begun < u->most && step_rows (r, alive) == u->N
           && (r->next == r->B || alive == r->slots);
}

/* A GPU makes a step while the tokens of the one before are taken; several at a
 * time where other ranks have a part in them. */
static train_status_t begin (struct run *r, struct under_way *u,
                             train_error_t *err)
{
    bool gpu = r->m->gpu, alone = kv_alone (r->cache);
    int ahead = gpu && alone ? KV_AHEAD : 1;

    while (u->begun - u->taken < ahead && goes_on (r, u)) {
        int rest = u->most - u->begun;
        int n = alone || !gpu ? 1 : rest < KV_STEPS ? rest : KV_STEPS;

        TRY (kv_steps (r->cache, u->N, n, err));
        u->begun += n;
    }
    return TRAIN_OK;
}

static train_status_t take_step (struct run *r, struct under_way *u,
                                 const struct kv_drawn *drawn,
                                 train_error_t *err)
{
    for (size_t i = 0; i < u->alive; i++) {
        size_t s = (size_t)r->drawer[i];
        size_t at = i * KV_STEPS + (size_t)u->taken % KV_STEPS;

        if (r->text[s] < 0)
            continue;
        r->fed[s]++;
        TRY (take (r, s, drawn->ids[at], drawn->logp[at], err));
        if (r->text[s] < 0)
            TRY (kv_end (r->cache, u->N, i, err));
    }
    u->taken++;
    return TRAIN_OK;
}

/* Where texts end and none waits, fewer rows will be stepped soon. */
static train_status_t prepare (struct run *r, const struct under_way *u,
                               train_error_t *err)
{
    size_t less = u->N > 16 ? 16 : 8;

    if (r->next < r->B || u->N <= less || count_alive (r) == u->alive)
        return TRAIN_OK;
    return kv_record (r->cache, step_rows (r, u->N - less), err);
}

/* Tokens for every text, until other rows are to be stepped. What is drawn behind
 * the end of a text that the listener ended is dropped. */
static train_status_t turns (struct run *r, size_t alive, train_error_t *err)
{
    struct under_way u = {.N = step_rows (r, alive), .alive = alive};
    struct kv_drawn drawn;

    fill_texts (r, u.N, &u.most);
    TRY (kv_send (r->cache, u.N, err));
    for (;;) {
        TRY (begin (r, &u, err));
        if (u.begun == u.taken)
            return TRAIN_OK;
        TRY (prepare (r, &u, err));
        TRY (kv_told (r->cache, u.N, &drawn, err));
        do
            TRY (take_step (r, &u, &drawn, err));
        while (!kv_alone (r->cache) && u.taken < u.begun);
    }
}

static train_status_t run_all (struct run *r, train_error_t *err)
{
    size_t alive;

    for (;;) {
        TRY (enter (r, err));
        if ((alive = count_alive (r)) == 0)
            return TRAIN_OK;
        TRY (turns (r, alive, err));
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

static size_t slots_of (int B, int at_once)
{
    return (size_t)(at_once > 0 && at_once < B ? at_once : B);
}

size_t generate_bytes (train_decoder_t *m, int B, int at_once, int prompt,
                       int more, bool repetition)
{
    size_t slots = slots_of (B, at_once), kept;

    return kv_foresee (m, m->gpu, slots, (size_t)(prompt + more),
                       kv_feed_rows (m->gpu, (size_t)B * (size_t)prompt, slots),
                       repetition, &kept);
}

static train_status_t allot (struct run *r, size_t T, size_t all,
                             train_error_t *err)
{
    r->slots = slots_of (r->B, r->o->at_once);
    r->rows = kv_feed_rows (r->m->gpu, all, r->slots);
    r->text = calloc (r->slots, sizeof (*r->text));
    r->fed = calloc (r->slots, sizeof (*r->fed));
    r->lead = calloc (r->slots, sizeof (*r->lead));
    r->drawer = calloc (r->slots, sizeof (*r->drawer));
    if (!r->text || !r->fed || !r->lead || !r->drawer)
        return err_set (err, TRAIN_ENOMEM, "no memory to generate");
    for (size_t s = 0; s < r->slots; s++)
        r->text[s] = -1;
    TRY (kv_create (r->m, r->slots, T, r->rows, r->slots, &r->cache, err));
    return kv_rules (r->cache, r->o, err);
}

static void drop (struct run *r)
{
    kv_destroy (r->cache);
    free (r->text);
    free (r->fed);
    free (r->lead);
    free (r->drawer);
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
    memset (ret_n, 0, (size_t)B * sizeof (*ret_n));
    status = allot (&r, (size_t)T, all, err);
    if (status == TRAIN_OK)
        status = run_all (&r, err);
    drop (&r);
    return status;
}
