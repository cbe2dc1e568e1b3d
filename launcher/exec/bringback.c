/* SPDX-License-Identifier: Apache-2.0
 * bringback.c - results of a job out of the copy that it ran in
 *
 * What may be replaced in the submitting folder: a name that nobody has touched
 * since the submission, by its time of status change, which no program sets;
 * what this job brought itself, by its record; and what has the same bytes.
 * All else is somebody's newer work, so that the result is put beside it. */
#include "config.h"

#include "exec/bringback.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exec/log.h"
#include "exec/tail.h"
#include "plan/filecopy.h"
#include "plan/fsio.h"
#include "plan/outpath.h"

#define WARNINGS   10
#define RECORD_MAX ((size_t)1 << 28)
#define PIECE      65536
#define DEPTH_MAX  200

/* What stands in the submitting folder by this job. */
struct brought {
    char *path;
    int64_t mtime_ns, size;
};

struct work {
    const struct bringback *b;
    struct bringback_sum *sum;
    int to;
    int64_t marker_ns;
    struct brought *had; /* (n_had) of the record, sorted by path */
    size_t n_had;
    char *text; /* (len) the record that is written */
    size_t len;
    FILE *record;
    unsigned matched, warnings;
    char path[PATH_MAX]; /* of the name at hand, below both folders */
};

