/* SPDX-License-Identifier: Apache-2.0
 * progress.c - draw a line that changes, or write lines that stay */
#include "progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "libtrain/sock.h"

#define DRAW_S 0.1

void progress_begin (struct progress *p, int64_t steps, int64_t every)
{
    const char *term = getenv ("TERM"), *plain = getenv ("NO_COLOR");

    *p = (struct progress){.steps = steps, .every = every, .from = -1};
    p->live = every > 0 && isatty (STDOUT_FILENO) && term
              && strcmp (term, "dumb") != 0;
    p->colour = p->live && !(plain && *plain);
}

void progress_clear (struct progress *p)
{
    if (!p->open)
        return;
    p->open = false;
    fputs ("\r\033[K", stdout);
    fflush (stdout);
}

static int columns (void)
{
    struct winsize size;

    return ioctl (STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0
               ? size.ws_col
               : 80;
}

const char *progress_loss (double loss, bool lost, char buf[PROGRESS_LOSS])
{
    if (isnan (loss)) /* whose sign means nothing */
        snprintf (buf, PROGRESS_LOSS, "%s", lost ? "nan" : "none");
    else
        snprintf (buf, PROGRESS_LOSS, "%.4f", loss);
    return buf;
}

/* What every line begins with; returns its length. */
static int format (char *line, size_t size, const struct progress *p,
                   const train_metrics_t *m, double tok_per_s)
{
    char loss[PROGRESS_LOSS];

    return snprintf (line, size,
                     "step %" PRId64 "/%" PRId64
                     "  loss %s  grad %.3g  lr %.2e  %.0f tok/s  %.0f ms",
                     m->step, p->steps,
                     progress_loss (m->loss, m->skipped, loss), m->grad_norm,
                     m->lr, tok_per_s, m->step_s * 1e3);
}

static void stay (struct progress *p, const train_metrics_t *m,
                  const train_eval_t *eval, double tok_per_s)
{
    char line[256], held[PROGRESS_LOSS];

    progress_clear (p);
    format (line, sizeof (line), p, m, tok_per_s);
    fputs (line, stdout);
    if (m->skipped)
        printf ("  %sskipped: not finite%s", p->colour ? "\033[31m" : "",
                p->colour ? "\033[0m" : "");
    if (eval)
        printf ("  eval %s",
                progress_loss (eval->loss, eval->tokens > 0, held));
    putchar ('\n');
    fflush (stdout);
}

/* The steps of this run so far say how long those that are left will take. */
static void draw (struct progress *p, const train_metrics_t *m,
                  double tok_per_s, int64_t mem_bytes)
{
    double at = clock_s ();
    int64_t left, done = m->step - p->from;
    char line[320];
    int n;

    if (done < 1 || (p->open && at - p->drawn_s < DRAW_S))
        return;
    p->drawn_s = at;
    p->open = true;
    left = (int64_t)((at - p->begin_s) / (double)done
                     * (double)(p->steps - m->step));
    n = format (line, sizeof (line), p, m, tok_per_s);
    snprintf (line + n, sizeof (line) - (size_t)n,
              "  %" PRId64 ":%02d:%02d left  %.2f GiB", left / 3600,
              (int)(left / 60 % 60), (int)(left % 60),
              (double)mem_bytes / (1 << 30));
    printf ("\r%.*s\033[K", columns () - 1, line);
    fflush (stdout);
}

void progress_step (struct progress *p, const train_metrics_t *m,
                    const train_eval_t *eval, double tok_per_s,
                    int64_t mem_bytes)
{
    if (p->every == 0)
        return;
    if (p->from < 0) {
        p->from = m->step;
        p->begin_s = clock_s ();
    }
    if (m->step % p->every == 0 || m->step == 1 || m->step == p->steps
        || m->skipped || eval)
        stay (p, m, eval, tok_per_s);
    else if (p->live)
        draw (p, m, tok_per_s, mem_bytes);
}
