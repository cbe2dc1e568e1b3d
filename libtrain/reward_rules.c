/* SPDX-License-Identifier: Apache-2.0
 * reward_rules.c - rewards by a rule: the answer itself, a pattern, a length */
#include "reward_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "rows.h"

#define BLANKS " \t\r\n\f\v"

const char *reward_part (const char *text, const char *marker, size_t *ret_n,
                         bool *ret_found)
{
    const char *at = NULL;
    size_t n;

    for (const char *p = text; marker && (p = strstr (p, marker)); p++)
        at = p;
    if (ret_found)
        *ret_found = at != NULL;
    if (at) {
        text = at + strlen (marker);
        text += strspn (text, " \t");
        n = strcspn (text, "\n");
    } else {
        text += strspn (text, BLANKS);
        n = strlen (text);
    }
    while (n > 0 && strchr (BLANKS, text[n - 1]))
        n--;
    *ret_n = n;
    return text;
}

train_status_t reward_each (train_reward_t *r, const struct reward_view *view,
                            int n, float *ret, reward_one_f one,
                            train_error_t *err)
{
    for (int i = 0; i < n; i++)
        TRY (one (r, &view[i], &ret[i], err));
    for (int i = 0; i < n; i++)
        if (isnan (ret[i]))
            r->report.nothing++;
        else
            r->report.scored++;
    return TRAIN_OK;
}

static train_status_t open_exact (train_reward_t *r,
                                  const train_reward_options_t *opts,
                                  train_error_t *err)
{
    if (opts->marker && !*opts->marker)
        return err_set (err, TRAIN_EINVAL, "%s: marker is empty", r->name);
    return TRAIN_OK;
}

static train_status_t one_exact (const train_reward_t *r,
                                 const struct reward_view *view, float *ret,
                                 train_error_t *err)
{
    size_t want_n, got_n;
    const char *want, *got;
    bool found;
    char *answer;

    *ret = NAN;
    TRY (row_text (view->row, r->field ? r->field : "answer", &answer, err));
    if (!answer)
        return TRAIN_OK;
    want = reward_part (answer, r->marker, &want_n, NULL);
    got = reward_part (view->completion, r->marker, &got_n, &found);
    *ret = (found || !r->marker) && want_n == got_n
           && memcmp (want, got, want_n) == 0;
    free (answer);
    return TRAIN_OK;
}

static train_status_t score_exact (train_reward_t *r,
                                   const struct reward_view *view, int n,
                                   float *ret, train_error_t *err)
{
    return reward_each (r, view, n, ret, one_exact, err);
}

const struct reward_ops reward_exact = {open_exact, score_exact, NULL};

static train_status_t open_regex (train_reward_t *r,
                                  const train_reward_options_t *opts,
                                  train_error_t *err)
{
    char text[200];
    int rc;

    if (!opts->pattern || !*opts->pattern)
        return err_set (err, TRAIN_EINVAL, "%s: pattern is not set", r->name);
    if ((rc = regcomp (&r->regex, opts->pattern, REG_EXTENDED)) != 0) {
        regerror (rc, &r->regex, text, sizeof (text));
        return err_set (err, TRAIN_EINVAL, "%s: pattern '%s': %s", r->name,
                        opts->pattern, text);
    }
    r->has_regex = true;
    if (r->field && r->regex.re_nsub < 1)
        return err_set (err, TRAIN_EINVAL,
                        "%s: pattern '%s' has no group (...) to compare with "
                        "field '%s'",
                        r->name, opts->pattern, r->field);
    return TRAIN_OK;
}

static void close_regex (train_reward_t *r)
{
    if (r->has_regex)
        regfree (&r->regex);
}

/* Is the first group the row's field? */
static train_status_t compare_group (const train_reward_t *r,
                                     const struct reward_view *view,
                                     const regmatch_t *group, float *ret,
                                     train_error_t *err)
{
    const char *want;
    char *answer, *got;
    size_t a, b;

    TRY (row_text (view->row, r->field, &answer, err));
    if (!answer)
        return TRAIN_OK;
    got = group->rm_so < 0 ? strdup ("")
                           : strndup (view->completion + group->rm_so,
                                      (size_t)(group->rm_eo - group->rm_so));
    want = reward_part (answer, NULL, &a, NULL);
    if (got) {
        const char *part = reward_part (got, NULL, &b, NULL);

        *ret = group->rm_so >= 0 && a == b && memcmp (want, part, a) == 0;
    }
    free (answer);
    if (!got)
        return err_set (err, TRAIN_ENOMEM, "no memory for a completion");
    free (got);
    return TRAIN_OK;
}

static train_status_t one_regex (const train_reward_t *r,
                                 const struct reward_view *view, float *ret,
                                 train_error_t *err)
{
    regmatch_t match[2] = {{-1, -1}, {-1, -1}};
    int rc = regexec (&r->regex, view->completion, 2, match, 0);

    *ret = NAN;
    if (rc == REG_ESPACE)
        return err_set (err, TRAIN_ENOMEM, "%s: no memory to match", r->name);
    if (r->field)
        return compare_group (r, view, &match[1], ret, err);
    *ret = rc == 0;
    return TRAIN_OK;
}

static train_status_t score_regex (train_reward_t *r,
                                   const struct reward_view *view, int n,
                                   float *ret, train_error_t *err)
{
    return reward_each (r, view, n, ret, one_regex, err);
}

const struct reward_ops reward_regex = {open_regex, score_regex, close_regex};

static train_status_t open_length (train_reward_t *r,
                                   const train_reward_options_t *opts,
                                   train_error_t *err)
{
    if (opts->min < 0 || opts->max < 0 || opts->soft < 0
        || (opts->max > 0 && opts->min > opts->max))
        return err_set (err, TRAIN_EINVAL,
                        "%s: min %lld, max %lld, soft %lld: none may be below "
                        "0, nor min above max",
                        r->name, (long long)opts->min, (long long)opts->max,
                        (long long)opts->soft);
    if (opts->min == 0 && opts->max == 0)
        return err_set (err, TRAIN_EINVAL, "%s: neither min nor max is set",
                        r->name);
    r->min = opts->min;
    r->max = opts->max;
    r->soft = opts->soft;
    return TRAIN_OK;
}

static train_status_t one_length (const train_reward_t *r,
                                  const struct reward_view *view, float *ret,
                                  train_error_t *err)
{
    int64_t n = 0, off = 0;

    (void)err;
    for (const char *p = view->completion; *p; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80;
    if (n < r->min)
        off = r->min - n;
    else if (r->max > 0 && n > r->max)
        off = n - r->max;
    *ret = off == 0        ? 1
           : off < r->soft ? 1 - (float)((double)off / (double)r->soft)
                           : 0;
    return TRAIN_OK;
}

static train_status_t score_length (train_reward_t *r,
                                    const struct reward_view *view, int n,
                                    float *ret, train_error_t *err)
{
    return reward_each (r, view, n, ret, one_length, err);
}

const struct reward_ops reward_length = {open_length, score_length, NULL};
