/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_json.c - normalizer, pre-tokenizer and decoder of a tokenizer.json
 *
 * Each is null, one component, or a Sequence of such. What is not known by name
 * is refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tokenizer_impl.h"

#define PATH_MAX_ 192
#define DEEP      4

train_status_t tok_string (const json_t *object, const char *key,
                           const char *path, struct tok_str *ret,
                           train_error_t *err)
{
    const json_t *value = json_object_get (object, key);
    size_t n = json_string_length (value);

    if (!json_is_string (value))
        return err_set (err, TRAIN_EFORMAT, "'%s.%s' is not a string", path,
                        key);
    free (ret->s);
    if (!(ret->s = malloc (n + 1)))
        return err_set (err, TRAIN_ENOMEM, "no memory for '%s.%s'", path, key);
    memcpy (ret->s, json_string_value (value), n + 1);
    ret->n = n;
    return TRAIN_OK;
}

train_status_t tok_bool (const json_t *object, const char *key, int fallback,
                         const char *path, bool *ret, train_error_t *err)
{
    const json_t *value = json_object_get (object, key);

    *ret = fallback == true;
    if (!value || json_is_null (value)) {
        if (fallback < 0)
            return err_set (err, TRAIN_EFORMAT, "'%s.%s' is missing", path,
                            key);
        return TRAIN_OK;
    }
    if (!json_is_boolean (value))
        return err_set (err, TRAIN_EFORMAT, "'%s.%s' is not true or false",
                        path, key);
    *ret = json_is_true (value);
    return TRAIN_OK;
}

static train_status_t unknown (const char *path, const char *key,
                               const char *value, const char *served,
                               train_error_t *err)
{
    return err_set (err, TRAIN_ENOTSUP, "'%s.%s' is '%s': only %s work", path,
                    key, value, served);
}

/* {"String": ...} that is not empty; a Regex is not served here. */
static train_status_t pattern (const json_t *item, const char *path,
                               struct tok_str *ret, train_error_t *err)
{
    const json_t *p = json_object_get (item, "pattern");
    const char *regex = json_string_value (json_object_get (p, "Regex"));
    char at[PATH_MAX_ + 16];

    snprintf (at, sizeof (at), "%s.pattern", path);
    if (regex)
        return unknown (at, "Regex", regex, "strings", err);
    TRY (tok_string (p, "String", at, ret, err));
    if (ret->n == 0)
        return err_set (err, TRAIN_EFORMAT, "'%s.String' is empty", at);
    return TRAIN_OK;
}

static train_status_t read_norm (train_tokenizer_t *t, const json_t *item,
                                 const char *type, const char *path,
                                 train_error_t *err)
{
    struct tok_norm *n = &t->norm[t->n_norm++];

    if (strcmp (type, "NFC") == 0) {
        n->kind = NORM_NFC;
        return TRAIN_OK;
    }
    if (strcmp (type, "Prepend") == 0) {
        n->kind = NORM_PREPEND;
        return tok_string (item, "prepend", path, &n->to, err);
    }
    if (strcmp (type, "Replace") == 0) {
        n->kind = NORM_REPLACE;
        TRY (pattern (item, path, &n->from, err));
        return tok_string (item, "content", path, &n->to, err);
    }
    return unknown (path, "type", type, "NFC, Prepend, Replace and Sequence",
                    err);
}

/* Old files have add_prefix_space alone. */
static train_status_t read_scheme (const json_t *item, const char *path,
                                   enum tok_scheme *ret, train_error_t *err)
{
    static const char *const name[] = {"always", "first", "never"};
    const json_t *value = json_object_get (item, "prepend_scheme");
    const char *text = json_string_value (value);
    bool prefix;

    TRY (tok_bool (item, "add_prefix_space", true, path, &prefix, err));
    *ret = prefix ? META_ALWAYS : META_NEVER;
    if (!value)
        return TRAIN_OK;
    for (int i = 0; text && i < 3; i++)
        if (strcmp (text, name[i]) == 0) {
            *ret = (enum tok_scheme)i;
            return TRAIN_OK;
        }
    return unknown (path, "prepend_scheme", text ? text : "(no string)",
                    "always, first and never", err);
}

