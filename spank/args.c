/* SPDX-License-Identifier: Apache-2.0
 * args.c - the words that stand behind spank_rv.so in plugstack.conf */
#include "args.h"

#include <stdbool.h>
#include <string.h>

#define KNOWN                                                                  \
    "known words: conf=PATH, env=off|gpu, health=off|report|drain, nvml=PATH"

static int parse_env (const char *value, struct plugin_args *args,
                      struct rv_error *err)
{
    if (strcmp (value, "off") == 0)
        args->env = ARGS_ENV_OFF;
    else if (strcmp (value, "gpu") == 0)
        args->env = ARGS_ENV_GPU;
    else
        return error_set (err, RV_EINVAL,
                          "env='%s' is not a value of env; use off or gpu",
                          value);
    return RV_OK;
}

static int parse_health (const char *value, struct plugin_args *args,
                         struct rv_error *err)
{
    if (strcmp (value, "off") == 0)
        args->health = ARGS_HEALTH_OFF;
    else if (strcmp (value, "report") == 0)
        args->health = ARGS_HEALTH_REPORT;
    else if (strcmp (value, "drain") == 0)
        args->health = ARGS_HEALTH_DRAIN;
    else
        return error_set (err, RV_EINVAL,
                          "health='%s' is not a value of health; use off, "
                          "report or drain",
                          value);
    return RV_OK;
}

static int parse_nvml (const char *value, struct plugin_args *args,
                       struct rv_error *err)
{
    if (value[0] != '/')
        return error_set (err, RV_EINVAL,
                          "nvml='%s' is no absolute path; write one, such as "
                          "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
                          value);
    args->nvml = value;
    return RV_OK;
}

static int parse_conf (const char *value, struct plugin_args *args,
                       struct rv_error *err)
{
    if (value[0] != '/')
        return error_set (err, RV_EINVAL,
                          "conf='%s' is no absolute path; write one, such as "
                          "/etc/rv/rv.conf",
                          value);
    args->conf = value;
    return RV_OK;
}

static const struct word {
    const char *key;
    int (*parse) (const char *value, struct plugin_args *args,
                  struct rv_error *err);
} words[] = {
    {"env", parse_env},
    {"health", parse_health},
    {"nvml", parse_nvml},
    {"conf", parse_conf},
};

#define N_WORDS (sizeof (words) / sizeof (words[0]))

static int parse_word (const char *word, struct plugin_args *args,
                       bool seen[N_WORDS], struct rv_error *err)
{
    size_t len = strcspn (word, "=");

    for (size_t i = 0; word[len] && i < N_WORDS; i++) {
        if (len != strlen (words[i].key)
            || strncmp (word, words[i].key, len) != 0)
            continue;
        if (seen[i])
            return error_set (err, RV_EINVAL, "%s= stands twice; keep one",
                              words[i].key);
        seen[i] = true;
        return words[i].parse (word + len + 1, args, err);
    }
    return error_set (err, RV_EINVAL, "unknown word '%s'; " KNOWN, word);
}

int args_parse (int argc, char *const *argv, struct plugin_args *ret,
                struct rv_error *err)
{
    struct plugin_args args = {.env = ARGS_ENV_OFF};
    bool seen[N_WORDS] = {false};

    for (int i = 0; i < argc; i++) {
        int rc = parse_word (argv[i], &args, seen, err);

        if (rc)
            return rc;
    }
    *ret = args;
    return RV_OK;
}
