/* SPDX-License-Identifier: Apache-2.0
 * progress.h - lines of progress on stdout. On a terminal one line changes in
 * its place between those that stay; elsewhere there are those alone. */
#ifndef RV_TRAIN_PROGRESS_H
#define RV_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include <train.h>

#define PROGRESS_LOSS 32

struct progress {
    int64_t steps, every; /* of the run; between lines that stay, 0 = none */
    bool live;            /* a terminal that is not TERM=dumb */
    bool colour;          /* NO_COLOR is not set (no-color.org) */
    bool open;            /* a line stands there without its end */
    int64_t from;         /* step of the first call, */
    double begin_s;       /* when it came, */
    double drawn_s;       /* and when the live line was drawn last */
};

/* progress_begin - look at stdout, TERM and NO_COLOR. */
void progress_begin (struct progress *p, int64_t steps, int64_t every);

/* progress_step - after each step. What is live has the time that is left, by
 * the steps so far, and mem_bytes, and is cut to the width of the terminal; it
 * is drawn ten times a second at most.
 *   eval   NULL: none after this step */
void progress_step (struct progress *p, const train_metrics_t *m,
                    const train_eval_t *eval, double tok_per_s,
                    int64_t mem_bytes);

/* progress_loss - [loss] in words: none where nothing had one (NAN), nan where it
 * is [lost]. Returns buf. */
const char *progress_loss (double loss, bool lost, char buf[PROGRESS_LOSS]);

/* progress_clear - take the live line away, before anything else is written. */
void progress_clear (struct progress *p);

#endif
