/* SPDX-License-Identifier: Apache-2.0
 * st_tool.c - read safetensors files with libtrain, for comparison with others
 *
 *   st_tool check FILE        "OK", or the status and its text
 *   st_tool copy IN OUT       write IN's tensors and its "format" and "step"
 *                             metadata to OUT
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

static int copy (const char *in, const char *out)
{
    static const char *const keys[] = {"format", "step"};
    train_safetensors_t *file = NULL;
    train_st_entry_t *entries;
    train_st_meta_t meta[2];
    train_error_t err;
    size_t n, n_meta = 0;
    train_status_t status = train_safetensors_open (in, &file, &err);

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
    status = train_safetensors_write (out, entries, n, meta, n_meta, &err);
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
        return copy (argv[2], argv[3]);
    fprintf (stderr, "usage: st_tool check FILE | copy IN OUT\n");
    return 2;
}
