/* SPDX-License-Identifier: Apache-2.0
 * frames.c - sets of tensors over a socket, with length and sum */
#include "config.h"

#include <train/frames.h>

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "err.h"
#include "opts.h"
#include "safetensors.h"
#include "sock.h"
#include "train/trace.h"

/* Summed while it is still in the cache. */
#define PIECE ((size_t)256 << 10)

#define DEFAULT_TIMEOUT_MS 60000
#define DEFAULT_MAX_BYTES  ((uint64_t)1 << 30)

struct train_frames {
    int fd;
    char *peer;
    int64_t timeout_ms;
    uint64_t max_bytes;
    bool send_failed, recv_failed; /* out of step: no frame can follow */
    bool sent_end, got_end;
};

/* One frame under way. */
struct run {
    train_frames_t *frames;
    int64_t deadline_ms;
    uint64_t done, total;
    XXH3_state_t *sum;
};

static train_status_t check_socket (int fd, train_error_t *err)
{
    int type = 0, flags, own;
    socklen_t len = sizeof (type);

    if (fd < 0 || getsockopt (fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0
        || type != SOCK_STREAM)
        return err_set (err, TRAIN_EINVAL, "frames: no stream socket");
    if ((flags = fcntl (fd, F_GETFL)) < 0
        || fcntl (fd, F_SETFL, flags | O_NONBLOCK) < 0
        || (own = fcntl (fd, F_GETFD)) < 0
        || fcntl (fd, F_SETFD, own | FD_CLOEXEC) < 0)
        return err_set (err, TRAIN_EIO, "frames: %s", strerror (errno));
    return TRAIN_OK;
}

train_status_t train_frames_open (int fd, const train_frames_options_t *opts,
                                  train_frames_t **ret_frames,
                                  train_error_t *err)
{
    train_frames_options_t o;
    train_status_t status;
    train_frames_t *f;

    if (!ret_frames)
        return err_set (err, TRAIN_EINVAL, "frames: no result");
    if ((status = opts_read (&o, sizeof (o), opts, "frames", err)) != TRAIN_OK)
        return status;
    if (o.timeout_ms < 0)
        return err_set (err, TRAIN_EINVAL, "frames: a negative deadline");
    if ((status = check_socket (fd, err)) != TRAIN_OK)
        return status;
    f = calloc (1, sizeof (*f));
    if (f)
        f->peer = strdup (o.peer ? o.peer : "the other side");
    if (!f || !f->peer) {
        free (f);
        return err_set (err, TRAIN_ENOMEM, "frames: no memory");
    }
    f->fd = fd;
    f->timeout_ms =
        o.timeout_ms ? clock_span (o.timeout_ms) : DEFAULT_TIMEOUT_MS;
    f->max_bytes = o.max_bytes ? o.max_bytes : DEFAULT_MAX_BYTES;
    *ret_frames = f;
    return TRAIN_OK;
}

void train_frames_close (train_frames_t *frames)
{
    if (!frames)
        return;
    sock_close (&frames->fd);
    free (frames->peer);
    free (frames);
}

static train_status_t run_init (struct run *r, train_frames_t *frames,
                                train_error_t *err)
{
    *r = (struct run){.frames = frames,
                      .deadline_ms = clock_ms () + frames->timeout_ms,
                      .sum = XXH3_createState ()};
    if (!r->sum)
        return err_set (err, TRAIN_ENOMEM, "%s: no memory", frames->peer);
    XXH3_64bits_reset (r->sum);
    return TRAIN_OK;
}

static train_status_t failed (const struct run *r, const char *what,
                              train_error_t *err)
{
    const train_frames_t *f = r->frames;

    if (errno == ETIMEDOUT)
        return err_set (err, TRAIN_ETIMEDOUT,
                        "%s: not done in %lld ms: %s byte %llu of a frame of "
                        "%llu",
                        f->peer, (long long)f->timeout_ms, what,
                        (unsigned long long)r->done,
                        (unsigned long long)r->total);
    return err_set (err, TRAIN_EPEER,
                    "%s: went away: %s byte %llu of a frame "
                    "of %llu: %s",
                    f->peer, what, (unsigned long long)r->done,
                    (unsigned long long)r->total, strerror (errno));
}

static void frame_span (const struct run *r, const train_span_t *span,
                        train_status_t status)
{
    const train_trace_arg_t args[] = {{"bytes", (int64_t)r->done},
                                      {"status", status}};
    char row[64];

    snprintf (row, sizeof (row), "%.40s %s", r->frames->peer,
              strcmp (span->name, "send") == 0 ? "out" : "in");
    train_trace_end (span, row, args, 2);
}

/* Bytes of the payload. */
static train_status_t send_bytes (struct run *r, const void *data, size_t n,
                                  train_error_t *err)
{
    const char *at = data;

    while (n > 0) {
        size_t piece = n < PIECE ? n : PIECE;

        XXH3_64bits_update (r->sum, at, piece);
        if (sock_send (r->frames->fd, at, piece, r->deadline_ms) < 0)
            return failed (r, "sending", err);
        at += piece;
        n -= piece;
        r->done += piece;
    }
    return TRAIN_OK;
}

static train_status_t send_word (struct run *r, uint64_t word,
                                 train_error_t *err)
{
    uint64_t le = htole64 (word);

    if (sock_send (r->frames->fd, &le, sizeof (le), r->deadline_ms) < 0)
        return failed (r, "sending", err);
    return TRAIN_OK;
}

static train_status_t send_plan (struct run *r, const struct st_plan *plan,
                                 train_error_t *err)
{
    train_status_t status = send_word (r, r->total, err);

    if (status == TRAIN_OK)
        status = send_bytes (r, plan->header, plan->header_bytes, err);
    for (size_t i = 0; i < plan->n && status == TRAIN_OK; i++)
        status = send_bytes (r, plan->order[i]->data, plan->bytes[i], err);
    if (status == TRAIN_OK)
        status = send_word (r, XXH3_64bits_digest (r->sum), err);
    if (status != TRAIN_OK)
        r->frames->send_failed = true;
    return status;
}

/* What can be wrong with the arguments is found before a byte goes. */
static train_status_t plan_total (const struct st_plan *plan, uint64_t *ret,
                                  train_error_t *err)
{
    *ret = plan->header_bytes;
    for (size_t i = 0; i < plan->n; i++) {
        if (plan->bytes[i] > 0 && !plan->order[i]->data)
            return err_set (err, TRAIN_EINVAL, "tensor '%s': no data",
                            plan->order[i]->name);
        *ret += plan->bytes[i];
    }
    return TRAIN_OK;
}

static train_status_t may_send (const train_frames_t *f, train_error_t *err)
{
    if (!f)
        return err_set (err, TRAIN_EINVAL, "frames: none");
    if (f->send_failed || f->sent_end)
        return err_set (err, TRAIN_ESTATE, "%s: %s", f->peer,
                        f->sent_end ? "the stream was ended"
                                    : "an earlier frame was not sent whole");
    return TRAIN_OK;
}

train_status_t train_frames_send (train_frames_t *frames,
                                  const train_st_entry_t *entries, size_t n,
                                  const train_st_meta_t *meta, size_t n_meta,
                                  train_error_t *err)
{
    struct st_plan plan = {0};
    struct run run = {0};
    uint64_t total = 0;
    train_status_t status = may_send (frames, err);

    if (status != TRAIN_OK)
        return status;
    if ((n > 0 && !entries) || (n_meta > 0 && !meta))
        return err_set (err, TRAIN_EINVAL, "frames: no tensors or metadata");
    status = st_plan_init (&plan, entries, n, meta, n_meta, err);
    if (status == TRAIN_OK)
        status = plan_total (&plan, &total, err);
    if (status == TRAIN_OK)
        status = run_init (&run, frames, err);
    if (status == TRAIN_OK) {
        train_span_t span = train_trace_begin ("copy", "send");

        run.total = total;
        status = send_plan (&run, &plan, err);
        frame_span (&run, &span, status);
    }
    XXH3_freeState (run.sum);
    st_plan_fini (&plan);
    return status;
}

train_status_t train_frames_end (train_frames_t *frames, train_error_t *err)
{
    struct run run = {.frames = frames};
    train_status_t status = may_send (frames, err);

    if (status != TRAIN_OK)
        return status;
    run.deadline_ms = clock_ms () + frames->timeout_ms;
    status = send_word (&run, 0, err);
    frames->sent_end = status == TRAIN_OK;
    frames->send_failed = status != TRAIN_OK;
    return status;
}

/* Pages that no byte has reached yet are no memory. */
static train_status_t recv_payload (struct run *r, struct st_part *part,
                                    train_error_t *err)
{
    void *map = mmap (NULL, (size_t)r->total, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED)
        return err_set (err, TRAIN_ENOMEM,
                        "%s: no memory for a frame of %llu "
                        "bytes",
                        r->frames->peer, (unsigned long long)r->total);
    part->map = map;
    part->map_bytes = (size_t)r->total;
    while (r->done < r->total) {
        char *at = part->map + r->done;
        uint64_t left = r->total - r->done;
        size_t piece = left < PIECE ? (size_t)left : PIECE;

        if (sock_recv (r->frames->fd, at, piece, r->deadline_ms) < 0)
            return failed (r, "receiving after", err);
        XXH3_64bits_update (r->sum, at, piece);
        r->done += piece;
    }
    return TRAIN_OK;
}

static train_status_t recv_length (struct run *r, train_error_t *err)
{
    train_frames_t *f = r->frames;
    uint64_t le;

    if (sock_recv (f->fd, &le, sizeof (le), r->deadline_ms) < 0) {
        if (errno == ETIMEDOUT)
            return err_set (err, TRAIN_ETIMEDOUT, "%s: no frame in %lld ms",
                            f->peer, (long long)f->timeout_ms);
        return err_set (err, TRAIN_EPEER,
                        "%s: went away without ending the stream: %s", f->peer,
                        strerror (errno));
    }
    r->total = le64toh (le);
    if (r->total > f->max_bytes || r->total > SIZE_MAX / 2)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: announces a frame of %llu bytes, over the %llu "
                        "that are allowed",
                        f->peer, (unsigned long long)r->total,
                        (unsigned long long)f->max_bytes);
    if (r->total > 0 && r->total < 10)
        return err_set (err, TRAIN_EFORMAT,
                        "%s: %llu bytes are too few for a frame", f->peer,
                        (unsigned long long)r->total);
    return TRAIN_OK;
}

