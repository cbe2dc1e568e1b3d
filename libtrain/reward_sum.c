/* SPDX-License-Identifier: Apache-2.0
 * reward_sum.c - the reward for the right result of an expression */
#include "reward_impl.h"
#include "reward_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "rows.h"

/* A dot that ends a sentence, the bracket of \boxed{, Markdown's stars. */
#define BEHIND " \t.}*$"

static train_status_t open_sum (train_reward_t *r,
                                const train_reward_options_t *opts,
                                train_error_t *err)
{
    if (opts->marker && !*opts->marker)
        return err_set (err, TRAIN_EINVAL, "%s: marker is empty", r->name);
    return TRAIN_OK;
}

/* What was asked: the prompt as text, of messages the user's last. */
static const char *asked (const struct reward_view *view)
{
    const json_t *prompt = json_object_get (view->row, "prompt");

    if (json_is_string (prompt))
        return json_string_value (prompt);
    for (size_t i = json_array_size (prompt); i-- > 0;) {
        const json_t *m = json_array_get (prompt, i);
        const char *role = json_string_value (json_object_get (m, "role"));
        const char *text = json_string_value (json_object_get (m, "content"));

        if (role && text && strcmp (role, "user") == 0)
            return text;
    }
    return view->prompt;
}

/* The right result; false: there is none to be had. */
static train_status_t wanted (const train_reward_t *r,
                              const struct reward_view *view,
                              struct rational *ret, bool *ret_there,
                              train_error_t *err)
{
    size_t at, n;
    char *text;

    *ret_there = false;
    if (!r->field) {
        const char *prompt = asked (view);

        *ret_there = math_find (prompt, strlen (prompt), &at, &n)
                     && math_eval (prompt + at, n, ret, NULL) == MATH_OK;
        return TRAIN_OK;
    }
    TRY (row_text (view->row, r->field, &text, err));
    if (text) {
        const char *part = reward_part (text, r->marker, &n, NULL);

        *ret_there = math_eval (part, n, ret, NULL) == MATH_OK;
    }
    free (text);
    return TRAIN_OK;
}

static train_status_t one_sum (const train_reward_t *r,
                               const struct reward_view *view, float *ret,
                               train_error_t *err)
{
    struct rational want, got;
    const char *part;
    bool there, found;
    size_t n;

    *ret = NAN;
    TRY (wanted (r, view, &want, &there, err));
    if (!there)
        return TRAIN_OK;
    part = reward_part (view->completion, r->marker, &n, &found);
    while (n > 0 && strchr (BEHIND, part[n - 1]))
        n--;
    *ret = (found || !r->marker) && math_number (part, n, &got) == MATH_OK
           && math_equal (want, got);
    return TRAIN_OK;
}

static train_status_t score_sum (train_reward_t *r,
                                 const struct reward_view *view, int n,
                                 float *ret, train_error_t *err)
{
    return reward_each (r, view, n, ret, one_sum, err);
}

const struct reward_ops reward_sum = {open_sum, score_sum, NULL};
