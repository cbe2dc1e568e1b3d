/* SPDX-License-Identifier: Apache-2.0
 * where.c - find rv's own programs and the plugin */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "where.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int where_self (char **ret_dir, struct rv_error *err)
{
    char path[PATH_MAX];
    ssize_t n = readlink ("/proc/self/exe", path, sizeof (path) - 1);
    char *slash, *dir;

    if (n < 0)
        return error_set (err, RV_EIO, "/proc/self/exe: %s", strerror (errno));
    path[n] = '\0';
    slash = strrchr (path, '/');
    if (!slash)
        return error_set (err, RV_EIO, "/proc/self/exe: '%s' has no folder",
                          path);
    slash[slash == path] = '\0';
    if (!(dir = strdup (path)))
        return error_set (err, RV_ENOMEM, "out of memory");
    *ret_dir = dir;
    return RV_OK;
}

/* [self]/[name] if it may be used in [mode], else [fallback]/[name]. */
static int find (const char *name, const char *fallback, int mode,
                 char **ret_path, struct rv_error *err)
{
    char *self = NULL, *path = NULL;
    int rc = where_self (&self, err);

    if (rc)
        return rc;
    for (int i = 0; i < 2; i++) {
        if (asprintf (&path, "%s/%s", i ? fallback : self, name) < 0) {
            free (self);
            return error_set (err, RV_ENOMEM, "out of memory");
        }
        if (!access (path, mode)) {
            free (self);
            *ret_path = path;
            return RV_OK;
        }
        free (path);
    }
    rc = error_set (err, RV_ENOTFOUND, "%s is neither in %s nor in %s", name,
                    self, fallback);
    free (self);
    return rc;
}

int where_program (const char *name, char **ret_path, struct rv_error *err)
{
    return find (name, BINDIR, X_OK, ret_path, err);
}

int where_plugin (char **ret_path, struct rv_error *err)
{
    char *path, *real;
    int rc = find ("spank_rv.so", RV_LIBDIR "/slurm", R_OK, &path, err);

    if (rc)
        return rc;
    /* The build folder holds a link into .libs. */
    if (!(real = realpath (path, NULL)))
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    else
        *ret_path = real;
    free (path);
    return rc;
}
