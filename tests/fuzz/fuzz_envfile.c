/* SPDX-License-Identifier: Apache-2.0
 * fuzz_envfile.c - NAME=VALUE text, and that what is written is read again */
#include "config.h"

#include "fuzz.h"
#include "plan/envfile.h"

/* Written and read again it is the same. */
static void round_trip (const struct envfile *env)
{
    struct envfile again = {0};
    size_t len = 0;
    char *text = envfile_format (env, &len);

    FUZZ_CHECK (text && strlen (text) == len);
    if (len <= ENVFILE_MAX) { /* escapes make it longer */
        FUZZ_CHECK (envfile_parse (text, len, "g", &again, NULL) == 0);
        FUZZ_CHECK (again.n == env->n);
    }
    for (size_t i = 0; i < again.n; i++) {
        FUZZ_CHECK (!strcmp (again.var[i].name, env->var[i].name));
        FUZZ_CHECK (!strcmp (again.var[i].value, env->var[i].value));
    }
    envfile_wipe (text, len);
    envfile_fini (&again);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct rv_error err = {0};
    struct envfile env = {0};
    /* an allocation of its own size: no NUL stands behind */
    char *bytes = malloc (size ? size : 1);
    int rc;

    FUZZ_CHECK (bytes);
    if (size)
        memcpy (bytes, data, size);
    rc = envfile_parse (bytes, size, "f", &env, &err);
    FUZZ_CHECK (rc == 0 || (err.code == rc && !strncmp (err.text, "f:", 2)));
    for (size_t i = 0; i < env.n; i++) {
        FUZZ_CHECK (envfile_check (env.var[i].name, NULL) == 0);
        FUZZ_CHECK (envfile_find (&env, env.var[i].name) == env.var[i].value);
    }
    if (rc == 0)
        round_trip (&env);
    envfile_fini (&env);
    free (bytes);
    return 0;
}
