/* SPDX-License-Identifier: Apache-2.0
 * safetensors_write.c - write a safetensors file beside its target and rename */
#include "safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "err.h"

/* Linux transfers at most 2 GiB - 4 KiB in one write (write(2)). */
#define WRITE_CHUNK ((size_t)1 << 30)

/* Where the bytes of a tensor go, and how many are there. */
struct slot {
    off_t at;
    size_t bytes, done;
};

struct train_st_writer {
    char *path, *temp; /* temp "": nothing to remove */
    int fd;
    size_t n;
    struct slot *slot; /* (n), in the caller's order */
    bool failed;
};

/* A name that nobody else has, in the folder of the target, with the umask's
 * mode (mkostemp would give 0600). */
int st_open_temp (const char *path, char *temp, size_t size)
{
    int fd = -1;

    for (int i = 0; fd < 0 && i < 100; i++) {
        struct timespec now;

        clock_gettime (CLOCK_REALTIME, &now);
        snprintf (temp, size, "%s.%ld-%ld.tmp", path, (long)getpid (),
                  now.tv_nsec);
        fd = open (temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

int st_write_all (int fd, const char *buf, size_t n, off_t at)
{
    while (n > 0) {
        ssize_t done = pwrite (fd, buf, n < WRITE_CHUNK ? n : WRITE_CHUNK, at);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return -1;
        buf += done;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

/* Some file systems cannot sync a folder (EINVAL); the rename itself holds. */
int st_sync_folder (const char *path)
{
    const char *slash = strrchr (path, '/');
    char *dir = slash ? strndup (path, (size_t)(slash - path) + 1) : NULL;
    int fd = open (dir ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;

    free (dir);
    if (fd < 0)
        return -1;
    if (fsync (fd) < 0 && errno != EINVAL)
        rc = -1;
    close (fd);
    return rc;
}

void train_safetensors_abandon (train_st_writer_t *writer)
{
    int saved = errno;

    if (!writer)
        return;
    if (writer->fd >= 0)
        close (writer->fd);
    if (writer->temp && writer->temp[0])
        unlink (writer->temp);
    free (writer->path);
    free (writer->temp);
    free (writer->slot);
    free (writer);
    errno = saved;
}

static train_status_t begin (train_st_writer_t *w, const struct st_plan *plan,
                             const train_st_entry_t *entries,
                             train_error_t *err)
{
    off_t at = (off_t)plan->header_bytes;
    size_t size = strlen (w->path) + 64;

    w->n = plan->n;
    w->slot = calloc (plan->n + 1, sizeof (*w->slot));
    w->temp = calloc (1, size);
    if (!w->slot || !w->temp)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tensors", w->n);
    for (size_t i = 0; i < plan->n; i++) {
        w->slot[plan->order[i] - entries] =
            (struct slot){.at = at, .bytes = plan->bytes[i]};
        at += (off_t)plan->bytes[i];
    }
    if ((w->fd = st_open_temp (w->path, w->temp, size)) < 0) {
        w->temp[0] = '\0';
        return err_set (err, TRAIN_EIO, "cannot make a file beside it: %s",
                        strerror (errno));
    }
    if (st_write_all (w->fd, plan->header, plan->header_bytes, 0) < 0)
        return err_set (err, TRAIN_EIO, "write: %s", strerror (errno));
    return TRAIN_OK;
}

train_status_t train_safetensors_create (const char *path,
                                         const train_st_entry_t *entries,
                                         size_t n, const train_st_meta_t *meta,
                                         size_t n_meta,
                                         train_st_writer_t **ret_writer,
                                         train_error_t *err)
{
    struct st_plan plan = {0};
    train_st_writer_t *w = NULL;
    train_status_t status;

    if (!path || !ret_writer || (n > 0 && !entries) || (n_meta > 0 && !meta))
        return err_set (err, TRAIN_EINVAL,
                        "safetensors: no path, tensors, metadata or result");
    status = st_plan_init (&plan, entries, n, meta, n_meta, err);
    if (status == TRAIN_OK) {
        w = calloc (1, sizeof (*w));
        if (w)
            w->fd = -1;
        if (!w || !(w->path = strdup (path)))
            status = err_set (err, TRAIN_ENOMEM, "no memory");
        else
            status = begin (w, &plan, entries, err);
    }
    st_plan_fini (&plan);
    if (status != TRAIN_OK) {
        train_safetensors_abandon (w);
        return err_prefix (err, status, "%s", path);
    }
    *ret_writer = w;
    return TRAIN_OK;
}

train_status_t train_safetensors_put (train_st_writer_t *writer, size_t index,
                                      const void *data, size_t bytes,
                                      train_error_t *err)
{
    struct slot *slot;

    if (!writer || index >= writer->n || (bytes > 0 && !data))
        return err_set (err, TRAIN_EINVAL,
                        "safetensors: no writer, no data or no tensor %zu",
                        index);
    slot = &writer->slot[index];
    if (bytes > slot->bytes - slot->done)
        return err_set (err, TRAIN_EINVAL,
                        "%s: tensor %zu has %zu bytes, and %zu more came after "
                        "%zu",
                        writer->path, index, slot->bytes, bytes, slot->done);
    if (writer->failed)
        return err_set (err, TRAIN_ESTATE, "%s: an earlier write failed",
                        writer->path);
    if (st_write_all (writer->fd, data, bytes, slot->at + (off_t)slot->done)
        < 0) {
        writer->failed = true;
        return err_set (err, TRAIN_EIO, "%s: write: %s", writer->path,
                        strerror (errno));
    }
    slot->done += bytes;
    return TRAIN_OK;
}

train_status_t st_writer_seal (train_st_writer_t *w, train_error_t *err)
{
    int fd = w->fd;

    if (w->failed)
        return err_set (err, TRAIN_ESTATE, "%s: an earlier write failed",
                        w->path);
    for (size_t i = 0; i < w->n; i++) {
        if (w->slot[i].done < w->slot[i].bytes)
            return err_set (err, TRAIN_ESTATE,
                            "%s: tensor %zu has got %zu of its %zu bytes",
                            w->path, i, w->slot[i].done, w->slot[i].bytes);
    }
    if (fsync (fd) < 0)
        return err_set (err, TRAIN_EIO, "%s: fsync: %s", w->path,
                        strerror (errno));
    w->fd = -1;
    if (close (fd) < 0)
        return err_set (err, TRAIN_EIO, "%s: close: %s", w->path,
                        strerror (errno));
    return TRAIN_OK;
}

train_status_t st_writer_publish (train_st_writer_t *w, train_error_t *err)
{
    if (rename (w->temp, w->path) < 0)
        return err_set (err, TRAIN_EIO, "%s: rename: %s", w->path,
                        strerror (errno));
    w->temp[0] = '\0';
    return TRAIN_OK;
}

train_status_t train_safetensors_commit (train_st_writer_t *writer,
                                         train_error_t *err)
{
    train_status_t status;

    if (!writer)
        return err_set (err, TRAIN_EINVAL, "safetensors: no writer");
    status = st_writer_seal (writer, err);
    if (status == TRAIN_OK)
        status = st_writer_publish (writer, err);
    if (status == TRAIN_OK && st_sync_folder (writer->path) < 0)
        status = err_set (err, TRAIN_EIO,
                          "%s: written, but its folder cannot be synced: %s",
                          writer->path, strerror (errno));
    train_safetensors_abandon (writer);
    return status;
}

train_status_t st_writer_fill (train_st_writer_t *w,
                               const train_st_entry_t *entries, size_t n,
                               train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        if (w->slot[i].bytes > 0 && !entries[i].data)
            return err_set (err, TRAIN_EINVAL, "%s: tensor '%s': no data",
                            w->path, entries[i].name);
        status = train_safetensors_put (w, i, entries[i].data, w->slot[i].bytes,
                                        err);
    }
    return status;
}

train_status_t train_safetensors_write (const char *path,
                                        const train_st_entry_t *entries,
                                        size_t n, const train_st_meta_t *meta,
                                        size_t n_meta, train_error_t *err)
{
    train_st_writer_t *w = NULL;
    train_status_t status =
        train_safetensors_create (path, entries, n, meta, n_meta, &w, err);

    if (status == TRAIN_OK)
        status = st_writer_fill (w, entries, n, err);
    if (status == TRAIN_OK)
        return train_safetensors_commit (w, err);
    train_safetensors_abandon (w);
    return status;
}
