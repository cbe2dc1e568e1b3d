/* SPDX-License-Identifier: Apache-2.0
 * job.c - the calls of rv/job.h: choose a boot, keep the values, end the job */
#include "config.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "job/job_impl.h"

rv_job_status_t job_error (rv_job_error_t *err, rv_job_status_t code,
                           const char *fmt, ...)
{
    if (err) {
        va_list ap;

        err->code = code;
        va_start (ap, fmt);
        error_vformat (err->text, sizeof (err->text), fmt, ap);
        va_end (ap);
    }
    return code;
}

rv_job_status_t job_error_from (rv_job_error_t *err,
                                const struct rv_error *from)
{
    return job_error (err, (rv_job_status_t)from->code, "%s", from->text);
}

static void note_add (struct rv_job *job, const char *name, const char *why)
{
    size_t n = strlen (job->note);

    snprintf (job->note + n, sizeof (job->note) - n, "%s%s: %s", n ? "; " : "",
              name, why);
}

/* RV_BOOT as rv-exec left it, unless it is left over from another step. */
static const char *env_boot (void)
{
    const char *boot = getenv ("RV_BOOT"), *step = getenv ("RV_STEP");
    char here[32];
    uint32_t job_id, step_id;

    if (!boot || !*boot)
        return NULL;
    job_ids (&job_id, &step_id);
    snprintf (here, sizeof (here), "%u.%u", job_id, step_id);
    return step && job_id && strcmp (step, here) ? NULL : boot;
}

/* The deadline of waits. RV_NCCL_TIMEOUT is ours and must be right;
 * NCCL_TIMEOUT is anybody's, so a strange value of it is only noted. */
static rv_job_status_t read_timeout (struct rv_job *job, rv_job_error_t *err)
{
    rv_job_error_t note = {0};
    uint32_t seconds = 0;
    rv_job_status_t status =
        job_env_u32 ("RV_NCCL_TIMEOUT", INT32_MAX, &seconds, err);

    if (status == RV_JOB_EFORMAT)
        return status;
    if (status || !seconds) {
        status = job_env_u32 ("NCCL_TIMEOUT", INT32_MAX, &seconds, &note);
        if (status == RV_JOB_EFORMAT)
            note_add (job, "timeout", note.text);
    }
    if (!seconds)
        seconds = JOB_TIMEOUT_S;
    job->timeout_ms = (int64_t)seconds * 1000;
    return RV_JOB_OK;
}

static rv_job_status_t open_named (struct rv_job *job, const char *name,
                                   int64_t end_ms, rv_job_error_t *err)
{
    rv_job_status_t status;
    rv_job_error_t why = {0};

    for (size_t i = 0; boot_table[i]; i++)
        if (!strcmp (boot_table[i]->name, name)) {
            job->ops = boot_table[i];
            if ((status = job->ops->open (job, true, end_ms, &why)))
                job_error (err, status, "boot '%s' cannot serve: %s", name,
                           why.text);
            return status;
        }
    return job_error (err, RV_JOB_EINVAL,
                      "no boot is named '%s'; there are pmix, slurm, single",
                      name);
}

/* A moment so far ahead; at most 68 years. */
static int64_t moment (int64_t timeout_ms)
{
    const int64_t most = (int64_t)INT32_MAX * 1000;

    return job_now_ms () + (timeout_ms < most ? timeout_ms : most);
}

/* The first that serves. A PMIx that is not there, is silent or lets nobody in
 * makes room for the next one; wrong variables must not make four single
 * tasks. */
static rv_job_status_t open_first (struct rv_job *job, int64_t timeout_ms,
                                   rv_job_error_t *err)
{
    rv_job_status_t status;
    rv_job_error_t why;

    for (size_t i = 0; boot_table[i]; i++) {
        memset (&why, 0, sizeof (why));
        job->ops = boot_table[i];
        status = job->ops->open (job, false, moment (timeout_ms), &why);
        if (!status)
            return status;
        if (status != RV_JOB_ENOTSUP && status != RV_JOB_ETIMEDOUT)
            return job_error (err, status, "boot '%s': %s", job->ops->name,
                              why.text);
        note_add (job, job->ops->name, why.text);
    }
    return job_error (err, RV_JOB_ENOTSUP, "no boot serves: %s", job->note);
}

