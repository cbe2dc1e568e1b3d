/* SPDX-License-Identifier: Apache-2.0
 * request.c - what a user asks for, against what the cluster has */
#include "plan/request.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"

/* More GPUs than any cluster has, few enough that sums stay small. */
#define GPU_COUNT_MAX 1000000
#define GPU_FORMS     "write 4 or a100:4"

static bool is_type (const char *p, size_t n)
{
    if (n == 0 || n >= GRES_NAME_MAX || !isalnum ((unsigned char)*p))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!isalnum ((unsigned char)p[i]) && !strchr ("._-+", p[i]))
            return false;
    }
    return true;
}

int request_parse_gpu (const char *text, struct gpu_request *ret,
                       struct rv_error *err)
{
    struct gpu_request req = {0};
    const char *colon, *digits;
    long count;

    if (!text || !ret)
        return error_set (err, RV_EINVAL, "no GPU request; " GPU_FORMS);
    colon = strchr (text, ':');
    digits = colon ? colon + 1 : text;
    if (strncasecmp (text, "gpu:", 4) == 0)
        return error_set (
            err, RV_EINVAL,
            "'%s' is not a GPU request: the type stands alone; " GPU_FORMS,
            text);
    if (!colon && is_type (text, strlen (text))
        && text[strspn (text, "0123456789")])
        return error_set (err, RV_EINVAL,
                          "'%s' is not a GPU request: the count is missing; "
                          "write %s:1",
                          text, text);
    if (colon && !is_type (text, (size_t)(colon - text)))
        return error_set (
            err, RV_EINVAL,
            "'%s' is not a GPU request: no type before ':'; " GPU_FORMS, text);
    if (count_parse (digits, GPU_COUNT_MAX, &count, err) != 0)
        return error_set (err, RV_EINVAL,
                          "'%s' is not a GPU request: the count is no number "
                          "from 1 to %d; " GPU_FORMS,
                          text, GPU_COUNT_MAX);
    if (colon)
        memcpy (req.type, text, (size_t)(colon - text));
    req.count = (uint32_t)count;
    *ret = req;
    return 0;
}

/* The GPU types of a cluster, each once, as the nodes spell them. */
struct types {
    struct {
        const char *name; /* inside [gres]; "" = untyped */
        uint64_t count;
    } * type;
    size_t n;
    struct gres_list *gres; /* (n_gres) of each offer */
    size_t n_gres;
};

static void types_fini (struct types *t)
{
    for (size_t i = 0; i < t->n_gres; i++)
        gres_fini (&t->gres[i]);
    free (t->gres);
    free (t->type);
}

static int types_add (struct types *t, const struct gres_entry *e,
                      uint32_t nodes)
{
    uint64_t more;
    void *p;
    size_t i = 0;

    if (__builtin_mul_overflow (e->count, (uint64_t)nodes, &more))
        more = UINT64_MAX;
    while (i < t->n && strcasecmp (t->type[i].name, e->type) != 0)
        i++;
    if (i == t->n) {
        p = realloc (t->type, (t->n + 1) * sizeof (*t->type));
        if (!p)
            return RV_ENOMEM;
        t->type = p;
        t->type[t->n].name = e->type;
        t->type[t->n++].count = 0;
    }
    if (__builtin_add_overflow (t->type[i].count, more, &t->type[i].count))
        t->type[i].count = UINT64_MAX;
    return 0;
}

static int types_init (struct types *t, const struct node_offer *offers,
                       size_t n, struct rv_error *err)
{
    int rc;

    *t = (struct types){.gres = calloc (n + 1, sizeof (*t->gres))};
    if (!t->gres)
        return error_set (err, RV_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        struct gres_list *list = &t->gres[i];

        t->n_gres = i + 1;
        if ((rc = gres_parse (offers[i].gres ? offers[i].gres : "", list, err))
            != 0)
            return rc;
        for (size_t k = 0; k < list->n; k++) {
            if (strcmp (list->entry[k].name, "gpu") == 0
                && list->entry[k].count > 0
                && types_add (t, &list->entry[k], offers[i].nodes) != 0)
                return error_set (err, RV_ENOMEM, "out of memory");
        }
    }
    return 0;
}

