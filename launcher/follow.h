/* SPDX-License-Identifier: Apache-2.0
 * follow.h - show a job's output until it ends, and say how it ended. */
#ifndef RV_FOLLOW_H
#define RV_FOLLOW_H

#include <stdbool.h>

#include "plan/error.h"
#include "reqdir.h"

struct follow_opts {
    bool out, err;   /* which streams of the ranks */
    int rank;        /* one rank alone, or the first; -1 = all */
    int n_ranks;     /* so many from [rank] on; 0 and 1 = that one */
    long tail;       /* begin with so many lines; < 0 = all */
    bool label;      /* "2: " before each line */
    bool batch;      /* the batch step's own output too */
    bool raw;        /* bytes as they are: no label, no whole lines */
    bool json;       /* an rv.log/1 object a line, all on standard output */
    bool exact_out;  /* standard output, where it is no terminal, has what one
                        rank wrote there, byte by byte, and whole lines of
                        several */
    bool may_cancel; /* a second ^C cancels the job */
};

/* follow_show - what the logs hold now, once. RV_ENOTFOUND when there is no
 * log yet. */
int follow_show (const struct request *req, const struct follow_opts *opts,
                 struct rv_error *err);

/* follow_job - show the output of req->job_id until it ends.
 *   ret_status   written: the command's exit status (128+N for signal N), 125
 *                when it never started; 128+N when signal N made rv leave the
 *                job running
 * Progress and the reason of a bad end go to stderr as lines that begin with
 * "rv: ". Takes SIGINT, SIGQUIT, SIGTERM and SIGHUP while it runs. */
int follow_job (const struct request *req, const struct follow_opts *opts,
                int *ret_status, struct rv_error *err);

#endif
