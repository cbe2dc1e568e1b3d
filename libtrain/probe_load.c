/* SPDX-License-Identifier: Apache-2.0
 * probe_load.c - what is known of this process's GPUs, or a child to find out
 *
 * The findings of a boot, a driver and a list of GPUs are a file; whoever needs
 * it first holds the lock while its child looks. Nothing here is believed
 * without its own names of the GPUs in it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "err.h"
#include "launcher/where.h"
#include "plan/fsio.h"
#include "probe.h"
#include "sock.h"

int64_t probe_child_ms = 60000;
#define ID_BYTES  96
#define TEXT_MOST ((size_t)1 << 20)

extern char **environ;

struct load {
    int n;
    char (*id)[ID_BYTES]; /* (n) */
    const char **ids;     /* (n) the same, as texts */
    char dir[512], file[600];
    int lock; /* -1: not held */
};

/* The first line of a small file; "" where there is none. */
static void first_line (const char *path, char *text, size_t size)
{
    FILE *f = fopen (path, "re");

    text[0] = '\0';
    if (f && fgets (text, (int)size, f))
        text[strcspn (text, "\n")] = '\0';
    if (f)
        fclose (f);
}

uint64_t probe_key (const char *boot, const char *driver, const void *ids,
                    size_t bytes)
{
    uint64_t key = XXH3_64bits_withSeed (boot, strlen (boot), 1);

    key = XXH3_64bits_withSeed (driver, strlen (driver), key);
    key = XXH3_64bits_withSeed (VERSION, strlen (VERSION), key);
    return XXH3_64bits_withSeed (ids, bytes, key);
}

static uint64_t key_of (const struct load *l)
{
    char boot[64], driver[64];

    first_line ("/proc/sys/kernel/random/boot_id", boot, sizeof (boot));
    first_line ("/sys/module/nvidia/version", driver, sizeof (driver));
    return probe_key (boot, driver, l->id, (size_t)l->n * sizeof (*l->id));
}

static train_status_t name_gpus (struct load *l, const struct backend_ops *ops,
                                 int n, train_error_t *err)
{
    l->n = n;
    l->id = calloc ((size_t)n, sizeof (*l->id));
    l->ids = calloc ((size_t)n, sizeof (*l->ids));
    if (!l->id || !l->ids)
        return err_set (err, TRAIN_ENOMEM, "no memory for a probe");
    for (int i = 0; i < n; i++) {
        train_status_t status = ops->ident (i, l->id[i], ID_BYTES, err);

        if (status != TRAIN_OK)
            return status;
        l->ids[i] = l->id[i];
    }
    return TRAIN_OK;
}

/* False: there is no place for findings; [why] says so. */
static bool find_dir (struct load *l, const char *dir, char *why, size_t size)
{
    const char *cache = getenv ("XDG_CACHE_HOME"), *home = getenv ("HOME");
    struct rv_error e = {0};
    int len;

    if (dir)
        len = snprintf (l->dir, sizeof (l->dir), "%s", dir);
    else if (cache && cache[0] == '/')
        len = snprintf (l->dir, sizeof (l->dir), "%s/rv", cache);
    else
        len = snprintf (l->dir, sizeof (l->dir), "%s/.cache/rv",
                        home && home[0] == '/' ? home : "");
    if (len >= (int)sizeof (l->dir)
        || fsio_mkdir_p (l->dir, 0700, &e) != RV_OK) {
        snprintf (why, size,
                  "what is found of peer copies cannot be kept: %s; set "
                  "XDG_CACHE_HOME to a folder that can be written",
                  e.text[0] ? e.text : "the folder's name is too long");
        return false;
    }
    snprintf (l->file, sizeof (l->file), "%s/peers-%016llx.json", l->dir,
              (unsigned long long)key_of (l));
    return true;
}

static train_status_t read_text (const struct load *l, const char *text,
                                 struct probe_pair *ret, train_error_t *err)
{
    json_t *json = json_loads (text, JSON_REJECT_DUPLICATES, NULL);
    train_status_t status =
        json ? probe_from_json (json, l->n, l->ids, ret, err)
             : err_set (err, TRAIN_EFORMAT, "no findings of a probe");

    json_decref (json);
    return status;
}

static bool read_kept (const struct load *l, struct probe_pair *ret)
{
    char *text = NULL;
    bool found = fsio_read (l->file, TEXT_MOST, &text, NULL, NULL) == RV_OK
                 && read_text (l, text, ret, NULL) == TRAIN_OK;

    free (text);
    return found;
}

/* One process of a node looks, the others wait for it. A file system without
 * locks lets all look at once. */
