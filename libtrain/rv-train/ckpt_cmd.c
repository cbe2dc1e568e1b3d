/* SPDX-License-Identifier: Apache-2.0
 * ckpt_cmd.c - rv-train ckpt: list a checkpoint and verify its sums */
#include "config.h"

#include "ckpt_cmd.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/ckpt_pieces.h>
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

static train_status_t list_checkpoint (const char *path, train_error_t *err)
{
    train_ckpt_t *c = NULL;
    train_status_t status = train_ckpt_open (path, &c, err);

    if (status != TRAIN_OK)
        return status;
    print_head (c, path);
    print_tensors (c);
    fflush (stdout);
    status = train_ckpt_verify (c, err);
    if (status == TRAIN_OK)
        puts ("all sums are right");
    train_ckpt_close (c);
    return status;
}

/* A file by itself has no sums; its header is checked when it is opened. */
static train_status_t list_file (const char *path, train_error_t *err)
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

train_status_t ckpt_cmd (const char *path, train_error_t *err)
{
    size_t len = strlen (path);
    char *found = NULL;
    train_status_t status;

    if (len > 12 && strcmp (path + len - 12, ".safetensors") == 0)
        return list_file (path, err);
    if ((status = train_ckpt_find (path, &found, err)) == TRAIN_OK)
        status = list_checkpoint (found, err);
    free (found);
    return status;
}
