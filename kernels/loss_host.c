/* SPDX-License-Identifier: Apache-2.0
 * loss_host.c - the loss of rows of logits, piece by piece */
#include "loss.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "half.h"
#include "kernels.h"

#define SAME(x) (x)

/* In double, so that the twin of a GPU is judged by something closer. */
#define PICK(suffix, elem, get, put)                                           \
    static double log_sum_##suffix (const elem *z, size_t V)                   \
    {                                                                          \
        double most = -INFINITY, sum = 0;                                      \
                                                                               \
        for (size_t v = 0; v < V; v++)                                         \
            if ((double)get (z[v]) > most)                                     \
                most = (double)get (z[v]);                                     \
        for (size_t v = 0; v < V; v++)                                         \
            sum += exp ((double)get (z[v]) - most);                            \
        return most + log (sum);                                               \
    }                                                                          \
                                                                               \
    static void slope_##suffix (elem *z, size_t V, size_t t, double lse,       \
                                double up)                                     \
    {                                                                          \
        for (size_t v = 0; v < V; v++) {                                       \
            double p = exp ((double)get (z[v]) - lse);                         \
                                                                               \
            z[v] = put ((float)(up * (v == t ? 1 - p : -p)));                  \
        }                                                                      \
    }                                                                          \
                                                                               \
    void kern_pick_##suffix##_host (                                           \
        elem *logits, float *logp, const int32_t *targets, const float *dlogp, \
        size_t N, size_t V, void *stream)                                      \
    {                                                                          \
        (void)stream;                                                          \
        for (size_t n = 0; n < N; n++) {                                       \
            elem *z = logits + n * V;                                          \
            bool counts = targets[n] >= 0;                                     \
            size_t t = counts ? (size_t)targets[n] : 0;                        \
            double lse = counts ? log_sum_##suffix (z, V) : 0;                 \
                                                                               \
            logp[n] = counts ? (float)((double)get (z[t]) - lse) : 0;          \
            if (dlogp && counts)                                               \
                slope_##suffix (z, V, t, lse, (double)dlogp[n]);               \
            else if (dlogp)                                                    \
                memset (z, 0, V * sizeof (*z));                                \
        }                                                                      \
    }

PICK (f32, float, SAME, SAME)
PICK (f16, uint16_t, half_from_f16, half_to_f16)

void kern_pick_bf16_host (uint16_t *logits, float *logp, const int32_t *targets,
                          const float *dlogp, size_t N, size_t V, void *stream)
{
    kern_logprob_bf16_host (logits, logp, NULL, targets, dlogp, N, V, 1,
                            stream);
}

void kern_fill_f32_host (float *y, float value, size_t n, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < n; i++)
        y[i] = value;
}

void kern_loss_sum_host (double *sum, const float *logp, size_t N, void *stream)
{
    (void)stream;
    for (size_t n = 0; n < N; n++)
        *sum -= (double)logp[n];
}
