/* SPDX-License-Identifier: Apache-2.0
 * gres.c - generic resources as Slurm writes them, GPUs among them
 *
 * An entry is NAME[:TYPE][:no_consume][:COUNT] with "=COUNT" in TRES text,
 * "gres/" or "gres:" in front and "(S:0-1)" or "(IDX:0,2)" behind, or instead
 * of the count "(CNT:2)" where the devices of a node have no numbers, as the
 * Gres, TresPerNode, GresUsed and TRES fields of Slurm have them (slurm.conf(5),
 * gres.conf(5)). A last field that is a number is the count, so "gpu:1g" is
 * 2^30 GPUs to Slurm too; a MIG profile always has its memory behind. */
#include "plan/gres.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_name (char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z')
           || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' || c == '_'
           || c == '+';
}

/* Powers of 1024, in the order of the suffix; -1 for another character. */
static int suffix_shift (char c)
{
    const char *units = "kmgtp", *p;

    if (c == '\0')
        return 0;
    p = strchr (units, c | 0x20);
    return p && *p ? 10 * (int)(p - units + 1) : -1;
}

/* "4" or "4K", all of [text]. False when it is no count; *overflow when it is
 * one that does not fit. */
static bool parse_count (const char *text, uint64_t *ret, bool *overflow)
{
    uint64_t value = 0;
    const char *p = text;
    int shift;

    *overflow = false;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (__builtin_mul_overflow (value, (uint64_t)10, &value)
            || __builtin_add_overflow (value, (uint64_t)(*p - '0'), &value))
            *overflow = true;
    }
    shift = suffix_shift (*p);
    if (p == text || shift < 0 || (*p && p[1]))
        return false;
    if (value > UINT64_MAX >> shift)
        *overflow = true;
    *ret = value << shift;
    return true;
}

/* The next field at *p into [field]: name characters, no sign first, up to
 * ':', '=' or the end. False when it is empty, too long or has another character. */
static bool take_field (const char **p, char field[GRES_NAME_MAX])
{
    size_t n = 0;

    if (**p == '-' || **p == '+')
        return false;
    while (is_name (**p)) {
        if (n == GRES_NAME_MAX - 1)
            return false;
        field[n++] = *(*p)++;
    }
    field[n] = '\0';
    return n > 0 && (!**p || **p == ':' || **p == '=');
}

/* One entry without its parentheses. Returns NULL, or what is wrong. */
static const char *parse_entry (const char *text, struct gres_entry *entry)
{
    char field[GRES_NAME_MAX];
    const char *p = text;
    bool counted = false, overflow = false;

    *entry = (struct gres_entry){.count = 1};
    if (strncmp (p, "gres/", 5) == 0 || strncmp (p, "gres:", 5) == 0)
        p += 5;
    if (!take_field (&p, entry->name))
        return "malformed";
    while (*p) {
        bool last = *p++ == '=';

        if (counted || !take_field (&p, field) || (last && *p))
            return "malformed";
        if ((last || !*p) && parse_count (field, &entry->count, &overflow))
            counted = true;
        else if (last)
            return "malformed";
        else if (strcmp (field, "no_consume") == 0)
            continue;
        else if (entry->type[0])
            return "malformed";
        else
            memcpy (entry->type, field, sizeof (field));
    }
    return overflow ? "too large a count" : NULL;
}

/* The comma or end behind the entry at [p], and where its parenthesis opens
 * (or that same end). NULL when parentheses do not match. */
static const char *entry_end (const char *p, const char **ret_open)
{
    size_t n = strcspn (p, ",()");

    *ret_open = p + n;
    if (p[n] == '(') {
        p = strpbrk (p + n + 1, "()");
        if (!p || *p != ')' || (p[1] && p[1] != ','))
            return NULL;
        return p + 1;
    }
    return p[n] == ')' ? NULL : p + n;
}

static int append (struct gres_list *list, const struct gres_entry *entry)
{
    struct gres_entry *p = realloc (list->entry, (list->n + 1) * sizeof (*p));

    if (!p)
        return RV_ENOMEM;
    list->entry = p;
    p[list->n++] = *entry;
    return 0;
}

