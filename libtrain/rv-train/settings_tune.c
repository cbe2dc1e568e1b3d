/* SPDX-License-Identifier: Apache-2.0
 * settings_tune.c - what the keys of fine-tuning mean */
#include "settings_tune.h"

#include <string.h>

#include "settings.h"

/* Alpha and targets are PEFT's own for Llama. */
int settings_tune_defaults (struct settings *c, struct rv_error *err)
{
    c->tune.lora_alpha = 8;
    c->tune.lora_targets = strdup ("q_proj, v_proj");
    return c->tune.lora_targets ? RV_OK
                                : error_set (err, RV_ENOMEM, "no memory");
}

static int refuse (const struct settings *c, const char *key, const char *why,
                   struct rv_error *err)
{
    char where[512];

    return error_set (err, RV_EINVAL, "%s: %s",
                      settings_where (c, "model", key, where, sizeof (where)),
                      why);
}

/* Who names adapters and forgets their rank would train the whole model. */
static int check_no_lora (const struct settings *c, struct rv_error *err)
{
    static const char *const of[] = {"lora_alpha", "lora_targets"};

    if (settings_given (c, "model", "lora_rank"))
        return RV_OK; /* 0 was said */
    for (size_t i = 0; i < sizeof (of) / sizeof (*of); i++)
        if (settings_given (c, "model", of[i]))
            return refuse (c, of[i],
                           "is of use with lora_rank above 0 alone; set that, "
                           "or remove it",
                           err);
    return RV_OK;
}

int settings_tune_check (struct settings *c, struct rv_error *err)
{
    struct settings_tune *t = &c->tune;
    train_error_t why = {0};

    if (t->dropout >= 1)
        return refuse (c, "dropout", "is not below 1", err);
    if (t->dropout > 0 && c->task == TASK_GRPO)
        return refuse (c, "dropout",
                       "grpo trains what it wrote, without dropout; use 0",
                       err);
    if (t->lora_rank == 0)
        return check_no_lora (c, err);
    if (t->lora_alpha <= 0)
        return refuse (c, "lora_alpha", "is not above 0", err);
    t->lora = (train_lora_t){(int)t->lora_rank, 0, t->lora_alpha};
    if (train_lora_targets (t->lora_targets, &t->lora.targets, &why)
        != TRAIN_OK)
        return refuse (c, "lora_targets", why.text, err);
    return RV_OK;
}
