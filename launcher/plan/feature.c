/* SPDX-License-Identifier: Apache-2.0
 * feature.c - node features, and the expressions of sbatch -C over them */
#include "plan/feature.h"

#include <string.h>

#define DEPTH_MAX 8 /* brackets in brackets; Slurm takes one */

static const char operators[] = "&|,[]()*";

struct reader {
    const char *p, *features;
    int depth;
    bool failed;
};

bool feature_list_has (const char *list, const char *name, size_t len)
{
    for (const char *p = list; p && len;
         p = (p = strchr (p, ',')) ? p + 1 : NULL)
        if (!strncmp (p, name, len) && (p[len] == '\0' || p[len] == ','))
            return true;
    return false;
}

static bool read_or (struct reader *r);

/* NAME, NAME*COUNT or a bracket. */
static bool read_one (struct reader *r)
{
    size_t n = strcspn (r->p, operators);
    const char *name = r->p;
    bool value;

    if (n == 0 && (*r->p == '[' || *r->p == '(') && r->depth < DEPTH_MAX) {
        char close = *r->p++ == '[' ? ']' : ')';

        r->depth++;
        value = read_or (r);
        r->depth--;
        r->failed = r->failed || *r->p != close;
        r->p += *r->p != '\0';
    } else {
        r->p += n;
        r->failed = r->failed || n == 0;
        value = feature_list_has (r->features, name, n);
    }
    if (*r->p != '*')
        return value;
    r->p++;
    r->p += strspn (r->p, "0123456789");
    return true;
}

static bool read_and (struct reader *r)
{
    bool value = read_one (r);

    while (!r->failed && (*r->p == '&' || *r->p == ',')) {
        r->p++;
        /* Read on whatever it is, to the end of the text. */
        value = read_one (r) && value;
    }
    return value;
}

static bool read_or (struct reader *r)
{
    bool value = read_and (r);

    while (!r->failed && *r->p == '|') {
        r->p++;
        value = read_and (r) || value;
    }
    return value;
}

bool feature_match (const char *expr, const char *features)
{
    struct reader r = {.p = expr, .features = features};
    bool value;

    if (!expr || !*expr)
        return true;
    value = read_or (&r);
    return r.failed || *r.p || value;
}

bool feature_is_word (const char *expr)
{
    return expr && *expr && expr[strcspn (expr, operators)] == '\0';
}
