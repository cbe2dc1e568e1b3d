/* SPDX-License-Identifier: Apache-2.0
 * fsio.c - whole files: read them, replace them atomically, make folders */
#include "config.h"

#include "plan/fsio.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Every level of a tree holds one descriptor while it is removed. */
#define TREE_DEPTH_MAX 200

static int set_errno (struct rv_error *err, const char *path)
{
    int code = errno == ENOENT   ? RV_ENOTFOUND
               : errno == ENOMEM ? RV_ENOMEM
                                 : RV_EIO;

    return error_set (err, code, "%s: %s", path, strerror (errno));
}

static int read_all (int fd, size_t max, char **ret_buf, size_t *ret_len)
{
    size_t cap = 4096, len = 0;
    char *buf = NULL;

    for (;;) {
        char *p = realloc (buf, cap + 1);
        ssize_t n;

        if (!p)
            goto fail;
        buf = p;
        while (len < cap && (n = read (fd, buf + len, cap - len)) != 0) {
            if (n < 0 && errno != EINTR)
                goto fail;
            if (n > 0)
                len += (size_t)n;
        }
        if (len < cap || len > max)
            break;
        cap *= 2;
    }
    buf[len] = '\0';
    *ret_buf = buf;
    *ret_len = len;
    return 0;
fail:
    free (buf);
    return -1;
}

int fsio_read_fd (int fd, const char *name, size_t max, char **ret_buf,
                  size_t *ret_len, struct rv_error *err)
{
    char *buf;
    size_t len;

    if (fd < 0 || !name || !ret_buf)
        return error_set (err, RV_EINVAL, "fsio_read_fd: no file or no result");
    if (read_all (fd, max, &buf, &len) < 0)
        return set_errno (err, name);
    if (len > max) {
        free (buf);
        return error_set (err, RV_EFORMAT, "%s: larger than %zu bytes", name,
                          max);
    }
    *ret_buf = buf;
    if (ret_len)
        *ret_len = len;
    return 0;
}

int fsio_read (const char *path, size_t max, char **ret_buf, size_t *ret_len,
               struct rv_error *err)
{
    int fd, rc;

    if (!path || !ret_buf)
        return error_set (err, RV_EINVAL, "fsio_read: no path or no result");
    if ((fd = open (path, O_RDONLY | O_CLOEXEC)) < 0)
        return set_errno (err, path);
    rc = fsio_read_fd (fd, path, max, ret_buf, ret_len, err);
    close (fd);
    return rc;
}

/* The folder that holds [path], malloc'ed: "." for a bare name. */
static char *parent_of (const char *path)
{
    const char *slash = strrchr (path, '/');

    if (!slash)
        return strdup (".");
    if (slash == path)
        return strdup ("/");
    return strndup (path, (size_t)(slash - path));
}

