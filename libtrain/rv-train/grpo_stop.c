/* SPDX-License-Identifier: Apache-2.0
 * grpo_stop.c - what ends a completion: ids, and texts
 *
 * A text is looked for in the last tokens alone: as many as it has bytes, and
 * some for what a token shows of those before it. */
#include "config.h"

#include "grpo_stop.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "libtrain/err.h"

/* Of ids in a setting; of a model's own; of tokens looked at in vain. */
enum { MOST = 32, OWN = 9, SLACK = 8 };

struct grpo_stop {
    train_tokenizer_t *tokenizer;
    json_t *texts; /* strings that are looked for; NULL: none */
    size_t longest;
    int32_t ends[MOST + OWN];
    size_t n_ends;
    uint64_t hash; /* of texts */
};

static train_status_t refuse (const struct settings *set, const char *key,
                              const char *why, train_error_t *err)
{
    char where[256];

    return err_set (err, TRAIN_EINVAL, "%s: %s",
                    settings_where (set, "grpo", key, where, sizeof (where)),
                    why);
}

/* A bare text stands as it is; one that JSON's escapes are meant in says so. */
static json_t *parse_texts (const char *value)
{
    json_t *text;

    if (*value == '[')
        return json_loads (value, 0, NULL);
    if (*value != '"')
        return strchr (value, '\\') ? NULL : json_pack ("[s]", value);
    text = json_loads (value, JSON_DECODE_ANY, NULL);
    return text ? json_pack ("[o]", text) : NULL;
}

static train_status_t add_id (struct grpo_stop *s, const struct settings *set,
                              const char *key, int32_t id, train_error_t *err)
{
    if (s->n_ends == MOST)
        return refuse (set, key, "has more than 32 ids", err);
    s->ends[s->n_ends++] = id;
    return TRAIN_OK;
}

static train_status_t read_text (struct grpo_stop *s,
                                 const struct settings *set, json_t *text,
                                 train_error_t *err)
{
    const char *value = json_string_value (text);
    size_t n = json_string_length (text);
    int32_t id;

    if (n == 0)
        return refuse (set, "stop", "has what is no text, or is empty", err);
    if ((id = train_tokenizer_hidden (s->tokenizer, value)) >= 0)
        return add_id (s, set, "stop", id, err);
    s->longest = n > s->longest ? n : s->longest;
    s->hash = XXH3_64bits_withSeed (value, n, s->hash + n);
    return json_array_append (s->texts, text) == 0
               ? TRAIN_OK
               : err_set (err, TRAIN_ENOMEM, "no memory for stops");
}

static train_status_t read_texts (struct grpo_stop *s,
                                  const struct settings *set,
                                  train_error_t *err)
{
    const char *value = set->grpo.stop;
    train_status_t status = TRAIN_OK;
    json_t *all;

    if (!value || !*value)
        return TRAIN_OK;
    if (!(all = parse_texts (value)))
        return refuse (set, "stop",
                       "is neither a text without \\ nor JSON, a text or an "
                       "array of them ([\"</answer>\", \"\\n\\n\"])",
                       err);
    if (!(s->texts = json_array ()))
        status = err_set (err, TRAIN_ENOMEM, "no memory for stops");
    for (size_t i = 0; status == TRAIN_OK && i < json_array_size (all); i++)
        status = read_text (s, set, json_array_get (all, i), err);
    json_decref (all);
    return status;
}

static train_status_t read_ids (struct grpo_stop *s, const struct settings *set,
                                train_error_t *err)
{
    const char *at = set->grpo.stop_ids;
    int vocab = train_tokenizer_vocab (s->tokenizer);
    char *end;

    while (at && *at) {
        long id = strtol (at, &end, 10);

        if (end == at || id < 0 || id >= vocab)
            return refuse (set, "stop_ids",
                           "is no list of ids of the tokenizer (2, 7)", err);
        TRY (add_id (s, set, "stop_ids", (int32_t)id, err));
        at = end + strspn (end, ", ");
        if (*end && at == end)
            return refuse (set, "stop_ids",
                           "is no list of ids of the tokenizer (2, 7)", err);
    }
    return TRAIN_OK;
}

train_status_t grpo_stop_open (struct grpo_stop **ret,
                               const struct settings *set,
                               train_tokenizer_t *tokenizer, train_error_t *err)
{
    struct grpo_stop *s = calloc (1, sizeof (*s));

    if (!s)
        return err_set (err, TRAIN_ENOMEM, "no memory for stops");
    *ret = s;
    s->tokenizer = tokenizer;
    TRY (read_texts (s, set, err));
    return read_ids (s, set, err);
}

void grpo_stop_close (struct grpo_stop *s)
{
    if (!s)
        return;
    json_decref (s->texts);
    free (s);
}

void grpo_stop_add (struct grpo_stop *s, int32_t id)
{
    if (id >= 0 && s->n_ends < MOST + OWN && !grpo_stop_is_end (s, id))
        s->ends[s->n_ends++] = id;
}

bool grpo_stop_is_end (const struct grpo_stop *s, int32_t id)
{
    for (size_t i = 0; i < s->n_ends; i++)
        if (s->ends[i] == id)
            return true;
    return false;
}

bool grpo_stop_is_none (const struct grpo_stop *s)
{
    return s->n_ends == 0 && json_array_size (s->texts) == 0;
}

/* Ids that are no token are no text, and stop nothing. */
static bool stops (void *arg, const int32_t *ids, int n)
{
    const struct grpo_stop *s = arg;
    size_t most = s->longest + SLACK, size, i;
    size_t tail = (size_t)n < most ? (size_t)n : most;
    bool found = false;
    char *text = NULL;
    train_error_t err;
    json_t *stop;

    if (train_tokenizer_decode (s->tokenizer, &text, &size,
                                ids + ((size_t)n - tail), tail, true, &err)
        != TRAIN_OK)
        return false;
    json_array_foreach (s->texts, i, stop) found |=
        memmem (text, size, json_string_value (stop), json_string_length (stop))
        != NULL;
    free (text);
    return found;
}

void grpo_stop_options (struct grpo_stop *s, train_grpo_trainer_options_t *o)
{
    o->ends = s->ends;
    o->n_ends = s->n_ends;
    if (json_array_size (s->texts) == 0)
        return;
    o->stops = stops;
    o->stops_arg = s;
    o->stops_hash = s->hash;
}