static train_status_t read_mark (const json_t *item, const char *path,
                                 struct tok_str *ret, train_error_t *err)
{
    TRY (tok_string (item, "replacement", path, ret, err));
    if (ret->n == 0)
        return err_set (err, TRAIN_EFORMAT, "'%s.replacement' is empty", path);
    return TRAIN_OK;
}

static train_status_t read_split (struct tok_pre *p, const json_t *item,
                                  const char *path, train_error_t *err)
{
    const json_t *what = json_object_get (item, "pattern");
    const char *regex = json_string_value (json_object_get (what, "Regex"));
    const char *behavior =
        json_string_value (json_object_get (item, "behavior"));
    bool invert;
    char at[PATH_MAX_ + 16];

    p->kind = PRE_SPLIT;
    snprintf (at, sizeof (at), "%s.pattern", path);
    if (!regex && json_object_get (what, "String"))
        return unknown (at, "String",
                        json_string_value (json_object_get (what, "String")),
                        "a Regex of GPT-2, Llama 3 or Qwen2 does", err);
    if (!regex)
        return err_set (err, TRAIN_EFORMAT, "'%s.Regex' is missing", at);
    if (!(p->scan = tok_scan_of (regex)))
        return unknown (at, "Regex", regex,
                        "the patterns of GPT-2, Llama 3 and Qwen2", err);
    if (!behavior || strcmp (behavior, "Isolated") != 0)
        return unknown (path, "behavior", behavior ? behavior : "(no string)",
                        "Isolated does", err);
    TRY (tok_bool (item, "invert", false, path, &invert, err));
    return invert ? unknown (path, "invert", "true", "false does", err)
                  : TRAIN_OK;
}

static train_status_t read_pre (train_tokenizer_t *t, const json_t *item,
                                const char *type, const char *path,
                                train_error_t *err)
{
    struct tok_pre *p = &t->pre[t->n_pre++];
    bool regex;

    if (t->bpe.byte_level)
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s' comes after ByteLevel: that works as the last "
                        "alone",
                        path);
    if (strcmp (type, "ByteLevel") == 0) {
        p->kind = PRE_BYTES;
        t->bpe.byte_level = true;
        TRY (tok_bool (item, "add_prefix_space", -1, path, &p->prefix, err));
        TRY (tok_bool (item, "use_regex", true, path, &regex, err));
        p->scan = regex ? tok_scan_gpt2 : NULL;
        return TRAIN_OK;
    }
    if (strcmp (type, "Digits") == 0) {
        p->kind = PRE_DIGITS;
        return tok_bool (item, "individual_digits", false, path, &p->each, err);
    }
    if (strcmp (type, "Metaspace") == 0) {
        p->kind = PRE_META;
        TRY (read_scheme (item, path, &p->scheme, err));
        TRY (tok_bool (item, "split", true, path, &p->split, err));
        return read_mark (item, path, &p->mark, err);
    }
    if (strcmp (type, "Split") == 0)
        return read_split (p, item, path, err);
    return unknown (path, "type", type,
                    "ByteLevel, Digits, Metaspace, Split and Sequence", err);
}

static train_status_t read_count (const json_t *item, const char *key,
                                  const char *path, int *ret,
                                  train_error_t *err)
{
    const json_t *value = json_object_get (item, key);
    json_int_t n = json_integer_value (value);

    if (!json_is_integer (value) || n < 0 || n > 1 << 20)
        return err_set (err, TRAIN_EFORMAT,
                        "'%s.%s' is not a whole number from 0 on", path, key);
    *ret = (int)n;
    return TRAIN_OK;
}

