/* SPDX-License-Identifier: Apache-2.0
 * parent.c - whose child a process of this node is */
#include "plan/parent.h"

#include <stdio.h>
#include <string.h>

/* Its command stands in brackets and may hold any character. */
pid_t parent_of (const char *name)
{
    char path[300], text[512];
    const char *at;
    size_t n = 0;
    int parent = 0;
    FILE *f;

    if (name[0] < '1' || name[0] > '9')
        return 0;
    snprintf (path, sizeof (path), "/proc/%.200s/stat", name);
    if (!(f = fopen (path, "re")))
        return 0;
    n = fread (text, 1, sizeof (text) - 1, f);
    fclose (f);
    text[n] = '\0';
    at = strrchr (text, ')');
    if (!at || sscanf (at, ") %*c %d", &parent) != 1)
        return 0;
    return parent;
}
