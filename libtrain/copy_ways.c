/* SPDX-License-Identifier: Apache-2.0
 * copy_ways.c - the ways that bytes go: on one device, by peer, by the ring */
#include "copy_impl.h"

#include <string.h>

#include "err.h"

#define PARTS 4 /* of a copy that is cut for its sums alone */

/* A copy under way: one chunk after the other. */
struct run {
    struct train_copy *job;
    train_copier_t *c;
    const struct side *s, *d;
    train_copy_path_t path;
    bool late; /* the source is summed while its bytes are on their way */
    uint64_t chunk, n; /* bytes of a chunk, number of chunks */
    uint64_t *ssum, *dsum;
    size_t p0, p1;  /* pieces of the present chunk */
    uint64_t taken; /* chunks that the host has taken from the ring */
    size_t taken_piece;
    train_error_t *err;
};

static uint64_t round_up (uint64_t x, uint64_t to)
{
    return (x + to - 1) / to * to;
}

/* How the bytes are cut. Small copies are too, so that both directions are busy at
 * once; one that goes straight from memory to memory is cut for its sums alone. */
static uint64_t chunk_of (const struct train_copy *job, train_copy_path_t path)
{
    uint64_t chunk = round_up (job->bytes / 16, 4096);

    if (job->table >= 0)
        return job->copier->chunk; /* pieces end where chunks do */
    if (chunk < 256 << 10)
        chunk = 256 << 10;
    if (chunk > job->copier->chunk)
        chunk = job->copier->chunk;
    if (path != TRAIN_PATH_STAGED && job->src.direct && job->dst.direct
        && chunk < job->bytes / PARTS)
        chunk = round_up (job->bytes / PARTS, 4096);
    return chunk;
}

static uint64_t chunk_bytes (const struct run *r, uint64_t c)
{
    uint64_t off = c * r->chunk, left = r->job->bytes - off;

    return left < r->chunk ? left : r->chunk;
}

/* Pieces after [p] that lie before the end of chunk [c]. */
static size_t pieces_end (const struct run *r, size_t p, uint64_t c)
{
    const struct kern_piece *piece = r->s->pieces;

    while (piece && p < r->job->n_pieces && piece[p].off < (c + 1) * r->chunk)
        p++;
    return p;
}

static char *slot (char *ring, const struct run *r, uint64_t c)
{
    return ring + (c % (uint64_t)r->c->slots) * r->c->chunk;
}

static void sum_chunk (struct run *r, const struct side *s, uint64_t *sums,
                       uint64_t c, size_t p0, size_t p1, void *at)
{
    if (r->job->every > 0)
        side_sum (s, sums + copy_slot (c, r->n), c * r->chunk,
                  chunk_bytes (r, c), r->job->every, p0, p1, at);
}

/* Bytes of the chunk where a copy engine can read them: in place, or packed
 * into the scratch, in the order of [out]. */
static train_status_t produce (struct run *r, uint64_t c, const char **ret)
{
    struct lane *l = r->s->lane;
    char *room = slot (l->scratch, r, c);

    if (!r->late)
        sum_chunk (r, r->s, r->ssum, c, r->p0, r->p1, l->sum);
    if (r->s->direct) {
        *ret = (char *)r->s->view.data + c * r->chunk;
        return TRAIN_OK;
    }
    side_pack (r->s, room, c * r->chunk, chunk_bytes (r, c), r->p0, r->p1,
               l->out);
    *ret = room;
    return TRAIN_OK;
}

static train_status_t clear_side (const struct run *r, const struct side *s)
{
    struct lane *l = s->lane;

    if (!l)
        return TRAIN_OK;
    return s->ops->fill (s->device, l->sums, 0, COPY_N_SUMS * sizeof (*l->sums),
                         r->path == TRAIN_PATH_LOCAL ? l->out : l->sum, r->err);
}

/* No sums yet, at either end. */
static train_status_t clear (const struct run *r)
{
    TRY (clear_side (r, r->s));
    return r->s->device == r->d->device ? TRAIN_OK : clear_side (r, r->d);
}

/* On the destination's GPU: what lies at [from] to its place, then its sum. */
static train_status_t consume (struct run *r, uint64_t c, const char *from)
{
    struct lane *l = r->d->lane;
    void *freed = l->freed[c % (uint64_t)r->c->slots];

    if (!r->d->direct)
        side_unpack (r->d, from, c * r->chunk, chunk_bytes (r, c), r->p0, r->p1,
                     l->in);
    TRY (r->d->ops->event_record (freed, r->d->device, l->in, r->err));
    TRY (r->d->ops->event_wait (l->sum, r->d->device, freed, r->err));
    sum_chunk (r, r->d, r->dsum, c, r->p0, r->p1, l->sum);
    return TRAIN_OK;
}

