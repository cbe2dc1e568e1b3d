/* SPDX-License-Identifier: Apache-2.0
 * metrics.c - write metrics, and cut the file where a resumed run goes on */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"

#define HEAD     "{\"step\":"
#define LINE_MAX 512

#define HELD_MOST ((size_t)16 << 20)

struct metrics {
    int fd;
    char *path;
    char *held; /* (n_held of cap) what the file has not taken yet */
    size_t n_held, cap;
    int why;      /* errno of the last write; 0: it was good */
    bool told;    /* that something is held */
    int64_t lost; /* lines behind them that there was no room for */
};

static int make_folder (const char *path, struct rv_error *err)
{
    char *copy = strdup (path);
    int rc = copy ? fsio_mkdir_p (dirname (copy), 0777, err)
                  : error_set (err, RV_ENOMEM, "no memory");

    free (copy);
    return rc;
}

/* Bytes of the whole lines up to [step], or -1 when some line is not ours. */
static off_t keep_bytes (FILE *f, int64_t step)
{
    char *line = NULL;
    size_t size = 0, head = strlen (HEAD);
    off_t keep = 0;
    ssize_t n;

    while ((n = getline (&line, &size, f)) > 0) {
        bool whole = line[n - 1] == '\n';
        size_t known = whole || (size_t)n > head ? head : (size_t)n;

        if (strncmp (line, HEAD, known) != 0) {
            keep = -1;
            break;
        }
        if (!whole || strtoll (line + head, NULL, 10) > step)
            break;
        keep += n;
    }
    free (line);
    return keep;
}

/* Shrink the file to the lines that stay, once it is known to be ours. */
static int cut (struct metrics *m, int64_t step, struct rv_error *err)
{
    int fd = open (m->path, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen (fd, "r");
    off_t keep;

    if (!f) {
        int rc = error_set (err, RV_EIO, "%s: %s", m->path, strerror (errno));

        if (fd >= 0)
            close (fd);
        return rc;
    }
    keep = keep_bytes (f, step);
    fclose (f);
    if (keep < 0)
        return error_set (err, RV_EFORMAT,
                          "%s is not a file of metrics; name another, or "
                          "move it away",
                          m->path);
    if (ftruncate (m->fd, keep) < 0)
        return error_set (err, RV_EIO, "%s: %s", m->path, strerror (errno));
    return RV_OK;
}

int metrics_open (struct metrics **ret, const char *path, int64_t step,
                  struct rv_error *err)
{
    struct metrics *m;
    struct stat st;
    int rc = make_folder (path, err);

    if (rc != RV_OK)
        return rc;
    if (!(m = calloc (1, sizeof (*m))) || !(m->path = strdup (path))) {
        free (m);
        return error_set (err, RV_ENOMEM, "no memory");
    }
    m->fd = open (path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (m->fd < 0 || fstat (m->fd, &st) < 0)
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    else if (S_ISREG (st.st_mode)) /* /dev/null and pipes are fine as well */
        rc = cut (m, step, err);
    if (rc != RV_OK)
        metrics_close (m);
    else
        *ret = m;
    return rc;
}

/* As much as the file takes; how many bytes that is. */
static size_t write_some (struct metrics *m, const char *data, size_t n)
{
    size_t done = 0;

    m->why = 0;
    while (done < n && m->why == 0) {
        ssize_t w = write (m->fd, data + done, n - done);

        if (w > 0)
            done += (size_t)w;
        else if (w == 0 || errno != EINTR)
            m->why = w == 0 ? ENOSPC : errno;
    }
    return done;
}

/* A line that was cut by a full disk goes on where it was cut. */
static void write_held (struct metrics *m)
{
    size_t done = write_some (m, m->held, m->n_held);

    m->n_held -= done;
    if (done > 0)
        memmove (m->held, m->held + done, m->n_held);
}

static int hold (struct metrics *m, const char *data, size_t n,
                 struct rv_error *err)
{
    size_t cap = m->cap ? m->cap : 4096;
    char *more;

    if (m->n_held + n > HELD_MOST) {
        m->lost++;
        return RV_OK;
    }
    while (cap < m->n_held + n)
        cap *= 2;
    if (cap > m->cap) {
        if (!(more = realloc (m->held, cap)))
            return error_set (err, RV_ENOMEM, "no memory for lines of %s",
                              m->path);
        m->held = more;
        m->cap = cap;
    }
    memcpy (m->held + m->n_held, data, n);
    m->n_held += n;
    return RV_OK;
}

void metrics_close (struct metrics *m)
{
    if (!m)
        return;
    if (m->n_held > 0)
        write_held (m);
    if (m->fd >= 0)
        close (m->fd);
    free (m->held);
    free (m->path);
    free (m);
}

int metrics_put (struct metrics *m, const char *line, size_t n,
                 struct rv_error *err)
{
    size_t done = 0;

    if (m->n_held > 0)
        write_held (m);
    if (m->n_held == 0)
        done = write_some (m, line, n);
    return done < n ? hold (m, line + done, n - done, err) : RV_OK;
}

bool metrics_news (struct metrics *m, char *text, size_t size)
{
    bool held = m->n_held > 0;

    if (held == m->told)
        return false;
    m->told = held;
    if (held)
        snprintf (text, size,
                  "%s: %s; the run goes on, and keeps its lines until they "
                  "can be written",
                  m->path, strerror (m->why));
    else
        snprintf (text, size, "%s: the lines that were kept are written",
                  m->path);
    return true;
}

int metrics_end (struct metrics *m, struct rv_error *err)
{
    int64_t lines = m->lost;

    if (m->n_held > 0)
        write_held (m);
    for (size_t i = 0; i < m->n_held; i++)
        lines += m->held[i] == '\n';
    return lines == 0 ? RV_OK
                      : error_set (err, RV_EIO,
                                   "%s: %s; %" PRId64 " of its lines are lost",
                                   m->path,
                                   m->n_held > 0 ? strerror (m->why)
                                                 : "there was no room for long",
                                   lines);
}

/* JSON has no NaN. */
static const char *number (double x, char buf[32])
{
    if (isfinite (x))
        snprintf (buf, 32, "%.17g", x);
    else
        snprintf (buf, 32, "null");
    return buf;
}

int metrics_write (struct metrics *m, const train_metrics_t *t,
                   const train_eval_t *eval, double tok_per_s,
                   int64_t mem_bytes, struct rv_error *err)
{
    char line[LINE_MAX], loss[32], norm[32], lr[32], held[32], scale[32];
    int n =
        snprintf (line, sizeof (line),
                  HEAD "%" PRId64 ",\"loss\":%s,\"grad_norm\":%s,"
                       "\"lr\":%s,\"tok_per_s\":%.1f,\"step_s\":%.6f,"
                       "\"tokens\":%" PRId64 ",\"skipped\":%s,"
                       "\"mem_bytes\":%" PRId64 ",\"loss_scale\":%s,"
                       "\"eval_loss\":%s}\n",
                  t->step, number (t->loss, loss), number (t->grad_norm, norm),
                  number (t->lr, lr), tok_per_s, t->step_s, t->tokens,
                  t->skipped ? "true" : "false", mem_bytes,
                  number (t->loss_scale > 0 ? t->loss_scale : NAN, scale),
                  number (eval ? eval->loss : NAN, held));

    return metrics_put (m, line, (size_t)n, err);
}
