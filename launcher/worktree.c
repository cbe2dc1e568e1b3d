/* SPDX-License-Identifier: Apache-2.0
 * worktree.c - what git tracks in the working tree, and a copy of it */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "worktree.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jsonout.h"
#include "plan/filecopy.h"
#include "plan/fsio.h"
#include "plan/outpath.h"
#include "proc.h"

#define GIT_MS   300000
#define LIST_MAX ((size_t)1 << 30)

/* What git says on stdout. RV_ESTATE with the last line it complains in. */
static int git (const char *dir, char *const words[], char **ret, size_t *len,
                struct rv_error *err)
{
    const struct proc_opts opts = {
        .dir = dir, .deadline_ms = GIT_MS, .max_output = LIST_MAX};
    struct proc_result r;
    int rc = proc_run (words, &opts, &r, err);

    if (rc)
        return rc;
    if (r.status) {
        const char *why = r.err;

        if (!strncmp (why, "fatal: ", 7))
            why += 7;
        rc = error_set (err, RV_ESTATE, "git: %.*s", (int)strcspn (why, "\n"),
                        why);
    } else {
        *ret = r.out;
        if (len)
            *len = r.out_len;
        r.out = NULL;
    }
    proc_result_fini (&r);
    return rc;
}

/* One value, which may end in anything but the newline that git adds. */
static int git_value (char *const words[], char **ret, struct rv_error *err)
{
    size_t len;
    int rc = git (NULL, words, ret, &len, err);

    if (!rc && len && (*ret)[len - 1] == '\n')
        (*ret)[len - 1] = '\0';
    return rc;
}

static int ask_where (struct worktree *t, struct rv_error *err)
{
    char *top[] = {"git", "rev-parse", "--show-toplevel", NULL};
    char *prefix[] = {"git", "rev-parse", "--show-prefix", NULL};
    char *commit[] = {"git", "rev-parse", "--verify", "-q", "HEAD", NULL};
    int rc = git_value (top, &t->top, err);

    if (!rc)
        rc = git_value (prefix, &t->prefix, err);
    if (rc)
        return rc;
    if (*t->prefix && t->prefix[strlen (t->prefix) - 1] == '/')
        t->prefix[strlen (t->prefix) - 1] = '\0';
    git_value (commit, &t->commit,
               NULL); /* of a new repository there is none */
    return RV_OK;
}

static int ask_files (struct worktree *t, struct rv_error *err)
{
    char *tracked[] = {
        "git", "ls-files", "-z", "--cached", "--recurse-submodules", NULL};
    char *others[] = {"git",      "ls-files",           "-z",
                      "--others", "--exclude-standard", NULL};
    char *names = NULL;
    size_t len = 0;
    int rc = git (t->top, tracked, &t->list, &t->list_len, err);

    if (!rc)
        rc = git (t->top, others, &names, &len, err);
    for (size_t at = 0; !rc && at < len; at += strlen (names + at) + 1)
        t->untracked++;
    if (!rc && t->untracked && !(t->first_untracked = strdup (names)))
        rc = error_set (err, RV_ENOMEM, "out of memory");
    free (names);
    return rc;
}

/* The walk over the list: from and to are the folder of the name at hand. */
struct walk {
    struct worktree *t;
    int from_top, to_top; /* to_top < 0: count only */
    int from, to;
    const char *dir; /* whose folder [from] and [to] are; (dir_len) */
    size_t dir_len;
};

static void leave (struct walk *w)
{
    if (w->from >= 0)
        close (w->from);
    if (w->to >= 0)
        close (w->to);
    w->from = w->to = -1;
    w->dir = NULL;
}

/* Names of one folder stand together in git's list, so it is opened once. What
 * is reached over a link is not what git tracks. false: it is not there. */
static int enter (struct walk *w, const char *path, const char *base,
                  bool *ret_there, struct rv_error *err)
{
    size_t len = (size_t)(base - path);

    *ret_there = true;
    if (w->dir && w->dir_len == len && !memcmp (w->dir, path, len))
        return RV_OK;
    leave (w);
    w->from = filecopy_dir (w->from_top, path, false);
    if (w->from < 0) {
        *ret_there = false;
        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP
                   ? RV_OK
                   : error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    }
    if (w->to_top >= 0 && (w->to = filecopy_dir (w->to_top, path, true)) < 0)
        return error_set (err, RV_EIO, "the copy of %s: %s", path,
                          strerror (errno));
    w->dir = path;
    w->dir_len = len;
    return RV_OK;
}

