/* SPDX-License-Identifier: Apache-2.0
 * export_end.c - the id that ends a text, from a tokenizer's files to config.json
 *
 * A model's own files go first (model_eos); else the tokenizer's name its token by
 * text, and the vocabulary has its id. */
#include "export_files.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "libtrain/err.h"
#include "model_dir.h"
#include "plan/fsio.h"

/* NULL: it is not there, or no JSON. */
static json_t *load (const char *dir, const char *name)
{
    char *path = fsio_join (dir, name);
    json_t *root = path ? json_load_file (path, 0, NULL) : NULL;

    free (path);
    return root;
}

/* "</s>", or {"content": "</s>", ...} */
static const char *text_of (const json_t *token)
{
    return json_string_value (
        json_is_object (token) ? json_object_get (token, "content") : token);
}

static int64_t added_id (const json_t *tokenizer, const char *text)
{
    const json_t *item;
    size_t i;

    json_array_foreach (json_object_get (tokenizer, "added_tokens"), i, item)
    {
        const char *own = text_of (item);

        if (own && strcmp (own, text) == 0)
            return json_integer_value (json_object_get (item, "id"));
    }
    return -1;
}

static int64_t decoder_id (const json_t *config, const char *text)
{
    json_t *all = json_object_get (config, "added_tokens_decoder"), *item;
    const char *id;

    json_object_foreach (all, id, item)
    {
        const char *own = text_of (item);

        if (own && strcmp (own, text) == 0)
            return strtoll (id, NULL, 10);
    }
    return -1;
}

static int64_t find_id (const char *dir, const json_t *config, const char *text)
{
    json_t *tokenizer = load (dir, "tokenizer.json"), *id;
    int64_t found = added_id (tokenizer, text);

    if (found < 0)
        found = decoder_id (config, text);
    id = json_object_get (
        json_object_get (json_object_get (tokenizer, "model"), "vocab"), text);
    if (found < 0 && json_is_integer (id))
        found = json_integer_value (id);
    json_decref (tokenizer);
    return found;
}

/* By the token that the tokenizer's files name. */
static size_t named_end (const char *dir, int32_t *ret)
{
    json_t *config = load (dir, "tokenizer_config.json"), *map = NULL;
    const char *text = text_of (json_object_get (config, "eos_token"));
    int64_t id = -1;

    if (!text) {
        map = load (dir, "special_tokens_map.json");
        text = text_of (json_object_get (map, "eos_token"));
    }
    if (text)
        id = find_id (dir, config, text);
    json_decref (map);
    json_decref (config);
    if (id < 0 || id > INT32_MAX)
        return 0;
    *ret = (int32_t)id;
    return 1;
}

train_status_t export_end_find (const char *dir, int vocab,
                                struct export_end *ret, train_error_t *err)
{
    ret->n = model_eos (dir, ret->id, EXPORT_ENDS);
    if (ret->n == 0)
        ret->n = named_end (dir, ret->id);
    for (size_t i = 0; i < ret->n; i++)
        if (ret->id[i] >= vocab)
            return err_set (err, TRAIN_EINVAL,
                            "%s: the token that ends a text is %d, and the "
                            "model has %d: it is another model's; name the one "
                            "that its data were read with",
                            dir, ret->id[i], vocab);
    return TRAIN_OK;
}

/* A file that names no end gets it. */
static train_status_t put (const char *dir, const char *name,
                           const struct export_end *end, train_error_t *err)
{
    char *path = fsio_join (dir, name), *text = NULL;
    json_t *root = load (dir, name), *ids = json_array ();
    struct rv_error e = {0};
    int rc = RV_OK;

    for (size_t i = 0; i < end->n; i++)
        json_array_append_new (ids, json_integer (end->id[i]));
    if (json_is_object (root)
        && (!json_object_get (root, "eos_token_id")
            || json_is_null (json_object_get (root, "eos_token_id")))) {
        json_object_set (root, "eos_token_id",
                         end->n == 1 ? json_array_get (ids, 0) : ids);
        text = json_dumps (root, JSON_INDENT (2));
        rc = path && text ? fsio_write (path, text, strlen (text), 0666, &e)
                          : error_set (&e, RV_ENOMEM, "no memory for %s", name);
    }
    free (text);
    free (path);
    json_decref (ids);
    json_decref (root);
    return rc == RV_OK ? TRAIN_OK : err_from (err, &e);
}

train_status_t export_end_put (const char *dir, const struct export_end *end,
                               train_error_t *err)
{
    if (end->n == 0)
        return TRAIN_OK;
    TRY (put (dir, "config.json", end, err));
    return put (dir, "generation_config.json", end, err);
}
