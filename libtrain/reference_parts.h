/* SPDX-License-Identifier: Apache-2.0
 * reference_parts.h - a request for log-probabilities, in as many parts as are
 * small enough. Inside libtrain only. */
#ifndef TRAIN_REFERENCE_PARTS_H
#define TRAIN_REFERENCE_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

struct reference_rows {
    const int32_t *ids;                    /* (B,T) */
    const int32_t *prompt_len, *total_len; /* (B) */
    int B, T;
    float *ret; /* (B,T) written */
};

/* Ask for [rows]. *ret_large: no, for they are too many tokens at once; the
 * status says why. */
typedef train_status_t (*reference_ask_t) (void *arg,
                                           const struct reference_rows *rows,
                                           bool *ret_large, train_error_t *err);

/* reference_in_parts - ask for all rows at once where they have at most *most
 * tokens with what pads them, else for some after others, each time no wider than
 * its longest text. What is too large is halved, down to one row.
 *   most   0: not known; made smaller where [ask] says so
 * Of [ask]: its status at one row that is too large, or at any other failure.
 * TRAIN_ENOMEM. */
train_status_t reference_in_parts (const struct reference_rows *rows,
                                   size_t *most, reference_ask_t ask, void *arg,
                                   train_error_t *err);

#endif
