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
#include <stdbool.h>
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

/* ---- the mark ----
 *
 * DIR/.rv-sandbox is the lock and the mark. `up` makes it first, takes its
 * lock, and only then looks what else is there: with the lock nobody of us
 * changes the folder. If nothing else is there it writes a word into the mark,
 * and by that the folder is a sandbox's. A mark without the word beside other
 * files means that they are somebody's own, and the mark goes. So no folder is
 * ever judged while another `up` or `down` is half-way. */
#define WORD "rv sandbox\n"

/* Does the opened folder hold anything but a mark? */
static int has_others (int folder, bool *ret, struct rv_error *err)
{
    int fd = openat (folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir (fd) : NULL;
    struct dirent *entry;
    bool others = false;

    if (!d) {
        error_set (err, RV_EIO, "cannot be listed: %s", strerror (errno));
        if (fd >= 0)
            close (fd);
        return RV_EIO;
    }
    while (!others && (entry = readdir (d)))
        others = strcmp (entry->d_name, ".") && strcmp (entry->d_name, "..")
                 && strcmp (entry->d_name, SANDBOX_MARK);
    closedir (d);
    *ret = others;
    return RV_OK;
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

/* The mark of the opened folder, made with [create]. RV_ENOTFOUND. */
static int open_mark (int folder, const char *dir, int create, int *ret_mark,
                      struct rv_error *err)
{
    int flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | (create ? O_CREAT : 0);
    int mark = openat (folder, SANDBOX_MARK, flags, 0600);
    struct stat st;

    if (mark < 0)
        return error_set (err, errno == ENOENT ? RV_ENOTFOUND : RV_EIO,
                          "%s/%s: %s", dir, SANDBOX_MARK, strerror (errno));
    if (fstat (mark, &st) || !S_ISREG (st.st_mode)) {
        close (mark);
        return error_set (err, RV_EINVAL, "%s/%s: not a regular file", dir,
                          SANDBOX_MARK);
    }
    *ret_mark = mark;
    return RV_OK;
}

static bool has_word (int mark)
{
    struct stat st;

    return !fstat (mark, &st) && st.st_size > 0;
}

static int not_ours (const char *dir, struct rv_error *err)
{
    return error_set (err, RV_EINVAL,
                      "%s holds other files and is no sandbox's", dir);
}

/* One look without the lock: the mark of a sandbox's folder, or of one that is
 * about to become one. RV_ENOTFOUND: the folder is empty. */
static int look (int folder, const char *dir, int *ret_mark,
                 struct rv_error *err)
{
    int mark = -1, rc = open_mark (folder, dir, 0, &mark, err);
    bool others = false;

    if (rc && rc != RV_ENOTFOUND)
        return rc;
    /* The others first, the word after them: the word comes before any file of
     * ours. */
    if ((rc = has_others (folder, &others, err)) == RV_OK) {
        if (others && (mark < 0 || !has_word (mark)))
            rc = not_ours (dir, err);
        else if (mark < 0)
            rc = error_set (err, RV_ENOTFOUND, "%s is empty", dir);
    }
    if (!rc)
        *ret_mark = mark;
    else if (mark >= 0)
        close (mark);
    return rc;
}

/* The mark of [dir], for one who must not make it. Files without a mark are
 * another's, unless the mark came or went between the two steps of a look;
 * that does not happen three times. */
static int find_mark (const char *dir, int *ret_mark, struct rv_error *err)
{
    int folder, rc = open_folder (dir, &folder, err);

    if (rc)
        return rc;
    rc = RV_EINVAL;
    for (int i = 0; i < 3 && rc == RV_EINVAL; i++)
        rc = look (folder, dir, ret_mark, err);
    close (folder);
    return rc;
}

int folder_check (const char *dir, bool *ret_busy, struct rv_error *err)
{
    int mark, rc = find_mark (dir, &mark, err);
    bool busy;

    if (rc)
        return rc;
    busy = flock (mark, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    /* With the lock nobody writes the word: an `up` that has made the mark and
     * not locked it yet has no sandbox yet. */
    if (!busy && !has_word (mark))
        rc = error_set (err, RV_ENOTFOUND, "%s is empty", dir);
    if (ret_busy)
        *ret_busy = busy;
    close (mark);
    return rc;
}

/* Wait for the lock of [mark]; RV_ESTATE when it is not the mark of [dir] any
 * more: the one who had it has removed the folder. */
static int wait_lock (const char *dir, int mark, struct rv_error *err)
{
    long long end = proc_now_ms () + LOCK_WAIT_MS;
    struct stat mine, there;
    char *path;
    bool same;

    while (flock (mark, LOCK_EX | LOCK_NB)) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return error_set (err, RV_EIO, "lock %s: %s", dir,
                              strerror (errno));
        if (proc_now_ms () >= end)
            return error_set (err, RV_ETIMEDOUT,
                              "%s: another 'rv sandbox' works on it", dir);
        poll (NULL, 0, 10);
    }
    if (!(path = fsio_join (dir, SANDBOX_MARK)))
        return error_set (err, RV_ENOMEM, "out of memory");
    same = !fstat (mark, &mine) && !lstat (path, &there)
           && mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
    free (path);
    return same ? RV_OK
                : error_set (err, RV_ESTATE, "%s: removed meanwhile", dir);
}

/* With the lock: is the folder ours, or may it become so? */
static int judge (int folder, const char *dir, int create, int mark,
                  struct rv_error *err)
{
    bool others;
    int rc;

    if (!has_word (mark)) {
        if ((rc = has_others (folder, &others, err)))
            return rc;
        if (others) {
            unlinkat (folder, SANDBOX_MARK, 0);
            return not_ours (dir, err);
        }
        if (create && write (mark, WORD, strlen (WORD)) < 0)
            return error_set (err, RV_EIO, "%s/%s: %s", dir, SANDBOX_MARK,
                              strerror (errno));
    }
    if (create && fchmod (folder, 0700))
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    return RV_OK;
}

/* One try; RV_ESTATE and, with [create], RV_ENOTFOUND ask for the next. */
static int try_lock (const char *dir, int create, int *ret_mark,
                     struct rv_error *err)
{
    int folder, mark, rc;

    if (create && mkdir (dir, 0700) && errno != EEXIST)
        return error_set (err, RV_EIO, "%s: %s", dir, strerror (errno));
    if ((rc = open_folder (dir, &folder, err)))
        return rc;
    rc = create ? open_mark (folder, dir, 1, &mark, err)
                : find_mark (dir, &mark, err);
    if (!rc) {
        rc = wait_lock (dir, mark, err);
        if (!rc)
            rc = judge (folder, dir, create, mark, err);
        if (rc)
            close (mark);
        else
            *ret_mark = mark;
    }
    close (folder);
    return rc;
}

int folder_lock (const char *dir, int create, int *ret_fd, struct rv_error *err)
{
    long long end = proc_now_ms () + LOCK_WAIT_MS;
    int rc;

    /* Others may make and remove the folder while this one is on its way. */
    for (;;) {
        rc = try_lock (dir, create, ret_fd, err);
        if (rc != RV_ESTATE && !(create && rc == RV_ENOTFOUND))
            return rc;
        if (proc_now_ms () >= end)
            return rc;
        poll (NULL, 0, 1);
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

/* rmdir failed: has an `up` that did not wait for our lock, since the mark was
 * gone, taken the folder for itself? */
static bool taken_anew (const char *dir)
{
    struct stat st;
    int mark, rc = find_mark (dir, &mark, NULL);

    if (!rc)
        close (mark);
    return !rc || (lstat (dir, &st) && errno == ENOENT);
}

int folder_remove (const char *dir, struct rv_error *err)
{
    char *mark = fsio_join (dir, SANDBOX_MARK);
    int rc = mark ? folder_clear (dir, err)
                  : error_set (err, RV_ENOMEM, "out of memory"),
        why;

    if (!rc
        && ((unlink (mark) && errno != ENOENT)
            || (rmdir (dir) && errno != ENOENT))) {
        why = errno;
        if (why != ENOTEMPTY || !taken_anew (dir))
            rc = error_set (err, RV_EIO, "%s: %s", dir, strerror (why));
    }
    free (mark);
    return rc;
}
