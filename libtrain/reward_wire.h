/* SPDX-License-Identifier: Apache-2.0
 * reward_wire.h - the lines between a reward and its program. Inside libtrain
 * only.
 *
 *   {"id": 7, "prompt": "12+34=", "completion": "46", "answer": "46"}
 *   {"id": 7, "reward": 1.0}
 *
 * A request has the row's fields beside its own three, whose names it has to
 * itself. A reply's reward is a number, or null: nothing to say. */
#ifndef TRAIN_REWARD_WIRE_H
#define TRAIN_REWARD_WIRE_H

#include "reward_impl.h"

#define WIRE_MAX_REPLY ((size_t)1 << 20) /* bytes of a line */

/* wire_request - a line with its newline, which the caller frees. TRAIN_ENOMEM. */
train_status_t wire_request (const struct reward_view *view, int64_t id,
                             char **ret, size_t *ret_n, train_error_t *err);

/* wire_reply - what a line without its newline says.
 *   ret   written: the reward, NaN for null
 * TRAIN_EFORMAT: it is no reply, or not to [id]; the text says why. */
train_status_t wire_reply (const char *line, size_t n, int64_t id, float *ret,
                           train_error_t *err);

/* A line that comes in pieces. Zeros begin it; the owner frees [p]. */
struct wire_line {
    char *p;
    size_t n, cap;
};

enum wire_take {
    WIRE_MORE,   /* no whole line yet */
    WIRE_LINE,   /* [p], [n - 1] bytes and the newline; nothing behind it */
    WIRE_BEHIND, /* the same, and bytes behind it, which are lost */
    WIRE_HUGE,   /* past WIRE_MAX_REPLY */
    WIRE_NO_MEMORY,
};

/* wire_take - add [n] bytes. After anything but WIRE_MORE set line->n to 0. */
enum wire_take wire_take (struct wire_line *line, const char *bytes, size_t n);

#endif
