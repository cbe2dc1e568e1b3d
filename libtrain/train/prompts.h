/* SPDX-License-Identifier: Apache-2.0
 * train/prompts.h - prompts and answers from files of JSON lines.
 *
 * Each line that is not blank is an object: "prompt", a text or chat messages
 * [{"role": ..., "content": ...}, ...]; "answer", if there is one, a text or a
 * number; any other fields, which rewards see. Lines are read once, in order of
 * the files, and made into ids.
 *
 * A model that has a chat template sees messages by it, and a text as a user's
 * one message; a plain model sees a text as it is, behind what the tokenizer puts
 * first, and has no form for messages. Templates are those of common families,
 * told by their marks and rendered as transformers does: ChatML (Qwen2, Qwen2.5,
 * SmolLM2, Hermes; with the system message that stands in it), Qwen3, Llama 3,
 * 3.1 to 3.3 (dated 26 Jul 2024, not today), Llama 2, Mistral 7B and Mixtral
 * v0.1 and v0.2, Gemma, Gemma 2 and 3. Messages are of user and assistant,
 * the last of user; the first may be of system.
 *
 * A handle is read-only once open: any thread. */
#ifndef TRAIN_PROMPTS_H
#define TRAIN_PROMPTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/data.h>
#include <train/status.h>
#include <train/tokenizer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_prompts train_prompts_t;

typedef struct train_prompts_options {
    size_t size;       /* sizeof (train_prompts_options_t) */
    const char *files; /* paths and glob(7) patterns, separated by commas;
                          blanks around each are dropped */
    train_tokenizer_t *tokenizer; /* used by open alone */
    const char *end; /* the token that ends a text; NULL: the template's; of
                        plain the eos_token of model_dir; of bytes 256 */
    int max_ids;     /* a longer prompt is TRAIN_EINVAL; 0 = any length */
    const char *model_dir;  /* its tokenizer_config.json and chat_template.jinja
                              are looked at; NULL: none */
    const char *chat;       /* plain, chatml, qwen3, llama3, llama3.1, llama2,
                              mistral, gemma, gemma3; NULL or auto: that of
                              model_dir, plain where it has none */
    const char *system;     /* system message of prompts without; NULL: none, or
                              the template's own. Not for plain */
    const char **ret_wrong; /* where open fails, written: the name here of the
                               option at fault, "chat", "system", "end" or
                               "files", whose rows are among that; NULL */
} train_prompts_options_t;

/* train_prompts_open - read all files.
 * TRAIN_EFORMAT, "FILE:LINE: ...": a line that is no such object; TRAIN_EINVAL:
 * an option is wrong, no prompt at all, no such template, a prompt that is too
 * long or has no token, with its line; TRAIN_ENOTSUP: a template of no known
 * family; TRAIN_ENOTFOUND, TRAIN_EIO; TRAIN_ENOMEM. */
train_status_t train_prompts_open (const train_prompts_options_t *opts,
                                   train_prompts_t **ret_prompts,
                                   train_error_t *err);
void train_prompts_close (train_prompts_t *prompts); /* NULL is fine */

size_t train_prompts_count (const train_prompts_t *prompts);
/* The files with a row, in order; a name lives with the handle. */
size_t train_prompts_n_files (const train_prompts_t *prompts);
const char *train_prompts_file (const train_prompts_t *prompts, size_t index);
/* Of row [i] below count; what is returned lives with the handle. */
/* Its line, without blanks around it. */
const char *train_prompts_row (const train_prompts_t *prompts, size_t i);
/* "FILE:LINE" to [buf] (size), which is returned. */
char *train_prompts_where (const train_prompts_t *prompts, size_t i, char *buf,
                           size_t size);
/* The text that the model sees before it writes. */
const char *train_prompts_text (const train_prompts_t *prompts, size_t i);
/* That text's ids, *ret_n >= 1 of them. */
const int32_t *train_prompts_ids (const train_prompts_t *prompts, size_t i,
                                  size_t *ret_n);
/* NULL where the row has none. A number is written as JSON writes it. */
const char *train_prompts_answer (const train_prompts_t *prompts, size_t i);

/* The id that ends a completion, -1: none. A vocabulary holds it and all ids. */
int32_t train_prompts_end (const train_prompts_t *prompts);
/* XXH3 (64 bits) of all ids, answers and the end: the same when resumed. */
uint64_t train_prompts_hash (const train_prompts_t *prompts);

/* What becomes of a row that is longer than a sample. */
typedef enum train_rows_long {
    TRAIN_ROWS_REFUSE = 0, /* TRAIN_EINVAL names it */
    TRAIN_ROWS_SKIP = 1,
    TRAIN_ROWS_CUT = 2, /* at its end; skipped where no answer is left */
} train_rows_long_t;

typedef struct train_rows_options {
    size_t size; /* sizeof (train_rows_options_t) */
    int seq;     /* tokens of a sample, >= 1: a row has one more, its last */
    bool shuffle;
    uint64_t seed;
    int64_t held; /* as train_data_options_t's */
    train_rows_long_t too_long;
    train_tokenizer_t *tokenizer; /* used by the call alone */
    bool packed; /* a sample holds as many rows as go in, which do not see each
                    other (train_data_starts_at) */
} train_rows_options_t;

/* train_data_of_prompts - training samples of prompts and their answers: a row is
 * the prompt's ids, the answer's and the end token, and answer and end alone are
 * targets. The answer's ids are made apart from the prompt's, as a model that
 * generates has them.
 *   prompts       not needed afterwards
 *   ret_skipped   written: rows left out; NULL = not wanted
 * TRAIN_EINVAL: an option is wrong, a row without answer, or without a token to
 * learn, or too long, with its line; held leaves none; TRAIN_ENOMEM. */
train_status_t train_data_of_prompts (const train_rows_options_t *opts,
                                      const train_prompts_t *prompts,
                                      train_data_t **ret_data,
                                      size_t *ret_skipped, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
