/* SPDX-License-Identifier: Apache-2.0
 * logtail.c - show a file that another machine is still writing */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "logtail.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jsonout.h"
#include "plan/fsio.h"

#define CHUNK          65536
#define LINE_MAX_BYTES (1 << 20) /* a longer line goes out in parts */
#define MOVED_POLLS    40        /* a second of rv logs -f */

int logtail_init (struct logtail *tail, char *path_take, int out_fd, bool lines,
                  const char *label, struct rv_error *err)
{
    memset (tail, 0, sizeof (*tail));
    tail->fd = -1;
    if (!path_take)
        return error_set (err, RV_ENOMEM, "out of memory");
    tail->path = path_take;
    tail->out_fd = out_fd;
    tail->lines = lines;
    snprintf (tail->label, sizeof (tail->label), "%s", label ? label : "");
    return RV_OK;
}

void logtail_fini (struct logtail *tail)
{
    if (!tail)
        return;
    if (tail->path && tail->fd >= 0)
        close (tail->fd);
    free (tail->path);
    free (tail->part);
    free (tail->kept);
    memset (tail, 0, sizeof (*tail));
    tail->fd = -1;
}

static int put_out (struct logtail *tail, const char *buf, size_t len,
                    struct rv_error *err)
{
    live_erase (tail->live);
    if (fsio_write_all (tail->out_fd, buf, len))
        return error_set (err, RV_EIO, "write: %s", strerror (errno));
    return RV_OK;
}

/* Returns false when there is no such file yet. */
static bool tail_open (struct logtail *tail, int *ret_status,
                       struct rv_error *err)
{
    *ret_status = RV_OK;
    if (tail->fd >= 0)
        return true;
    tail->fd = open (tail->path, O_RDONLY | O_CLOEXEC);
    if (tail->fd < 0 && errno != ENOENT)
        *ret_status = error_set (
            err, RV_EIO, "%s: %s%s", tail->path, strerror (errno),
            errno == EMFILE ? "; raise 'ulimit -n', or show fewer ranks" : "");
    return tail->fd >= 0;
}

static int keep_line (struct logtail *tail, const char *line, size_t len,
                      struct rv_error *err)
{
    char *kept = realloc (tail->kept, tail->kept_len + len);

    if (!kept)
        return error_set (err, RV_ENOMEM, "out of memory");
    memcpy (kept + tail->kept_len, line, len);
    tail->kept = kept;
    tail->kept_len += len;
    return RV_OK;
}

/* [a] and [b] as they go out; malloc'ed, NULL when out of memory.
 *   ret_at    where the line itself begins
 *   ret_len   of all */
static char *join_line (struct logtail *tail, const char *a, size_t a_len,
                        const char *b, size_t b_len, size_t *ret_at,
                        size_t *ret_len)
{
    size_t at = strlen (tail->label);
    char *line = malloc (at + a_len + b_len + 1);

    if (!line)
        return NULL;
    memcpy (line, tail->label, at);
    if (a_len)
        memcpy (line + at, a, a_len);
    memcpy (line + at + a_len, b, b_len);
    *ret_at = at;
    *ret_len = a_len + b_len;
    if (tail->clean) {
        *ret_len = progress_clean (line + at, *ret_len);
        *ret_len = progress_harmless (line + at, *ret_len);
    }
    *ret_len += at;
    return line;
}

/* The same as an object; takes [line]. */
static char *json_line (const struct logtail_as *as, char *line, size_t *len)
{
    size_t n = *len;
    char *text, *out = NULL;
    json_t *json;

    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
        n--;
    for (size_t i = 0; i < n; i++)
        line[i] = line[i] ? line[i] : '?'; /* a string ends there */
    line[n] = '\0';
    json = json_pack ("{s:s, s:I, s:o, s:s, s:o}", "schema", "rv.log/1",
                      "job_id", (json_int_t)as->job_id, "rank",
                      as->rank < 0 ? json_null () : json_integer (as->rank),
                      "stream", as->is_err ? "err" : "out", "text",
                      jsonout_text (line));
    text = json ? json_dumps (json, JSON_COMPACT) : NULL;
    if (text && asprintf (&out, "%s\n", text) >= 0)
        *len = strlen (out);
    else
        out = NULL;
    free (text);
    free (line);
    json_decref (json);
    return out;
}

