/* SPDX-License-Identifier: Apache-2.0
 * plot_draw.c - curves as characters and as SVG */
#include "config.h"

#include "plot.h"

#include <math.h>
#include <stdlib.h>

#include "libtrain/err.h"

#define WIDTH  860 /* of the SVG, and what is around the field */
#define HEIGHT 480
#define LEFT   70
#define RIGHT  20
#define TOP    20
#define BOTTOM 50

static double unlog (const struct plot *p, double y)
{
    return p->log ? pow (10, y) : y;
}

/* A field of cells, each [wide] x [high] dots. */
struct field {
    unsigned char *cell; /* (rows,columns) dots as bits, or a letter */
    int columns, rows, wide, high;
};

static void dot (struct field *f, int x, int y, size_t run)
{
    /* Unicode 15, 15.1 "Braille Patterns": the dots' order */
    static const unsigned char bit[4][2] = {
        {0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    unsigned char *c = &f->cell[y / f->high * f->columns + x / f->wide];

    if (f->wide == 1)
        *c = (unsigned char)('a' + run % 26);
    else
        *c = (unsigned char)(*c | bit[y % 4][x % 2]);
}

static int place (double v, double low, double high, int dots)
{
    return (int)lround ((v - low) / (high - low) * (dots - 1));
}

/* Dots from point to point, so that a steep fall has no gap. */
static void curve (struct field *f, const struct plot *p, size_t run)
{
    const struct plot_run *r = &p->runs[run];
    int w = f->columns * f->wide, h = f->rows * f->high, x0 = 0, y0 = 0;

    for (size_t i = 0; i < r->n; i++) {
        int x = place (r->points[i].x, p->low.x, p->high.x, w);
        int y = h - 1 - place (r->points[i].y, p->low.y, p->high.y, h);
        int steps = i == 0                        ? 0
                    : abs (x - x0) > abs (y - y0) ? abs (x - x0)
                                                  : abs (y - y0);

        for (int s = 0; s < steps; s++)
            dot (f, x0 + (x - x0) * s / steps, y0 + (y - y0) * s / steps, run);
        dot (f, x, y, run);
        x0 = x;
        y0 = y;
    }
}

static void put_cell (const struct field *f, unsigned char c, FILE *to)
{
    if (f->wide == 1)
        fputc (c ? c : ' ', to);
    else if (!c)
        fputc (' ', to);
    else /* U+2800 and the dots */
        fprintf (to, "\xe2%c%c", 0xa0 | c >> 6, 0x80 | (c & 0x3f));
}

static void put_field (const struct field *f, const struct plot *p, FILE *to)
{
    for (int y = 0; y < f->rows; y++) {
        int last = f->columns;

        if (y == 0 || y == f->rows - 1)
            fprintf (to, "%10.4g |", unlog (p, y == 0 ? p->high.y : p->low.y));
        else
            fprintf (to, "%10s |", "");
        while (last > 0 && !f->cell[y * f->columns + last - 1])
            last--;
        for (int x = 0; x < last; x++)
            put_cell (f, f->cell[y * f->columns + x], to);
        fputc ('\n', to);
    }
    fprintf (to, "%10s +", "");
    for (int x = 0; x < f->columns; x++)
        fputc ('-', to);
    fprintf (to, "\n%12s%-*.6g%.6g  %s\n", "", f->columns - 6, p->low.x,
             p->high.x, p->x);
}

train_status_t plot_terminal (const struct plot *p, FILE *to, int columns,
                              int rows, train_error_t *err)
{
    struct field f = {.columns = columns, .rows = rows, .wide = 1, .high = 1};

    if (p->n_runs == 1) {
        f.wide = 2;
        f.high = 4;
    }
    f.cell = calloc ((size_t)columns * (size_t)rows, 1);
    if (!f.cell)
        return err_set (err, TRAIN_ENOMEM, "no memory for a picture");
    for (size_t r = 0; r < p->n_runs; r++)
        curve (&f, p, r);
    fprintf (to, "%s%s\n", p->y, p->log ? " (log)" : "");
    put_field (&f, p, to);
    for (size_t r = 0; p->n_runs > 1 && r < p->n_runs; r++)
        fprintf (to, "%12s%c  %s\n", "", (int)('a' + r % 26), p->runs[r].name);
    free (f.cell);
    return TRAIN_OK;
}

static double svg_x (const struct plot *p, double x)
{
    return LEFT
           + (x - p->low.x) / (p->high.x - p->low.x) * (WIDTH - LEFT - RIGHT);
}

static double svg_y (const struct plot *p, double y)
{
    return HEIGHT - BOTTOM
           - (y - p->low.y) / (p->high.y - p->low.y) * (HEIGHT - TOP - BOTTOM);
}

static void escaped (const char *s, FILE *to)
{
    for (; *s; s++)
        if (*s == '&')
            fputs ("&amp;", to);
        else if (*s == '<')
            fputs ("&lt;", to);
        else if ((unsigned char)*s >= ' ')
            fputc (*s, to);
}

static void svg_axes (const struct plot *p, FILE *to)
{
    for (int i = 0; i <= 4; i++) {
        double x = p->low.x + (p->high.x - p->low.x) * i / 4;
        double y = p->low.y + (p->high.y - p->low.y) * i / 4;

        fprintf (to,
                 "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/>"
                 "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n"
                 "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.6g"
                 "</text>\n",
                 LEFT, svg_y (p, y), WIDTH - RIGHT, LEFT - 6, svg_y (p, y) + 4,
                 unlog (p, y), svg_x (p, x), HEIGHT - BOTTOM + 18, x);
    }
    fprintf (to, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", WIDTH / 2,
             HEIGHT - 12);
    escaped (p->x, to);
    fprintf (to, "</text>\n<text x=\"4\" y=\"14\">");
    escaped (p->y, to);
    fprintf (to, "</text>\n");
}

/* At most a thousand points of a run: means of neighbours. */
static void svg_curve (const struct plot *p, size_t run, FILE *to)
{
    static const char *const colour[] = {"#1f77b4", "#d62728", "#2ca02c",
                                         "#9467bd", "#ff7f0e", "#17becf"};
    const struct plot_run *r = &p->runs[run];
    size_t each = (r->n + 999) / 1000;
    const char *c = colour[run % 6];

    fprintf (to,
             "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.5\" "
             "points=\"",
             c);
    for (size_t i = 0; i < r->n; i += each) {
        size_t end = i + each < r->n ? i + each : r->n;
        double x = 0, y = 0;

        for (size_t k = i; k < end; k++) {
            x += r->points[k].x;
            y += r->points[k].y;
        }
        fprintf (to, "%.1f,%.1f ", svg_x (p, x / (double)(end - i)),
                 svg_y (p, y / (double)(end - i)));
    }
    fprintf (to,
             "\"/>\n<text x=\"%d\" y=\"%zu\" fill=\"%s\" "
             "text-anchor=\"end\">",
             WIDTH - RIGHT - 6, TOP + 14 + 16 * run, c);
    escaped (r->name, to);
    fprintf (to, "</text>\n");
}

void plot_svg (const struct plot *p, FILE *to)
{
    fprintf (to,
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
             "height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n"
             "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
             WIDTH, HEIGHT);
    svg_axes (p, to);
    for (size_t r = 0; r < p->n_runs; r++)
        svg_curve (p, r, to);
    fprintf (to, "</svg>\n");
}
