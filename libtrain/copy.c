/* SPDX-License-Identifier: Apache-2.0
 * copy.c - the calls: what they refuse, the queue, waiting */
#include "copy_impl.h"

#include <train/trace.h>

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "err.h"
#include "opts.h"

#define SOON_US 10000

static int elem_of (train_dtype_t dtype)
{
    return dtype == TRAIN_F32    ? KERN_F32
           : dtype == TRAIN_BF16 ? KERN_BF16
           : dtype == TRAIN_F16  ? KERN_F16
                                 : KERN_RAW;
}

train_status_t copy_view (const DLTensor *t, const char *what,
                          struct kern_view *v, train_dtype_t *ret_dtype,
                          train_error_t *err)
{
    uint64_t n = 1;

    if (!t || t->ndim < 0 || t->ndim > KERN_VIEW_DIMS
        || (t->ndim > 0 && !t->shape))
        return err_set (err, TRAIN_EINVAL,
                        "copy: %s is no tensor of 0..%d dimensions", what,
                        KERN_VIEW_DIMS);
    if (train_dtype_of (t->dtype, ret_dtype, err) != TRAIN_OK)
        return err_prefix (err, TRAIN_ENOTSUP, "copy: %s", what);
    *v = (struct kern_view){.ndim = t->ndim};
    v->in_size = v->wire_size = (int)train_dtype_size (*ret_dtype);
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] < 0
            || __builtin_mul_overflow (n, (uint64_t)t->shape[i], &n)
            || n > INT64_MAX / 8)
            return err_set (err, TRAIN_EINVAL,
                            "copy: size of dimension %d of %s", i, what);
        v->shape[i] = t->shape[i];
        v->strides[i] = t->strides ? t->strides[i] : 0;
    }
    v->n = n;
    v->compact = n == 0 || train_tensor_is_compact (t);
    if (!t->data && n > 0)
        return err_set (err, TRAIN_EINVAL, "copy: %s has no data", what);
    v->data = n > 0 ? (char *)t->data + t->byte_offset : NULL;
    return TRAIN_OK;
}

/* First and last byte + 1 that a view touches. */
static void extent (const struct kern_view *v, uintptr_t *ret_low,
                    uintptr_t *ret_high)
{
    int64_t low = 0, high = 0;

    if (v->compact) {
        high = (int64_t)v->n - 1;
    } else {
        for (int i = 0; i < v->ndim; i++) {
            int64_t reach = (v->shape[i] - 1) * v->strides[i];

            low += reach < 0 ? reach : 0;
            high += reach > 0 ? reach : 0;
        }
    }
    *ret_low = (uintptr_t)v->data + (uintptr_t)(low * v->in_size);
    *ret_high = (uintptr_t)v->data + (uintptr_t)((high + 1) * v->in_size);
}

train_status_t copy_own_places (const struct kern_view *dst, train_error_t *err)
{
    for (int i = 0; i < dst->ndim && !dst->compact; i++) {
        if (dst->strides[i] == 0 && dst->shape[i] > 1)
            return err_set (err, TRAIN_EINVAL,
                            "copy: elements of the destination share memory "
                            "(stride 0 of dimension %d)",
                            i);
    }
    return TRAIN_OK;
}

static train_status_t check_places (const struct kern_view *dst,
                                    const struct kern_view *src,
                                    train_error_t *err)
{
    uintptr_t d0, d1, s0, s1;

    TRY (copy_own_places (dst, err));
    extent (dst, &d0, &d1);
    extent (src, &s0, &s1);
    if (dst->n > 0 && d0 < s1 && s0 < d1)
        return err_set (err, TRAIN_EINVAL,
                        "copy: source and destination overlap");
    return TRAIN_OK;
}