/* A new file in [dir]; the umask applies to [mode] as for any new file. */
static int open_temporary (int dir, mode_t mode, char *name, size_t size)
{
    for (int i = 0; i < 100; i++) {
        uint64_t word;
        int fd;

        if (getrandom (&word, sizeof (word), 0) != sizeof (word))
            return -1;
        snprintf (name, size, ".rv-%016llx.tmp", (unsigned long long)word);
        fd = openat (dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

int fsio_write_all (int fd, const void *data, size_t len)
{
    const char *buf = data;

    while (len > 0) {
        ssize_t n = write (fd, buf, len);

        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0) {
            buf += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

static int replace (int dir, const char *base, const void *buf, size_t len,
                    mode_t mode, bool sync)
{
    char name[40];
    int saved_errno;
    int fd = open_temporary (dir, mode, name, sizeof (name));

    if (fd < 0)
        return -1;
    if (fsio_write_all (fd, buf, len) == 0 && (!sync || fsync (fd) == 0)) {
        if (close (fd) == 0 && renameat (dir, name, dir, base) == 0)
            return sync ? fsync (dir) : 0;
    } else {
        saved_errno = errno;
        close (fd);
        errno = saved_errno;
    }
    saved_errno = errno;
    unlinkat (dir, name, 0);
    errno = saved_errno;
    return -1;
}

static int write_file (const char *path, const void *buf, size_t len,
                       mode_t mode, bool sync, struct rv_error *err)
{
    const char *slash, *base;
    char *parent;
    int dir, rc, saved_errno;

    if (!path || (!buf && len > 0))
        return error_set (err, RV_EINVAL, "fsio_write: no path or no bytes");
    slash = strrchr (path, '/');
    base = slash ? slash + 1 : path;
    if (!*base)
        return error_set (err, RV_EINVAL, "'%s': not the name of a file", path);
    if (!(parent = parent_of (path)))
        return error_set (err, RV_ENOMEM, "out of memory");
    dir = open (parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free (parent);
    if (dir < 0)
        return set_errno (err, path);
    rc = replace (dir, base, buf, len, mode, sync);
    saved_errno = errno;
    close (dir);
    errno = saved_errno;
    return rc < 0 ? set_errno (err, path) : 0;
}

int fsio_write (const char *path, const void *buf, size_t len, mode_t mode,
                struct rv_error *err)
{
    return write_file (path, buf, len, mode, true, err);
}

int fsio_write_unsynced (const char *path, const void *buf, size_t len,
                         mode_t mode, struct rv_error *err)
{
    return write_file (path, buf, len, mode, false, err);
}

static bool is_folder (const char *path)
{
    struct stat st;

    return stat (path, &st) == 0 && S_ISDIR (st.st_mode);
}

/* An existing folder is asked for by stat, not by EEXIST: some mounts say EROFS
 * or EACCES of a folder that is there. */
static int make_one (const char *path, mode_t mode, struct rv_error *err)
{
    if (mkdir (path, mode) == 0 || is_folder (path))
        return 0;
    /* errno is stat's where that failed; ask again for the reason. */
    if (mkdir (path, mode) == 0)
        return 0;
    if (errno == EEXIST)
        errno = ENOTDIR;
    return set_errno (err, path);
}

int fsio_mkdir_p (const char *path, mode_t mode, struct rv_error *err)
{
    char *copy;
    int rc = 0;

    if (!path || !*path)
        return error_set (err, RV_EINVAL, "fsio_mkdir_p: no path");
    if (!(copy = strdup (path)))
        return error_set (err, RV_ENOMEM, "out of memory");
    for (char *p = copy + 1; rc == 0 && *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        rc = make_one (copy, mode, err);
        *p = '/';
    }
    if (rc == 0)
        rc = make_one (copy, mode, err);
    free (copy);
    return rc;
}

char *fsio_join (const char *dir, const char *name)
{
    char *out = NULL;
    size_t n;

    if (!dir || !name)
        return NULL;
    n = strlen (dir);
    if (asprintf (&out, "%s%s%s", dir, n > 0 && dir[n - 1] == '/' ? "" : "/",
                  name)
        < 0)
        return NULL;
    return out;
}

static int remove_at (int parent, const char *name, int depth);

/* Remove what is in the folder [fd], which is closed here. */
static int empty_folder (int fd, int depth)
{
    DIR *dir = fdopendir (fd);
    struct dirent *entry;
    int rc = 0, saved_errno;

    if (!dir) {
        close (fd);
        return -1;
    }
    while (rc == 0 && (errno = 0, entry = readdir (dir))) {
        if (strcmp (entry->d_name, ".") != 0
            && strcmp (entry->d_name, "..") != 0)
            rc = remove_at (dirfd (dir), entry->d_name, depth);
    }
    if (rc == 0 && errno != 0)
        rc = -1;
    saved_errno = errno;
    closedir (dir);
    errno = saved_errno;
    return rc;
}

/* Remove one name. An entry that went away meanwhile is as good as removed. */
static int remove_at (int parent, const char *name, int depth)
{
    int fd;

    if (unlinkat (parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -1;
    if (depth >= TREE_DEPTH_MAX) {
        errno = ELOOP;
        return -1;
    }
    fd = openat (parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || empty_folder (fd, depth + 1) < 0)
        return errno == ENOENT ? 0 : -1;
    if (unlinkat (parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        return -1;
    return 0;
}

int fsio_remove_tree (const char *path, struct rv_error *err)
{
    struct stat st;

    if (!path || !*path)
        return error_set (err, RV_EINVAL, "fsio_remove_tree: no path");
    if (lstat (path, &st) < 0)
        return errno == ENOENT ? 0 : set_errno (err, path);
    if (!S_ISDIR (st.st_mode))
        return error_set (err, RV_EINVAL, "%s: not a folder", path);
    if (remove_at (AT_FDCWD, path, 0) < 0)
        return set_errno (err, path);
    return 0;
}
