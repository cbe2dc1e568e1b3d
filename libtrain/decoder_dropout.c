/* SPDX-License-Identifier: Apache-2.0
 * decoder_dropout.c - dropout of what a block's halves add to the stream
 *
 * Masks are a function of (seed, step, layer and half, element of the global
 * batch): the backward draws them again, and no split of a batch changes them. */
#include "decoder_impl.h"
#include "err.h"

#include "kernels/dropout.h"

train_status_t train_decoder_dropout (train_decoder_t *m, double rate,
                                      uint64_t seed, uint64_t step, int64_t row,
                                      train_error_t *err)
{
    if (!(rate >= 0 && rate < 1))
        return err_set (err, TRAIN_EINVAL,
                        "dropout %g is not within 0 and below 1", rate);
    if (row < 0)
        return err_set (err, TRAIN_EINVAL, "dropout: row %lld is below 0",
                        (long long)row);
    m->dropout = (struct decoder_dropout){kern_dropout_cut (rate), seed, step,
                                          (uint64_t)row};
    return TRAIN_OK;
}

bool decoder_drops (const train_decoder_t *m)
{
    return m->dropout.cut > 0;
}

void decoder_drop (train_decoder_t *m, size_t layer, enum decoder_half half,
                   void *y, const void *x)
{
    const struct decoder_dropout *o = &m->dropout;
    size_t T = (size_t)m->T, C = m->dims.C;
    struct kern_dropout d = {
        .seed = o->seed,
        .step = o->step,
        .first = o->row * T * C,
        .site = (uint32_t)(2 * layer + half),
        .cut = o->cut,
    };

    m->kern->dropout (y, x, (size_t)m->B * T * C, &d, m->stream);
}