train_status_t copy_device (train_copier_t *c, const DLTensor *t,
                            const char *what, struct side *s,
                            train_error_t *err)
{
    int type = (int)t->device.device_type, id = t->device.device_id;
    int at = -1;
    bool pinned = false;

    s->ops = &backend_host;
    s->device = -1;
    s->pinned = type == kDLCUDAHost;
    if (type == kDLCPU || type == kDLCUDAHost)
        return TRAIN_OK;
    if (type != kDLCUDA)
        return err_set (err, TRAIN_ENOTSUP,
                        "copy: %s lies on a device of DLPack type %d; there "
                        "are CPU, CUDA and CUDAHost",
                        what, type);
    if (id < 0 || id >= c->n_gpus)
        return err_set (err, TRAIN_EINVAL,
                        "copy: %s is on GPU %d; the copier has %d", what, id,
                        c->n_gpus);
    if (t->data) {
        TRY (c->gpu->place (t->data, &at, &pinned, err));
        if (at < 0)
            return err_set (err, TRAIN_EINVAL,
                            "copy: %s says GPU %d, but lies on the host", what,
                            id);
        if (at != id)
            return err_set (err, TRAIN_EINVAL,
                            "copy: %s says GPU %d, but lies on GPU %d", what,
                            id, at);
    }
    s->ops = c->gpu;
    s->device = id;
    s->lane = &c->lane[id];
    return copier_meet (c, id, err);
}

/* All of both ends but the streams. */
static train_status_t set_sides (struct train_copy *job, const DLTensor *dst,
                                 const DLTensor *src, train_error_t *err)
{
    struct kern_view *dv = &job->dst.view, *sv = &job->src.view;
    train_dtype_t to, from;

    TRY (copy_view (dst, "the destination", dv, &to, err));
    TRY (copy_view (src, "the source", sv, &from, err));
    if (dv->ndim != sv->ndim
        || memcmp (dv->shape, sv->shape, sizeof (dv->shape)) != 0)
        return err_set (err, TRAIN_EINVAL, "copy: the shapes differ");
    if (to != from && (!elem_of (to) || !elem_of (from)))
        return err_set (err, TRAIN_EINVAL,
                        "copy: %s cannot become %s; F32, BF16 and F16 are "
                        "converted into each other",
                        train_dtype_name (from), train_dtype_name (to));
    if (to != from) {
        sv->from = elem_of (from);
        sv->to = elem_of (to);
        sv->wire_size = dv->wire_size;
    }
    TRY (check_places (dv, sv, err));
    TRY (copy_device (job->copier, dst, "the destination", &job->dst, err));
    TRY (copy_device (job->copier, src, "the source", &job->src, err));
    job->dst.direct = dv->compact;
    job->src.direct = sv->compact && sv->from == sv->to;
    job->bytes = dv->n * (uint64_t)dv->wire_size;
    return TRAIN_OK;
}

train_status_t copy_options (struct train_copy *job,
                             const train_copy_options_t *opts,
                             train_error_t *err)
{
    train_verify_t verify = opts->verify;

    if (verify < TRAIN_VERIFY_DEFAULT || verify > TRAIN_VERIFY_FULL)
        return err_set (err, TRAIN_EINVAL, "copy: verify %d", (int)verify);
    if (verify == TRAIN_VERIFY_DEFAULT)
        verify = job->src.device == job->dst.device ? TRAIN_VERIFY_OFF
                                                    : TRAIN_VERIFY_FULL;
    job->every = verify == TRAIN_VERIFY_OFF      ? 0
                 : verify == TRAIN_VERIFY_SAMPLE ? COPY_SAMPLE
                                                 : 1;
    return TRAIN_OK;
}

static train_status_t note_ready (struct train_copy *job, struct side *s,
                                  train_stream_t stream, train_error_t *err)
{
    if (!stream)
        return TRAIN_OK;
    if (!s->lane)
        return err_set (err, TRAIN_EINVAL,
                        "copy: a stream was given for an end on the host");
    TRY (s->ops->event_record (s->lane->ready[job->index], s->device, stream,
                               err));
    s->waits = true;
    return TRAIN_OK;
}

static train_status_t gate (struct train_copy *job, const struct side *s,
                            train_stream_t stream, train_error_t *err)
{
    if (!stream)
        return TRAIN_OK;
    return s->ops->gate (stream, s->device,
                         copier_gate (job->copier, job->index), job->gate, err);
}

