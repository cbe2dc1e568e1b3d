/* SPDX-License-Identifier: Apache-2.0
 * mig.c - MIG slices: what users call them, and what the cluster has */
#include "plan/mig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "plan/duration.h"

#define FORMS "write 1g.10gb or 1g.10gb:4"

int mig_parse (const char *text, struct mig_request *ret, struct rv_error *err)
{
    struct mig_request req = {.count = 1};
    const char *colon;
    size_t len;
    long count;

    if (!ret)
        return error_set (err, RV_EINVAL, "mig_parse: no result");
    if (!text)
        text = "";
    colon = strchr (text, ':');
    len = colon ? (size_t)(colon - text) : strlen (text);
    if (len >= sizeof (req.profile) || (colon && len == 0))
        return error_set (err, RV_EINVAL, "no profile has that name; " FORMS);
    memcpy (req.profile, text, len);
    if (len > 0 && !gres_is_mig (req.profile))
        return error_set (err, RV_EINVAL, "'%s' is not a MIG profile; " FORMS,
                          req.profile);
    if (colon && count_parse (colon + 1, MIG_COUNT_MAX, &count, err) != 0)
        return error_set (err, RV_EINVAL,
                          "'%s' is no number of slices from 1 to %d; " FORMS,
                          colon + 1, MIG_COUNT_MAX);
    if (colon)
        req.count = (uint32_t)count;
    *ret = req;
    return RV_OK;
}

const char *mig_profile (const char *type)
{
    const char *p = type;

    if (!gres_is_mig (type))
        return NULL;
    /* The card's own words hold no profile, so the last '_' that has one
     * behind it begins it. */
    for (const char *q = type; (q = strchr (q, '_')); q++)
        if (gres_is_mig (q + 1))
            p = q + 1;
    return p;
}

static bool is_edge (char c)
{
    return strchr ("_-. ", c) != NULL; /* '\0' too */
}

/* Is [word] (n bytes) one or more whole words of [text] (m bytes)? */
static bool holds_word (const char *text, size_t m, const char *word, size_t n)
{
    for (size_t i = 0; n > 0 && i + n <= m; i++)
        if (strncasecmp (text + i, word, n) == 0
            && (i == 0 || is_edge (text[i - 1]))
            && (i + n == m || is_edge (text[i + n])))
            return true;
    return false;
}

bool mig_match (const char *want, const char *have)
{
    const char *a = mig_profile (want), *b = mig_profile (have);
    size_t n, m;

    if (!a || !b || strcasecmp (a, b) != 0)
        return false;
    n = a > want ? (size_t)(a - want) - 1 : 0;
    m = b > have ? (size_t)(b - have) - 1 : 0;
    return n == 0 || m == 0 || holds_word (have, m, want, n)
           || holds_word (want, n, have, m);
}

/* The slices of a cluster, each type once. */
struct slices {
    struct slice_type {
        char name[GRES_NAME_MAX];
        uint64_t total, per_node;
    } * type;
    size_t n;
};

static struct slice_type *slices_find (struct slices *s, const char *name)
{
    struct slice_type *grown;

    for (size_t i = 0; i < s->n; i++)
        if (strcmp (s->type[i].name, name) == 0)
            return &s->type[i];
    grown = realloc (s->type, (s->n + 1) * sizeof (*grown));
    if (!grown)
        return NULL;
    s->type = grown;
    grown += s->n++;
    *grown = (struct slice_type){0};
    snprintf (grown->name, sizeof (grown->name), "%s", name);
    return grown;
}

static int slices_add (struct slices *s, const struct gres_list *list,
                       uint32_t nodes, struct rv_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct gres_entry *e = &list->entry[i];
        struct slice_type *t;
        uint64_t have, more;

        if (strcmp (e->name, "gpu") != 0 || e->count == 0
            || !gres_is_mig (e->type))
            continue;
        if (!(t = slices_find (s, e->type)))
            return error_set (err, RV_ENOMEM, "out of memory");
        have = gres_count (list, e->type);
        if (have > t->per_node)
            t->per_node = have;
        if (__builtin_mul_overflow (e->count, (uint64_t)nodes, &more)
            || __builtin_add_overflow (t->total, more, &t->total))
            t->total = UINT64_MAX;
    }
    return RV_OK;
}

static int slices_load (struct slices *s, const struct node_offer *offers,
                        size_t n, struct rv_error *err)
{
    int rc = RV_OK;

    for (size_t i = 0; rc == RV_OK && i < n; i++) {
        struct gres_list list;

        rc = gres_parse (offers[i].gres ? offers[i].gres : "", &list, err);
        if (rc == RV_OK)
            rc = slices_add (s, &list, offers[i].nodes, err);
        gres_fini (&list);
    }
    return rc;
}

