/* SPDX-License-Identifier: Apache-2.0
 * envv.c - the environment of a child, made beside our own */
#define _GNU_SOURCE
#include "exec/envv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void envv_fini (struct envv *e)
{
    for (size_t i = 0; i < e->n; i++)
        free (e->v[i]);
    free (e->v);
    *e = (struct envv){0};
}

int envv_copy (struct envv *e, char *const *env)
{
    size_t n = 0;

    *e = (struct envv){0};
    while (env[n])
        n++;
    if (!(e->v = calloc (n + 1, sizeof (*e->v))))
        return -1;
    for (; e->n < n; e->n++)
        if (!(e->v[e->n] = strdup (env[e->n]))) {
            envv_fini (e);
            return -1;
        }
    return 0;
}

static size_t find (const struct envv *e, const char *name)
{
    size_t len = strlen (name), i;

    for (i = 0; i < e->n; i++)
        if (!strncmp (e->v[i], name, len) && e->v[i][len] == '=')
            break;
    return i;
}

const char *envv_get (const struct envv *e, const char *name)
{
    size_t i = find (e, name);

    return i < e->n ? e->v[i] + strlen (name) + 1 : NULL;
}

int envv_set (struct envv *e, const char *name, const char *value)
{
    size_t i = find (e, name);
    char *text = NULL, **grown;

    if (value && asprintf (&text, "%s=%s", name, value) < 0)
        return -1;
    if (i < e->n) {
        free (e->v[i]);
        if (value)
            e->v[i] = text;
        else {
            e->v[i] = e->v[--e->n];
            e->v[e->n] = NULL;
        }
        return 0;
    }
    if (!value)
        return 0;
    if (!(grown = realloc (e->v, (e->n + 2) * sizeof (*grown)))) {
        free (text);
        return -1;
    }
    e->v = grown;
    e->v[e->n++] = text;
    e->v[e->n] = NULL;
    return 0;
}
