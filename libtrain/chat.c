/* SPDX-License-Identifier: Apache-2.0
 * chat.c - chat messages as the text that a model was trained on */
#include "chat.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"

#define BLANKS " \t\r\n\f\v" /* as Jinja's trim and Python's strip, of ASCII */
#define DATES                                                                  \
    "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

/* A text that grows. */
struct text {
    char *p;
    size_t n, cap;
    bool failed;
};

struct message {
    const char *role, *content;
};

/* What is rendered, checked. */
struct talk {
    const struct chat *chat;
    const char *system; /* NULL: none */
    struct message *m;  /* (n): user and assistant, the last of user */
    size_t n;
};

static void add_n (struct text *t, const char *s, size_t n)
{
    if (t->n + n + 1 > t->cap && !t->failed) {
        size_t cap = 2 * (t->n + n + 1);
        char *p = realloc (t->p, cap);

        t->failed = !p;
        if (p) {
            t->p = p;
            t->cap = cap;
        }
    }
    if (t->failed)
        return;
    memcpy (t->p + t->n, s, n);
    t->n += n;
    t->p[t->n] = '\0';
}

static void add (struct text *t, const char *s)
{
    add_n (t, s, strlen (s));
}

static void add_trimmed (struct text *t, const char *s)
{
    size_t n;

    s += strspn (s, BLANKS);
    n = strlen (s);
    while (n > 0 && strchr (BLANKS, s[n - 1]))
        n--;
    add_n (t, s, n);
}

static void chatml_turn (struct text *t, const char *role, const char *content)
{
    add (t, "<|im_start|>");
    add (t, role);
    add (t, "\n");
    add (t, content);
    add (t, "<|im_end|>\n");
}

static void chatml (struct text *t, const struct talk *k)
{
    if (k->system)
        chatml_turn (t, "system", k->system);
    for (size_t i = 0; i < k->n; i++)
        chatml_turn (t, k->m[i].role, k->m[i].content);
    add (t, "<|im_start|>assistant\n");
}

/* All answers stand before the last question: what they thought is dropped. */
static void qwen3 (struct text *t, const struct talk *k)
{
    if (k->system)
        chatml_turn (t, "system", k->system);
    for (size_t i = 0; i < k->n; i++) {
        const char *content = k->m[i].content, *p = content;

        while (strcmp (k->m[i].role, "assistant") == 0
               && (p = strstr (p, "</think>"))) {
            p += strlen ("</think>");
            content = p + strspn (p, "\n");
        }
        chatml_turn (t, k->m[i].role, content);
    }
    add (t, "<|im_start|>assistant\n");
}

static void llama3_head (struct text *t, const char *role)
{
    add (t, "<|start_header_id|>");
    add (t, role);
    add (t, "<|end_header_id|>\n\n");
}

/* 3.1 has a system message always, with dates; today's would make a run of
 * tomorrow another, so it is the template's own. */
static void llama3 (struct text *t, const struct talk *k)
{
    bool dates = k->chat->family == CHAT_LLAMA31;

    if (k->system || dates) {
        llama3_head (t, "system");
        add (t, dates ? DATES : "");
        add_trimmed (t, k->system ? k->system : "");
        add (t, "<|eot_id|>");
    }
    for (size_t i = 0; i < k->n; i++) {
        llama3_head (t, k->m[i].role);
        add_trimmed (t, k->m[i].content);
        add (t, "<|eot_id|>");
    }
    llama3_head (t, "assistant");
}

/* The system message is a part of the first question, and trimmed with it. */
static void llama2 (struct text *t, const struct talk *k)
{
    struct text first = {0};

    if (k->system) {
        add (&first, "<<SYS>>\n");
        add (&first, k->system);
        add (&first, "\n<</SYS>>\n\n");
    }
    add (&first, k->m[0].content);
    for (size_t i = 0; i < k->n; i++) {
        bool answer = i % 2;

        add (t, answer ? " " : k->chat->bos);
        add (t, answer ? "" : "[INST] ");
        add_trimmed (t, i > 0 ? k->m[i].content : first.failed ? "" : first.p);
        add (t, answer ? " " : " [/INST]");
        add (t, answer ? k->chat->eos : "");
    }
    t->failed |= first.failed;
    free (first.p);
}

