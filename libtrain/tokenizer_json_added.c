/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_json_added.c - added tokens and post-processor of a tokenizer.json
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tokenizer_impl.h"

#define ID_MAX (1 << 24)

static train_status_t read_flags (struct tok_added *a, const json_t *item,
                                  const char *path, train_error_t *err)
{
    bool word;

    TRY (tok_bool (item, "special", false, path, &a->special, err));
    TRY (tok_bool (item, "lstrip", false, path, &a->lstrip, err));
    TRY (tok_bool (item, "rstrip", false, path, &a->rstrip, err));
    TRY (tok_bool (item, "normalized", !a->special, path, &a->normalized, err));
    TRY (tok_bool (item, "single_word", false, path, &word, err));
    if (word)
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s.single_word' is true: only false works", path);
    return TRAIN_OK;
}

static train_status_t read_token (train_tokenizer_t *t, const json_t *item,
                                  const char *path, train_error_t *err)
{
    struct tok_added *a = &t->added[t->n_added++];
    const json_t *value = json_object_get (item, "id");
    json_int_t id = json_integer_value (value);
    struct tok_buf normal = {0};
    int32_t known;

    TRY (tok_string (item, "content", path, &a->content, err));
    if (!json_is_integer (value) || id < 0 || id >= ID_MAX)
        return err_set (err, TRAIN_EFORMAT, "'%s.id' is not within 0 and %d",
                        path, ID_MAX - 1);
    a->id = (int32_t)id;
    TRY (read_flags (a, item, path, err));
    known =
        tok_map_find (&t->bpe.map, t->bpe.vocab, a->content.s, a->content.n);
    if (known >= 0 && known != a->id)
        return err_set (err, TRAIN_EFORMAT,
                        "'%s.id' is %d, and 'model.vocab' has the token as %d",
                        path, (int)a->id, (int)known);
    if (known < 0 && (size_t)a->id < t->bpe.n && t->bpe.vocab[a->id].s)
        return err_set (err, TRAIN_EFORMAT,
                        "'%s.id' is %d, which is another token in "
                        "'model.vocab'",
                        path, (int)a->id);
    tok_normalize (t, &normal, a->content.s, a->content.n);
    a->normal = (struct tok_str){normal.p, normal.n};
    if (normal.failed)
        return err_set (err, TRAIN_ENOMEM, "no memory for '%s'", path);
    return TRAIN_OK;
}

static train_status_t read_tokens (train_tokenizer_t *t, const json_t *list,
                                   train_error_t *err)
{
    size_t n = json_array_size (list), i;
    json_t *item;
    char path[48];

    if (list && !json_is_null (list) && !json_is_array (list))
        return err_set (err, TRAIN_EFORMAT, "'added_tokens' is not a list");
    if (!(t->added = calloc (n + 1, sizeof (*t->added))))
        return err_set (err, TRAIN_ENOMEM, "no memory for added tokens");
    json_array_foreach (list, i, item)
    {
        snprintf (path, sizeof (path), "added_tokens[%zu]", i);
        TRY (read_token (t, item, path, err));
    }
    return tok_added_order (t, err);
}

static train_status_t put (int32_t **ids, size_t *n, int32_t id,
                           train_error_t *err)
{
    int32_t *p = realloc (*ids, (*n + 1) * sizeof (*p));

    if (!p)
        return err_set (err, TRAIN_ENOMEM, "no memory for a template");
    *ids = p;
    p[(*n)++] = id;
    return TRAIN_OK;
}

