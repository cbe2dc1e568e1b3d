/* SPDX-License-Identifier: Apache-2.0
 * ident.c - which process is which, so that none but ours is ever signalled */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "sandbox/ident.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Files of /proc have no size; NULL when the process is gone. */
static char *read_proc (pid_t pid, const char *file, size_t *ret_len)
{
    char path[64], *buf = NULL;
    size_t len = 0, size = 0;
    ssize_t n = 0;
    int fd;

    snprintf (path, sizeof (path), "/proc/%d/%s", (int)pid, file);
    if ((fd = open (path, O_RDONLY | O_CLOEXEC)) < 0)
        return NULL;
    do {
        if (size - len < 1024) {
            char *bigger = realloc (buf, size += 4096);

            if (!bigger)
                break;
            buf = bigger;
        }
        n = read (fd, buf + len, size - len - 1);
        len += n > 0 ? (size_t)n : 0;
    } while (n > 0 || (n < 0 && errno == EINTR));
    close (fd);
    if (!buf || n < 0) {
        free (buf);
        return NULL;
    }
    buf[len] = '\0';
    if (ret_len)
        *ret_len = len;
    return buf;
}

struct stat_line {
    char state;
    pid_t ppid;
    uint64_t start;
};

static bool read_stat (pid_t pid, struct stat_line *ret)
{
    char *text = read_proc (pid, "stat", NULL), *p;
    int ppid, n;

    if (!text)
        return false;
    /* The name in parentheses may hold anything, parentheses too. Fields are
     * counted from state (3) and ppid (4) behind it; start time is 22. */
    p = strrchr (text, ')');
    n = p ? sscanf (p + 1,
                    " %c %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s"
                    " %*s %*s %*s %*s %*s %" SCNu64,
                    &ret->state, &ppid, &ret->start)
          : 0;
    free (text);
    if (n != 3)
        return false;
    ret->ppid = ppid;
    return ret->state != 'Z' && ret->state != 'X';
}

bool ident_start (pid_t pid, uint64_t *ret_start)
{
    struct stat_line line;

    if (!read_stat (pid, &line))
        return false;
    *ret_start = line.start;
    return true;
}

bool ident_is (pid_t pid, uint64_t start, char *const *argv)
{
    uint64_t now;
    size_t len, at = 0;
    char *line;
    bool same = true;

    if (pid <= 1 || !ident_start (pid, &now) || now != start)
        return false;
    if (!(line = read_proc (pid, "cmdline", &len)))
        return false;
    for (size_t i = 0; same && argv[i]; i++) {
        size_t n = strlen (argv[i]) + 1;

        same = at + n <= len && !memcmp (line + at, argv[i], n);
        at += n;
    }
    free (line);
    return same && at == len;
}

/* -1 with ENOSYS before Linux 5.3: then the id alone must do. */
static int pidfd (pid_t pid)
{
#ifdef SYS_pidfd_open
    return (int)syscall (SYS_pidfd_open, pid, 0);
#else
    errno = ENOSYS;
    return -1;
#endif
}

static bool send_signal (int fd, pid_t pid, int sig)
{
#ifdef SYS_pidfd_send_signal
    if (fd >= 0)
        return !syscall (SYS_pidfd_send_signal, fd, sig, NULL, 0);
#endif
    (void)fd;
    return !kill (pid, sig);
}

bool ident_kill (pid_t pid, uint64_t start, char *const *argv, int sig)
{
    int fd = pidfd (pid);
    bool sent = (fd >= 0 || errno == ENOSYS) && ident_is (pid, start, argv)
                && send_signal (fd, pid, sig);

    if (fd >= 0)
        close (fd);
    return sent;
}

bool ident_kill_found (const struct ident_found *found, int sig)
{
    int fd = pidfd (found->pid);
    uint64_t now;
    bool sent = (fd >= 0 || errno == ENOSYS) && ident_start (found->pid, &now)
                && now == found->start && send_signal (fd, found->pid, sig);

    if (fd >= 0)
        close (fd);
    return sent;
}

/* Program name of [pid] without the suffix of Debian's alternatives. */
static bool read_exe (pid_t pid, char name[64])
{
    char link[64], path[PATH_MAX], *base, *end;
    ssize_t n;

    snprintf (link, sizeof (link), "/proc/%d/exe", (int)pid);
    if ((n = readlink (link, path, sizeof (path) - 1)) < 0)
        return false;
    path[n] = '\0';
    base = strrchr (path, '/');
    base = base ? base + 1 : path;
    if ((end = strstr (base, " (deleted)")))
        *end = '\0';
    n = (ssize_t)strlen (base);
    if (n > 4 && !strcmp (base + n - 4, "-wlm"))
        base[n - 4] = '\0';
    snprintf (name, 64, "%.63s", base);
    return true;
}

/* Has [pid] a file of [dir] open? Its log, if nothing else. */
static bool holds_file (pid_t pid, const char *dir)
{
    char path[64];
    size_t len = strlen (dir);
    struct dirent *entry;
    bool found = false;
    DIR *d;

    snprintf (path, sizeof (path), "/proc/%d/fd", (int)pid);
    if (!(d = opendir (path)))
        return false;
    while (!found && (entry = readdir (d))) {
        char link[PATH_MAX];
        ssize_t n = readlinkat (dirfd (d), entry->d_name, link, sizeof (link));

        found =
            n > (ssize_t)len && !memcmp (link, dir, len) && link[len] == '/';
    }
    closedir (d);
    return found;
}