static train_status_t read_dec (train_tokenizer_t *t, const json_t *item,
                                const char *type, const char *path,
                                train_error_t *err)
{
    static const char *const name[] = {"ByteLevel", "ByteFallback", "Fuse",
                                       "Metaspace", "Replace",      "Strip"};
    struct tok_dec *d = &t->dec[t->n_dec++];
    int kind = 0;

    while (kind < 6 && strcmp (type, name[kind]) != 0)
        kind++;
    if (kind == 6)
        return unknown (path, "type", type,
                        "ByteLevel, ByteFallback, Fuse, Metaspace, Replace, "
                        "Strip and Sequence",
                        err);
    d->kind = (enum tok_dec_kind)kind;
    if (d->kind == DEC_META) {
        TRY (read_scheme (item, path, &d->scheme, err));
        return read_mark (item, path, &d->from, err);
    }
    if (d->kind == DEC_REPLACE) {
        TRY (pattern (item, path, &d->from, err));
        return tok_string (item, "content", path, &d->to, err);
    }
    if (d->kind == DEC_STRIP) {
        TRY (tok_string (item, "content", path, &d->from, err));
        if (d->from.n == 0)
            return err_set (err, TRAIN_EFORMAT, "'%s.content' is empty", path);
        TRY (read_count (item, "start", path, &d->start, err));
        return read_count (item, "stop", path, &d->stop, err);
    }
    return TRAIN_OK;
}

struct chain {
    const char *list; /* key of a Sequence's parts */
    train_status_t (*read) (train_tokenizer_t *t, const json_t *item,
                            const char *type, const char *path,
                            train_error_t *err);
    size_t *n;
};

static train_status_t walk (train_tokenizer_t *t, const struct chain *c,
                            const json_t *item, const char *path, int deep,
                            train_error_t *err)
{
    const char *type = json_string_value (json_object_get (item, "type"));
    const json_t *parts = json_object_get (item, c->list);
    json_t *part;
    size_t i;

    if (!type)
        return err_set (err, TRAIN_EFORMAT, "'%s.type' is not a string", path);
    if (strcmp (type, "Sequence") != 0) {
        if (*c->n == TOKENIZER_STEPS)
            return err_set (err, TRAIN_ENOTSUP,
                            "'%s' is step %d: at most %d work", path,
                            TOKENIZER_STEPS + 1, TOKENIZER_STEPS);
        return c->read (t, item, type, path, err);
    }
    if (!json_is_array (parts))
        return err_set (err, TRAIN_EFORMAT, "'%s.%s' is not a list", path,
                        c->list);
    if (deep == DEEP)
        return err_set (err, TRAIN_ENOTSUP,
                        "'%s' is a Sequence within %d others", path, DEEP);
    json_array_foreach (parts, i, part)
    {
        char at[PATH_MAX_];

        snprintf (at, sizeof (at), "%s.%s[%zu]", path, c->list, i);
        TRY (walk (t, c, part, at, deep + 1, err));
    }
    return TRAIN_OK;
}

static train_status_t read_chain (train_tokenizer_t *t, const struct chain *c,
                                  const json_t *root, const char *key,
                                  train_error_t *err)
{
    const json_t *item = json_object_get (root, key);

    if (!item || json_is_null (item))
        return TRAIN_OK;
    return walk (t, c, item, key, 0, err);
}

train_status_t tok_read_steps (train_tokenizer_t *t, const json_t *root,
                               train_error_t *err)
{
    static const char *const none[] = {"truncation", "padding"};
    const struct chain norm = {"normalizers", read_norm, &t->n_norm};
    const struct chain pre = {"pretokenizers", read_pre, &t->n_pre};
    const struct chain dec = {"decoders", read_dec, &t->n_dec};

    for (size_t i = 0; i < 2; i++) {
        const json_t *x = json_object_get (root, none[i]);

        if (x && !json_is_null (x))
            return err_set (err, TRAIN_ENOTSUP, "'%s' is set: only null works",
                            none[i]);
    }
    TRY (read_chain (t, &norm, root, "normalizer", err));
    TRY (read_chain (t, &pre, root, "pre_tokenizer", err));
    return read_chain (t, &dec, root, "decoder", err);
}
