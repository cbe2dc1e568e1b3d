/* SPDX-License-Identifier: Apache-2.0
 * conf_apply.c - look up one key of an INI file, check its value, store it */
#include "plan/conf_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/duration.h"
#include "plan/request.h"

#define BLANKS " \t\r\n\v\f"

/* A value of any type, before it has a place. */
union value {
    char *text;
    bool flag;
    int64_t number;
    double real;
    int choice;
};

/* Does a declared section ("model", "gpu *") cover this one? */
static bool covers (const char *pattern, const struct conf_section *section)
{
    size_t n = strlen (pattern);

    if (n > 2 && strcmp (pattern + n - 2, " *") == 0)
        return section->arg[0] && strlen (section->word) == n - 2
               && strncmp (pattern, section->word, n - 2) == 0;
    return !section->arg[0] && strcmp (pattern, section->word) == 0;
}

/* A declared section as a message shows it: "[gpu NAME]". */
static void show (const char *pattern, char *buf, size_t size)
{
    size_t n = strlen (pattern);

    if (n > 2 && strcmp (pattern + n - 2, " *") == 0)
        snprintf (buf, size, "[%.*sNAME]", (int)n - 1, pattern);
    else
        snprintf (buf, size, "[%s]", pattern);
}

/* "reward.form" where [reward NAME] is known: the place of the dot; else 0. */
static size_t dot_for_blank (const struct conf_spec *spec, const char *name)
{
    size_t word = strcspn (name, ".");

    for (size_t i = 0; i < spec->n && word > 0 && name[word]; i++) {
        const char *pattern = spec->keys[i].section;

        if (strncmp (pattern, name, word) == 0
            && strcmp (pattern + word, " *") == 0)
            return word;
    }
    return 0;
}

static int unknown_section (const struct conf_spec *spec, const char *name,
                            struct rv_error *err)
{
    size_t dot = dot_for_blank (spec, name);
    const char **names;
    const char *near = NULL;
    char known[80];

    if (dot > 0)
        return error_set (err, RV_EINVAL,
                          "unknown section [%s]; a name stands behind a blank: "
                          "[%.*s %s]",
                          name, (int)dot, name, name + dot + 1);
    names = calloc (spec->n + 1, sizeof (*names));
    for (size_t i = 0; names && i < spec->n; i++)
        names[i] = spec->keys[i].section;
    near = name_nearest (name, names, spec->n);
    free (names);
    if (!near)
        return error_set (err, RV_EINVAL, "unknown section [%s]", name);
    show (near, known, sizeof (known));
    return error_set (err, RV_EINVAL, "unknown section [%s]; nearest is %s",
                      name, known);
}

int conf_section_find (const struct conf_spec *spec, const char *name,
                       struct conf_section *ret, struct rv_error *err)
{
    struct conf_section s = {.word = ""};
    size_t word = strcspn (name, BLANKS),
           arg = word + strspn (name + word, BLANKS);
    size_t len = strlen (name + arg);

    while (len > 0 && strchr (BLANKS, name[arg + len - 1]))
        len--;
    if (word == 0 || word >= sizeof (s.word) || len >= sizeof (s.arg))
        return unknown_section (spec, name, err);
    memcpy (s.word, name, word);
    memcpy (s.arg, name + arg, len);
    for (size_t i = 0; i < spec->n; i++) {
        if (covers (spec->keys[i].section, &s)) {
            *ret = s;
            return 0;
        }
    }
    return unknown_section (spec, name, err);
}

/* The keys of [section] with commas between them, cut to fit. */
static void list_keys (const struct conf_spec *spec,
                       const struct conf_section *section, char *buf,
                       size_t size)
{
    size_t len = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < spec->n && len < size; i++) {
        if (covers (spec->keys[i].section, section))
            len += (size_t)snprintf (buf + len, size - len, "%s%s",
                                     len ? ", " : "", spec->keys[i].key);
    }
}

static int unknown_key (const struct conf_spec *spec,
                        const struct conf_section *section, const char *key,
                        struct rv_error *err)
{
    const char **names = calloc (spec->n + 1, sizeof (*names));
    const char *near, *elsewhere = NULL;
    char text[300];

