/* SPDX-License-Identifier: Apache-2.0
 * logtail.h - show a file that another machine is still writing.
 *
 * Bytes go out as they are. Beside other files, only whole lines go out, so
 * that lines of two ranks never mix; what is left at the end goes out too. Of a
 * line that was drawn over and over (progress.h) the last state goes out. A
 * file that was cut, written over or replaced at its path is read from its
 * beginning, and what was unfinished in the old one ends there. */
#ifndef RV_LOGTAIL_H
#define RV_LOGTAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/error.h"
#include "progress.h"

/* What a line is, where it goes out as JSON. */
struct logtail_as {
    bool json;
    uint32_t job_id;
    int rank; /* -1 = the batch step */
    bool is_err;
};

struct logtail {
    char *path;
    int out_fd;     /* where its bytes go */
    bool lines;     /* whole lines only */
    char label[24]; /* before each line; "" = none; needs lines */
    int fd;         /* -1 = not open yet */
    int64_t offset; /* read so far */
    char mark[32];  /* (mark_len) what stands before it in the file */
    size_t mark_len;
    bool moved;    /* another file stands at the path */
    unsigned idle; /* polls that found nothing */
    struct logtail_as as;
    bool clean; /* progress_clean each line; needs lines */
    /* NULL, or where an unfinished line may stand; erased before a write */
    struct live *live;
    char *part; /* (part_len) an unfinished line */
    size_t part_len, part_size;
    bool bar;       /* ... which was drawn over already */
    bool fresh;     /* ... and has changed since it was shown */
    int64_t bar_at; /* ... when that was, or it began; 0 = not seen yet */
    /* NULL, or tells whether a whole line, its newline included, is to be
     * kept back until logtail_release; needs lines. */
    bool (*keep) (const char *line, size_t len);
    char *kept; /* (kept_len) such lines */
    size_t kept_len;
};

/* logtail_init - the file need not exist yet.
 *   path_take   malloc'ed, freed by logtail_fini; NULL is RV_ENOMEM */
int logtail_init (struct logtail *tail, char *path_take, int out_fd, bool lines,
                  const char *label, struct rv_error *err);

/* logtail_skip - begin [lines] lines before the present end of the file. */
int logtail_skip (struct logtail *tail, long lines, struct rv_error *err);

/* logtail_poll - show what was added. A file that is not there is nothing.
 *   ret_any   written: true when something was there
 * RV_EIO when it cannot be read or the output cannot be written. */
int logtail_poll (struct logtail *tail, bool *ret_any, struct rv_error *err);

/* logtail_show_bar - show where an unfinished line stands that is drawn over
 * and over, as a line of its own, if it has changed and [every_ms] have passed
 * since the last time, or since it began. Needs clean.
 *   now_ms   of a monotonic clock */
int logtail_show_bar (struct logtail *tail, int64_t now_ms, int64_t every_ms,
                      struct rv_error *err);

/* logtail_finish - the file has ended: open it anew (a network file system
 * shows the last bytes then), show the rest and an unfinished last line. */
int logtail_finish (struct logtail *tail, struct rv_error *err);

/* logtail_release - show or drop the lines that were kept back. */
int logtail_release (struct logtail *tail, bool show, struct rv_error *err);

void logtail_fini (struct logtail *tail); /* NULL is fine */

#endif
