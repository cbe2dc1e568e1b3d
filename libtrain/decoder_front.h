/* SPDX-License-Identifier: Apache-2.0
 * decoder_front.h - rows that have a target, at the front of their arrays */
#ifndef TRAIN_DECODER_FRONT_H
#define TRAIN_DECODER_FRONT_H

#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

struct train_decoder;

/* Rows with a target, which the head of log-probabilities is of, at the front of
 * their arrays; the numbers are where the kernels are. */
struct decoder_front {
    size_t n;               /* of the pass; B T: all rows, which stay */
    const int32_t *targets; /* (n) of these, -1 what fills up */
    const int32_t *rows;    /* (n) where they come from, -1 likewise */
    const int32_t *where;   /* (N) where they are, -1 without a target */
    void *dlogp;            /* (n) of real */
    char *room;             /* what rows are moved through */
    size_t room_bytes;
    void *own; /* memory of these on the host */
    size_t own_bytes;
};

/* decoder_front_rows - how many rows the head is of, [counted] of them with a
 * target. On a GPU it is one of some sixteen sizes, for each of which products
 * choose anew.
 * decoder_front_fill - the rows' numbers: (3,N), of which decoder_front_use takes
 * the addresses.
 *   targets   (N) of the host
 * decoder_front_host - both, for a pass of the host, whose targets are in place.
 * TRAIN_ENOMEM
 * decoder_front, decoder_back - rows of [x], each of [bytes], to the front, and
 * back with zeros between; x NULL: nothing. All rows have a target: nothing. */
size_t decoder_front_rows (const struct train_decoder *m, size_t counted);
void decoder_front_fill (int32_t *to, const int32_t *targets, size_t N,
                         size_t n);
void decoder_front_use (struct train_decoder *m, size_t n, int32_t *at);
train_status_t decoder_front_host (struct train_decoder *m, train_error_t *err);
train_status_t decoder_front (struct train_decoder *m, void *x, size_t bytes,
                              train_error_t *err);
train_status_t decoder_back (struct train_decoder *m, void *x, size_t bytes,
                             train_error_t *err);

#endif