struct train_copy *copy_take (train_copier_t *c, train_error_t *err)
{
    for (int i = 0; i < COPY_JOBS; i++) {
        struct train_copy *job = &c->job[i];

        if (job->state != JOB_FREE)
            continue;
        memset (&job->dst, 0, sizeof (job->dst));
        memset (&job->src, 0, sizeof (job->src));
        job->table = -1;
        job->run = NULL;
        job->n_pieces = 0;
        job->bytes = 0;
        job->elem = KERN_RAW;
        job->err.text[0] = '\0';
        job->status = TRAIN_PENDING;
        job->gated = TRAIN_OK;
        return job;
    }
    (void)err_set (err, TRAIN_ESTATE,
                   "copy: %d are under way; wait for one of them", COPY_JOBS);
    return NULL;
}

static void release (struct train_copy *job)
{
    if (job->table >= 0)
        job->copier->table_used[job->table] = false;
    job->state = JOB_FREE;
}

/* On the row of each end, so that what a device sends and what it receives at
 * one time is seen. */
static void copy_span (const struct train_copy *job, const train_span_t *span)
{
    static const char *const way[] = {"copy local", "copy peer", "copy staged"};
    const train_copy_report_t *r = &job->report;
    const train_trace_arg_t args[] = {
        {"src", job->src.device},     {"dst", job->dst.device},
        {"bytes", (int64_t)r->bytes}, {"chunks", (int64_t)r->chunks},
        {"verified", r->verified},    {"repeated", r->repeated},
        {"status", job->status},
    };
    train_span_t s = *span;
    char row[32];

    if (!s.begin_us && !s.nvtx)
        return;
    s.name = job->run ? "load" : way[r->path];
    for (int out = 0; out < 2; out++) {
        int device = out ? job->src.device : job->dst.device;

        if (device < 0)
            snprintf (row, sizeof (row), "host %s", out ? "out" : "in");
        else
            snprintf (row, sizeof (row), "gpu %d %s", device,
                      out ? "out" : "in");
        train_trace_end (&s, row, args, sizeof (args) / sizeof (*args));
        s.nvtx = 0;
    }
}

static void run_unlocked (train_copier_t *c, struct train_copy *job)
{
    train_span_t span;
    int64_t begin;

    c->busy = true;
    pthread_mutex_unlock (&c->lock);
    span = train_trace_begin ("copy", "copy");
    begin = copy_now_us ();
    if (job->run)
        job->status = job->run (job, &job->err);
    else
        job->status = job->bytes > 0 ? copy_run (job, &job->err) : TRAIN_OK;
    if (job->status == TRAIN_OK)
        job->status = job->gated;
    copy_trace (job, begin, copy_now_us ());
    copy_span (job, &span);
    __atomic_store_n (copier_gate (c, job->index), job->gate, __ATOMIC_RELEASE);
    pthread_mutex_lock (&c->lock);
    c->busy = false;
    job->state = JOB_DONE;
    pthread_cond_broadcast (&c->changed);
}

void copy_next (train_copier_t *c)
{
    struct train_copy *job = &c->job[c->queue[c->first]];

    c->first = (c->first + 1) % COPY_JOBS;
    c->queued--;
    run_unlocked (c, job);
}

train_status_t copy_submit (struct train_copy *job, train_stream_t dst_stream,
                            train_stream_t src_stream, bool here,
                            train_error_t *err)
{
    train_copier_t *c = job->copier;

    memset (&job->report, 0, sizeof (job->report));
    job->gate++;
    TRY (note_ready (job, &job->dst, dst_stream, err));
    TRY (note_ready (job, &job->src, src_stream, err));
    if (!here) {
        TRY (gate (job, &job->dst, dst_stream, err));
        /* From here on a stream waits for the gate, so the copy must run. */
        job->gated = gate (job, &job->src, src_stream, &job->err);
    }
    job->state = JOB_QUEUED;
    if (here && c->queued == 0 && !c->busy) {
        run_unlocked (c, job);
        return TRAIN_OK;
    }
    c->queue[(c->first + c->queued++) % COPY_JOBS] = job->index;
    pthread_cond_broadcast (&c->changed);
    return TRAIN_OK;
}

