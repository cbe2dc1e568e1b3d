/* SPDX-License-Identifier: Apache-2.0
 * envv.h - the environment of a child, made beside our own. */
#ifndef RV_EXEC_ENVV_H
#define RV_EXEC_ENVV_H

#include <stddef.h>

struct envv {
    char **v; /* (n) "NAME=value", NULL-terminated */
    size_t n;
};

/* envv_copy - a copy of [env]. Returns 0, -1 when out of memory. */
int envv_copy (struct envv *e, char *const *env);
/* envv_get - the value, valid until the next envv_set; NULL if unset. */
const char *envv_get (const struct envv *e, const char *name);
/* envv_set - NULL [value] unsets. Returns 0, -1 when out of memory. */
int envv_set (struct envv *e, const char *name, const char *value);
void envv_fini (struct envv *e);

#endif
