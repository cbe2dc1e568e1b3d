/* SPDX-License-Identifier: Apache-2.0
 * fuzz_tokenizer.c - tokenizer.json, and behind a byte 1 a text: what is read
 * makes ids that are tokens, and of these a text */
#include "config.h"

#include <train/tokenizer.h>

#include "fuzz.h"

static void check (train_tokenizer_t *t, const char *text, size_t size)
{
    train_error_t err = {0};
    size_t n, back_size;
    int32_t *ids;
    char *back;

    if (train_tokenizer_encode (t, &ids, &n, text, size, true, NULL, &err)
        != TRAIN_OK) { /* a byte that the vocabulary lacks, by name */
        FUZZ_CHECK (err.code == TRAIN_EINVAL
                    && strstr (err.text, "has no token"));
        return;
    }
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK (ids[i] >= 0 && ids[i] < train_tokenizer_vocab (t));
    FUZZ_CHECK (
        train_tokenizer_decode (t, &back, &back_size, ids, n, false, &err)
        == TRAIN_OK);
    FUZZ_CHECK (back[back_size] == '\0');
    free (back);
    free (ids);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *all = fuzz_text (data, size), *text;
    char *cut = memchr (all, 1, size);
    size_t n = cut ? (size_t)(cut - all) : size;
    train_tokenizer_t *t = NULL;
    train_error_t err = {0};

    if (train_tokenizer_parse (all, n, &t, &err) == TRAIN_OK) {
        size_t rest = cut ? size - n - 1 : 0;

        text = fuzz_text (cut ? data + n + 1 : data, rest);
        check (t, text, rest);
        free (text);
        train_tokenizer_close (t);
    } else
        FUZZ_CHECK (!t && err.text[0] && err.code != TRAIN_OK);
    free (all);
    return 0;
}
