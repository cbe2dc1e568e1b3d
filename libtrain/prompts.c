/* SPDX-License-Identifier: Apache-2.0
 * prompts.c - prompts and answers from files of JSON lines */
#include "prompts_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "chat.h"
#include "err.h"
#include "opts.h"
#include "rows.h"

struct job {
    train_prompts_t *p;
    const train_prompts_options_t *opts;
    struct chat chat;
};

static train_status_t no_memory (train_error_t *err)
{
    return err_set (err, TRAIN_ENOMEM, "no memory for a prompt");
}

static train_status_t name_file (train_prompts_t *p, const char *file,
                                 train_error_t *err)
{
    char **more;

    if (p->n_files > 0 && strcmp (p->file[p->n_files - 1], file) == 0)
        return TRAIN_OK;
    if (!(more = realloc (p->file, (p->n_files + 1) * sizeof (*more))))
        return no_memory (err);
    p->file = more;
    if (!(p->file[p->n_files] = strdup (file)))
        return no_memory (err);
    p->n_files++;
    return TRAIN_OK;
}

/* A new row at the end, empty. */
static train_status_t grow (train_prompts_t *p, train_error_t *err)
{
    size_t cap = p->cap ? p->cap * 2 : 64;
    struct prompt *more;

    if (p->n < p->cap) {
        p->row[p->n++] = (struct prompt){0};
        return TRAIN_OK;
    }
    if (!(more = realloc (p->row, cap * sizeof (*more))))
        return no_memory (err);
    p->row = more;
    p->cap = cap;
    p->row[p->n++] = (struct prompt){0};
    return TRAIN_OK;
}

/* A text becomes a user's message where the model knows messages. */
static train_status_t read_prompt (struct job *j, struct prompt *q,
                                   const json_t *row, train_error_t *err)
{
    json_t *prompt = json_object_get (row, "prompt"), *list;
    train_status_t status;

    if (!prompt)
        return err_set (err, TRAIN_EFORMAT, "no field 'prompt'");
    if (json_is_array (prompt))
        return chat_render (&j->chat, prompt, j->opts->system, &q->text, err);
    if (!json_is_string (prompt))
        return err_set (err, TRAIN_EFORMAT,
                        "'prompt' is neither a text nor a list of messages");
    if (j->chat.family == CHAT_PLAIN) {
        q->text = strdup (json_string_value (prompt));
        return q->text ? TRAIN_OK : no_memory (err);
    }
    list = json_pack ("[{s:s,s:O}]", "role", "user", "content", prompt);
    if (!list)
        return no_memory (err);
    status = chat_render (&j->chat, list, j->opts->system, &q->text, err);
    json_decref (list);
    return status;
}

static train_status_t read_answer (struct prompt *q, const json_t *row,
                                   train_error_t *err)
{
    const json_t *answer = json_object_get (row, "answer");

    if (!answer || json_is_null (answer))
        return TRAIN_OK;
    TRY (row_text (row, "answer", &q->answer, err));
    if (!q->answer)
        return err_set (err, TRAIN_EFORMAT,
                        "'answer' is neither a text nor a number");
    return TRAIN_OK;
}

static train_status_t encode (struct job *j, struct prompt *q,
                              train_error_t *err)
{
    bool plain = j->chat.family == CHAT_PLAIN; /* else it has its bos itself */
    int most = j->opts->max_ids;

    TRY (train_tokenizer_encode (j->opts->tokenizer, &q->ids, &q->n_ids,
                                 q->text, strlen (q->text), plain, NULL, err));
    if (q->n_ids == 0)
        return err_set (err, TRAIN_EINVAL, "'prompt' has no token");
    if (most > 0 && q->n_ids > (size_t)most)
        return err_set (err, TRAIN_EINVAL,
                        "'prompt' has %zu tokens, and %d is the most", q->n_ids,
                        most);
    return TRAIN_OK;
}

static train_status_t fill (struct job *j, struct prompt *q, const json_t *row,
                            train_error_t *err)
{
    TRY (read_prompt (j, q, row, err));
    TRY (read_answer (q, row, err));
    return encode (j, q, err);
}

static train_status_t add (void *arg, const char *line, size_t size,
                           const char *file, size_t number, train_error_t *err)
{
    struct job *j = arg;
    train_status_t status;
    struct prompt *q;
    json_t *row;

    TRY (row_parse (line, size, &row, err));
    if ((status = name_file (j->p, file, err)) == TRAIN_OK
        && (status = grow (j->p, err)) == TRAIN_OK) {
        q = &j->p->row[j->p->n - 1];
        q->file = j->p->n_files - 1;
        q->line = number;
        q->row = strndup (line, size);
        status = q->row ? fill (j, q, row, err) : no_memory (err);
    }
    json_decref (row);
    return status;
}

/* What is asked for must be there; what a folder says may be another
 * tokenizer's. */
