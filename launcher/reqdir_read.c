/* SPDX-License-Identifier: Apache-2.0
 * reqdir_read.c - read the folders of requests, and what a job left there */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "exec/claim.h"
#include "jobfile.h"
#include "plan/fsio.h"
#include "plan/timefmt.h"
#include "reqdir.h"
#include "reqindex.h"

#define FILE_MAX ((size_t)1 << 20)

static json_t *read_json (const char *dir, const char *name,
                          struct rv_error *err)
{
    char *path = fsio_join (dir, name), *buf = NULL;
    json_t *json = NULL;
    size_t len;

    if (path && fsio_read (path, FILE_MAX, &buf, &len, err) == RV_OK) {
        json = json_loadb (buf, len, 0, NULL);
        if (!json)
            error_set (err, RV_EFORMAT, "%s is not JSON", path);
    }
    free (buf);
    free (path);
    return json;
}

static char *dup_member (const json_t *json, const char *key)
{
    const char *s = json_string_value (json_object_get (json, key));

    return strdup (s ? s : "");
}

/* Of several jobs: the newest of the chain that holds the claim, else the first
 * that was submitted. */
static void choose_job (struct request *req, const char *dir,
                        const struct jobfile *list, size_t n)
{
    const struct claim c = {.dir = dir};
    struct claim_holder h = {.number = -1};
    struct jobfile best = list[0];

    if (n > 1 && claim_read (&c, &h, NULL) == RV_OK && h.number >= 0) {
        req->claimed = true;
        /* One that was submitted but not noted. */
        best = (struct jobfile){h.job_id, h.root, 1};
    }
    for (size_t i = 0; i < n; i++)
        if (list[i].root == best.root)
            best = list[i];
    for (size_t i = 0; i < n; i++)
        if (list[i].root == list[i].job_id && req->n_roots < REQUEST_ROOTS)
            req->root[req->n_roots++] = list[i].job_id;
    req->job_id = best.job_id;
    req->log_id = best.root == best.job_id ? 0 : best.root;
    req->candidate = best.candidate;
}

/* What depends on the plan of the job that it is. */
static json_t *read_plan (const char *dir, struct request *req, json_t *first)
{
    char name[32];
    json_t *json;

    if (req->candidate <= 1)
        return first;
    jobfile_name ("request", "json", req->candidate, name, sizeof (name));
    if (!(json = read_json (dir, name, NULL)))
        return first;
    json_decref (first);
    return json;
}

static void take_plan (struct request *req, const json_t *json)
{
    free (req->gpu_type);
    req->gpu_type = dup_member (json, "gpu_type");
    req->gpus = (uint32_t)json_integer_value (json_object_get (json, "gpus"));
    req->tasks = (uint32_t)json_integer_value (json_object_get (json, "tasks"));
}

/* The job that its batch step names: rv run was killed before it could. */
static uint32_t started_job (const char *dir)
{
    json_t *json = read_json (dir, "status.json", NULL);
    json_int_t id = json_integer_value (json_object_get (json, "job_id"));

    json_decref (json);
    return id > 0 && id <= UINT32_MAX ? (uint32_t)id : 0;
}

/* rv run was killed before it could call sbatch. One that has a job is not
 * readable for another reason. */
static bool read_torn (const char *dir, struct request *req)
{
    struct stat st;

    if (req->job_id || stat (dir, &st))
        return false;
    req->torn = true;
    req->id = strdup (strrchr (dir, '/') + 1);
    req->dir = strdup (dir);
    req->created_at = st.st_mtime;
    if (req->id && req->dir)
        return true;
    request_fini (req);
    return false;
}

static bool has_secrets (const char *dir)
{
    const struct request req = {.dir = (char *)dir};

    return request_has_secrets (&req);
}

static bool read_request (const char *dir, struct request *req)
{
    struct jobfile *jobs = NULL;
    struct timespec created;
    const char *when;
    json_t *json;
    size_t n = jobfile_list (dir, &jobs);

    memset (req, 0, sizeof (*req));
    json = read_json (dir, "request.json", NULL);
    if (!json) {
        free (jobs);
        return n == 0 && read_torn (dir, req);
    }
    if (n == 0)
        req->job_id = started_job (dir);
    /* The first may have been refused. */
    if (n == 1 && json_integer_value (json_object_get (json, "spares")) > 0)
        jobs[0] = jobfile_read (dir, jobs[0].job_id);
    if (n)
        choose_job (req, dir, jobs, n);
    free (jobs);
    json = read_plan (dir, req, json);
    req->id = dup_member (json, "id");
    req->dir = strdup (dir);
    req->name = dup_member (json, "name");
    req->log_dir = dup_member (json, "log_dir");
    take_plan (req, json);
    req->cluster = dup_member (json, "cluster");
    req->secrets = has_secrets (dir);
    when = json_string_value (json_object_get (json, "created_at"));
    if (when && timefmt_parse (when, &created, NULL) == RV_OK)
        req->created_at = created.tv_sec;
    json_decref (json);
    if (req->id && req->dir && req->name && req->log_dir && req->gpu_type
        && req->cluster)
        return true;
    request_fini (req);
    return false;
}

