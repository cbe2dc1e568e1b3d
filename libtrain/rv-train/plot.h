/* SPDX-License-Identifier: Apache-2.0
 * plot.h - rv-train plot: curves of files of metrics */
#ifndef RV_TRAIN_PLOT_H
#define RV_TRAIN_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <train/status.h>

struct plot_point {
    double x, y;
};

struct plot_run {
    const char *name; /* borrowed */
    struct plot_point *points;
    size_t n;
    size_t left_out; /* lines whose value is null, or not above 0 with a log
                        axis */
};

/* What is drawn: [log] axes of y hold log10 already. */
struct plot {
    struct plot_run *runs;
    size_t n_runs;
    const char *x, *y; /* keys */
    bool log;
    struct plot_point low, high; /* of all points; low < high in both */
};

/* plot_cmd - argv[0] is "plot". TRAIN_EINVAL also for its options. */
train_status_t plot_cmd (int argc, char **argv, train_error_t *err);

/* plot_read - points of a file, in its order.
 *   smooth   0 <= smooth < 1: y is the mean of the points so far, each
 *            [smooth] times as heavy as the one behind it
 * TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_EFORMAT names the line that is no JSON
 * object or has not the key. */
train_status_t plot_read (struct plot_run *run, const char *path, const char *x,
                          const char *y, bool log, double smooth,
                          train_error_t *err);

/* plot_range - fill low and high; false where there is no point. */
bool plot_range (struct plot *plot);

/* plot_terminal - columns x rows of characters with axes: dots of Braille for
 * one run, a letter for each of several.
 * plot_svg - a file for browsers. TRAIN_ENOMEM. */
train_status_t plot_terminal (const struct plot *plot, FILE *to, int columns,
                              int rows, train_error_t *err);
void plot_svg (const struct plot *plot, FILE *to);

#endif
