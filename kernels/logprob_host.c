/* SPDX-License-Identifier: Apache-2.0
 * logprob_host.c - log-probabilities of targets over bf16 logits, and the
 * gradient in their place */
#include "kernels.h"

#include "half.h"
#include "host.h"

static double log_sum_exp (const uint16_t *z, size_t V, double inv_t,
                           double *ret_entropy)
{
    double most = -INFINITY, sum = 0, mean = 0;

    for (size_t v = 0; v < V; v++) {
        double x = inv_t * (double)half_from_bf16 (z[v]);

        if (x > most || x != x)
            most = x;
    }
    for (size_t v = 0; v < V; v++) {
        double x = inv_t * (double)half_from_bf16 (z[v]) - most, e = exp (x);

        sum += e;
        mean += e > 0 ? e * x : 0;
    }
    *ret_entropy = log (sum) - mean / sum;
    return most + log (sum);
}

void kern_logprob_bf16_host (uint16_t *logits, float *logp, float *entropy,
                             const int32_t *targets, const float *dlogp,
                             size_t N, size_t V, double inv_temperature,
                             void *stream)
{
    (void)stream;
    for (size_t r = 0; r < N; r++) {
        uint16_t *z = logits + r * V;
        int32_t t = targets[r];
        double bits, lse, scale;

        if (t < 0) {
            logp[r] = 0;
            if (entropy)
                entropy[r] = 0;
            if (dlogp)
                memset (z, 0, V * sizeof (*z));
            continue;
        }
        lse = log_sum_exp (z, V, inv_temperature, &bits);
        logp[r] =
            (float)(inv_temperature * (double)half_from_bf16 (z[t]) - lse);
        if (entropy)
            entropy[r] = (float)bits;
        scale = dlogp ? (double)dlogp[r] * inv_temperature : 0;
        for (size_t v = 0; v < V && dlogp; v++) {
            double x = inv_temperature * (double)half_from_bf16 (z[v]);

            z[v] = half_to_bf16 ((float)(scale
                                         * ((int64_t)v == t ? 1 - exp (x - lse)
                                                            : -exp (x - lse))));
        }
    }
}
