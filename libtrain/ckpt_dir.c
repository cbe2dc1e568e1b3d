/* SPDX-License-Identifier: Apache-2.0
 * ckpt_dir.c - make checkpoints appear and vanish whole
 *
 * Names that begin with ".tmp-" are nobody's: the next writer removes them, or
 * gives back the name that one had. A step-N folder is only ever renamed into
 * place or away, never filled or emptied where it stands. */
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

#include <train/ckpt_pieces.h>

#include "ckpt_manifest.h"
#include "err.h"
#include "plan/fsio.h"

#define TEMP     ".tmp-"
#define OLD      TEMP "old-" /* and the name of a checkpoint that is replaced */
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

static bool exists (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name);
    bool yes = path && access (path, F_OK) == 0;

    free (path);
    return yes;
}

/* Is [path] a checkpoint that had its name, and whose writer ended before the
 * new one had it? Then it has it again. */
static bool give_back (const char *dir, const char *path, const char *name)
{
    char *target;
    bool given = false;

    if (strncmp (name, OLD, strlen (OLD)) != 0
        || step_of (name + strlen (OLD)) < 0
        || exists (dir, name + strlen (OLD)))
        return false;
    if ((target = fsio_join (dir, name + strlen (OLD))))
        given = rename (path, target) == 0;
    free (target);
    return given;
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
        if (!give_back (dir, path, e->d_name)
            && fsio_remove_tree (path, NULL) != RV_OK)
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

/* [temp] takes the place of [target], whose name is [name]. One that stands
 * there changes places with it, so that a whole checkpoint has the name at every
 * moment; on file systems without that exchange (NFS) it goes first, to a name
 * that readers and the next writer know. */
static int move_in (const char *dir, const char *temp, const char *target,
                    const char *name)
{
    char away[NAME_LEN + sizeof (OLD)], *old;
    int rc, why;

    if (rename (temp, target) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return -1;
    if (renameat2 (AT_FDCWD, temp, AT_FDCWD, target, RENAME_EXCHANGE) == 0) {
        fsio_remove_tree (temp, NULL);
        return 0;
    }
    snprintf (away, sizeof (away), OLD "%s", name);
    if (!(old = fsio_join (dir, away)))
        return -1;
    if ((rc = rename (target, old)) == 0) {
        rc = rename (temp, target);
        why = errno;
        if (rc == 0)
            fsio_remove_tree (old, NULL);
        else
            (void)rename (old, target);
        errno = why;
    }
    free (old);
    return rc;
}

/* Has the folder the manifest, which is written last? */
static bool complete (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name);
    bool yes = path && exists (path, CKPT_MANIFEST);

    free (path);
    return yes;
}

/* The smallest step in [dir] beside [mine], and how many complete ones there
 * are. What is not complete is not ours to remove. */
static int64_t oldest (const char *dir, int64_t mine, int *ret_n)
{
    DIR *d = opendir (dir);
    struct dirent *e;
    int64_t least = -1;

    *ret_n = 0;
    while (d && (e = readdir (d))) {
        int64_t step = step_of (e->d_name);

        if (step < 0 || step == mine || !complete (dir, e->d_name))
            continue;
        ++*ret_n;
        if (least < 0 || step < least)
            least = step;
    }
    if (d)
        closedir (d);
    return least;
}

/* Away by a rename first, so that no moment sees a part of it. */
static int drop (const char *dir, int64_t step)
{
    char name[NAME_LEN], *from, *to;
    int rc = -1;

    step_name (name, "", step);
    from = fsio_join (dir, name);
    to = fsio_join (dir, TEMP "drop");
    errno = ENOMEM;
    if (from && to && (rc = rename (from, to)) == 0)
        fsio_remove_tree (to, NULL);
    free (from);
    free (to);
    return rc;
}

static void prune (const char *dir, int64_t mine, int keep)
{
    int64_t step;
    int n;

    while (keep > 0 && (step = oldest (dir, mine, &n)) >= 0 && n > keep - 1)
        if (drop (dir, step) < 0)
            return;
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

/* Older ones go only when this one can be opened. */
static train_status_t there_whole (const char *path, train_error_t *err)
{
    train_ckpt_t *ckpt = NULL;
    train_status_t status = train_ckpt_open (path, &ckpt, err);

    train_ckpt_close (ckpt);
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
    if (move_in (dir, temp, target, name) < 0 || sync_dir (dir) < 0)
        status = err_set (err, TRAIN_EIO, "%s: %s", target, strerror (errno));
    else
        status = name_latest (dir, name, err);
    if (status == TRAIN_OK)
        status = there_whole (target, err);
    if (status == TRAIN_OK)
        prune (dir, step, keep);
    free (target);
    return status;
}

/* Checkpoints of a folder, those with the most steps first. */
struct list {
    int64_t *step;
    size_t n;
};

static int by_steps (const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

static train_status_t list_steps (const char *dir, struct list *list,
                                  train_error_t *err)
{
    DIR *d = opendir (dir);
    struct dirent *e;
    train_status_t status = TRAIN_OK;

    if (!d && errno != ENOENT && errno != ENOTDIR)
        return err_set (err, TRAIN_EIO, "%s: %s", dir, strerror (errno));
    while (d && status == TRAIN_OK && (e = readdir (d))) {
        int64_t step = step_of (e->d_name), *p;

        if (step < 0 || !complete (dir, e->d_name))
            continue;
        p = realloc (list->step, (list->n + 1) * sizeof (*p));
        if (!p) {
            status = err_set (err, TRAIN_ENOMEM, "no memory for a list");
            break;
        }
        list->step = p;
        p[list->n++] = step;
    }
    if (d)
        closedir (d);
    if (list->n)
        qsort (list->step, list->n, sizeof (*list->step), by_steps);
    return status;
}

/* Where no file `latest` is: a copy that left it out, or an end between a first
 * checkpoint and its name. */
static train_status_t newest (const char *dir, char **ret_path,
                              train_error_t *err)
{
    struct list list = {0};
    train_status_t status = list_steps (dir, &list, err);

    if (status == TRAIN_OK && list.n > 0)
        status = train_ckpt_path (dir, list.step[0], ret_path, err);
    else if (status == TRAIN_OK)
        status = err_set (err, TRAIN_ENOTFOUND, "%s %s", dir,
                          exists (dir, ".") ? "holds no checkpoint"
                                            : "is no folder of checkpoints");
    free (list.step);
    return status;
}

/* Where the checkpoint [name] was put to be replaced, if it is there still. */
static char *old_of (const char *dir, const char *name)
{
    char away[NAME_LEN + sizeof (OLD)];

    snprintf (away, sizeof (away), OLD "%s", name);
    return complete (dir, away) ? fsio_join (dir, away) : NULL;
}

/* The checkpoint that DIR/latest names, without that file the newest. */
static train_status_t follow (const char *dir, char **ret_path,
                              train_error_t *err)
{
    struct rv_error e = {0};
    char *marker, *name, *path, *old = NULL;
    train_status_t status = join (dir, "latest", &marker, err);
    int code;

    if (status != TRAIN_OK)
        return status;
    code = fsio_read (marker, NAME_LEN, &name, NULL, &e);
    free (marker);
    if (code == RV_ENOTFOUND)
        return newest (dir, ret_path, err);
    if (code != RV_OK)
        return err_from (err, &e);
    name[strcspn (name, "\n")] = '\0';
    if (step_of (name) < 0)
        status = err_set (err, TRAIN_EFORMAT,
                          "%s/latest says '%s' and not step-N", dir, name);
    else if (!exists (dir, name) && !(old = old_of (dir, name)))
        status = err_set (err, TRAIN_EFORMAT,
                          "%s/latest names %s, which is "
                          "not there",
                          dir, name);
    else if (old)
        *ret_path = old;
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
    if (!exists (where, CKPT_MANIFEST))
        return follow (where, ret_path, err);
    if (!(*ret_path = strdup (where)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    return TRAIN_OK;
}

train_status_t train_ckpt_list (const char *dir, int64_t **ret_steps,
                                size_t *ret_n, train_error_t *err)
{
    struct list list = {0};
    train_status_t status;

    if (!dir || !*dir || !ret_steps || !ret_n)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: dir, ret_steps or ret_n is missing");
    if (!exists (dir, "."))
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", dir, strerror (errno));
    if ((status = list_steps (dir, &list, err)) != TRAIN_OK) {
        free (list.step);
        return status;
    }
    *ret_steps = list.step;
    *ret_n = list.n;
    return TRAIN_OK;
}

train_status_t train_ckpt_path (const char *dir, int64_t step, char **ret_path,
                                train_error_t *err)
{
    char name[NAME_LEN];

    if (!dir || !*dir || step < 0 || !ret_path)
        return err_set (err, TRAIN_EINVAL,
                        "checkpoint: dir or ret_path is missing, or step is "
                        "below 0");
    step_name (name, "", step);
    return join (dir, name, ret_path, err);
}

train_status_t train_ckpt_remove (const char *dir, int64_t step,
                                  train_error_t *err)
{
    char *path = NULL, *latest = NULL;
    train_status_t status = train_ckpt_path (dir, step, &path, err);

    if (status != TRAIN_OK)
        return status;
    if (follow (dir, &latest, NULL) == TRAIN_OK && strcmp (path, latest) == 0)
        status = err_set (err, TRAIN_EINVAL,
                          "%s is the latest, which stays: another would be "
                          "gone on from",
                          path);
    else if (drop (dir, step) < 0)
        status = err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                          "%s: %s", path, strerror (errno));
    free (path);
    free (latest);
    return status;
}

static train_status_t verify (const char *path, train_error_t *err)
{
    train_ckpt_t *ckpt = NULL;
    train_status_t status = train_ckpt_open (path, &ckpt, err);

    if (status == TRAIN_OK)
        status = train_ckpt_verify (ckpt, err);
    train_ckpt_close (ckpt);
    return status;
}

/* The first good one; TRAIN_ENOTFOUND else. */
static train_status_t first_good (const char *dir, char **ret_path,
                                  train_error_t *err)
{
    struct list list = {0};
    train_status_t status = list_steps (dir, &list, err);
    bool found = false;

    for (size_t i = 0; i < list.n && status == TRAIN_OK && !found; i++) {
        char name[NAME_LEN], *path;

        step_name (name, "", list.step[i]);
        if ((status = join (dir, name, &path, err)) != TRAIN_OK)
            break;
        if ((found = verify (path, NULL) == TRAIN_OK))
            *ret_path = path;
        else
            free (path);
    }
    free (list.step);
    if (status == TRAIN_OK && !found)
        status = err_set (err, TRAIN_ENOTFOUND, "%s has no good one", dir);
    return status;
}

train_status_t train_ckpt_find_good (const char *where, char **ret_path,
                                     train_error_t *ret_passed,
                                     train_error_t *err)
{
    train_error_t why = {0};
    char *path = NULL, *other = NULL;
    train_status_t status = train_ckpt_find (where, &path, &why);

    if (status == TRAIN_OK)
        status = verify (path, &why);
    if (status != TRAIN_OK && status != TRAIN_EINVAL && status != TRAIN_ENOMEM
        && first_good (where, &other, NULL) == TRAIN_OK) {
        free (path);
        path = other;
        status = TRAIN_OK;
    }
    if (status != TRAIN_OK) {
        free (path);
        return err_set (err, status, "%s", why.text);
    }
    *ret_path = path;
    if (ret_passed)
        *ret_passed = why;
    return TRAIN_OK;
}
