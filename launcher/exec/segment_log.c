/* SPDX-License-Identifier: Apache-2.0
 * segment_log.c - segments.json of a request */
#include "config.h"

#include "exec/segment_log.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "exec/report.h"
#include "plan/fsio.h"
#include "plan/timefmt.h"

#define FILE_MAX ((size_t)16 << 20)

static uint32_t number (const json_t *j, const char *key)
{
    return (uint32_t)json_integer_value (json_object_get (j, key));
}

static bool is_log (const json_t *j)
{
    const char *schema = json_string_value (json_object_get (j, "schema"));

    return schema && !strcmp (schema, "rv.segments/1")
           && json_is_integer (json_object_get (j, "job_id"))
           && json_is_array (json_object_get (j, "segments"));
}

static int write_log (const struct segment_log *log, struct rv_error *err)
{
    char *text = json_dumps (log->json, JSON_INDENT (1));
    int rc;

    if (!text)
        return error_set (err, RV_ENOMEM, "out of memory");
    rc = (log->sync ? fsio_write : fsio_write_unsynced) (
        log->path, text, strlen (text), 0600, err);
    free (text);
    return rc;
}

/* What is there; none is RV_OK and [ret] stays NULL. */
static int read_log (const char *path, json_t **ret, struct rv_error *err)
{
    struct rv_error why = {0};
    char *buf = NULL;
    json_t *j;
    int rc = fsio_read (path, FILE_MAX, &buf, NULL, &why);

    if (rc == RV_ENOTFOUND)
        return RV_OK;
    if (rc)
        return error_set (err, rc, "%s", why.text);
    j = json_loads (buf, JSON_REJECT_DUPLICATES, NULL);
    free (buf);
    if (!is_log (j)) {
        json_decref (j);
        return error_set (err, RV_EFORMAT,
                          "%s is no list of segments; move it away to begin "
                          "anew",
                          path);
    }
    *ret = j;
    return RV_OK;
}

static json_t *last_of (const json_t *j)
{
    const json_t *list = json_object_get (j, "segments");
    size_t n = json_array_size (list);

    return n ? json_array_get (list, n - 1) : NULL;
}

/* Is this job the one before, put back, or chained to it? */
static bool goes_on (const json_t *j, uint32_t job_id, uint32_t root)
{
    return number (last_of (j), "job_id") == job_id
           || number (j, "job_id") == root;
}

/* The last segment left no word: it ran until the file was last touched. */
static void close_lost (const struct segment_log *log)
{
    json_t *last = last_of (log->json);
    const char *text = json_string_value (json_object_get (last, "started_at"));
    struct timespec started;
    int64_t elapsed = 0;
    struct stat st;

    if (!last || !json_is_null (json_object_get (last, "elapsed_s")))
        return;
    if (text && timefmt_parse (text, &started, NULL) == RV_OK
        && stat (log->path, &st) == 0 && st.st_mtime > started.tv_sec)
        elapsed = st.st_mtime - started.tv_sec;
    json_object_set_new (last, "elapsed_s", json_integer (elapsed));
    json_object_set_new (last, "cause",
                         json_string (segment_cause_name (CAUSE_LOST)));
}

static void sum_up (struct segment_log *log)
{
    const json_t *list = json_object_get (log->json, "segments");

    log->number = (uint32_t)json_array_size (list);
    for (size_t i = 0; i < log->number; i++) {
        const json_t *s = json_array_get (list, i);

        log->elapsed_s += number (s, "elapsed_s");
        log->retries += segment_is_retry (segment_cause_of (
            json_string_value (json_object_get (s, "cause"))));
    }
}

static int add_segment (struct segment_log *log, uint32_t job_id,
                        uint32_t restart)
{
    struct timespec now;
    char text[40];

    clock_gettime (CLOCK_REALTIME, &now);
    log->begun = now.tv_sec;
    return json_array_append_new (
        json_object_get (log->json, "segments"),
        json_pack ("{s:I, s:I, s:I, s:s, s:n, s:n, s:n}", "segment",
                   (json_int_t)log->number, "job_id", (json_int_t)job_id,
                   "restart", (json_int_t)restart, "started_at",
                   report_time (&now, text, sizeof (text)), "elapsed_s",
                   "cause", "exit_status"));
}

int segment_log_begin (const char *dir, uint32_t job_id, uint32_t restart,
                       uint32_t root, bool sync, struct segment_log *ret,
                       struct rv_error *err)
{
    struct segment_log log = {.sync = sync};
    int rc;

    if (!(log.path = fsio_join (dir, "segments.json")))
        return error_set (err, RV_ENOMEM, "out of memory");
    if ((rc = read_log (log.path, &log.json, err)))
        goto fail;
    if (log.json && !goes_on (log.json, job_id, root)) {
        json_decref (log.json);
        log.json = NULL;
    }
    if (!log.json)
        log.json = json_pack ("{s:s, s:I, s:[]}", "schema", "rv.segments/1",
                              "job_id", (json_int_t)job_id, "segments");
    close_lost (&log);
    sum_up (&log);
    log.log_id = number (log.json, "job_id");
    if (add_segment (&log, job_id, restart)) {
        rc = error_set (err, RV_ENOMEM, "out of memory");
        goto fail;
    }
    if ((rc = write_log (&log, err)))
        goto fail;
    *ret = log;
    return RV_OK;
fail:
    segment_log_fini (&log);
    return rc;
}

void segment_log_beat (const struct segment_log *log)
{
    utimensat (AT_FDCWD, log->path, NULL, 0);
}

int segment_log_end (struct segment_log *log, enum segment_cause cause,
                     int exit_status, struct rv_error *err)
{
    json_t *last = last_of (log->json);
    struct timespec now;
    int64_t elapsed;

    /* As it began: time(2) may be a tick behind. */
    clock_gettime (CLOCK_REALTIME, &now);
    elapsed = now.tv_sec - log->begun;
    json_object_set_new (last, "elapsed_s",
                         json_integer (elapsed > 0 ? elapsed : 0));
    json_object_set_new (last, "cause",
                         json_string (segment_cause_name (cause)));
    json_object_set_new (last, "exit_status",
                         exit_status < 0 ? json_null ()
                                         : json_integer (exit_status));
    return write_log (log, err);
}

void segment_log_fini (struct segment_log *log)
{
    json_decref (log->json);
    free (log->path);
    *log = (struct segment_log){0};
}
