/* SPDX-License-Identifier: Apache-2.0
 * decode_draw_host.c - a token by a row of logits, in double */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "decode_draw.h"

struct row {
    double *z, *p;  /* (V) logits, chances */
    int32_t *order; /* (V) */
    const uint32_t *seen;
    size_t V;
    float *logp;
    const struct kern_draw_rules *rules;
};

static int by_chance (const void *a, const void *b, void *arg)
{
    const double *p = arg;
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;

    if (p[i] != p[j])
        return p[i] > p[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static bool cuts (const struct kern_draw_rules *r)
{
    return r->top_k > 0 || (r->top_p > 0 && r->top_p < 1) || r->min_p > 0;
}

/* How many of the likeliest may be drawn. */
static size_t cut (const struct row *r)
{
    const struct kern_draw_rules *o = r->rules;
    const int32_t *order = r->order;
    size_t V = r->V, kept = 0;
    size_t n = o->top_k > 0 && (size_t)o->top_k < V ? (size_t)o->top_k : V;
    double sum = 0, all = 0;

    if (o->top_p > 0 && o->top_p < 1) {
        for (size_t i = 0; i < n; i++)
            all += r->p[order[i]];
        while (kept < n && sum < o->top_p * all)
            sum += r->p[order[kept++]];
        n = kept;
    }
    while (n > 1 && r->p[order[n - 1]] < o->min_p * r->p[order[0]])
        n--;
    return n;
}

static size_t find_best (const struct row *r)
{
    size_t best = 0;

    for (size_t v = 0; v < r->V; v++)
        best = r->z[v] > r->z[best] ? v : best;
    return best;
}

/* p (V) written; returns their sum */
static double chances (const struct row *r, double most, double heat)
{
    double sum = 0;

    for (size_t v = 0; v < r->V; v++)
        sum += r->p[v] = exp ((r->z[v] - most) / heat);
    return sum;
}

/* The chance of those that may not be drawn is 0 afterwards. */
static double leave_out (const struct row *r)
{
    double sum = 0;
    size_t n;

    for (size_t v = 0; v < r->V; v++)
        r->order[v] = (int32_t)v;
    qsort_r (r->order, r->V, sizeof (*r->order), by_chance, r->p);
    n = cut (r);
    for (size_t i = n; i < r->V; i++)
        r->p[r->order[i]] = 0;
    for (size_t v = 0; v < r->V; v++)
        sum += r->p[v];
    return sum;
}

static size_t walk (const struct row *r, double u)
{
    size_t last = 0;

    for (size_t v = 0; v < r->V; v++) {
        if (r->p[v] <= 0)
            continue;
        last = v;
        if ((u -= r->p[v]) < 0)
            break;
    }
    return last;
}

static void discourage (const struct row *r)
{
    for (size_t v = 0; v < r->V; v++)
        if (r->seen[v / 32] >> v % 32 & 1)
            r->z[v] *=
                r->z[v] < 0 ? r->rules->repetition : 1 / r->rules->repetition;
}

static int32_t draw_row (struct row *r, double u)
{
    double heat = r->rules->heat > 0 ? r->rules->heat : 1, most, sum, all;
    size_t best = find_best (r), id;

    for (size_t v = 0; v < r->V; v++)
        if (!isfinite (r->z[v]))
            return -1;
    most = r->z[best];
    sum = all = chances (r, most, heat);
    if (r->seen) {
        /* logits as they were are wanted once more, for logp */
        memcpy (r->p, r->z, r->V * sizeof (*r->z));
        discourage (r);
        best = find_best (r);
        for (size_t v = 0; v < r->V; v++) {
            double z = r->z[v];

            r->z[v] = r->p[v];
            r->p[v] = z;
        }
        sum = 0;
        for (size_t v = r->V; v-- > 0;)
            if (v != best)
                sum += r->p[v] = exp ((r->p[v] - r->p[best]) / heat);
        sum += r->p[best] = 1;
    }
    if (r->rules->heat > 0 && cuts (r->rules))
        sum = leave_out (r);
    id = r->rules->heat > 0 ? walk (r, u * sum) : best;
    if (r->logp)
        *r->logp = (float)((r->z[id] - most) / heat - log (all));
    return (int32_t)id;
}

#define KERN_BODY "decode_draw.inc"
#include "each.h"

void kern_had_host (uint32_t *seen, const int32_t *tokens, const int32_t *slot,
                    const int32_t *at, size_t N, size_t V, void *stream)
{
    size_t words = kern_seen_words (V);

    (void)stream;
    for (size_t i = 0; i < N; i++)
        if (at[i] == 0)
            memset (seen + (size_t)slot[i] * words, 0, words * sizeof (*seen));
    for (size_t i = 0; i < N; i++)
        if (at[i] >= 0)
            seen[(size_t)slot[i] * words + (size_t)tokens[i] / 32] |=
                1u << tokens[i] % 32;
}

void kern_had_share_host (uint32_t *seen, const int32_t *from,
                          const int32_t *to, size_t P, size_t V, void *stream)
{
    size_t words = kern_seen_words (V);

    (void)stream;
    for (size_t i = 0; i < P; i++)
        memcpy (seen + (size_t)to[i] * words, seen + (size_t)from[i] * words,
                words * sizeof (*seen));
}
