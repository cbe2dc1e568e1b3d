/* SPDX-License-Identifier: Apache-2.0
 * decoder_dump.c - write one step of a decoder to a file, for other programs to
 * repeat
 *
 * decoder_dump FILE layers dim heads kv_heads ffn vocab tie batch seq
 * fp32|fp64|bf16|fp16 [packed] [lora] [buffer] [cuda] [seed=N] writes a
 * .safetensors file: weights "w.NAME", gradients "g.NAME" (of the mean loss),
 * "tokens", "targets", "starts" (where each position's document begins: all 0
 * unless packed), "logits", "loss_sum", "counted", and the configuration in the
 * metadata. buffer: cosines and sines are rounded to bf16, or to fp16. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/decoder.h>
#include <train/safetensors.h>

#include "decoder_impl.h"
#include "err.h"
#include "kernels/half.h"

#define N_KEYS     9
#define ENTRY_NAME 80

static const char *const keys[N_KEYS] = {"layers",   "dim",   "heads",
                                         "kv_heads", "ffn",   "vocab",
                                         "tie",      "batch", "seq"};

struct dump {
    train_decoder_config_t config;
    int batch, seq;
    bool packed;
    uint64_t seed;
    train_decoder_t *decoder;
    char *weights, *grads; /* the arenas, brought to the host */
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
static void shake (const struct dump *d, train_decoder_t *m)
{
    size_t n = train_decoder_numel (m);
    void *w = train_decoder_weights (m)->data;

    train_decoder_init (m, d->seed);
    for (size_t i = 0; i < n; i++) {
        double f = 1 + 0.1 * sin ((double)i);

        if (train_decoder_config (m)->dtype == TRAIN_F32) {
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

static void narrow (train_dtype_t dtype, uint16_t *ret, const float *w,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        ret[i] = dtype == TRAIN_BF16 ? half_to_bf16 (w[i]) : half_to_f16 (w[i]);
}

/* Copies to [d]'s decoder what [from] has, in its type. */
static train_status_t hand_over (struct dump *d, train_decoder_t *from,
                                 train_error_t *err)
{
    train_decoder_t *m = d->decoder;
    size_t n = train_decoder_numel (m), bytes = n * m->kern->elem_size;
    const void *w = train_decoder_weights (from)->data;
    void *own = malloc (bytes);
    train_status_t status;

    if (!own)
        return TRAIN_ENOMEM;
    if (m->kern->elem_size == sizeof (uint16_t))
        narrow (d->config.dtype, own, w, n);
    else
        memcpy (own, w, bytes);
    status = m->ops->copy (train_decoder_weights (m)->data, own, bytes,
                           m->stream, err);
    if (status == TRAIN_OK)
        status = m->ops->sync (m->stream, err);
    free (own);
    return status;
}

/* Drawn on the host, in fp32 where the type is a half of it. */
static train_status_t draw (struct dump *d, train_error_t *err)
{
    train_decoder_config_t c = d->config;
    train_decoder_t *from;
    train_status_t status;

    c.device = (DLDevice){kDLCPU, 0};
    c.dtype = c.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
    TRY (train_decoder_create (&c, &from, err));
    shake (d, from);
    status = hand_over (d, from, err);
    train_decoder_destroy (from);
    return status;
}

static train_status_t bring (struct dump *d, char **ret, const void *data,
                             size_t bytes, train_error_t *err)
{
    train_decoder_t *m = d->decoder;

    if (!(*ret = malloc (bytes)))
        return TRAIN_ENOMEM;
    TRY (m->ops->copy (*ret, data, bytes, m->stream, err));
    return m->ops->sync (m->stream, err);
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

/* Logits of a forward alone, and the arenas of the step before it. */
static train_status_t take (struct dump *d, size_t bytes, train_error_t *err)
{
    train_decoder_t *m = d->decoder;
    size_t n = train_decoder_numel (m);
    train_status_t status;
    char *host = NULL;
    void *there;

    TRY (bring (d, &d->weights, train_decoder_weights (m)->data,
                n * m->kern->elem_size, err));
    TRY (bring (d, &d->grads, train_decoder_grads (m)->data,
                n * m->kern->real_size, err));
    TRY (m->ops->alloc (m->device, bytes, &there, err));
    status = train_decoder_forward (m, there, d->tokens, NULL, d->batch, d->seq,
                                    NULL, NULL, err);
    if (status == TRAIN_OK)
        status = bring (d, &host, there, bytes, err);
    m->ops->free (there);
    d->logits = host;
    return status;
}

static train_status_t compute (struct dump *d, train_error_t *err)
{
    size_t n = (size_t)d->batch * (size_t)d->seq;
    size_t V = (size_t)d->config.vocab;

    d->tokens = calloc (n, sizeof (*d->tokens));
    d->targets = calloc (n, sizeof (*d->targets));
    d->starts = calloc (n, sizeof (*d->starts));
    if (!d->tokens || !d->targets || !d->starts)
        return TRAIN_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        d->tokens[i] = (int32_t)(i * i * 31 % V);
        d->targets[i] = i % 5 == 3 ? -1 : (int32_t)((i * 7 + 3) % V);
        d->counted += i % 5 != 3;
    }
    if (d->packed)
        pack (d);
    TRY (train_decoder_step (d->decoder, d->tokens, d->targets, d->batch,
                             d->seq, 1.0 / (double)d->counted, &d->loss_sum,
                             &d->counted, err));
    return take (d, n * V * d->decoder->kern->elem_size, err);
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
    size_t elem = d->decoder->kern->elem_size;
    size_t real = d->decoder->kern->real_size;
    train_dtype_t wide = real == sizeof (double) ? TRAIN_F64 : TRAIN_F32;

    for (size_t i = 0; i < train_decoder_n_params (d->decoder); i++) {
        const train_param_t *p = train_decoder_param (d->decoder, i);

        for (int k = 0; k < 2; k++) {
            train_st_entry_t *e =
                k ? add (d, "g.", p->name, wide, d->grads + p->offset * real)
                  : add (d, "w.", p->name, d->config.dtype,
                         d->weights + p->offset * elem);

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

/* What stands behind the type; false: it is no such word. */
static bool word (struct dump *d, const char *text)
{
    train_dtype_t dtype = d->config.dtype;

    if (strcmp (text, "packed") == 0)
        d->packed = true;
    else if (strcmp (text, "lora") == 0)
        d->config.lora = (train_lora_t){4, 0x7f, 6};
    else if (strcmp (text, "buffer") == 0)
        d->config.buffer = dtype == TRAIN_F16 ? TRAIN_F16 : TRAIN_BF16;
    else if (strcmp (text, "cuda") == 0)
        d->config.device = (DLDevice){kDLCUDA, 0};
    else if (strncmp (text, "seed=", 5) == 0)
        d->seed = strtoul (text + 5, NULL, 10);
    else
        return false;
    return true;
}

static bool read_type (struct dump *d, const char *text)
{
    static const char *const names[] = {"fp32", "fp64", "bf16", "fp16"};
    static const train_dtype_t types[] = {TRAIN_F32, TRAIN_F64, TRAIN_BF16,
                                          TRAIN_F16};

    for (size_t i = 0; i < sizeof (names) / sizeof (*names); i++)
        if (strcmp (text, names[i]) == 0) {
            d->config.dtype = types[i];
            return true;
        }
    return false;
}

static bool read_words (struct dump *d, int argc, char **argv)
{
    int v[N_KEYS];

    if (argc < N_KEYS + 3 || !read_type (d, argv[N_KEYS + 2]))
        return false;
    for (int i = 0; i < N_KEYS; i++)
        v[i] = (int)strtol (argv[i + 2], NULL, 10);
    d->config.layers = v[0];
    d->config.dim = v[1];
    d->config.heads = v[2];
    d->config.kv_heads = v[3];
    d->config.ffn = v[4];
    d->config.vocab = v[5];
    d->config.tie = v[6] != 0;
    d->batch = v[7];
    d->seq = v[8];
    for (int i = N_KEYS + 3; i < argc; i++)
        if (!word (d, argv[i]))
            return false;
    return true;
}

int main (int argc, char **argv)
{
    struct dump d = {
        .config = {.size = sizeof (d.config),
                   .rope_theta = 10000,
                   .norm_eps = 1e-5},
        .seed = 2024,
    };
    train_error_t err = {.text = "no memory"};
    train_status_t status;

    if (!read_words (&d, argc, argv)) {
        fprintf (stderr, "decoder_dump: its head says how\n");
        return 2;
    }
    status = train_decoder_create (&d.config, &d.decoder, &err);
    if (status == TRAIN_OK)
        status = draw (&d, &err);
    if (status == TRAIN_OK)
        status = compute (&d, &err);
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
    free (d.weights);
    free (d.grads);
    train_decoder_destroy (d.decoder);
    return status == TRAIN_OK ? 0 : 1;
}