static train_status_t gpu_to_gpu (struct run *r, uint64_t c)
{
    const struct backend_ops *ops = r->s->ops;
    struct lane *ls = r->s->lane, *ld = r->d->lane;
    uint64_t bytes = chunk_bytes (r, c);
    int at = (int)(c % (uint64_t)r->c->slots);
    char *ring = slot (r->c->ring, r, c);
    char *to = r->d->direct ? (char *)r->d->view.data + c * r->chunk
                            : slot (ld->scratch, r, c);
    const char *from = NULL;

    TRY (produce (r, c, &from));
    if (c >= (uint64_t)r->c->slots)
        TRY (ops->event_wait (ls->out, r->s->device, ld->freed[at], r->err));
    if (r->path == TRAIN_PATH_PEER)
        TRY (ops->peer (to, r->d->device, from, r->s->device, bytes, ls->out,
                        r->err));
    else
        TRY (ops->copy (ring, from, bytes, ls->out, r->err));
    TRY (ops->event_record (ls->full[at], r->s->device, ls->out, r->err));
    if (r->late && c == 0)
        TRY (clear (r));
    TRY (ops->event_wait (ld->in, r->d->device, ls->full[at], r->err));
    if (r->path != TRAIN_PATH_PEER)
        TRY (ops->copy (to, ring, bytes, ld->in, r->err));
    return consume (r, c, to);
}

/* Chunks up to [end] from the ring to where they belong on the host. */
static train_status_t take (struct run *r, uint64_t end)
{
    for (; r->taken < end; r->taken++) {
        uint64_t c = r->taken;
        size_t p0 = r->taken_piece, p1 = pieces_end (r, p0, c);

        TRY (r->s->ops->event_sync (r->s->lane->full[c % (uint64_t)r->c->slots],
                                    r->err));
        if (!(r->d->direct && r->d->pinned))
            side_unpack (r->d, slot (r->c->ring, r, c), c * r->chunk,
                         chunk_bytes (r, c), p0, p1, NULL);
        sum_chunk (r, r->d, r->dsum, c, p0, p1, NULL);
        r->taken_piece = p1;
    }
    return TRAIN_OK;
}

static train_status_t gpu_to_host (struct run *r, uint64_t c)
{
    struct lane *l = r->s->lane;
    char *to = r->d->direct && r->d->pinned
                   ? (char *)r->d->view.data + c * r->chunk
                   : slot (r->c->ring, r, c);
    const char *from = NULL;

    if (c >= (uint64_t)r->c->slots)
        TRY (take (r, c - (uint64_t)r->c->slots + 1));
    TRY (produce (r, c, &from));
    TRY (r->s->ops->copy (to, from, chunk_bytes (r, c), l->out, r->err));
    TRY (r->s->ops->event_record (l->full[c % (uint64_t)r->c->slots],
                                  r->s->device, l->out, r->err));
    return c + 1 == r->n ? take (r, r->n) : TRAIN_OK;
}

static train_status_t host_to_gpu (struct run *r, uint64_t c)
{
    struct lane *l = r->d->lane;
    int at = (int)(c % (uint64_t)r->c->slots);
    char *from = slot (r->c->ring, r, c);
    char *to = r->d->direct ? (char *)r->d->view.data + c * r->chunk
                            : slot (l->scratch, r, c);

    sum_chunk (r, r->s, r->ssum, c, r->p0, r->p1, NULL);
    if (r->s->direct && r->s->pinned) {
        from = (char *)r->s->view.data + c * r->chunk;
    } else {
        if (c >= (uint64_t)r->c->slots)
            TRY (r->d->ops->event_sync (l->freed[at], r->err));
        side_pack (r->s, from, c * r->chunk, chunk_bytes (r, c), r->p0, r->p1,
                   NULL);
    }
    TRY (r->d->ops->copy (to, from, chunk_bytes (r, c), l->in, r->err));
    return consume (r, c, to);
}

/* Both ends on one device: in one pass, except that the pieces of a batch go
 * by way of a ring. */
