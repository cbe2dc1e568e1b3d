/* SPDX-License-Identifier: Apache-2.0
 * sampler.c - share an epoch's samples between ranks */
#include <train/sampler.h>

#include <inttypes.h>

#include "err.h"
#include "opts.h"
#include "permute.h"

static train_status_t check (const train_sampler_t *from, int64_t consumed,
                             train_sampler_t *s, train_error_t *err)
{
    if (!from)
        return err_set (err, TRAIN_EINVAL, "sampler: there is none");
    TRY (opts_read (s, sizeof (*s), from, "sampler", err));
    if (s->n < 0 || s->n > INT64_MAX / 2 || s->ranks < 1)
        return err_set (err, TRAIN_EINVAL,
                        "sampler: %" PRId64 " samples for %d ranks", s->n,
                        s->ranks);
    if (s->rank < 0 || s->rank >= s->ranks)
        return err_set (err, TRAIN_EINVAL, "sampler: rank %d is not of %d",
                        s->rank, s->ranks);
    if (consumed < 0 || consumed > s->n)
        return err_set (err, TRAIN_EINVAL,
                        "sampler: %" PRId64 " of %" PRId64
                        " samples cannot be consumed",
                        consumed, s->n);
    return TRAIN_OK;
}

static int64_t length (const train_sampler_t *s, int64_t consumed)
{
    int64_t left = s->n - consumed;

    return s->drop_last ? left / s->ranks
                        : left / s->ranks + (left % s->ranks > 0);
}

train_status_t train_sampler_length (const train_sampler_t *sampler,
                                     int64_t consumed, int64_t *ret_length,
                                     train_error_t *err)
{
    train_sampler_t s;

    TRY (check (sampler, consumed, &s, err));
    if (!ret_length)
        return err_set (err, TRAIN_EINVAL, "sampler: ret_length is NULL");
    *ret_length = length (&s, consumed);
    return TRAIN_OK;
}

train_status_t train_sampler_get (const train_sampler_t *sampler, int64_t epoch,
                                  int64_t consumed, int64_t k,
                                  int64_t *ret_index, bool *ret_pad,
                                  train_error_t *err)
{
    train_sampler_t s;
    int64_t place;

    TRY (check (sampler, consumed, &s, err));
    if (!ret_index || epoch < 0 || k < 0)
        return err_set (err, TRAIN_EINVAL,
                        "sampler: epoch or k is below 0, or ret_index is NULL");
    if (k >= length (&s, consumed))
        return err_set (err, TRAIN_ENOTFOUND,
                        "sampler: the epoch has %" PRId64
                        " more samples for a rank, and no sample %" PRId64,
                        length (&s, consumed), k);
    place = consumed + k * s.ranks + s.rank;
    if (ret_pad)
        *ret_pad = place >= s.n;
    place %= s.n; /* from the front again, also more than once */
    *ret_index = s.shuffle ? (int64_t)permute ((uint64_t)place, (uint64_t)s.n,
                                               s.seed, (uint64_t)epoch)
                           : place;
    return TRAIN_OK;
}
