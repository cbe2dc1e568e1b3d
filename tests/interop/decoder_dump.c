/* SPDX-License-Identifier: Apache-2.0
 * decoder_dump.c - write one step of a decoder to a file, for other programs to
 * repeat
 *
 * decoder_dump FILE layers dim heads kv_heads ffn vocab tie batch seq fp32|fp64
 * [packed|lora] writes a .safetensors file: weights "w.NAME", gradients "g.NAME" (of the
 * mean loss), "tokens", "targets", "starts" (where each position's document
 * begins: all 0 unless packed), "logits", "loss_sum", "counted", and the
 * configuration in the metadata. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/decoder.h>
#include <train/safetensors.h>

#define N_KEYS     9
#define ENTRY_NAME 80

static const char *const keys[N_KEYS] = {"layers",   "dim",   "heads",
                                         "kv_heads", "ffn",   "vocab",
                                         "tie",      "batch", "seq"};

struct dump {
    train_decoder_config_t config;
    int batch, seq;
    bool packed;
    train_decoder_t *decoder;
    int32_t *tokens, *targets, *starts;
    void *logits;
    double loss_sum;
    int64_t counted;
    train_st_entry_t *entries;
    char (*names)[ENTRY_NAME];
    size_t n;
};

/* Larger than first weights, norms off 1, adapters' second factors off 0:
 * nothing is nearly linear, or nothing. */
static void shake (struct dump *d)
{
    size_t n = train_decoder_numel (d->decoder);
    void *w = train_decoder_weights (d->decoder)->data;

    train_decoder_init (d->decoder, 2024);
    for (size_t i = 0; i < n; i++) {
        double f = 1 + 0.1 * sin ((double)i);

        if (d->config.dtype == TRAIN_F32) {
            float *x = (float *)w + i;

            *x = (float)(*x * (*x == 1.0f ? 1 : 4) * f);
            if (*x == 0)
                *x = (float)(0.1 * sin (0.7 * (double)i));
        } else {
            double *x = (double *)w + i;

            *x *= (*x == 1.0 ? 1 : 4) * f;
            if (*x == 0)
                *x = 0.1 * sin (0.7 * (double)i);
        }
    }
}

/* Documents of 1, 2, 4, .. tokens in turn, over the borders of no row. */
static void pack (struct dump *d)
{
    int32_t start = 0, length = 1, seq = d->seq;

    for (int32_t i = 0; i < d->batch * seq; i++) {
        int32_t t = i % seq;

        if (t == 0 || t - start == length) {
            start = t;
            length = length < 64 ? length * 2 : 1;
        }
        d->starts[i] = start;
    }
    train_decoder_documents (d->decoder, d->starts);
}

static train_status_t compute (struct dump *d, train_error_t *err)
{
    size_t n = (size_t)d->batch * (size_t)d->seq;
    size_t V = (size_t)d->config.vocab;
    train_status_t status;

    d->tokens = calloc (n, sizeof (*d->tokens));
    d->targets = calloc (n, sizeof (*d->targets));
    d->starts = calloc (n, sizeof (*d->starts));
    d->logits = calloc (n * V, train_dtype_size (d->config.dtype));
    if (!d->tokens || !d->targets || !d->starts || !d->logits)
        return TRAIN_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        d->tokens[i] = (int32_t)(i * i * 31 % V);
        d->targets[i] = i % 5 == 3 ? -1 : (int32_t)((i * 7 + 3) % V);
        d->counted += i % 5 != 3;
    }
    if (d->packed)
        pack (d);
    status = train_decoder_step (d->decoder, d->tokens, d->targets, d->batch,
                                 d->seq, 1.0 / (double)d->counted, &d->loss_sum,
                                 &d->counted, err);
    if (status != TRAIN_OK)
        return status;
    return train_decoder_forward (d->decoder, d->logits, d->tokens, NULL,
                                  d->batch, d->seq, NULL, NULL, err);
}

static train_st_entry_t *add (struct dump *d, const char *kind,
                              const char *name, train_dtype_t dtype,
                              const void *data)
{
    train_st_entry_t *e = &d->entries[d->n];

    snprintf (d->names[d->n], ENTRY_NAME, "%s%s", kind, name);
    *e = (train_st_entry_t){
        .name = d->names[d->n], .dtype = dtype, .data = data};
    d->n++;
    return e;
}

