/* SPDX-License-Identifier: Apache-2.0
 * plot_cmd.c - rv-train plot: options, and where the curves go */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd_options.h"
#include "libtrain/err.h"
#include "plot.h"

struct plan {
    struct plot plot;
    double smooth;
    const char *svg;
    int columns, rows; /* of the field; 0 = as the terminal has */
};

static const struct option options[] = {
    {"key", required_argument, NULL, 'k'},
    {"x", required_argument, NULL, 'x'},
    {"log", no_argument, NULL, 'l'},
    {"smooth", required_argument, NULL, 's'},
    {"svg", required_argument, NULL, 'o'},
    {"columns", required_argument, NULL, 'c'},
    {"rows", required_argument, NULL, 'r'},
    {NULL, 0, NULL, 0},
};

static train_status_t cells (const char *text, int *ret, const char *name,
                             train_error_t *err)
{
    long v;

    TRY (cmd_whole (name, text, 8, 1000, &v, err));
    *ret = (int)v;
    return TRAIN_OK;
}

static train_status_t take (void *self, int which, const char *arg,
                            train_error_t *err)
{
    struct plan *p = self;
    char *end;

    switch (which) {
    case 'k':
        p->plot.y = arg;
        break;
    case 'x':
        p->plot.x = arg;
        break;
    case 'l':
        p->plot.log = true;
        break;
    case 'o':
        p->svg = arg;
        break;
    case 's':
        p->smooth = strtod (arg, &end);
        if (end == arg || *end || !(p->smooth >= 0 && p->smooth < 1))
            return err_set (err, TRAIN_EINVAL,
                            "--smooth '%s' must be 0 or above, and below 1",
                            arg);
        break;
    case 'c':
        return cells (arg, &p->columns, "columns", err);
    default:
        return cells (arg, &p->rows, "rows", err);
    }
    return TRAIN_OK;
}

static void fit_terminal (struct plan *p)
{
    struct winsize w = {0};
    bool known = ioctl (STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40
                 && w.ws_row >= 16;

    if (!p->columns)
        p->columns = (known && w.ws_col <= 1000 ? w.ws_col : 80) - 20;
    if (!p->rows)
        p->rows = (known && w.ws_row <= 1000 ? w.ws_row : 24) - 6;
}

static train_status_t draw (struct plan *p, train_error_t *err)
{
    FILE *to;
    bool bad;

    if (!p->svg) {
        fit_terminal (p);
        return plot_terminal (&p->plot, stdout, p->columns, p->rows, err);
    }
    if (!(to = fopen (p->svg, "we")))
        return err_set (err, TRAIN_EIO, "%s: %s", p->svg, strerror (errno));
    plot_svg (&p->plot, to);
    bad = ferror (to);
    bad |= fclose (to) != 0;
    if (bad)
        return err_set (err, TRAIN_EIO, "%s: it could not be written whole",
                        p->svg);
    return TRAIN_OK;
}

static train_status_t run (struct plan *p, char **files, train_error_t *err)
{
    train_status_t status = TRAIN_OK;
    struct plot *plot = &p->plot;

    if (!(plot->runs = calloc (plot->n_runs, sizeof (*plot->runs))))
        return err_set (err, TRAIN_ENOMEM, "no memory for curves");
    for (size_t i = 0; i < plot->n_runs && status == TRAIN_OK; i++)
        status = plot_read (&plot->runs[i], files[i], plot->x, plot->y,
                            plot->log, p->smooth, err);
    for (size_t i = 0; i < plot->n_runs && status == TRAIN_OK; i++)
        if (plot->runs[i].left_out)
            fprintf (stderr, "rv-train: %s: %zu points without a %s left out\n",
                     files[i], plot->runs[i].left_out,
                     plot->log ? "value above 0" : "value");
    if (status == TRAIN_OK && !plot_range (plot))
        status = err_set (err, TRAIN_EFORMAT, "%s: no point of '%s'", files[0],
                          plot->y);
    if (status == TRAIN_OK)
        status = draw (p, err);
    for (size_t i = 0; i < plot->n_runs; i++)
        free (plot->runs[i].points);
    free (plot->runs);
    return status;
}

train_status_t plot_cmd (int argc, char **argv, train_error_t *err)
{
    struct plan p = {.plot = {.x = "step", .y = "loss"}};

    TRY (cmd_options (argc, argv, options, take, &p, err));
    if (optind >= argc)
        return err_set (err, TRAIN_EINVAL, "no file of metrics is named");
    p.plot.n_runs = (size_t)(argc - optind);
    return run (&p, argv + optind, err);
}
