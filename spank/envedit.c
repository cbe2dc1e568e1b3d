/* SPDX-License-Identifier: Apache-2.0
 * envedit.c - put variables into the environment and take them out again */
#include "envedit.h"

#include <stdlib.h>

bool envedit_set (struct envedit *e, const char *name, const char *value)
{
    if (e->n == ENVEDIT_MAX || getenv (name) || setenv (name, value, 1) != 0)
        return false;
    e->name[e->n++] = name;
    return true;
}

void envedit_undo (struct envedit *e)
{
    while (e->n > 0)
        unsetenv (e->name[--e->n]);
}
