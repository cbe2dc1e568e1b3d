/* SPDX-License-Identifier: Apache-2.0
 * cgroup.c - the control groups of a sandbox: make, thaw, empty, remove */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "proc.h"
#include "sandbox/ident.h"
#include "sandbox/site.h"

#define FOLDER    "cgroup"
#define REMOVE_MS 15000
/* Slurm nests five: node, user, job, step, task. */
#define DEPTH_MAX 16

static const char *const controllers[] = {"freezer", "memory", "devices"};

#define N_CONTROLLERS (sizeof (controllers) / sizeof (controllers[0]))

/* ---- where the machine has them ---- */

/* Is [word] one of the commas' items of (n) bytes at [list]? */
static bool has_item (const char *list, size_t n, const char *word)
{
    size_t len = strlen (word);

    for (const char *p = list, *end = list + n; p < end;) {
        size_t item = strcspn (p, ",");

        if (item > (size_t)(end - p))
            item = (size_t)(end - p);
        if (item == len && !strncmp (p, word, len))
            return true;
        p += item + 1;
    }
    return false;
}

/* A path of mountinfo, where blanks are \040 and the like. */
static bool unescape (const char *from, size_t n, char *ret, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; i < n; used++) {
        if (used + 1 >= size)
            return false;
        if (from[i] == '\\' && i + 3 < n) {
            ret[used] = (char)((from[i + 1] - '0') * 64
                               + (from[i + 2] - '0') * 8 + (from[i + 3] - '0'));
            i += 4;
        } else {
            ret[used] = from[i++];
        }
    }
    ret[used] = '\0';
    return true;
}

/* One line: id parent major:minor root POINT options... - cgroup source OPTS */
static bool mount_line (const char *line, size_t n, const char *controller,
                        char *ret, size_t size)
{
    const char *dash = memmem (line, n, " - cgroup ", 10), *point = line, *opts;

    if (!dash)
        return false;
    for (int i = 0; i < 4; i++) {
        point =
            point < dash ? memchr (point, ' ', (size_t)(dash - point)) : NULL;
        if (!point)
            return false;
        point++;
    }
    opts = dash + 10;
    opts = memchr (opts, ' ', (size_t)(line + n - opts));
    if (!opts
        || !has_item (opts + 1, (size_t)(line + n - opts - 1), controller))
        return false;
    return unescape (point, strcspn (point, " "), ret, size);
}

bool cgroup_mount_of (const char *mountinfo, const char *controller, char *ret,
                      size_t size)
{
    while (*mountinfo) {
        size_t n = strcspn (mountinfo, "\n");

        if (mount_line (mountinfo, n, controller, ret, size))
            return true;
        mountinfo += n + (mountinfo[n] == '\n');
    }
    return false;
}

static int find_mounts (char mount[N_CONTROLLERS][PATH_MAX],
                        struct rv_error *err)
{
    char *text;
    int rc =
        fsio_read ("/proc/self/mountinfo", (size_t)16 << 20, &text, NULL, err);

    if (rc)
        return rc;
    for (size_t i = 0; !rc && i < N_CONTROLLERS; i++)
        if (!cgroup_mount_of (text, controllers[i], mount[i], PATH_MAX))
            rc = error_set (err, RV_ENOTSUP,
                            "--cgroup needs the control groups of version 1, "
                            "and this machine has mounted no '%s' of them%s",
                            controllers[i],
                            !strstr (text, " - cgroup ")
                                    && strstr (text, " - cgroup2 ")
                                ? ", only version 2"
                                : "");
    free (text);
    return rc;
}

int cgroup_check (bool *ret_swap, struct rv_error *err)
{
    static const char *const plugins[] = {"proctrack_cgroup.so",
                                          "task_cgroup.so", "cgroup_v1.so"};
    char mount[N_CONTROLLERS][PATH_MAX], *file;
    int rc;

    if (geteuid ())
        return error_set (err, RV_ENOTSUP,
                          "--cgroup needs root, who alone may make control "
                          "groups and device files");
    for (size_t i = 0; i < sizeof (plugins) / sizeof (plugins[0]); i++)
        if (!site_has_plugin (plugins[i]))
            return error_set (err, RV_ENOTSUP,
                              "--cgroup needs Slurm's %s, which is not "
                              "installed (Debian: apt install "
                              "slurm-wlm-basic-plugins)",
                              plugins[i]);
    if ((rc = find_mounts (mount, err)))
        return rc;
    for (size_t i = 0; i < N_CONTROLLERS; i++)
        if (access (mount[i], W_OK))
            return error_set (err, RV_ENOTSUP,
                              "--cgroup needs to make groups in %s: %s",
                              mount[i], strerror (errno));
    if (!(file = fsio_join (mount[1], "memory.memsw.limit_in_bytes")))
        return error_set (err, RV_ENOMEM, "out of memory");
    *ret_swap = !access (file, F_OK);
    free (file);
    return RV_OK;
}

/* ---- making ---- */