/* Those of a program that was built against another release: what it had not
 * yet is zero, what this one has not must be. */
static rv_job_status_t read_options (rv_job_options_t *to,
                                     const rv_job_options_t *from,
                                     rv_job_error_t *err)
{
    const char *bytes = (const char *)from;
    size_t size = sizeof (*to);

    if (from)
        memcpy (&size, from, sizeof (size));
    if (size < sizeof (size))
        return job_error (err, RV_JOB_EINVAL,
                          "the size of the options is %zu; set it to sizeof "
                          "(rv_job_options_t)",
                          size);
    for (size_t i = sizeof (*to); i < size; i++) {
        if (bytes[i])
            return job_error (err, RV_JOB_EINVAL,
                              "options of %zu bytes, and not zero past the %zu "
                              "that this library knows",
                              size, sizeof (*to));
    }
    if (from)
        memcpy (to, from, size < sizeof (*to) ? size : sizeof (*to));
    return RV_JOB_OK;
}

rv_job_status_t rv_job_init (const rv_job_options_t *opts, rv_job_t **ret_job,
                             rv_job_error_t *err)
{
    const char *boot;
    rv_job_options_t o = {0};
    int64_t timeout_ms;
    struct rv_job *job;
    rv_job_status_t status;

    if (!ret_job)
        return job_error (err, RV_JOB_EINVAL, "ret_job is NULL");
    if ((status = read_options (&o, opts, err)))
        return status;
    boot = o.boot ? o.boot : env_boot ();
    timeout_ms = o.timeout_ms ? o.timeout_ms : JOB_BOOT_MS;
    if (timeout_ms < 0)
        return job_error (err, RV_JOB_EINVAL, "timeout_ms is negative");
    if (!(job = calloc (1, sizeof (*job))))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    if (!(status = read_timeout (job, err)))
        status = boot ? open_named (job, boot, moment (timeout_ms), err)
                      : open_first (job, timeout_ms, err);
    if (status) {
        free (job);
        return status;
    }
    *ret_job = job;
    return RV_JOB_OK;
}

void rv_job_finalize (rv_job_t *job)
{
    if (!job)
        return;
    job->ops->close (job);
    free (job->values);
    free (job->blob);
    free (job);
}

uint32_t rv_job_rank (const rv_job_t *job)
{
    return job->rank;
}

uint32_t rv_job_size (const rv_job_t *job)
{
    return job->size;
}

uint32_t rv_job_local_rank (const rv_job_t *job)
{
    return job->local_rank;
}

uint32_t rv_job_local_size (const rv_job_t *job)
{
    return job->local_size;
}

uint32_t rv_job_node (const rv_job_t *job)
{
    return job->node;
}

uint32_t rv_job_nodes (const rv_job_t *job)
{
    return job->nodes;
}

uint32_t rv_job_id (const rv_job_t *job)
{
    return job->job_id;
}

uint32_t rv_job_step (const rv_job_t *job)
{
    return job->step_id;
}

const char *rv_job_boot (const rv_job_t *job)
{
    return job->ops->name;
}

const char *rv_job_boot_note (const rv_job_t *job)
{
    return job->note;
}

int64_t rv_job_timeout_ms (const rv_job_t *job)
{
    return job->timeout_ms;
}

static rv_job_status_t check_open (const struct rv_job *job,
                                   rv_job_error_t *err)
{
    if (!job)
        return job_error (err, RV_JOB_EINVAL, "job is NULL");
    if (job->broken)
        return job_error (err, RV_JOB_ESTATE,
                          "an exchange of this job failed before; only "
                          "finalize and abort are left");
    return RV_JOB_OK;
}

rv_job_status_t rv_job_put (rv_job_t *job, const char *key, const void *value,
                            size_t len, rv_job_error_t *err)
{
    rv_job_status_t status = check_open (job, err);

    if (status)
        return status;
    return blob_put (&job->blob, &job->blob_len, key, value, len, err);
}