static train_status_t local (struct run *r, uint64_t c)
{
    const struct side *s = r->s, *d = r->d;
    void *at = s->lane ? s->lane->out : NULL;
    uint64_t off = c * r->chunk, bytes = chunk_bytes (r, c);
    int before;

    sum_chunk (r, s, r->ssum, c, r->p0, r->p1, at);
    if (s->pieces) {
        char *room = slot (s->lane ? s->lane->scratch : r->c->ring, r, c);

        side_pack (s, room, off, bytes, r->p0, r->p1, at);
        side_unpack (d, room, off, bytes, r->p0, r->p1, at);
    } else if (s->direct && d->direct) {
        TRY (s->ops->copy ((char *)d->view.data + off,
                           (char *)s->view.data + off, bytes, at, r->err));
    } else if (c == 0) { /* one launch for all chunks */
        before = s->ops->enter (s->device);
        s->ops->view->move (&d->view, &s->view, at);
        s->ops->leave (before);
    }
    sum_chunk (r, d, r->dsum, c, r->p0, r->p1, at);
    return TRAIN_OK;
}

static train_status_t chunk (struct run *r, uint64_t c)
{
    r->p1 = pieces_end (r, r->p0, c);
    if (r->path == TRAIN_PATH_LOCAL)
        TRY (local (r, c));
    else if (r->s->lane && r->d->lane)
        TRY (gpu_to_gpu (r, c));
    else if (r->s->lane)
        TRY (gpu_to_host (r, c));
    else
        TRY (host_to_gpu (r, c));
    r->p0 = r->p1;
    return TRAIN_OK;
}

/* The lane's streams begin after what the caller's streams had before. */
static train_status_t begin_side (const struct run *r, const struct side *s,
                                  const struct side *other)
{
    struct lane *l = s->lane;
    void *at[3] = {l ? l->out : NULL, l ? l->in : NULL, l ? l->sum : NULL};

    if (!l)
        return TRAIN_OK;
    for (int i = 0; i < 3; i++) {
        if (s->waits)
            TRY (s->ops->event_wait (at[i], s->device, l->ready[r->job->index],
                                     r->err));
        if (other->waits)
            TRY (s->ops->event_wait (
                at[i], s->device, other->lane->ready[r->job->index], r->err));
    }
    return TRAIN_OK;
}

/* A host end has no stream to wait on: the caller's thread does. */
static train_status_t begin (struct run *r)
{
    const struct side *s = r->s, *d = r->d;

    memset (r->c->host_sums, 0, sizeof (r->c->host_sums));
    TRY (begin_side (r, s, d));
    if (s->device != d->device)
        TRY (begin_side (r, d, s));
    if (!r->late)
        TRY (clear (r));
    if (!s->lane && d->waits)
        return d->ops->event_sync (d->lane->ready[r->job->index], r->err);
    if (!d->lane && s->waits)
        return s->ops->event_sync (s->lane->ready[r->job->index], r->err);
    return TRAIN_OK;
}

static void *end_stream (const struct run *r, const struct side *s)
{
    if (!s->lane)
        return NULL;
    return r->path == TRAIN_PATH_LOCAL ? s->lane->out : s->lane->sum;
}

/* NaN counted, sums fetched, all work of the copy over once that is. */
static train_status_t end_side (struct run *r, const struct side *s, bool dst)
{
    uint64_t *to = copier_fetched (r->c, dst);
    uint64_t *sums = s->lane ? s->lane->sums : r->c->host_sums;
    void *at = end_stream (r, s);

    if (dst && r->job->elem != KERN_RAW) {
        int before = s->ops->enter (s->device);

        s->ops->view->nonfinite (sums + 2 * (size_t)COPY_SUMS, &s->view,
                                 r->job->elem, at);
        s->ops->leave (before);
    }
    return s->ops->copy (to, sums, COPY_N_SUMS * sizeof (*to), at, r->err);
}

train_status_t copy_ways_run (struct train_copy *job, train_copy_path_t path,
                              train_error_t *err)
{
    struct run r = {
        .job = job,
        .c = job->copier,
        .s = &job->src,
        .d = &job->dst,
        .path = path,
        .late = path == TRAIN_PATH_PEER && job->src.direct,
        .err = err,
    };

    r.chunk = chunk_of (job, path);
    r.n = (job->bytes + r.chunk - 1) / r.chunk;
    r.ssum = r.s->lane ? r.s->lane->sums : r.c->host_sums;
    r.dsum = (r.d->lane ? r.d->lane->sums : r.c->host_sums) + COPY_SUMS;
    TRY (begin (&r));
    for (uint64_t c = 0; c < r.n; c++)
        TRY (chunk (&r, c));
    for (uint64_t c = 0; r.late && c < r.n; c++)
        sum_chunk (&r, r.s, r.ssum, c, 0, 0, r.s->lane->sum);
    TRY (end_side (&r, r.s, false));
    TRY (end_side (&r, r.d, true));
    TRY (r.s->ops->sync (end_stream (&r, r.s), err));
    TRY (r.d->ops->sync (end_stream (&r, r.d), err));
    job->report.chunks = r.n;
    return TRAIN_OK;
}
