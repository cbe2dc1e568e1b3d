/* SPDX-License-Identifier: Apache-2.0
 * outpath.c - the words of rv run --output: names below the working folder */
#include "config.h"

#include "plan/outpath.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define PART_MAX 255

static size_t part_len (const char *path)
{
    return strcspn (path, "/");
}

static bool part_is (const char *path, const char *what)
{
    return part_len (path) == strlen (what)
           && !strncmp (path, what, strlen (what));
}

static int check (const char *item, struct rv_error *err)
{
    if (!*item)
        return error_set (err, RV_EINVAL,
                          "a path is empty; names below the working folder "
                          "have commas between them");
    if (*item == '/' || !strncmp (item, "~/", 2))
        return error_set (err, RV_EINVAL,
                          "'%.128s' is not below the working folder; a job "
                          "writes such a path itself",
                          item);
    for (const char *p = item; p; p = outpath_rest (p)) {
        if (part_is (p, ".."))
            return error_set (err, RV_EINVAL,
                              "'%.128s' leads out of the working folder, and "
                              "nothing is written there; submit from above",
                              item);
        if (part_is (p, "**"))
            return error_set (err, RV_EINVAL,
                              "'%.128s': ** is not known; a folder comes back "
                              "whole by its name",
                              item);
        if (part_len (p) > PART_MAX)
            return error_set (err, RV_EINVAL, "'%.64s...' is too long", item);
    }
    return RV_OK;
}

/* Append the parts of [path] to [out], less those that say nothing; ".." takes
 * one away. false: there was none. */
static bool walk (char *out, const char *path)
{
    size_t len = strlen (out);

    for (const char *p = path; p; p = outpath_rest (p)) {
        size_t n = part_len (p);

        if (n == 0 || part_is (p, "."))
            continue;
        if (part_is (p, "..")) {
            char *slash = strrchr (out, '/');

            if (!len)
                return false;
            len = slash ? (size_t)(slash - out) : 0;
            out[len] = '\0';
            continue;
        }
        if (len)
            out[len++] = '/';
        memcpy (out + len, p, n);
        len += n;
        out[len] = '\0';
    }
    return true;
}

static int append (char ***list, size_t *n, const char *item,
                   struct rv_error *err)
{
    char **grown = realloc (*list, (*n + 2) * sizeof (*grown));
    char *clean = calloc (1, strlen (item) + 2);

    if (grown)
        *list = grown;
    if (!grown || !clean) {
        free (clean);
        return error_set (err, RV_ENOMEM, "out of memory");
    }
    walk (clean, item);
    if (!*clean)
        strncpy (clean, ".", 2);
    grown[(*n)++] = clean;
    grown[*n] = NULL;
    return RV_OK;
}

int outpath_parse (const char *list, char ***ret, size_t *n,
                   struct rv_error *err)
{
    size_t had = *n;
    char *copy = strdup (list), *at = copy, *item;
    int rc = copy ? RV_OK : error_set (err, RV_ENOMEM, "out of memory");

    while (!rc && (item = strsep (&at, ",")))
        if (!(rc = check (item, err)))
            rc = append (ret, n, item, err);
    while (rc && *n > had) {
        free ((*ret)[--*n]);
        (*ret)[*n] = NULL;
    }
    free (copy);
    return rc;
}

void outpath_free (char **list)
{
    for (size_t i = 0; list && list[i]; i++)
        free (list[i]);
    free (list);
}

bool outpath_match (const char *pattern, const char *name)
{
    char part[PART_MAX + 1];
    size_t n = part_len (pattern);

    if (n > PART_MAX)
        return false;
    memcpy (part, pattern, n);
    part[n] = '\0';
    return fnmatch (part, name, FNM_PERIOD) == 0;
}

const char *outpath_rest (const char *pattern)
{
    const char *slash = strchr (pattern, '/');

    return slash ? slash + 1 : NULL;
}

char *outpath_below (const char *prefix, const char *path)
{
    char *out;

    if (*path == '/'
        || !(out = calloc (1, strlen (prefix) + strlen (path) + 3)))
        return NULL;
    if (walk (out, prefix) && walk (out, path))
        return out;
    free (out);
    return NULL;
}
