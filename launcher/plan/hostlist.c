/* SPDX-License-Identifier: Apache-2.0
 * hostlist.c - expand Slurm's node lists without Slurm
 *
 * One item ("x[1-2]y[3,4]") is walked from left to right with the name so far
 * in one buffer; each number of a bracket walks the rest again, so the last
 * bracket turns fastest. Every walk ends in a host or an error, so the work is
 * bounded by HOSTLIST_MAX. */
#include "plan/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOST_NAME_MAX_LEN 255 /* bytes of a name: RFC 1035 */
#define HOST_DIGITS_MAX   18  /* of a number in brackets */

struct walk {
    const char *text; /* the whole list, for positions */
    struct hostlist *list;
    size_t cap;
    char name[HOST_NAME_MAX_LEN + 1];
    struct rv_error *err;
};

static int fail (struct walk *w, const char *at, const char *why)
{
    return error_set (w->err, RV_EINVAL,
                      "node list '%.200s': %s at position %zu", w->text, why,
                      (size_t)(at - w->text) + 1);
}

static bool is_digit (char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name (char c)
{
    return is_digit (c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
           || c == '-' || c == '_' || c == '.';
}

static int emit (struct walk *w, const char *at, size_t len)
{
    struct hostlist *list = w->list;

    if (len == 0)
        return fail (w, at, "a host without a name");
    if (list->n == HOSTLIST_MAX)
        return fail (w, at, "more than 65536 hosts");
    if (list->n == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 16;
        char **host = realloc (list->host, cap * sizeof (*host));

        if (!host)
            return error_set (w->err, RV_ENOMEM, "out of memory");
        list->host = host;
        w->cap = cap;
    }
    if (!(list->host[list->n] = strndup (w->name, len)))
        return error_set (w->err, RV_ENOMEM, "out of memory");
    list->n++;
    return 0;
}

/* Digits at *p to a number; *ret_width is how many there were. */
static int take_number (struct walk *w, const char **p, long *ret,
                        int *ret_width)
{
    const char *start = *p;
    long value = 0;

    while (is_digit (**p) && *p - start < HOST_DIGITS_MAX)
        value = value * 10 + (*(*p)++ - '0');
    if (*p == start)
        return fail (w, *p, "expected a number");
    if (is_digit (**p))
        return fail (w, *p, "a number of more than 18 digits");
    *ret = value;
    *ret_width = (int)(*p - start);
    return 0;
}

static int walk_item (struct walk *w, const char *p, size_t len);

/* The numbers of one range, each before the rest of the item. */
static int walk_range (struct walk *w, const char *at, long lo, long hi,
                       int width, const char *rest, size_t len)
{
    for (long i = lo; i <= hi; i++) {
        size_t room = sizeof (w->name) - len;
        int n = snprintf (w->name + len, room, "%0*ld", width, i);
        int rc;

        if (n < 0 || (size_t)n >= room)
            return fail (w, at, "a host name of more than 255 bytes");
        if ((rc = walk_item (w, rest, len + (size_t)n)) != 0)
            return rc;
    }
    return 0;
}

/* Inside a bracket at [p], up to the one that closes it. */
static int walk_bracket (struct walk *w, const char *p, size_t len)
{
    const char *close = strpbrk (p, "[]");

    if (!close || *close != ']')
        return fail (w, close ? close : p + strlen (p), "expected ']'");
    for (;; p++) {
        const char *at = p;
        long lo, hi;
        int width, unused, rc;

        if ((rc = take_number (w, &p, &lo, &width)) != 0)
            return rc;
        hi = lo;
        if (*p == '-') {
            p++;
            if ((rc = take_number (w, &p, &hi, &unused)) != 0)
                return rc;
        }
        if (hi < lo)
            return fail (w, at, "a range that runs backwards");
        if (p < close && *p != ',')
            return fail (w, p, "expected ',' or ']'");
        if ((rc = walk_range (w, at, lo, hi, width, close + 1, len)) != 0)
            return rc;
        if (p == close)
            return 0;
    }
}

static int walk_item (struct walk *w, const char *p, size_t len)
{
    for (; is_name (*p); p++) {
        if (len == HOST_NAME_MAX_LEN)
            return fail (w, p, "a host name of more than 255 bytes");
        w->name[len++] = *p;
    }
    if (*p == '[')
        return walk_bracket (w, p + 1, len);
    if (*p && *p != ',')
        return fail (w, p,
                     *p == ']' ? "']' without '['"
                               : "a character that no host name has");
    return emit (w, p, len);
}

/* The comma or end behind the item at [p]. */
static const char *item_end (const char *p)
{
    bool inside = false;

    for (; *p && (inside || *p != ','); p++) {
        if (*p == '[')
            inside = true;
        else if (*p == ']')
            inside = false;
    }
    return p;
}

int hostlist_parse (const char *text, struct hostlist *list,
                    struct rv_error *err)
{
    struct walk w = {.text = text, .list = list, .err = err};
    int rc;

    if (!list)
        return error_set (err, RV_EINVAL, "hostlist_parse: no result");
    *list = (struct hostlist){0};
    if (!text || !*text)
        return error_set (err, RV_EINVAL, "no node list");
    for (const char *p = text;; p++) {
        if ((rc = walk_item (&w, p, 0)) != 0) {
            hostlist_fini (list);
            return rc;
        }
        p = item_end (p);
        if (!*p)
            return 0;
    }
}

size_t hostlist_find (const struct hostlist *list, const char *word)
{
    char *end;
    unsigned long at;

    for (size_t i = 0; i < list->n; i++)
        if (!strcmp (list->host[i], word))
            return i;
    at = strtoul (word, &end, 10);
    /* strtoul takes signs and blanks, and "" as 0 */
    return word[0] >= '0' && word[0] <= '9' && !*end && at < list->n ? at
                                                                     : list->n;
}

void hostlist_fini (struct hostlist *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->n; i++)
        free (list->host[i]);
    free (list->host);
    *list = (struct hostlist){0};
}
