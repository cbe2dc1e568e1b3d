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

struct metrics {
    int fd;
    char *path;
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

void metrics_close (struct metrics *m)
{
    if (!m)
        return;
    if (m->fd >= 0)
        close (m->fd);
    free (m->path);
    free (m);
}

int metrics_put (struct metrics *m, const char *line, size_t n,
                 struct rv_error *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t w = write (m->fd, line + done, n - done);

        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return error_set (err, RV_EIO, "%s: %s", m->path, strerror (errno));
        done += (size_t)w;
    }
    return RV_OK;
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
