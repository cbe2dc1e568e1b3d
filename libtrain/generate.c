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
#include "philox.h"

#define STREAM 0x67656e65u /* apart from other draws of a seed */

static int by_chance (const void *a, const void *b, void *arg)
{
    const double *p = arg;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

    if (p[i] != p[j])
        return p[i] > p[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

/* How many of the likeliest may be drawn. */
static size_t cut (const double *p, const int32_t *order, size_t V,
                   const train_generate_options_t *o)
{
    size_t n = o->top_k > 0 && (size_t)o->top_k < V ? (size_t)o->top_k : V;
    double sum = 0, all = 0;
    size_t kept = 0;

    if (o->top_p <= 0 || o->top_p >= 1)
        return n;
    for (size_t i = 0; i < n; i++)
        all += p[order[i]];
    while (kept < n && sum < o->top_p * all)
        sum += p[order[kept++]];
    return kept;
}

int32_t generate_draw (const double *logits, double *p, int32_t *order,
                       size_t V, const train_generate_options_t *o, double u)
{
    size_t best = 0, n;
    double sum = 0;

    for (size_t i = 0; i < V; i++) {
        if (!isfinite (logits[i]))
            return -1;
        best = logits[i] > logits[best] ? i : best;
    }
    if (o->temperature == 0)
        return (int32_t)best;
    for (size_t i = 0; i < V; i++) {
        p[i] = exp ((logits[i] - logits[best]) / o->temperature);
        order[i] = (int32_t)i;
    }
    qsort_r (order, V, sizeof (*order), by_chance, p);
    n = cut (p, order, V, o);
    for (size_t i = 0; i < n; i++)
        sum += p[order[i]];
    u *= sum;
    for (size_t i = 0; i + 1 < n; i++)
        if ((u -= p[order[i]]) < 0)
            return order[i];
    return order[n - 1];
}

static double chance (uint64_t seed, uint32_t text, uint32_t at)
{
    uint32_t ctr[4] = {at, text, STREAM, 0}, out[4];
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

    philox4x32 (ctr, key, out);
    return philox_uniform (out[0], out[1]);
}

static train_status_t check_options (const train_generate_options_t *o,
                                     train_error_t *err)
{
    if (o->max_new < 1)
        return err_set (err, TRAIN_EINVAL, "generate: max_new is %d, below 1",
                        o->max_new);
    if (!(o->temperature >= 0) || !isfinite (o->temperature))
        return err_set (err, TRAIN_EINVAL,
                        "generate: temperature is %g: must be 0 or above",
                        o->temperature);
    if (o->top_k < 0 || !(o->top_p >= 0 && o->top_p <= 1))
        return err_set (err, TRAIN_EINVAL,
                        "generate: top_k is %d and top_p %g: must be 0 or "
                        "above, and within 0 and 1",
                        o->top_k, o->top_p);
    return TRAIN_OK;
}

/* One run over B texts. */
struct run {
    struct kv_cache *cache;
    const train_generate_options_t *o;
    int32_t *tokens, *order; /* (rows), (V) */
    int *text, *at, *length; /* (rows), (rows), (B) */
    double *row, *p;         /* (V) */
    size_t rows, V, E;
};

static bool stops (const train_generate_options_t *o, int32_t id)
{
    for (size_t i = 0; i < o->n_stop; i++)
        if (o->stop[i] == id)
            return true;
    return false;
}

/* Draw behind row [i], the last of its text. */
static train_status_t draw (struct run *r, const void *logits, size_t i,
                            int32_t *ret, train_error_t *err)
{
    for (size_t v = 0; v < r->V; v++)
        r->row[v] = r->E == sizeof (float)
                        ? (double)((const float *)logits)[i * r->V + v]
                        : ((const double *)logits)[i * r->V + v];
    *ret = generate_draw (
        r->row, r->p, r->order, r->V, r->o,
        chance (r->o->seed, (uint32_t)r->text[i], (uint32_t)r->at[i] + 1));
    if (*ret < 0)
        return err_set (err, TRAIN_ENONFINITE,
                        "generate: a logit of text %d at position %d is no "
                        "number",
                        r->text[i], r->at[i]);
    return TRAIN_OK;
}

/* Feed what is new, draw for each text that goes on; these are new next. */
static train_status_t turn (struct run *r, int32_t *ids, int *n,
                            train_error_t *err)
{
    const void *logits;
    size_t kept = 0;

    TRY (kv_feed (r->cache, &logits, r->tokens, r->text, r->at, r->rows, err));
    for (size_t i = 0; i < r->rows; i++) {
        int b = r->text[i];
        int32_t id;

        if (r->at[i] + 1 != r->length[b])
            continue;
        TRY (draw (r, logits, i, &id, err));
        ids[(size_t)b * (size_t)r->o->max_new + (size_t)n[b]++] = id;
        if (n[b] == r->o->max_new || stops (r->o, id))
            continue;
        r->tokens[kept] = id;
        r->text[kept] = b;
        r->at[kept++] = r->length[b]++;
    }
    r->rows = kept;
    return TRAIN_OK;
}

static train_status_t take_prompts (struct run *r,
                                    const int32_t *const *prompts, const int *n,
                                    int B, train_error_t *err)
{
    for (int b = 0; b < B; b++)
        for (int t = 0; t < n[b]; t++) {
            if (prompts[b][t] < 0 || (size_t)prompts[b][t] >= r->V)
                return err_set (err, TRAIN_EINVAL,
                                "generate: id %d of text %d at place %d is not "
                                "within 0 and %zu",
                                (int)prompts[b][t], b, t, r->V - 1);
            r->tokens[r->rows] = prompts[b][t];
            r->text[r->rows] = b;
            r->at[r->rows++] = t;
        }
    return TRAIN_OK;
}

static bool allot (struct run *r, const int *n, int B, size_t rows)
{
    r->tokens = calloc (rows, sizeof (*r->tokens));
    r->text = calloc (rows, sizeof (*r->text));
    r->at = calloc (rows, sizeof (*r->at));
    r->length = calloc ((size_t)B, sizeof (*r->length));
    r->order = calloc (r->V, sizeof (*r->order));
    r->row = calloc (r->V, sizeof (*r->row));
    r->p = calloc (r->V, sizeof (*r->p));
    for (int b = 0; r->length && b < B; b++)
        r->length[b] = n[b];
    return r->tokens && r->text && r->at && r->length && r->order && r->row
           && r->p;
}

static void drop (struct run *r)
{
    kv_destroy (r->cache);
    free (r->tokens);
    free (r->text);
    free (r->at);
    free (r->length);
    free (r->order);
    free (r->row);
    free (r->p);
}

static train_status_t sizes (const int *n, int B, int max_new, int *ret_T,
                             size_t *ret_rows, train_error_t *err)
{
    int longest = 0;

    for (int b = 0; b < B; b++) {
        if (n[b] < 1 || n[b] > (1 << 30) - max_new)
            return err_set (err, TRAIN_EINVAL,
                            "generate: the prompt of text %d has %d tokens: "
                            "at least 1 is needed",
                            b, n[b]);
        longest = n[b] > longest ? n[b] : longest;
        *ret_rows += (size_t)n[b];
    }
    *ret_T = longest + max_new;
    return TRAIN_OK;
}

train_status_t train_generate (int32_t *ids, int *ret_n, train_decoder_t *m,
                               const int32_t *const *prompts, const int *n,
                               int B, const train_generate_options_t *opts,
                               train_error_t *err)
{
    train_generate_options_t o;
    struct run r = {.o = &o};
    train_status_t status;
    size_t rows = 0;
    int T = 0;

    if (!ids || !ret_n || !m || !prompts || !n || B < 1)
        return err_set (err, TRAIN_EINVAL,
                        "generate: an argument is missing, or B is below 1");
    TRY (opts_read (&o, sizeof (o), opts, "generate", err));
    TRY (check_options (&o, err));
    TRY (sizes (n, B, o.max_new, &T, &rows, err));
    r.V = m->dims.V;
    r.E = m->kern->elem_size;
    memset (ret_n, 0, (size_t)B * sizeof (*ret_n));
    if (!allot (&r, n, B, rows))
        status = err_set (err, TRAIN_ENOMEM, "no memory to generate");
    else if ((status = take_prompts (&r, prompts, n, B, err)) == TRAIN_OK)
        status = kv_create (m, B, T, &r.cache, err);
    while (status == TRAIN_OK && r.rows > 0)
        status = turn (&r, ids, ret_n, err);
    drop (&r);
    return status;
}
