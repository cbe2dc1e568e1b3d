/* SPDX-License-Identifier: Apache-2.0
 * tokenize_cmd.c - rv-train tokenize: text files to one file of tokens */
#include "config.h"

#include "tokenize_cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <train/tokens.h>

#include "libtrain/err.h"

#define END 256 /* the token behind a document */

static train_status_t add_stream (train_token_writer_t *w, FILE *f,
                                  const char *name, int64_t *count,
                                  train_error_t *err)
{
    unsigned char buf[8192];
    int32_t token[8192];
    size_t n;

    while ((n = fread (buf, 1, sizeof (buf), f)) > 0) {
        for (size_t i = 0; i < n; i++)
            token[i] = buf[i];
        TRY (train_tokens_put (w, token, n, err));
        *count += (int64_t)n;
    }
    if (ferror (f))
        return err_set (err, TRAIN_EIO, "%s: %s", name, strerror (errno));
    token[0] = END;
    ++*count;
    return train_tokens_put (w, token, 1, err);
}

static train_status_t add_file (train_token_writer_t *w, const char *name,
                                int64_t *count, train_error_t *err)
{
    FILE *f = fopen (name, "rbe");
    train_status_t status;

    if (!f)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", name, strerror (errno));
    status = add_stream (w, f, name, count, err);
    fclose (f);
    return status;
}

train_status_t tokenize_cmd (const char *out, char *const *files, size_t n,
                             train_error_t *err)
{
    train_token_writer_t *w = NULL;
    int64_t count = 0;
    train_status_t status = train_tokens_create (out, END + 1, END, &w, err);

    for (size_t i = 0; i < n && status == TRAIN_OK; i++)
        status = add_file (w, files[i], &count, err);
    if (status != TRAIN_OK) {
        train_tokens_abandon (w);
        return status;
    }
    TRY (train_tokens_commit (w, err));
    printf ("%s: %" PRId64 " tokens of 2 bytes, %zu documents, vocabulary %d\n",
            out, count, n, END + 1);
    return TRAIN_OK;
}
