/* SPDX-License-Identifier: Apache-2.0
 * reference.c - what is the same for every kind of reference: checks, padding,
 * and zeros where nothing was asked for */
#include "reference.h"

#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "err.h"

struct train_reference {
    const struct reference_ops *ops;
    void *self;
    int vocab;
    int32_t *room; /* ids (B,T), prompt_len (B) */
    size_t has;    /* elements of it */
};

train_status_t reference_new (const struct reference_ops *ops, void *self,
                              int vocab, train_reference_t **ret,
                              train_error_t *err)
{
    train_reference_t *r = calloc (1, sizeof (*r));

    if (!r) {
        ops->close (self);
        return err_set (err, TRAIN_ENOMEM, "no memory for a reference");
    }
    r->ops = ops;
    r->self = self;
    r->vocab = vocab;
    *ret = r;
    return TRAIN_OK;
}

void train_reference_close (train_reference_t *r)
{
    if (!r)
        return;
    r->ops->close (r->self);
    free (r->room);
    free (r);
}

train_status_t train_reference_check (train_reference_t *r, train_error_t *err)
{
    return r->ops->check ? r->ops->check (r->self, err) : TRAIN_OK;
}

void reference_hash (const train_reference_t *r, int64_t ret[2])
{
    uint64_t h = 0;

    ret[0] = ret[1] = 0;
    if (!r || !r->ops->hash || !r->ops->hash (r->self, &h))
        return;
    ret[0] = (int64_t)XXH3_64bits (r->ops->name, strlen (r->ops->name));
    ret[1] = (int64_t)h;
}

size_t reference_bytes (const train_reference_t *r, int B, int T)
{
    return r && r->ops->bytes ? r->ops->bytes (r->self, B, T) : 0;
}

train_status_t train_reference_join (train_reference_t *r, train_error_t *err)
{
    return r->ops->join ? r->ops->join (r->self, err) : TRAIN_OK;
}

static train_status_t check_row (const train_reference_t *r, const int32_t *ids,
                                 int b, int32_t prompt, int32_t total, int T,
                                 train_error_t *err)
{
    if (prompt < 0 || total < prompt || total > T)
        return err_set (err, TRAIN_EINVAL,
                        "reference: row %d has a prompt of %d and %d tokens in "
                        "all of %d",
                        b, (int)prompt, (int)total, T);
    for (int t = 0; t < total; t++)
        if (ids[t] < 0 || (r->vocab > 0 && ids[t] >= r->vocab))
            return err_set (err, TRAIN_EINVAL,
                            "reference: row %d has %d at %d: ids are within 0 "
                            "and %d",
                            b, (int)ids[t], t,
                            r->vocab > 0 ? r->vocab - 1 : INT_MAX);
    return TRAIN_OK;
}

static train_status_t make_room (train_reference_t *r, size_t n,
                                 train_error_t *err)
{
    int32_t *room;

    if (n <= r->has)
        return TRAIN_OK;
    if (!(room = realloc (r->room, n * sizeof (*room))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu ids", n);
    r->room = room;
    r->has = n;
    return TRAIN_OK;
}

static bool asked (int t, int32_t prompt, int32_t total)
{
    return t > 0 && t >= prompt && t < total;
}

train_status_t train_reference_logps (train_reference_t *r, const int32_t *ids,
                                      const int32_t *prompt_len,
                                      const int32_t *total_len, int B, int T,
                                      double temperature, float *ret,
                                      train_error_t *err)
{
    size_t n = (size_t)(B < 0 ? 0 : B) * (size_t)(T < 0 ? 0 : T);

    if (B < 1 || T < 1 || n > INT_MAX)
        return err_set (err, TRAIN_EINVAL, "reference: %d x %d tokens", B, T);
    if (!(temperature > 0) || !isfinite (temperature))
        return err_set (err, TRAIN_EINVAL,
                        "reference: temperature is %g: must be above 0",
                        temperature);
    TRY (make_room (r, n + (size_t)B, err));
    for (int b = 0; b < B; b++) {
        const int32_t *from = ids + (size_t)b * (size_t)T;
        int32_t *to = r->room + (size_t)b * (size_t)T, total = total_len[b];
        int32_t prompt = prompt_len ? prompt_len[b] : 0;

        TRY (check_row (r, from, b, prompt, total, T, err));
        memcpy (to, from, (size_t)total * sizeof (*to));
        memset (to + total, 0, (size_t)(T - total) * sizeof (*to));
        r->room[n + (size_t)b] = prompt;
    }
    TRY (r->ops->logps (r->self, r->room, r->room + n, total_len, B, T,
                        temperature, ret, err));
    for (size_t i = 0; i < n; i++)
        if (!asked ((int)(i % (size_t)T), r->room[n + i / (size_t)T],
                    total_len[i / (size_t)T]))
            ret[i] = 0;
    return TRAIN_OK;
}

size_t reference_url (const char *url)
{
    static const char scheme[] = "http://";
    size_t n = strlen (url), at = sizeof (scheme) - 1;

    if (n > at && url[n - 1] == '/')
        n--;
    return n <= at || n > 900 || strncmp (url, scheme, at) != 0
                   || at + strcspn (url + at, "/?#@ \t\r\n") < n
               ? 0
               : n;
}
