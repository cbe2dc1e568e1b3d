/* SPDX-License-Identifier: Apache-2.0
 * plot_data.c - points of a file of metrics */
#include "config.h"

#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "libtrain/err.h"

/* The mean so far of values whose weights fall by [keep] a step. */
struct mean {
    double keep, sum, weight;
};

static double mean_add (struct mean *m, double x)
{
    m->sum = m->keep * m->sum + x;
    m->weight = m->keep * m->weight + 1;
    return m->sum / m->weight;
}

/* One line: a point, or null, which is left out. */
static train_status_t take (struct plot_run *run, const char *path, size_t line,
                            const json_t *root, const char *const key[2],
                            bool log, struct mean *mean, train_error_t *err)
{
    double v[2];

    for (int i = 0; i < 2; i++) {
        const json_t *x = json_object_get (root, key[i]);

        if (!x || (!json_is_null (x) && !json_is_number (x)))
            return err_set (err, TRAIN_EFORMAT, "%s:%zu: it has no number '%s'",
                            path, line, key[i]);
        v[i] = json_is_null (x) ? NAN : json_number_value (x);
    }
    if (!isfinite (v[0]) || !isfinite (v[1]) || (log && v[1] <= 0)) {
        run->left_out++;
        return TRAIN_OK;
    }
    v[1] = mean_add (mean, v[1]);
    run->points[run->n++] =
        (struct plot_point){v[0], log ? log10 (v[1]) : v[1]};
    return TRAIN_OK;
}

static train_status_t read_lines (struct plot_run *run, FILE *f,
                                  const char *path, const char *const key[2],
                                  bool log, double smooth, train_error_t *err)
{
    struct mean mean = {.keep = smooth};
    train_status_t status = TRAIN_OK;
    size_t room = 0, size = 0, line = 0;
    char *text = NULL;
    ssize_t n;

    while (status == TRAIN_OK && (n = getline (&text, &size, f)) > 0) {
        json_t *root = json_loadb (text, (size_t)n, 0, NULL);

        line++;
        if (run->n == room) {
            void *p = realloc (run->points,
                               (room = 2 * room + 64) * sizeof (*run->points));

            if (!p)
                status = err_set (err, TRAIN_ENOMEM, "no memory for points");
            else
                run->points = p;
        }
        /* a run that goes on is writing its last line */
        if (!root && text[n - 1] != '\n')
            break;
        if (status == TRAIN_OK && !json_is_object (root))
            status = err_set (err, TRAIN_EFORMAT, "%s:%zu: no JSON object",
                              path, line);
        if (status == TRAIN_OK)
            status = take (run, path, line, root, key, log, &mean, err);
        json_decref (root);
    }
    free (text);
    if (status == TRAIN_OK && ferror (f))
        status = err_set (err, TRAIN_EIO, "%s: %s", path, strerror (errno));
    return status;
}

train_status_t plot_read (struct plot_run *run, const char *path, const char *x,
                          const char *y, bool log, double smooth,
                          train_error_t *err)
{
    const char *const key[2] = {x, y};
    FILE *f = fopen (path, "re");
    train_status_t status;

    if (!f)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", path, strerror (errno));
    run->name = path;
    status = read_lines (run, f, path, key, log, smooth, err);
    fclose (f);
    return status;
}

static void widen (double *low, double *high)
{
    double by = *high > *low ? 0 : fabs (*low) * 0.05 + 1e-12;

    *low -= by;
    *high += by;
}

bool plot_range (struct plot *p)
{
    bool any = false;

    for (size_t r = 0; r < p->n_runs; r++)
        for (size_t i = 0; i < p->runs[r].n; i++) {
            struct plot_point at = p->runs[r].points[i];

            if (!any)
                p->low = p->high = at;
            any = true;
            p->low.x = fmin (p->low.x, at.x);
            p->low.y = fmin (p->low.y, at.y);
            p->high.x = fmax (p->high.x, at.x);
            p->high.y = fmax (p->high.y, at.y);
        }
    widen (&p->low.x, &p->high.x);
    widen (&p->low.y, &p->high.y);
    return any;
}
