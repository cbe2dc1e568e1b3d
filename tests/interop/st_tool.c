/* SPDX-License-Identifier: Apache-2.0
 * st_tool.c - read safetensors files with libtrain, for comparison with others
 *
 *   st_tool check FILE        "OK", or the status and its text
 *   st_tool copy IN OUT       write IN's tensors and its "format" and "step"
 *                             metadata to OUT; IN may be a set
 *   st_tool load IN OUT       the same by train_safetensors_load
 *   st_tool shard IN DIR MAX  the same as a set of files in DIR
 * Exit status: 0, 1 when a file is refused, 2 for wrong usage. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/safetensors.h>

static int report (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        puts ("OK");
    else
        printf ("%s %s\n", train_status_name (status), err->text);
    return status == TRAIN_OK ? 0 : 1;
}

/* The bytes of all, by several threads, to memory of their own. */
static train_status_t load (const train_safetensors_t *file,
                            train_st_entry_t *entries, size_t n, char *memory,
                            train_error_t *err)
{
    train_copier_options_t o = {.size = sizeof (o), .device = "host"};
    train_st_load_options_t few = {.size = sizeof (few), .readers = 3};
    train_tensor_t *t = calloc (n + 1, sizeof (*t));
    DLTensor **to = calloc (n + 1, sizeof (DLTensor *));
    const char **names = calloc (n + 1, sizeof (char *));
    train_copier_t *copier = NULL;
    train_status_t status = train_copier_create (&o, &copier, err);

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        int64_t bytes = (int64_t)entries[i].bytes;

        status = train_tensor_view (&t[i], memory, TRAIN_U8, 1, &bytes, err);
        to[i] = &t[i].t;
        names[i] = entries[i].name;
        entries[i].data = memory;
        memory += bytes;
    }
    if (status == TRAIN_OK)
        status = train_safetensors_load (copier, to, NULL, file, names, n, &few,
                                         NULL, err);
    train_copier_destroy (copier);
    free (names);
    free (to);
    free (t);
    return status;
}

static size_t bytes_of (const train_st_entry_t *entries, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += entries[i].bytes;
    return bytes;
}

/* [max] 0: one file. */
static int copy (const char *in, const char *out, size_t max, int loads)
{
    static const char *const keys[] = {"format", "step"};
    train_safetensors_t *file = NULL;
    train_st_entry_t *entries;
    char *memory;
    train_st_meta_t meta[2];
    train_error_t err;
    size_t n, n_meta = 0;
    train_status_t status = train_safetensors_open_set (in, &file, &err);

    if (status != TRAIN_OK)
        return report (status, &err);
    n = train_safetensors_count (file);
    if (!(entries = calloc (n + 1, sizeof (*entries))))
        return 2;
    /* last first: the writer has to bring them in order itself */
    for (size_t i = 0; i < n; i++)
        entries[i] = *train_safetensors_entry (file, n - 1 - i);
    for (size_t i = 0; i < 2; i++) {
        meta[n_meta].key = keys[i];
        meta[n_meta].value = train_safetensors_meta (file, keys[i]);
        n_meta += meta[n_meta].value != NULL;
    }
    memory = calloc (1, bytes_of (entries, n) + 1);
    if (loads)
        status = load (file, entries, n, memory, &err);
    if (status != TRAIN_OK)
        ;
    else if (max > 0)
        status = train_safetensors_write_sharded (out, NULL, entries, n, meta,
                                                  n_meta, max, &err);
    else
        status = train_safetensors_write (out, entries, n, meta, n_meta, &err);
    free (memory);
    free (entries);
    train_safetensors_close (file);
    return report (status, &err);
}

int main (int argc, char **argv)
{
    if (argc == 3 && strcmp (argv[1], "check") == 0) {
        train_safetensors_t *file = NULL;
        train_error_t err;
        int rc = report (train_safetensors_open (argv[2], &file, &err), &err);

        train_safetensors_close (file);
        return rc;
    }
    if (argc == 4 && strcmp (argv[1], "copy") == 0)
        return copy (argv[2], argv[3], 0, 0);
    if (argc == 4 && strcmp (argv[1], "load") == 0)
        return copy (argv[2], argv[3], 0, 1);
    if (argc == 5 && strcmp (argv[1], "shard") == 0)
        return copy (argv[2], argv[3], strtoull (argv[4], NULL, 10), 0);
    fprintf (stderr, "usage: st_tool check FILE | copy IN OUT | "
                     "load IN OUT | shard IN DIR MAX\n");
    return 2;
}