static void mistral (struct text *t, const struct talk *k)
{
    for (size_t i = 0; i < k->n; i++) {
        bool answer = i % 2;

        add (t, answer ? "" : "[INST] ");
        add (t, k->m[i].content);
        add (t, answer ? k->chat->eos : " [/INST]");
        add (t, answer && k->chat->space_behind ? " " : "");
    }
}

static void gemma (struct text *t, const struct talk *k)
{
    for (size_t i = 0; i < k->n; i++) {
        add (t, i % 2 ? "<start_of_turn>model\n" : "<start_of_turn>user\n");
        if (i == 0 && k->system) {
            add (t, k->system);
            add (t, "\n\n");
        }
        add_trimmed (t, k->m[i].content);
        add (t, "<end_of_turn>\n");
    }
    add (t, "<start_of_turn>model\n");
}

static train_status_t refuse (const char *why, train_error_t *err)
{
    return err_set (err, TRAIN_EFORMAT, "'prompt' %s", why);
}

/* Where roles take turns. */
static bool in_turn (enum chat_family family)
{
    return family == CHAT_LLAMA2 || family == CHAT_MISTRAL
           || family == CHAT_GEMMA || family == CHAT_GEMMA3;
}

static train_status_t check (const struct talk *k, train_error_t *err)
{
    enum chat_family family = k->chat->family;

    if (family == CHAT_PLAIN)
        return refuse ("has messages, which [data] template = plain has no "
                       "form for",
                       err);
    if (k->n == 0 || strcmp (k->m[k->n - 1].role, "user") != 0)
        return refuse ("does not end with a message of role user", err);
    if (k->system && (family == CHAT_MISTRAL || family == CHAT_GEMMA))
        return refuse ("has a system message, which this template has no "
                       "form for",
                       err);
    for (size_t i = 0; in_turn (family) && i < k->n; i++)
        if (strcmp (k->m[i].role, i % 2 ? "assistant" : "user") != 0)
            return refuse ("has messages that are not of user and assistant "
                           "in turn, as this template wants them",
                           err);
    return TRAIN_OK;
}

static train_status_t read_messages (struct talk *k, const json_t *list,
                                     train_error_t *err)
{
    const json_t *item;
    size_t i;

    json_array_foreach (list, i, item)
    {
        const char *role = json_string_value (json_object_get (item, "role"));
        const char *text =
            json_string_value (json_object_get (item, "content"));

        if (!role || !text)
            return refuse ("has a message without role or content that is text",
                           err);
        if (strcmp (role, "system") == 0 && i == 0)
            k->system = text;
        else if (strcmp (role, "user") != 0 && strcmp (role, "assistant") != 0)
            return refuse ("has a message of another role than user, "
                           "assistant, or system first",
                           err);
        else
            k->m[k->n++] = (struct message){role, text};
    }
    return check (k, err);
}

static void render (struct text *t, const struct talk *k)
{
    add (t, k->chat->bos_first ? k->chat->bos : "");
    switch (k->chat->family) {
    case CHAT_PLAIN:
        break;
    case CHAT_CHATML:
        chatml (t, k);
        break;
    case CHAT_QWEN3:
        qwen3 (t, k);
        break;
    case CHAT_LLAMA3:
    case CHAT_LLAMA31:
        llama3 (t, k);
        break;
    case CHAT_LLAMA2:
        llama2 (t, k);
        break;
    case CHAT_MISTRAL:
        mistral (t, k);
        break;
    case CHAT_GEMMA:
    case CHAT_GEMMA3:
        gemma (t, k);
        break;
    }
}

train_status_t chat_render (const struct chat *chat, const json_t *messages,
                            const char *system, char **ret, train_error_t *err)
{
    struct talk k = {.chat = chat};
    struct text t = {0};
    train_status_t status;

    k.system = system ? system : chat->system;
    if (!(k.m = calloc (json_array_size (messages) + 1, sizeof (*k.m))))
        return err_set (err, TRAIN_ENOMEM, "no memory for messages");
    if ((status = read_messages (&k, messages, err)) == TRAIN_OK) {
        render (&t, &k);
        if (t.failed)
            status = err_set (err, TRAIN_ENOMEM, "no memory for a prompt");
        else
            *ret = t.p;
    }
    free (k.m);
    if (status != TRAIN_OK)
        free (t.p);
    return status;
}
