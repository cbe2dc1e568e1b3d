/* SPDX-License-Identifier: Apache-2.0
 * fake_share.c - made-up GPUs in memfds: an IPC handle names process and
 * descriptor, so that it opens as long as its maker lives, and not in it */
#include "config.h"

#include "fake_share.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "err.h"

#define BLOCKS 64

struct fake_share_state fake_share;

/* Memory of the GPUs here; [pid] of another's. */
static struct block {
    char *at;
    size_t bytes;
    int device, fd, opens;
    pid_t pid;
} block[BLOCKS];

struct handle {
    pid_t pid;
    int fd;
    size_t bytes;
};

struct stream {
    char *memory;
    int value;
    size_t bytes;
};

static struct block *find (const char *at)
{
    for (struct block *b = block; b < block + BLOCKS; b++) {
        if (b->at && at >= b->at && at < b->at + b->bytes)
            return b;
    }
    return NULL;
}

static struct block *add (int fd, int device, size_t bytes, pid_t pid)
{
    void *at = mmap (NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct block *b = block;

    if (at == MAP_FAILED)
        return NULL;
    while (b->at)
        b++;
    *b = (struct block){at, bytes, device, fd, 1, pid};
    return b;
}

static train_status_t op_probe (int *ret_devices, train_error_t *err)
{
    (void)err;
    if (ret_devices)
        *ret_devices = FAKE_GPUS;
    return TRAIN_OK;
}

static train_status_t op_alloc (int device, size_t bytes, void **ret,
                                train_error_t *err)
{
    int fd = memfd_create ("train-fake", MFD_CLOEXEC);
    struct block *b = NULL;

    if (fd >= 0 && ftruncate (fd, (off_t)bytes) == 0)
        b = add (fd, device, bytes, 0);
    if (!b)
        return err_set (err, TRAIN_ENOMEM, "no made-up memory");
    fake_share.blocks++;
    *ret = b->at;
    return TRAIN_OK;
}

static void drop (struct block *b)
{
    munmap (b->at, b->bytes);
    if (b->fd >= 0)
        close (b->fd);
    b->at = NULL;
}

static void op_free (void *memory)
{
    struct block *b = find (memory);

    if (!b)
        return;
    drop (b);
    fake_share.blocks--;
}

static train_status_t op_place (const void *memory, int *ret_device,
                                bool *ret_pinned, train_error_t *err)
{
    const struct block *b = find (memory);

    (void)err;
    *ret_device = b ? b->device : -1;
    *ret_pinned = false;
    return TRAIN_OK;
}

static train_status_t op_ident (int device, char *text, size_t size,
                                train_error_t *err)
{
    (void)err;
    snprintf (text, size, "made-up %d", device + fake_share.first);
    return TRAIN_OK;
}

/* Work on a stream is done when an event of it, or it itself, is waited for. */
static void go_on (struct stream *s)
{
    if (s && s->memory)
        memset (s->memory, s->value, s->bytes);
    if (s)
        s->memory = NULL;
}

static train_status_t op_stream_create (int device, void **ret,
                                        train_error_t *err)
{
    (void)device, (void)err;
    *ret = calloc (1, sizeof (struct stream));
    return TRAIN_OK;
}

static train_status_t op_event_create (int device, void **ret,
                                       train_error_t *err)
{
    (void)device, (void)err;
    *ret = calloc (1, sizeof (void *));
    return TRAIN_OK;
}

static train_status_t op_event_record (void *event, int device, void *stream,
                                       train_error_t *err)
{
    (void)device, (void)err;
    memcpy (event, &stream, sizeof (stream));
    return TRAIN_OK;
}

static train_status_t op_event_wait (void *stream, int device, void *event,
                                     train_error_t *err)
{
    void *of;

    (void)stream, (void)device, (void)err;
    memcpy (&of, event, sizeof (of));
    go_on (of);
    return TRAIN_OK;
}

static train_status_t op_sync (void *stream, train_error_t *err)
{
    (void)err;
    go_on (stream);
    return TRAIN_OK;
}

static unsigned op_kinds (int device, const char **ret_why)
{
    (void)device;
    *ret_why = "a slice shares no memory";
    return fake_share.kinds;
}

static train_status_t op_create (int device, size_t bytes, void **ret,
                                 size_t *ret_bytes, int *ret_fd,
                                 train_error_t *err)
{
    *ret_bytes = (bytes + 65535) / 65536 * 65536;
    TRY (op_alloc (device, *ret_bytes, ret, err));
    *ret_fd = fcntl (find (*ret)->fd, F_DUPFD_CLOEXEC, 0);
    return TRAIN_OK;
}

static train_status_t map_other (int device, int fd, size_t bytes, pid_t pid,
                                 void **ret, train_error_t *err)
{
    struct block *b;
    struct stat st;

    if (fake_share.closed)
        return err_set (err, TRAIN_ENOTSUP, "invalid device context");
    if (fstat (fd, &st) < 0 || (size_t)st.st_size < bytes
        || !(b = add (fd, device, bytes, pid)))
        return err_set (err, TRAIN_ENOTSUP, "no such memory");
    b->fd = -1;
    if (fake_share.spoil) { /* as where peer reads bring other bytes */
        mmap (b->at, bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    fake_share.mapped++;
    *ret = b->at;
    return TRAIN_OK;
}

static train_status_t op_open_fd (int device, int fd, size_t bytes, void **ret,
                                  train_error_t *err)
{
    return map_other (device, fd, bytes, 0, ret, err);
}

static void op_unmap (void *memory, size_t bytes)
{
    struct block *b = find (memory);

    if (!b || b->bytes != bytes)
        abort ();
    if (b->fd >= 0)
        fake_share.blocks--;
    else
        fake_share.mapped--;
    drop (b);
}

static train_status_t op_range (const void *memory, char **ret_base,
                                size_t *ret_bytes, train_error_t *err)
{
    const struct block *b = find (memory);

    if (!b)
        return err_set (err, TRAIN_ENOTSUP, "no made-up memory");
    *ret_base = b->at;
    *ret_bytes = b->bytes;
    return TRAIN_OK;
}

static train_status_t op_handle (void *base, unsigned char *handle,
                                 train_error_t *err)
{
    const struct block *b = find (base);
    struct handle h = {getpid (), b ? b->fd : -1, b ? b->bytes : 0};

    if (!b || b->at != base)
        return err_set (err, TRAIN_ENOTSUP, "no base of an allocation");
    memset (handle, 0, BACKEND_HANDLE);
    memcpy (handle, &h, sizeof (h));
    return TRAIN_OK;
}

static train_status_t op_open (int device, const unsigned char *handle,
                               void **ret, train_error_t *err)
{
    struct handle h;
    char path[64];
    train_status_t status;
    int fd;

    memcpy (&h, handle, sizeof (h));
    if (h.pid == getpid ())
        return err_set (err, TRAIN_ENOTSUP, "opened where it was made");
    for (struct block *b = block; b < block + BLOCKS; b++) {
        if (b->at && b->pid == h.pid && b->bytes == h.bytes) {
            b->opens++;
            fake_share.opened++;
            *ret = b->at;
            return TRAIN_OK;
        }
    }
    snprintf (path, sizeof (path), "/proc/%d/fd/%d", (int)h.pid, h.fd);
    fd = open (path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return err_set (err, TRAIN_ENOTSUP, "its maker is gone");
    status = map_other (device, fd, h.bytes, h.pid, ret, err);
    close (fd);
    fake_share.opened += status == TRAIN_OK;
    return status;
}

static void op_close (void *memory)
{
    struct block *b = find (memory);

    if (!b || b->at != memory || !b->pid)
        abort ();
    fake_share.opened--;
    if (--b->opens > 0)
        return;
    fake_share.mapped--;
    drop (b);
}

char *fake_share_carve (int device, size_t offset, size_t bytes)
{
    void *at = NULL;

    return op_alloc (device, offset + bytes + 4096, &at, NULL) == TRAIN_OK
               ? (char *)at + offset
               : NULL;
}

void *fake_share_later (void *memory, int value, size_t bytes)
{
    struct stream *s = calloc (1, sizeof (*s));

    *s = (struct stream){memory, value, bytes};
    return s;
}

static train_status_t op_copy (void *dst, const void *src, size_t bytes,
                               void *stream, train_error_t *err)
{
    return backend_host.copy (dst, src, bytes, stream, err);
}

static train_status_t op_fill (int device, void *memory, int value,
                               size_t bytes, void *stream, train_error_t *err)
{
    return backend_host.fill (device, memory, value, bytes, stream, err);
}

static int op_enter (int device)
{
    return device;
}

static void op_leave (int before)
{
    (void)before;
}

static const struct backend_share share = {
    .kinds = op_kinds,
    .create = op_create,
    .open_fd = op_open_fd,
    .unmap = op_unmap,
    .range = op_range,
    .handle = op_handle,
    .open = op_open,
    .close = op_close,
};

const struct backend_ops fake_share_gpu = {
    .name = "made-up",
    .probe = op_probe,
    .alloc = op_alloc,
    .free = op_free,
    .copy = op_copy,
    .sync = op_sync,
    .stream_create = op_stream_create,
    .stream_destroy = free,
    .event_create = op_event_create,
    .event_destroy = free,
    .event_record = op_event_record,
    .event_wait = op_event_wait,
    .place = op_place,
    .ident = op_ident,
    .fill = op_fill,
    .share = &share,
    .view = &view_host,
    .enter = op_enter,
    .leave = op_leave,
};