    for (size_t i = 0; names && i < spec->n; i++) {
        if (covers (spec->keys[i].section, section))
            names[i] = spec->keys[i].key;
        else if (strcmp (spec->keys[i].key, key) == 0)
            elsewhere = spec->keys[i].section;
    }
    near = name_nearest (key, names, spec->n);
    free (names);
    if (near) {
        snprintf (text, sizeof (text), "nearest is '%s'", near);
    } else if (elsewhere) {
        char known[80];

        show (elsewhere, known, sizeof (known));
        snprintf (text, sizeof (text), "it is a key of %s", known);
    } else {
        char known[256];

        list_keys (spec, section, known, sizeof (known));
        snprintf (text, sizeof (text), "its keys are %s", known);
    }
    return error_set (err, RV_EINVAL, "unknown key '%.64s' in [%s]; %s", key,
                      section->word, text);
}

static const struct conf_key *find_key (const struct conf_spec *spec,
                                        const struct conf_section *section,
                                        const char *key)
{
    const struct conf_key *any = NULL;

    for (size_t i = 0; i < spec->n; i++) {
        const struct conf_key *k = &spec->keys[i];

        if (!covers (k->section, section))
            continue;
        if (strcmp (k->key, "*") == 0)
            any = k;
        else if (strcmp (k->key, key) == 0)
            return k;
    }
    return any;
}

static bool in_range (const struct conf_key *k, double v)
{
    return (k->min == 0 && k->max == 0) || (v >= k->min && v <= k->max);
}

static int out_of_range (const struct conf_key *k, const char *text,
                         struct rv_error *err)
{
    if (k->min == 0 && k->max == 0)
        return error_set (err, RV_EINVAL, "'%.100s' is too large", text);
    return error_set (err, RV_EINVAL, "'%.100s' is not from %.15g to %.15g",
                      text, k->min, k->max);
}

static int take_int (const struct conf_key *k, const char *text,
                     union value *ret, struct rv_error *err)
{
    const char *digits = text + (*text == '-' || *text == '+');
    long long v;

    if (!*digits || digits[strspn (digits, "0123456789")])
        return error_set (err, RV_EINVAL, "'%.100s' is not a whole number",
                          text);
    errno = 0;
    v = strtoll (text, NULL, 10);
    if (errno != 0 || !in_range (k, (double)v))
        return out_of_range (k, text, err);
    ret->number = v;
    return 0;
}

static int take_double (const struct conf_key *k, const char *text,
                        union value *ret, struct rv_error *err)
{
    char *end;
    double v;

    if (!*text || text[strspn (text, "0123456789+-.eE")])
        return error_set (err, RV_EINVAL, "'%.100s' is not a number", text);
    v = strtod (text, &end);
    if (end == text || *end)
        return error_set (err, RV_EINVAL, "'%.100s' is not a number", text);
    if (!isfinite (v) || !in_range (k, v))
        return out_of_range (k, text, err);
    ret->real = v;
    return 0;
}

static int take_bool (const char *text, union value *ret, struct rv_error *err)
{
    ret->flag = strcmp (text, "on") == 0;
    if (!ret->flag && strcmp (text, "off") != 0)
        return error_set (err, RV_EINVAL, "'%.100s' is not on or off", text);
    return 0;
}

static int take_choice (const struct conf_key *k, const char *text,
                        union value *ret, struct rv_error *err)
{
    int index = 0;
    size_t n = strlen (text);

    for (const char *p = k->choices;; p++, index++) {
        size_t m = strcspn (p, ",");

        if (m == n && strncmp (p, text, n) == 0) {
            ret->choice = index;
            return 0;
        }
        p += m;
        if (!*p)
            break;
    }
    return error_set (err, RV_EINVAL, "'%.100s' is not one of %s", text,
                      k->choices);
}

/* Text that has been found good; a copy of it. */
static int take_text (const char *text, union value *ret, struct rv_error *err)
{
    ret->text = strdup (text);
    return ret->text ? 0 : error_set (err, RV_ENOMEM, "out of memory");
}

