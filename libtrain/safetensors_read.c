/* SPDX-License-Identifier: Apache-2.0
 * safetensors_read.c - the threads that read what is loaded, each a chunk at a
 * time, into the ring or to its place on the host
 *
 * Files are read and not looked at in their map, so that one that is shortened
 * meanwhile is an error. What the page cache has is asked for without waiting;
 * once something is missing there, the kernel is told what comes next. */
#include "config.h"

#include "safetensors_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* Of the wire, or the file: small enough that the sum, or a conversion, finds its bytes in a cache of
 * the core that has read them. */
#define STEP ((size_t)256 << 10)
/* Bytes that the kernel reads ahead: some time of a fast disk. */
#define AHEAD      ((uint64_t)128 << 20)
#define AHEAD_STEP ((uint64_t)8 << 20)

struct reader {
    struct load *load;
    char *bounce; /* (2 * STEP) of what is converted or strided; NULL else */
};

char *load_room (const struct load *load, uint64_t c)
{
    return load->copier->ring + c % (uint64_t)load->slots * load->chunk;
}

/* Bytes in the file for so many of the wire. */
static uint64_t in_file (const struct load_item *it, uint64_t wire)
{
    return wire / (uint64_t)it->dst.view.wire_size * (uint64_t)it->in_size;
}

/* The next stretch of a file that the kernel may begin to read. */
static bool next_ahead (struct load *load, const struct load_item **ret,
                        uint64_t *ret_at, uint64_t *ret_n)
{
    struct load_cursor *a = &load->ahead;
    bool found = false;

    pthread_mutex_lock (&load->lock);
    if (load->ahead_at < load->next_at) {
        *a = load->next;
        load->ahead_at = load->next_at;
    }
    if (a->item < load->n_items && load->ahead_at < load->next_at + AHEAD) {
        const struct load_item *it = &load->item[a->item];
        uint64_t off = in_file (it, a->off), left = it->entry->bytes - off;
        uint64_t n = left < AHEAD_STEP ? left : AHEAD_STEP;

        *ret = it;
        *ret_at = it->at + off;
        *ret_n = n;
        a->off += n / (uint64_t)it->in_size * (uint64_t)it->dst.view.wire_size;
        load->ahead_at += n;
        if (n == left)
            *a = (struct load_cursor){a->item + 1, 0};
        found = true;
    }
    pthread_mutex_unlock (&load->lock);
    return found;
}

static void read_ahead (struct load *load)
{
    const struct load_item *it;
    uint64_t at, n;

    while (next_ahead (load, &it, &at, &n)) {
        if (it->part->fd >= 0)
            (void)posix_fadvise (it->part->fd, (off_t)at, (off_t)n,
                                 POSIX_FADV_WILLNEED);
    }
}

/* What the page cache has of [n] bytes, from their beginning. */
static size_t read_cached (struct load *load, const struct st_part *part,
                           char *to, size_t n, uint64_t at)
{
    size_t done = 0;

    while (done < n && part->fd >= 0 && !atomic_load (&load->plain)) {
        struct iovec v = {to + done, n - done};
        ssize_t got = preadv2 (part->fd, &v, 1, (off_t)(at + done), RWF_NOWAIT);

        if (got > 0) {
            done += (size_t)got;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno != EAGAIN)
            atomic_store (&load->plain, true);
        break;
    }
    return done;
}

static train_status_t read_bytes (struct load *load, const struct load_item *it,
                                  char *to, size_t n, uint64_t at,
                                  train_error_t *err)
{
    size_t done = read_cached (load, it->part, to, n, at);
    int64_t begin;

    if (done == n)
        return TRAIN_OK;
    if (!atomic_load (&load->plain) && !atomic_exchange (&load->cold, true))
        read_ahead (load);
    begin = copy_now_us ();
    TRY (st_pread (it->part, to + done, n - done, at + done, err));
    /* A file that does not tell: what takes longer than a copy was not there. */
    if (atomic_load (&load->plain)
        && copy_now_us () - begin > (int64_t)n / 1000)
        atomic_store (&load->cold, true);
    return TRAIN_OK;
}

/* One step of the wire to [out], or to its strided place where that is NULL. */
static train_status_t fill_step (struct reader *r, const struct load_item *it,
                                 uint64_t off, size_t n, char *out,
                                 train_error_t *err)
{
    const struct kern_view *v = &it->dst.view;
    uint64_t size = (uint64_t)v->wire_size, k = n / size;
    uint64_t at = it->at + in_file (it, off);
    struct kern_view in = {.data = r->bounce,
                           .compact = 1,
                           .from = it->from,
                           .to = it->to,
                           .in_size = it->in_size,
                           .wire_size = v->wire_size,
                           .n = k};
    char *wire = r->bounce;

    if (it->from == KERN_RAW && out)
        return read_bytes (r->load, it, out, n, at, err);
    TRY (read_bytes (r->load, it, r->bounce, k * (uint64_t)it->in_size, at,
                     err));
    if (it->from != KERN_RAW) {
        wire = out ? out : r->bounce + STEP;
        kern_view_pack_host (wire, &in, 0, k, NULL);
    }
    if (!out)
        side_unpack (&it->dst, wire, off, n, 0, 0, NULL);
    return TRAIN_OK;
}

