/* SPDX-License-Identifier: Apache-2.0
 * reqdir.c - write the folder of a request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "reqdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "jobfile.h"
#include "jsonout.h"
#include "plan/fsio.h"
#include "secrets.h"

/* A growing text. A failed allocation leaves text NULL for good. */
struct text {
    char *buf;
    size_t len, size;
    bool failed;
};

static void text_add (struct text *t, const char *s, size_t n)
{
    if (t->failed)
        return;
    if (!t->buf || t->len + n + 1 > t->size) {
        size_t size = (t->len + n + 1) * 2;
        char *buf = malloc (size);

        if (buf && t->buf)
            memcpy (buf, t->buf, t->len);
        free (t->buf);
        t->buf = buf;
        t->size = size;
        t->failed = !buf;
        if (!buf)
            return;
    }
    memcpy (t->buf + t->len, s, n);
    t->len += n;
    t->buf[t->len] = '\0';
}

static void text_str (struct text *t, const char *s)
{
    text_add (t, s, strlen (s));
}

/* One word for sh(1), whatever is in it. */
static void text_quoted (struct text *t, const char *s)
{
    text_str (t, "'");
    for (; *s; s++)
        if (*s == '\'')
            text_str (t, "'\\''");
        else
            text_add (t, s, 1);
    text_str (t, "'");
}

static void text_export (struct text *t, const char *name, const char *dir,
                         const char *tail)
{
    text_str (t, "export ");
    text_str (t, name);
    text_str (t, "=");
    text_quoted (t, dir);
    text_str (t, tail);
    text_str (t, "\n");
}

/* Only where the user gave no value of their own. */
static void text_default (struct text *t, const char *name, const char *value)
{
    text_str (t, "[ -n \"${");
    text_str (t, name);
    text_str (t, "+x}\" ] || export ");
    text_str (t, name);
    text_str (t, "=");
    text_quoted (t, value);
    text_str (t, "\n");
}