static train_status_t start (train_copier_t *c, DLTensor *dst,
                             train_stream_t dst_stream, const DLTensor *src,
                             train_stream_t src_stream,
                             const train_copy_options_t *opts, bool here,
                             train_copy_t **ret_copy, train_error_t *err)
{
    struct train_copy *job = copy_take (c, err);
    train_dtype_t dtype = TRAIN_U8;
    train_copy_options_t o;

    if (!job)
        return TRAIN_ESTATE;
    TRY (set_sides (job, dst, src, err));
    TRY (opts_read (&o, sizeof (o), opts, "copy", err));
    TRY (copy_options (job, &o, err));
    if (o.count_nonfinite
        && train_dtype_of (dst->dtype, &dtype, NULL) == TRAIN_OK)
        job->elem = elem_of (dtype);
    TRY (copy_submit (job, dst_stream, src_stream, here, err));
    *ret_copy = job;
    return TRAIN_OK;
}

train_status_t train_copy_start (train_copier_t *copier, DLTensor *dst,
                                 train_stream_t dst_stream, const DLTensor *src,
                                 train_stream_t src_stream,
                                 const train_copy_options_t *opts,
                                 train_copy_t **ret_copy, train_error_t *err)
{
    train_status_t status;

    if (!copier || !ret_copy)
        return err_set (err, TRAIN_EINVAL, "copy: no copier or no handle");
    pthread_mutex_lock (&copier->lock);
    status = start (copier, dst, dst_stream, src, src_stream, opts, false,
                    ret_copy, err);
    pthread_mutex_unlock (&copier->lock);
    return status;
}

train_status_t train_copy (train_copier_t *copier, DLTensor *dst,
                           train_stream_t dst_stream, const DLTensor *src,
                           train_stream_t src_stream,
                           const train_copy_options_t *opts,
                           train_copy_report_t *ret_report, train_error_t *err)
{
    train_copy_t *copy = NULL;
    train_status_t status;

    if (!copier)
        return err_set (err, TRAIN_EINVAL, "copy: no copier");
    pthread_mutex_lock (&copier->lock);
    status = start (copier, dst, dst_stream, src, src_stream, opts, true, &copy,
                    err);
    pthread_mutex_unlock (&copier->lock);
    if (status != TRAIN_OK)
        return status;
    return train_copy_wait (copy, -1, ret_report, err);
}

/* A copy of a GPU is over soon, and a thread that sleeps is some 50 us late: so
 * it is watched, as CUDA itself watches, for so long. */
static void watch (const struct train_copy *copy, int64_t timeout_ms)
{
    int64_t most_us = timeout_ms >= 0 && timeout_ms < SOON_US / 1000
                          ? timeout_ms * 1000
                          : SOON_US;
    int64_t until_us = copy_now_us () + most_us;

    if (!copy->src.lane && !copy->dst.lane)
        return;
    while (copy->state == JOB_QUEUED && copy_now_us () < until_us)
        sched_yield ();
}

train_status_t train_copy_wait (train_copy_t *copy, int64_t timeout_ms,
                                train_copy_report_t *ret_report,
                                train_error_t *err)
{
    train_copier_t *c = copy ? copy->copier : NULL;
    train_status_t status;
    struct timespec until;
    int rc = 0;

    if (!copy)
        return err_set (err, TRAIN_EINVAL, "copy: no handle");
    clock_gettime (CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    watch (copy, timeout_ms);
    pthread_mutex_lock (&c->lock);
    while (copy->state == JOB_QUEUED && rc == 0)
        rc = timeout_ms < 0
                 ? pthread_cond_wait (&c->changed, &c->lock)
                 : pthread_cond_timedwait (&c->changed, &c->lock, &until);
    if (copy->state == JOB_QUEUED) {
        status = err_set (err, TRAIN_ETIMEDOUT, "copy: not done after %lld ms",
                          (long long)timeout_ms);
    } else {
        status = copy->status;
        if (ret_report)
            *ret_report = copy->report;
        if (status != TRAIN_OK)
            err_set (err, status, "%s", copy->err.text);
        release (copy);
    }
    pthread_mutex_unlock (&c->lock);
    return status;
}