static void add_params (struct dump *d)
{
    const char *w = train_decoder_weights (d->decoder)->data;
    const char *g = train_decoder_grads (d->decoder)->data;
    size_t esize = train_dtype_size (d->config.dtype);

    for (size_t i = 0; i < train_decoder_n_params (d->decoder); i++) {
        const train_param_t *p = train_decoder_param (d->decoder, i);

        for (int k = 0; k < 2; k++) {
            train_st_entry_t *e =
                add (d, k ? "g." : "w.", p->name, d->config.dtype,
                     (k ? g : w) + p->offset * esize);

            e->ndim = p->ndim;
            memcpy (e->shape, p->shape, sizeof (p->shape));
        }
    }
}

static train_status_t write_file (struct dump *d, const char *path,
                                  char *const *values, train_error_t *err)
{
    train_st_meta_t meta[N_KEYS];
    size_t most = 2 * train_decoder_n_params (d->decoder) + 6;
    train_st_entry_t *e;

    d->entries = calloc (most, sizeof (*d->entries));
    d->names = calloc (most, sizeof (*d->names));
    if (!d->entries || !d->names)
        return TRAIN_ENOMEM;
    add_params (d);
    for (int i = 0; i < 4; i++) {
        e = i == 0   ? add (d, "tokens", "", TRAIN_I32, d->tokens)
            : i == 1 ? add (d, "targets", "", TRAIN_I32, d->targets)
            : i == 2 ? add (d, "starts", "", TRAIN_I32, d->starts)
                     : add (d, "logits", "", d->config.dtype, d->logits);
        e->ndim = i == 3 ? 3 : 2;
        e->shape[0] = d->batch;
        e->shape[1] = d->seq;
        e->shape[2] = d->config.vocab;
    }
    add (d, "loss_sum", "", TRAIN_F64, &d->loss_sum);
    add (d, "counted", "", TRAIN_I64, &d->counted);
    for (size_t i = 0; i < N_KEYS; i++)
        meta[i] = (train_st_meta_t){keys[i], values[i]};
    return train_safetensors_write (path, d->entries, d->n, meta, N_KEYS, err);
}

int main (int argc, char **argv)
{
    struct dump d = {.config = {.size = sizeof (d.config),
                                .rope_theta = 10000,
                                .norm_eps = 1e-5}};
    train_error_t err = {.text = "no memory"};
    train_status_t status;
    int v[N_KEYS];
    bool lora;

    d.packed = argc == N_KEYS + 4 && strcmp (argv[N_KEYS + 3], "packed") == 0;
    lora = argc == N_KEYS + 4 && strcmp (argv[N_KEYS + 3], "lora") == 0;
    if (lora)
        d.config.lora = (train_lora_t){4, 0x7f, 6};
    if (argc != N_KEYS + 3 + d.packed + lora) {
        fprintf (stderr, "usage: decoder_dump FILE layers dim heads kv_heads "
                         "ffn vocab tie batch seq fp32|fp64 [packed|lora]\n");
        return 2;
    }
    for (int i = 0; i < N_KEYS; i++)
        v[i] = (int)strtol (argv[i + 2], NULL, 10);
    d.config.layers = v[0];
    d.config.dim = v[1];
    d.config.heads = v[2];
    d.config.kv_heads = v[3];
    d.config.ffn = v[4];
    d.config.vocab = v[5];
    d.config.tie = v[6] != 0;
    d.batch = v[7];
    d.seq = v[8];
    d.config.dtype =
        strcmp (argv[N_KEYS + 2], "fp64") == 0 ? TRAIN_F64 : TRAIN_F32;
    status = train_decoder_create (&d.config, &d.decoder, &err);
    if (status == TRAIN_OK) {
        shake (&d);
        status = compute (&d, &err);
    }
    if (status == TRAIN_OK)
        status = write_file (&d, argv[1], argv + 2, &err);
    if (status != TRAIN_OK)
        fprintf (stderr, "decoder_dump: %s\n", err.text);
    free (d.entries);
    free (d.names);
    free (d.tokens);
    free (d.targets);
    free (d.starts);
    free (d.logits);
    train_decoder_destroy (d.decoder);
    return status == TRAIN_OK ? 0 : 1;
}
