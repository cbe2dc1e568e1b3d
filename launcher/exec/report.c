/* SPDX-License-Identifier: Apache-2.0
 * report.c - rank-N.json, status.json and the first cause */
#include "config.h"

#include "exec/report.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/log.h"
#include "plan/fsio.h"

char *report_time (const struct timespec *t, char *buf, size_t size)
{
    struct tm tm;
    size_t n;

    gmtime_r (&t->tv_sec, &tm);
    n = strftime (buf, size, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf (buf + n, size - n, ".%06ld+00:00", t->tv_nsec / 1000);
    return buf;
}

static json_t *time_json (const struct timespec *t)
{
    char buf[40];

    return json_string (report_time (t, buf, sizeof (buf)));
}

static json_t *number_or_null (bool there, int value)
{
    return there ? json_integer (value) : json_null ();
}

/* Text of a program may be any bytes; JSON is UTF-8. */
static json_t *string_any (const char *text, size_t len)
{
    json_t *j = json_stringn (text, len);
    char *copy;

    if (j || !(copy = strndup (text, len)))
        return j;
    for (char *c = copy; *c; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    j = json_string (copy);
    free (copy);
    return j;
}

static json_t *lines_json (const char *text)
{
    json_t *list = json_array ();

    while (text && *text) {
        size_t n = strcspn (text, "\n");

        json_array_append_new (list, string_any (text, n));
        text += n + (text[n] == '\n');
    }
    return list;
}

/* Takes [j], writes it and a newline. */
static int write_json (const char *dir, const char *name, json_t *j, bool sync,
                       struct rv_error *err)
{
    char *text = j ? json_dumps (j, JSON_COMPACT) : NULL, *path, *line = NULL;
    int rc = RV_ENOMEM;

    path = fsio_join (dir, name);
    if (text && path && asprintf (&line, "%s\n", text) >= 0)
        rc = (sync ? fsio_write : fsio_write_unsynced) (
            path, line, strlen (line), 0600, err);
    else
        error_set (err, rc, "%s: out of memory", name);
    free (line);
    free (path);
    free (text);
    json_decref (j);
    return rc;
}

json_t *report_rank_json (const struct report_id *id,
                          const struct child_result *r)
{
    const char *devices = getenv ("CUDA_VISIBLE_DEVICES");
    bool exited = r->exec_errno || !r->signal;
    json_t *j = json_object ();

    json_object_set_new (j, "schema", json_string ("rv.rank/1"));
    json_object_set_new (j, "job_id", json_integer (id->job_id));
    json_object_set_new (j, "restart", json_integer (id->restart));
    json_object_set_new (j, "rank", json_integer (id->rank));
    json_object_set_new (j, "node",
                         string_any (log_node (), strlen (log_node ())));
    json_object_set_new (j, "local_rank", json_integer (id->local_rank));
    json_object_set_new (j, "devices",
                         devices ? string_any (devices, strlen (devices))
                                 : json_null ());
    json_object_set_new (j, "pid", json_integer (r->pid));
    json_object_set_new (j, "started_at", time_json (&r->started));
    json_object_set_new (j, "ended_at", time_json (&r->ended));
    json_object_set_new (j, "exit_status",
                         number_or_null (exited, child_status (r)));
    json_object_set_new (j, "signal", number_or_null (!exited, r->signal));
    json_object_set_new (j, "signal_name",
                         exited ? json_null ()
                                : json_string (child_signal_name (r->signal)));
    json_object_set_new (j, "told_to_end",
                         json_boolean (child_told_to_end (r)));
    json_object_set_new (j, "provisional", json_boolean (id->provisional));
    json_object_set_new (j, "out_of_memory",
                         r->oom < 0 ? json_null () : json_boolean (r->oom));
    json_object_set_new (j, "stderr_tail", lines_json (r->tail));
    return j;
}

int report_rank (const char *dir, const struct report_id *id,
                 const struct child_result *r, struct rv_error *err)
{
    char name[40];

    snprintf (name, sizeof (name), "rank-%u.json", id->rank);
    return write_json (dir, name, report_rank_json (id, r), !id->provisional,
                       err);
}

bool report_is_fatal_signal (int signal)
{
    return signal == SIGKILL || signal == SIGSEGV || signal == SIGBUS
           || signal == SIGILL || signal == SIGFPE;
}

static const char *text_of (const json_t *j, const char *key)
{
    const char *text = json_string_value (json_object_get (j, key));

    return text ? text : "";
}

/* "2026-11-28T00:43:00.123456+00:00" to microseconds; -1 when it is not one.
 * Our own writing: always UTC. */
static long long time_at (const json_t *j, const char *key)
{
    struct tm tm = {0};
    const char *rest = strptime (text_of (j, key), "%Y-%m-%dT%H:%M:%S", &tm);
    char *end;
    long us;

    if (!rest || *rest != '.')
        return -1;
    us = strtol (rest + 1, &end, 10);
    if (end != rest + 7)
        return -1;
    return (long long)timegm (&tm) * 1000000 + us;
}

static long long time_of (const json_t *j)
{
    return time_at (j, "ended_at");
}

double report_seconds (const json_t *j)
{
    return (double)(time_of (j) - time_at (j, "started_at")) / 1e6;
}

static bool is_bad (const json_t *j)
{
    return json_integer_value (json_object_get (j, "signal")) != 0
           || json_integer_value (json_object_get (j, "exit_status")) != 0;
}

/* Smaller is more of a cause. */
static int kind_of (const json_t *j)
{
    int signal = (int)json_integer_value (json_object_get (j, "signal"));

    if (signal == SIGTERM)
        return 2;
    return report_is_fatal_signal (signal) ? 0 : 1;
}

static bool is_provisional (const json_t *j)
{
    return json_is_true (json_object_get (j, "provisional"));
}

/* A provisional end may be what the step did to a rank because of another, so
 * among these nothing but time tells the cause. */
static bool goes_before (const json_t *a, const json_t *b)
{
    long long ta = time_of (a), tb = time_of (b);
    int ka = kind_of (a), kb = kind_of (b);

    if (is_provisional (a) != is_provisional (b))
        return is_provisional (b);
    if (is_provisional (a))
        return ta < tb;
    if ((ka == 2) != (kb == 2))
        return ka < kb;
    if (ka != kb && llabs (ta - tb) <= CAUSE_WINDOW_MS * 1000LL)
        return ka < kb;
    return ta < tb;
}

static json_t *load_rank (const char *dir, const char *name, uint32_t job_id,
                          uint32_t restart)
{
    char *path = fsio_join (dir, name);
    json_t *j = path ? json_load_file (path, 0, NULL) : NULL;

    free (path);
    if (!strcmp (text_of (j, "schema"), "rv.rank/1")
        && json_integer_value (json_object_get (j, "job_id")) == job_id
        && json_integer_value (json_object_get (j, "restart")) == restart
        && time_of (j) >= 0)
        return j;
    json_decref (j);
    return NULL;
}

static bool is_rank_name (const char *name)
{
    unsigned rank;
    int n = 0;

    return sscanf (name, "rank-%9u.json%n", &rank, &n) == 1 && n && !name[n];
}

int report_first_cause (const char *dir, uint32_t job_id, uint32_t restart,
                        json_t **ret_cause, unsigned *ret_ranks,
                        struct rv_error *err)
{
    DIR *d = opendir (dir);
    json_t *cause = NULL, *j;
    struct dirent *e;
    unsigned n = 0;

    if (!d)
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    while ((e = readdir (d))) {
        if (!is_rank_name (e->d_name)
            || !(j = load_rank (dir, e->d_name, job_id, restart)))
            continue;
        n++;
        if (is_bad (j) && (!cause || goes_before (j, cause))) {
            json_decref (cause);
            cause = j;
        } else
            json_decref (j);
    }
    closedir (d);
    *ret_cause = cause;
    *ret_ranks = n;
    return RV_OK;
}

bool report_told (const char *dir, uint32_t job_id, uint32_t restart,
                  uint32_t ranks)
{
    bool told = false;
    char name[40];

    for (uint32_t r = 0; r < ranks && !told; r++) {
        json_t *j;

        snprintf (name, sizeof (name), "rank-%u.json", r);
        j = load_rank (dir, name, job_id, restart);
        told = json_is_true (json_object_get (j, "told_to_end"));
        json_decref (j);
    }
    return told;
}

bool report_missing (const char *dir, uint32_t job_id, uint32_t restart,
                     uint32_t ranks, uint32_t *ret_rank)
{
    char name[40];

    for (uint32_t r = 0; r < ranks; r++) {
        json_t *j;

        snprintf (name, sizeof (name), "rank-%u.json", r);
        if (!(j = load_rank (dir, name, job_id, restart))) {
            *ret_rank = r;
            return true;
        }
        json_decref (j);
    }
    return false;
}

bool report_is_over (const char *dir, uint32_t job_id, uint32_t restart,
                     int *ret_exit_status)
{
    char *path = fsio_join (dir, "status.json");
    json_t *j = path ? json_load_file (path, 0, NULL) : NULL;
    bool ended, blame = json_is_object (json_object_get (j, "first_cause"));
    int status = (int)json_integer_value (json_object_get (j, "exit_status"));

    ended = !strcmp (text_of (j, "schema"), "rv.status/1")
            && !strcmp (text_of (j, "state"), "done")
            && json_integer_value (json_object_get (j, "job_id")) == job_id
            && json_integer_value (json_object_get (j, "restart")) < restart;
    if (!blame
        && (status == EXEC_FAILED
            || json_integer_value (json_object_get (j, "signal")) == SIGTERM))
        ended = false;
    *ret_exit_status = status;
    free (path);
    json_decref (j);
    return ended;
}

/* Not by the step: a provisional kill is most often the step's, and so is the
 * status of a shell whose command was killed before it. */
static bool failed_itself (const json_t *j)
{
    int signal = (int)json_integer_value (json_object_get (j, "signal"));
    int status = (int)json_integer_value (json_object_get (j, "exit_status"));

    if (!signal && status > 128)
        signal = status - 128;
    return is_bad (j) && !json_is_true (json_object_get (j, "told_to_end"))
           && !(is_provisional (j) && (signal == SIGKILL || signal == SIGTERM));
}

void report_others (const char *dir, uint32_t job_id, uint32_t restart,
                    uint32_t ranks, int64_t cause, bool running,
                    json_t **ret_well, json_t **ret_failed, json_t **ret_silent)
{
    char name[40];

    *ret_well = json_array ();
    *ret_failed = json_array ();
    *ret_silent = json_array ();
    for (uint32_t r = 0; r < ranks; r++) {
        json_t *j, *list;

        if (r == cause)
            continue;
        snprintf (name, sizeof (name), "rank-%u.json", r);
        j = load_rank (dir, name, job_id, restart);
        list = !j                  ? (running ? *ret_well : *ret_silent)
               : failed_itself (j) ? *ret_failed
                                   : *ret_well;
        json_array_append_new (list, json_integer (r));
        json_decref (j);
    }
}

int report_failure (const char *dir, const json_t *failure,
                    struct rv_error *err)
{
    return write_json (dir, "failure.json", json_deep_copy (failure), true,
                       err);
}

int report_status (const char *dir, const struct report_status *s,
                   struct rv_error *err)
{
    json_t *j = json_object ();

    json_object_set_new (j, "schema", json_string ("rv.status/1"));
    json_object_set_new (j, "job_id", json_integer (s->job_id));
    json_object_set_new (j, "state",
                         json_string (s->done      ? "done"
                                      : s->waiting ? "waiting"
                                                   : "running"));
    json_object_set_new (j, "restart", json_integer (s->restart));
    json_object_set_new (j, "nodes",
                         s->nodes ? json_string (s->nodes) : json_null ());
    json_object_set_new (j, "started_at", time_json (&s->started));
    json_object_set_new (j, "ended_at",
                         s->done || s->waiting ? time_json (&s->ended)
                                               : json_null ());
    json_object_set_new (j, "exit_status",
                         number_or_null (s->done, s->exit_status));
    json_object_set_new (j, "signal",
                         number_or_null (s->done && s->signal, s->signal));
    if (s->first_cause)
        json_object_set (j, "first_cause", s->first_cause);
    else
        json_object_set_new (j, "first_cause", json_null ());
    json_object_set_new (j, "message",
                         s->message
                             ? string_any (s->message, strlen (s->message))
                             : json_null ());
    json_object_set_new (
        j, "next_job_id",
        number_or_null (s->next_job_id != 0, (int)s->next_job_id));
    return write_json (dir, "status.json", j, true, err);
}
