/* SPDX-License-Identifier: Apache-2.0
 * fuzz_rows.c - lines of JSON with prompts: each is refused with its place, or
 * its fields are text and its messages render by every template; and a template
 * is told or refused */
#include "config.h"

#include "libtrain/chat.h"
#include "libtrain/rows.h"

#include "fuzz.h"

static void check_chat (const json_t *prompt, enum chat_family family)
{
    char bos[] = "<s>", eos[] = "</s>";
    const struct chat chat = {
        .family = family, .bos_first = true, .bos = bos, .eos = eos};
    train_error_t err = {0};
    char *text = NULL;

    if (chat_render (&chat, prompt, NULL, &text, &err) == TRAIN_OK)
        FUZZ_CHECK (text && strstr (text, bos));
    else
        FUZZ_CHECK (!text && err.code == TRAIN_EFORMAT && err.text[0]);
    free (text);
}

static train_status_t each (void *arg, const char *line, size_t size,
                            const char *file, size_t number, train_error_t *err)
{
    size_t *last = arg;
    json_t *row;
    char *text;

    (void)file;
    FUZZ_CHECK (number > *last && size > 0 && !memchr (line, '\n', size));
    *last = number;
    if (row_parse (line, size, &row, err) != TRAIN_OK)
        return err->code;
    FUZZ_CHECK (row_text (row, "answer", &text, err) == TRAIN_OK);
    free (text);
    for (int f = CHAT_PLAIN; f <= CHAT_GEMMA3; f++)
        check_chat (json_object_get (row, "prompt"), (enum chat_family)f);
    json_decref (row);
    return TRAIN_OK;
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *text = fuzz_text (data, size);
    struct chat chat = {.bos = strdup ("<s>"), .eos = strdup ("</s>")};
    train_error_t err = {0};
    size_t last = 0;

    if (rows_split (text, size, "fuzz", each, &last, &err) != TRAIN_OK)
        FUZZ_CHECK (err.code == TRAIN_EFORMAT
                    && strncmp (err.text, "fuzz:", 5) == 0);
    err.text[0] = '\0';
    if (chat_of (&chat, text, &err) != TRAIN_OK)
        FUZZ_CHECK (err.code == TRAIN_ENOTSUP && err.text[0]);
    chat_fini (&chat);
    free (text);
    return 0;
}
