/* SPDX-License-Identifier: Apache-2.0
 * generate_draw.c - a token by a row of logits, cut as the options say */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "generate_impl.h"

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

    if (o->top_p > 0 && o->top_p < 1) {
        for (size_t i = 0; i < n; i++)
            all += p[order[i]];
        while (kept < n && sum < o->top_p * all)
            sum += p[order[kept++]];
        n = kept;
    }
    while (n > 1 && p[order[n - 1]] < o->min_p * p[order[0]])
        n--;
    return n;
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

float generate_logp (const double *logits, size_t V, double temperature,
                     int32_t id)
{
    double heat = temperature > 0 ? temperature : 1, most = logits[0], sum = 0;

    for (size_t v = 1; v < V; v++)
        most = logits[v] > most ? logits[v] : most;
    for (size_t v = 0; v < V; v++)
        sum += exp ((logits[v] - most) / heat);
    return (float)((logits[id] - most) / heat - log (sum));
}
