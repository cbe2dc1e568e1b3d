/* SPDX-License-Identifier: Apache-2.0
 * settings_model.c - what follows from [model] dir */
#include "settings_model.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plan/fsio.h"
#include "settings.h"

int settings_model_derive (struct settings *c, struct rv_error *err)
{
    const char *name = "bytes";
    char *path;

    if (c->tokenizer)
        return RV_OK;
    if (c->model_dir) {
        if (!(path = fsio_join (c->model_dir, "tokenizer.json")))
            return error_set (err, RV_ENOMEM, "no memory");
        if (access (path, F_OK) == 0)
            name = c->model_dir;
        free (path);
    }
    c->tokenizer_follows = true;
    c->tokenizer = strdup (name);
    return c->tokenizer ? RV_OK : error_set (err, RV_ENOMEM, "no memory");
}

int settings_model_check (const struct settings *c, struct rv_error *err)
{
    static const char *const size[] = {"layers",   "dim",       "heads",
                                       "kv_heads", "ffn",       "vocab",
                                       "tie",      "rope_theta"};
    char where[512];

    for (size_t i = 0; c->model_dir && i < sizeof (size) / sizeof (*size); i++)
        if (settings_given (c, "model", size[i]))
            return error_set (
                err, RV_EINVAL,
                "%s: follows from the folder that [model] dir names; remove it",
                settings_where (c, "model", size[i], where, sizeof (where)));
    return RV_OK;
}
