/* SPDX-License-Identifier: Apache-2.0
 * logps_wire.c - what a reference server is asked and answers, as safetensors
 * in memory */
#include "config.h"

#include "logps_wire.h"

#include <endian.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/version.h>

#include "err.h"
#include "safetensors.h"

/* A body, parsed in place. */
struct body {
    json_t *root;
    train_st_entry_t *entries;
    size_t count;
};

size_t logps_body_most (size_t tokens)
{
    /* A row of one token has two lengths besides. */
    return 8 + LOGPS_HEADER + tokens * 3 * sizeof (int32_t);
}

static train_status_t open_body (const char *body, size_t n, struct body *ret,
                                 train_error_t *err)
{
    uint64_t header;

    if (n < 8)
        return err_set (err, TRAIN_EFORMAT,
                        "a body of %zu bytes is no safetensors", n);
    memcpy (&header, body, sizeof (header));
    header = le64toh (header);
    if (header > LOGPS_HEADER || header > n - 8)
        return err_set (err, TRAIN_EFORMAT,
                        "a header of %llu bytes in a body of %zu: at most %zu",
                        (unsigned long long)header, n, LOGPS_HEADER);
    return st_parse (body + 8, (size_t)header, body + 8 + header,
                     n - 8 - (size_t)header, &ret->root, &ret->entries,
                     &ret->count, err);
}

static void close_body (struct body *b)
{
    free (b->entries);
    json_decref (b->root);
}

/* A tensor of this name; NULL: there is none. */
static train_status_t find (const struct body *b, const char *name,
                            train_st_type_t type, int ndim,
                            const train_st_entry_t **ret, train_error_t *err)
{
    *ret = NULL;
    for (size_t i = 0; i < b->count; i++)
        if (strcmp (b->entries[i].name, name) == 0)
            *ret = &b->entries[i];
    if (*ret && ((*ret)->type != type || (*ret)->ndim != ndim))
        return err_set (err, TRAIN_EFORMAT,
                        "'%s' is %s of %d dimensions: it must be %s of %d",
                        name, train_st_type_name ((*ret)->type), (*ret)->ndim,
                        train_st_type_name (type), ndim);
    return TRAIN_OK;
}

/* A name that means nothing here may be a mistyped one. */
static train_status_t check_names (const struct body *b, train_error_t *err)
{
    static const char *const names[] = {"ids", "prompt_len", "total_len"};

    for (size_t i = 0; i < b->count; i++) {
        size_t k = 0;

        while (k < 3 && strcmp (b->entries[i].name, names[k]) != 0)
            k++;
        if (k == 3)
            return err_set (err, TRAIN_EFORMAT,
                            "tensor '%.40s' is none of ids, prompt_len, "
                            "total_len",
                            b->entries[i].name);
    }
    return TRAIN_OK;
}

static const char *meta (const struct body *b, const char *key)
{
    return json_string_value (
        json_object_get (json_object_get (b->root, ST_META_KEY), key));
}

/* A JSON number, so that no locale has a say. */
static train_status_t read_temperature (const struct body *b, double *ret,
                                        train_error_t *err)
{
    const char *text = meta (b, "temperature");
    json_t *number;

    *ret = 1;
    if (!text)
        return TRAIN_OK;
    number = json_loads (text, JSON_DECODE_ANY, NULL);
    *ret = json_is_number (number) ? json_number_value (number) : 0;
    json_decref (number);
    if (!(*ret > 0) || !isfinite (*ret))
        return err_set (err, TRAIN_EFORMAT,
                        "temperature '%.40s': must be a number above 0", text);
    return TRAIN_OK;
}

static train_status_t read_lens (const struct body *b, const char *name,
                                 bool needed, struct logps_ask *a, int32_t *to,
                                 train_error_t *err)
{
    const train_st_entry_t *e;

    TRY (find (b, name, TRAIN_ST_I32, 1, &e, err));
    if (!e && needed)
        return err_set (err, TRAIN_EFORMAT, "there is no tensor '%s'", name);
    if (e && e->shape[0] != a->B)
        return err_set (err, TRAIN_EFORMAT, "'%s' has %lld rows, ids %d", name,
                        (long long)e->shape[0], a->B);
    if (e)
        memcpy (to, e->data, e->bytes);
    return TRAIN_OK;
}

static train_status_t check_row (const struct logps_ask *a, int b, int vocab,
                                 train_error_t *err)
{
    int32_t prompt = a->prompt_len[b], total = a->total_len[b];
    int32_t *ids = a->ids + (size_t)b * (size_t)a->T;

    if (prompt < 0 || total < prompt || total > a->T)
        return err_set (err, TRAIN_EINVAL,
                        "row %d has a prompt of %d and %d tokens in all of %d",
                        b, (int)prompt, (int)total, a->T);
    for (int32_t t = 0; t < total; t++)
        if (ids[t] < 0 || ids[t] >= vocab)
            return err_set (err, TRAIN_EINVAL,
                            "row %d has %d at %d: ids are within 0 and %d", b,
                            (int)ids[t], (int)t, vocab - 1);
    return TRAIN_OK;
}

static train_status_t read_all (const struct body *b, int vocab,
                                struct logps_ask *a, train_error_t *err)
{
    const train_st_entry_t *e;
    size_t n;