void request_index (const struct request *req)
{
    char *root = strndup (req->dir, strlen (req->dir) - strlen (req->id));
    int root_fd = root ? open (root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    struct reqindex_times times;
    struct request read;

    if (root_fd >= 0 && reqindex_times (root_fd, req->id, &times) == RV_OK
        && read_request (req->dir, &read)) {
        reqindex_note (root, &read, &times);
        request_fini (&read);
    }
    if (root_fd >= 0)
        close (root_fd);
    free (root);
}

int request_turn_to (struct request *req, uint32_t job_id)
{
    struct jobfile job = jobfile_read (req->dir, job_id);
    char name[32];
    json_t *json;

    jobfile_name ("request", "json", job.candidate, name, sizeof (name));
    if (!(json = read_json (req->dir, name, NULL)))
        return RV_EIO;
    take_plan (req, json);
    json_decref (json);
    req->job_id = job_id;
    req->log_id = job.root == job_id ? 0 : job.root;
    req->candidate = job.candidate;
    return RV_OK;
}

bool request_has_job (const struct request *req, uint32_t job_id)
{
    if (job_id == req->job_id)
        return true;
    for (size_t i = 0; i < req->n_roots; i++)
        if (req->root[i] == job_id)
            return true;
    return false;
}

static int newest_first (const struct dirent **a, const struct dirent **b)
{
    return strcmp ((*b)->d_name, (*a)->d_name);
}

static int is_request (const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The folders of requests, as they are read. */
struct reading {
    struct requests list;
    struct reqindex index;
    struct reqindex_times *times; /* of list.req, 0: not for the index */
    const char *root;
    int root_fd;
    int64_t now;
};

/* Take one that was read to its kind. */
static void sort_in (struct reading *r, const char *name, struct request *req,
                     const struct reqindex_times *times)
{
    if (!req->job_id) {
        r->list.lost[r->list.n_lost++] = *req;
        return;
    }
    if (times && !strcmp (req->id, name)
        && reqindex_wants (&r->index, req, times, r->now))
        r->times[r->list.n] = *times;
    r->list.req[r->list.n++] = *req;
}

static void read_one (struct reading *r, const char *name)
{
    struct reqindex_times times;
    struct request req;
    bool timed = reqindex_times (r->root_fd, name, &times) == RV_OK;
    char *dir = fsio_join (r->root, name);

    if (dir && timed && reqindex_take (&r->index, name, &times, &req)) {
        req.dir = dir;
        r->times[r->list.n] = times;
        r->list.req[r->list.n++] = req;
        return;
    }
    if (dir && read_request (dir, &req))
        sort_in (r, name, &req, timed ? &times : NULL);
    free (dir);
}

static int read_all (struct reading *r, struct dirent **names, size_t n,
                     size_t max, struct rv_error *err)
{
    r->list.req = calloc (n + 1, sizeof (*r->list.req));
    r->list.lost = calloc (n + 1, sizeof (*r->list.lost));
    r->times = calloc (n + 1, sizeof (*r->times));
    if (!r->list.req || !r->list.lost || !r->times)
        return error_set (err, RV_ENOMEM, "out of memory");
    reqindex_load (r->root, &r->index);
    for (size_t i = 0; i < n && (!max || r->list.n < max); i++)
        read_one (r, names[i]->d_name);
    if (!max)
        reqindex_save (r->root, &r->index, r->list.req, r->times, r->list.n);
    return RV_OK;
}

int requests_load (const char *state_dir, size_t max, struct requests *ret,
                   struct rv_error *err)
{
    char *root = fsio_join (state_dir, "requests");
    struct reading r = {.root = root, .now = time (NULL)};
    struct dirent **names = NULL;
    int n = root ? scandir (root, &names, is_request, newest_first) : -1;
    int status;

    if (n < 0 && errno != ENOENT) {
        error_set (err, RV_EIO, "%s: %s", root ? root : state_dir,
                   strerror (errno));
        free (root);
        return RV_EIO;
    }
    r.root_fd = root ? open (root, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    status = read_all (&r, names, n > 0 ? (size_t)n : 0, max, err);
    for (int i = 0; i < n; i++)
        free (names[i]);
    free (names);
    if (r.root_fd >= 0)
        close (r.root_fd);
    reqindex_fini (&r.index);
    free (r.times);
    free (root);
    if (status != RV_OK) {
        requests_fini (&r.list);
        return status;
    }
    *ret = r.list;
    return RV_OK;
}

void requests_fini (struct requests *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->n; i++)
        request_fini (&list->req[i]);
    for (size_t i = 0; i < list->n_lost; i++)
        request_fini (&list->lost[i]);
    free (list->req);
    free (list->lost);
    memset (list, 0, sizeof (*list));
}

/* The task whose folder is array/[name]. */
static bool read_task (const char *array, const char *name,
                       struct request_task *ret)
{
    char *end, file[32];
    unsigned long task = strtoul (name, &end, 10);
    json_t *json;

    if (end == name || *end || task > UINT32_MAX)
        return false;
    snprintf (file, sizeof (file), "%lu/status.json", task);
    json = read_json (array, file, NULL);
    ret->task = (uint32_t)task;
    ret->job_id =
        (uint32_t)json_integer_value (json_object_get (json, "job_id"));
    json_decref (json);
    return ret->job_id != 0;
}

struct request_task *request_tasks (const char *dir, size_t *ret_n)
{
    char *path = fsio_join (dir, "array");
    DIR *array = path ? opendir (path) : NULL;
    struct request_task *list = NULL, one;
    struct dirent *entry;

    *ret_n = 0;
    while (array && (entry = readdir (array)))
        if (read_task (path, entry->d_name, &one)) {
            struct request_task *grown =
                realloc (list, (*ret_n + 1) * sizeof (*list));

            if (!grown)
                break;
            list = grown;
            list[(*ret_n)++] = one;
        }
    if (array)
        closedir (array);
    free (path);
    return list;
}

static int int_or (const json_t *json, const char *key, int otherwise)
{
    const json_t *value = json_object_get (json, key);

    return json_is_integer (value) ? (int)json_integer_value (value)
                                   : otherwise;
}

static const char *string_or (const json_t *json, const char *key,
                              const char *otherwise)
{
    const char *s = json_string_value (json_object_get (json, key));

    return s && *s ? s : otherwise;
}

/* "rank 2 on n2 ended by signal 9 (SIGKILL): last line of stderr" */
static char *describe_cause (const json_t *rank)
{
    const json_t *tail = json_object_get (rank, "stderr_tail");
    const char *last =
        json_string_value (json_array_get (tail, json_array_size (tail) - 1));
    char how[96], line[512];
    int signal = int_or (rank, "signal", 0);

    if (signal > 0)
        snprintf (how, sizeof (how), "was ended by signal %d (%s)", signal,
                  string_or (rank, "signal_name", "no name"));
    else
        snprintf (how, sizeof (how), "ended with status %d",
                  int_or (rank, "exit_status", -1));
    snprintf (line, sizeof (line), "rank %d on %s %s%s%.300s",
              int_or (rank, "rank", -1), string_or (rank, "node", "?"), how,
              last && *last ? ": " : "", last ? last : "");
    return strdup (line);
}

/* failure.json, if it is about this start of this job. */
static json_t *read_failure (const char *dir, const json_t *status)
{
    struct rv_error why = {0};
    json_t *json = read_json (dir, "failure.json", &why);

    if (json_equal (json_object_get (json, "job_id"),
                    json_object_get (status, "job_id"))
        && json_equal (json_object_get (json, "restart"),
                       json_object_get (status, "restart")))
        return json;
    json_decref (json);
    return NULL;
}

int request_status (const char *dir, uint32_t job_id,
                    struct request_status *ret, struct rv_error *err)
{
    struct rv_error why = {0};
    json_t *json = read_json (dir, "status.json", &why), *cause;

    memset (ret, 0, sizeof (*ret));
    ret->exit_status = -1;
    if (!json && why.code == RV_ENOTFOUND)
        return RV_OK;
    if (!json)
        return error_set (err, why.code, "%s", why.text);
    if ((uint32_t)int_or (json, "job_id", 0) == job_id) {
        ret->started = true;
        ret->done = !strcmp (string_or (json, "state", ""), "done");
        if (*string_or (json, "nodes", ""))
            ret->nodes = strdup (string_or (json, "nodes", ""));
    }
    if (ret->started && !strcmp (string_or (json, "state", ""), "waiting")) {
        ret->waits = true;
        ret->next_id = (uint32_t)int_or (json, "next_job_id", 0);
        ret->cause = strdup (string_or (json, "message", "it goes on"));
    }
    if (ret->done) {
        int signal = int_or (json, "signal", 0);

        cause = json_object_get (json, "first_cause");
        ret->exit_status =
            int_or (json, "exit_status", signal > 0 ? 128 + signal : -1);
        ret->told_to_end = !json_is_object (cause) && signal == SIGTERM;
        ret->failure = read_failure (dir, json);
        ret->names_rank = json_is_object (cause) || ret->failure;
        if (json_is_object (cause))
            ret->cause = describe_cause (cause);
        else if (*string_or (json, "message", ""))
            ret->cause = strdup (string_or (json, "message", ""));
    }
    json_decref (json);
    return RV_OK;
}

void request_status_fini (struct request_status *status)
{
    free (status->cause);
    free (status->nodes);
    json_decref (status->failure);
    memset (status, 0, sizeof (*status));
}
