/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_vocab.c - vocabulary and merges of a BPE model */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "err.h"
#include "tokenizer_impl.h"

#define IDS_MAX (1 << 24)

static train_status_t make_map (struct tok_map *map, const struct tok_str *strs,
                                size_t n, train_error_t *err)
{
    size_t size = 16;

    while (size < 2 * n)
        size *= 2;
    map->mask = size - 1;
    if (!(map->slot = calloc (size, sizeof (*map->slot))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", n);
    for (size_t i = 0; i < n; i++) {
        size_t at;

        if (!strs[i].s)
            continue;
        at = XXH3_64bits (strs[i].s, strs[i].n) & map->mask;
        while (map->slot[at])
            at = (at + 1) & map->mask;
        map->slot[at] = (uint32_t)i + 1;
    }
    return TRAIN_OK;
}

int32_t tok_map_find (const struct tok_map *map, const struct tok_str *strs,
                      const char *s, size_t n)
{
    size_t at = XXH3_64bits (s, n) & map->mask;

    for (; map->slot[at]; at = (at + 1) & map->mask) {
        const struct tok_str *x = &strs[map->slot[at] - 1];

        if (x->n == n && memcmp (x->s, s, n) == 0)
            return (int32_t)map->slot[at] - 1;
    }
    return -1;
}

/* Printable bytes stand for themselves, the others for U+0100 and on, in turn. */
static bool itself (uint32_t b)
{
    return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac)
           || (b >= 0xae && b <= 0xff);
}

static uint32_t char_of (uint8_t byte)
{
    uint32_t c = 0x100;

    if (itself (byte))
        return byte;
    for (uint32_t b = 0; b < byte; b++)
        c += !itself (b);
    return c;
}

int tok_byte_of (uint32_t c)
{
    if (c < 0x100)
        return itself (c) ? (int)c : -1;
    for (uint32_t b = 0, other = 0x100; b < 256 && c < 0x144; b++)
        if (!itself (b) && other++ == c)
            return (int)b;
    return -1;
}

static train_status_t copy (struct tok_str *to, const char *s, size_t n,
                            train_error_t *err)
{
    if (!(to->s = malloc (n + 1)))
        return err_set (err, TRAIN_ENOMEM, "no memory for a token");
    memcpy (to->s, s, n);
    to->s[n] = '\0';
    to->n = n;
    return TRAIN_OK;
}

static train_status_t read_vocab (struct tok_bpe *b, json_t *vocab,
                                  train_error_t *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object (vocab) || json_object_size (vocab) == 0)
        return err_set (err, TRAIN_EFORMAT,
                        "'model.vocab' is not an object of ids");
    json_object_foreach (vocab, key, value)
    {
        json_int_t id = json_integer_value (value);

        if (!json_is_integer (value) || id < 0 || id >= IDS_MAX)
            return err_set (err, TRAIN_EFORMAT,
                            "'model.vocab': the id of '%.40s' is not within 0 "
                            "and %d",
                            key, IDS_MAX - 1);
        b->n = (size_t)id >= b->n ? (size_t)id + 1 : b->n;
    }
    if (b->n > 64 * json_object_size (vocab) + 65536)
        return err_set (err, TRAIN_EFORMAT,
                        "'model.vocab' has %zu tokens with ids up to %zu",
                        json_object_size (vocab), b->n - 1);
    if (!(b->vocab = calloc (b->n, sizeof (*b->vocab))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", b->n);
    json_object_foreach (vocab, key, value)
    {
        struct tok_str *to = &b->vocab[json_integer_value (value)];

        if (to->s)
            return err_set (err, TRAIN_EFORMAT,
                            "'model.vocab': '%.40s' and '%.40s' have one id",
                            to->s, key);
        TRY (copy (to, key, strlen (key), err));
    }
    return make_map (&b->map, b->vocab, b->n, err);
}

/* The bytes that a token's characters stand for; none where some does not. */
static train_status_t to_bytes (const struct tok_str *from, struct tok_str *to,
                                train_error_t *err)
{
    size_t n = 0;

    if (!from->s || from->n == 0)
        return TRAIN_OK;
    TRY (copy (to, from->s, from->n, err));
    for (size_t i = 0, k; i < from->n; i += k) {
        int byte = tok_byte_of (utf8_get (from->s + i, &k));

        if (byte < 0) {
            free (to->s);
            to->s = NULL;
            return TRAIN_OK;
        }
        to->s[n++] = (char)byte;
    }
    to->n = n;
    return TRAIN_OK;
}

static train_status_t read_bytes (struct tok_bpe *b, train_error_t *err)
{
    char name[8];

    for (int i = 0; i < 256; i++) {
        size_t n = b->byte_level
                       ? utf8_put (name, char_of ((uint8_t)i))
                       : (size_t)snprintf (name, sizeof (name), "<0x%02X>", i);

        b->of_byte[i] = tok_map_find (&b->map, b->vocab, name, n);
        if (!b->byte_level && b->of_byte[i] < 0 && b->unk < 0)
            return err_set (err, TRAIN_ENOTSUP,
                            "'model.unk_token' names no token and %s: text "
                            "without a token would be lost",
                            b->byte_fallback ? "some byte has none"
                                             : "byte_fallback is off");
    }
    if (!b->byte_level)
        return TRAIN_OK;
    if (!(b->bytes = calloc (b->n, sizeof (*b->bytes))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", b->n);
    for (size_t i = 0; i < b->n; i++)
        TRY (to_bytes (&b->vocab[i], &b->bytes[i], err));
    return make_map (&b->map_bytes, b->bytes, b->n, err);
}

static void put_merge (struct tok_bpe *b, uint64_t pair, uint32_t rank,
                       int32_t id)
{
    size_t at = (size_t)(pair * UINT64_C (0x9e3779b97f4a7c15) >> b->shift);

    while (b->merges[at].pair != TOK_NO_PAIR && b->merges[at].pair != pair)
        at = (at + 1) & b->mask;
    b->merges[at] = (struct tok_merge){pair, rank, id};
}

/* Both sides of "a b" or ["a","b"]. */
static bool sides (const json_t *item, struct tok_str side[2])
{
    if (json_is_array (item)) {
        for (size_t i = 0; i < 2; i++) {
            const json_t *x = json_array_get (item, i);

            side[i].s = (char *)json_string_value (x);
            side[i].n = json_string_length (x);
        }
        return json_array_size (item) == 2 && side[0].s && side[1].s;
    }
    side[0].s = (char *)json_string_value (item);
    side[1].s = side[0].s ? strchr (side[0].s, ' ') : NULL;
    if (!side[1].s)
        return false;
    side[0].n = (size_t)(side[1].s - side[0].s);
    side[1].s++;
    side[1].n = json_string_length (item) - side[0].n - 1;
    return !memchr (side[1].s, ' ', side[1].n);
}

static train_status_t read_merge (struct tok_bpe *b, const json_t *item,
                                  size_t i, struct tok_buf *both,
                                  train_error_t *err)
{
    struct tok_str side[2];
    int32_t left, right, id;

    if (!sides (item, side))
        return err_set (err, TRAIN_EFORMAT,
                        "'model.merges[%zu]' is not \"a b\" or [\"a\", \"b\"]",
                        i);
    both->n = 0;
    tok_buf_add (both, side[0].s, side[0].n);
    tok_buf_add (both, side[1].s, side[1].n);
    if (both->failed)
        return err_set (err, TRAIN_ENOMEM, "no memory for merges");
    left = tok_map_find (&b->map, b->vocab, side[0].s, side[0].n);
    right = tok_map_find (&b->map, b->vocab, side[1].s, side[1].n);
    id = tok_map_find (&b->map, b->vocab, both->p, both->n);
    if (left < 0 || right < 0 || id < 0)
        return err_set (err, TRAIN_EFORMAT,
                        "'model.merges[%zu]': '%.*s' is not in 'model.vocab'",
                        i, (int)(both->n < 40 ? both->n : 40),
                        left < 0    ? side[0].s
                        : right < 0 ? side[1].s
                                    : both->p);
    put_merge (b, (uint64_t)(uint32_t)left << 32 | (uint32_t)right, (uint32_t)i,
               id);
    return TRAIN_OK;
}

static train_status_t read_merges (struct tok_bpe *b, const json_t *merges,
                                   train_error_t *err)
{
    struct tok_buf both = {0};
    train_status_t status = TRAIN_OK;
    size_t size = 16, i;
    json_t *item;

    if (!json_is_array (merges))
        return err_set (err, TRAIN_EFORMAT, "'model.merges' is not a list");
    b->shift = 60;
    for (; size < 2 * json_array_size (merges); size *= 2)
        b->shift--;
    b->mask = size - 1;
    if (!(b->merges = malloc (size * sizeof (*b->merges))))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu merges", size);
    for (i = 0; i < size; i++)
        b->merges[i].pair = TOK_NO_PAIR;
    json_array_foreach (merges, i, item)
    {
        const char *text = json_string_value (item);

        if (text && strncmp (text, "#version", 8) == 0)
            continue;
        if ((status = read_merge (b, item, i, &both, err)) != TRAIN_OK)
            break;
    }
    free (both.p);
    return status;
}

static train_status_t read_unk (struct tok_bpe *b, const json_t *model,
                                train_error_t *err)
{
    const json_t *unk = json_object_get (model, "unk_token");
    const char *text = json_string_value (unk);

    b->unk = -1;
    if (!unk || json_is_null (unk))
        return TRAIN_OK;
    if (text)
        b->unk =
            tok_map_find (&b->map, b->vocab, text, json_string_length (unk));
    if (b->unk < 0)
        return err_set (err, TRAIN_EFORMAT,
                        "'model.unk_token' is no token of 'model.vocab'");
    return TRAIN_OK;
}

/* What only its absence is served of. */
static train_status_t refuse (const json_t *model, train_error_t *err)
{
    static const char *const none[] = {"continuing_subword_prefix",
                                       "end_of_word_suffix"};
    const json_t *type = json_object_get (model, "type");
    const json_t *drop = json_object_get (model, "dropout");

    if (!json_is_object (model))
        return err_set (err, TRAIN_EFORMAT, "'model' is not an object");
    if (type
        && strcmp (json_string_value (type) ? json_string_value (type) : "",
                   "BPE")
               != 0)
        return err_set (err, TRAIN_ENOTSUP,
                        "'model.type' is '%.40s': only BPE works",
                        json_string_value (type) ? json_string_value (type)
                                                 : "(no string)");
    if (drop && !json_is_null (drop)
        && (!json_is_number (drop) || json_number_value (drop) != 0))
        return err_set (err, TRAIN_ENOTSUP,
                        "'model.dropout' is set: only null works");
    for (size_t i = 0; i < 2; i++) {
        const json_t *x = json_object_get (model, none[i]);

        if (x && !json_is_null (x) && json_string_length (x) != 0)
            return err_set (err, TRAIN_ENOTSUP,
                            "'model.%s' is set: only null works", none[i]);
    }
    return TRAIN_OK;
}

train_status_t tok_bpe_read (struct tok_bpe *b, const json_t *model,
                             train_error_t *err)
{
    TRY (refuse (model, err));
    TRY (tok_bool (model, "byte_fallback", false, "model", &b->byte_fallback,
                   err));
    TRY (tok_bool (model, "fuse_unk", false, "model", &b->fuse_unk, err));
    TRY (tok_bool (model, "ignore_merges", false, "model", &b->ignore_merges,
                   err));
    TRY (read_vocab (b, json_object_get (model, "vocab"), err));
    TRY (read_unk (b, model, err));
    TRY (read_bytes (b, err));
    TRY (read_merges (b, json_object_get (model, "merges"), err));
    if (!(b->cache = calloc (TOK_CACHE, sizeof (*b->cache))))
        return err_set (err, TRAIN_ENOMEM, "no memory for the cache");
    return TRAIN_OK;
}

static void free_strs (struct tok_str *strs, size_t n)
{
    for (size_t i = 0; strs && i < n; i++)
        free (strs[i].s);
    free (strs);
}

void tok_bpe_free (struct tok_bpe *b)
{
    free_strs (b->vocab, b->n);
    free_strs (b->bytes, b->n);
    free (b->map.slot);
    free (b->map_bytes.slot);
    free (b->merges);
    free (b->cache);
    free (b->symbols);
    free (b->heap);
}
