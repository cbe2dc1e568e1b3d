/* SPDX-License-Identifier: Apache-2.0
 * settings_rows.c - what [data] says of rows of prompts */
#include "settings_rows.h"

#include <string.h>

#include "libtrain/err.h"
#include "settings.h"

static int refuse (const struct settings *c, const char *key, const char *why,
                   struct rv_error *err)
{
    char where[512];

    return error_set (err, RV_EINVAL, "%s: %s",
                      settings_where (c, "data", key, where, sizeof (where)),
                      why);
}

/* What is of the samples of task = sft: grpo has rows of its own. */
static int check_samples (const struct settings *c, struct rv_error *err)
{
    const char *alone = "is of task = sft alone; remove it";

    if (c->task == TASK_SFT)
        return RV_OK;
    if (c->rows.too_long != TRAIN_ROWS_REFUSE)
        return refuse (c, "long", alone, err);
    return c->rows.packed ? refuse (c, "packed", alone, err) : RV_OK;
}

int settings_rows_check (const struct settings *c, struct rv_error *err)
{
    const struct settings_rows *r = &c->rows;
    const char *alone = "is of tasks sft and grpo alone; remove it";

    if (c->task != TASK_PRETRAIN && c->tune.documents)
        return refuse (c, "documents",
                       "is of use to task = pretrain alone: each row is one "
                       "already",
                       err);
    if (c->task != TASK_PRETRAIN)
        return check_samples (c, err);
    if (r->chat)
        return refuse (c, "template", alone, err);
    if (r->system)
        return refuse (c, "system", alone, err);
    if (r->end && strcmp (c->tokenizer, "bytes") == 0)
        return refuse (c, "end",
                       "goes with a tokenizer of tokens; remove it, or name a "
                       "tokenizer.json",
                       err);
    return check_samples (c, err);
}

train_status_t settings_rows_open (const struct settings *c,
                                   const char *section, const char *files,
                                   train_tokenizer_t *tokenizer,
                                   train_prompts_t **ret, train_error_t *err)
{
    const char *wrong = "files";
    const train_prompts_options_t o = {
        .size = sizeof (o),
        .files = files,
        .tokenizer = tokenizer,
        .end = c->rows.end,
        .model_dir = c->model_dir,
        .chat = c->rows.chat,
        .system = c->rows.system,
        .ret_wrong = &wrong,
    };
    train_status_t status = train_prompts_open (&o, ret, err);
    char where[256];

    if (status == TRAIN_OK)
        return TRAIN_OK;
    if (strcmp (wrong, "files") != 0)
        section = "data";
    if (strcmp (wrong, "chat") == 0)
        wrong = "template";
    return err_prefix (
        err, status, "%s",
        settings_where (c, section, wrong, where, sizeof (where)));
}
