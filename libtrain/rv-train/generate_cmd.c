/* SPDX-License-Identifier: Apache-2.0
 * generate_cmd.c - rv-train generate: options, prompts, and tokens shown as they
 * come */
#include "config.h"

#include "generate_cmd.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include <train/generate.h>
#include <train/tokenizer.h>

#include "cmd_options.h"
#include "libtrain/chat.h"
#include "libtrain/err.h"
#include "model_dir.h"

enum { MOST = 32 }; /* of an option that may stand several times */

struct text {
    int32_t *ids; /* (n + max_new): the prompt's, then those added */
    size_t n, all;
    size_t before; /* bytes of the prompt, decoded */
    size_t shown;  /* bytes of what follows */
};

struct job {
    const char *model, *tokenizer_name, *file;
    const char *template, *system; /* NULL: plain; the template's own */
    train_dtype_t dtype;
    int device; /* -1 automatic, 0 host, 1 GPU */
    bool json, keep_on;
    train_generate_options_t o;
    int32_t stop_id[MOST];
    char *stop[MOST];
    size_t n_stop;
    char **prompts;
    size_t n;

    train_tokenizer_t *tokenizer;
    struct chat chat;
    struct text *texts; /* (n) */
    int positions;      /* that the model knows; 0: that is not known, or has
                              been said */
    const char *dir;
    train_status_t status; /* of showing */
    train_error_t *err;
};

static train_status_t real (const char *text, double *ret, const char *name,
                            train_error_t *err)
{
    char *end;

    *ret = strtod (text, &end);
    if (end == text || *end)
        return err_set (err, TRAIN_EINVAL, "--%s '%s' is no number", name,
                        text);
    return TRAIN_OK;
}

static const struct option options[] = {
    {"file", required_argument, NULL, 'f'},
    {"max", required_argument, NULL, 'n'},
    {"temperature", required_argument, NULL, 't'},
    {"top-k", required_argument, NULL, 'k'},
    {"top-p", required_argument, NULL, 'p'},
    {"min-p", required_argument, NULL, 'm'},
    {"repetition", required_argument, NULL, 'r'},
    {"seed", required_argument, NULL, 's'},
    {"stop", required_argument, NULL, 'S'},
    {"stop-id", required_argument, NULL, 'I'},
    {"ignore-eos", no_argument, NULL, 'e'},
    {"at-once", required_argument, NULL, 'a'},
    {"tokenizer", required_argument, NULL, 'T'},
    {"template", required_argument, NULL, 'C'},
    {"system", required_argument, NULL, 'Y'},
    {"dtype", required_argument, NULL, 'd'},
    {"device", required_argument, NULL, 'D'},
    {"json", no_argument, NULL, 'j'},
    {NULL, 0, NULL, 0},
};

static train_status_t take_list (struct job *j, int which, const char *arg,
                                 train_error_t *err)
{
    long v;

    if (j->n_stop == MOST || j->o.n_stop == MOST)
        return err_set (err, TRAIN_EINVAL, "more than %d stops", MOST);
    if (which == 'S') {
        if (!*arg)
            return err_set (err, TRAIN_EINVAL, "--stop is empty");
        j->stop[j->n_stop++] = (char *)(uintptr_t)arg;
        return TRAIN_OK;
    }
    TRY (cmd_whole ("stop-id", arg, 0, INT_MAX, &v, err));
    j->stop_id[j->o.n_stop++] = (int32_t)v;
    return TRAIN_OK;
}

static train_status_t take_word (struct job *j, int which, const char *arg,
                                 train_error_t *err)
{
    switch (which) {
    case 'f':
        j->file = arg;
        break;
    case 'T':
        j->tokenizer_name = arg;
        break;
    case 'C':
        j->template = arg;
        break;
    case 'Y':
        j->system = arg;
        break;
    case 'e':
        j->keep_on = true;
        break;
    case 'j':
        j->json = true;
        break;
    case 'd':
        return cmd_dtype (arg, &j->dtype, err);
    default:
        return cmd_device (arg, &j->device, err);
    }
    return TRAIN_OK;
}

