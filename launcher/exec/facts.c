/* SPDX-License-Identifier: Apache-2.0
 * facts.c - what must be equal on all ranks, and where they differ */
#define _GNU_SOURCE
#include "exec/facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "plan/differ.h"

#define FACTS_MAX  4096
#define SHOWN_MAX  80  /* characters of a value in a line */
#define RANKS_MAX  120 /* of a list of ranks */
#define OTHERS_MAX 200 /* of the names of further facts */

void facts_fini (struct facts *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free (f->v[i].name);
        free (f->v[i].value);
        free (f->v[i].show);
    }
    free (f->v);
    *f = (struct facts){0};
}

static size_t place (const struct facts *f, const char *name)
{
    size_t i = 0;

    while (i < f->n && strcmp (f->v[i].name, name) < 0)
        i++;
    return i;
}

static const struct fact *find (const struct facts *f, const char *name)
{
    size_t i = place (f, name);

    return i < f->n && !strcmp (f->v[i].name, name) ? &f->v[i] : NULL;
}

int facts_add (struct facts *f, const char *name, const char *value,
               const char *show)
{
    struct fact new = {.name = strdup (name),
                       .value = strdup (value),
                       .show = show ? strdup (show) : NULL};
    struct fact *grown = realloc (f->v, (f->n + 1) * sizeof (*grown));
    size_t i;

    if (grown)
        f->v = grown;
    if (!grown || !new.name || !new.value || (show && !new.show)
        || find (f, name)) {
        free (new.name);
        free (new.value);
        free (new.show);
        return grown && find (f, name) ? 0 : -1;
    }
    i = place (f, name);
    memmove (&f->v[i + 1], &f->v[i], (f->n - i) * sizeof (*f->v));
    f->v[i] = new;
    f->n++;
    return 0;
}

int facts_add_env (struct facts *f, char *const *env)
{
    for (; *env; env++) {
        size_t len = strcspn (*env, "=");
        char *name;
        int rc;

        if ((*env)[len] != '=' || !differ_compares (*env, len))
            continue;
        if (!(name = strndup (*env, len)))
            return -1;
        rc = facts_add (f, name, *env + len + 1, NULL);
        free (name);
        if (rc)
            return rc;
    }
    return 0;
}

uint64_t facts_digest (const struct facts *f)
{
    XXH64_hash_t hash = 0;

    for (size_t i = 0; i < f->n; i++) {
        hash = XXH3_64bits_withSeed (f->v[i].name, strlen (f->v[i].name) + 1,
                                     hash);
        hash = XXH3_64bits_withSeed (f->v[i].value, strlen (f->v[i].value) + 1,
                                     hash);
    }
    return hash;
}

static void append (char **to, const char *text)
{
    size_t n = strlen (text) + 1;

    memcpy (*to, text, n);
    *to += n;
}

int facts_pack (const struct facts *f, char **ret, size_t *ret_len)
{
    size_t len = 0;
    char *to;

    for (size_t i = 0; i < f->n; i++)
        len += strlen (f->v[i].name) + strlen (f->v[i].value)
               + (f->v[i].show ? strlen (f->v[i].show) : 0) + 3;
    if (!(to = *ret = malloc (len ? len : 1)))
        return error_set (NULL, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < f->n; i++) {
        append (&to, f->v[i].name);
        append (&to, f->v[i].value);
        append (&to, f->v[i].show ? f->v[i].show : "");
    }
    *ret_len = len;
    return RV_OK;
}

int facts_unpack (const char *buf, size_t len, struct facts *ret,
                  struct rv_error *err)
{
    struct facts f = {0};
    const char *end = buf + len, *word[3];

    if (len && end[-1])
        return error_set (err, RV_EFORMAT, "facts of a rank end nowhere");
    while (buf < end) {
        for (size_t i = 0; i < 3; i++) {
            word[i] = buf < end ? buf : "";
            buf += buf < end ? strlen (buf) + 1 : 0;
        }
        if (f.n >= FACTS_MAX
            || facts_add (&f, word[0], word[1], *word[2] ? word[2] : NULL)) {
            facts_fini (&f);
            return error_set (err, RV_ENOMEM, "no memory for a rank's facts");
        }
    }
    *ret = f;
    return RV_OK;
}

static const char *value_of (const struct facts *f, const char *name)
{
    const struct fact *fact = find (f, name);

    return fact ? fact->value : NULL;
}

static bool same (const char *a, const char *b)
{
    return a && b ? !strcmp (a, b) : a == b;
}

