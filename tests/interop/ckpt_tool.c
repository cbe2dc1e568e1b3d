/* SPDX-License-Identifier: Apache-2.0
 * ckpt_tool.c - for ckpt_check.py: a checkpoint of several ranks, a sampler
 *
 * ckpt_tool save DIR WORLD              step 5 by so many ranks
 * ckpt_tool sampler N RANKS RANK DROP   the rank's samples of an epoch */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/ckpt_pieces.h>
#include <train/sampler.h>

#include "libtrain/ckpt_dir.h"
#include "libtrain/ckpt_job.h"

#define N_TENSORS 3
#define MAX_NUMEL 91

static const struct tensor {
    const char *name;
    train_dtype_t dtype;
    int ndim;
    int64_t shape[2], numel;
} tensors[N_TENSORS] = {
    {"t0", TRAIN_F32, 2, {13, 7}, 91},
    {"t1", TRAIN_I32, 1, {11}, 11},
    {"t2", TRAIN_U8, 2, {5, 3}, 15},
};

static union {
    float f[MAX_NUMEL];
    int32_t i[MAX_NUMEL];
    uint8_t u[MAX_NUMEL];
} data[N_TENSORS];

static void fill (void)
{
    for (int t = 0; t < N_TENSORS; t++)
        for (int k = 0; k < tensors[t].numel; k++)
            if (tensors[t].dtype == TRAIN_F32)
                data[t].f[k] = (float)(1000 * t + k);
            else if (tensors[t].dtype == TRAIN_I32)
                data[t].i[k] = 1000 * t + k;
            else
                data[t].u[k] = (uint8_t)(1000 * t + k);
}

static void share (train_ckpt_piece_t *p, int rank, int world)
{
    for (int t = 0; t < N_TENSORS; t++) {
        const struct tensor *x = &tensors[t];
        int64_t first = x->numel * rank / world;

        p[t] = (train_ckpt_piece_t){
            .name = x->name,
            .dtype = x->dtype,
            .ndim = x->ndim,
            .shape = {x->shape[0], x->shape[1]},
            .first = first,
            .count = x->numel * (rank + 1) / world - first,
            .data =
                (char *)&data[t] + (size_t)first * train_dtype_size (x->dtype),
            .file = "model",
        };
    }
}

static int save (const char *dir, int world)
{
    train_ckpt_options_t o = {.size = sizeof (o), .dir = dir, .step = 5};
    train_error_t err = {0};
    char *temp = NULL;

    fill ();
    if (ckpt_dir_begin (dir, 5, &temp, &err) != TRAIN_OK)
        return fprintf (stderr, "%s\n", err.text), 1;
    for (int rank = world - 1; rank >= 0; rank--) { /* rank 0 publishes */
        train_ckpt_piece_t p[N_TENSORS];
        struct ckpt_job job;
        train_status_t status;

        share (p, rank, world);
        status = ckpt_job_init (&job, p, N_TENSORS, &o, rank, world, &err);
        job.temp = strdup (temp);
        if (status == TRAIN_OK)
            status = ckpt_job_run (&job, &err);
        ckpt_job_fini (&job);
        if (status != TRAIN_OK)
            return fprintf (stderr, "%s\n", err.text), 1;
    }
    free (temp);
    return 0;
}

static int number (const char *text)
{
    return (int)strtol (text, NULL, 10);
}

static int sample (char **argv)
{
    train_sampler_t s = {.size = sizeof (s),
                         .n = number (argv[0]),
                         .ranks = number (argv[1]),
                         .rank = number (argv[2]),
                         .drop_last = number (argv[3])};
    int64_t length, index;

    if (train_sampler_length (&s, 0, &length, NULL) != TRAIN_OK)
        return 1;
    for (int64_t k = 0; k < length; k++) {
        if (train_sampler_get (&s, 0, 0, k, &index, NULL, NULL) != TRAIN_OK)
            return 1;
        printf ("%d\n", (int)index);
    }
    return 0;
}

int main (int argc, char **argv)
{
    if (argc == 4 && strcmp (argv[1], "save") == 0)
        return save (argv[2], number (argv[3]));
    if (argc == 6 && strcmp (argv[1], "sampler") == 0)
        return sample (argv + 2);
    return 2;
}
