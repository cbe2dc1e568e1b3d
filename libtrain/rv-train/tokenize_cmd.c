/* SPDX-License-Identifier: Apache-2.0
 * tokenize_cmd.c - rv-train tokenize: text files to one file of tokens */
#include "config.h"

#include "tokenize_cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/tokenizer.h>
#include <train/tokens.h>

#include "libtrain/err.h"
#include "plan/fsio.h"

#define MAX_TEXT ((size_t)1 << 30)

struct job {
    const char *tokenizer, *end, *out;
    char *const *file; /* (n) */
    size_t n;
    train_tokenizer_t *tok;
    train_token_writer_t *writer;
    int32_t end_id, vocab; /* -1: none ends a document */
    int64_t count;
    size_t bad; /* parts that are no UTF-8 */
};

static train_status_t read_args (struct job *j, int argc, char *const *argv,
                                 train_error_t *err)
{
    int at = 0;

    j->tokenizer = "bytes";
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2)
        if (strcmp (argv[at], "--tokenizer") == 0)
            j->tokenizer = argv[at + 1];
        else if (strcmp (argv[at], "--end") == 0)
            j->end = argv[at + 1];
        else
            break;
    if (at < argc && argv[at][0] == '-')
        return err_set (err, TRAIN_EINVAL,
                        "'%s' lacks its value or is no option: --tokenizer "
                        "NAME and --end TOKEN are",
                        argv[at]);
    if (argc - at < 2)
        return err_set (err, TRAIN_EINVAL,
                        "it takes a file to write and files to read");
    for (int i = at; i < argc; i++)
        if (strncmp (argv[i], "--", 2) == 0)
            return err_set (err, TRAIN_EINVAL,
                            "'%s' stands behind the files; options go before "
                            "them (./%s is a file of that name)",
                            argv[i], argv[i]);
    j->out = argv[at];
    j->file = argv + at + 1;
    j->n = (size_t)(argc - at - 1);
    return TRAIN_OK;
}

static train_status_t open_tokenizer (struct job *j, train_error_t *err)
{
    bool bytes = strcmp (j->tokenizer, "bytes") == 0;

    TRY (train_tokenizer_open (j->tokenizer, &j->tok, err));
    j->vocab = train_tokenizer_vocab (j->tok) + bytes;
    j->end_id = bytes ? TRAIN_TOKENIZER_BYTE_END : -1;
    if (!j->end)
        return TRAIN_OK;
    if (bytes)
        return err_set (err, TRAIN_EINVAL,
                        "--end needs --tokenizer: of bytes %d ends a document",
                        TRAIN_TOKENIZER_BYTE_END);
    if ((j->end_id = train_tokenizer_id (j->tok, j->end)) < 0)
        return err_set (err, TRAIN_EINVAL, "--end '%s' is no token of %s",
                        j->end, j->tokenizer);
    return TRAIN_OK;
}

static train_status_t put (struct job *j, const int32_t *ids, size_t n,
                           train_error_t *err)
{
    TRY (train_tokens_put (j->writer, ids, n, err));
    j->count += (int64_t)n;
    return TRAIN_OK;
}

static train_status_t add_file (struct job *j, const char *name,
                                train_error_t *err)
{
    struct rv_error e = {0};
    train_status_t status;
    int32_t *ids = NULL;
    size_t size, n, bad = 0;
    char *text;

    if (fsio_read (name, MAX_TEXT, &text, &size, &e) != RV_OK)
        return err_from (err, &e);
    status =
        train_tokenizer_encode (j->tok, &ids, &n, text, size, false, &bad, err);
    free (text);
    if (status == TRAIN_OK)
        status = put (j, ids, n, err);
    free (ids);
    j->bad += bad;
    if (status == TRAIN_OK && j->end_id >= 0)
        status = put (j, &j->end_id, 1, err);
    return status;
}

static train_status_t write_out (struct job *j, train_error_t *err)
{
    train_token_writer_t *w;

    TRY (train_tokens_create (j->out, j->vocab, j->end_id, &j->writer, err));
    for (size_t i = 0; i < j->n; i++)
        TRY (add_file (j, j->file[i], err));
    w = j->writer;
    j->writer = NULL;
    TRY (train_tokens_commit (w, err));
    printf ("%s: %" PRId64
            " tokens of %d bytes, %zu documents, vocabulary %d\n",
            j->out, j->count, j->vocab <= 65536 ? 2 : 4, j->n, (int)j->vocab);
    if (j->bad)
        fprintf (stderr,
                 "rv-train: %zu parts of the text are no UTF-8 and were read "
                 "as U+FFFD\n",
                 j->bad);
    return TRAIN_OK;
}

train_status_t tokenize_cmd (int argc, char **argv, train_error_t *err)
{
    struct job j = {0};
    train_status_t status;

    TRY (read_args (&j, argc, argv, err));
    if ((status = open_tokenizer (&j, err)) == TRAIN_OK)
        status = write_out (&j, err);
    train_tokens_abandon (j.writer);
    train_tokenizer_close (j.tok);
    return status;
}
