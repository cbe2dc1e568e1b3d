/* SPDX-License-Identifier: Apache-2.0
 * export_files.c - copy the files of a tokenizer, under the names by which
 * Hugging Face's transformers looks for them */
#include "export_files.h"

#include <stdbool.h>
#include <stdlib.h>

#include "libtrain/err.h"
#include "model_dir.h"
#include "plan/fsio.h"

#define MAX_BYTES ((size_t)1 << 30)

static const char *const names[] = {
    "tokenizer.json",
    "tokenizer.model", /* one of these two */
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
};

/* False in *ret_there: [from] has no such file. */
static train_status_t copy (const char *from, const char *to, const char *name,
                            bool *ret_there, train_error_t *err)
{
    char *in = fsio_join (from, name), *out = fsio_join (to, name),
         *data = NULL;
    struct rv_error e = {0};
    size_t size = 0;
    int rc = RV_ENOMEM;

    *ret_there = false;
    if (!in || !out)
        error_set (&e, rc, "no memory");
    else if ((rc = fsio_read (in, MAX_BYTES, &data, &size, &e)) == RV_OK
             && (rc = fsio_write (out, data, size, 0666, &e)) == RV_OK)
        *ret_there = true;
    free (data);
    free (in);
    free (out);
    return rc == RV_OK || rc == RV_ENOTFOUND ? TRAIN_OK : err_from (err, &e);
}

train_status_t export_files_check (const char *from, train_error_t *err)
{
    if (model_has (from, names[0]) || model_has (from, names[1]))
        return TRAIN_OK;
    return err_set (err, TRAIN_ENOTFOUND,
                    "--tokenizer: %s has no tokenizer.json and no "
                    "tokenizer.model; a model's folder that has one works",
                    from);
}

train_status_t export_files (const char *from, const char *to, size_t *ret_n,
                             train_error_t *err)
{
    *ret_n = 0;
    for (size_t i = 0; i < sizeof (names) / sizeof (*names); i++) {
        bool there;

        TRY (copy (from, to, names[i], &there, err));
        *ret_n += there;
    }
    return TRAIN_OK;
}
