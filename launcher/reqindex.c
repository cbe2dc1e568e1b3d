/* SPDX-License-Identifier: Apache-2.0
 * reqindex.c - what was read of the requests' folders the last time */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "reqindex.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "record.h"

#define FILE_NAME      ".index"
#define INDEX_VERSION  "rv requests 3"
#define SIZE_MAX_BYTES ((size_t)256 << 20)
#define SETTLED_S      60
#define FEW            64 /* requests that are read as fast without it */

static int64_t ns_of (const struct timespec *ts)
{
    return (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
}

int reqindex_times (int root_fd, const char *name, struct reqindex_times *ret)
{
    char jobs[300];
    struct stat st;

    if ((size_t)snprintf (jobs, sizeof (jobs), "%s/jobs", name) >= sizeof (jobs)
        || fstatat (root_fd, name, &st, AT_SYMLINK_NOFOLLOW)
        || !S_ISDIR (st.st_mode))
        return RV_ENOTFOUND;
    ret->dir = ns_of (&st.st_mtim);
    if (fstatat (root_fd, jobs, &st, AT_SYMLINK_NOFOLLOW)
        || !S_ISDIR (st.st_mode))
        return RV_ENOTFOUND;
    ret->jobs = ns_of (&st.st_mtim);
    return RV_OK;
}

/* FNV-1a of a line's bytes, in the numbers of a record. */
static int64_t sum_of (const char *from, const char *to)
{
    uint64_t sum = 0xcbf29ce484222325;

    for (; from < to; from++)
        sum = (sum ^ (unsigned char)*from) * 0x100000001b3;
    return (int64_t)(sum >> 1);
}

static void get_request (struct record_in *in, struct reqindex_entry *e)
{
    struct request *req = &e->req;

    req->id = record_get_text (in);
    e->times.dir = record_get_int (in);
    e->times.jobs = record_get_int (in);
    req->name = record_get_text (in);
    req->log_dir = record_get_text (in);
    req->gpu_type = record_get_text (in);
    req->cluster = record_get_text (in);
    req->created_at = record_get_int (in);
    req->gpus = (uint32_t)record_get_int (in);
    req->tasks = (uint32_t)record_get_int (in);
    req->job_id = (uint32_t)record_get_int (in);
    req->log_id = (uint32_t)record_get_int (in);
    req->candidate = (unsigned)record_get_int (in);
    req->claimed = record_get_int (in) != 0;
    req->secrets = record_get_int (in) != 0;
    req->n_roots = (size_t)record_get_int (in);
    if (req->n_roots > REQUEST_ROOTS) {
        req->n_roots = 0;
        in->failed = true;
    }
    for (size_t i = 0; i < req->n_roots; i++)
        req->root[i] = (uint32_t)record_get_int (in);
}

/* false, and on to the next line: one that is torn, as a write of several nodes
 * at once may leave it on a network file system. */
static bool get_entry (struct record_in *in, struct reqindex_entry *e)
{
    const char *line = in->at, *end;

    get_request (in, e);
    end = in->at;
    if (record_get_int (in) != sum_of (line, end))
        in->failed = true;
    record_next (in);
    if (!in->failed)
        return true;
    request_fini (&e->req);
    in->at = line + strcspn (line, "\n");
    in->at += *in->at == '\n';
    in->failed = false;
    return false;
}

static void put_entry (struct record_out *out, const struct request *req,
                       const struct reqindex_times *times)
{
    size_t line = out->len;

    record_text (out, req->id);
    record_int (out, times->dir);
    record_int (out, times->jobs);
    record_text (out, req->name);
    record_text (out, req->log_dir);
    record_text (out, req->gpu_type);
    record_text (out, req->cluster);
    record_int (out, req->created_at);
    record_int (out, req->gpus);
    record_int (out, req->tasks);
    record_int (out, req->job_id);
    record_int (out, req->log_id);
    record_int (out, req->candidate);
    record_int (out, req->claimed);
    record_int (out, req->secrets);
    record_int (out, (int64_t)req->n_roots);
    for (size_t i = 0; i < req->n_roots; i++)
        record_int (out, req->root[i]);
    if (!out->failed)
        record_int (out, sum_of (out->text + line, out->text + out->len));
    record_end (out);
}

static bool get_version (struct record_in *in)
{
    char *text = record_get_text (in);
    bool is = text && !strcmp (text, INDEX_VERSION);

    record_next (in);
    free (text);
    return is && !in->failed;
}

static int newest_first (const void *a, const void *b)
{
    const struct reqindex_entry *x = a, *y = b;

    return strcmp (y->req.id, x->req.id);
}

static void parse (struct record_in *in, struct reqindex *ret)
{
    size_t n = record_count (in);

    if (n < 2 || !get_version (in)
        || !(ret->entry = calloc (n, sizeof (*ret->entry))))
        return;
    while (record_more (in) && ret->n < n)
        if (get_entry (in, &ret->entry[ret->n]))
            ret->n++;
    qsort (ret->entry, ret->n, sizeof (*ret->entry), newest_first);
}

void reqindex_load (const char *root, struct reqindex *ret)
{
    char *path = fsio_join (root, FILE_NAME), *text = NULL;
    struct record_in in;

    memset (ret, 0, sizeof (*ret));
    if (path && fsio_read (path, SIZE_MAX_BYTES, &text, NULL, NULL) == RV_OK) {
        in = (struct record_in){.at = text};
        parse (&in, ret);
    }
    free (text);
    free (path);
}

bool reqindex_take (struct reqindex *index, const char *name,
                    const struct reqindex_times *times, struct request *ret)
{
    for (; index->at < index->n; index->at++) {
        struct reqindex_entry *e = &index->entry[index->at];
        int order = strcmp (e->req.id, name);

        if (order < 0)
            return false;
        /* There may be several of one request. */
        if (order > 0 || e->times.dir != times->dir
            || e->times.jobs != times->jobs)
            continue;
        *ret = e->req;
        memset (&e->req, 0, sizeof (e->req));
        index->at++;
        return true;
    }
    return false;
}

/* A record has no tab and no newline in a text. */
static bool is_plain (const char *s)
{
    return !s[strcspn (s, "\t\n")];
}

static bool fits (const struct request *req)
{
    return req->job_id && is_plain (req->name) && is_plain (req->log_dir)
           && is_plain (req->gpu_type) && is_plain (req->cluster);
}

bool reqindex_wants (struct reqindex *index, const struct request *req,
                     const struct reqindex_times *times, int64_t now)
{
    int64_t before = (now - SETTLED_S) * 1000000000;

    /* Of several that wait the claim is asked for each time. */
    if ((req->n_roots > 1 && !req->claimed) || times->dir > before
        || times->jobs > before || !fits (req))
        return false;
    index->fresh++;
    return true;
}

void reqindex_note (const char *root, const struct request *req,
                    const struct reqindex_times *times)
{
    char *path = fsio_join (root, FILE_NAME);
    struct record_out out = {0};
    int fd = -1;
    struct stat st;

    if (path && req->n_roots == 1 && fits (req))
        fd = open (path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                   0600);
    if (fd >= 0 && !fstat (fd, &st) && S_ISREG (st.st_mode)
        && st.st_size < (off_t)SIZE_MAX_BYTES) {
        if (!st.st_size) {
            record_text (&out, INDEX_VERSION);
            record_end (&out);
        }
        put_entry (&out, req, times);
        /* What comes short is a torn line. */
        if (!out.failed && write (fd, out.text, out.len) < 0)
            out.failed = true;
    }
    if (fd >= 0)
        close (fd);
    free (out.text);
    free (path);
}

void reqindex_save (const char *root, const struct reqindex *index,
                    const struct request *req,
                    const struct reqindex_times *times, size_t n)
{
    char *path = fsio_join (root, FILE_NAME);
    struct record_out out = {0};

    if (path
        && ((n >= FEW && index->fresh >= FEW / 2 && index->fresh >= n / 32)
            || index->n > 2 * n + FEW)) {
        record_text (&out, INDEX_VERSION);
        record_end (&out);
        for (size_t i = 0; i < n; i++)
            if (times[i].dir)
                put_entry (&out, &req[i], &times[i]);
        if (!out.failed)
            fsio_write_unsynced (path, out.text, out.len, 0600, NULL);
        free (out.text);
    }
    free (path);
}

void reqindex_fini (struct reqindex *index)
{
    for (size_t i = 0; i < index->n; i++)
        request_fini (&index->entry[i].req);
    free (index->entry);
    memset (index, 0, sizeof (*index));
}
