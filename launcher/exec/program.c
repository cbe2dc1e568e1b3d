/* SPDX-License-Identifier: Apache-2.0
 * program.c - which program a rank runs, by content; the driver's version
 *
 * Device and inode of a file differ between nodes, so nodes compare contents;
 * within a node they tell that two ranks name one file, and one of them reads
 * it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "exec/facts.h"

#define CHUNK (1 << 20)

static bool is_program (const char *path)
{
    struct stat st;

    return !stat (path, &st) && S_ISREG (st.st_mode) && !access (path, X_OK);
}

/* What execvp(3) would run, by the PATH of this process: RV_ENOTFOUND when there
 * is none. */
static int resolve (const char *name, char *ret, size_t size)
{
    const char *path = getenv ("PATH");

    if (strchr (name, '/')) {
        if (snprintf (ret, size, "%s", name) < (int)size && is_program (ret))
            return RV_OK;
        return RV_ENOTFOUND;
    }
    for (path = path ? path : "/bin:/usr/bin"; *name; path++) {
        int len = (int)strcspn (path, ":");

        if (snprintf (ret, size, "%.*s%s%s", len, path, len ? "/" : "", name)
                < (int)size
            && is_program (ret))
            return RV_OK;
        path += len;
        if (!*path)
            break;
    }
    return RV_ENOTFOUND;
}

static bool is_file (const char *path)
{
    struct stat st;

    return !stat (path, &st) && S_ISREG (st.st_mode);
}

static bool is_shell (const char *word)
{
    static const char *const name[] = {"sh",   "bash", "dash",    "zsh",  "ksh",
                                       "perl", "ruby", "Rscript", "julia"};
    const char *base = strrchr (word, '/');

    base = base ? base + 1 : word;
    for (size_t i = 0; i < sizeof (name) / sizeof (name[0]); i++)
        if (!strcmp (base, name[i]))
            return true;
    return false;
}

void program_files (const struct command *cmd, char *const *argv,
                    struct program_files *ret)
{
    const char *script = cmd->program > 0 ? argv[cmd->program] : NULL;

    *ret = (struct program_files){.path = {"", ""}};
    if (resolve (argv[0], ret->path[0], sizeof (ret->path[0])))
        ret->path[0][0] = '\0';
    /* A shell is no wrapper of command_scan's: its script is the next word. */
    if (cmd->program >= 0 && is_shell (argv[cmd->program]))
        script = argv[cmd->program + 1];
    if (!script || strlen (script) >= sizeof (ret->path[1]))
        return;
    if (is_file (script))
        snprintf (ret->path[1], sizeof (ret->path[1]), "%s", script);
    /* env, nice and others find their program in PATH */
    else if (resolve (script, ret->path[1], sizeof (ret->path[1])))
        ret->path[1][0] = '\0';
}

uint64_t program_identity (const struct program_files *f)
{
    XXH64_hash_t hash = 0;

    for (size_t i = 0; i < 2; i++) {
        struct stat st;
        uint64_t part[5];

        if (!f->path[i][0])
            continue;
        if (stat (f->path[i], &st))
            return 0;
        part[0] = (uint64_t)st.st_dev;
        part[1] = (uint64_t)st.st_ino;
        part[2] = (uint64_t)st.st_size;
        part[3] = (uint64_t)st.st_mtim.tv_sec * 1000000000
                  + (uint64_t)st.st_mtim.tv_nsec;
        part[4] = i;
        hash = XXH3_64bits_withSeed (part, sizeof (part), hash);
    }
    return hash;
}

static int hash_file (const char *path, XXH3_state_t *x, char *buf,
                      struct rv_error *err)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    ssize_t n;

    if (fd < 0)
        return error_set (err, errno == ENOENT ? RV_ENOTFOUND : RV_EIO,
                          "%s: %s", path, strerror (errno));
    posix_fadvise (fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while ((n = read (fd, buf, CHUNK)) > 0 || (n < 0 && errno == EINTR))
        if (n > 0)
            XXH3_64bits_update (x, buf, (size_t)n);
    close (fd);
    return n < 0 ? error_set (err, RV_EIO, "%s: %s", path, strerror (errno))
                 : RV_OK;
}

int program_hash (const struct program_files *f, uint64_t *ret,
                  struct rv_error *err)
{
    XXH3_state_t *x = XXH3_createState ();
    char *buf = malloc (CHUNK);
    int rc = RV_OK;

    if (!x || !buf)
        rc = error_set (err, RV_ENOMEM, "out of memory");
    else if (!f->path[0][0])
        rc = error_set (err, RV_ENOTFOUND, "not found");
    else {
        XXH3_64bits_reset (x);
        for (size_t i = 0; !rc && i < 2 && f->path[i][0]; i++) {
            rc = hash_file (f->path[i], x, buf, err);
            XXH3_64bits_update (x, "", 1); /* where one ends */
        }
        *ret = XXH3_64bits_digest (x);
    }
    free (buf);
    XXH3_freeState (x);
    return rc;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159  Tue ...", or with
 * "Open Kernel Module for x86_64": the first word of digits with a dot. */
void driver_version (const char *path, char *buf, size_t size)
{
    char line[512], *word, *save = NULL;
    FILE *f = fopen (path, "re");

    snprintf (buf, size, "none");
    if (!f)
        return;
    if (fgets (line, sizeof (line), f)) {
        snprintf (buf, size, "unknown");
        for (word = strtok_r (line, " \t\n", &save); word;
             word = strtok_r (NULL, " \t\n", &save))
            if (strchr (word, '.')
                && word[strspn (word, "0123456789.")] == '\0') {
                snprintf (buf, size, "%s", word);
                break;
            }
    }
    fclose (f);
}