/* All names in [buf], the one nearest to [word] first. */
static void list_types (const struct types *t, const char *word, char *buf,
                        size_t size)
{
    const char **names = calloc (t->n + 1, sizeof (*names));
    const char *first;
    size_t len = 0;

    buf[0] = '\0';
    if (!names)
        return;
    for (size_t i = 0; i < t->n; i++)
        names[i] = t->type[i].name;
    first = name_nearest (word, names, t->n);
    for (size_t i = 0; i <= t->n && len < size; i++) {
        const char *name = i == 0 ? first : names[i - 1];

        if (name && *name && (i == 0 || name != first))
            len += (size_t)snprintf (buf + len, size - len, "%s%s",
                                     len ? ", " : "", name);
    }
    free (names);
}

/* GPUs of the type asked for; *known says whether there is that type. */
static uint64_t types_count (const struct types *t, const char *type,
                             bool *known)
{
    uint64_t sum = 0;

    *known = false;
    for (size_t i = 0; i < t->n; i++) {
        if (*type ? strcasecmp (t->type[i].name, type) != 0
                  : gres_is_mig (t->type[i].name))
            continue;
        *known = true;
        if (__builtin_add_overflow (sum, t->type[i].count, &sum))
            sum = UINT64_MAX;
    }
    return sum;
}

static int check (const struct gpu_request *req, const struct types *t,
                  struct rv_error *err)
{
    char names[256];
    bool known;
    uint64_t have = types_count (t, req->type, &known);

    if (!known) {
        list_types (t, req->type, names, sizeof (names));
        if (!*req->type || t->n == 0)
            return error_set (err, RV_ENOTFOUND, "the cluster has no GPUs%s%s",
                              *names ? "; its slices are " : "", names);
        if (!*names)
            return error_set (err, RV_ENOTFOUND,
                              "no GPUs of type '%s': those of the cluster have "
                              "no type; ask for a count alone",
                              req->type);
        return error_set (err, RV_ENOTFOUND,
                          "no GPUs of type '%s'; the cluster has %s", req->type,
                          names);
    }
    if (req->count > have)
        return error_set (err, RV_EINVAL,
                          "%" PRIu32 " GPUs%s%s are more than there are; the "
                          "cluster has %" PRIu64,
                          req->count, *req->type ? " of type " : "", req->type,
                          have);
    return 0;
}

int request_check_gpu (const struct gpu_request *req,
                       const struct node_offer *offers, size_t n,
                       struct rv_error *err)
{
    struct types t;
    int rc;

    if (!req || req->count == 0 || (!offers && n > 0))
        return error_set (err, RV_EINVAL, "no GPU request or no nodes");
    if ((rc = types_init (&t, offers, n, err)) == 0)
        rc = check (req, &t, err);
    types_fini (&t);
    return rc;
}

#define WORD_MAX 64

static int lower (const char *s, size_t i)
{
    return tolower ((unsigned char)s[i]);
}

static size_t least (size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Edits that make [b] of [a]: insert, delete, replace, swap two neighbours
 * (optimal string alignment). Both shorter than WORD_MAX. */
static size_t distance (const char *a, const char *b)
{
    size_t row[3][WORD_MAX], na = strlen (a), nb = strlen (b);

    for (size_t j = 0; j <= nb; j++)
        row[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *now = row[i % 3], *one = row[(i + 2) % 3];
        size_t *two = row[(i + 1) % 3];

        now[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            bool same = lower (a, i - 1) == lower (b, j - 1);

            now[j] = least (one[j - 1] + !same, least (one[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && lower (a, i - 1) == lower (b, j - 2)
                && lower (a, i - 2) == lower (b, j - 1))
                now[j] = least (now[j], two[j - 2] + 1);
        }
    }
    return row[na % 3][nb];
}

/* How unlike two words are, and above the limit when they are not near: a
 * third of the letters may differ, or one is the beginning of the other. */
static size_t unlike (const char *word, const char *candidate, size_t limit)
{
    size_t n = strlen (word), m = strlen (candidate);
    size_t longer = n > m ? n : m, shorter = least (n, m), d;

    if (longer >= WORD_MAX || shorter == 0)
        return limit + 1;
    d = distance (word, candidate);
    if (d <= (longer + 2) / 3)
        return d;
    if (shorter >= 2 && strncasecmp (word, candidate, shorter) == 0)
        return d;
    return limit + 1;
}

const char *name_nearest (const char *word, const char *const *candidates,
                          size_t n)
{
    const char *best = NULL;
    size_t least_d = WORD_MAX;

    if (!word || !candidates)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d =
            candidates[i] ? unlike (word, candidates[i], WORD_MAX) : WORD_MAX;

        if (d < least_d) {
            least_d = d;
            best = candidates[i];
        }
    }
    return best;
}
