/* SPDX-License-Identifier: Apache-2.0
 * decode_advance.h - one row of advance, on the host and on a GPU */
#ifndef KERN_DECODE_ADVANCE_H
#define KERN_DECODE_ADVANCE_H

#include "kernels/decode.h"

HALF_FN void advance_row (const struct kern_advance *a, size_t i)
{
    int32_t id;
    size_t to;
    bool ends;

    if (a->at[i] < 0)
        return;
    id = a->ids[i];
    to = i * a->most + (size_t)a->count[i]++ % a->most;
    ends = id < 0 || a->at[i] + 1 >= a->end[i];
    for (size_t k = 0; k < a->n_stop; k++)
        ends = ends || a->stop[k] == id;
    a->told[to] = id;
    a->told_logp[to] = a->logp[i];
    a->tokens[i] = id < 0 ? 0 : id;
    a->at[i] = ends ? -1 : a->at[i] + 1;
}

#endif
