/* SPDX-License-Identifier: Apache-2.0
 * safetensors_load.c - tensors of a file or a set to a GPU, or the host, by a
 * copier: threads read chunks into its ring while earlier ones are in flight
 *
 * A chunk stays in the ring until the device's sum of it has come back and is
 * that of what was read, so a wrong one is sent again without a second read. */
#include "config.h"

#include "safetensors_load.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "opts.h"

#define GPU_READERS  14 /* of which half the time goes into sums */
#define MOST_CHUNK   ((uint64_t)2 << 20) /* smaller: rooms for all readers */
#define HOST_READERS 8
#define LEAST_CHUNK  ((uint64_t)256 << 10)
#define DLPACK_BOOL  6 /* DLPack 0.8; libtrain is built with 0.6 too */

/* What the format's types are in DLPack; those that it lacks are bits. */
static bool is_type (train_st_type_t type, DLDataType t)
{
    unsigned code = t.code, bits = train_st_type_bits (type);

    if (t.lanes != 1 || t.bits != bits)
        return false;
    switch (type) {
    case TRAIN_ST_I8:
    case TRAIN_ST_I16:
    case TRAIN_ST_I32:
    case TRAIN_ST_I64:
        return code == kDLInt;
    case TRAIN_ST_BF16:
        return code == kDLBfloat;
    case TRAIN_ST_F16:
    case TRAIN_ST_F32:
    case TRAIN_ST_F64:
        return code == kDLFloat;
    case TRAIN_ST_C64:
        return code == kDLComplex;
    case TRAIN_ST_BOOL:
        return code == kDLUInt || code == DLPACK_BOOL;
    case TRAIN_ST_F4:
    case TRAIN_ST_F6_E2M3:
    case TRAIN_ST_F6_E3M2:
        return false;
    default:
        return code == kDLUInt;
    }
}

static int elem_of (train_st_type_t type)
{
    return type == TRAIN_ST_F32    ? KERN_F32
           : type == TRAIN_ST_BF16 ? KERN_BF16
           : type == TRAIN_ST_F16  ? KERN_F16
                                   : KERN_RAW;
}

static int elem_of_dlpack (DLDataType t)
{
    train_dtype_t dtype = TRAIN_U8;

    if (train_dtype_of (t, &dtype, NULL) != TRAIN_OK)
        return KERN_RAW;
    return elem_of (st_type_of (train_dtype_name (dtype)));
}

static bool same_shape (const train_st_entry_t *e, const DLTensor *t)
{
    if (t->ndim != e->ndim || (t->ndim > 0 && !t->shape))
        return false;
    for (int i = 0; i < e->ndim; i++) {
        if (t->shape[i] != e->shape[i])
            return false;
    }
    return true;
}

/* The bytes of any tensor, as numbers of a byte each. */
static bool takes_bytes (const train_st_entry_t *e, const DLTensor *t)
{
    return t->ndim == 1 && t->shape && t->dtype.code == kDLUInt
           && t->dtype.bits == 8 && t->dtype.lanes == 1
           && t->shape[0] == (int64_t)e->bytes;
}

/* A view of [t], whose bits of any type are those of one that libtrain has. */
static train_status_t view_of (const DLTensor *t, const char *what,
                               struct kern_view *v, train_error_t *err)
{
    static const train_dtype_t of_size[] = {
        [1] = TRAIN_U8, [2] = TRAIN_F16, [4] = TRAIN_I32, [8] = TRAIN_I64};
    DLTensor raw = *t;
    train_dtype_t dtype;

    raw.dtype = train_dtype_dlpack (of_size[t->dtype.bits / 8]);
    TRY (copy_view (&raw, what, v, &dtype, err));
    return copy_own_places (v, err);
}

static train_status_t set_item (struct load_item *it, const DLTensor *t,
                                train_error_t *err)
{
    const train_st_entry_t *e = it->entry;
    int from = elem_of (e->type), to = elem_of_dlpack (t->dtype);
    bool shape = same_shape (e, t),
         whole = shape && is_type (e->type, t->dtype);
    struct kern_view *v = &it->dst.view;

    if (!whole && !takes_bytes (e, t) && !(shape && from && to))
        return err_set (
            err, TRAIN_EINVAL,
            "it is %s of %d dimensions and %zu bytes: the destination must be "
            "of that shape and type (F32, BF16 and F16 are converted into each "
            "other), or of one dimension of so many kDLUInt of 8 bits",
            train_st_type_name (e->type), e->ndim, e->bytes);
    TRY (view_of (t, "the destination", v, err));
    it->from = it->to = KERN_RAW;
    it->in_size = v->wire_size;
    if (!whole && shape && from && to) {
        it->from = from;
        it->to = to;
        it->in_size = (int)train_st_type_bits (e->type) / 8;
    }
    it->dst.direct = v->compact;
    it->bytes = v->n * (uint64_t)v->wire_size;
    return TRAIN_OK;
}