static void lock (struct load *l, const struct timespec *pause)
{
    int64_t until = clock_ms () + probe_child_ms + 5000;
    char path[600];

    snprintf (path, sizeof (path), "%s/probe.lock", l->dir);
    l->lock = open (path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    while (l->lock >= 0 && flock (l->lock, LOCK_EX | LOCK_NB) != 0
           && errno == EWOULDBLOCK && clock_ms () < until)
        nanosleep (pause, NULL);
}

/* All that the child says, or what it has said by the deadline. */
static size_t listen_to (int fd, char *text, int64_t until, bool *ret_ended)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t used = 0;
    int64_t left;

    *ret_ended = false;
    while (used < TEXT_MOST && (left = until - clock_ms ()) > 0) {
        ssize_t got;

        if (poll (&p, 1, (int)left) <= 0)
            continue;
        got = read (fd, text + used, TEXT_MOST - used);
        if (got <= 0) {
            *ret_ended = got == 0;
            break;
        }
        used += (size_t)got;
    }
    text[used] = '\0';
    return used;
}

static int start (const char *program, int out, pid_t *ret)
{
    char *argv[] = {(char *)program, (char *)"probe", (char *)"--json", NULL};
    posix_spawn_file_actions_t act;
    int rc = posix_spawn_file_actions_init (&act);

    if (rc != 0)
        return rc;
    rc = posix_spawn_file_actions_addopen (&act, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2 (&act, out, 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2 (&act, out, 2);
    if (rc == 0)
        rc = posix_spawn (ret, program, &act, NULL, argv, environ);
    posix_spawn_file_actions_destroy (&act);
    return rc;
}

/* The last line of what a child that failed has said. */
static const char *last_line (char *text)
{
    size_t n = strlen (text);
    char *line;

    while (n > 0 && text[n - 1] == '\n')
        text[--n] = '\0';
    line = strrchr (text, '\n');
    return line ? line + 1 : text;
}

static train_status_t run_child (struct load *l, const char *program,
                                 char *text, struct probe_pair *ret,
                                 train_error_t *err)
{
    int64_t until = clock_ms () + probe_child_ms;
    int fd[2], rc;
    bool ended;
    pid_t pid;

    if (pipe2 (fd, O_CLOEXEC) != 0)
        return err_set (err, TRAIN_EIO, "pipe: %s", strerror (errno));
    rc = start (program, fd[1], &pid);
    close (fd[1]);
    if (rc != 0) {
        close (fd[0]);
        return err_set (err, TRAIN_EIO, "%s: %s", program, strerror (rc));
    }
    listen_to (fd[0], text, until, &ended);
    close (fd[0]);
    if (!ended)
        kill (pid, SIGKILL);
    /* Somebody else may have taken its status: what it said counts. */
    while (waitpid (pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (!ended) {
        for (int i = 0; i < l->n * l->n; i++)
            ret[i].verdict = i % (l->n + 1) ? PROBE_NO_WAY : PROBE_GOOD;
        return err_set (err, TRAIN_ETIMEDOUT,
                        "%s probe did not end within %lld s and was killed",
                        program, (long long)probe_child_ms / 1000);
    }
    if (read_text (l, text, ret, err) == TRAIN_OK)
        return TRAIN_OK;
    return err_set (err, TRAIN_EFORMAT, "%s probe failed: %.300s", program,
                    last_line (text));
}

static train_status_t find_out (struct load *l, const char *program,
                                struct probe_pair *ret, train_error_t *err)
{
    struct rv_error e = {0};
    char *found = NULL, *text = malloc (TEXT_MOST + 1);
    train_status_t status = TRAIN_OK;

    if (!text)
        return err_set (err, TRAIN_ENOMEM, "no memory for a probe");
    if (!program && where_program ("rv-train", &found, &e) != RV_OK)
        status = err_from (err, &e);
    if (status == TRAIN_OK)
        status = run_child (l, program ? program : found, text, ret, err);
    if (status == TRAIN_OK && l->file[0])
        (void)fsio_write_unsynced (l->file, text, strlen (text), 0600, NULL);
    free (found);
    free (text);
    return status;
}

train_status_t probe_load (const struct backend_ops *ops, int n,
                           const char *program, const char *dir,
                           struct probe_pair *ret, char *note, size_t size,
                           train_error_t *err)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    struct load l = {.lock = -1};
    train_status_t status;
    bool kept;

    note[0] = '\0';
    for (int i = 0; i < n * n; i++)
        ret[i] = (struct probe_pair){.verdict = i % (n + 1) ? PROBE_UNKNOWN
                                                            : PROBE_GOOD};
    status = name_gpus (&l, ops, n, err);
    kept = status == TRAIN_OK && find_dir (&l, dir, note, size);
    if (status == TRAIN_OK && !(kept && read_kept (&l, ret))) {
        if (kept)
            lock (&l, &pause);
        if (!(kept && read_kept (&l, ret)))
            status = find_out (&l, program, ret, err);
    }
    if (l.lock >= 0)
        close (l.lock);
    free (l.ids);
    free (l.id);
    return status;
}