static train_status_t take_option (void *self, int which, const char *arg,
                                   train_error_t *err)
{
    struct job *j = self;
    long v = 0;

    switch (which) {
    case 'n':
        TRY (cmd_whole ("max", arg, 0, 1 << 20, &v, err));
        j->o.max_new = (int)v;
        return TRAIN_OK;
    case 'k':
        TRY (cmd_whole ("top-k", arg, 0, INT_MAX, &v, err));
        j->o.top_k = (int)v;
        return TRAIN_OK;
    case 'a':
        TRY (cmd_whole ("at-once", arg, 0, INT_MAX, &v, err));
        j->o.at_once = (int)v;
        return TRAIN_OK;
    case 's':
        TRY (cmd_whole ("seed", arg, 0, LONG_MAX, &v, err));
        j->o.seed = (uint64_t)v;
        return TRAIN_OK;
    case 't':
        return real (arg, &j->o.temperature, "temperature", err);
    case 'p':
        return real (arg, &j->o.top_p, "top-p", err);
    case 'm':
        return real (arg, &j->o.min_p, "min-p", err);
    case 'r':
        return real (arg, &j->o.repetition, "repetition", err);
    case 'S':
    case 'I':
        return take_list (j, which, arg, err);
    default:
        return take_word (j, which, arg, err);
    }
}

static train_status_t read_options (struct job *j, int argc, char **argv,
                                    train_error_t *err)
{
    TRY (cmd_options (argc, argv, options, take_option, j, err));
    if (optind >= argc)
        return err_set (err, TRAIN_EINVAL,
                        "no model: name a directory, then prompts");
    j->model = argv[optind];
    j->prompts = argv + optind + 1;
    j->n = (size_t)(argc - optind - 1);
    if ((j->file != NULL) == (j->n > 0))
        return err_set (err, TRAIN_EINVAL,
                        "give prompts, or --file, and not both");
    if (j->n > 1 && !j->json)
        return err_set (err, TRAIN_EINVAL,
                        "several prompts need --json, which says whose each "
                        "token is");
    return TRAIN_OK;
}

static train_status_t read_file (const char *name, char **ret, size_t *ret_size,
                                 train_error_t *err)
{
    FILE *f = strcmp (name, "-") == 0 ? stdin : fopen (name, "re");
    size_t room = 0;
    ssize_t n;

    if (!f)
        return err_set (err, errno == ENOENT ? TRAIN_ENOTFOUND : TRAIN_EIO,
                        "%s: %s", name, strerror (errno));
    errno = 0;
    n = getdelim (ret, &room, '\0', f);
    if (f != stdin)
        fclose (f);
    if (n < 0 && errno)
        return err_set (err, TRAIN_EIO, "%s: %s", name, strerror (errno));
    *ret_size = n < 0 ? 0 : (size_t)n;
    return TRAIN_OK;
}

/* Of bytes the end is the id behind them, as rv-train tokenize and the rows of
 * sft have it. */
static void take_ends (struct job *j, const char *dir)
{
    const char *end = j->template ? chat_end (&j->chat) : NULL;
    int32_t id = end ? train_tokenizer_id (j->tokenizer, end) : -1;

    if (id >= 0 && j->o.n_stop < MOST)
        j->stop_id[j->o.n_stop++] = id;
    j->o.n_stop +=
        model_eos (dir, j->stop_id + j->o.n_stop, MOST - j->o.n_stop);
    if (train_tokenizer_hash (j->tokenizer) == 0 && j->o.n_stop < MOST)
        j->stop_id[j->o.n_stop++] = TRAIN_TOKENIZER_BYTE_END;
}

/* A token that is not shown is no text to be looked for: its id is. */
static train_status_t take_stops (struct job *j, train_error_t *err)
{
    size_t n = 0;

    for (size_t i = 0; i < j->n_stop; i++) {
        int32_t id = train_tokenizer_hidden (j->tokenizer, j->stop[i]);

        if (id < 0)
            j->stop[n++] = j->stop[i];
        else if (j->o.n_stop == MOST)
            return err_set (err, TRAIN_EINVAL, "more than %d stops", MOST);
        else
            j->stop_id[j->o.n_stop++] = id;
    }
    j->n_stop = n;
    return TRAIN_OK;
}

static train_status_t open_tokenizer (struct job *j, const char *dir, int vocab,
                                      train_error_t *err)
{
    char path[4096];
    bool there;

    snprintf (path, sizeof (path), "%s/tokenizer.json", dir);
    there = access (path, F_OK) == 0;
    if (!j->tokenizer_name && !there && !model_of_bytes (vocab))
        return err_set (err, TRAIN_EINVAL,
                        "%s has no tokenizer.json, and its vocabulary of %d is "
                        "not that of bytes; --tokenizer names one, or bytes if "
                        "they are meant",
                        dir, vocab);
    if (!j->tokenizer_name)
        j->tokenizer_name = there ? dir : "bytes";
    TRY (train_tokenizer_open (j->tokenizer_name, &j->tokenizer, err));
    return take_stops (j, err);
}

