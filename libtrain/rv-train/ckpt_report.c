/* SPDX-License-Identifier: Apache-2.0
 * ckpt_report.c - what rv-train ckpt says of checkpoints, as text and JSON */
#include "config.h"

#include "ckpt_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include <train/safetensors.h>

/* "[8,4]" */
static const char *shape_text (char *text, size_t size, int ndim,
                               const int64_t *shape)
{
    size_t used = (size_t)snprintf (text, size, "[");

    for (int i = 0; i < ndim && used < size; i++)
        used += (size_t)snprintf (text + used, size - used, "%s%" PRId64,
                                  i ? "," : "", shape[i]);
    if (used < size)
        snprintf (text + used, size - used, "]");
    return text;
}

static void print_tensors (const train_ckpt_t *c)
{
    char shape[200];
    int64_t all = 0;

    printf ("%-5s %14s %7s  %-18s %s\n", "TYPE", "BYTES", "PIECES", "SHAPE",
            "TENSOR");
    for (size_t i = 0; i < train_ckpt_n_tensors (c); i++) {
        train_ckpt_piece_t p;
        size_t n = 0;
        int64_t bytes;

        if (train_ckpt_tensor (c, i, &p, &n, NULL) != TRAIN_OK)
            continue;
        bytes = p.count * (int64_t)train_dtype_size (p.dtype);
        all += bytes;
        printf ("%-5s %14" PRId64 " %7zu  %-18s %s\n",
                train_dtype_name (p.dtype), bytes, n,
                shape_text (shape, sizeof (shape), p.ndim, p.shape), p.name);
    }
    printf ("%zu tensors, %" PRId64 " bytes\n", train_ckpt_n_tensors (c), all);
}

static void print_head (const train_ckpt_t *c, const char *path)
{
    int world = train_ckpt_world (c);

    printf ("%s: step %" PRId64 ", %d rank%s, %s, device %s, libtrain %s\n",
            path, train_ckpt_step (c), world, world == 1 ? "" : "s",
            train_ckpt_strategy (c), train_ckpt_device (c),
            train_ckpt_library (c));
    for (size_t i = 0; i < train_ckpt_n_states (c); i++) {
        const char *value, *key = train_ckpt_state_at (c, i, &value);

        printf ("  %s = %s\n", key, value);
    }
    for (size_t i = 0; i < train_ckpt_n_files (c); i++) {
        int64_t bytes = 0;
        const char *name = train_ckpt_file (c, i, &bytes);

        printf ("  file %s, %" PRId64 " bytes\n", name, bytes);
    }
}

void ckpt_report_whole (const struct ckpt_seen *seen)
{
    print_head (seen->ckpt, seen->path);
    print_tensors (seen->ckpt);
}

static int64_t all_bytes (const train_ckpt_t *c)
{
    int64_t all = 0;

    for (size_t i = 0; i < train_ckpt_n_files (c); i++) {
        int64_t bytes = 0;

        train_ckpt_file (c, i, &bytes);
        all += bytes;
    }
    return all;
}

void ckpt_report_list (const struct ckpt_seen *seen, size_t n)
{
    printf ("%12s %5s  %-9s %15s  %-12s %s\n", "STEP", "RANKS", "STRATEGY",
            "BYTES", "LOSS", "STATE");
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_seen *s = &seen[i];
        const char *loss = s->ckpt ? train_ckpt_state (s->ckpt, "loss") : NULL;

        if (s->ckpt)
            printf ("%12" PRId64 " %5d  %-9s %15" PRId64 "  %-12.12s ", s->step,
                    train_ckpt_world (s->ckpt), train_ckpt_strategy (s->ckpt),
                    all_bytes (s->ckpt), loss ? loss : "-");
        else
            printf ("%12" PRId64 " %5s  %-9s %15s  %-12s ", s->step, "-", "-",
                    "-", "-");
        printf ("%s%s%s\n",
                s->removed                   ? "removed"
                : s->damage.code != TRAIN_OK ? "damaged"
                : s->verified                ? "good"
                                             : "complete",
                s->latest ? ", latest" : "",
                s->damage.code == TRAIN_ENOTFOUND ? ", a file is missing" : "");
    }
}

static json_t *state_json (const train_ckpt_t *c)
{
    json_t *o = json_object ();

    for (size_t i = 0; c && i < train_ckpt_n_states (c); i++) {
        const char *value, *key = train_ckpt_state_at (c, i, &value);

        json_object_set_new (o, key, json_string (value));
    }
    return o;
}

