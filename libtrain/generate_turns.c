/* SPDX-License-Identifier: Apache-2.0
 * generate_turns.c - tokens for the texts of a run, step by step */
#include <string.h>

#include "err.h"
#include "generate_run.h"

static bool stops (const train_generate_options_t *o, int32_t id)
{
    for (size_t i = 0; i < o->n_stop; i++)
        if (o->stop[i] == id)
            return true;
    return false;
}

/* Does the text of [slot] go on with token [id] behind it? */
train_status_t generate_take (struct generate_run *r, size_t slot, int32_t id,
                              float logp, train_error_t *err)
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

/* Rows of a step: texts, made up to a number that stays for many steps, so that
 * a GPU can replay it. */
size_t generate_rows (const struct generate_run *r, size_t alive)
{
    size_t to = alive <= 16 ? 8 : alive <= 64 ? 16 : 64;
    size_t N = (alive + to - 1) / to * to;

    if (!r->m->gpu)
        return alive;
    return N < r->slots ? N : r->slots;
}

/* Token [t] of text [b], of the prompt or added. */
static int32_t token_of (const struct generate_run *r, int b, int t)
{
    if (t < r->n[b])
        return r->prompts[b][t];
    return r->ids[(size_t)b * (size_t)r->o->max_new + (size_t)(t - r->n[b])];
}

/* Of a prompt that texts have in common but the last token, which may have been read
 * for some of them alone. */
static void fill_shared (const struct generate_run *r,
                         const struct kv_texts *texts, size_t alive)
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

static void fill_texts (struct generate_run *r, size_t N, int *ret_most)
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

size_t generate_alive (const struct generate_run *r)
{
    size_t alive = 0;

    for (size_t s = 0; s < r->slots; s++)
        alive += r->text[s] >= 0;
    return alive;
}

/* Do steps of as many rows go on with these texts? */
static bool goes_on (const struct generate_run *r, const struct under_way *u)
{
    size_t alive = generate_alive (r);

    return alive > 0 && u->begun < u->most && generate_rows (r, alive) == u->N
           && (r->next == r->B || alive == r->slots);
}

/* A GPU makes a step while the tokens of the one before are taken; several at a
 * time where other ranks have a part in them. */
static train_status_t begin (struct generate_run *r, struct under_way *u,
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

static train_status_t take_step (struct generate_run *r, struct under_way *u,
                                 const struct kv_drawn *drawn,
                                 train_error_t *err)
{
    for (size_t i = 0; i < u->alive; i++) {
        size_t s = (size_t)r->drawer[i];
        size_t at = i * KV_STEPS + (size_t)u->taken % KV_STEPS;

        if (r->text[s] < 0)
            continue;
        r->fed[s]++;
        TRY (generate_take (r, s, drawn->ids[at], drawn->logp[at], err));
        if (r->text[s] < 0)
            TRY (kv_end (r->cache, u->N, i, err));
    }
    u->taken++;
    return TRAIN_OK;
}

/* Where texts end and none waits, fewer rows will be stepped soon. */
static train_status_t prepare (struct generate_run *r,
                               const struct under_way *u, train_error_t *err)
{
    size_t less = u->N > 16 ? 16 : 8;

    if (r->next < r->B || u->N <= less || generate_alive (r) == u->alive)
        return TRAIN_OK;
    return kv_record (r->cache, generate_rows (r, u->N - less), err);
}

/* Tokens for every text, until other rows are to be stepped. What is drawn behind
 * the end of a text that the listener ended is dropped. */
train_status_t generate_turns (struct generate_run *r, size_t alive,
                               train_error_t *err)
{
    struct under_way u = {.N = generate_rows (r, alive), .alive = alive};
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