static int put_line (struct logtail *tail, const char *a, size_t a_len,
                     const char *b, size_t b_len, struct rv_error *err)
{
    size_t at = 0, len = 0;
    char *line = join_line (tail, a, a_len, b, b_len, &at, &len);
    bool keep = line && tail->keep && tail->keep (line + at, len - at);
    int status;

    if (line && tail->as.json)
        line = json_line (&tail->as, line, &len);
    if (!line)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (keep)
        status = keep_line (tail, line, len, err);
    else /* One write, so that a terminal shows the line in one piece. */
        status = put_out (tail, line, len, err);
    free (line);
    return status;
}

static int keep_part (struct logtail *tail, const char *buf, size_t len,
                      struct rv_error *err)
{
    if (tail->part_len + len > tail->part_size) {
        size_t size = (tail->part_len + len) * 2;
        char *part = realloc (tail->part, size);

        if (!part)
            return error_set (err, RV_ENOMEM, "out of memory");
        tail->part = part;
        tail->part_size = size;
    }
    memcpy (tail->part + tail->part_len, buf, len);
    tail->part_len += len;
    tail->fresh = true;
    if (tail->clean && memchr (buf, '\r', len)) {
        tail->bar = true;
        tail->part_len = progress_clean (tail->part, tail->part_len);
    }
    return RV_OK;
}

static void drop_part (struct logtail *tail)
{
    tail->part_len = 0;
    tail->bar = tail->fresh = false;
    tail->bar_at = 0;
}

/* Whole lines go out in one piece where none is looked at by itself. */
static int put_lines (struct logtail *tail, const char *buf, size_t len,
                      struct rv_error *err)
{
    bool each =
        tail->label[0] || tail->keep || tail->as.json
        || (tail->clean && (tail->bar || !progress_is_plain (buf, len)));
    int status = RV_OK;

    while (len && status == RV_OK) {
        const char *end =
            each ? memchr (buf, '\n', len) : memrchr (buf, '\n', len);
        size_t n = end ? (size_t)(end - buf) + 1 : len;

        if (!end && tail->part_len + n < LINE_MAX_BYTES)
            return keep_part (tail, buf, n, err);
        status = put_line (tail, tail->part, tail->part_len, buf, n, err);
        drop_part (tail);
        buf += n;
        len -= n;
    }
    return status;
}

/* Not the file that it was: it is read from its beginning, and its unfinished
 * line will not end. */
static int begin_anew (struct logtail *tail, struct rv_error *err)
{
    int status = RV_OK;

    tail->offset = 0;
    tail->mark_len = 0;
    if (tail->part_len)
        status = put_line (tail, tail->part, tail->part_len, "\n", 1, err);
    drop_part (tail);
    return status;
}

/* Does another file stand at the path? Then the old one is read once more, for
 * what was written before it was moved away, and closed. */
static bool is_moved (struct logtail *tail)
{
    struct stat own, there;

    if (tail->moved) {
        tail->moved = false;
        close (tail->fd);
        tail->fd = -1;
        return true;
    }
    if (++tail->idle % MOVED_POLLS || fstat (tail->fd, &own)
        || stat (tail->path, &there))
        return false;
    tail->moved = own.st_ino != there.st_ino || own.st_dev != there.st_dev;
    return tail->moved;
}

/* Is what stands before the new bytes what was read there? A network file
 * system may show zeros where another machine's bytes have not arrived. */
static bool goes_on (const struct logtail *tail, const char *buf, ssize_t n)
{
    return n >= (ssize_t)tail->mark_len
           && (!memcmp (buf, tail->mark, tail->mark_len)
               || memchr (tail->mark, '\0', tail->mark_len));
}

static void keep_mark (struct logtail *tail, const char *buf, size_t n)
{
    tail->mark_len = n < sizeof (tail->mark) ? n : sizeof (tail->mark);
    memcpy (tail->mark, buf + n - tail->mark_len, tail->mark_len);
}

/* Show what is new, and look whether anything was.
 *   ret_n   written: bytes shown; -1 = look again */
static int take_more (struct logtail *tail, ssize_t *ret_n,
                      struct rv_error *err)
{
    char buf[sizeof (tail->mark) + CHUNK];
    size_t old = tail->mark_len;
    ssize_t n = pread (tail->fd, buf, old + CHUNK, tail->offset - (int64_t)old);

