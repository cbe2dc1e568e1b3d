/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.c - open a tokenizer, text to ids, ids to text */
#include <train/tokenizer.h>

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "json_why.h"
#include "tokenizer_impl.h"

#include "plan/fsio.h"

#define FILE_MAX ((size_t)256 << 20)
#define TEXT_MAX ((size_t)1 << 30)

static bool grow (void **p, size_t *cap, size_t need, size_t each)
{
    size_t to = *cap ? *cap : 256;
    void *q;

    while (to < need)
        to *= 2;
    if (!(q = realloc (*p, to * each)))
        return false;
    *p = q;
    *cap = to;
    return true;
}

void tok_buf_add (struct tok_buf *b, const char *s, size_t n)
{
    if (b->failed || n == 0)
        return;
    if (b->n + n > b->cap && !grow ((void **)&b->p, &b->cap, b->n + n, 1)) {
        b->failed = true;
        return;
    }
    memcpy (b->p + b->n, s, n);
    b->n += n;
}

void tok_ids_add (struct tok_ids *ids, int32_t id)
{
    if (ids->failed)
        return;
    if (ids->n == ids->cap
        && !grow ((void **)&ids->p, &ids->cap, ids->n + 1, sizeof (id))) {
        ids->failed = true;
        return;
    }
    ids->p[ids->n++] = id;
}