/* What there is, the profile nearest to that of [word] first. */
static void list_slices (const struct slices *s, const char *word, char *buf,
                         size_t size)
{
    const char **names = calloc (s->n + 1, sizeof (*names));
    const char *first, *profile = mig_profile (word);
    size_t len = 0;

    buf[0] = '\0';
    if (!names)
        return;
    for (size_t i = 0; i < s->n; i++)
        names[i] = mig_profile (s->type[i].name);
    first = name_nearest (profile ? profile : word, names, s->n);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < s->n && len < size; i++)
            if ((first && strcasecmp (names[i], first) == 0) == (turn == 0))
                len += (size_t)snprintf (buf + len, size - len, "%s%s",
                                         len ? ", " : "", s->type[i].name);
    free (names);
}

static int not_there (const struct slices *s, const char *want,
                      struct rv_error *err)
{
    char names[256];

    list_slices (s, want, names, sizeof (names));
    if (s->n == 0)
        return error_set (err, RV_ENOTFOUND,
                          "the cluster has no MIG slices; ask for whole GPUs "
                          "instead");
    return error_set (err, RV_ENOTFOUND,
                      "no slices of profile '%s'; the cluster has %s", want,
                      names);
}

static const struct mig_rule *rule_of (const struct mig_rule *rules, size_t n,
                                       const char *type)
{
    for (size_t i = 0; i < n; i++)
        if (rules[i].type[0] ? strcasecmp (rules[i].type, type) == 0
                             : mig_match (rules[i].profile, type))
            return &rules[i];
    return NULL;
}

/* The one type that [want] means. Exactly what was typed wins over a type that
 * merely holds it. */
static int pick (const struct slices *s, const char *want,
                 const struct slice_type **ret, struct rv_error *err)
{
    const struct slice_type *found = NULL;
    char names[256];
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        if (strcasecmp (s->type[i].name, want) == 0) {
            *ret = &s->type[i];
            return RV_OK;
        }
        if (mig_match (want, s->type[i].name)) {
            found = &s->type[i];
            n++;
        }
    }
    if (n == 0)
        return not_there (s, want, err);
    if (n > 1) {
        list_slices (s, want, names, sizeof (names));
        return error_set (err, RV_EINVAL,
                          "'%s' fits several types of slices; name one of %s",
                          want, names);
    }
    *ret = found;
    return RV_OK;
}

/* The profile of who names none. */
static int pick_default (const struct slices *s, const struct mig_rule *rules,
                         size_t n, const struct slice_type **ret,
                         struct rv_error *err)
{
    char names[256];

    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < s->n; k++)
            if (rule_of (&rules[i], 1, s->type[k].name)) {
                *ret = &s->type[k];
                return RV_OK;
            }
    if (s->n == 0)
        return not_there (s, "", err);
    if (s->n > 1) {
        list_slices (s, "", names, sizeof (names));
        return error_set (err, RV_EINVAL,
                          "rv.conf names no profile that the nodes have, and "
                          "they have several; name one of %s",
                          names);
    }
    *ret = &s->type[0];
    return RV_OK;
}

static int check_counts (const struct mig_request *req,
                         const struct mig_choice *c, struct rv_error *err)
{
    if (req->count > c->total)
        return error_set (err, RV_EINVAL,
                          "%" PRIu32 " slices of type %s are more than there "
                          "are; the cluster has %" PRIu64,
                          req->count, c->type, c->total);
    if (c->rule && c->rule->max_per_job >= 0
        && req->count > (uint64_t)c->rule->max_per_job)
        return error_set (err, RV_EINVAL,
                          "%" PRIu32 " slices of type %s are more than the "
                          "%" PRId64 " that the site allows a job",
                          req->count, c->type, c->rule->max_per_job);
    return RV_OK;
}

/* A profile of rv.conf whose gres has another name. */
static const char *renamed (const struct mig_rule *rules, size_t n,
                            const char *want)
{
    for (size_t i = 0; i < n; i++)
        if (rules[i].type[0] && strcasecmp (rules[i].profile, want) == 0)
            return rules[i].type;
    return want;
}

int mig_resolve (const struct mig_request *req, const struct node_offer *offers,
                 size_t n, const struct mig_rule *rules, size_t n_rules,
                 struct mig_choice *ret, struct rv_error *err)
{
    const struct slice_type *t = NULL;
    struct mig_choice c = {0};
    struct slices s = {0};
    int rc;

    if (!req || !ret || req->count == 0 || (!offers && n > 0)
        || (!rules && n_rules > 0))
        return error_set (err, RV_EINVAL, "no MIG request or no nodes");
    rc = slices_load (&s, offers, n, err);
    if (rc == RV_OK && req->profile[0])
        rc = pick (&s, renamed (rules, n_rules, req->profile), &t, err);
    else if (rc == RV_OK)
        rc = pick_default (&s, rules, n_rules, &t, err);
    if (rc == RV_OK) {
        snprintf (c.type, sizeof (c.type), "%s", t->name);
        c.total = t->total;
        c.per_node =
            t->per_node < UINT32_MAX ? (uint32_t)t->per_node : UINT32_MAX;
        c.rule = rule_of (rules, n_rules, c.type);
        rc = check_counts (req, &c, err);
    }
    if (rc == RV_OK)
        *ret = c;
    free (s.type);
    return rc;
}
