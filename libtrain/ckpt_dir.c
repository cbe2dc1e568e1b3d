/* SPDX-License-Identifier: Apache-2.0
 * ckpt_dir.c - make checkpoints appear and vanish whole
 *
 * Names that begin with ".tmp-" are nobody's: the next writer removes them. A
 * step-N folder is only ever renamed into place or away, never filled or
 * emptied where it stands. */
#include "config.h"

#include "ckpt_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <train/ckpt.h>

#include "err.h"
#include "plan/fsio.h"

#define TEMP     ".tmp-"
#define NAME_LEN 64

static void step_name (char name[NAME_LEN], const char *prefix, int64_t step)
{
    snprintf (name, NAME_LEN, "%sstep-%08" PRId64, prefix, step);
}

/* The N of "step-N" exactly as step_name writes it, or -1. */
static int64_t step_of (const char *name)
{
    char again[NAME_LEN];
    int64_t step;

    if (strncmp (name, "step-", 5) != 0)
        return -1;
    step = strtoll (name + 5, NULL, 10);
    step_name (again, "", step);
    return step >= 0 && strcmp (name, again) == 0 ? step : -1;
}

static train_status_t join (const char *dir, const char *name, char **ret,
                            train_error_t *err)
{
    if (!(*ret = fsio_join (dir, name)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    return TRAIN_OK;
}

static int sync_dir (const char *dir)
{
    int fd = open (dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync (fd);

    if (fd >= 0)
        close (fd);
    return rc;
}

/* Best effort: what stays is removed by the next writer. */
static void sweep (const char *dir)
{
    DIR *d = opendir (dir);
    struct dirent *e;

    while (d && (e = readdir (d))) {
        char *path;

        if (strncmp (e->d_name, TEMP, strlen (TEMP)) != 0
            || !(path = fsio_join (dir, e->d_name)))
            continue;
        if (fsio_remove_tree (path, NULL) != RV_OK)
            unlink (path);
        free (path);
    }
    if (d)
        closedir (d);
}

train_status_t ckpt_dir_begin (const char *dir, int64_t step, char **ret_temp,
                               train_error_t *err)
{
    struct rv_error e = {0};
    char name[NAME_LEN], *temp;
    train_status_t status;

    if (fsio_mkdir_p (dir, 0777, &e) != RV_OK)
        return err_from (err, &e);
    sweep (dir);
    step_name (name, TEMP, step);
    if ((status = join (dir, name, &temp, err)) != TRAIN_OK)
        return status;
    if (mkdir (temp, 0777) < 0) {
        status = err_set (err, TRAIN_EIO, "%s: %s", temp, strerror (errno));
        free (temp);
        return status;
    }
    *ret_temp = temp;
    return TRAIN_OK;
}

/* [temp] takes the place of [target]. One that stands there changes places
 * with it, so that a whole checkpoint has the name at every moment; file
 * systems without that exchange see it go first. */
static int move_in (const char *dir, const char *temp, const char *target)
{
    char *old;
    int rc;

    if (rename (temp, target) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    if (renameat2 (AT_FDCWD, temp, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        fsio_remove_tree (temp, NULL);
        return 0;
    }
    if (!(old = fsio_join (dir, TEMP "old")))
        return -1;
    rc = rename (target, old);
    if (rc == 0)
        rc = rename (temp, target);
    if (rc == 0)
        fsio_remove_tree (old, NULL);
    free (old);
    return rc;
}

/* The smallest step in [dir] beside [mine], and how many there are. */
static int64_t oldest (const char *dir, int64_t mine, int *ret_n)
{
    DIR *d = opendir (dir);
    struct dirent *e;
    int64_t least = -1;

    *ret_n = 0;
    while (d && (e = readdir (d))) {
        int64_t step = step_of (e->d_name);

        if (step < 0 || step == mine)
            continue;
        ++*ret_n;
        if (least < 0 || step < least)
            least = step;
    }
    if (d)
        closedir (d);
    return least;
}

static void prune (const char *dir, int64_t mine, int keep)
{
    int64_t step;
    int n;

    while ((step = oldest (dir, mine, &n)) >= 0 && n > keep - 1) {
        char name[NAME_LEN], *from, *to;
        bool moved = false;

        step_name (name, "", step);
        from = fsio_join (dir, name);
        to = fsio_join (dir, TEMP "drop");
        if (from && to && rename (from, to) == 0) {
            fsio_remove_tree (to, NULL);
            moved = true;
        }
        free (from);
        free (to);
        if (!moved)
            return;
    }
}

static train_status_t name_latest (const char *dir, const char *name,
                                   train_error_t *err)
{
    struct rv_error e = {0};
    char text[NAME_LEN + 1], *path;
    train_status_t status = join (dir, "latest", &path, err);

    if (status != TRAIN_OK)
        return status;
    snprintf (text, sizeof (text), "%s\n", name);
    if (fsio_write (path, text, strlen (text), 0666, &e) != RV_OK)
        status = err_from (err, &e);
    free (path);
    return status;
}

train_status_t ckpt_dir_commit (const char *dir, int64_t step, const char *temp,
                                int keep, train_error_t *err)
{
    char name[NAME_LEN], *target;
    train_status_t status;

    step_name (name, "", step);
    if ((status = join (dir, name, &target, err)) != TRAIN_OK)
        return status;
    if (move_in (dir, temp, target) < 0 || sync_dir (dir) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", target, strerror (errno));
    else
        status = name_latest (dir, name, err);
    if (status == TRAIN_OK)
        prune (dir, step, keep);
    free (target);
    return status;
}

static bool exists (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name);
    bool yes = path && access (path, F_OK) == 0;

    free (path);
    return yes;
}

/* The checkpoint that DIR/latest names. */
static train_status_t follow (const char *dir, char **ret_path,
                              train_error_t *err)
{
    struct rv_error e = {0};
    char *marker, *name, *path;
    train_status_t status = join (dir, "latest", &marker, err);
    int code;

    if (status != TRAIN_OK)
        return status;
    code = fsio_read (marker, NAME_LEN, &name, NULL, &e);
    free (marker);
    if (code == RV_ENOTFOUND)
        return err_set (err, TRAIN_ENOTFOUND, "%s holds no checkpoint", dir);
    if (code != RV_OK)
        return err_from (err, &e);
    name[strcspn (name, "\n")] = '\0';
    if (step_of (name) < 0)
        status = err_set (err, TRAIN_EFORMAT,
                          "%s/latest says '%s' and not step-N", dir, name);
    else if (!exists (dir, name))
        status = err_set (err, TRAIN_EFORMAT,
                          "%s/latest names %s, which is "
                          "not there",
                          dir, name);
    else if ((status = join (dir, name, &path, err)) == TRAIN_OK)
        *ret_path = path;
    free (name);
    return status;
}

train_status_t train_ckpt_find (const char *where, char **ret_path,
                                train_error_t *err)
{
    if (!where || !*where || !ret_path)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: where or ret_path is missing");
    if (!exists (where, "optim.safetensors"))
        return follow (where, ret_path, err);
    if (!(*ret_path = strdup (where)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    return TRAIN_OK;
}
