/* SPDX-License-Identifier: Apache-2.0
 * boot_single.c - one task, alone: what it puts it gets */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "job/job_impl.h"

struct single {
    struct blob {
        void *p;
        size_t len;
    } * epoch; /* (n) */
    size_t n;
};

static rv_job_status_t op_open (struct rv_job *job, bool asked, int64_t end_ms,
                                rv_job_error_t *err)
{
    uint32_t tasks = 1;

    (void)end_ms;
    /* Four tasks that each believe to be alone would overwrite each other. */
    if (!asked && getenv ("SLURM_STEP_ID"))
        (void)job_env_u32 ("SLURM_STEP_NUM_TASKS", UINT32_MAX, &tasks, NULL);
    if (tasks > 1)
        return job_error (err, RV_JOB_ENOTSUP, "this step has %u tasks", tasks);
    if (!(job->priv = calloc (1, sizeof (struct single))))
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    job_ids (&job->job_id, &job->step_id);
    job->size = job->local_size = job->nodes = 1;
    return RV_JOB_OK;
}

static rv_job_status_t op_fence (struct rv_job *job, uint32_t epoch,
                                 const void *blob, size_t len, int64_t end_ms,
                                 rv_job_error_t *err)
{
    struct single *s = job->priv;
    struct blob *grown;
    void *copy = malloc (len ? len : 1);

    (void)epoch;
    (void)end_ms;
    grown = realloc (s->epoch, (s->n + 1) * sizeof (*grown));
    if (grown)
        s->epoch = grown;
    if (!copy || !grown) {
        free (copy);
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    }
    if (len)
        memcpy (copy, blob, len);
    s->epoch[s->n++] = (struct blob){.p = copy, .len = len};
    return RV_JOB_OK;
}

static rv_job_status_t op_fetch (struct rv_job *job, uint32_t epoch,
                                 uint32_t rank, void **ret_blob,
                                 size_t *ret_len, rv_job_error_t *err)
{
    const struct blob *b = &((struct single *)job->priv)->epoch[epoch];
    void *copy = malloc (b->len ? b->len : 1);

    (void)rank;
    if (!copy)
        return job_error (err, RV_JOB_ENOMEM, "out of memory");
    memcpy (copy, b->p, b->len);
    *ret_blob = copy;
    *ret_len = b->len;
    return RV_JOB_OK;
}

static void op_close (struct rv_job *job)
{
    struct single *s = job->priv;

    if (!s)
        return;
    for (size_t i = 0; i < s->n; i++)
        free (s->epoch[i].p);
    free (s->epoch);
    free (s);
    job->priv = NULL;
}

const struct boot_ops boot_single = {
    .name = "single",
    .open = op_open,
    .fence = op_fence,
    .fetch = op_fetch,
    .close = op_close,
};