static int copy_file (struct walk *w, const char *path, const char *base,
                      struct rv_error *err)
{
    int in =
        openat (w->from, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int out = in < 0 ? -1
                     : openat (w->to, base,
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool cloned = false;
    int rc = RV_OK;

    if (out < 0)
        rc = error_set (err, RV_EIO, "%s", strerror (errno));
    else
        rc = filecopy_steady (in, out, &cloned, NULL, err);
    if (out >= 0 && close (out) && !rc)
        rc = error_set (err, RV_EIO, "%s", strerror (errno));
    if (in >= 0)
        close (in);
    if (rc)
        error_prefix (err, "%s", path);
    w->t->cloned += cloned;
    return rc;
}

static int copy_link (struct walk *w, const char *path, const char *base,
                      struct rv_error *err)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat (w->from, base, target, sizeof (target) - 1);
    size_t top = strlen (w->t->top);

    if (n < 0)
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    target[n] = '\0';
    w->t->leading_back += !strncmp (target, w->t->top, top)
                          && (target[top] == '/' || target[top] == '\0');
    if (w->to >= 0 && symlinkat (target, w->to, base))
        return error_set (err, RV_EIO, "the copy of %s: %s", path,
                          strerror (errno));
    return RV_OK;
}

static int copy_one (struct walk *w, const char *path, struct rv_error *err)
{
    const char *slash = strrchr (path, '/'), *base = slash ? slash + 1 : path;
    struct stat st;
    bool there;
    int rc = enter (w, path, base, &there, err);

    if (rc)
        return rc;
    if (!there || fstatat (w->from, base, &st, AT_SYMLINK_NOFOLLOW)) {
        w->t->missing++;
        return !there || errno == ENOENT
                   ? RV_OK
                   : error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    }
    if (S_ISLNK (st.st_mode))
        return copy_link (w, path, base, err);
    /* A submodule that is not checked out is an empty folder. */
    if (S_ISDIR (st.st_mode) && w->to >= 0 && mkdirat (w->to, base, 0777)
        && errno != EEXIST)
        return error_set (err, RV_EIO, "the copy of %s: %s", path,
                          strerror (errno));
    if (!S_ISREG (st.st_mode))
        return RV_OK;
    w->t->files++;
    w->t->bytes += (uint64_t)st.st_size;
    return w->to >= 0 ? copy_file (w, path, base, err) : RV_OK;
}

static int walk_list (struct worktree *t, int to, struct rv_error *err)
{
    struct walk w = {.t = t, .to_top = to, .from = -1, .to = -1};
    const char *before = NULL;
    int rc = RV_OK;

    t->files = t->bytes = t->cloned = t->missing = t->leading_back = 0;
    w.from_top = open (t->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (w.from_top < 0)
        return error_set (err, RV_EIO, "%s: %s", t->top, strerror (errno));
    for (size_t at = 0; !rc && at < t->list_len;
         at += strlen (t->list + at) + 1) {
        const char *path = t->list + at;

        /* An unmerged file stands there once a side. */
        if (!before || strcmp (before, path))
            rc = copy_one (&w, path, err);
        before = path;
    }
    leave (&w);
    close (w.from_top);
    return rc;
}

int worktree_find (struct worktree *ret, struct rv_error *err)
{
    struct worktree t = {0};
    int rc = ask_where (&t, err);

    if (!rc)
        rc = ask_files (&t, err);
    if (!rc)
        rc = walk_list (&t, -1, err);
    if (rc)
        worktree_fini (&t);
    else
        *ret = t;
    return rc;
}

int worktree_copy (struct worktree *tree, const char *to, struct rv_error *err)
{
    char *cwd = fsio_join (to, tree->prefix);
    int rc = cwd ? fsio_mkdir_p (cwd, 0777, err)
                 : error_set (err, RV_ENOMEM, "out of memory");
    int fd = rc ? -1 : open (to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (!rc && fd < 0)
        rc = error_set (err, RV_EIO, "%s: %s", to, strerror (errno));
    if (!rc)
        rc = walk_list (tree, fd, err);
    if (fd >= 0)
        close (fd);
    free (cwd);
    return rc;
}

bool worktree_has (const struct worktree *tree, const char *path)
{
    char *clean = outpath_below (tree->prefix, path);
    size_t n = clean ? strlen (clean) : 0;
    bool found = clean && n == 0;

    for (size_t at = 0; clean && !found && at < tree->list_len;
         at += strlen (tree->list + at) + 1) {
        const char *name = tree->list + at;

        found =
            !strncmp (name, clean, n) && (name[n] == '\0' || name[n] == '/');
    }
    free (clean);
    return found;
}

json_t *worktree_json (const struct worktree *t, const char *dir)
{
    return json_pack ("{s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:I}", "dir",
                      jsonout_text (dir), "top", jsonout_text (t->top), "cwd",
                      jsonout_text (t->prefix), "commit",
                      jsonout_text (t->commit), "files", (json_int_t)t->files,
                      "bytes", (json_int_t)t->bytes, "cloned",
                      (json_int_t)t->cloned, "missing", (json_int_t)t->missing,
                      "untracked", (json_int_t)t->untracked);
}

void worktree_fini (struct worktree *t)
{
    if (!t)
        return;
    free (t->top);
    free (t->prefix);
    free (t->commit);
    free (t->list);
    free (t->first_untracked);
    *t = (struct worktree){0};
}
