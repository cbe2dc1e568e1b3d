/* SPDX-License-Identifier: Apache-2.0
 * chat_find.c - which family a model's chat template is of */
#include "chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"

#include "plan/fsio.h"

#define MAX_BYTES ((size_t)16 << 20)

static const struct {
    const char *name;
    enum chat_family family;
} names[] = {
    {"plain", CHAT_PLAIN},      {"chatml", CHAT_CHATML},
    {"qwen3", CHAT_QWEN3},      {"llama3", CHAT_LLAMA3},
    {"llama3.1", CHAT_LLAMA31}, {"llama2", CHAT_LLAMA2},
    {"mistral", CHAT_MISTRAL},  {"gemma", CHAT_GEMMA},
    {"gemma3", CHAT_GEMMA3},
};

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a chat template");
}

static train_status_t unknown (train_error_t *err)
{
    return err_set (err, TRAIN_ENOTSUP,
                    "the chat template is of no family that is known; "
                    "[data] template = NAME says which is meant: " CHAT_NAMES);
}

/* Inside quotes "\n" and a new line are the same to Jinja. */
static char *with_lines (const char *text)
{
    char *out = malloc (strlen (text) + 1), *p = out;

    if (!out)
        return NULL;
    for (; *text; text++)
        if (text[0] == '\\' && text[1] == 'n') {
            *p++ = '\n';
            text++;
        } else
            *p++ = *text;
    *p = '\0';
    return out;
}

static bool has (const char *text, const char *mark)
{
    return strstr (text, mark) != NULL;
}

/* A system message that stands in the template itself. */
static train_status_t default_system (struct chat *c, const char *text,
                                      train_error_t *err)
{
    static const char begin[] = "<|im_start|>system\n", end[] = "<|im_end|>";

    for (const char *p = text; (p = strstr (p, begin));) {
        size_t n;

        p += strlen (begin);
        n = strcspn (p, "'\"{}");
        for (size_t i = 0; i < n; i++)
            if (strncmp (p + i, end, strlen (end)) == 0) {
                c->system = strndup (p, i);
                return c->system ? TRAIN_OK : no_memory (err);
            }
    }
    return TRAIN_OK;
}

static train_status_t of_chatml (struct chat *c, const char *text,
                                 train_error_t *err)
{
    static const char *const others[] = {
        "<|im_sep|>", "bos_token", "| trim", "|trim", "/no_think",
    };

    for (size_t i = 0; i < sizeof (others) / sizeof (*others); i++)
        if (has (text, others[i]))
            return unknown (err);
    if (!has (text, "<|im_end|>") || !has (text, "<|im_start|>assistant\n"))
        return unknown (err);
    c->family = CHAT_CHATML;
    if (has (text, "<think>")) {
        /* a prompt that itself begins a thought is a later model's */
        if (!has (text, "last_query_index")
            || has (text, "<|im_start|>assistant\n<think>"))
            return unknown (err);
        c->family = CHAT_QWEN3;
        return TRAIN_OK;
    }
    if (has (text, "strip("))
        return unknown (err);
    return default_system (c, text, err);
}

static train_status_t of_llama3 (struct chat *c, const char *text,
                                 train_error_t *err)
{
    c->bos_first = has (text, "bos_token");
    c->family = CHAT_LLAMA3;
    if (!has (text, "<|eot_id|>") || !has (text, "trim"))
        return unknown (err);
    if (!has (text, "Cutting Knowledge Date"))
        return TRAIN_OK;
    c->family = CHAT_LLAMA31;
    return has (text, "Cutting Knowledge Date: December 2023")
                   && has (text, "26 Jul 2024")
               ? TRAIN_OK
               : unknown (err);
}

static train_status_t of_gemma (struct chat *c, const char *text,
                                train_error_t *err)
{
    c->bos_first = has (text, "bos_token");
    c->family =
        has (text, "System role not supported") ? CHAT_GEMMA : CHAT_GEMMA3;
    if (!has (text, "<end_of_turn>") || !has (text, "trim")
        || (c->family == CHAT_GEMMA3 && !has (text, "first_user_prefix")))
        return unknown (err);
    return TRAIN_OK;
}

static train_status_t of_inst (struct chat *c, const char *text,
                               train_error_t *err)
{
    c->family = CHAT_LLAMA2;
    if (has (text, "<<SYS>>\n"))
        return has (text, "bos_token + '[INST] ' + content.strip() + "
                          "' [/INST]'")
                       && has (text, "content.strip() + ' ' + eos_token")
                   ? TRAIN_OK
                   : unknown (err);
    c->family = CHAT_MISTRAL;
    c->bos_first = true;
    c->space_behind = has (text, "message['content'] + eos_token + ' '");
    return has (text, "{{ bos_token }}")
                   && has (text, "'[INST] ' + message['content'] + ' [/INST]'")
                   && has (text, "{{ message['content'] + eos_token")
               ? TRAIN_OK
               : unknown (err);
}

static train_status_t by_marks (struct chat *c, const char *text,
                                train_error_t *err)
{
    if (has (text, "<|im_start|>"))
        return of_chatml (c, text, err);
    if (has (text, "<|start_header_id|>"))
        return of_llama3 (c, text, err);
    if (has (text, "<start_of_turn>"))
        return of_gemma (c, text, err);
    if (has (text, "[INST]"))
        return of_inst (c, text, err);
    return unknown (err);
}

static train_status_t lacks (const char *token, train_error_t *err)
{
    return err_set (err, TRAIN_EFORMAT,
                    "the chat template has %s, and tokenizer_config.json none",
                    token);
}

