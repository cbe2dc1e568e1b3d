/* SPDX-License-Identifier: Apache-2.0
 * args.c - the words that stand behind spank_rv.so in plugstack.conf */
#include "args.h"

#include <stdbool.h>
#include <string.h>

#define KNOWN "known words: env=off|gpu"

/* Words that later releases serve: naming them beats "unknown word". */
static const char *const later[] = {"conf", "nvml"};

static bool key_is (const char *word, size_t len, const char *key)
{
    return len == strlen (key) && strncmp (word, key, len) == 0;
}

static int parse_env (const char *value, enum args_env *ret,
                      struct rv_error *err)
{
    if (strcmp (value, "off") == 0)
        *ret = ARGS_ENV_OFF;
    else if (strcmp (value, "gpu") == 0)
        *ret = ARGS_ENV_GPU;
    else
        return error_set (err, RV_EINVAL,
                          "env='%s' is not a value of env; use off or gpu",
                          value);
    return RV_OK;
}

static int parse_word (const char *word, struct plugin_args *args,
                       bool *seen_env, struct rv_error *err)
{
    size_t len = strcspn (word, "=");
    const char *value = word[len] ? word + len + 1 : NULL;

    if (value && key_is (word, len, "env")) {
        if (*seen_env)
            return error_set (err, RV_EINVAL, "env= stands twice; keep one");
        *seen_env = true;
        return parse_env (value, &args->env, err);
    }
    /* health=off asks for what happens anyway. */
    if (strcmp (word, "health=off") == 0)
        return RV_OK;
    if (value && key_is (word, len, "health"))
        return error_set (err, RV_ENOTSUP,
                          "'%s' is not served yet; use health=off", word);
    for (size_t i = 0; i < sizeof (later) / sizeof (later[0]); i++)
        if (value && key_is (word, len, later[i]))
            return error_set (err, RV_ENOTSUP,
                              "'%s=' is not served yet; take it out", later[i]);
    return error_set (err, RV_EINVAL, "unknown word '%s'; " KNOWN, word);
}

int args_parse (int argc, char *const *argv, struct plugin_args *ret,
                struct rv_error *err)
{
    struct plugin_args args = {.env = ARGS_ENV_OFF};
    bool seen_env = false;

    for (int i = 0; i < argc; i++) {
        int rc = parse_word (argv[i], &args, &seen_env, err);

        if (rc)
            return rc;
    }
    *ret = args;
    return RV_OK;
}