/* By file, then by place in it: bytes are read from front to back. */
static int by_place (const void *a, const void *b)
{
    const struct load_item *x = a, *y = b;

    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

static train_status_t add_item (struct load *load, struct train_copy *job,
                                const train_safetensors_t *file,
                                const char *name, size_t i,
                                const DLTensor *const *dst, train_error_t *err)
{
    struct load_item *it = &load->item[load->n_items];
    const train_st_entry_t *e = name ? train_safetensors_find (file, name)
                                     : train_safetensors_entry (file, i);
    train_status_t status;

    if (!e)
        return err_set (
            err, TRAIN_ENOTFOUND, "load: there is no tensor '%s' in %s", name,
            file->n_parts > 0 && file->parts[0].path ? file->parts[0].path
                                                     : "the file");
    if (!dst[i] || dst[i]->device.device_type != dst[0]->device.device_type
        || dst[i]->device.device_id != dst[0]->device.device_id)
        return err_set (err, TRAIN_EINVAL,
                        "load: tensor '%s' has no destination, or one on "
                        "another device than the first",
                        e->name);
    memset (it, 0, sizeof (*it));
    it->entry = e;
    it->part = st_part_of (file, e);
    it->at = (uint64_t)((const char *)e->data - it->part->map);
    if ((status = set_item (it, dst[i], err)) != TRAIN_OK
        || (status = copy_device (load->copier, dst[i], "the destination",
                                  &it->dst, err))
               != TRAIN_OK)
        return err_prefix (err, status, "load: tensor '%s'", e->name);
    if (load->n_items == 0) /* the end that streams and traces see */
        job->dst = it->dst;
    job->bytes += it->bytes;
    load->n_items += it->bytes > 0;
    return TRAIN_OK;
}

static int cpus (void)
{
    cpu_set_t set;

    CPU_ZERO (&set);
    if (sched_getaffinity (0, sizeof (set), &set) < 0)
        return 1;
    return CPU_COUNT (&set);
}

/* Chunks as copies have them, and no more threads than chunks. */
static void set_sizes (struct load *load, const struct train_copy *job,
                       int readers)
{
    const train_copier_t *c = load->copier;
    uint64_t chunk = (job->bytes / 16 + 4095) / 4096 * 4096, rooms;
    int most = job->dst.lane ? GPU_READERS : HOST_READERS, can = cpus ();

    chunk = chunk < LEAST_CHUNK ? LEAST_CHUNK : chunk;
    chunk = chunk > MOST_CHUNK ? MOST_CHUNK : chunk;
    load->chunk = chunk < c->chunk ? chunk : c->chunk;
    for (size_t i = 0; i < load->n_items; i++)
        load->n += (load->item[i].bytes + load->chunk - 1) / load->chunk;
    load->readers = readers ? readers : can < most ? can : most;
    if ((uint64_t)load->readers > load->n)
        load->readers = (int)load->n;
    /* the ring, and the scratch of a device, cut anew */
    rooms = (uint64_t)c->slots * c->chunk / load->chunk;
    load->slots = rooms < COPY_SLOTS ? (int)rooms : COPY_SLOTS;
    load->ring = job->dst.lane != NULL;
}

/* A chunk from the ring to its place, its sum, and that back to the host. */
static train_status_t send (struct load *load, uint64_t c, train_error_t *err)
{
    int at = (int)(c % (uint64_t)load->slots);
    struct load_slot *s = &load->slot[at];
    const struct side *d = &s->item->dst;
    struct lane *l = d->lane;
    char *from = load_room (load, c);
    char *to = d->direct ? (char *)d->view.data + s->off
                         : l->scratch + (size_t)at * load->chunk;

    TRY (d->ops->copy (to, from, s->n, l->in, err));
    if (!d->direct)
        side_unpack (d, to, s->off, s->n, 0, 0, l->in);
    TRY (d->ops->event_record (l->freed[at], d->device, l->in, err));
    if (load->every == 0)
        return TRAIN_OK;
    TRY (d->ops->event_wait (l->sum, d->device, l->freed[at], err));
    side_sum (d, &l->sums[at], s->off, s->n, load->every, 0, 0, l->sum);
    TRY (d->ops->copy (&copier_fetched (load->copier, true)[at], &l->sums[at],
                       sizeof (uint64_t), l->sum, err));
    return d->ops->event_record (l->full[at], d->device, l->sum, err);
}

static bool sum_agrees (struct load *load, uint64_t c)
{
    int at = (int)(c % (uint64_t)load->slots);
    struct load_slot *s = &load->slot[at];
    uint64_t now = copier_fetched (load->copier, true)[at];
    uint64_t got = now - s->device; /* the device adds up, round by round */

    s->device = now;
    return got == s->sum;
}

/* What is wrong, into the report where it is the first. */
static train_status_t locate (struct train_copy *job, struct load *load,
                              uint64_t c, train_error_t *err)
{
    const struct load_slot *s = &load->slot[c % (uint64_t)load->slots];
    train_copy_report_t now = job->report;
    train_status_t status;
    char *got = malloc (s->n);

    if (!got)
        return err_set (err, TRAIN_ENOMEM, "no memory to compare a chunk");
    status = side_fetch (&s->item->dst, s->off, s->n, got, err);
    if (status == TRAIN_OK)
        copy_differs (job, s->off, s->n, load_room (load, c), got);
    free (got);
    copier_log (load->copier,
                "load of tensor '%s' to GPU %d: wrong at offset %llu: expected "
                "%016llx, got %016llx; it is sent again",
                s->item->entry->name, job->dst.device,
                (unsigned long long)job->report.bad_offset,
                (unsigned long long)job->report.expected,
                (unsigned long long)job->report.got);
    if (now.mismatch)
        job->report = now;
    job->report.mismatch = true;
    job->report.repeated = 1;
    return status;
}

static train_status_t repair (struct train_copy *job, struct load *load,
                              uint64_t c, train_error_t *err)
{
    const struct load_slot *s = &load->slot[c % (uint64_t)load->slots];
    const struct side *d = &s->item->dst;

    /* The scratch and the streams are this chunk's alone meanwhile. */
    TRY (d->ops->sync (d->lane->in, err));
    TRY (d->ops->sync (d->lane->sum, err));
    TRY (locate (job, load, c, err));
    TRY (send (load, c, err));
    TRY (d->ops->sync (d->lane->in, err));
    TRY (d->ops->sync (d->lane->sum, err));
    if (sum_agrees (load, c))
        return TRAIN_OK;
    job->dst = *d;
    job->bytes = s->item->bytes;
    copy_poison (job);
    return err_set (err, TRAIN_ECORRUPT,
                    "tensor '%s' arrived wrong twice on GPU %d, first at "
                    "offset %llu; look at its memory and its link",
                    s->item->entry->name, d->device,
                    (unsigned long long)job->report.bad_offset);
}

/* Waits for the oldest chunk to be where it belongs, and proved so. */
static train_status_t retire (struct train_copy *job, struct load *load,
                              uint64_t c, train_error_t *err)
{
    int at = (int)(c % (uint64_t)load->slots);
    const struct side *d = &load->slot[at].item->dst;

    if (load->ring) {
        TRY (d->ops->event_sync (
            load->every > 0 ? d->lane->full[at] : d->lane->freed[at], err));
        if (load->every > 0 && !sum_agrees (load, c))
            TRY (repair (job, load, c, err));
    }
    load_retire (load, c);
    return TRAIN_OK;
}

/* Has the device finished with chunk [c] by now? */
static bool is_done (const struct load *load, uint64_t c)
{
    int at = (int)(c % (uint64_t)load->slots);
    const struct side *d = &load->slot[at].item->dst;
    bool done = true;

    if (!load->ring)
        return true;
    if (d->ops->event_done (load->every > 0 ? d->lane->full[at]
                                            : d->lane->freed[at],
                            &done, NULL)
        != TRAIN_OK)
        return true; /* retire tells why */
    return done;
}

static train_status_t pump (struct train_copy *job, struct load *load,
                            train_error_t *err)
{
    uint64_t out = 0; /* the oldest that is under way */

    for (uint64_t c = 0; c < load->n; c++) {
        while (out < c
               && (c - out >= (uint64_t)load->slots || is_done (load, out)))
            TRY (retire (job, load, out++, err));
        TRY (load_wait (load, c, err));
        if (load->ring)
            TRY (send (load, c, err));
    }
    while (out < load->n)
        TRY (retire (job, load, out++, err));
    return TRAIN_OK;
}

static train_status_t begin (const struct train_copy *job,
                             const struct load *load, train_error_t *err)
{
    const struct side *d = &job->dst;
    struct lane *l = d->lane;

    if (!l)
        return TRAIN_OK;
    for (int i = 0; i < load->slots; i++) { /* more rooms than copies have */
        if (!l->full[i])
            TRY (d->ops->event_create (d->device, &l->full[i], err));
        if (!l->freed[i])
            TRY (d->ops->event_create (d->device, &l->freed[i], err));
    }
    if (d->waits) {
        void *ready = l->ready[job->index];

        TRY (d->ops->event_wait (l->in, d->device, ready, err));
        TRY (d->ops->event_wait (l->sum, d->device, ready, err));
    }
    return d->ops->fill (d->device, l->sums, 0, COPY_N_SUMS * sizeof (*l->sums),
                         l->sum, err);
}

static void load_free (struct load *load)
{
    if (load)
        free (load->item);
    free (load);
}

static train_status_t run (struct train_copy *job, train_error_t *err)
{
    struct load *load = job->run_arg;
    train_copy_report_t *r = &job->report;
    train_status_t status = begin (job, load, err);

    r->path = load->ring ? TRAIN_PATH_STAGED : TRAIN_PATH_LOCAL;
    r->bytes = job->bytes;
    r->chunks = load->n;
    if (status == TRAIN_OK && load->n > 0) {
        status = load_start (load, err);
        if (status == TRAIN_OK)
            status = pump (job, load, err);
        load_stop (load);
    }
    if (status != TRAIN_OK) {
        side_drain (&job->dst);
        err_prefix (err, status, "load");
    }
    r->verified = status == TRAIN_OK && load->ring && load->every > 0;
    load_free (load);
    return status;
}

/* With the copier's lock held. */
static train_status_t plan (struct train_copy *job, DLTensor *const *dst,
                            const train_safetensors_t *file,
                            const char *const *names, size_t n,
                            const train_st_load_options_t *o,
                            train_error_t *err)
{
    const train_copy_options_t copy = {.size = sizeof (copy),
                                       .verify = o->verify};
    struct load *load = job->run_arg;

    load->copier = job->copier;
    job->src.ops = &backend_host;
    job->src.device = job->dst.device = -1;
    job->dst.ops = &backend_host;
    if (!(load->item = calloc (n + 1, sizeof (*load->item))))
        return err_set (err, TRAIN_ENOMEM, "load: no memory for %zu tensors",
                        n);
    for (size_t i = 0; i < n; i++)
        TRY (add_item (load, job, file, names ? names[i] : NULL, i,
                       (const DLTensor *const *)dst, err));
    qsort (load->item, load->n_items, sizeof (*load->item), by_place);
    TRY (copy_options (job, &copy, err));
    load->every = job->every;
    set_sizes (load, job, o->readers);
    return TRAIN_OK;
}

static train_status_t start (train_copier_t *copier, DLTensor *const *dst,
                             train_stream_t dst_stream,
                             const train_safetensors_t *file,
                             const char *const *names, size_t n,
                             const train_st_load_options_t *opts, bool here,
                             train_copy_t **ret_copy, train_error_t *err)
{
    train_st_load_options_t o;
    struct train_copy *job = NULL;
    struct load *load;
    train_status_t status;

    if (!copier || !ret_copy || !file || (n > 0 && !dst)
        || (!names && n != file->count))
        return err_set (err, TRAIN_EINVAL,
                        "load: no copier, file or destinations, or without "
                        "names another number than the file's %zu",
                        file ? file->count : 0);
    TRY (opts_read (&o, sizeof (o), opts, "load", err));
    if (o.readers < 0 || o.readers > LOAD_READERS)
        return err_set (err, TRAIN_EINVAL,
                        "load: %d readers; 1 to %d, or 0 for as many as serve",
                        o.readers, LOAD_READERS);
    if (!(load = calloc (1, sizeof (*load))))
        return err_set (err, TRAIN_ENOMEM, "load: no memory");
    pthread_mutex_lock (&copier->lock);
    status = (job = copy_take (copier, err)) ? TRAIN_OK : TRAIN_ESTATE;
    if (status == TRAIN_OK) {
        job->run = run;
        job->run_arg = load;
        status = plan (job, dst, file, names, n, &o, err);
    }
    if (status == TRAIN_OK)
        status = copy_submit (job, dst_stream, NULL, here, err);
    pthread_mutex_unlock (&copier->lock);
    if (status == TRAIN_OK)
        *ret_copy = job;
    else
        load_free (load);
    return status;
}

train_status_t train_safetensors_load_start (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const train_safetensors_t *file, const char *const *names, size_t n,
    const train_st_load_options_t *opts, train_copy_t **ret_copy,
    train_error_t *err)
{
    return start (copier, dst, dst_stream, file, names, n, opts, false,
                  ret_copy, err);
}

train_status_t train_safetensors_load (
    train_copier_t *copier, DLTensor *const *dst, train_stream_t dst_stream,
    const train_safetensors_t *file, const char *const *names, size_t n,
    const train_st_load_options_t *opts, train_copy_report_t *ret_report,
    train_error_t *err)
{
    train_copy_t *copy = NULL;

    TRY (start (copier, dst, dst_stream, file, names, n, opts, true, &copy,
                err));
    return train_copy_wait (copy, -1, ret_report, err);
}