/* What is put into the text must be known. */
static train_status_t check_tokens (const struct chat *c, train_error_t *err)
{
    bool turns = c->family == CHAT_LLAMA2 || c->family == CHAT_MISTRAL;

    if (!c->bos && (c->bos_first || turns))
        return lacks ("bos_token", err);
    return !c->eos && turns ? lacks ("eos_token", err) : TRAIN_OK;
}

train_status_t chat_of (struct chat *c, const char *text, train_error_t *err)
{
    char *lines = with_lines (text);
    train_status_t status = lines ? by_marks (c, lines, err) : no_memory (err);

    free (lines);
    return status == TRAIN_OK ? check_tokens (c, err) : status;
}

/* "</s>", or {"content": "</s>", ...} */
static train_status_t read_token (const json_t *config, const char *key,
                                  char **ret, train_error_t *err)
{
    const json_t *value = json_object_get (config, key);
    const char *text;

    if (json_is_object (value))
        value = json_object_get (value, "content");
    if (!(text = json_string_value (value)))
        return TRAIN_OK;
    return (*ret = strdup (text)) ? TRAIN_OK : no_memory (err);
}

/* A text, or of several [{"name": "default", "template": ...}, ...]. */
static const char *template_of (const json_t *config)
{
    const json_t *value = json_object_get (config, "chat_template"), *item;
    size_t i;

    if (json_is_string (value))
        return json_string_value (value);
    json_array_foreach (value, i, item)
    {
        const char *name = json_string_value (json_object_get (item, "name"));

        if (name && strcmp (name, "default") == 0)
            return json_string_value (json_object_get (item, "template"));
    }
    return NULL;
}

/* A file of [dir]; NULL in *ret: it is not there. */
static train_status_t slurp (const char *dir, const char *name, char **ret,
                             char **ret_path, train_error_t *err)
{
    struct rv_error e = {0};
    int rc;

    *ret = NULL;
    if (!(*ret_path = fsio_join (dir, name)))
        return no_memory (err);
    rc = fsio_read (*ret_path, MAX_BYTES, ret, NULL, &e);
    return rc == RV_OK || rc == RV_ENOTFOUND ? TRAIN_OK : err_from (err, &e);
}

static train_status_t read_config (struct chat *c, const char *dir,
                                   json_t **ret, train_error_t *err)
{
    char *text, *path;
    train_status_t status =
        slurp (dir, "tokenizer_config.json", &text, &path, err);
    json_error_t e;

    *ret = NULL;
    if (status == TRAIN_OK && text && !(*ret = json_loads (text, 0, &e)))
        status =
            err_set (err, TRAIN_EFORMAT, "%s:%d: %s", path, e.line, e.text);
    free (text);
    free (path);
    if (status == TRAIN_OK)
        status = read_token (*ret, "bos_token", &c->bos, err);
    return status == TRAIN_OK ? read_token (*ret, "eos_token", &c->eos, err)
                              : status;
}

static train_status_t of_dir (struct chat *c, const char *dir,
                              const json_t *config, train_error_t *err)
{
    char *text, *path;
    train_status_t status =
        slurp (dir, "chat_template.jinja", &text, &path, err);
    const char *found = text ? text : template_of (config);

    if (status == TRAIN_OK && found
        && (status = chat_of (c, found, err)) != TRAIN_OK)
        err_prefix (err, status, "%s", dir);
    free (text);
    free (path);
    return status;
}

/* The families' own, where the folder does not say. */
static train_status_t by_name (struct chat *c, const char *name,
                               train_error_t *err)
{
    size_t i = 0, n = sizeof (names) / sizeof (*names);

    while (i < n && strcmp (name, names[i].name) != 0)
        i++;
    if (i == n)
        return err_set (err, TRAIN_EINVAL,
                        "template '%s' is none of " CHAT_NAMES, name);
    c->family = names[i].family;
    c->bos_first = c->family == CHAT_LLAMA3 || c->family == CHAT_LLAMA31
                   || c->family == CHAT_MISTRAL || c->family == CHAT_GEMMA
                   || c->family == CHAT_GEMMA3;
    if (!c->bos && c->family != CHAT_PLAIN)
        c->bos = strdup (c->family >= CHAT_GEMMA    ? "<bos>"
                         : c->family >= CHAT_LLAMA2 ? "<s>"
                                                    : "<|begin_of_text|>");
    if (!c->eos && (c->family == CHAT_LLAMA2 || c->family == CHAT_MISTRAL))
        c->eos = strdup ("</s>");
    if (c->family != CHAT_PLAIN && check_tokens (c, NULL) != TRAIN_OK)
        return no_memory (err);
    return TRAIN_OK;
}

train_status_t chat_find (struct chat *c, const char *name, const char *dir,
                          train_error_t *err)
{
    bool automatic = !name || strcmp (name, "auto") == 0;
    train_status_t status = TRAIN_OK;
    json_t *config = NULL;

    *c = (struct chat){.family = CHAT_PLAIN};
    if (dir)
        status = read_config (c, dir, &config, err);
    if (status == TRAIN_OK && !automatic)
        status = by_name (c, name, err);
    else if (status == TRAIN_OK && dir)
        status = of_dir (c, dir, config, err);
    json_decref (config);
    return status;
}

void chat_fini (struct chat *c)
{
    free (c->system);
    free (c->bos);
    free (c->eos);
    *c = (struct chat){0};
}

const char *chat_end (const struct chat *c)
{
    switch (c->family) {
    case CHAT_CHATML:
    case CHAT_QWEN3:
        return "<|im_end|>";
    case CHAT_LLAMA3:
    case CHAT_LLAMA31:
        return "<|eot_id|>";
    case CHAT_GEMMA:
    case CHAT_GEMMA3:
        return "<end_of_turn>";
    case CHAT_PLAIN:
    case CHAT_LLAMA2:
    case CHAT_MISTRAL:
        break;
    }
    return c->eos;
}
