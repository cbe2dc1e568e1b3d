/* SPDX-License-Identifier: Apache-2.0
 * reward.c - open a reward, hand samples to its kind, count */
#include "reward_impl.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "opts.h"
#include "rows.h"
#include "tokenizer_impl.h"

static const struct reward_ops *const kinds[] = {
    [TRAIN_REWARD_EXACT] = &reward_exact,
    [TRAIN_REWARD_REGEX] = &reward_regex,
    [TRAIN_REWARD_LENGTH] = &reward_length,
    [TRAIN_REWARD_ARITHMETIC] = &reward_sum,
    [TRAIN_REWARD_PROGRAM] = &reward_program,
};

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a reward");
}

static train_status_t keep (char **to, const char *text, train_error_t *err)
{
    if (text && !(*to = strdup (text)))
        return no_memory (err);
    return TRAIN_OK;
}

static train_status_t set_up (train_reward_t *r,
                              const train_reward_options_t *o,
                              train_error_t *err)
{
    TRY (keep (&r->name, o->name ? o->name : "reward", err));
    TRY (keep (&r->field, o->field, err));
    TRY (keep (&r->marker, o->marker, err));
    return r->ops->open (r, o, err);
}

train_status_t train_reward_open (const train_reward_options_t *opts,
                                  train_reward_t **ret_reward,
                                  train_error_t *err)
{
    train_reward_options_t o;
    train_status_t status;
    train_reward_t *r;

    if (!opts || !ret_reward)
        return err_set (err, TRAIN_EINVAL,
                        "reward: options or ret_reward are missing");
    TRY (opts_read (&o, sizeof (o), opts, "reward", err));
    if ((size_t)o.kind >= sizeof (kinds) / sizeof (*kinds))
        return err_set (err, TRAIN_EINVAL, "reward: kind %d is none", o.kind);
    if (!(r = calloc (1, sizeof (*r))))
        return no_memory (err);
    r->ops = kinds[o.kind];
    r->report.size = sizeof (r->report);
    if ((status = set_up (r, &o, err)) != TRAIN_OK)
        train_reward_close (r);
    else
        *ret_reward = r;
    return status;
}

void train_reward_close (train_reward_t *r)
{
    if (!r)
        return;
    if (r->ops->close)
        r->ops->close (r);
    free (r->marker);
    free (r->field);
    free (r->name);
    free (r);
}

/* Text of a model need not be UTF-8, and JSON must. */
static train_status_t mend (char **ret, const char *text, size_t size,
                            train_error_t *err)
{
    struct tok_buf buf = {0};

    if (size == 0)
        size = strlen (text);
    while (size > 0) {
        size_t n = strnlen (text, size);

        utf8_repair (&buf, text, n);
        text += n;
        size -= n;
        if (size > 0) {
            tok_buf_add (&buf, "\xef\xbf\xbd", 3);
            text++, size--;
        }
    }
    tok_buf_add (&buf, "", 1);
    *ret = buf.p;
    return buf.failed ? no_memory (err) : TRAIN_OK;
}

static train_status_t view_one (struct reward_view *v, const train_sample_t *s,
                                train_error_t *err)
{
    const char *prompt = s->prompt ? s->prompt : "";

    if (!s->completion)
        return err_set (err, TRAIN_EINVAL, "it has no completion");
    TRY (mend (&v->prompt, prompt, s->prompt ? s->prompt_size : 0, err));
    TRY (mend (&v->completion, s->completion, s->completion_size, err));
    if (s->row)
        return row_parse (s->row, strlen (s->row), &v->row, err);
    v->row = json_object ();
    return v->row ? TRAIN_OK : no_memory (err);
}

static void free_views (struct reward_view *v, int n)
{
    for (int i = 0; i < n; i++) {
        free (v[i].prompt);
        free (v[i].completion);
        json_decref (v[i].row);
    }
    free (v);
}

/* Into an array of its own first, so that a failure leaves the caller's. */
static train_status_t score (train_reward_t *r, const train_sample_t *samples,
                             struct reward_view *view, int n, float *ret,
                             train_error_t *err)
{
    float *own = malloc ((size_t)n * sizeof (*own));
    train_status_t status = own ? TRAIN_OK : no_memory (err);

    for (int i = 0; i < n && status == TRAIN_OK; i++) {
        status = view_one (&view[i], &samples[i], err);
        if (status != TRAIN_OK && status != TRAIN_ENOMEM) {
            err_prefix (err, status, "%s: sample %d", r->name, i);
            status = err->code = TRAIN_EINVAL;
        }
    }
    if (status == TRAIN_OK)
        status = r->ops->score (r, view, n, own, err);
    if (status == TRAIN_OK)
        memcpy (ret, own, (size_t)n * sizeof (*own));
    free (own);
    return status;
}

train_status_t train_reward_score (train_reward_t *r,
                                   const train_sample_t *samples, int n,
                                   float *ret, train_error_t *err)
{
    struct reward_view *view;
    train_error_t local;
    train_status_t status;

    if (!r || n < 0 || (n > 0 && (!samples || !ret)))
        return err_set (err, TRAIN_EINVAL,
                        "reward: the handle, samples or ret is missing, or n "
                        "is below 0");
    if (n == 0)
        return TRAIN_OK;
    if (!(view = calloc ((size_t)n, sizeof (*view))))
        return no_memory (err);
    status = score (r, samples, view, n, ret, err ? err : &local);
    free_views (view, n);
    return status;
}

train_status_t train_reward_report (const train_reward_t *r,
                                    train_reward_report_t *ret,
                                    train_error_t *err)
{
    if (!r || !ret)
        return err_set (err, TRAIN_EINVAL, "reward: nothing to report to");
    return opts_give (ret, &r->report, sizeof (r->report), "reward report",
                      err);
}