/* How the model sees a prompt: as it is, unless a template is asked for. Of bytes a
 * template has its text, and take_ends the end. */
static train_status_t open_chat (struct job *j, const char *dir,
                                 train_error_t *err)
{
    const char *end;

    if (j->template)
        TRY (chat_find (&j->chat, j->template, dir, err));
    end = j->template ? chat_end (&j->chat) : NULL;
    if (end && train_tokenizer_id (j->tokenizer, end) < 0
        && train_tokenizer_hash (j->tokenizer) != 0)
        return err_set (err, TRAIN_EINVAL,
                        "--template %s ends texts with '%s', which is no token "
                        "of the tokenizer",
                        j->template, end);
    if (j->system && j->chat.family == CHAT_PLAIN)
        return err_set (err, TRAIN_EINVAL,
                        "--system needs a --template that has such messages");
    return TRAIN_OK;
}

/* A text as a user's message, if it is to be one. */
static train_status_t as_message (const struct job *j, const char *text,
                                  size_t size, char **ret, train_error_t *err)
{
    json_t *list;
    train_status_t status;

    *ret = NULL;
    if (j->chat.family == CHAT_PLAIN)
        return TRAIN_OK;
    list = json_pack ("[{s:s, s:s%}]", "role", "user", "content", text, size);
    if (!list)
        return err_set (err, TRAIN_EINVAL,
                        "a prompt is no UTF-8, which --template needs");
    status = chat_render (&j->chat, list, j->system, ret, err);
    json_decref (list);
    return status;
}

/* Once, when a text is longer for the first time. */
static void say_reach (struct job *j, const char *what, size_t tokens)
{
    if (j->positions == 0 || tokens <= (size_t)j->positions)
        return;
    j->positions = 0;
    model_say_reach (j->dir, what, (int64_t)tokens);
}

static train_status_t add_prompt (struct job *j, struct text *t,
                                  const char *text, size_t size,
                                  train_error_t *err)
{
    int32_t *ids = NULL;
    char *back = NULL, *message;
    train_status_t status;

    TRY (as_message (j, text, size, &message, err));
    status = train_tokenizer_encode (
        j->tokenizer, &ids, &t->n, message ? message : text,
        message ? strlen (message) : size, !message, NULL, err);
    free (message);
    if (status != TRAIN_OK)
        return status;
    t->ids = calloc (t->n + (size_t)j->o.max_new, sizeof (*t->ids));
    if (!t->ids || t->n > INT_MAX / 2) {
        free (ids);
        return err_set (err, TRAIN_ENOMEM, "no memory for a prompt");
    }
    if (t->n > 0)
        memcpy (t->ids, ids, t->n * sizeof (*ids));
    free (ids);
    t->all = t->n;
    say_reach (j, "the prompt", t->n);
    TRY (train_tokenizer_decode (j->tokenizer, &back, &t->before, t->ids, t->n,
                                 true, err));
    free (back);
    return TRAIN_OK;
}

static train_status_t add_prompts (struct job *j, train_error_t *err)
{
    char *text = NULL;
    size_t size = 0;
    train_status_t status = TRAIN_OK;

    if (j->file) {
        TRY (read_file (j->file, &text, &size, err));
        j->n = 1;
    }
    if (!(j->texts = calloc (j->n, sizeof (*j->texts))))
        status = err_set (err, TRAIN_ENOMEM, "no memory for prompts");
    for (size_t i = 0; i < j->n && status == TRAIN_OK; i++)
        status = add_prompt (j, &j->texts[i], text ? text : j->prompts[i],
                             text ? size : strlen (j->prompts[i]), err);
    free (text);
    return status;
}

/* A line of JSON for a token; the piece may be empty: more is to come. */
static void print_json (int text, int32_t id, const char *piece, size_t size,
                        const char *end)
{
    json_t *line = json_pack ("{s:s, s:i, s:i, s:s%, s:s?}", "schema",
                              "rv.generate/1", "text", text, "id", (int)id,
                              "piece", piece, size, "end", end);

    if (!line) /* bytes that are no UTF-8 */
        line = json_pack ("{s:s, s:i, s:i, s:s, s:s?}", "schema",
                          "rv.generate/1", "text", text, "id", (int)id, "piece",
                          "\xef\xbf\xbd", "end", end);
    json_dumpf (line, stdout, JSON_COMPACT);
    putchar ('\n');
    json_decref (line);
}

