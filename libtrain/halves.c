/* SPDX-License-Identifier: Apache-2.0
 * halves.c - a piece of the host's memory between rounded and wide */
#include "halves.h"

#include <stdbool.h>
#include <stdlib.h>

#include "err.h"
#include "kernels/kernels.h"

#define PIECE ((size_t)1 << 20)

static train_status_t copy (const struct halves *h, void *to, const void *from,
                            size_t n, train_error_t *err)
{
    TRY (h->ops->copy (to, from, n * sizeof (*h->at), h->stream, err));
    return h->ops->sync (h->stream, err);
}

static train_status_t put (const struct halves *h, size_t at, const float *wide,
                           uint16_t *half, size_t n, train_error_t *err)
{
    (h->dtype == TRAIN_BF16 ? kern_cast_f32_bf16_host
                            : kern_cast_f32_f16_host) (half, wide, n, NULL);
    return copy (h, h->at + at, half, n, err);
}

static train_status_t get (const struct halves *h, size_t at, float *wide,
                           uint16_t *half, size_t n, train_error_t *err)
{
    TRY (copy (h, half, h->at + at, n, err));
    (h->dtype == TRAIN_BF16 ? kern_cast_bf16_f32_host
                            : kern_cast_f16_f32_host) (wide, half, n, NULL);
    return TRAIN_OK;
}

/* From [from] in pieces, or into [to]. */
static train_status_t move (const struct halves *h, const float *from,
                            float *to, size_t n, train_error_t *err)
{
    uint16_t *half = malloc ((n < PIECE ? n : PIECE) * sizeof (*half) + 1);
    train_status_t status = TRAIN_OK;

    if (!half)
        return err_set (err, TRAIN_ENOMEM, "no memory for rounded weights");
    for (size_t at = 0, k; at < n && status == TRAIN_OK; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        status = to ? get (h, at, to + at, half, k, err)
                    : put (h, at, from + at, half, k, err);
    }
    free (half);
    return status;
}

train_status_t halves_put (const struct halves *to, const float *wide, size_t n,
                           train_error_t *err)
{
    return move (to, wide, NULL, n, err);
}

train_status_t halves_get (const struct halves *from, float *wide, size_t n,
                           train_error_t *err)
{
    return move (from, NULL, wide, n, err);
}
