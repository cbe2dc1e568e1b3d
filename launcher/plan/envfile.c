/* SPDX-License-Identifier: Apache-2.0
 * envfile.c - NAME=VALUE text: the user's secrets, and files in .env form */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include "plan/envfile.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Where the reader stands. */
struct reader {
    const char *at, *end, *name;
    char *value; /* room for the longest value, and its NUL */
    unsigned line;
};

void envfile_wipe (char *text, size_t len)
{
    if (!text)
        return;
    explicit_bzero (text, len);
    free (text);
}

static void var_fini (struct envfile_var *var)
{
    free (var->name);
    if (var->value)
        envfile_wipe (var->value, strlen (var->value));
    *var = (struct envfile_var){0};
}

void envfile_fini (struct envfile *env)
{
    if (!env)
        return;
    for (size_t i = 0; i < env->n; i++)
        var_fini (&env->var[i]);
    free (env->var);
    *env = (struct envfile){0};
}

/* ASCII alone, whatever the locale. */
static bool is_name_char (char c, bool first)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'
           || (!first && c >= '0' && c <= '9');
}

static bool is_blank (char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

int envfile_check (const char *name, struct rv_error *err)
{
    static const char *const heads[] = {"SLURM_", "SLURMD_", "SBATCH_", "SRUN_",
                                        "PMIX_",  "PMI_",    "RV_"};
    static const char *const own[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "CUDA_VISIBLE_DEVICES",
    };
    const char *c = name;

    while (is_name_char (*c, c == name))
        c++;
    if (*c || c == name)
        return error_set (err, RV_EINVAL,
                          "'%.64s' is no name of a variable: letters, digits "
                          "and _, no digit first",
                          name);
    for (size_t i = 0; i < sizeof (heads) / sizeof (heads[0]); i++)
        if (!strncmp (name, heads[i], strlen (heads[i])))
            return error_set (err, RV_EINVAL,
                              "'%.64s' may not be set: %s... is Slurm's or "
                              "rv's own",
                              name, heads[i]);
    for (size_t i = 0; i < sizeof (own) / sizeof (own[0]); i++)
        if (!strcmp (name, own[i]))
            return error_set (err, RV_EINVAL,
                              "'%s' may not be set: each rank has its own",
                              name);
    return RV_OK;
}

static size_t find (const struct envfile *env, const char *name)
{
    size_t i;

    for (i = 0; i < env->n; i++)
        if (!strcmp (env->var[i].name, name))
            break;
    return i;
}

const char *envfile_find (const struct envfile *env, const char *name)
{
    size_t i = find (env, name);

    return i < env->n ? env->var[i].value : NULL;
}

/* Put the pair in; both strings are the table's on success. */
static int put_take (struct envfile *env, char *name, char *value,
                     struct rv_error *err)
{
    size_t i = find (env, name);
    struct envfile_var *grown;

    if (strlen (name) + strlen (value) + 2 > ENVFILE_PAIR_MAX)
        return error_set (err, RV_EINVAL,
                          "the value of '%.64s' is too long: name and value "
                          "have %d bytes at most",
                          name, ENVFILE_PAIR_MAX - 2);
    if (i < env->n) {
        var_fini (&env->var[i]);
    } else if (env->n == ENVFILE_VARS) {
        return error_set (err, RV_EINVAL, "more than %d variables",
                          ENVFILE_VARS);
    } else {
        grown = realloc (env->var, (env->n + 1) * sizeof (*grown));
        if (!grown)
            return error_set (err, RV_ENOMEM, "out of memory");
        env->var = grown;
        env->n++;
    }
    env->var[i] = (struct envfile_var){name, value};
    return RV_OK;
}

int envfile_set (struct envfile *env, const char *name, const char *value,
                 struct rv_error *err)
{
    struct envfile_var copy = {0};
    int rc = envfile_check (name, err);

    if (rc)
        return rc;
    copy.name = strdup (name);
    copy.value = strdup (value);
    rc = copy.name && copy.value ? put_take (env, copy.name, copy.value, err)
                                 : error_set (err, RV_ENOMEM, "out of memory");
    if (rc)
        var_fini (&copy);
    return rc;
}

int envfile_unset (struct envfile *env, const char *name, struct rv_error *err)
{
    size_t i = find (env, name);

    if (i == env->n)
        return error_set (err, RV_ENOTFOUND, "no variable is called '%.64s'",
                          name);
    var_fini (&env->var[i]);
    memmove (&env->var[i], &env->var[i + 1],
             (env->n - i - 1) * sizeof (*env->var));
    env->n--;
    return RV_OK;
}

static int wrong (const struct reader *r, unsigned line, struct rv_error *err,
                  const char *why)
{
    return error_set (err, RV_EFORMAT, "%s:%u: %s", r->name, line, why);
}

/* The rest of a line behind a closing quote: blanks, or a comment. */
static int close_line (struct reader *r, unsigned line, struct rv_error *err)
{
    while (r->at < r->end && is_blank (*r->at))
        r->at++;
    if (r->at < r->end && *r->at == '#')
        while (r->at < r->end && *r->at != '\n')
            r->at++;
    if (r->at < r->end && *r->at != '\n')
        return wrong (r, line, err, "text stands behind the closing quote");
    return RV_OK;
}

/* What stands behind a backslash within "", or NUL. */
static char unescape (char c)
{
    static const char from[] = "nrt\"\\$`", to[] = "\n\r\t\"\\$`";
    const char *at = c ? strchr (from, c) : NULL;

    return at ? to[at - from] : '\0';
}

/* The text between quotes into [out], which has room for it. */
static int quoted (struct reader *r, char *out, struct rv_error *err)
{
    char quote = *r->at++;
    unsigned line = r->line;

    for (; r->at < r->end && *r->at != quote; r->at++) {
        char c = *r->at;

        if (c == '\n')
            r->line++;
        if (c == '\\' && quote == '"') {
            c = ++r->at < r->end ? unescape (*r->at) : '\0';
            if (!c)
                return wrong (r, r->line, err,
                              "a backslash within \"\" stands before n, r, t, "
                              "\", \\, $ or `; within '' it is itself");
        }
        *out++ = c;
    }
    *out = '\0';
    if (r->at == r->end)
        return wrong (r, line, err, "the quote is not closed");
    r->at++;
    return close_line (r, line, err);
}

/* A word without quotes, to the end of the line. */
static int bare (struct reader *r, char *out, struct rv_error *err)
{
    const char *from = r->at, *to;

    while (r->at < r->end && *r->at != '\n')
        r->at++;
    for (to = r->at; to > from && is_blank (to[-1]); to--)
        ;
    for (const char *c = from; c < to; c++) {
        bool comment = *c == '#' && (c == from || is_blank (c[-1]));

        if (comment || *c == '"' || *c == '\'' || *c == '\\')
            return wrong (r, r->line, err,
                          "a value with quotes, a backslash or a # stands in "
                          "quotes");
    }
    memcpy (out, from, (size_t)(to - from));
    out[to - from] = '\0';
    return RV_OK;
}

static int read_name (struct reader *r, char **ret, struct rv_error *err)
{
    static const char export[] = "export";
    const char *from;
    size_t left = (size_t)(r->end - r->at);

    if (left > sizeof (export) && !memcmp (r->at, export, sizeof (export) - 1)
        && is_blank (r->at[sizeof (export) - 1]))
        for (r->at += sizeof (export); r->at < r->end && is_blank (*r->at);)
            r->at++;
    from = r->at;
    while (r->at < r->end && is_name_char (*r->at, r->at == from))
        r->at++;
    if (r->at == from || r->at == r->end || *r->at != '=')
        return wrong (r, r->line, err, "this is no NAME=VALUE");
    if (!(*ret = strndup (from, (size_t)(r->at - from))))
        return error_set (err, RV_ENOMEM, "out of memory");
    r->at++;
    return RV_OK;
}

static int read_value (struct reader *r, struct rv_error *err)
{
    while (r->at < r->end && is_blank (*r->at))
        r->at++;
    if (r->at < r->end && (*r->at == '"' || *r->at == '\''))
        return quoted (r, r->value, err);
    return bare (r, r->value, err);
}

/* One assignment; [r] then stands at its end of line. */
static int assignment (struct reader *r, struct envfile *env,
                       struct rv_error *err)
{
    unsigned line = r->line;
    char *name = NULL;
    int rc = read_name (r, &name, err);

    if (rc || (rc = read_value (r, err))) {
        /* said */
    } else if (find (env, name) < env->n) {
        rc = error_set (err, RV_EFORMAT, "%s:%u: '%.64s' stands twice", r->name,
                        line, name);
    } else if ((rc = envfile_set (env, name, r->value, err))) {
        error_prefix (err, "%s:%u", r->name, line);
    }
    free (name);
    return rc;
}

/* Blank lines and comments on the way to an assignment. */
static int next_word (struct reader *r, struct envfile *env,
                      struct rv_error *err)
{
    if (*r->at == '#')
        while (r->at < r->end && *r->at != '\n')
            r->at++;
    else if (*r->at == '\n' || is_blank (*r->at))
        r->line += *r->at++ == '\n';
    else
        return assignment (r, env, err);
    return RV_OK;
}

int envfile_parse (const char *text, size_t len, const char *name,
                   struct envfile *ret, struct rv_error *err)
{
    struct reader r = {text, text + len, name, NULL, 1};
    struct envfile env = {0};
    int rc = RV_OK;

    if (len > ENVFILE_MAX)
        return error_set (err, RV_EFORMAT, "%s: larger than %d bytes", name,
                          ENVFILE_MAX);
    if (len && memchr (text, '\0', len))
        return error_set (err, RV_EFORMAT, "%s: a NUL byte is in it", name);
    if (!(r.value = malloc (len + 1)))
        return error_set (err, RV_ENOMEM, "out of memory");
    while (rc == RV_OK && r.at < r.end)
        rc = next_word (&r, &env, err);
    envfile_wipe (r.value, len + 1);
    if (rc != RV_OK) {
        envfile_fini (&env);
        return rc;
    }
    *ret = env;
    return RV_OK;
}

/* [value] between "", behind which nothing is lost; returns the end. */
static char *write_value (char *out, const char *value)
{
    static const char special[] = "\n\r\t\"\\$`", letter[] = "nrt\"\\$`";

    *out++ = '"';
    for (; *value; value++) {
        const char *at = strchr (special, *value);

        if (at)
            *out++ = '\\';
        *out++ = at ? letter[at - special] : *value;
    }
    *out++ = '"';
    return out;
}

char *envfile_format (const struct envfile *env, size_t *ret_len)
{
    size_t size = 1;
    char *text, *out;

    for (size_t i = 0; i < env->n; i++)
        size += strlen (env->var[i].name) + 2 * strlen (env->var[i].value) + 4;
    if (!(out = text = malloc (size)))
        return NULL;
    for (size_t i = 0; i < env->n; i++) {
        out = stpcpy (out, env->var[i].name);
        *out++ = '=';
        out = write_value (out, env->var[i].value);
        *out++ = '\n';
    }
    *out = '\0';
    *ret_len = (size_t)(out - text);
    return text;
}
