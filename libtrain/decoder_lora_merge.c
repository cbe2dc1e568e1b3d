/* SPDX-License-Identifier: Apache-2.0
 * decoder_lora_merge.c - weights with what their adapters add, as a model without
 * adapters has them */
#include <stdlib.h>

#include "decoder_impl.h"
#include "elem.h"
#include "err.h"

/* Element 0 of the weight that adapter [k] is beside. */
static size_t weight_of (const train_decoder_t *m, size_t l, int k)
{
    const struct decoder_block *b = &m->blocks[l];
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    const size_t fused[TRAIN_LORA_N] = {b->qkv,     b->qkv,     b->qkv, b->out,
                                        b->gate_up, b->gate_up, b->down};

    return fused[k] + o.col * o.in;
}

/* Row [i] of W + scale B A; sum (in) is room. */
static void merge_row (const train_decoder_t *m, size_t l, int k, size_t i,
                       const double *A, double *sum, const void *x, void *y,
                       train_dtype_t to)
{
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    size_t R = (size_t)m->dims.lora.rank, b = m->blocks[l].lora_b[k] + i * R;
    size_t w = weight_of (m, l, k) + i * o.in;
    double scale = m->dims.lora.alpha / m->dims.lora.rank;
    train_dtype_t from = m->config.dtype;

    for (size_t j = 0; j < o.in; j++)
        sum[j] = 0;
    for (size_t r = 0; r < R; r++) {
        double f = elem_get (from, x, b + r);

        for (size_t j = 0; j < o.in; j++)
            sum[j] += f * A[r * o.in + j];
    }
    for (size_t j = 0; j < o.in; j++)
        elem_put (to, y, w + j, elem_get (from, x, w + j) + scale * sum[j]);
}

train_status_t decoder_lora_merge (const train_decoder_t *m, const void *x,
                                   void *y, train_dtype_t to,
                                   train_error_t *err)
{
    size_t R = (size_t)m->dims.lora.rank, most = decoder_lora_widest (&m->dims);
    double *A = malloc ((R + 1) * most * sizeof (*A));

    if (!A)
        return err_set (err, TRAIN_ENOMEM, "no memory to merge adapters");
    for (size_t l = 0; l < m->dims.L; l++)
        for (int k = 0; k < TRAIN_LORA_N; k++) {
            struct decoder_lora o = decoder_lora_of (&m->dims, k);

            if (!(m->dims.lora.targets & 1 << k))
                continue;
            for (size_t e = 0; e < R * o.in; e++)
                A[e] =
                    elem_get (m->config.dtype, x, m->blocks[l].lora_a[k] + e);
            for (size_t i = 0; i < o.out; i++)
                merge_row (m, l, k, i, A, A + R * most, x, y, to);
        }
    free (A);
    return TRAIN_OK;
}
