/* SPDX-License-Identifier: Apache-2.0
 * tail.h - the last lines of a child's stderr, without holding any back.
 *
 * Is our stderr a regular file, the end of that file is read afterwards and
 * the child writes to it directly. Otherwise the child's stderr is a pipe to
 * us; what comes is passed on at once and its end kept. A terminal is left
 * alone: a program behaves differently without one. */
#ifndef RV_EXEC_TAIL_H
#define RV_EXEC_TAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/error.h"

struct tail {
    int read_fd, write_fd; /* pipe, or -1 */
    bool file;             /* fd 2 is a regular file */
    off_t start;           /* its length when the child started */
    char *buf;             /* the last (len) bytes */
    size_t len;
};

int tail_open (struct tail *t, bool wanted, struct rv_error *err);
void tail_started (struct tail *t); /* the child has its end of the pipe */
void tail_forward (struct tail *t); /* something can be read */
/* tail_drain - pass the rest on; a grandchild that keeps the pipe open and
 * writes on is waited for at most [ms]. */
void tail_drain (struct tail *t, int ms);
/* tail_take - the last TAIL_LINES lines, malloc'ed; NULL if not wanted. */
char *tail_take (struct tail *t);
void tail_close (struct tail *t);

int64_t tail_now_ms (void); /* CLOCK_MONOTONIC */

#endif