static void sum_step (const struct load *load, const struct load_item *it,
                      uint64_t off, size_t n, const char *at, uint64_t *sum)
{
    /* so that the words are numbered from the beginning of the tensor */
    struct kern_view v = {.data = (void *)((uintptr_t)at - (uintptr_t)off),
                          .compact = 1,
                          .in_size = 1,
                          .wire_size = 1,
                          .n = it->bytes};

    if (load->every > 0)
        kern_view_sum_host (sum, &v, off / 8, (n + 7) / 8, load->every, NULL);
}

static train_status_t fill (struct reader *r, uint64_t c, struct load_slot *s,
                            train_error_t *err)
{
    const struct load_item *it = s->item;
    size_t step = STEP, wire = (size_t)it->dst.view.wire_size;
    char *to = NULL;

    if ((size_t)it->in_size > wire) /* at most STEP of the file */
        step = STEP / (size_t)it->in_size * wire;
    if (r->load->ring)
        to = load_room (r->load, c);
    else if (it->dst.direct)
        to = (char *)it->dst.view.data + s->off;
    s->sum = 0;
    for (uint64_t done = 0; done < s->n; done += step) {
        size_t n = s->n - done < step ? (size_t)(s->n - done) : step;
        char *out = to ? to + done : NULL;

        TRY (fill_step (r, it, s->off + done, n, out, err));
        if (r->load->ring)
            sum_step (r->load, it, s->off + done, n, out, &s->sum);
    }
    return TRAIN_OK;
}

/* The next chunk for a thread; with the lock held. */
static struct load_slot *take (struct load *load, uint64_t *ret_c)
{
    struct load_slot *s;
    const struct load_item *it;
    uint64_t left;

    while (!load->stop && load->taken < load->n
           && load->taken - load->retired >= (uint64_t)load->slots)
        pthread_cond_wait (&load->room, &load->lock);
    if (load->stop || load->taken == load->n)
        return NULL;
    *ret_c = load->taken++;
    s = &load->slot[*ret_c % (uint64_t)load->slots];
    it = &load->item[load->next.item];
    left = it->bytes - load->next.off;
    s->item = it;
    s->off = load->next.off;
    s->n = left < load->chunk ? left : load->chunk;
    s->full = false;
    load->next.off += s->n;
    load->next_at += in_file (it, s->n);
    if (s->n == left)
        load->next = (struct load_cursor){load->next.item + 1, 0};
    return s;
}

static void *read_chunks (void *arg)
{
    struct load *load = arg;
    struct reader r = {.load = load, .bounce = malloc (2 * STEP)};
    train_error_t err = {0};
    train_status_t status = TRAIN_OK;
    struct load_slot *s;
    uint64_t c;

    pthread_mutex_lock (&load->lock);
    while ((s = take (load, &c))) {
        pthread_mutex_unlock (&load->lock);
        if (!r.bounce)
            status = err_set (&err, TRAIN_ENOMEM, "no memory to read with");
        if (status == TRAIN_OK && atomic_load (&load->cold))
            read_ahead (load);
        if (status == TRAIN_OK)
            status = fill (&r, c, s, &err);
        pthread_mutex_lock (&load->lock);
        if (status == TRAIN_OK) {
            s->full = true;
        } else if (!load->stop) {
            load->status =
                err_set (&load->err, status, "%s: tensor '%s': %s",
                         s->item->part->path ? s->item->part->path : "a frame",
                         s->item->entry->name, err.text);
            load->stop = true;
            pthread_cond_broadcast (&load->room);
        }
        pthread_cond_signal (&load->filled);
    }
    pthread_mutex_unlock (&load->lock);
    free (r.bounce);
    return NULL;
}

train_status_t load_start (struct load *load, train_error_t *err)
{
    int rc = 0;

    pthread_mutex_init (&load->lock, NULL);
    pthread_cond_init (&load->room, NULL);
    pthread_cond_init (&load->filled, NULL);
    while (load->running < load->readers && rc == 0) {
        rc = pthread_create (&load->thread[load->running], NULL, read_chunks,
                             load);
        load->running += rc == 0;
    }
    if (load->running == 0 && load->readers > 0)
        return err_set (err, TRAIN_ENOMEM, "no thread to read with: %s",
                        strerror (rc));
    return TRAIN_OK;
}

void load_stop (struct load *load)
{
    pthread_mutex_lock (&load->lock);
    load->stop = true;
    pthread_cond_broadcast (&load->room);
    pthread_mutex_unlock (&load->lock);
    for (int i = 0; i < load->running; i++)
        pthread_join (load->thread[i], NULL);
    pthread_cond_destroy (&load->room);
    pthread_cond_destroy (&load->filled);
    pthread_mutex_destroy (&load->lock);
}

train_status_t load_wait (struct load *load, uint64_t c, train_error_t *err)
{
    const struct load_slot *s = &load->slot[c % (uint64_t)load->slots];
    train_status_t status;

    pthread_mutex_lock (&load->lock);
    /* What the slot had before is full too. */
    while (!load->stop && !(load->taken > c && s->full))
        pthread_cond_wait (&load->filled, &load->lock);
    status = load->status;
    if (status != TRAIN_OK)
        err_set (err, status, "%s", load->err.text);
    pthread_mutex_unlock (&load->lock);
    return status;
}

void load_retire (struct load *load, uint64_t c)
{
    pthread_mutex_lock (&load->lock);
    load->retired = c + 1;
    pthread_cond_signal (&load->room);
    pthread_mutex_unlock (&load->lock);
}