static void add_text (char *buf, size_t size, const char *fmt, ...)
    __attribute__ ((format (printf, 3, 4)));

static void add_text (char *buf, size_t size, const char *fmt, ...)
{
    size_t n = strlen (buf);
    va_list ap;

    va_start (ap, fmt);
    vsnprintf (buf + n, size - n, fmt, ap);
    va_end (ap);
}

/* "rank 2", "ranks 0-1,5": those whose value is [value]. */
static void list_ranks (const struct facts *of, uint32_t n, const char *name,
                        const char *value, char *buf, size_t size)
{
    uint32_t count = 0;
    char text[RANKS_MAX] = "";

    for (uint32_t r = 0; r < n; r++) {
        uint32_t last = r;

        if (!same (value_of (&of[r], name), value))
            continue;
        while (last + 1 < n && same (value_of (&of[last + 1], name), value))
            last++;
        count += last - r + 1;
        if (strlen (text) + 24 > sizeof (text))
            add_text (text, sizeof (text), strchr (text, '+') ? "" : "+");
        else if (last > r)
            add_text (text, sizeof (text), "%s%u-%u", *text ? "," : "", r,
                      last);
        else
            add_text (text, sizeof (text), "%s%u", *text ? "," : "", r);
        r = last;
    }
    add_text (buf, size, "%s %s", count == 1 ? "rank" : "ranks", text);
}

/* A value as it may stand in a line: short, and without control characters. */
static void add_value (const struct facts *f, const char *name, char *buf,
                       size_t size)
{
    const struct fact *fact = find (f, name);
    const char *text = !fact ? "" : fact->show ? fact->show : fact->value;
    char shown[SHOWN_MAX];
    size_t i;

    for (i = 0; text[i] && i + 1 < sizeof (shown); i++)
        shown[i] =
            (unsigned char)text[i] < ' ' || text[i] == 127 ? '?' : text[i];
    if (text[i])
        shown[i - 1] = '+';
    shown[i] = '\0';
    add_text (buf, size, fact ? "'%s'" : "unset%s", shown);
}

static void describe (const struct facts *of, uint32_t n, const char *name,
                      char *buf, size_t size)
{
    uint32_t other = 1, values = 1;

    while (same (value_of (&of[0], name), value_of (&of[other], name)))
        other++;
    for (uint32_t r = other; r < n; r++) { /* those not seen before */
        uint32_t k = 0;

        while (!same (value_of (&of[k], name), value_of (&of[r], name)))
            k++;
        values += k == r;
    }
    snprintf (buf, size, "ranks differ in %s: ", name);
    add_value (&of[0], name, buf, size);
    add_text (buf, size, " on ");
    list_ranks (of, n, name, value_of (&of[0], name), buf, size);
    add_text (buf, size, ", ");
    add_value (&of[other], name, buf, size);
    add_text (buf, size, " on ");
    list_ranks (of, n, name, value_of (&of[other], name), buf, size);
    if (values > 2)
        add_text (buf, size, ", and %u other value%s", values - 2,
                  values == 3 ? "" : "s");
}

/* One name in which ranks differ, at or behind [from] in the order of names;
 * NULL when there is none. */
static const char *next_difference (const struct facts *of, uint32_t n,
                                    const char *from, const char *allow)
{
    const char *best = NULL;

    for (uint32_t r = 0; r < n; r++)
        for (size_t i = 0; i < of[r].n; i++) {
            const char *name = of[r].v[i].name;

            if ((from && strcmp (name, from) <= 0)
                || (best && strcmp (name, best) >= 0)
                || differ_allows (allow, name))
                continue;
            for (uint32_t k = 0; k < n; k++)
                if (!same (value_of (&of[k], name), of[r].v[i].value))
                    best = name;
        }
    return best;
}

bool facts_compare (const struct facts *of, uint32_t n, const char *allow,
                    char *buf, size_t size)
{
    char others[OTHERS_MAX] = "";
    const char *first = next_difference (of, n, NULL, allow), *name = first;

    if (!first)
        return false;
    while ((name = next_difference (of, n, name, allow)))
        if (strlen (others) + strlen (name) + 3 < sizeof (others))
            add_text (others, sizeof (others), "%s%s", *others ? "," : "",
                      name);
    describe (of, n, first, buf, size);
    if (*others)
        add_text (buf, size, "; also in %s", others);
    add_text (buf, size, "; make them equal, or allow it by RV_DIFFER=%s%s%s",
              first, *others ? "," : "", others);
    return true;
}