    *ret_n = -1;
    if (n < 0 && errno == ESTALE) { /* gone from the server */
        close (tail->fd);
        tail->fd = -1;
        return RV_OK;
    }
    if (n < 0)
        return errno == EINTR ? RV_OK
                              : error_set (err, RV_EIO, "%s: %s", tail->path,
                                           strerror (errno));
    if (!goes_on (tail, buf, n))
        return begin_anew (tail, err);
    if (n == (ssize_t)old) {
        *ret_n = is_moved (tail) ? -1 : 0;
        return RV_OK;
    }
    keep_mark (tail, buf, (size_t)n);
    *ret_n = n - (ssize_t)old;
    tail->offset += *ret_n;
    return tail->lines ? put_lines (tail, buf + old, (size_t)*ret_n, err)
                       : put_out (tail, buf + old, (size_t)*ret_n, err);
}

int logtail_poll (struct logtail *tail, bool *ret_any, struct rv_error *err)
{
    int status = RV_OK;
    ssize_t n = 1;

    *ret_any = false;
    while (n && status == RV_OK) {
        if (!tail_open (tail, &status, err))
            return status;
        status = take_more (tail, &n, err);
        *ret_any = *ret_any || n > 0;
    }
    return status;
}

int logtail_show_bar (struct logtail *tail, int64_t now_ms, int64_t every_ms,
                      struct rv_error *err)
{
    if (!tail->bar || !tail->part_len)
        return RV_OK;
    if (!tail->bar_at)
        tail->bar_at = now_ms;
    if (!tail->fresh || now_ms - tail->bar_at < every_ms)
        return RV_OK;
    tail->bar_at = now_ms;
    tail->fresh = false;
    return put_line (tail, tail->part, tail->part_len, "\n", 1, err);
}

int logtail_finish (struct logtail *tail, struct rv_error *err)
{
    bool any;
    int status;

    status = logtail_poll (tail, &any, err); /* before it may be moved */
    if (tail->fd >= 0)
        close (tail->fd);
    tail->fd = -1;
    if (status == RV_OK)
        status = logtail_poll (tail, &any, err);
    if (status == RV_OK && tail->part_len) {
        status = put_line (tail, tail->part, tail->part_len, "\n", 1, err);
        drop_part (tail);
    }
    return status;
}

int logtail_release (struct logtail *tail, bool show, struct rv_error *err)
{
    int status = RV_OK;

    if (show)
        status = put_out (tail, tail->kept, tail->kept_len, err);
    free (tail->kept);
    tail->kept = NULL;
    tail->kept_len = 0;
    return status;
}

/* Begin at [at], with the bytes before it known. */
static int begin_at (struct logtail *tail, int64_t at, struct rv_error *err)
{
    size_t want =
        at < (int64_t)sizeof (tail->mark) ? (size_t)at : sizeof (tail->mark);

    tail->offset = at;
    tail->mark_len = want;
    if (pread (tail->fd, tail->mark, want, at - (int64_t)want) == (ssize_t)want)
        return RV_OK;
    return error_set (err, RV_EIO, "%s: it changes while it is read",
                      tail->path);
}

int logtail_skip (struct logtail *tail, long lines, struct rv_error *err)
{
    struct stat st;
    char buf[4096];
    int64_t at;
    int status;

    if (!tail_open (tail, &status, err))
        return status;
    if (fstat (tail->fd, &st))
        return error_set (err, RV_EIO, "%s: %s", tail->path, strerror (errno));
    at = st.st_size;
    while (lines > 0 && at > 0) {
        size_t want = at < (int64_t)sizeof (buf) ? (size_t)at : sizeof (buf);
        ssize_t n = pread (tail->fd, buf, want, at - (int64_t)want);

        if (n != (ssize_t)want)
            return error_set (err, RV_EIO, "%s: it changes while it is read",
                              tail->path);
        for (; n > 0; n--) {
            /* The newline that ends the last line does not count. */
            if (buf[n - 1] == '\n' && at != st.st_size && lines-- <= 1)
                return begin_at (tail, at, err);
            at--;
        }
    }
    return begin_at (tail, at, err);
}