static train_status_t recv_frame (struct run *r, train_safetensors_t *file,
                                  train_error_t *err)
{
    struct st_part *part = file->parts;
    train_status_t status = recv_payload (r, part, err);
    uint64_t le, own;

    if (status != TRAIN_OK)
        return status;
    if (sock_recv (r->frames->fd, &le, sizeof (le), r->deadline_ms) < 0)
        return failed (r, "receiving the sum after", err);
    own = XXH3_64bits_digest (r->sum);
    if (le64toh (le) != own)
        return err_set (err, TRAIN_ECORRUPT,
                        "%s: a frame of %llu bytes arrived with sum %016llx, "
                        "was sent with %016llx",
                        r->frames->peer, (unsigned long long)r->total,
                        (unsigned long long)own,
                        (unsigned long long)le64toh (le));
    mprotect (part->map, part->map_bytes, PROT_READ);
    status = st_read_part (part, &file->entries, &file->count, err);
    if (status == TRAIN_OK)
        status = st_sort_names (file, err);
    if (status != TRAIN_OK)
        return err_prefix (err, status, "%s: frame", r->frames->peer);
    return TRAIN_OK;
}

static train_status_t recv_file (struct run *r, train_safetensors_t **ret_file,
                                 train_error_t *err)
{
    train_safetensors_t *file = calloc (1, sizeof (*file));
    train_status_t status;

    if (file)
        file->parts = calloc (1, sizeof (*file->parts));
    if (!file || !file->parts) {
        free (file);
        return err_set (err, TRAIN_ENOMEM, "%s: no memory", r->frames->peer);
    }
    file->n_parts = 1;
    file->parts->fd = -1;
    status = recv_frame (r, file, err);
    if (status == TRAIN_OK)
        *ret_file = file;
    else
        train_safetensors_close (file);
    return status;
}

train_status_t train_frames_recv (train_frames_t *frames,
                                  train_safetensors_t **ret_file,
                                  train_error_t *err)
{
    struct run run = {0};
    train_status_t status;

    if (!frames || !ret_file)
        return err_set (err, TRAIN_EINVAL, "frames: none, or no result");
    if (frames->recv_failed)
        return err_set (err, TRAIN_ESTATE,
                        "%s: an earlier frame did not arrive whole",
                        frames->peer);
    if (frames->got_end) {
        *ret_file = NULL;
        return TRAIN_OK;
    }
    if ((status = run_init (&run, frames, err)) != TRAIN_OK)
        return status;
    status = recv_length (&run, err);
    if (status == TRAIN_OK && run.total == 0) {
        frames->got_end = true;
        *ret_file = NULL;
    } else if (status == TRAIN_OK) {
        train_span_t span = train_trace_begin ("copy", "receive");

        status = recv_file (&run, ret_file, err);
        frame_span (&run, &span, status);
    }
    frames->recv_failed = status != TRAIN_OK;
    XXH3_freeState (run.sum);
    return status;
}
