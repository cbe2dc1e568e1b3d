/* SPDX-License-Identifier: Apache-2.0
 * copy_run.c - a copy from its first byte to the compare of its sums, and what
 * happens where they differ */
#include "copy_impl.h"

#include <inttypes.h>
#include <string.h>

#include "err.h"

static int enter (const struct side *s)
{
    return s->ops->enter (s->device);
}

void side_pack (const struct side *s, void *out, uint64_t off, uint64_t n,
                size_t p0, size_t p1, void *at)
{
    uint64_t size = (uint64_t)s->view.wire_size;
    int before = enter (s);

    if (s->pieces)
        s->ops->view->pieces_pack (out, s->pieces + p0, p1 - p0, off, at);
    else
        s->ops->view->pack (out, &s->view, off / size, n / size, at);
    s->ops->leave (before);
}

void side_unpack (const struct side *s, const void *in, uint64_t off,
                  uint64_t n, size_t p0, size_t p1, void *at)
{
    uint64_t size = (uint64_t)s->view.wire_size;
    int before = enter (s);

    if (s->pieces)
        s->ops->view->pieces_unpack (s->pieces + p0, p1 - p0, in, off, at);
    else
        s->ops->view->unpack (&s->view, in, off / size, n / size, at);
    s->ops->leave (before);
}

void side_sum (const struct side *s, uint64_t *sum, uint64_t off, uint64_t n,
               uint64_t every, size_t p0, size_t p1, void *at)
{
    int before = enter (s);

    if (s->pieces)
        s->ops->view->pieces_sum (sum, s->pieces + p0, p1 - p0, at);
    else
        s->ops->view->sum (sum, &s->view, off / 8, (n + 7) / 8, every, at);
    s->ops->leave (before);
}

void side_drain (const struct side *s)
{
    if (!s->lane)
        return;
    (void)s->ops->sync (s->lane->out, NULL);
    (void)s->ops->sync (s->lane->in, NULL);
    (void)s->ops->sync (s->lane->sum, NULL);
}

train_status_t side_fetch (const struct side *s, uint64_t off, uint64_t n,
                           char *to, train_error_t *err)
{
    void *at = s->lane ? s->lane->out : NULL;

    if (!s->lane) {
        side_pack (s, to, off, n, 0, 0, NULL);
        return TRAIN_OK;
    }
    if (s->direct) {
        TRY (s->ops->copy (to, (char *)s->view.data + off, n, at, err));
        return s->ops->sync (at, err);
    }
    side_pack (s, s->lane->scratch, off, n, 0, 0, at);
    TRY (s->ops->copy (to, s->lane->scratch, n, at, err));
    return s->ops->sync (at, err);
}

bool copy_differs (struct train_copy *job, uint64_t off, uint64_t n,
                   const char *want, const char *got)
{
    uint64_t w = 0, bytes;

    if (memcmp (want, got, n) == 0)
        return false;
    while (memcmp (want + w, got + w, n - w < 8 ? n - w : 8) == 0)
        w += 8;
    bytes = n - w < 8 ? n - w : 8;
    job->report.bad_offset = off + w;
    job->report.expected = job->report.got = 0;
    memcpy (&job->report.expected, want + w, bytes);
    memcpy (&job->report.got, got + w, bytes);
    return true;
}

/* Reads a part of both ends back and compares. *ret: found. */
static train_status_t locate_range (struct train_copy *job, uint64_t off,
                                    uint64_t n, bool *ret, train_error_t *err)
{
    char *want = job->copier->ring, *got = want + job->copier->chunk;

    TRY (side_fetch (&job->src, off, n, want, err));
    TRY (side_fetch (&job->dst, off, n, got, err));
    *ret = copy_differs (job, off, n, want, got);
    return TRAIN_OK;
}

static train_status_t locate_piece (struct train_copy *job, size_t p, bool *ret,
                                    train_error_t *err)
{
    const struct kern_piece *s = job->src.pieces + p, *d = job->dst.pieces + p;
    char *want = job->copier->ring, *got = want + job->copier->chunk;
    void *s_at = job->src.lane ? job->src.lane->out : NULL;
    void *d_at = job->dst.lane ? job->dst.lane->out : NULL;

    TRY (job->src.ops->copy (want, s->data, s->bytes, s_at, err));
    TRY (job->dst.ops->copy (got, d->data, d->bytes, d_at, err));
    TRY (job->src.ops->sync (s_at, err));
    TRY (job->dst.ops->sync (d_at, err));
    *ret = copy_differs (job, s->off, s->bytes, want, got);
    return TRAIN_OK;
}

/* Where both ends differ now. Nothing found: the source was changed under way,
 * or it was the sum's own reading that went wrong. */
static train_status_t locate (struct train_copy *job, bool *ret,
                              train_error_t *err)
{
    uint64_t step = job->copier->chunk;

    *ret = false;
    for (size_t p = 0; job->table >= 0 && p < job->n_pieces && !*ret; p++)
        TRY (locate_piece (job, p, ret, err));
    for (uint64_t off = 0; job->table < 0 && off < job->bytes && !*ret;
         off += step) {
        uint64_t left = job->bytes - off;

        TRY (locate_range (job, off, left < step ? left : step, ret, err));
    }
    return TRAIN_OK;
}

