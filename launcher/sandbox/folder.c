/* SPDX-License-Identifier: Apache-2.0
 * folder.c - the folder of a sandbox: choose it, own it, lock it, remove it */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"

#define LOCK_WAIT_MS 60000

static int check_text (const char *dir, struct rv_error *err)
{
    /* Slurm's files end a value at blanks and read %, # and quotes. */
    size_t ok = strspn (dir, "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-@");

    if (dir[ok])
        return error_set (err, RV_EINVAL,
                          "%s: a sandbox folder has letters, digits and "
                          "/._+-@ in its name, not '%c'",
                          dir, dir[ok]);
    if (strlen (dir) > SANDBOX_MAX_DIR)
        return error_set (err, RV_EINVAL,
                          "%s: longer than %d bytes, so that sockets in it "
                          "would have no name",
                          dir, SANDBOX_MAX_DIR);
    return RV_OK;
}

/* The parent's real path and the last component. */
static int resolve_parent (char *dir, char *real, struct rv_error *err)
{
    size_t len = strlen (dir);
    char *slash, *last;

    while (len > 1 && dir[len - 1] == '/')
        dir[--len] = '\0';
    slash = strrchr (dir, '/');
    last = slash ? slash + 1 : dir;
    if (!*last || !strcmp (last, ".") || !strcmp (last, ".."))
        return error_set (err, RV_EINVAL, "%s: not a folder of its own", dir);
    if (slash)
        *slash = '\0';
    if (!realpath (!slash ? "." : *dir ? dir : "/", real))
        return error_set (err, RV_ENOTFOUND, "%s: %s",
                          !slash ? "."
                          : *dir ? dir
                                 : "/",
                          strerror (errno));
    len = strlen (real);
    if (len + strlen (last) + 2 > PATH_MAX)
        return error_set (err, RV_EINVAL, "%s: name too long", last);
    if (len > 1)
        real[len++] = '/';
    memcpy (real + len, last, strlen (last) + 1);
    return RV_OK;
}

int folder_resolve (const char *dir, char ret[SANDBOX_MAX_DIR + 1],
                    struct rv_error *err)
{
    const char *base = getenv ("XDG_RUNTIME_DIR");
    char text[PATH_MAX], real[PATH_MAX];
    int n, rc;

    if (dir)
        n = snprintf (text, sizeof (text), "%s", dir);
    else
        n = snprintf (text, sizeof (text), "%s/rv-sandbox-%u",
                      base && base[0] == '/' ? base : "/tmp",
                      (unsigned)geteuid ());
    if (n < 1 || (size_t)n >= sizeof (text))
        return error_set (err, RV_EINVAL, "%s",
                          n < 1 ? "empty name of a folder"
                                : "name of the folder too long");
    if ((rc = resolve_parent (text, real, err))
        || (rc = check_text (real, err)))
        return rc;
    snprintf (ret, SANDBOX_MAX_DIR + 1, "%.*s", SANDBOX_MAX_DIR, real);
    return RV_OK;
}

/* [fd] is the opened folder: must be ours alone. */
static int check_owner (int fd, const char *dir, struct rv_error *err)
{
    struct stat st;

    if (fstat (fd, &st))
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    if (st.st_uid != geteuid ())
        return error_set (err, RV_EINVAL,
                          "%s belongs to user %u, not to you (%u)", dir,
                          (unsigned)st.st_uid, (unsigned)geteuid ());
    return RV_OK;
}

static bool is_empty (const char *dir)
{
    DIR *d = opendir (dir);
    struct dirent *entry;
    bool empty = d != NULL;

    while (empty && (entry = readdir (d)))
        empty = !strcmp (entry->d_name, ".") || !strcmp (entry->d_name, "..");
    if (d)
        closedir (d);
    return empty;
}