/* Is [line] in the environment that [pid] began with? One that ends in '='
 * stands for any value. */
static bool has_env (pid_t pid, const char *line)
{
    size_t len, n = strlen (line);
    char *env = read_proc (pid, "environ", &len);
    bool found = false;

    for (char *p = env; env && !found && p < env + len; p += strlen (p) + 1)
        found = line[n - 1] == '=' ? !strncmp (p, line, n) : !strcmp (p, line);
    free (env);
    return found;
}

/* Did Slurm start [pid] as a task of [cluster]? A shell that merely has
 * SLURM_CONF, or one that salloc opened, has no SLURM_TASK_PID. */
static bool is_task (pid_t pid, const char *cluster)
{
    char want[96];

    snprintf (want, sizeof (want), "SLURM_CLUSTER_NAME=%s", cluster);
    return has_env (pid, want) && has_env (pid, "SLURM_TASK_PID=");
}

static bool is_client (pid_t pid, const char *dir)
{
    char want[PATH_MAX];

    snprintf (want, sizeof (want), "SLURM_CONF=%s/slurm.conf", dir);
    return has_env (pid, want);
}

static int kind_of (pid_t pid, const char *dir, const char *cluster)
{
    static const char *const daemons[] = {"munged", "slurmctld", "slurmd",
                                          "mariadbd", "slurmdbd"};
    char name[64];

    if (!read_exe (pid, name))
        return 0;
    if (!strcmp (name, "slurmstepd"))
        return holds_file (pid, dir) ? IDENT_STEPD : 0;
    for (size_t i = 0; i < sizeof (daemons) / sizeof (daemons[0]); i++)
        if (!strcmp (name, daemons[i]))
            return holds_file (pid, dir) ? IDENT_DAEMON : 0;
    if (cluster && is_task (pid, cluster))
        return IDENT_TASK;
    return !strcmp (name, "srun") && is_client (pid, dir) ? IDENT_CLIENT : 0;
}

struct table {
    struct ident_found *row;
    pid_t *ppid;
    size_t n, size;
};

static bool table_add (struct table *t, pid_t pid, const struct stat_line *line)
{
    if (t->n == t->size) {
        size_t size = t->size ? 2 * t->size : 256;
        void *row = realloc (t->row, size * sizeof (*t->row));
        void *ppid;

        if (!row)
            return false;
        t->row = row;
        if (!(ppid = realloc (t->ppid, size * sizeof (*t->ppid))))
            return false;
        t->ppid = ppid;
        t->size = size;
    }
    t->row[t->n] = (struct ident_found){.pid = pid, .start = line->start};
    t->ppid[t->n++] = line->ppid;
    return true;
}

static int table_fill (struct table *t, struct rv_error *err)
{
    DIR *d = opendir ("/proc");
    struct dirent *entry;
    int rc = RV_OK;

    if (!d)
        return error_set (err, RV_EIO, "/proc: %s", strerror (errno));
    while (!rc && (entry = readdir (d))) {
        pid_t pid = (pid_t)strtol (entry->d_name, NULL, 10);
        struct stat_line line;

        if (!isdigit ((unsigned char)entry->d_name[0]) || pid <= 1
            || pid == getpid () || !read_stat (pid, &line))
            continue;
        if (!table_add (t, pid, &line))
            rc = error_set (err, RV_ENOMEM, "out of memory");
    }
    closedir (d);
    return rc;
}

/* Children of a step or a task are tasks, whatever they did to themselves. */
static void mark_descendants (struct table *t)
{
    bool changed = true;

    while (changed) {
        changed = false;
        for (size_t j = 0; j < t->n; j++) {
            if (!(t->row[j].kind & (IDENT_STEPD | IDENT_TASK)))
                continue;
            for (size_t i = 0; i < t->n; i++)
                if (t->ppid[i] == t->row[j].pid && !t->row[i].kind) {
                    t->row[i].kind = IDENT_TASK;
                    changed = true;
                }
        }
    }
}

int ident_scan (const char *dir, const char *cluster, int kinds,
                struct ident_found **ret_found, size_t *ret_n,
                struct rv_error *err)
{
    struct table t = {0};
    size_t n = 0;
    int rc = table_fill (&t, err);

    if (rc) {
        free (t.row);
        free (t.ppid);
        return rc;
    }
    for (size_t i = 0; i < t.n; i++)
        t.row[i].kind = kind_of (t.row[i].pid, dir, cluster);
    mark_descendants (&t);
    for (size_t i = 0; i < t.n; i++)
        if (t.row[i].kind & kinds)
            t.row[n++] = t.row[i];
    free (t.ppid);
    if (!n) {
        free (t.row);
        t.row = NULL;
    }
    *ret_found = t.row;
    *ret_n = n;
    return RV_OK;
}

void ident_boot_id (char buf[40])
{
    int fd = open ("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read (fd, buf, 36);

    buf[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close (fd);
}