static int take_list (const char *text, union value *ret, struct rv_error *err)
{
    char **items, *end;
    int rc = conf_split (text, &items, NULL, err);

    if (rc != 0)
        return rc;
    /* Slurm wants no blanks around the commas: never longer than [text]. */
    if ((rc = take_text (text, ret, err)) == 0) {
        end = ret->text;
        *end = '\0';
        for (size_t i = 0; items[i]; i++) {
            if (i)
                *end++ = ',';
            end = stpcpy (end, items[i]);
        }
    }
    conf_split_free (items);
    return rc;
}

static int take_path (const char *text, union value *ret, struct rv_error *err)
{
    if (text[0] != '/' && strncmp (text, "~/", 2) != 0)
        return error_set (err, RV_EINVAL,
                          "'%.100s' is not a path that begins with / or ~/",
                          text);
    return take_text (text, ret, err);
}

/* Durations, sizes and times: parse, then the bounds, whose numbers would be in
 * another unit than the user's. */
static int take_unit (const struct conf_key *k, const char *text,
                      union value *ret, struct rv_error *err)
{
    int (*parse) (const char *, int64_t *, struct rv_error *) =
        k->type == CONF_DURATION ? duration_parse
        : k->type == CONF_SIZE   ? size_parse
                                 : duration_parse_slurm;
    int rc = parse (text, &ret->number, err);

    if (rc == 0 && !in_range (k, (double)ret->number))
        rc = error_set (err, RV_EINVAL, "'%.100s' is too %s", text,
                        (double)ret->number < k->min ? "small" : "large");
    return rc;
}

static int take (const struct conf_key *k, const char *text, union value *ret,
                 struct rv_error *err)
{
    switch (k->type) {
    case CONF_STRING:
        return take_text (text, ret, err);
    case CONF_LIST:
        return take_list (text, ret, err);
    case CONF_PATH:
        return take_path (text, ret, err);
    case CONF_BOOL:
        return take_bool (text, ret, err);
    case CONF_INT:
        return take_int (k, text, ret, err);
    case CONF_DOUBLE:
        return take_double (k, text, ret, err);
    case CONF_DURATION:
    case CONF_SIZE:
    case CONF_TIME:
        return take_unit (k, text, ret, err);
    case CONF_CHOICE:
        return take_choice (k, text, ret, err);
    }
    return error_set (err, RV_EINVAL, "no such type of value");
}

/* Put a value into its place; a text that stood there is freed. */
static void store (const struct conf_key *k, void *target, union value v)
{
    void *place = (char *)target + k->offset;

    switch (k->type) {
    case CONF_STRING:
    case CONF_LIST:
    case CONF_PATH:
        free (*(char **)place);
        *(char **)place = v.text;
        break;
    case CONF_BOOL:
        *(bool *)place = v.flag;
        break;
    case CONF_DOUBLE:
        *(double *)place = v.real;
        break;
    case CONF_CHOICE:
        *(int *)place = v.choice;
        break;
    case CONF_INT:
    case CONF_DURATION:
    case CONF_SIZE:
    case CONF_TIME:
        *(int64_t *)place = v.number;
        break;
    }
}

static int to_sink (const struct conf_spec *spec,
                    const struct conf_section *section, const char *key,
                    const char *value, struct rv_error *err)
{
    int rc;

    if (!spec->sink)
        return error_set (err, RV_EINVAL, "no place for '%.64s'", key);
    rc = spec->sink (spec->sink_arg, section->word, section->arg, key, value,
                     err);
    if (rc != 0 && !err->text[0])
        error_set (err, rc, "'%.64s' was not taken", key);
    return rc;
}

int conf_apply (const struct conf_spec *spec,
                const struct conf_section *section, const char *key,
                const char *value, struct rv_error *err)
{
    const struct conf_key *k = find_key (spec, section, key);
    union value v = {0};
    int rc;

    if (!k)
        return unknown_key (spec, section, key, err);
    if ((rc = take (k, value, &v, err)) != 0) {
        error_prefix (err, "%s", key);
        return rc;
    }
    if (section->arg[0] || strcmp (k->key, "*") == 0) {
        rc = to_sink (spec, section, key, value, err);
        if (conf_is_text (k->type))
            free (v.text);
        return rc;
    }
    store (k, spec->target, v);
    return 0;
}
