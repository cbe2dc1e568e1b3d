/* SPDX-License-Identifier: Apache-2.0
 * filecopy.c - the bytes of a file into another, shared where the file system
 * can share them */
#include "config.h"

#include "plan/filecopy.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "plan/fsio.h"

#define PIECE (1 << 18)
#define TRIES 3

static int failed (struct rv_error *err)
{
    return error_set (err, RV_EIO, "%s", strerror (errno));
}

/* What no call of the kernel copies, and the end of what one did. */
static int by_hand (int in, int out, struct rv_error *err)
{
    char *buf = malloc (PIECE);
    ssize_t n;

    if (!buf)
        return error_set (err, RV_ENOMEM, "out of memory");
    while ((n = read (in, buf, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 || fsio_write_all (out, buf, (size_t)n))
            break;
    }
    free (buf);
    return n ? failed (err) : RV_OK;
}

/* The bytes alone, as they are meanwhile. */
static int copy_bytes (int in, int out, bool *ret_cloned, struct rv_error *err)
{
    bool cloned = ioctl (out, FICLONE, in) == 0;
    ssize_t n;

    if (ret_cloned)
        *ret_cloned = cloned;
    if (cloned)
        return RV_OK;
    /* It may end early, or not serve these two file systems: reading goes on
     * from where it stopped. */
    do
        n = copy_file_range (in, NULL, out, NULL, (size_t)1 << 30, 0);
    while (n > 0 || (n < 0 && errno == EINTR));
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return failed (err);
    return by_hand (in, out, err);
}

static bool same (const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec
           && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

int filecopy_steady (int in, int out, bool *ret_cloned, struct stat *ret_st,
                     struct rv_error *err)
{
    struct stat before, after;
    int rc;

    for (int i = 0; i < TRIES; i++) {
        struct timespec times[2];

        if (fstat (in, &before) || lseek (in, 0, SEEK_SET) < 0
            || lseek (out, 0, SEEK_SET) < 0 || ftruncate (out, 0))
            return failed (err);
        if ((rc = copy_bytes (in, out, ret_cloned, err)))
            return rc;
        if (fstat (in, &after))
            return failed (err);
        if (!same (&before, &after))
            continue;
        times[0] = after.st_atim;
        times[1] = after.st_mtim;
        if (fchmod (out, after.st_mode & 0777) || futimens (out, times))
            return failed (err);
        if (ret_st)
            *ret_st = after;
        return RV_OK;
    }
    return error_set (err, RV_EPEER, "it changes while it is copied");
}

/* The folder [name] (len) below [at]. */
static int enter (int at, const char *name, size_t len, bool make)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    char one[256];
    int fd;

    if (len >= sizeof (one)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy (one, name, len);
    one[len] = '\0';
    fd = openat (at, one, flags);
    if (fd < 0 && errno == ENOENT && make
        && (mkdirat (at, one, 0777) == 0 || errno == EEXIST))
        fd = openat (at, one, flags);
    return fd;
}

int filecopy_dir (int top, const char *path, bool make)
{
    int fd = fcntl (top, F_DUPFD_CLOEXEC, 0);
    const char *end;

    for (; fd >= 0 && (end = strchr (path, '/')); path = end + 1) {
        int next, saved_errno;

        if (end == path)
            continue;
        next = enter (fd, path, (size_t)(end - path), make);
        saved_errno = errno;
        close (fd);
        errno = saved_errno;
        fd = next;
    }
    return fd;
}
