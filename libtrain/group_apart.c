/* SPDX-License-Identifier: Apache-2.0
 * group_apart.c - do the tensors of a list share memory?
 *
 * A sweep over the places in the order of their addresses: one begins before
 * another of a different number has ended, or not. Lists that are in that order
 * already, as parts of one flat buffer are, need no sort. */
#include <stdlib.h>

#include "err.h"
#include "group_impl.h"

struct place {
    uintptr_t begin, end;
    size_t i; /* of the list */
};

static size_t add (struct place *places, size_t n, const DLTensor *t, size_t i)
{
    size_t bytes = (size_t)train_tensor_numel (t) * (t->dtype.bits / 8);
    uintptr_t begin = (uintptr_t)t->data + t->byte_offset;

    if (bytes == 0)
        return n;
    places[n] = (struct place){begin, begin + bytes, i};
    return n + 1;
}

static int by_begin (const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static bool in_order (const struct place *places, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        if (places[i].begin < places[i - 1].begin)
            return false;
    }
    return true;
}

/* The one that ends last so far, and the last end of the other numbers. */
static bool sweep (const struct place *places, size_t n, size_t *ret_i,
                   size_t *ret_k)
{
    struct place last = {0, 0, 0}, other = {0, 0, 0};

    for (size_t k = 0; k < n; k++) {
        const struct place *p = &places[k];
        bool same = k > 0 && p->i == last.i;
        const struct place *before = same ? &other : &last;

        if (p->begin < before->end) {
            *ret_i = before->i;
            *ret_k = p->i;
            return true;
        }
        if (!same && p->end > last.end)
            other = last;
        else if (!same && p->end > other.end)
            other = *p;
        if (p->end > last.end)
            last = *p;
    }
    return false;
}

train_status_t group_apart (const char *what, DLTensor *const *in,
                            DLTensor *const *out, size_t n, train_error_t *err)
{
    struct place *places = n > 1 ? calloc (2 * n, sizeof (*places)) : NULL;
    size_t used = 0, i, k;
    bool shared;

    if (n < 2)
        return TRAIN_OK;
    if (!places)
        return err_set (err, TRAIN_ENOMEM, "%s: no memory for %zu tensors",
                        what, n);
    for (size_t t = 0; t < n; t++) {
        used = add (places, used, in[t], t);
        if (in != out)
            used = add (places, used, out[t], t);
    }
    if (!in_order (places, used))
        qsort (places, used, sizeof (*places), by_begin);
    shared = sweep (places, used, &i, &k);
    free (places);
    return shared ? err_set (err, TRAIN_EINVAL,
                             "%s: tensors %zu and %zu share memory", what,
                             i < k ? i : k, i < k ? k : i)
                  : TRAIN_OK;
}
