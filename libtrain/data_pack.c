/* SPDX-License-Identifier: Apache-2.0
 * data_pack.c - which rows share a sample, and where each begins in it
 *
 * A row takes one place less than it has ids: the last is a target alone. Rows
 * go in order into the first of the samples that were begun last with room for
 * them, so that the packing is a function of the rows. */
#include <stdlib.h>
#include <string.h>

#include "data_impl.h"
#include "err.h"

#define OPEN 64 /* samples that still take rows */

struct bin {
    size_t number; /* which sample */
    int left;      /* places */
};

static int places (const struct data_rows *r, size_t row)
{
    return (int)(r->first[row + 1] - r->first[row]) - 1;
}

/* The sample of each row to [of]; returns how many there are. */
static size_t assign (const struct data_rows *r, size_t n, int seq, size_t *of)
{
    struct bin open[OPEN];
    size_t n_open = 0, n_bins = 0;

    for (size_t i = 0; i < n; i++) {
        int need = places (r, i);
        size_t b = 0;

        while (b < n_open && open[b].left < need)
            b++;
        if (b == n_open) {
            if (n_open == OPEN) { /* the oldest is as full as it gets */
                memmove (open, open + 1, (OPEN - 1) * sizeof (*open));
                n_open--;
            }
            b = n_open++;
            open[b] = (struct bin){n_bins++, seq};
        }
        open[b].left -= need;
        of[i] = open[b].number;
    }
    return n_bins;
}

/* Rows by sample, each sample's in their order: a sort by counting. */
static void sort (struct data_rows *r, size_t n, size_t n_bins,
                  const size_t *of)
{
    for (size_t i = 0; i < n; i++)
        r->bin[of[i] + 1]++;
    for (size_t b = 0; b < n_bins; b++)
        r->bin[b + 1] += r->bin[b];
    for (size_t i = n; i-- > 0;)
        r->order[--r->bin[of[i] + 1]] = i;
    /* each end went back to its begin, which stands one place too far */
    memmove (r->bin, r->bin + 1, n_bins * sizeof (*r->bin));
    r->bin[n_bins] = n;
}

train_status_t data_rows_pack (train_data_t *d, train_error_t *err)
{
    size_t n = (size_t)d->n_samples, n_bins;
    struct data_rows *r = d->rows;
    size_t *of = calloc (n + 1, sizeof (*of));

    r->order = calloc (n + 1, sizeof (*r->order));
    r->bin = calloc (n + 2, sizeof (*r->bin));
    if (!of || !r->order || !r->bin) {
        free (of);
        return err_set (err, TRAIN_ENOMEM, "no memory to pack rows");
    }
    n_bins = assign (r, n, d->seq, of);
    sort (r, n, n_bins, of);
    free (of);
    d->n_samples = (int64_t)n_bins;
    d->documents = true;
    return TRAIN_OK;
}

/* The sample's k-th row, and how many it has. */
static size_t row_of (const struct data_rows *r, int64_t index, size_t k)
{
    return r->order ? r->order[r->bin[index] + k] : (size_t)index;
}

static size_t n_rows (const struct data_rows *r, int64_t index)
{
    return r->order ? r->bin[index + 1] - r->bin[index] : 1;
}

void data_rows_get (const train_data_t *d, int64_t index, int32_t *tokens,
                    int32_t *targets)
{
    const struct data_rows *r = d->rows;
    int at = 0;

    for (size_t k = 0; k < n_rows (r, index); k++) {
        size_t row = row_of (r, index, k);
        const int32_t *ids = r->ids + r->first[row];

        for (int i = 0; i < places (r, row); i++, at++) {
            tokens[at] = ids[i];
            targets[at] = i + 1 >= r->prompt[row] ? ids[i + 1] : -1;
        }
    }
    for (; at < d->seq; at++) {
        tokens[at] = 0;
        targets[at] = -1;
    }
}

int64_t data_rows_counted (const train_data_t *d, int64_t index)
{
    const struct data_rows *r = d->rows;
    int64_t counted = 0;

    for (size_t k = 0; k < n_rows (r, index); k++) {
        size_t row = row_of (r, index, k);

        counted += places (r, row) + 1 - r->prompt[row];
    }
    return counted;
}

/* What is behind the last row is one of its own. */
void data_rows_starts (const train_data_t *d, int64_t index, int32_t *starts,
                       int32_t *documents)
{
    const struct data_rows *r = d->rows;
    size_t n = n_rows (r, index);
    int at = 0;

    for (size_t k = 0; k <= n; k++) {
        int begin = at;
        int end = k < n ? at + places (r, row_of (r, index, k)) : d->seq;

        for (; at < end; at++) {
            if (starts)
                starts[at] = begin;
            if (documents)
                documents[at] = (int32_t)k;
        }
    }
}
