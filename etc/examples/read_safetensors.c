/* SPDX-License-Identifier: Apache-2.0
 * read_safetensors.c - list the tensors of a Hugging Face model: its folder,
 * index or file; with --gpu N bring all of it to that GPU first:
 * cc read_safetensors.c $(pkg-config --cflags --libs train) -lm */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <train.h>

/* The bytes lie in the mapped file, aligned for no type: they are copied out
 * one element at a time. */
static double largest (const train_st_entry_t *e)
{
    size_t size = train_dtype_size (e->dtype);
    const char *data = e->data;
    double max = 0;

    for (size_t i = 0; i < e->bytes / size; i++) {
        float x = 0;

        if (e->dtype == TRAIN_F32) {
            memcpy (&x, data + i * size, sizeof (x));
        } else { /* bf16 is the upper half of a float */
            memcpy ((char *)&x + 2, data + i * size, 2);
        }
        max = fmax (max, fabs (x));
    }
    return max;
}

static void show (const train_st_entry_t *e)
{
    printf ("%-8s %12zu bytes  %s [", train_st_type_name (e->type), e->bytes,
            e->name);
    for (int i = 0; i < e->ndim; i++)
        printf ("%s%lld", i ? ", " : "", (long long)e->shape[i]);
    printf ("]");
    if (e->dtype == TRAIN_F32 || e->dtype == TRAIN_BF16)
        printf ("  largest %g", largest (e));
    printf ("\n");
}

/* Where a tensor begins in one block of memory of the GPU. */
static size_t room (const train_st_entry_t *e)
{
    return (e->bytes + 255) / 256 * 256;
}

/* Every tensor as its bytes, whatever its type; one of a type that DLPack has
 * could be taken in that, or as another float, as well. */
static train_status_t load (const train_safetensors_t *model, int gpu,
                            char *memory, train_tensor_t *t, DLTensor **to,
                            train_error_t *err)
{
    train_copier_options_t opts = {.size = sizeof (opts), .device = "cuda"};
    size_t n = train_safetensors_count (model), at = 0;
    train_copier_t *copier = NULL;
    train_copy_report_t report;
    train_status_t status = train_copier_create (&opts, &copier, err);

    for (size_t i = 0; i < n && status == TRAIN_OK; i++) {
        const train_st_entry_t *e = train_safetensors_entry (model, i);
        int64_t bytes = (int64_t)e->bytes;

        status =
            train_tensor_view (&t[i], memory + at, TRAIN_U8, 1, &bytes, err);
        t[i].t.device.device_type = kDLCUDA;
        t[i].t.device.device_id = gpu;
        to[i] = &t[i].t;
        at += room (e);
    }
    if (status == TRAIN_OK)
        status = train_safetensors_load (copier, to, NULL, model, NULL, n, NULL,
                                         &report, err);
    if (status == TRAIN_OK)
        printf ("%llu bytes on GPU %d, verified: %s\n",
                (unsigned long long)report.bytes, gpu,
                report.verified ? "yes" : "no");
    train_copier_destroy (copier);
    return status;
}

static train_status_t to_gpu (const train_safetensors_t *model, int gpu,
                              train_error_t *err)
{
    size_t n = train_safetensors_count (model), bytes = 256;
    train_tensor_t *t = calloc (n + 1, sizeof (*t));
    DLTensor **to = calloc (n + 1, sizeof (DLTensor *));
    train_share_t *block = NULL;
    train_status_t status = TRAIN_ENOMEM;

    for (size_t i = 0; i < n; i++)
        bytes += room (train_safetensors_entry (model, i));
    if (!t || !to)
        snprintf (err->text, sizeof (err->text), "no memory");
    else
        status =
            train_share_create_gpu (TRAIN_SHARE_AUTO, gpu, bytes, &block, err);
    if (status == TRAIN_OK)
        status = load (model, gpu, train_share_data (block), t, to, err);
    train_share_destroy (block, NULL);
    free (to);
    free (t);
    return status;
}

int main (int argc, char **argv)
{
    int with_gpu = argc == 4 && strcmp (argv[1], "--gpu") == 0;
    train_safetensors_t *model = NULL;
    train_error_t err = {0};
    train_status_t status;

    if (argc != 2 && !with_gpu) {
        fprintf (stderr,
                 "usage: read_safetensors [--gpu N] FOLDER|INDEX|FILE\n");
        return 2;
    }
    status = train_safetensors_open_set (argv[argc - 1], &model, &err);
    if (status == TRAIN_OK && with_gpu)
        status = to_gpu (model, (int)strtol (argv[2], NULL, 10), &err);
    if (status != TRAIN_OK) {
        fprintf (stderr, "read_safetensors: cannot read: %s\n", err.text);
        train_safetensors_close (model);
        return 1;
    }
    for (size_t i = 0; i < train_safetensors_count (model); i++)
        show (train_safetensors_entry (model, i));
    train_safetensors_close (model);
    return 0;
}