/* What a running job holds of devices without numbers: "(CNT:2)". */
static const char *take_held (const char *open, struct gres_entry *entry)
{
    char digits[24];
    bool overflow;
    size_t n;

    if (strncmp (open, "(CNT:", 5) != 0)
        return NULL;
    open += 5;
    n = strcspn (open, ")");
    if (n >= sizeof (digits))
        return "malformed";
    memcpy (digits, open, n);
    digits[n] = '\0';
    if (!parse_count (digits, &entry->count, &overflow))
        return "malformed";
    return overflow ? "too large a count" : NULL;
}

/* Entry [p, open) of [text]. */
static int parse_one (const char *p, const char *open, struct gres_list *list,
                      struct rv_error *err)
{
    struct gres_entry entry;
    const char *why = "malformed";
    char text[3 * GRES_NAME_MAX];
    size_t n = (size_t)(open - p);

    if (n < sizeof (text)) {
        memcpy (text, p, n);
        text[n] = '\0';
        why = parse_entry (text, &entry);
        if (!why)
            why = take_held (open, &entry);
    }
    if (why)
        return error_set (err, RV_EINVAL,
                          "gres '%.*s' is %s; expected text such as gpu:a100:4",
                          (int)(n < 100 ? n : 100), p, why);
    if (append (list, &entry) != 0)
        return error_set (err, RV_ENOMEM, "out of memory");
    return 0;
}

int gres_parse (const char *text, struct gres_list *list, struct rv_error *err)
{
    if (!list)
        return error_set (err, RV_EINVAL, "gres_parse: no result");
    *list = (struct gres_list){0};
    if (!text)
        return error_set (err, RV_EINVAL, "no gres");
    if (!*text || strcasecmp (text, "(null)") == 0
        || strcasecmp (text, "none") == 0)
        return 0;
    for (const char *p = text, *open, *end;; p = end + 1) {
        int rc;

        end = entry_end (p, &open);
        if (!end) {
            gres_fini (list);
            return error_set (err, RV_EINVAL,
                              "gres '%.100s': parentheses do not match", p);
        }
        rc = parse_one (p, open, list, err);
        if (rc != 0) {
            gres_fini (list);
            return rc;
        }
        if (!*end)
            return 0;
    }
}

void gres_fini (struct gres_list *list)
{
    if (!list)
        return;
    free (list->entry);
    *list = (struct gres_list){0};
}

static bool take_digits (const char **p)
{
    size_t n = strspn (*p, "0123456789");

    *p += n;
    return n > 0;
}

/* Case-blind; moves *p past [word] when it stands there. */
static bool take_word (const char **p, const char *word)
{
    size_t n = strlen (word);

    if (strncasecmp (*p, word, n) != 0)
        return false;
    *p += n;
    return true;
}

/* "1g.10gb", "1c.3g.20gb", "1g.10gb+me": the whole of [p]. */
static bool is_profile (const char *p)
{
    const char *q = p;

    if (take_digits (&q) && take_word (&q, "c."))
        p = q;
    if (!take_digits (&p) || !take_word (&p, "g.") || !take_digits (&p)
        || !take_word (&p, "gb"))
        return false;
    while (*p == '+' || *p == '-') {
        if (!isalpha ((unsigned char)*++p))
            return false;
        while (isalpha ((unsigned char)*p) || *p == '.')
            p++;
    }
    return !*p;
}

bool gres_is_mig (const char *type)
{
    if (!type)
        return false;
    if (is_profile (type))
        return true;
    /* A card's name may stand before it: "nvidia_a100-sxm4_1g.10gb". */
    for (const char *p = type; (p = strchr (p, '_')); p++) {
        if (is_profile (p + 1))
            return true;
    }
    return false;
}

uint64_t gres_count (const struct gres_list *list, const char *type)
{
    uint64_t sum = 0;

    if (!list)
        return 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct gres_entry *e = &list->entry[i];
        bool wanted = type && *type ? strcasecmp (e->type, type) == 0
                                    : !gres_is_mig (e->type);

        if (strcmp (e->name, "gpu") == 0 && wanted
            && __builtin_add_overflow (sum, e->count, &sum))
            sum = UINT64_MAX;
    }
    return sum;
}