static train_status_t find_end (struct job *j, train_error_t *err)
{
    const train_tokenizer_t *t = j->opts->tokenizer;
    const char *end = j->opts->end ? j->opts->end : chat_end (&j->chat);

    j->p->end = train_tokenizer_hash (t) == 0 ? TRAIN_TOKENIZER_BYTE_END : -1;
    if (!end || (j->p->end >= 0 && !j->opts->end))
        return TRAIN_OK;
    j->p->end = train_tokenizer_id (t, end);
    if (j->p->end >= 0)
        return TRAIN_OK;
    if (j->opts->end)
        return err_set (err, TRAIN_EINVAL,
                        "prompts: end '%s' is no token of the tokenizer", end);
    return err_set (err, TRAIN_EINVAL,
                    "prompts: '%s', which ends a text of this template, is no "
                    "token of the tokenizer; another template, or an end, "
                    "works",
                    end);
}

static void hash (train_prompts_t *p)
{
    uint64_t h = (uint64_t)(int64_t)p->end;

    for (size_t i = 0; i < p->n; i++) {
        const struct prompt *q = &p->row[i];
        const char *answer = q->answer ? q->answer : "";

        h = XXH3_64bits_withSeed (q->ids, q->n_ids * sizeof (*q->ids), h);
        h = XXH3_64bits_withSeed (answer, strlen (answer), h);
    }
    p->hash = h;
}

static void doubt (const struct job *j, const char *option)
{
    if (j->opts->ret_wrong)
        *j->opts->ret_wrong = option;
}

static train_status_t read_all (struct job *j, train_error_t *err)
{
    doubt (j, "chat");
    TRY (chat_find (&j->chat, j->opts->chat, j->opts->model_dir, err));
    doubt (j, "system");
    if (j->opts->system && j->chat.family == CHAT_PLAIN)
        return err_set (err, TRAIN_EINVAL,
                        "prompts: a system message needs a chat template, and "
                        "this is plain");
    doubt (j, "end");
    TRY (find_end (j, err));
    doubt (j, "files");
    TRY (rows_read (j->opts->files, add, j, err));
    if (j->p->n == 0)
        return err_set (err, TRAIN_EINVAL, "prompts: '%s' has no line",
                        j->opts->files);
    hash (j->p);
    return TRAIN_OK;
}

train_status_t train_prompts_open (const train_prompts_options_t *opts,
                                   train_prompts_t **ret_prompts,
                                   train_error_t *err)
{
    train_prompts_options_t o;
    train_status_t status;
    struct job j = {.opts = &o};

    if (!opts || !ret_prompts)
        return err_set (err, TRAIN_EINVAL,
                        "prompts: options or ret_prompts are missing");
    TRY (opts_read (&o, sizeof (o), opts, "prompts", err));
    if (!o.files || !o.tokenizer)
        return err_set (err, TRAIN_EINVAL,
                        "prompts: files or tokenizer is not set");
    if (o.max_ids < 0)
        return err_set (err, TRAIN_EINVAL, "prompts: max_ids %d is below 0",
                        o.max_ids);
    if (!(j.p = calloc (1, sizeof (*j.p))))
        return no_memory (err);
    if ((status = read_all (&j, err)) != TRAIN_OK)
        train_prompts_close (j.p);
    else
        *ret_prompts = j.p;
    chat_fini (&j.chat);
    return status;
}

void train_prompts_close (train_prompts_t *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->n; i++) {
        free (p->row[i].row);
        free (p->row[i].text);
        free (p->row[i].answer);
        free (p->row[i].ids);
    }
    for (size_t i = 0; i < p->n_files; i++)
        free (p->file[i]);
    free (p->file);
    free (p->row);
    free (p);
}

size_t train_prompts_count (const train_prompts_t *p)
{
    return p->n;
}

size_t train_prompts_n_files (const train_prompts_t *p)
{
    return p->n_files;
}

const char *train_prompts_file (const train_prompts_t *p, size_t index)
{
    return index < p->n_files ? p->file[index] : NULL;
}

const char *train_prompts_row (const train_prompts_t *p, size_t i)
{
    return p->row[i].row;
}

char *train_prompts_where (const train_prompts_t *p, size_t i, char *buf,
                           size_t size)
{
    snprintf (buf, size, "%s:%zu", p->file[p->row[i].file], p->row[i].line);
    return buf;
}

const char *train_prompts_text (const train_prompts_t *p, size_t i)
{
    return p->row[i].text;
}

const int32_t *train_prompts_ids (const train_prompts_t *p, size_t i,
                                  size_t *ret_n)
{
    *ret_n = p->row[i].n_ids;
    return p->row[i].ids;
}

const char *train_prompts_answer (const train_prompts_t *p, size_t i)
{
    return p->row[i].answer;
}

int32_t train_prompts_end (const train_prompts_t *p)
{
    return p->end;
}

uint64_t train_prompts_hash (const train_prompts_t *p)
{
    return p->hash;
}
