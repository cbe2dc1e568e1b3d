/* SPDX-License-Identifier: Apache-2.0
 * chat.h - chat messages as the text that a model was trained on. Inside
 * libtrain only.
 *
 * A template of Jinja is not run: it is recognised by its marks as one of a few
 * families, each rendered here as transformers' apply_chat_template does with
 * add_generation_prompt. One that has the marks of none is refused. */
#ifndef TRAIN_CHAT_H
#define TRAIN_CHAT_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include <train/status.h>

enum chat_family {
    CHAT_PLAIN,  /* the text alone */
    CHAT_CHATML, /* <|im_start|>role: Qwen2, Qwen2.5, SmolLM2, Hermes */
    CHAT_QWEN3,  /* the same; earlier thoughts are left out */
    CHAT_LLAMA3, /* <|start_header_id|>role<|end_header_id|> */
    CHAT_LLAMA31, /* the same with dates in the system message; 3.2 and 3.3 too */
    CHAT_LLAMA2,  /* [INST] <<SYS>> */
    CHAT_MISTRAL, /* [INST]: 7B-Instruct v0.1, v0.2, Mixtral */
    CHAT_GEMMA,   /* <start_of_turn>, without a system message */
    CHAT_GEMMA3,  /* that stands before the first user's text */
};

#define CHAT_NAMES                                                             \
    "auto, plain, chatml, qwen3, llama3, llama3.1, llama2, mistral, gemma or " \
    "gemma3"

struct chat {
    enum chat_family family;
    bool bos_first;    /* the text begins with bos */
    bool space_behind; /* of mistral: a blank after an answer's end */
    char *system;      /* what stands where no system message is given, NULL */
    char *bos, *eos;   /* the tokens' text; NULL: not known */
};

/* chat_find - the way of a model.
 *   name   one of CHAT_NAMES; NULL = auto: the template of [dir], plain where
 *          it has none
 *   dir    with chat_template.jinja or tokenizer_config.json; NULL: none
 * On failure [chat] is to be ended all the same. TRAIN_EINVAL: no such name;
 * TRAIN_ENOTSUP: a template of no known family; TRAIN_EFORMAT, TRAIN_EIO,
 * TRAIN_ENOMEM. */
train_status_t chat_find (struct chat *chat, const char *name, const char *dir,
                          train_error_t *err);
/* chat_of - the same from a template's text; bos and eos are set before. */
train_status_t chat_of (struct chat *chat, const char *text,
                        train_error_t *err);
void chat_fini (struct chat *chat);

/* chat_end - the token behind an answer, NULL: not known. Lives with [chat]. */
const char *chat_end (const struct chat *chat);

/* chat_render - the text before the answer.
 *   messages   [{"role": ..., "content": ...}, ...], the last of role user
 *   system     put first where [messages] has none; NULL
 *   ret        malloc'ed
 * TRAIN_EFORMAT: messages that the family has no form for; TRAIN_ENOMEM. */
train_status_t chat_render (const struct chat *chat, const json_t *messages,
                            const char *system, char **ret, train_error_t *err);

#endif