int cgroup_make (const struct sandbox *sb, struct rv_error *err)
{
    char mount[N_CONTROLLERS][PATH_MAX], path[SANDBOX_MAX_DIR + 32];
    int rc = find_mounts (mount, err);

    if (rc)
        return rc;
    snprintf (path, sizeof (path), "%s/" FOLDER, sb->dir);
    if (mkdir (path, 0755))
        return error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    for (size_t i = 0; !rc && i < N_CONTROLLERS; i++) {
        char *group = fsio_join (mount[i], sb->cluster);

        snprintf (path, sizeof (path), "%s/" FOLDER "/%s", sb->dir,
                  controllers[i]);
        if (!group)
            rc = error_set (err, RV_ENOMEM, "out of memory");
        else if (symlink (group, path) || mkdir (group, 0755))
            rc = error_set (err, RV_EIO, "%s: %s", group, strerror (errno));
        free (group);
    }
    return rc;
}

/* ---- removing ---- */

/* A name that only a sandbox gives: "rv1a2b3c4d". */
static bool is_cluster (const char *name)
{
    return !strncmp (name, "rv", 2) && strlen (name) == 10
           && strspn (name + 2, "0123456789abcdef") == 8;
}

/* The group behind DIR/cgroup/[controller], if it is one of a sandbox: the
 * folder may have been written into. */
static bool read_group (const char *dir, const char *controller,
                        char group[PATH_MAX])
{
    char link[SANDBOX_MAX_DIR + 32], *slash;
    struct statfs fs;
    ssize_t n;
    bool good;

    snprintf (link, sizeof (link), "%s/" FOLDER "/%s", dir, controller);
    if ((n = readlink (link, group, PATH_MAX - 1)) < 0)
        return false;
    group[n] = '\0';
    slash = strrchr (group, '/');
    if (group[0] != '/' || !is_cluster (slash + 1))
        return false;
    *slash = '\0';
    good = !statfs (group, &fs) && fs.f_type == CGROUP_SUPER_MAGIC;
    *slash = '/';
    return good;
}

/* Is [pid] in a group of that name? Asked after its start time was read, so
 * that an id which wrapped in between is not taken for the member. */
static bool is_member (pid_t pid, const char *cluster)
{
    char path[64], *text, *p;
    bool found = false;

    snprintf (path, sizeof (path), "/proc/%d/cgroup", (int)pid);
    if (fsio_read (path, 1 << 20, &text, NULL, NULL))
        return false;
    for (p = text; !found && (p = strstr (p, cluster)); p++)
        found = p > text && p[-1] == '/'
                && (p[strlen (cluster)] == '/' || p[strlen (cluster)] == '\n');
    free (text);
    return found;
}

static void kill_members (const char *group, const char *cluster)
{
    char *path = fsio_join (group, "cgroup.procs"), *text = NULL, *save = NULL;

    if (path && !fsio_read (path, (size_t)16 << 20, &text, NULL, NULL)) {
        for (char *word = strtok_r (text, "\n", &save); word;
             word = strtok_r (NULL, "\n", &save)) {
            struct ident_found found = {.pid = (pid_t)strtol (word, NULL, 10)};

            if (found.pid > 1 && found.pid != getpid ()
                && ident_start (found.pid, &found.start)
                && is_member (found.pid, cluster))
                ident_kill_found (&found, SIGKILL);
        }
        free (text);
    }
    free (path);
}

static void thaw (const char *group)
{
    char *path = fsio_join (group, "freezer.state");
    int fd = path ? open (path, O_WRONLY | O_CLOEXEC) : -1;

    if (fd >= 0) {
        /* A failure shows as a process that does not end. */
        if (write (fd, "THAWED", 6) < 0)
            errno = 0;
        close (fd);
    }
    free (path);
}

/* Thaw [group] and those in it, parents first; with [cluster] also kill their
 * members and remove them, children first. */
static void walk (const char *group, const char *cluster, int depth)
{
    DIR *d = opendir (group);
    struct dirent *entry;

    if (!d)
        return;
    thaw (group);
    if (cluster)
        kill_members (group, cluster);
    while (depth < DEPTH_MAX && (entry = readdir (d))) {
        char *child;

        if (entry->d_type != DT_DIR || entry->d_name[0] == '.'
            || !(child = fsio_join (group, entry->d_name)))
            continue;
        walk (child, cluster, depth + 1);
        free (child);
    }
    closedir (d);
    if (cluster)
        rmdir (group);
}

void cgroup_thaw (const char *dir)
{
    char group[PATH_MAX];

    if (read_group (dir, "freezer", group))
        walk (group, NULL, 0);
}

int cgroup_remove (const char *dir, struct rv_error *err)
{
    long long end = proc_now_ms () + REMOVE_MS;
    char group[PATH_MAX];

    for (size_t i = 0; i < N_CONTROLLERS; i++) {
        if (!read_group (dir, controllers[i], group))
            continue;
        /* A group is busy until its killed members are gone. */
        for (;;) {
            walk (group, strrchr (group, '/') + 1, 0);
            if (access (group, F_OK))
                break;
            if (proc_now_ms () >= end)
                return error_set (err, RV_ETIMEDOUT,
                                  "the control group %s does not empty", group);
            poll (NULL, 0, 5);
        }
    }
    return RV_OK;
}