/* The ids of a special token of the template. */
static train_status_t put_special (train_tokenizer_t *t, const json_t *item,
                                   const char *name, bool after,
                                   const char *path, train_error_t *err)
{
    const json_t *all = json_object_get (item, "special_tokens");
    const json_t *ids =
        json_object_get (name ? json_object_get (all, name) : NULL, "ids");
    json_t *value;
    size_t i;

    if (!json_is_array (ids))
        return err_set (err, TRAIN_EFORMAT,
                        "'%s.special_tokens' has no ids of '%.40s'", path,
                        name ? name : "(no string)");
    json_array_foreach (ids, i, value)
    {
        json_int_t id = json_integer_value (value);

        if (!json_is_integer (value) || id < 0 || id >= ID_MAX)
            return err_set (err, TRAIN_EFORMAT,
                            "'%s.special_tokens': an id of '%.40s' is not "
                            "within 0 and %d",
                            path, name, ID_MAX - 1);
        TRY (put (after ? &t->after : &t->before,
                  after ? &t->n_after : &t->n_before, (int32_t)id, err));
    }
    return TRAIN_OK;
}

static train_status_t read_template (train_tokenizer_t *t, const json_t *item,
                                     const char *path, train_error_t *err)
{
    const json_t *single = json_object_get (item, "single");
    bool seen = false;
    json_t *part;
    size_t i;

    if (t->n_before + t->n_after > 0)
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s' is a second template: one works", path);
    json_array_foreach (single, i, part)
    {
        const json_t *special = json_object_get (part, "SpecialToken");
        const json_t *text = json_object_get (part, "Sequence");
        const char *id = json_string_value (json_object_get (text, "id"));

        if (special) {
            TRY (put_special (
                t, item, json_string_value (json_object_get (special, "id")),
                seen, path, err));
            continue;
        }
        if (!id || strcmp (id, "A") != 0 || seen)
            return err_set (err, TRAIN_EFORMAT,
                            "'%s.single[%zu]' is neither a SpecialToken nor "
                            "the one Sequence A",
                            path, i);
        seen = true;
    }
    if (!seen)
        return err_set (err, TRAIN_EFORMAT, "'%s.single' has no Sequence A",
                        path);
    return TRAIN_OK;
}

static train_status_t read_post (train_tokenizer_t *t, const json_t *item,
                                 const char *path, int deep, train_error_t *err)
{
    const char *type = json_string_value (json_object_get (item, "type"));
    const json_t *list = json_object_get (item, "processors");
    char at[96];
    json_t *part;
    size_t i;

    if (!type)
        return err_set (err, TRAIN_EFORMAT, "'%s.type' is not a string", path);
    if (strcmp (type, "ByteLevel") == 0)
        return TRAIN_OK; /* it moves offsets alone */
    if (strcmp (type, "TemplateProcessing") == 0)
        return read_template (t, item, path, err);
    if (strcmp (type, "Sequence") != 0 || !json_is_array (list) || deep > 2)
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s.type' is '%.40s': only ByteLevel, "
                        "TemplateProcessing and a Sequence of such work",
                        path, type);
    json_array_foreach (list, i, part)
    {
        snprintf (at, sizeof (at), "%.60s.processors[%zu]", path, i);
        TRY (read_post (t, part, at, deep + 1, err));
    }
    return TRAIN_OK;
}

static bool known (const train_tokenizer_t *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return true;
    return (size_t)id < t->bpe.n && t->bpe.vocab[id].s;
}

static train_status_t check_template (const train_tokenizer_t *t,
                                      train_error_t *err)
{
    for (size_t i = 0; i < t->n_before + t->n_after; i++) {
        int32_t id = i < t->n_before ? t->before[i] : t->after[i - t->n_before];

        if (!known (t, id))
            return err_set (err, TRAIN_EFORMAT,
                            "'post_processor': id %d is no token", (int)id);
    }
    return TRAIN_OK;
}

train_status_t tok_read_added (train_tokenizer_t *t, const json_t *root,
                               train_error_t *err)
{
    const json_t *post = json_object_get (root, "post_processor");

    TRY (read_tokens (t, json_object_get (root, "added_tokens"), err));
    if (!post || json_is_null (post))
        return TRAIN_OK;
    TRY (read_post (t, post, "post_processor", 0, err));
    return check_template (t, err);
}