    TRY (check_names (b, err));
    TRY (find (b, "ids", TRAIN_ST_I32, 2, &e, err));
    if (!e || e->shape[0] < 1 || e->shape[1] < 1
        || e->bytes / sizeof (int32_t) > INT_MAX)
        return err_set (err, TRAIN_EFORMAT,
                        "there is no tensor 'ids' with rows and tokens");
    a->B = (int)e->shape[0];
    a->T = (int)e->shape[1];
    n = (size_t)a->B * (size_t)a->T;
    a->ids = calloc (n + 2 * (size_t)a->B, sizeof (*a->ids));
    if (!a->ids)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu ids", n);
    a->prompt_len = a->ids + n;
    a->total_len = a->prompt_len + a->B;
    memcpy (a->ids, e->data, e->bytes);
    TRY (read_lens (b, "prompt_len", false, a, a->prompt_len, err));
    TRY (read_lens (b, "total_len", true, a, a->total_len, err));
    TRY (read_temperature (b, &a->temperature, err));
    for (int row = 0; row < a->B; row++)
        TRY (check_row (a, row, vocab, err));
    return TRAIN_OK;
}

train_status_t logps_read_ask (const void *body, size_t n, int vocab,
                               struct logps_ask *ret, train_error_t *err)
{
    struct body b = {0};
    struct logps_ask a = {0};
    train_status_t status = open_body (body, n, &b, err);

    if (status != TRAIN_OK)
        return status;
    status = read_all (&b, vocab, &a, err);
    close_body (&b);
    if (status == TRAIN_OK)
        *ret = a;
    else
        logps_free_ask (&a);
    return status;
}

void logps_free_ask (struct logps_ask *ask)
{
    free (ask->ids);
    *ask = (struct logps_ask){0};
}

static train_status_t write_body (const train_st_entry_t *entries, size_t n,
                                  const train_st_meta_t *metas, size_t n_meta,
                                  char **ret, size_t *ret_n, train_error_t *err)
{
    struct st_plan plan = {0};
    train_status_t status =
        st_plan_init (&plan, entries, n, metas, n_meta, err);
    size_t all = plan.header_bytes, at = plan.header_bytes;
    char *body;

    if (status != TRAIN_OK) {
        st_plan_fini (&plan);
        return status;
    }
    for (size_t i = 0; i < n; i++)
        all += plan.bytes[i];
    if (!(body = malloc (all))) {
        st_plan_fini (&plan);
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes", all);
    }
    memcpy (body, plan.header, plan.header_bytes);
    for (size_t i = 0; i < n; i++) {
        memcpy (body + at, plan.order[i]->data, plan.bytes[i]);
        at += plan.bytes[i];
    }
    st_plan_fini (&plan);
    *ret = body;
    *ret_n = all;
    return TRAIN_OK;
}

train_status_t logps_write_ask (const struct logps_ask *a, char **ret,
                                size_t *ret_n, train_error_t *err)
{
    train_st_entry_t entries[3] = {
        {.name = "ids",
         .dtype = TRAIN_I32,
         .ndim = 2,
         .shape = {a->B, a->T},
         .data = a->ids},
        {.name = "total_len",
         .dtype = TRAIN_I32,
         .ndim = 1,
         .shape = {a->B},
         .data = a->total_len},
        {.name = "prompt_len",
         .dtype = TRAIN_I32,
         .ndim = 1,
         .shape = {a->B},
         .data = a->prompt_len},
    };
    json_t *number = json_real (a->temperature);
    char *text = number ? json_dumps (number, JSON_ENCODE_ANY) : NULL;
    train_st_meta_t metas[] = {{"temperature", text}};
    train_status_t status;

    json_decref (number);
    if (!text)
        return err_set (err, TRAIN_EINVAL, "temperature is %g", a->temperature);
    status =
        write_body (entries, a->prompt_len ? 3 : 2, metas, 1, ret, ret_n, err);
    free (text);
    return status;
}

train_status_t logps_write_answer (const float *logps, int B, int T,
                                   const char *model, char **ret, size_t *ret_n,
                                   train_error_t *err)
{
    const train_st_entry_t entry = {
        .name = "logps",
        .dtype = TRAIN_F32,
        .ndim = 2,
        .shape = {B, T},
        .data = logps,
    };
    const train_st_meta_t metas[] = {{"model", model},
                                     {"version", train_version ()}};

    return write_body (&entry, 1, metas, 2, ret, ret_n, err);
}

static train_status_t read_logps (const struct body *b, int B, int T,
                                  float *ret, char ret_model[LOGPS_MODEL],
                                  train_error_t *err)
{
    const train_st_entry_t *e;
    const char *model = meta (b, "model");

    TRY (find (b, "logps", TRAIN_ST_F32, 2, &e, err));
    if (!e || e->shape[0] != B || e->shape[1] != T)
        return err_set (err, TRAIN_EFORMAT,
                        "there is no tensor 'logps' of %d x %d", B, T);
    memcpy (ret, e->data, e->bytes);
    snprintf (ret_model, LOGPS_MODEL, "%s", model ? model : "");
    return TRAIN_OK;
}

train_status_t logps_read_answer (const void *body, size_t n, int B, int T,
                                  float *ret, char ret_model[LOGPS_MODEL],
                                  train_error_t *err)
{
    struct body b = {0};
    train_status_t status = open_body (body, n, &b, err);

    if (status != TRAIN_OK)
        return status;
    status = read_logps (&b, B, T, ret, ret_model, err);
    close_body (&b);
    return status;
}
