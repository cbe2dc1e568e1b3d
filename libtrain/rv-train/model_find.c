/* SPDX-License-Identifier: Apache-2.0
 * model_find.c - which folder a name of a model means */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <train/ckpt_pieces.h>

#include "libtrain/err.h"
#include "model_dir.h"

bool model_has (const char *dir, const char *name)
{
    char path[4096];
    int n = snprintf (path, sizeof (path), "%s/%s", dir, name);

    return n > 0 && (size_t)n < sizeof (path) && access (path, F_OK) == 0;
}

train_status_t model_find (const char *where, char **ret, train_error_t *err)
{
    train_status_t status = TRAIN_OK;

    if (!model_has (where, "config.json"))
        status = train_ckpt_find (where, ret, err);
    else if (!(*ret = strdup (where)))
        status = err_set (err, TRAIN_ENOMEM, "no memory for a name");
    if (status != TRAIN_ENOTFOUND)
        return status;
    return err_set (err, status, "%s %s", where,
                    model_has (where, ".")
                        ? "has neither config.json, as models of Hugging Face "
                          "have, nor a checkpoint"
                        : "is no folder; name one that is there: models are "
                          "not fetched by their names");
}
