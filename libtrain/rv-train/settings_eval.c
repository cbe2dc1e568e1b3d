/* SPDX-License-Identifier: Apache-2.0
 * settings_eval.c - what [eval] means, and what it does not go together with */
#include "settings_eval.h"

#include "settings.h"

#define SAMPLES 64 /* held out unless told otherwise */

void settings_eval_derive (struct settings *c)
{
    if (c->eval.samples < 0)
        c->eval.samples = c->eval.files ? 0 : SAMPLES;
}

static int refuse (const struct settings *c, const char *key, const char *why,
                   struct rv_error *err)
{
    char where[512];

    return error_set (err, RV_EINVAL, "%s: %s",
                      settings_where (c, "eval", key, where, sizeof (where)),
                      why);
}

int settings_eval_check (const struct settings *c, struct rv_error *err)
{
    if (c->eval.every == 0 && c->eval.files)
        return refuse (c, "files", "needs [eval] every", err);
    if (!c->eval.files && c->eval.samples == 0)
        return refuse (c, "samples",
                       "0 is all of [eval] files, which is not set", err);
    if (settings_given (c, "eval", "samples")
        && !settings_given (c, "eval", "every"))
        return refuse (c, "samples", "needs [eval] every", err);
    return RV_OK;
}

int64_t settings_eval_held (const struct settings *c)
{
    return c->eval.every > 0 && !c->eval.files ? c->eval.samples : 0;
}

train_data_options_t settings_eval_data (const struct settings *c)
{
    return (train_data_options_t){
        .size = sizeof (train_data_options_t),
        .files = c->eval.files,
        .seq = (int)c->seq,
        .documents = c->tune.documents,
        .tokenizer = c->tokenizer,
        .end = c->rows.end,
        .text_alone = true,
    };
}

/* Rows do not follow from the number of ranks, or the loss would. */
train_eval_options_t settings_eval_options (const struct settings *c,
                                            const train_data_t *data)
{
    return (train_eval_options_t){
        .size = sizeof (train_eval_options_t),
        .data = data,
        .samples = c->eval.samples,
        .rows = (int)c->micro_batch,
    };
}