static int64_t nanoseconds (const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static void warn (struct work *w, const char *why)
{
    if (w->warnings++ < WARNINGS)
        log_line (LOG_WARN, "--output: %s: %s", w->path, why);
}

static void failed (struct work *w, const char *why)
{
    w->sum->failed++;
    warn (w, why);
}

static int by_path (const void *a, const void *b)
{
    return strcmp (((const struct brought *)a)->path,
                   ((const struct brought *)b)->path);
}

/* "MTIME SIZE PATH", each with a NUL behind it. A record that is damaged ends
 * there: what it does not tell is put beside. */
static void parse_record (struct work *w, char *text, size_t len)
{
    size_t n = 0;

    for (size_t at = 0; at < len; at += strlen (text + at) + 1)
        n++;
    if (!(w->had = calloc (n + 1, sizeof (*w->had))))
        return;
    for (size_t at = 0; at < len; at += strlen (text + at) + 1) {
        struct brought *h = &w->had[w->n_had];
        int used = 0;

        if (sscanf (text + at, "%" SCNd64 " %" SCNd64 " %n", &h->mtime_ns,
                    &h->size, &used)
                != 2
            || !used)
            break;
        h->path = text + at + used;
        w->n_had++;
    }
    qsort (w->had, w->n_had, sizeof (*w->had), by_path);
}

static void note (struct work *w, const char *path, const struct stat *st)
{
    fprintf (w->record, "%" PRId64 " %" PRId64 " %s%c",
             nanoseconds (&st->st_mtim), (int64_t)st->st_size, path, 0);
}

static bool is_ours (const struct work *w, const struct stat *st)
{
    const struct brought key = {.path = (char *)w->path};
    const struct brought *h =
        w->n_had ? bsearch (&key, w->had, w->n_had, sizeof (key), by_path)
                 : NULL;

    return h && h->mtime_ns == nanoseconds (&st->st_mtim)
           && h->size == st->st_size;
}

static bool same_bytes (int a, int b)
{
    static char x[PIECE], y[PIECE];
    off_t at = 0;
    ssize_t n;

    while ((n = pread (a, x, sizeof (x), at)) > 0) {
        if (pread (b, y, sizeof (y), at) != n || memcmp (x, y, (size_t)n))
            return false;
        at += n;
    }
    return n == 0;
}

/* Has the submitting folder the same already? [in] < 0: a link of [target]. */
static bool is_same (int dir, const char *name, int in, const char *target,
                     const struct stat *here)
{
    char there[PATH_MAX];
    struct stat st;
    ssize_t n;
    bool same;
    int fd;

    if (in < 0) {
        n = S_ISLNK (here->st_mode)
                ? readlinkat (dir, name, there, sizeof (there) - 1)
                : -1;
        return n == (ssize_t)strlen (target)
               && !memcmp (there, target, (size_t)n);
    }
    if (!S_ISREG (here->st_mode) || fstat (in, &st)
        || st.st_size != here->st_size)
        return false;
    fd = openat (dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    same = fd >= 0 && same_bytes (in, fd);
    if (fd >= 0)
        close (fd);
    return same;
}

enum place { PLACE_FREE, PLACE_OLD, PLACE_SAME, PLACE_TAKEN };

/* What is at the place of a result? */
static enum place look (const struct work *w, int dir, const char *name, int in,
                        const char *target)
{
    struct stat st;

    if (fstatat (dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? PLACE_FREE : PLACE_TAKEN;
    if (is_same (dir, name, in, target, &st))
        return PLACE_SAME;
    if (S_ISDIR (st.st_mode))
        return PLACE_TAKEN;
    return is_ours (w, &st) || nanoseconds (&st.st_ctim) <= w->marker_ns
               ? PLACE_OLD
               : PLACE_TAKEN;
}

/* Make the temporary file (in >= 0) or link. */
static int make (int dir, const char *temp, int in, const char *target,
                 struct rv_error *err)
{
    int out, rc;

    unlinkat (dir, temp, 0); /* of this job, when it was killed */
    if (in < 0)
        return symlinkat (target, dir, temp)
                   ? error_set (err, RV_EIO, "%s", strerror (errno))
                   : RV_OK;
    out = openat (dir, temp,
                  O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return error_set (err, RV_EIO, "%s", strerror (errno));
    rc = filecopy_steady (in, out, NULL, NULL, err);
    /* A network file system reports a full disk at close. */
    if (close (out) && !rc)
        rc = error_set (err, RV_EIO, "%s", strerror (errno));
    return rc;
}

/* Give the temporary file its name. RV_EPEER: somebody took it meanwhile. */
static int settle (int dir, const char *temp, const char *name,
                   enum place place, struct rv_error *err)
{
    if (place == PLACE_FREE) {
        if (renameat2 (dir, temp, dir, name, RENAME_NOREPLACE) == 0)
            return RV_OK;
        if (errno == EEXIST)
            return RV_EPEER;
        if (errno != EINVAL && errno != ENOSYS)
            return error_set (err, RV_EIO, "%s", strerror (errno));
    }
    return renameat (dir, temp, dir, name)
               ? error_set (err, RV_EIO, "%s", strerror (errno))
               : RV_OK;
}

static int put_beside (struct work *w, int dir, const char *temp,
                       const char *name, struct rv_error *err)
{
    char beside[NAME_MAX + 1], text[NAME_MAX + 120];

    if (snprintf (beside, sizeof (beside), "%s.rv-%u", name, w->b->job_id)
        >= (int)sizeof (beside))
        return error_set (err, RV_EIO, "%s", strerror (ENAMETOOLONG));
    if (renameat (dir, temp, dir, beside))
        return error_set (err, RV_EIO, "%s", strerror (errno));
    w->sum->beside++;
    snprintf (text, sizeof (text),
              "it was changed since the submission, so it stays; the result is "
              "%s beside it",
              beside);
    warn (w, text);
    return RV_OK;
}

static int place_it (struct work *w, int dir, const char *name, int in,
                     const char *target, struct rv_error *err)
{
    enum place place = look (w, dir, name, in, target);
    struct stat st;
    char temp[40];
    int rc;

    if (place == PLACE_SAME) {
        if (!fstatat (dir, name, &st, AT_SYMLINK_NOFOLLOW))
            note (w, w->path, &st);
        return RV_OK;
    }
    snprintf (temp, sizeof (temp), ".rv-%u.tmp", w->b->job_id);
    rc = make (dir, temp, in, target, err);
    if (!rc && fstatat (dir, temp, &st, AT_SYMLINK_NOFOLLOW))
        rc = error_set (err, RV_EIO, "%s", strerror (errno));
    if (!rc) {
        rc = place == PLACE_TAKEN ? RV_EPEER
                                  : settle (dir, temp, name, place, err);
        if (rc == RV_EPEER)
            rc = put_beside (w, dir, temp, name, err);
        else if (!rc)
            note (w, w->path, &st);
    }
    if (rc) {
        unlinkat (dir, temp, 0);
        return rc;
    }
    w->sum->files++;
    w->sum->bytes += (uint64_t)st.st_size;
    return RV_OK;
}

/* A file or link, [name] in the folder [from], to its place. */
static void bring (struct work *w, int from, const char *name, bool is_link)
{
    struct rv_error err = {0};
    char target[PATH_MAX] = "";
    int in = -1, dir = -1, rc = RV_OK;

    if (is_link) {
        ssize_t n = readlinkat (from, name, target, sizeof (target) - 1);

        if (n < 0)
            rc = error_set (&err, RV_EIO, "%s", strerror (errno));
        else
            target[n] = '\0';
    } else if ((in = openat (from, name,
                             O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC))
               < 0)
        rc = error_set (&err, RV_EIO, "%s", strerror (errno));
    if (!rc && (dir = filecopy_dir (w->to, w->path, true)) < 0)
        rc = errno == ELOOP || errno == ENOTDIR
                 ? error_set (&err, RV_EIO,
                              "a folder on its way is a link or a file, which "
                              "is not followed; name a folder without one")
                 : error_set (&err, RV_EIO, "%s", strerror (errno));
    if (!rc)
        rc = place_it (w, dir, name, in, target, &err);
    if (rc)
        failed (w, err.text);
    if (dir >= 0)
        close (dir);
    if (in >= 0)
        close (in);
}

static void match (struct work *w, int fd_take, const char *pattern, int depth);

/* [name] in the folder [from], whose own path is the first [len] of w->path.
 * [rest] is what the pattern has behind it; NULL: all that is there. */
static void visit (struct work *w, int from, size_t len, const char *name,
                   const char *rest, int depth)
{
    size_t n = strlen (name);
    struct stat st;

    if (fstatat (from, name, &st, AT_SYMLINK_NOFOLLOW)
        || (rest && !S_ISDIR (st.st_mode)))
        return;
    if (len + n + 2 > sizeof (w->path) || depth > DEPTH_MAX) {
        failed (w, strerror (ENAMETOOLONG));
        return;
    }
    if (len)
        w->path[len++] = '/';
    memcpy (w->path + len, name, n + 1);
    w->matched += !rest;
    if (S_ISDIR (st.st_mode))
        match (w,
               openat (from, name,
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
               rest, depth + 1);
    else if (!S_ISREG (st.st_mode) && !S_ISLNK (st.st_mode))
        warn (w, "it is no file, folder or link, and is left");
    else if (nanoseconds (&st.st_ctim) > w->marker_ns) {
        if (w->b->end_ms && tail_now_ms () >= w->b->end_ms)
            w->sum->late = true;
        else
            bring (w, from, name, S_ISLNK (st.st_mode));
    }
}

/* What [pattern] matches in a folder, which is closed here. NULL: all. */
static void match (struct work *w, int fd_take, const char *pattern, int depth)
{
    DIR *d = fd_take < 0 ? NULL : fdopendir (fd_take);
    size_t len = strlen (w->path);
    struct dirent *e;

    if (!d) {
        failed (w, strerror (errno));
        if (fd_take >= 0)
            close (fd_take);
        return;
    }
    while (!w->sum->late && (e = readdir (d))) {
        if (!strcmp (e->d_name, ".") || !strcmp (e->d_name, "..")
            || (pattern && !outpath_match (pattern, e->d_name)))
            continue;
        visit (w, dirfd (d), len, e->d_name,
               pattern ? outpath_rest (pattern) : NULL, depth);
        w->path[len] = '\0';
    }
    closedir (d);
}

static void bring_all (struct work *w, int from)
{
    for (size_t i = 0; w->b->paths[i] && !w->sum->late; i++) {
        const char *path = w->b->paths[i];
        bool whole = !strcmp (path, ".");

        w->matched = whole;
        w->path[0] = '\0';
        match (w, openat (from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
               whole ? NULL : path, 0);
        if (!w->matched && !w->sum->late) {
            snprintf (w->path, sizeof (w->path), "%s", path);
            warn (w, "the job left nothing of that name");
        }
    }
    if (w->warnings > WARNINGS)
        log_line (LOG_WARN, "--output: and %u more", w->warnings - WARNINGS);
}

/* What was brought before and not again stays known. */
static void keep_rest (struct work *w)
{
    struct stat st;

    for (size_t i = 0; i < w->n_had; i++) {
        const struct brought *h = &w->had[i];

        snprintf (w->path, sizeof (w->path), "%s", h->path);
        if (!fstatat (w->to, w->path, &st, AT_SYMLINK_NOFOLLOW)
            && is_ours (w, &st))
            note (w, h->path, &st);
    }
}

static int run (struct work *w, int from, struct rv_error *err)
{
    char *text = NULL;
    size_t len = 0;
    int rc;

    if (!fsio_read (w->b->record, RECORD_MAX, &text, &len, NULL))
        parse_record (w, text, len);
    if (!(w->record = open_memstream (&w->text, &w->len))) {
        free (w->had);
        free (text);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    bring_all (w, from);
    keep_rest (w);
    rc = fclose (w->record)
             ? error_set (err, RV_ENOMEM, "out of memory")
             : fsio_write_unsynced (w->b->record, w->text, w->len, 0600, err);
    free (w->text);
    free (w->had);
    free (text);
    return rc;
}

int bringback_run (const struct bringback *b, struct bringback_sum *sum,
                   struct rv_error *err)
{
    struct work *w = calloc (1, sizeof (*w));
    int from = open (b->from, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = RV_OK;
    struct stat st;

    *sum = (struct bringback_sum){0};
    if (!w)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else if (from < 0)
        rc = error_set (err, RV_EIO, "%s: %s", b->from, strerror (errno));
    else if (stat (b->marker, &st))
        rc = error_set (err, RV_EIO, "%s: %s", b->marker, strerror (errno));
    else if ((w->to = open (b->to, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = error_set (err, RV_EIO, "%s: %s", b->to, strerror (errno));
    if (!rc) {
        w->b = b;
        w->sum = sum;
        w->marker_ns = nanoseconds (&st.st_mtim);
        rc = run (w, from, err);
        close (w->to);
    }
    if (from >= 0)
        close (from);
    free (w);
    return rc;
}