static train_status_t read_all (train_tokenizer_t *t, const json_t *root,
                                train_error_t *err)
{
    if (!json_is_object (root))
        return err_set (err, TRAIN_EFORMAT, "is not a JSON object");
    TRY (tok_read_steps (t, root, err));
    TRY (tok_bpe_read (&t->bpe, json_object_get (root, "model"), err));
    TRY (tok_read_added (t, root, err));
    if (!(t->classes = malloc (UNICODE_CLASS_BYTES)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a tokenizer");
    unicode_classes (t->classes);
    t->vocab = (int32_t)t->bpe.n;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id >= t->vocab)
            t->vocab = t->added[i].id + 1;
    return TRAIN_OK;
}

train_status_t train_tokenizer_parse (const char *json, size_t size,
                                      train_tokenizer_t **ret,
                                      train_error_t *err)
{
    json_error_t why;
    train_tokenizer_t *t;
    json_t *root;
    train_status_t status;

    if (!json || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "tokenizer: json or ret_tokenizer is missing");
    root =
        json_loadb (json, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (!root && json_no_memory (&why))
        return err_set (err, TRAIN_ENOMEM, "no memory for a tokenizer");
    if (!root)
        return err_set (err, TRAIN_EFORMAT, "line %d: %s", why.line, why.text);
    if (!(t = calloc (1, sizeof (*t)))) {
        json_decref (root);
        return err_set (err, TRAIN_ENOMEM, "no memory for a tokenizer");
    }
    t->hash = XXH3_64bits (json, size);
    status = read_all (t, root, err);
    json_decref (root);
    if (status != TRAIN_OK)
        train_tokenizer_close (t);
    else
        *ret = t;
    return status;
}

static train_status_t open_bytes (train_tokenizer_t **ret, train_error_t *err)
{
    train_tokenizer_t *t = calloc (1, sizeof (*t));

    if (!t)
        return err_set (err, TRAIN_ENOMEM, "no memory for a tokenizer");
    t->plain = true;
    t->vocab = TRAIN_TOKENIZER_BYTE_END;
    *ret = t;
    return TRAIN_OK;
}

static bool ends_in_json (const char *name)
{
    size_t n = strlen (name);

    return n > 5 && strcmp (name + n - 5, ".json") == 0;
}

train_status_t train_tokenizer_open (const char *name, train_tokenizer_t **ret,
                                     train_error_t *err)
{
    struct rv_error e = {0};
    char *path, *text = NULL;
    train_status_t status;
    size_t n = 0;

    if (!name || !*name || !ret)
        return err_set (err, TRAIN_EINVAL,
                        "tokenizer: name or ret_tokenizer is missing");
    if (strcmp (name, "bytes") == 0)
        return open_bytes (ret, err);
    path = ends_in_json (name) ? strdup (name)
                               : fsio_join (name, "tokenizer.json");
    if (!path)
        return err_set (err, TRAIN_ENOMEM, "no memory for a path");
    if (fsio_read (path, FILE_MAX, &text, &n, &e) != RV_OK)
        status = err_from (err, &e);
    else if ((status = train_tokenizer_parse (text, n, ret, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", path);
    free (text);
    free (path);
    return status;
}

static void free_steps (train_tokenizer_t *t)
{
    for (size_t i = 0; i < TOKENIZER_STEPS; i++) {
        free (t->norm[i].from.s);
        free (t->norm[i].to.s);
        free (t->pre[i].mark.s);
        free (t->dec[i].from.s);
        free (t->dec[i].to.s);
    }
}

void train_tokenizer_close (train_tokenizer_t *t)
{
    if (!t)
        return;
    tok_bpe_free (&t->bpe);
    free_steps (t);
    for (size_t i = 0; i < t->n_added; i++) {
        free (t->added[i].content.s);
        free (t->added[i].normal.s);
    }
    free (t->added);
    free (t->level[0].order);
    free (t->level[1].order);
    free (t->before);
    free (t->after);
    free (t->classes);
    free (t);
}

int32_t train_tokenizer_vocab (const train_tokenizer_t *t)
{
    return t->vocab;
}

int32_t train_tokenizer_id (const train_tokenizer_t *t, const char *token)
{
    size_t n = strlen (token);

    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].content.n == n
            && memcmp (t->added[i].content.s, token, n) == 0)
            return t->added[i].id;
    return t->plain ? -1 : tok_map_find (&t->bpe.map, t->bpe.vocab, token, n);
}

int32_t train_tokenizer_hidden (const train_tokenizer_t *t, const char *token)
{
    int32_t id = train_tokenizer_id (t, token);

    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id && t->added[i].special)
            return id;
    return -1;
}

uint64_t train_tokenizer_hash (const train_tokenizer_t *t)
{
    return t->hash;
}

static void encode (train_tokenizer_t *t, const char *text, size_t size,
                    bool around, size_t *bad)
{
    struct tok_buf good = {0};

    for (size_t i = 0; around && i < t->n_before; i++)
        tok_ids_add (&t->out, t->before[i]);
    if (t->plain) {
        for (size_t i = 0; i < size; i++)
            tok_ids_add (&t->out, (uint8_t)text[i]);
    } else if (utf8_valid (text, size) < size) {
        *bad = utf8_repair (&good, text, size);
        t->out.failed |= good.failed;
        if (!good.failed)
            tok_encode_text (t, good.p, good.n);
    } else
        tok_encode_text (t, text, size);
    for (size_t i = 0; around && i < t->n_after; i++)
        tok_ids_add (&t->out, t->after[i]);
    free (good.p);
}

train_status_t train_tokenizer_encode (train_tokenizer_t *t, int32_t **ret_ids,
                                       size_t *ret_n, const char *text,
                                       size_t size, bool around,
                                       size_t *ret_bad, train_error_t *err)
{
    size_t bad = 0;

    if (!t || !ret_ids || !ret_n || (!text && size > 0))
        return err_set (err, TRAIN_EINVAL,
                        "tokenizer: an argument of encode is missing");
    *ret_ids = NULL;
    if (size > TEXT_MAX)
        return err_set (err, TRAIN_EINVAL,
                        "tokenizer: a text of %zu bytes; at most %zu work: cut "
                        "it into documents",
                        size, TEXT_MAX);
    t->out = (struct tok_ids){0};
    t->bpe.lost = 0;
    encode (t, text, size, around, &bad);
    if (t->bpe.lost) {
        free (t->out.p);
        return err_set (
            err, TRAIN_EINVAL,
            "tokenizer: the text has byte 0x%02X, for which "
            "'model.vocab' has no token, nor is there an unk_token: "
            "it would be lost; take it out",
            t->bpe.lost - 1);
    }
    if (t->out.failed
        || (!t->out.p && !(t->out.p = malloc (sizeof (*t->out.p))))) {
        free (t->out.p);
        return err_set (err, TRAIN_ENOMEM, "no memory for the ids of a text");
    }
    *ret_ids = t->out.p;
    *ret_n = t->out.n;
    if (ret_bad)
        *ret_bad = bad;
    t->out = (struct tok_ids){0};
    return TRAIN_OK;
}

static train_status_t plain_text (struct tok_buf *to, const int32_t *ids,
                                  size_t n, train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        char c = (char)ids[i];

        if (ids[i] < 0 || ids[i] > 255)
            return err_set (err, TRAIN_EINVAL,
                            "tokenizer: id %d at place %zu is no byte",
                            (int)ids[i], i);
        tok_buf_add (to, &c, 1);
    }
    return TRAIN_OK;
}

train_status_t train_tokenizer_decode (train_tokenizer_t *t, char **ret_text,
                                       size_t *ret_size, const int32_t *ids,
                                       size_t n, bool skip_special,
                                       train_error_t *err)
{
    struct tok_buf b = {0};
    train_status_t status;

    if (!t || !ret_text || !ret_size || (!ids && n > 0))
        return err_set (err, TRAIN_EINVAL,
                        "tokenizer: an argument of decode is missing");
    *ret_text = NULL;
    status = t->plain ? plain_text (&b, ids, n, err)
                      : tok_decode (t, &b, ids, n, skip_special, err);
    *ret_size = b.n;
    tok_buf_add (&b, "", 1);
    if (status == TRAIN_OK && b.failed)
        status = err_set (err, TRAIN_ENOMEM, "no memory for a text");
    if (status == TRAIN_OK)
        *ret_text = b.p;
    else
        free (b.p);
    return status;
}