/* Open the folder itself, not what a link points to. */
static int open_folder (const char *dir, int *ret_fd, struct rv_error *err)
{
    int fd = open (dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc;

    if (fd < 0)
        return error_set (err, errno == ENOENT ? RV_ENOTFOUND : RV_EINVAL,
                          "%s: %s", dir, strerror (errno));
    if ((rc = check_owner (fd, dir, err))) {
        close (fd);
        return rc;
    }
    *ret_fd = fd;
    return RV_OK;
}

/* The mark of [dir], opened, made where that is right; in *ret_mark. */
static int open_mark (const char *dir, int create, int *ret_mark,
                      struct rv_error *err)
{
    int fd = -1, mark, rc = open_folder (dir, &fd, err);

    if (rc)
        return rc;
    mark = openat (fd, SANDBOX_MARK, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (mark < 0 && errno == ENOENT && create && is_empty (dir))
        mark = openat (fd, SANDBOX_MARK,
                       O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (mark < 0 && errno == ENOENT && is_empty (dir))
        rc = error_set (err, RV_ENOTFOUND, "%s is empty", dir);
    else if (mark < 0 && errno == ENOENT)
        rc = error_set (err, RV_EINVAL,
                        "%s holds other files and is no sandbox's", dir);
    else if (mark < 0)
        rc = error_set (err, RV_EIO, "%s/%s: %s", dir, SANDBOX_MARK,
                        strerror (errno));
    else if (create && fchmod (fd, 0700))
        rc = error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    close (fd);
    if (rc && mark >= 0)
        close (mark);
    if (!rc)
        *ret_mark = mark;
    return rc;
}

int folder_check (const char *dir, struct rv_error *err)
{
    int mark, rc = open_mark (dir, 0, &mark, err);

    if (!rc)
        close (mark);
    return rc;
}

/* Wait for the lock of [mark]; RV_ESTATE when the folder was removed by the
 * one who had it. */
static int wait_lock (const char *dir, int mark, struct rv_error *err)
{
    long long end = proc_now_ms () + LOCK_WAIT_MS;
    struct stat st;

    while (flock (mark, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set (err, RV_EIO, "lock %s: %s", dir,
                              strerror (errno));
        if (proc_now_ms () >= end)
            return error_set (err, RV_ETIMEDOUT,
                              "%s: another 'rv sandbox' works on it", dir);
        poll (NULL, 0, 10);
    }
    if (fstat (mark, &st) || !st.st_nlink)
        return error_set (err, RV_ESTATE, "%s: removed meanwhile", dir);
    return RV_OK;
}

int folder_lock (const char *dir, int create, int *ret_fd, struct rv_error *err)
{
    for (int tries = 0;; tries++) {
        int mark, rc;

        if (create && mkdir (dir, 0700) && errno != EEXIST)
            return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
        rc = open_mark (dir, create, &mark, err);
        /* Between mkdir and open a `down` may have removed it. */
        if (rc == RV_ENOTFOUND && create && tries < 100)
            continue;
        if (rc)
            return rc;
        rc = wait_lock (dir, mark, err);
        if (!rc) {
            *ret_fd = mark;
            return RV_OK;
        }
        close (mark);
        if (rc != RV_ESTATE || tries >= 100)
            return rc;
    }
}

int folder_clear (const char *dir, struct rv_error *err)
{
    DIR *d = opendir (dir);
    struct dirent *entry;
    int rc = RV_OK;

    if (!d)
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    while (!rc && (entry = readdir (d))) {
        struct stat st;
        char *path;

        if (!strcmp (entry->d_name, ".") || !strcmp (entry->d_name, "..")
            || !strcmp (entry->d_name, SANDBOX_MARK))
            continue;
        if (!(path = fsio_join (dir, entry->d_name)))
            rc = error_set (err, RV_ENOMEM, "out of memory");
        else if (!fstatat (dirfd (d), entry->d_name, &st, AT_SYMLINK_NOFOLLOW)
                 && S_ISDIR (st.st_mode))
            rc = fsio_remove_tree (path, err);
        else if (unlinkat (dirfd (d), entry->d_name, 0) && errno != ENOENT)
            rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
        free (path);
    }
    closedir (d);
    return rc;
}

int folder_remove (const char *dir, struct rv_error *err)
{
    char *mark = fsio_join (dir, SANDBOX_MARK);
    int rc = mark ? folder_clear (dir, err)
                  : error_set (err, RV_ENOMEM, "out of memory");

    if (!rc && ((unlink (mark) && errno != ENOENT) || rmdir (dir)))
        rc = error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    free (mark);
    return rc;
}
