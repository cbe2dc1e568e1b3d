/* SPDX-License-Identifier: Apache-2.0
 * request.c - read what rv left in a request's folder */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "jobfile.h"
#include "plan/fsio.h"

#define ARGV_MAX (8 << 20) /* the kernel takes 6 MiB at most */

int exec_argv_split (char *buf, size_t len, char ***ret_argv,
                     struct rv_error *err)
{
    size_t n = 0, i = 0;
    char **argv;

    for (size_t at = 0; at < len; at++)
        n += buf[at] == '\0';
    if (!len || buf[len - 1])
        return error_set (err, RV_EFORMAT,
                          "no NUL behind the last of the arguments");
    if (!buf[0])
        return error_set (err, RV_EFORMAT, "the program's name is empty");
    if (!(argv = calloc (n + 1, sizeof (*argv))))
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t at = 0; at < len; at += strlen (buf + at) + 1)
        argv[i++] = buf + at;
    *ret_argv = argv;
    return RV_OK;
}

int exec_argv_read (const char *dir, char ***ret_argv, struct rv_error *err)
{
    char *path = fsio_join (dir, "argv"), *buf = NULL;
    size_t len = 0;
    int rc = path ? fsio_read (path, ARGV_MAX, &buf, &len, err)
                  : error_set (err, RV_ENOMEM, "out of memory");

    if (!rc && (rc = exec_argv_split (buf, len, ret_argv, err))) {
        error_prefix (err, "%s", path);
        free (buf);
    }
    free (path);
    return rc;
}

static bool get_u32 (const json_t *j, const char *key, uint32_t min,
                     uint32_t *ret)
{
    const json_t *v = json_object_get (j, key);
    json_int_t n = json_integer_value (v);

    if (!json_is_integer (v) || n < min || n > UINT32_MAX)
        return false;
    *ret = (uint32_t)n;
    return true;
}

static bool get_string (const json_t *j, const char *key, char **ret)
{
    const char *text = json_string_value (json_object_get (j, key));

    return text && *text && (*ret = strdup (text));
}

static bool get_list (const json_t *j, const char *key, char ***ret)
{
    const json_t *list = json_object_get (j, key);
    size_t n = json_array_size (list);

    if (!json_is_array (list) || !(*ret = calloc (n + 1, sizeof (**ret))))
        return false;
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value (json_array_get (list, i));

        if (!text || !((*ret)[i] = strdup (text)))
            return false;
    }
    return true;
}

/* As get_checkpoint. */
static bool get_snapshot (const json_t *j, struct exec_request *r)
{
    const json_t *s = json_object_get (j, "snapshot");
    const char *dir = json_string_value (json_object_get (s, "dir")),
               *cwd = json_string_value (json_object_get (s, "cwd"));

    if (!s || json_is_null (s))
        return true;
    return dir && *dir == '/' && cwd && (r->work_dir = fsio_join (dir, cwd))
           && get_string (j, "cwd", &r->submit_dir);
}

/* null: none. A request of an older rv has no such member. */
static bool get_checkpoint (const json_t *j, struct checkpoint *ret)
{
    const json_t *c = json_object_get (j, "checkpoint");
    const char *name = json_string_value (json_object_get (c, "signal"));

    if (!c || json_is_null (c))
        return true;
    return name && (ret->signal = checkpoint_signal (name)) != 0
           && get_u32 (c, "before_s", 1, &ret->seconds);
}

/* The name of what is missing or wrong, or NULL. */
static const char *fill (const json_t *j, struct exec_request *r)
{
    const char *schema = json_string_value (json_object_get (j, "schema"));
    const char *launch = json_string_value (json_object_get (j, "launch"));

    if (!schema || strcmp (schema, "rv.request/1"))
        return "schema";
    if (!launch || (strcmp (launch, "per_gpu") && strcmp (launch, "per_node")))
        return "launch";
    get_string (j, "gpu_type", &r->gpu_type); /* may be null */
    r->mem_bytes =
        (uint64_t)json_integer_value (json_object_get (j, "mem_bytes"));
    return !get_u32 (j, "gpus", 0, &r->gpus)     ? "gpus"
           : !get_u32 (j, "nodes", 1, &r->nodes) ? "nodes"
           : !get_u32 (j, "tasks", 1, &r->tasks) ? "tasks"
           : !get_u32 (j, "tasks_per_node", 1, &r->tasks_per_node)
               ? "tasks_per_node"
           : !get_u32 (j, "cpus_per_task", 0, &r->cpus_per_task)
               ? "cpus_per_task"
           : json_object_get (j, "secrets") /* an older rv wrote none */
                   && !get_u32 (j, "secrets", 0, &r->secrets)
               ? "secrets"
           : json_object_get (j, "candidates") /* likewise */
                   && !get_u32 (j, "candidates", 1, &r->candidates)
               ? "candidates"
           : !get_string (j, "name", &r->name)               ? "name"
           : !get_string (j, "log_dir", &r->log_dir)         ? "log_dir"
           : !get_checkpoint (j, &r->checkpoint)             ? "checkpoint"
           : !get_list (j, "srun_options", &r->srun_options) ? "srun_options"
           : !get_snapshot (j, r)                            ? "snapshot"
           : json_object_get (j, "outputs")
                   && !get_list (j, "outputs", &r->outputs)
               ? "outputs"
               : NULL;
}

/* Of several jobs of one request each has its own plan; job.sh says which. */
static char *plan_path (const char *dir)
{
    const char *number = getenv ("RV_CANDIDATE");
    char name[32];

    if (!number || strspn (number, "0123456789") != strlen (number)
        || strlen (number) > 4)
        number = "";
    jobfile_name ("request", "json", (unsigned)strtoul (number, NULL, 10), name,
                  sizeof (name));
    return fsio_join (dir, name);
}

int exec_request_read (const char *dir, struct exec_request *ret,
                       struct rv_error *err)
{
    struct exec_request r = {0};
    char *path = plan_path (dir);
    json_error_t why;
    const char *wrong;
    json_t *j;
    int rc = RV_OK;

    if (!path)
        return error_set (err, RV_ENOMEM, "out of memory");
    if (!(j = json_load_file (path, JSON_REJECT_DUPLICATES, &why)))
        rc = error_set (err, RV_EFORMAT, "%s: %s", path, why.text);
    else if ((wrong = fill (j, &r))) {
        rc = error_set (err, RV_EFORMAT, "%s: '%s' is missing or wrong", path,
                        wrong);
        exec_request_fini (&r);
    } else
        *ret = r;
    json_decref (j);
    free (path);
    return rc;
}

int exec_request_enter (const struct exec_request *r, struct rv_error *err)
{
    static const char word[] = "--container-workdir";

    for (size_t i = 0; r->srun_options && r->srun_options[i]; i++)
        if (!strncmp (r->srun_options[i], word, sizeof (word) - 1))
            return RV_OK;
    if (!r->work_dir)
        return RV_OK;
    if (chdir (r->work_dir) || setenv ("PWD", r->work_dir, 1))
        return error_set (err, RV_EIO, "the snapshot %s: %s", r->work_dir,
                          strerror (errno));
    return RV_OK;
}

static void list_free (char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free (list[i]);
    free (list);
}

void exec_request_fini (struct exec_request *r)
{
    list_free (r->srun_options);
    list_free (r->outputs);
    free (r->gpu_type);
    free (r->work_dir);
    free (r->submit_dir);
    free (r->name);
    free (r->log_dir);
    *r = (struct exec_request){0};
}