static bool is_stop_id (const struct job *j, int32_t id)
{
    for (size_t i = 0; i < j->o.n_stop; i++)
        if (j->stop_id[i] == id)
            return true;
    return false;
}

/* Does the text go on? */
static bool show (struct job *j, int b, int32_t id)
{
    struct text *t = &j->texts[b];
    bool by_id = is_stop_id (j, id), by_text = false;
    bool full = t->all + 1 == t->n + (size_t)j->o.max_new;
    char *text = NULL;
    const char *new;
    size_t size = 0, ready;

    t->ids[t->all++] = id;
    say_reach (j, "--max", t->all);
    j->status = train_tokenizer_decode (j->tokenizer, &text, &size, t->ids,
                                        t->all - (by_id ? 1 : 0), true, j->err);
    if (j->status != TRAIN_OK)
        return false;
    new = size > t->before ? text + t->before : text + size;
    size -= (size_t)(new - text);
    ready =
        generate_ready (new, size, j->stop, j->n_stop, by_id || full, &by_text);
    ready = ready < t->shown ? t->shown : ready;
    if (j->json)
        print_json (b, id, new + t->shown, ready - t->shown,
                    by_text ? "string"
                    : by_id ? "id"
                    : full  ? "length"
                            : NULL);
    else
        fwrite (new + t->shown, 1, ready - t->shown, stdout);
    fflush (stdout);
    t->shown = ready;
    free (text);
    return !by_text;
}

static bool on_token (void *arg, int b, int32_t id)
{
    struct job *j = arg;

    return j->status == TRAIN_OK && show (j, b, id);
}

static train_status_t go (struct job *j, train_decoder_t *m, train_error_t *err)
{
    const int32_t **prompts = calloc (j->n, sizeof (*prompts));
    int32_t *ids = calloc (j->n * (size_t)j->o.max_new, sizeof (*ids));
    int *length = calloc (j->n, sizeof (*length));
    int *got = calloc (j->n, sizeof (*got));
    train_status_t status;

    for (size_t i = 0; prompts && length && i < j->n; i++) {
        prompts[i] = j->texts[i].ids;
        length[i] = (int)j->texts[i].n;
    }
    j->o.stop = j->stop_id;
    j->o.on_token = on_token;
    j->o.arg = j;
    j->err = err;
    if (!prompts || !ids || !length || !got)
        status = err_set (err, TRAIN_ENOMEM, "no memory for prompts");
    else
        status = train_generate (ids, got, m, prompts, length, (int)j->n, &j->o,
                                 err);
    free (prompts);
    free (ids);
    free (length);
    free (got);
    return j->status != TRAIN_OK ? j->status : status;
}

static train_status_t run (struct job *j, train_error_t *err)
{
    bool cuda = cmd_on_gpu (j->device);
    train_decoder_t *m = NULL;
    char *dir = NULL;
    train_status_t status =
        generate_model (j->model, j->dtype, cuda, &m, &dir, err);

    if (status == TRAIN_OK)
        status = open_tokenizer (j, dir, train_decoder_config (m)->vocab, err);
    if (status == TRAIN_OK)
        status = open_chat (j, dir, err);
    if (status == TRAIN_OK && !j->keep_on)
        take_ends (j, dir);
    if (status == TRAIN_OK) {
        j->dir = dir;
        j->positions = model_positions (dir);
        status = add_prompts (j, err);
    }
    if (status == TRAIN_OK)
        status = go (j, m, err);
    if (status == TRAIN_OK && !j->json)
        putchar ('\n');
    for (size_t i = 0; j->texts && i < j->n; i++)
        free (j->texts[i].ids);
    free (j->texts);
    train_tokenizer_close (j->tokenizer);
    chat_fini (&j->chat);
    train_decoder_destroy (m);
    free (dir);
    return status;
}

train_status_t generate_cmd (int argc, char **argv, train_error_t *err)
{
    struct job j = {.dtype = TRAIN_N_DTYPES,
                    .device = -1,
                    .o = {.size = sizeof (j.o), .max_new = 64}};

    TRY (read_options (&j, argc, argv, err));
    return run (&j, err);
}
