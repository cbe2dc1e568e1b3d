/* SPDX-License-Identifier: Apache-2.0
 * secrets.c - files of secrets: the user's own, and the copy of one request */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "secrets.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/conf.h"
#include "plan/fsio.h"
#include "plan/site_conf.h"

int secrets_path (char **ret_path, struct rv_error *err)
{
    char *conf = site_conf_user_path (), *slash;

    slash = conf ? strrchr (conf, '/') : NULL;
    if (slash) {
        *slash = '\0';
        *ret_path = fsio_join (conf, "env");
    }
    free (conf);
    if (!slash)
        return error_set (err, RV_ENOTFOUND,
                          "there is no folder for it: set HOME");
    return *ret_path ? RV_OK : error_set (err, RV_ENOMEM, "out of memory");
}

/* Who else may have read it has the secrets already: that must be seen. */
static int check (int fd, const char *path, struct rv_error *err)
{
    struct stat st;

    if (fstat (fd, &st))
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    if (st.st_uid != geteuid ())
        return error_set (err, RV_EINVAL, "%s: it belongs to user %u", path,
                          (unsigned)st.st_uid);
    if (st.st_mode & 077)
        return error_set (err, RV_EINVAL,
                          "%s: others may read it (mode %04o); 'chmod 600' "
                          "it, and change what they may have read",
                          path, (unsigned)st.st_mode & 07777);
    return RV_OK;
}

int secrets_read (const char *path, struct envfile *ret, struct rv_error *err)
{
    char *text = NULL;
    size_t len = 0;
    int fd = -1, rc = conf_open (path, &fd, err);

    if (rc)
        return rc;
    if (!(rc = check (fd, path, err))
        && !(rc = fsio_read_fd (fd, path, ENVFILE_MAX, &text, &len, err)))
        rc = envfile_parse (text, len, path, ret, err);
    close (fd);
    envfile_wipe (text, len);
    return rc;
}

int secrets_write (const char *path, const struct envfile *env,
                   struct rv_error *err)
{
    size_t len = 0;
    char *text = envfile_format (env, &len), *real = realpath (path, NULL);
    mode_t umask_was;
    int rc;

    if (!text)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else if (len > ENVFILE_MAX)
        rc = error_set (err, RV_EINVAL, "%s: it would be larger than %d bytes",
                        path, ENVFILE_MAX);
    else {
        umask_was = umask (077);
        rc = fsio_write (real ? real : path, text, len, 0600, err);
        umask (umask_was);
    }
    envfile_wipe (text, len);
    free (real);
    return rc;
}

int secrets_lock (const char *path, int *ret_fd, struct rv_error *err)
{
    char *dir = strndup (path, (size_t)(strrchr (path, '/') - path));
    char *lock = dir ? fsio_join (dir, ".env.lock") : NULL;
    int rc = RV_OK, fd = -1;

    if (!lock)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else if (!(rc = fsio_mkdir_p (dir, 0700, err))) {
        /* for writing: NFS locks nothing else */
        fd = open (lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        while (fd >= 0 && flock (fd, LOCK_EX) && errno == EINTR)
            ;
        if (fd < 0)
            rc = error_set (err, RV_EIO, "%s: %s", lock, strerror (errno));
        else
            *ret_fd = fd;
    }
    free (lock);
    free (dir);
    return rc;
}

void secrets_forget (const char *dir)
{
    char *own = fsio_join (dir, SECRETS_FILE);
    char *array = fsio_join (dir, SECRETS_TASKS);
    DIR *tasks = array ? opendir (array) : NULL;
    struct dirent *entry;
    char name[300];

    if (own)
        unlink (own);
    while (tasks && (entry = readdir (tasks))) {
        snprintf (name, sizeof (name), "%s/%s", entry->d_name, SECRETS_FILE);
        if (entry->d_name[0] != '.')
            unlinkat (dirfd (tasks), name, 0);
    }
    if (tasks)
        closedir (tasks);
    free (array);
    free (own);
}