static rv_job_status_t swap (struct rv_job *job, const void *blob, size_t len,
                             int64_t timeout_ms, rv_job_error_t *err)
{
    rv_job_status_t status;

    if (timeout_ms < 0)
        return job_error (err, RV_JOB_EINVAL, "timeout_ms is negative");
    if (timeout_ms == 0)
        timeout_ms = job->timeout_ms;
    status =
        job->ops->fence (job, job->epoch, blob, len, moment (timeout_ms), err);
    if (status)
        job->broken = true;
    else
        job->epoch++;
    return status;
}

rv_job_status_t rv_job_fence (rv_job_t *job, int64_t timeout_ms,
                              rv_job_error_t *err)
{
    rv_job_status_t status = check_open (job, err);
    uint32_t *grown;

    if (status)
        return status;
    grown = realloc (job->values, (job->n_values + 1) * sizeof (*grown));
    if (!grown)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    job->values = grown;
    status = swap (job, job->blob, job->blob_len, timeout_ms, err);
    if (status)
        return status;
    job->values[job->n_values++] = job->epoch - 1;
    free (job->blob);
    job->blob = NULL;
    job->blob_len = 0;
    return RV_JOB_OK;
}

rv_job_status_t rv_job_barrier (rv_job_t *job, int64_t timeout_ms,
                                rv_job_error_t *err)
{
    rv_job_status_t status = check_open (job, err);

    return status ? status : swap (job, NULL, 0, timeout_ms, err);
}

/* Newest fence first: a key that was put again has its new value. */
static rv_job_status_t find (struct rv_job *job, uint32_t rank, const char *key,
                             void *buf, size_t size, size_t *ret_len,
                             rv_job_error_t *err)
{
    rv_job_status_t status = RV_JOB_ENOTFOUND;
    const unsigned char *value;
    void *blob;
    size_t len;

    for (uint32_t i = job->n_values; i-- && status == RV_JOB_ENOTFOUND;) {
        status = job->ops->fetch (job, job->values[i], rank, &blob, &len, err);
        if (status) {
            job->broken = true;
            return status;
        }
        status = blob_find (blob, len, key, &value, &len, err);
        if (!status && len > size)
            status = job_error (err, RV_JOB_EINVAL,
                                "'%s' of rank %u has %zu bytes, the buffer %zu",
                                key, rank, len, size);
        if (!status && len)
            memcpy (buf, value, len);
        free (blob);
    }
    if (!status && ret_len)
        *ret_len = len;
    if (status == RV_JOB_ENOTFOUND)
        job_error (err, status, "rank %u has not put '%s'", rank, key);
    return status;
}

rv_job_status_t rv_job_get (rv_job_t *job, uint32_t rank, const char *key,
                            void *buf, size_t size, size_t *ret_len,
                            rv_job_error_t *err)
{
    rv_job_status_t status = check_open (job, err);

    if (status)
        return status;
    if (rank >= job->size)
        return job_error (err, RV_JOB_EINVAL, "rank %u of %u", rank, job->size);
    if (!key || (!buf && size))
        return job_error (err, RV_JOB_EINVAL, "%s is NULL",
                          key ? "buf" : "key");
    return find (job, rank, key, buf, size, ret_len, err);
}

void rv_job_abort (rv_job_t *job, int code, const char *text)
{
    char host[64] = "?", line[700];
    int n;

    if (code < 1 || code > 255)
        code = code ? 255 : 1;
    if (text && job) {
        if (gethostname (host, sizeof (host) - 1))
            host[0] = '?';
        n = snprintf (line, sizeof (line), "rv[rank %u on %s]: %s\n", job->rank,
                      getenv ("SLURMD_NODENAME") ? getenv ("SLURMD_NODENAME")
                                                 : host,
                      text);
        if (n >= (int)sizeof (line)) {
            n = sizeof (line) - 1;
            line[n - 1] = '\n';
        }
        if (write (STDERR_FILENO, line, (size_t)n) < 0) {
            /* nobody listens; the status still tells */
        }
    }
    if (job && job->ops->abort)
        job->ops->abort (job, code, text);
    _exit (code);
}
