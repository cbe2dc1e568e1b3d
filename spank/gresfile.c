/* SPDX-License-Identifier: Apache-2.0
 * gresfile.c - what the files of a node say of its GPUs
 *
 * Sources: gres.conf(5), cgroup.conf(5), NVIDIA's Multi-Instance GPU User
 * Guide (device nodes and capabilities). */
#include "gresfile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/hostlist.h"

#define LINE_MAX_BYTES 4096

/* next_line - the next line without comment and newline into [buf]. A line
 * that does not fit is cut, and *ret_cut set. */
static const char *next_line (const char *text, char *buf, size_t size,
                              bool *ret_cut)
{
    size_t len = strcspn (text, "\n"), keep;

    keep = strcspn (text, "\n#");
    *ret_cut = keep >= size;
    if (keep >= size)
        keep = size - 1;
    memcpy (buf, text, keep);
    buf[keep] = '\0';
    return text[len] ? text + len + 1 : text + len;
}

/* value - of "Key=Value" in a line; keys have any case, values no blanks. */
static bool value (const char *line, const char *key, char *buf, size_t size)
{
    size_t n = strlen (key), len;

    for (const char *p = line; *p;) {
        p += strspn (p, " \t\r");
        if (strncasecmp (p, key, n) == 0 && p[n] == '=') {
            len = strcspn (p + n + 1, " \t\r");
            if (len >= size)
                return false;
            memcpy (buf, p + n + 1, len);
            buf[len] = '\0';
            return true;
        }
        p += strcspn (p, " \t\r");
    }
    return false;
}

/* names_node - is [node] in a NodeName= list? False where the list cannot be
 * read. */
static bool names_node (const char *list, const char *node, bool *ret_found)
{
    struct hostlist hosts = {0};

    *ret_found = false;
    if (hostlist_parse (list, &hosts, NULL))
        return false;
    for (size_t i = 0; i < hosts.n; i++)
        *ret_found = *ret_found || strcmp (hosts.host[i], node) == 0;
    hostlist_fini (&hosts);
    return true;
}

/* number_after - N of a name that is [stem]N; -1 when it is not. */
static int number_after (const char *name, const char *stem)
{
    size_t n = strlen (stem);

    return strncmp (name, stem, n) == 0 ? devlist_index (name + n) : -1;
}

static void note_file (struct gres_device *dev, const char *name)
{
    int cap = number_after (name, "nvidia-cap");

    if (cap >= 0)
        dev->cap[dev->cap[0] >= 0] = cap;
    else if (dev->card < 0)
        dev->card = number_after (name, "nvidia");
}

static const struct gres_device no_device = {-1, {-1, -1}};

/* base_names - the list without folders: "nvidia0,nvidia-cap[21-22]". False
 * where brackets stand in a folder's name. */
static bool base_names (char *list)
{
    char *to = list, *begin = list;
    int depth = 0;

    for (const char *p = list; *p; p++) {
        depth += (*p == '[') - (*p == ']');
        if (*p == '/'
            && (depth != 0 || memchr (begin, '[', (size_t)(to - begin))))
            return false;
        *to++ = *p;
        if (*p == '/')
            to = begin;
        else if (*p == ',' && depth == 0)
            begin = to;
    }
    *to = '\0';
    return true;
}

/* add_files - File= gives a device each, MultipleFiles= one for all. */
static bool add_files (char *list, bool together, struct gres_devices *ret)
{
    struct hostlist files = {0};
    bool ok = true;

    if (!base_names (list) || hostlist_parse (list, &files, NULL))
        return false;
    for (size_t i = 0; ok && i < files.n; i++) {
        if (i == 0 || !together) {
            ok = ret->n < DEVLIST_MAX;
            if (!ok)
                break;
            ret->dev[ret->n++] = no_device;
        }
        note_file (&ret->dev[ret->n - 1], files.host[i]);
    }
    hostlist_fini (&files);
    return ok;
}

/* add_line - false when the line may be one of the node's GPUs and cannot be
 * read. */
static bool add_line (const char *line, const char *node,
                      struct gres_devices *ret)
{
    char word[LINE_MAX_BYTES];
    bool found = true;

    if (value (line, "NodeName", word, sizeof (word))
        && !names_node (word, node, &found))
        return false;
    if (!found)
        return true;
    if (value (line, "AutoDetect", word, sizeof (word))
        && strcasecmp (word, "off") != 0)
        ret->detected = true;
    if (!value (line, "Name", word, sizeof (word)) || strcmp (word, "gpu") != 0)
        return true;
    if (value (line, "MultipleFiles", word, sizeof (word)))
        return add_files (word, true, ret);
    if (value (line, "File", word, sizeof (word)))
        return add_files (word, false, ret);
    return true;
}

void gresfile_read (const char *text, const char *node,
                    struct gres_devices *ret)
{
    char line[LINE_MAX_BYTES];
    bool cut, ok = true;

    *ret = (struct gres_devices){.n = 0};
    while (ok && *text) {
        text = next_line (text, line, sizeof (line), &cut);
        ok = !cut && add_line (line, node, ret);
    }
    if (!ok)
        ret->n = 0;
}

bool gresfile_confined (const char *text)
{
    char line[LINE_MAX_BYTES], word[16];
    bool cut, yes = false;

    while (*text) {
        text = next_line (text, line, sizeof (line), &cut);
        if (value (line, "ConstrainDevices", word, sizeof (word)))
            yes = strcasecmp (word, "yes") == 0;
    }
    return yes;
}

bool gresfile_minor (const char *text, int cap, struct mig_place *ret)
{
    char line[128];
    bool cut;

    while (*text) {
        struct mig_place p = {-1, -1, -1};
        int minor = -1, used = 0;

        text = next_line (text, line, sizeof (line), &cut);
        if (sscanf (line, "gpu%6d/gi%6d/ci%6d/access %9d%n", &p.card, &p.gi,
                    &p.ci, &minor, &used)
                != 4
            || line[used]) {
            p.ci = -1;
            used = 0;
            if (sscanf (line, "gpu%6d/gi%6d/access %9d%n", &p.card, &p.gi,
                        &minor, &used)
                    != 3
                || line[used])
                continue;
        }
        /* -1 of a line's own would read as "none". */
        if (minor == cap && !strchr (line, '-')) {
            *ret = p;
            return true;
        }
    }
    return false;
}

/* field - what stands behind "Key:" and blanks in its line. */
static bool field (const char *text, const char *key, char *buf, size_t size)
{
    char line[256];
    bool cut;

    while (*text) {
        size_t n = strlen (key), len;
        const char *p;

        text = next_line (text, line, sizeof (line), &cut);
        if (strncmp (line, key, n) != 0 || line[n] != ':')
            continue;
        p = line + n + 1 + strspn (line + n + 1, " \t");
        len = strcspn (p, " \t\r");
        if (cut || len == 0 || len >= size)
            return false;
        memcpy (buf, p, len);
        buf[len] = '\0';
        return true;
    }
    return false;
}

bool gresfile_card (const char *text, int *ret_minor,
                    char uuid[DEVLIST_NAME_MAX])
{
    char minor[16];
    int n;

    if (!field (text, "Device Minor", minor, sizeof (minor))
        || (n = devlist_index (minor)) < 0
        || !field (text, "GPU UUID", uuid, DEVLIST_NAME_MAX)
        || strncmp (uuid, "GPU-", 4) != 0)
        return false;
    *ret_minor = n;
    return true;
}
