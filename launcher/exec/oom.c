/* SPDX-License-Identifier: Apache-2.0
 * oom.c - did the kernel kill something in our control group? */
#include "config.h"

#include "exec/oom.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOUNTS_MAX 262144

/* Does the list [s] (len), divided by commas, hold [word]? */
static bool lists (const char *s, size_t len, const char *word)
{
    size_t want = strlen (word);

    for (const char *end = s + len; s < end;) {
        const char *comma = memchr (s, ',', (size_t)(end - s));
        size_t n = (size_t)((comma ? comma : end) - s);

        if (n == want && !memcmp (s, word, n))
            return true;
        s += n + 1;
    }
    return false;
}

/* A line of /proc/self/cgroup is ID:CONTROLLERS:PATH. The memory controller is
 * in version 1's hierarchy if one names it, else in version 2's. */
static enum oom_version own_group (const char *self, const char **ret_path,
                                   size_t *ret_len)
{
    enum oom_version found = OOM_NONE;

    while (*self) {
        size_t len = strcspn (self, "\n");
        const char *a = memchr (self, ':', len);
        const char *b =
            a ? memchr (a + 1, ':', len - (size_t)(a + 1 - self)) : NULL;
        enum oom_version is = OOM_NONE;

        if (b && lists (a + 1, (size_t)(b - a - 1), "memory"))
            is = OOM_V1;
        else if (b && b == a + 1 && found == OOM_NONE)
            is = OOM_V2;
        if (is != OOM_NONE) {
            found = is;
            *ret_path = b + 1;
            *ret_len = len - (size_t)(b + 1 - self);
        }
        self += len + (self[len] == '\n');
    }
    return found;
}

struct mount {
    const char *root, *point, *type, *options;
    size_t root_len, point_len, type_len, options_len;
};

static const char *word_at (const char *line, size_t len, size_t index,
                            size_t *ret_len)
{
    const char *end = line + len;

    for (; line < end; index--) {
        const char *space = memchr (line, ' ', (size_t)(end - line));
        size_t n = (size_t)((space ? space : end) - line);

        *ret_len = n;
        if (index == 0)
            return line;
        line += n + 1;
    }
    *ret_len = 0;
    return NULL;
}

/* proc_pid_mountinfo(5): ID PARENT DEV ROOT POINT OPTIONS [TAG...] - TYPE
 * SOURCE SUPER-OPTIONS */
static bool split_mount (const char *line, size_t len, struct mount *m)
{
    const char *dash = memmem (line, len, " - ", 3);
    size_t rest;

    if (!dash)
        return false;
    rest = len - (size_t)(dash + 3 - line);
    m->root = word_at (line, (size_t)(dash - line), 3, &m->root_len);
    m->point = word_at (line, (size_t)(dash - line), 4, &m->point_len);
    m->type = word_at (dash + 3, rest, 0, &m->type_len);
    m->options = word_at (dash + 3, rest, 2, &m->options_len);
    return m->root && m->point && m->type && m->options;
}

static bool is_wanted (const struct mount *m, enum oom_version version)
{
    if (version == OOM_V2)
        return m->type_len == 7 && !memcmp (m->type, "cgroup2", 7);
    return m->type_len == 6 && !memcmp (m->type, "cgroup", 6)
           && lists (m->options, m->options_len, "memory");
}

enum oom_version oom_folder (const char *self, const char *mounts, char *buf,
                             size_t size)
{
    const char *path = NULL;
    size_t path_len = 0;
    enum oom_version version = own_group (self, &path, &path_len);
    struct mount m;

    buf[0] = '\0';
    for (size_t len; version != OOM_NONE && *mounts;
         mounts += len + (mounts[len] == '\n')) {
        size_t skip;
        int n;

        len = strcspn (mounts, "\n");
        if (!split_mount (mounts, len, &m) || !is_wanted (&m, version))
            continue;
        /* The mount may show a part of the tree: ROOT is cut off. */
        skip = m.root_len == 1 ? 0 : m.root_len;
        if (skip > path_len || memcmp (path, m.root, skip)
            || (skip < path_len && path[skip] != '/'))
            skip = path_len;
        if (path_len - skip == 1) /* "/" */
            skip = path_len;
        n = snprintf (buf, size, "%.*s%.*s", (int)m.point_len, m.point,
                      (int)(path_len - skip), path + skip);
        if (n >= 0 && (size_t)n < size)
            return version;
        break;
    }
    buf[0] = '\0';
    return OOM_NONE;
}

int64_t oom_count (const char *text, const char *key)
{
    size_t want = strlen (key);

    while (*text) {
        if (!strncmp (text, key, want) && text[want] == ' ') {
            const char *digits = text + want + 1;
            char *end;
            long long value = strtoll (digits, &end, 10);

            if (end == digits || (*end && *end != '\n') || value < 0)
                return -1;
            return value;
        }
        text += strcspn (text, "\n");
        text += *text == '\n';
    }
    return -1;
}

/* Whole text of a file of /proc or a control group; NULL when unreadable. */
static char *read_text (const char *path, size_t max)
{
    int fd = open (path, O_RDONLY | O_CLOEXEC);
    char *buf = fd < 0 ? NULL : malloc (max + 1);
    size_t len = 0;
    ssize_t n = 0;

    while (buf && len < max && (n = read (fd, buf + len, max - len)) > 0)
        len += (size_t)n;
    if (fd >= 0)
        close (fd);
    if (buf && n < 0) {
        free (buf);
        buf = NULL;
    }
    if (buf)
        buf[len] = '\0';
    return buf;
}

static int64_t count_in (const char *folder, const char *name, const char *key)
{
    char path[PATH_MAX + 32], *text;
    int64_t count = -1;

    snprintf (path, sizeof (path), "%s/%s", folder, name);
    if (!(text = read_text (path, 4096)))
        return -1;
    if (key)
        count = oom_count (text, key);
    else {
        char *end;
        long long value = strtoll (text, &end, 10);

        if (end != text && value >= 0)
            count = value;
    }
    free (text);
    return count;
}

struct oom oom_now (void)
{
    struct oom o = {-1, -1};
    char *self = read_text ("/proc/self/cgroup", 16384);
    char *mounts = read_text ("/proc/self/mountinfo", MOUNTS_MAX);
    char folder[PATH_MAX];

    if (self && mounts)
        switch (oom_folder (self, mounts, folder, sizeof (folder))) {
        case OOM_V2:
            o.kills = count_in (folder, "memory.events", "oom_kill");
            break;
        case OOM_V1:
            o.kills = count_in (folder, "memory.oom_control", "oom_kill");
            o.limits = count_in (folder, "memory.failcnt", NULL);
            break;
        case OOM_NONE:
            break;
        }
    free (self);
    free (mounts);
    return o;
}

int oom_happened (const struct oom *before, const struct oom *after,
                  bool killed)
{
    if (before->kills >= 0 && after->kills >= 0)
        return after->kills > before->kills;
    if (before->limits >= 0 && after->limits >= 0)
        return killed && after->limits > before->limits;
    return -1;
}
