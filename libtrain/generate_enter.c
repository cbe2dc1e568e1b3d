/* SPDX-License-Identifier: Apache-2.0
 * generate_enter.c - texts of a run enter slots, and their prompts are read */
#include "err.h"
#include "generate_run.h"

/* Draw behind the M rows whose logits are wanted, for the slots of [drawer]. */
static train_status_t draw_all (struct generate_run *r, size_t N, size_t M,
                                train_error_t *err)
{
    struct kv_drawn drawn;

    TRY (kv_draw (r->cache, N, M, &drawn, err));
    for (size_t i = 0; i < M; i++)
        TRY (generate_take (r, (size_t)r->drawer[i], drawn.ids[i],
                            drawn.logp[i], err));
    return TRAIN_OK;
}

/* Rows of prompts that are not in the cache, as many as there is room for.
 *   ret_M   texts whose prompts they end */
static size_t count_rows (const struct generate_run *r, size_t *ret_M)
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
static void end_prompt (struct generate_run *r, size_t s, size_t i,
                        struct kv_rows *rows, size_t *ends, size_t *copies)
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

static train_status_t feed_prompts (struct generate_run *r, size_t N, size_t M,
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
    TRY (kv_feed (r->cache, N, M, generate_rows (r, r->slots), err));
    if (copies > 0)
        TRY (kv_share (r->cache, copies, err));
    return M > 0 ? draw_all (r, N, M, err) : TRAIN_OK;
}

/* A text that enters slot [s] follows another of its group that has yet to be
 * read, or copies from one that has been all but its last token. */
static void find_lead (struct generate_run *r, size_t s, size_t *copies)
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
train_status_t generate_enter (struct generate_run *r, train_error_t *err)
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