static json_t *files_json (const train_ckpt_t *c)
{
    json_t *list = json_array ();

    for (size_t i = 0; c && i < train_ckpt_n_files (c); i++) {
        int64_t bytes = 0;
        const char *name = train_ckpt_file (c, i, &bytes);

        json_array_append_new (list,
                               json_pack ("{s:s, s:I}", "name", name,
                                          "size_bytes", (json_int_t)bytes));
    }
    return list;
}

static json_t *tensors_json (const train_ckpt_t *c)
{
    json_t *list = json_array ();

    for (size_t i = 0; c && i < train_ckpt_n_tensors (c); i++) {
        json_t *shape = json_array ();
        train_ckpt_piece_t p;
        size_t n = 0;

        if (train_ckpt_tensor (c, i, &p, &n, NULL) != TRAIN_OK)
            p = (train_ckpt_piece_t){.name = ""};
        for (int k = 0; k < p.ndim; k++)
            json_array_append_new (shape, json_integer (p.shape[k]));
        json_array_append_new (
            list, json_pack ("{s:s, s:s, s:o, s:I}", "name", p.name, "dtype",
                             train_dtype_name (p.dtype), "shape", shape,
                             "pieces", (json_int_t)n));
    }
    return list;
}

static json_t *seen_json (const struct ckpt_seen *s, bool tensors)
{
    const train_ckpt_t *c = s->ckpt;
    json_t *o = json_pack (
        "{s:s, s:I, s:s?, s:s?, s:s?, s:b, s:b, s:b, s:s?, s:o, s:o, s:o}",
        "path", s->path, "step", (json_int_t)s->step, "strategy",
        c ? train_ckpt_strategy (c) : NULL, "device",
        c ? train_ckpt_device (c) : NULL, "libtrain",
        c ? train_ckpt_library (c) : NULL, "latest", (int)s->latest, "verified",
        (int)s->verified, "removed", (int)s->removed, "damage",
        s->damage.code == TRAIN_OK ? NULL : s->damage.text, "state",
        state_json (c), "files", files_json (c), "tensors",
        tensors_json (tensors ? c : NULL));

    json_object_set_new (
        o, "ranks", c ? json_integer (train_ckpt_world (c)) : json_null ());
    json_object_set_new (o, "size_bytes",
                         c ? json_integer (all_bytes (c)) : json_null ());
    return o;
}

bool ckpt_report_json (const char *action, const struct ckpt_seen *seen,
                       size_t n, bool tensors)
{
    json_t *list = json_array (), *root;
    int rc;

    for (size_t i = 0; i < n; i++)
        json_array_append_new (list, seen_json (&seen[i], tensors));
    root = json_pack ("{s:s, s:s, s:o}", "schema", "rv.ckpt/1", "action",
                      action, "checkpoints", list);
    rc = json_dumpf (root, stdout, JSON_COMPACT);
    putchar ('\n');
    json_decref (root);
    return rc == 0;
}

/* A file by itself has no sums; its header is checked when it is opened. */
train_status_t ckpt_report_file (const char *path, train_error_t *err)
{
    train_safetensors_t *file = NULL;
    train_status_t status = train_safetensors_open (path, &file, err);
    char shape[200];

    if (status != TRAIN_OK)
        return status;
    printf ("%-5s %14s  %-18s %s\n", "TYPE", "BYTES", "SHAPE", "TENSOR");
    for (size_t i = 0; i < train_safetensors_count (file); i++) {
        const train_st_entry_t *e = train_safetensors_entry (file, i);

        printf ("%-5s %14zu  %-18s %s\n", train_st_type_name (e->type),
                e->bytes, shape_text (shape, sizeof (shape), e->ndim, e->shape),
                e->name);
    }
    printf ("%zu tensors; a file by itself has no sums\n",
            train_safetensors_count (file));
    train_safetensors_close (file);
    return TRAIN_OK;
}

void ckpt_report_error (int status, const char *message)
{
    json_t *all = json_pack ("{s:s, s:i, s:s, s:n}", "schema", "rv.error/1",
                             "status", status, "message", message, "hint");

    if (all && json_dumpf (all, stdout, JSON_COMPACT) == 0)
        putchar ('\n');
    json_decref (all);
}