static const char *name_of (const struct side *s, char *text, size_t size)
{
    if (!s->lane)
        return "the host";
    snprintf (text, size, "GPU %d", s->device);
    return text;
}

static bool sums_agree (struct train_copy *job)
{
    const uint64_t *src = copier_fetched (job->copier, false);
    const uint64_t *dst = copier_fetched (job->copier, true);

    return memcmp (src, dst + COPY_SUMS, COPY_SUMS * sizeof (*src)) == 0;
}

static void say_mismatch (struct train_copy *job, const char *path, bool found)
{
    const train_copy_report_t *r = &job->report;
    char a[24], b[24];
    const char *from = name_of (&job->src, a, sizeof (a));
    const char *to = name_of (&job->dst, b, sizeof (b));

    if (found)
        copier_log (job->copier,
                    "copy of %" PRIu64 " bytes from %s to %s, %s: wrong at "
                    "offset %" PRIu64 ": expected %016" PRIx64 ", got "
                    "%016" PRIx64 "; it is repeated through the host",
                    r->bytes, from, to, path, r->bad_offset, r->expected,
                    r->got);
    else
        copier_log (job->copier,
                    "copy of %" PRIu64 " bytes from %s to %s, %s: the sums "
                    "differ, but both ends read the same now: was the source "
                    "written meanwhile? it is repeated through the host",
                    r->bytes, from, to, path);
}

void copy_poison (struct train_copy *job)
{
    const struct side *d = &job->dst;
    uint64_t step = job->copier->chunk;
    char *room = d->lane ? d->lane->scratch : job->copier->ring;
    void *at = d->lane ? d->lane->in : NULL;

    if (d->direct) {
        (void)d->ops->fill (d->device, d->view.data, 0xff, job->bytes, at,
                            NULL);
    } else {
        (void)d->ops->fill (d->device, room, 0xff, step, at, NULL);
        for (uint64_t off = 0; !d->pieces && off < job->bytes; off += step) {
            uint64_t left = job->bytes - off;

            side_unpack (d, room, off, left < step ? left : step, 0, 0, at);
        }
        for (size_t p = 0; d->pieces && p < job->n_pieces; p++)
            (void)d->ops->fill (d->device, d->pieces[p].data, 0xff,
                                d->pieces[p].bytes, at, NULL);
    }
    (void)d->ops->sync (at, NULL);
}

static train_copy_path_t choose (struct train_copy *job)
{
    train_copier_t *c = job->copier;
    unsigned char *pair;

    if (job->src.device == job->dst.device)
        return TRAIN_PATH_LOCAL;
    if (!job->src.lane || !job->dst.lane || c->transfer == TRANSFER_STAGED)
        return TRAIN_PATH_STAGED;
    pair = &c->pair[job->dst.device][job->src.device];
    if (*pair == PAIR_NEW)
        *pair = c->gpu->peer_open
                        && c->gpu->peer_open (job->dst.device, job->src.device)
                    ? PAIR_PEER
                    : PAIR_NONE;
    return *pair == PAIR_PEER ? TRAIN_PATH_PEER : TRAIN_PATH_STAGED;
}

static train_status_t repair (struct train_copy *job, train_error_t *err)
{
    static const char *const way[] = {"on the device", "peer to peer",
                                      "by the ring"};
    train_copy_path_t path = job->report.path;
    train_status_t status;
    bool found = false;
    char a[24], b[24];

    job->report.mismatch = true;
    job->report.repeated = 1;
    TRY (locate (job, &found, err));
    say_mismatch (job, way[path], found);
    if (path == TRAIN_PATH_PEER) {
        job->copier->pair[job->dst.device][job->src.device] = PAIR_BAD;
        path = TRAIN_PATH_STAGED;
    }
    job->report.path = path;
    status = copy_ways_run (job, path, err);
    if (status != TRAIN_OK || sums_agree (job))
        return status;
    copy_poison (job);
    return err_set (err, TRAIN_ECORRUPT,
                    "copy from %s to %s: the bytes arrived wrong twice, first "
                    "at offset %" PRIu64 "; look at the memory and the links "
                    "of both devices",
                    name_of (&job->src, a, sizeof (a)),
                    name_of (&job->dst, b, sizeof (b)), job->report.bad_offset);
}

train_status_t copy_run (struct train_copy *job, train_error_t *err)
{
    train_status_t status;

    memset (&job->report, 0, sizeof (job->report));
    job->report.bytes = job->bytes;
    job->report.path = choose (job);
    if (job->copier->insist && job->report.path == TRAIN_PATH_STAGED
        && job->src.lane && job->dst.lane
        && job->copier->pair[job->dst.device][job->src.device] == PAIR_NONE)
        return err_set (err, TRAIN_ENOTSUP,
                        "GPU %d and GPU %d have no way to each other; "
                        "RV_TRANSFER=auto goes through the host",
                        job->src.device, job->dst.device);
    status = copy_ways_run (job, job->report.path, err);
    if (status == TRAIN_OK && job->every > 0 && !sums_agree (job))
        status = repair (job, err);
    if (status != TRAIN_OK) {
        side_drain (&job->src);
        side_drain (&job->dst);
        return status;
    }
    job->report.verified = job->every > 0;
    job->report.nan = copier_fetched (job->copier, true)[2 * COPY_SUMS];
    job->report.inf = copier_fetched (job->copier, true)[2 * COPY_SUMS + 1];
    return TRAIN_OK;
}
