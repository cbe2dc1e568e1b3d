/* SPDX-License-Identifier: Apache-2.0
 * conf.c - read INI files strictly, through inih
 *
 * The whole file is in memory. inih asks our reader for a line at a time; the
 * reader counts, refuses what inih would cut or drop, and gives the rest. So
 * when inih calls the handler, the reader's count is the line of that key. */
#include "config.h"

#include "plan/conf.h"

#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/conf_impl.h"
#include "plan/fsio.h"

#define FILE_MAX_BYTES (1024 * 1024)
#define FILE_MAX_KEYS  4096
/* inih copies a section's name into 50 bytes and cuts the rest. */
#define SECTION_MAX 49

struct run {
    const struct conf_spec *spec;
    const char *name;
    const char *p, *end; /* what is left of the file */
    int line;
    struct conf_section section;
    bool in_section;
    char **seen; /* (n_seen) "word arg\nkey" of every key so far */
    size_t n_seen;
    int rc; /* the first failure; reading stops there */
    struct rv_error *err;
};

static bool is_blank (char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int fail (struct run *run, const char *why)
{
    run->rc = error_set (run->err, RV_EINVAL, "%s", why);
    return run->rc;
}

/* "[name]" of (n) bytes at [p]: check it and remember the section. */
static void open_section (struct run *run, const char *p, size_t n)
{
    const char *close = memchr (p, ']', n);
    char name[SECTION_MAX + 1];
    size_t len;

    if (!close)
        return; /* inih says so */
    for (const char *q = close + 1; q < p + n; q++) {
        if (!is_blank (*q)) {
            fail (run, "text behind ']'; put it on a line of its own");
            return;
        }
    }
    len = (size_t)(close - p - 1);
    if (len > SECTION_MAX) {
        fail (run, "a section's name of more than 49 bytes");
        return;
    }
    memcpy (name, p + 1, len);
    name[len] = '\0';
    run->rc = conf_section_find (run->spec, name, &run->section, run->err);
    run->in_section = run->rc == 0;
}

/* What inih would do silently to a line of (n) bytes is an error here. */
static void check_line (struct run *run, const char *p, size_t n, size_t room)
{
    if (memchr (p, '\0', n)) {
        fail (run, "a NUL byte");
    } else if (n > room) {
        run->rc = error_set (run->err, RV_EINVAL,
                             "a line of more than %zu bytes", room);
    } else if (n > 0 && *p == '[') {
        open_section (run, p, n);
    } else if (n > 0 && *p != ';' && *p != '#') {
        for (size_t i = 1; i < n; i++) {
            if (p[i] == ';' && is_blank (p[i - 1])) {
                fail (run, "a value would end before ' ;'; put comments on "
                           "lines of their own");
                return;
            }
        }
    }
}

/* inih's reader: the next line with its newline into str (num), or NULL. */
static char *next_line (char *str, int num, void *stream)
{
    struct run *run = stream;
    const char *p = run->p, *newline;
    size_t n;

    if (run->rc != 0 || p == run->end)
        return NULL;
    run->line++;
    newline = memchr (p, '\n', (size_t)(run->end - p));
    n = (size_t)((newline ? newline : run->end) - p);
    run->p = newline ? newline + 1 : run->end;
    if (run->line == 1 && n >= 3 && memcmp (p, "\xef\xbb\xbf", 3) == 0) {
        p += 3; /* the mark of UTF-8 that some editors write */
        n -= 3;
    }
    /* An indented line would continue the value before it. */
    for (; n > 0 && is_blank (*p); p++)
        n--;
    check_line (run, p, n, num > 2 ? (size_t)num - 2 : 0);
    if (run->rc != 0)
        return NULL;
    memcpy (str, p, n);
    memcpy (str + n, "\n", 2);
    return str;
}

/* Remember a key; RV_EINVAL when it was there before. */
static int note_key (struct run *run, const char *key)
{
    char *mark = NULL;
    void *p;

    if (run->n_seen == FILE_MAX_KEYS)
        return fail (run, "more than 4096 keys");
    if (asprintf (&mark, "%s %s\n%s", run->section.word, run->section.arg, key)
        < 0)
        return run->rc = error_set (run->err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < run->n_seen; i++) {
        if (strcmp (run->seen[i], mark) == 0) {
            free (mark);
            return run->rc = error_set (
                       run->err, RV_EINVAL, "'%.64s' stands twice in [%s%s%s]",
                       key, run->section.word, run->section.arg[0] ? " " : "",
                       run->section.arg);
        }
    }
    p = realloc (run->seen, (run->n_seen + 1) * sizeof (*run->seen));
    if (!p) {
        free (mark);
        return run->rc = error_set (run->err, RV_ENOMEM, "out of memory");
    }
    run->seen = p;
    run->seen[run->n_seen++] = mark;
    return 0;
}

/* inih's handler: nonzero is good. */
static int take_pair (void *user, const char *section, const char *key,
                      const char *value)
{
    struct run *run = user;

    (void)section; /* the reader has it, uncut */
    if (run->rc != 0)
        return 0;
    if (!run->in_section)
        fail (run, "a key before the first [section]");
    else if (note_key (run, key) == 0)
        run->rc = conf_apply (run->spec, &run->section, key, value, run->err);
    return run->rc == 0;
}

static int parse (struct run *run)
{
    int line = ini_parse_stream (next_line, run, take_pair, run);

    if (line < 0)
        return error_set (run->err, RV_ENOMEM, "%s: out of memory", run->name);
    /* inih gives the first line that it or we refused. */
    if (line > 0 && (run->rc == 0 || line < run->line)) {
        run->line = line;
        run->rc = error_set (run->err, RV_EINVAL,
                             "expected [section] or key = value");
    }
    if (run->rc != 0)
        error_prefix (run->err, "%s:%d", run->name, run->line);
    return run->rc;
}

int conf_read_fd (int fd, const char *name, const struct conf_key *keys,
                  size_t n, void *target, conf_sink_f sink, void *sink_arg,
                  struct rv_error *err)
{
    struct conf_spec spec = {keys, n, target, sink, sink_arg};
    struct rv_error own = {0};
    struct run run = {.spec = &spec, .name = name, .err = err ? err : &own};
    char *buf;
    size_t len;
    int rc;

    if (!name || !keys || !target)
        return error_set (err, RV_EINVAL, "conf_read: no name, keys or target");
    if ((rc = fsio_read_fd (fd, name, FILE_MAX_BYTES, &buf, &len, err)) != 0)
        return rc;
    run.p = buf;
    run.end = buf + len;
    run.err->text[0] = '\0';
    rc = parse (&run);
    for (size_t i = 0; i < run.n_seen; i++)
        free (run.seen[i]);
    free (run.seen);
    free (buf);
    return rc;
}

/* O_NONBLOCK: a FIFO must not hold us before it is refused. */
static int open_regular (const char *path, int flags, int *ret_fd,
                         struct stat *ret_st, struct rv_error *err)
{
    int fd = open (path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | flags);
    int rc = 0;

    if (fd < 0 && errno == EACCES)
        return error_set (err, RV_EIO,
                          "%s: permission denied; its owner must let you read "
                          "it and pass the folders above it",
                          path);
    if (fd < 0)
        return error_set (
            err, errno == ENOENT ? RV_ENOTFOUND : RV_EIO, "%s: %s", path,
            errno == ELOOP && flags & O_NOFOLLOW ? "a symbolic link"
                                                 : strerror (errno));
    if (fstat (fd, ret_st) < 0)
        rc = error_set (err, RV_EIO, "%s: %s", path, strerror (errno));
    else if (!S_ISREG (ret_st->st_mode))
        rc = error_set (err, RV_EIO, "%s: not a regular file", path);
    if (rc == 0)
        *ret_fd = fd;
    else
        close (fd);
    return rc;
}

int conf_open (const char *path, int *ret_fd, struct rv_error *err)
{
    struct stat st;

    if (!path || !ret_fd)
        return error_set (err, RV_EINVAL, "conf_open: no path");
    return open_regular (path, 0, ret_fd, &st, err);
}

int conf_read (const char *path, const struct conf_key *keys, size_t n,
               void *target, conf_sink_f sink, void *sink_arg,
               struct rv_error *err)
{
    int fd, rc;

    if (!path)
        return error_set (err, RV_EINVAL, "conf_read: no path");
    if ((rc = conf_open (path, &fd, err)))
        return rc;
    rc = conf_read_fd (fd, path, keys, n, target, sink, sink_arg, err);
    close (fd);
    return rc;
}

/* "section.key=value" cut in place. False when it has not that form. */
static bool cut_assignment (char *text, char **key, char **value)
{
    char *eq = strchr (text, '='), *dot;

    if (!eq)
        return false;
    *eq = '\0';
    dot = strrchr (text, '.');
    if (!dot || dot == text || !dot[1])
        return false;
    *dot = '\0';
    *key = dot + 1;
    *value = eq + 1;
    return true;
}

int conf_set (const char *assignment, const struct conf_key *keys, size_t n,
              void *target, conf_sink_f sink, void *sink_arg,
              struct rv_error *err)
{
    struct conf_spec spec = {keys, n, target, sink, sink_arg};
    struct conf_section section;
    struct rv_error own;
    char *copy, *key, *value;
    int rc;

    err = err ? err : &own;
    if (!assignment || !keys || !target)
        return error_set (err, RV_EINVAL, "conf_set: no text, keys or target");
    if (!(copy = strdup (assignment)))
        return error_set (err, RV_ENOMEM, "out of memory");
    err->text[0] = '\0';
    if (!cut_assignment (copy, &key, &value))
        rc = error_set (err, RV_EINVAL, "expected section.key=value");
    else if ((rc = conf_section_find (&spec, copy, &section, err)) == 0)
        rc = conf_apply (&spec, &section, key, value, err);
    free (copy);
    if (rc != 0)
        error_prefix (err, "%.128s", assignment);
    return rc;
}

int conf_open_trusted (const char *path, int *ret_fd, struct rv_error *err)
{
    struct stat st;
    int fd, rc;

    if (!path || !ret_fd)
        return error_set (err, RV_EINVAL, "conf_open_trusted: no path");
    if ((rc = open_regular (path, O_NOFOLLOW, &fd, &st, err)))
        return rc;
    if (st.st_uid != 0 && st.st_uid != geteuid ())
        rc = error_set (err, RV_EINVAL, "%s: owned by uid %u; chown it to root",
                        path, (unsigned)st.st_uid);
    else if (st.st_mode & (S_IWGRP | S_IWOTH))
        rc = error_set (err, RV_EINVAL,
                        "%s: writable by group or others; chmod it to 0644",
                        path);
    if (rc == 0)
        *ret_fd = fd;
    else
        close (fd);
    return rc;
}

void conf_split_free (char **items)
{
    for (size_t i = 0; items && items[i]; i++)
        free (items[i]);
    free (items);
}

int conf_split (const char *text, char ***ret, size_t *ret_n,
                struct rv_error *err)
{
    size_t n = 0, most = 2;
    char **items;

    if (!text || !ret)
        return error_set (err, RV_EINVAL, "conf_split: no text or no result");
    for (const char *p = text; *p; p++)
        most += *p == ',';
    if (!(items = calloc (most, sizeof (*items))))
        return error_set (err, RV_ENOMEM, "out of memory");
    for (const char *p = text; *text; p++) {
        const char *end = p + strcspn (p, ","), *stop = end;

        while (p < stop && is_blank (*p))
            p++;
        while (stop > p && is_blank (stop[-1]))
            stop--;
        if (p == stop || !(items[n++] = strndup (p, (size_t)(stop - p)))) {
            conf_split_free (items);
            return p == stop ? error_set (
                       err, RV_EINVAL, "list '%.100s' has an empty item", text)
                             : error_set (err, RV_ENOMEM, "out of memory");
        }
        if (!*(p = end))
            break;
    }
    *ret = items;
    if (ret_n)
        *ret_n = n;
    return 0;
}

void conf_free_strings (const struct conf_key *keys, size_t n, void *target)
{
    for (size_t i = 0; keys && target && i < n; i++) {
        char **place = (char **)((char *)target + keys[i].offset);

        if (!conf_is_text (keys[i].type) || strcmp (keys[i].key, "*") == 0
            || strchr (keys[i].section, '*'))
            continue;
        free (*place);
        *place = NULL;
    }
}