static void text_timeouts (struct text *t, int64_t seconds)
{
    char num[32];

    snprintf (num, sizeof (num), "%lld", (long long)seconds);
    text_default (t, "RV_NCCL_TIMEOUT", num);
    snprintf (num, sizeof (num), "%lld",
              (long long)(seconds > 480 ? seconds : 480));
    text_default (t, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", num);
    snprintf (num, sizeof (num), "%lld", (long long)((seconds + 59) / 60));
    text_default (t, "DEEPSPEED_TIMEOUT", num);
}

/* dash drops variables whose names are none of its own, such as those by which
 * bash exports functions ("BASH_FUNC_module%%"): a rank's 'module load' would
 * fail. bash hands them on. */
static const char *shell (void)
{
    return access ("/bin/bash", X_OK) ? "#!/bin/sh\n" : "#!/bin/bash\n";
}

/* The text of job.sh, malloc'ed. */
static char *job_sh (const struct request_new *from, const char *id,
                     const char *dir)
{
    struct text t = {0};
    char *out = fsio_join (from->state_dir, "outputs");
    char *ckpt = fsio_join (from->state_dir, "checkpoints");
    char tail[COMMAND_NAME_MAX + 64];

    if (out && ckpt) {
        text_str (&t, shell ());
        text_export (&t, "RV_REQUEST_ID", id, "");
        text_export (&t, "RV_REQUEST_DIR", dir, "");
        snprintf (tail, sizeof (tail), "/%s-\"$SLURM_JOB_ID\"", from->name);
        text_export (&t, "RV_OUTPUT_DIR", out, tail);
        /* Tasks of an array are different work. */
        snprintf (tail, sizeof (tail),
                  "/%s-%s\"${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}\"",
                  from->name, id);
        text_export (&t, "RV_CHECKPOINT_DIR", ckpt, tail);
        if (gres_is_mig (from->plan->type))
            text_export (&t, "RV_MIG", from->plan->type, "");
        text_str (&t, "export RV_SEGMENT=0 RV_TOTAL_ELAPSED=0\n");
        /* Said in any case: a job may be submitted from within another. */
        snprintf (tail, sizeof (tail), "export RV_CANDIDATE=%u\n",
                  from->candidate ? from->candidate : 1);
        text_str (&t, tail);
        text_default (&t, "PYTHONUNBUFFERED", "1");
        text_default (&t, "TOKENIZERS_PARALLELISM", "false");
        if (from->nccl_timeout_s > 0)
            text_timeouts (&t, from->nccl_timeout_s);
        for (size_t i = 0; i < from->n_env; i++)
            text_default (&t, from->env[i].name, from->env[i].value);
        text_str (&t, "mkdir -p \"$RV_OUTPUT_DIR\" \"$RV_CHECKPOINT_DIR\"\n");
        text_str (&t, "exec ");
        text_quoted (&t, from->rv_exec);
        text_str (&t, " --batch \"$RV_REQUEST_DIR\"\n");
    }
    free (out);
    free (ckpt);
    return t.buf;
}

static int new_id (char *id, size_t size, int64_t *ret_now,
                   struct rv_error *err)
{
    time_t now = time (NULL);
    uint32_t random;
    struct tm tm;
    size_t n;

    if (getrandom (&random, sizeof (random), 0) != sizeof (random)
        || !localtime_r (&now, &tm))
        return error_set (err, RV_EIO, "no random number: %s",
                          strerror (errno));
    n = strftime (id, size, "%Y%m%d-%H%M%S", &tm);
    snprintf (id + n, size - n, "-%08x", random);
    *ret_now = now;
    return RV_OK;
}

static json_t *describe_checkpoint (const struct checkpoint *c)
{
    if (!c->signal)
        return json_null ();
    return json_pack ("{s:s, s:I}", "signal",
                      checkpoint_signal_name (c->signal), "before_s",
                      (json_int_t)c->seconds);
}

static json_t *options_json (char *const *options)
{
    json_t *list = json_array ();

    for (size_t i = 0; options && options[i]; i++)
        json_array_append_new (list, jsonout_text (options[i]));
    return list;
}

static json_t *snapshot_json (const struct request_new *from,
                              const struct request *req)
{
    char *path = from->tree ? fsio_join (req->dir, "snapshot") : NULL;
    json_t *json = path ? worktree_json (from->tree, path) : json_null ();

    free (path);
    return json;
}

static json_t *describe (const struct request_new *from,
                         const struct request *req, const char *cwd)
{
    const struct strategy_plan *p = from->plan;

    return json_pack (
        "{s:s, s:s, s:s, s:o, s:o, s:I, s:o, s:I, s:I, s:I, s:I, s:o, s:I, "
        "s:s, s:o, s:o, s:I, s:o, s:o, s:I, s:I, s:o, s:o, s:o}",
        "schema", "rv.request/1", "id", req->id, "name", req->name,
        "created_at", jsonout_time (req->created_at), "cwd", jsonout_text (cwd),
        "gpus", (json_int_t)p->gpus, "gpu_type",
        p->type[0] ? jsonout_text (p->type) : json_null (), "nodes",
        (json_int_t)p->nodes, "tasks_per_node", (json_int_t)p->tasks_per_node,
        "tasks", (json_int_t)p->tasks, "cpus_per_task",
        (json_int_t)p->cpus_per_task, "mem_bytes",
        p->mem_mb ? json_integer ((json_int_t)p->mem_mb * 1024 * 1024)
                  : json_null (),
        "time_s", (json_int_t)p->time_s, "launch",
        from->launch == COMMAND_PER_NODE ? "per_node" : "per_gpu",
        "nccl_timeout_s",
        from->nccl_timeout_s > 0 ? json_integer (from->nccl_timeout_s)
                                 : json_null (),
        "checkpoint", describe_checkpoint (&from->checkpoint), "secrets",
        (json_int_t)(from->secrets ? from->secrets->n : 0), "log_dir",
        jsonout_text (req->log_dir), "srun_options",
        options_json (from->srun_options), "candidates",
        (json_int_t)(from->candidates ? from->candidates : 1), "spares",
        (json_int_t)from->spares, "cluster",
        from->cluster && from->cluster[0] ? jsonout_text (from->cluster)
                                          : json_null (),
        "snapshot", snapshot_json (from, req), "outputs",
        options_json (from->outputs));
}

/* A new file in the new folder: nobody reads it before the submission, so it
 * needs no other name meanwhile; request_sync makes it last. */
static int write_file (const struct request *req, const char *name,
                       const char *buf, size_t len, mode_t mode,
                       struct rv_error *err)
{
    char *path = fsio_join (req->dir, name);
    int fd = -1, status = RV_OK;

    if (!path || !buf) {
        free (path);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    fd = open (path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    /* The mode as said, whatever the umask. */
    if (fd < 0 || fsio_write_all (fd, buf, len) || fchmod (fd, mode))
        status = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    /* A network file system reports a full disk here. */
    if (fd >= 0 && close (fd) && status == RV_OK)
        status = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    free (path);
    return status;
}

/* Bring the request to the disk. The submission did not wait for it. */
static int sync_path (const char *dir, const char *name, struct rv_error *err)
{
    char *path = fsio_join (dir, name);
    int fd = path ? open (path, O_RDONLY | O_CLOEXEC) : -1;
    int status = RV_OK;

    if (fd < 0 || fsync (fd))
        status =
            error_set (err, RV_EIO, "%s/%s: %s", dir, name, strerror (errno));
    if (fd >= 0)
        close (fd);
    free (path);
    return status;
}

static int request_sync (const struct request *req, struct rv_error *err)
{
    static const char *const names[] = {"argv", "job.sh", "request.json",
                                        "jobs", "."};
    int status = RV_OK;

    for (size_t i = 0; i < sizeof (names) / sizeof (names[0]) && !status; i++)
        status = sync_path (req->dir, names[i], err);
    return status;
}

static int write_json (const struct request *req, const char *name,
                       json_t *json_take, struct rv_error *err)
{
    char *text = json_take ? json_dumps (json_take, JSON_INDENT (1)) : NULL;
    int status =
        write_file (req, name, text, text ? strlen (text) : 0, 0600, err);

    free (text);
    json_decref (json_take);
    return status;
}

static int write_argv (const struct request_new *from,
                       const struct request *req, struct rv_error *err)
{
    struct text t = {0};
    int status;

    for (int i = 0; i < from->argc; i++)
        text_add (&t, from->argv[i], strlen (from->argv[i]) + 1);
    status = write_file (req, "argv", t.buf, t.len, 0600, err);
    free (t.buf);
    return status;
}

static int write_job_sh (const struct request_new *from,
                         const struct request *req, struct rv_error *err)
{
    char *text = job_sh (from, req->id, req->dir), name[32];
    int status;

    jobfile_name ("job", "sh", from->candidate, name, sizeof (name));
    status = write_file (req, name, text, text ? strlen (text) : 0, 0700, err);

    free (text);
    return status;
}

/* Before the submission: the job may start at once. */
static int write_secrets (const struct request_new *from,
                          const struct request *req, struct rv_error *err)
{
    size_t len = 0;
    char *text;
    int status;

    if (!from->secrets || !from->secrets->n)
        return RV_OK;
    text = envfile_format (from->secrets, &len);
    status = write_file (req, SECRETS_FILE, text, len, 0600, err);
    envfile_wipe (text, len);
    return status;
}

static int make_folders (const char *state_dir, const struct request *req,
                         struct rv_error *err)
{
    char *jobs = fsio_join (req->dir, "jobs");
    int status;

    if (!jobs)
        return error_set (err, RV_ENOMEM, "out of memory");
    status = fsio_mkdir_p (state_dir, 0700, err);
    if (status == RV_OK)
        status = fsio_mkdir_p (req->log_dir, 0700, err);
    if (status == RV_OK)
        status = fsio_mkdir_p (jobs, 0700, err);
    free (jobs);
    return status;
}

/* Before argv: what changes in the copy later was changed by the job. */
static int write_snapshot (const struct request_new *from,
                           const struct request *req, struct rv_error *err)
{
    char *path = from->tree ? fsio_join (req->dir, "snapshot") : NULL;
    int status = RV_OK;

    if (from->tree && !path)
        status = error_set (err, RV_ENOMEM, "out of memory");
    else if (path)
        status = worktree_copy (from->tree, path, err);
    free (path);
    return status;
}

int request_begin (const struct request_new *from, struct request *ret,
                   struct rv_error *err)
{
    struct request req = {.gpus = from->plan->gpus,
                          .tasks = from->plan->tasks,
                          .checkpoint = from->checkpoint};
    char id[40], path[64];

    if (new_id (id, sizeof (id), &req.created_at, err) != RV_OK)
        return RV_EIO;
    snprintf (path, sizeof (path), "requests/%s", id);
    req.id = strdup (id);
    req.dir = fsio_join (from->state_dir, path);
    req.name = strdup (from->name);
    req.log_dir = fsio_join (from->state_dir, "logs");
    req.gpu_type = strdup (from->plan->type);
    if (!req.id || !req.dir || !req.name || !req.log_dir || !req.gpu_type) {
        request_fini (&req);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    *ret = req;
    return RV_OK;
}

/* What a plan of the request needs of its own. */
static int write_plan (const struct request_new *from,
                       const struct request *req, struct rv_error *err)
{
    char *cwd = getcwd (NULL, 0), name[32];
    int status;

    if (!cwd)
        return error_set (err, RV_EIO, "the working folder: %s",
                          strerror (errno));
    jobfile_name ("request", "json", from->candidate, name, sizeof (name));
    status = write_job_sh (from, req, err);
    if (status == RV_OK)
        status = write_json (req, name, describe (from, req, cwd), err);
    free (cwd);
    return status;
}

int request_write (const struct request_new *from, const struct request *req,
                   struct rv_error *err)
{
    int status = make_folders (from->state_dir, req, err);

    if (status == RV_OK)
        status = write_snapshot (from, req, err);
    if (status == RV_OK)
        status = write_argv (from, req, err);
    if (status == RV_OK)
        status = write_secrets (from, req, err);
    if (status == RV_OK)
        status = write_plan (from, req, err);
    if (status != RV_OK)
        request_discard (req);
    return status;
}

int request_add (const struct request_new *from, struct request *req,
                 struct rv_error *err)
{
    int status = write_plan (from, req, err);

    if (status == RV_OK)
        req->candidate = from->candidate;
    return status;
}

void request_forget (const struct request *req)
{
    secrets_forget (req->dir);
}

bool request_has_secrets (const struct request *req)
{
    char *path = fsio_join (req->dir, SECRETS_FILE);
    bool has = path && access (path, F_OK) == 0;

    free (path);
    return has;
}

void request_discard (const struct request *req)
{
    if (req && req->dir)
        fsio_remove_tree (req->dir, NULL);
}

/* Whole or not at all: others may read the folder now. */
static int replace_json (const struct request *req, const char *name,
                         json_t *json_take, struct rv_error *err)
{
    char *text = json_take ? json_dumps (json_take, JSON_INDENT (1)) : NULL;
    char *path = fsio_join (req->dir, name);
    int status = text && path
                     ? fsio_write (path, text, strlen (text), 0600, err)
                     : error_set (err, RV_ENOMEM, "out of memory");

    free (path);
    free (text);
    json_decref (json_take);
    return status;
}

int request_submitted (struct request *req, uint32_t job_id,
                       char *const sbatch_argv[], struct rv_error *err)
{
    json_t *words = json_array ();
    char name[32];
    int status;

    for (int i = 0; sbatch_argv[i]; i++)
        json_array_append_new (words, jsonout_text (sbatch_argv[i]));
    snprintf (name, sizeof (name), "jobs/%u.json", job_id);
    req->job_id = job_id;
    status = replace_json (
        req, name,
        json_pack (
            "{s:s, s:I, s:I, s:o, s:o, s:o}", "schema", "rv.job/1", "job_id",
            (json_int_t)job_id, "candidate",
            (json_int_t)(req->candidate ? req->candidate : 1), "continues",
            req->log_id ? json_integer (req->log_id) : json_null (),
            "submitted_at", jsonout_time (time (NULL)), "sbatch_argv", words),
        err);
    return status == RV_OK ? request_sync (req, err) : status;
}

void request_fini (struct request *req)
{
    if (!req)
        return;
    free (req->id);
    free (req->dir);
    free (req->name);
    free (req->log_dir);
    free (req->gpu_type);
    free (req->cluster);
    memset (req, 0, sizeof (*req));
}

char *request_log (const struct request *req, uint32_t job_id, int rank,
                   bool is_err)
{
    const char *end = is_err ? "err" : "out";
    char name[COMMAND_NAME_MAX + 64];

    if (req->log_id && job_id == req->job_id)
        job_id = req->log_id;
    if (rank < 0)
        snprintf (name, sizeof (name), "%s-%u.batch.%s", req->name, job_id,
                  end);
    else
        snprintf (name, sizeof (name), "%s-%u.r%d.%s", req->name, job_id, rank,
                  end);
    return fsio_join (req->log_dir, name);
}
