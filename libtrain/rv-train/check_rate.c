/* SPDX-License-Identifier: Apache-2.0
 * check_rate.c - what devices reach, and what a model asks of them
 *
 * Six runs of an H200 gave the numbers here (rv-train check's rows of
 * tests/bench/RESULTS.md): the products' rate, attention's, memory's, and what a
 * block moves between its products; and two of GRPO on it (1e363d6), of 12 and of
 * 16 layers, what a layer takes for a token beside the bytes that it reads. */
#include "config.h"

#include "check_rate.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "kernels/gemm_glu.h"
#include "libtrain/err.h"

#ifndef HAVE_CUDA
#define HAVE_CUDA 0
#endif

#define GIB ((size_t)1 << 30)

/* An H200's are measured (tests/bench/RESULTS.md); an H100 has its tensor cores, its
 * links and 0.7 of its memory's rate, an A100 a third, two thirds and 0.4. What comes
 * over links is of two: 36 all-gathers and 18 reduce-scatters of the 1b preset, 4.7
 * GB into each, in 21.5 ms. */
static const struct check_device known[] = {
    {"cpu", false, 0.02, 0.02, 0, false, 0, 0, 0, "a guess"}, /* times CPUs */
    {"a100", true, 225, 10, 85, false, 1.7e12, 80 * GIB, 153e9,
     "scaled from an H200's"},
    {"h100", true, 714, 30, 269, true, 2.8e12, 80 * GIB, 230e9,
     "scaled from an H200's"},
    {"h200", true, 714, 30, 269, true, 4.0e12, 139 * GIB, 230e9, "measured"},
};

/* Of a GPU's link to the host, each way. */
#define LINK 53e9
/* Between two kernels of a stream, and how many a block has forth and back. */
#define GAP_S   2e-6
#define KERNELS 40
/* Elements that are read and written for a token by norms, rotations, SwiGLU and
 * additions, forth and back: of each of dim, of each of ffn. */
#define OF_DIM 35
#define OF_FFN 9
/* The same where SwiGLU is part of its products: what these take longer by. */
#define OF_FFN_WITHIN 5
/* For each input and output of a product with an adapter. */
#define OF_LORA 14
/* Of a layer while a token is written, its kernels' beginnings and ends: 64 texts
 * at once. */
#define LAYER_S 42e-6
/* Of a collective, whatever its size: one of 1 MiB takes 26 us. */
#define CALL_S 20e-6
/* Most tokens of prompts in a feed on a GPU (kv_feed_rows). */
#define FEED 8192
/* Bytes that AdamW and the norm read and write for a weight. */
#define OF_WEIGHT 36

train_status_t check_device_find (const char *name,
                                  const struct check_device **ret,
                                  train_error_t *err)
{
    for (size_t i = 0; i < sizeof (known) / sizeof (*known); i++)
        if (strcmp (name, known[i].name) == 0) {
            *ret = &known[i];
            if (known[i].gpu && !HAVE_CUDA)
                return err_set (err, TRAIN_ENOTSUP,
                                "--device %s: this rv-train was built without "
                                "CUDA and does not know the layouts there",
                                name);
            return TRAIN_OK;
        }
    return err_set (err, TRAIN_EINVAL,
                    "--device '%s': cpu, a100, h100 and h200 are known", name);
}

double check_rate (const struct check_device *d, train_dtype_t dtype)
{
    bool half = dtype == TRAIN_BF16 || dtype == TRAIN_F16;
    double one = half ? d->half : d->single;
    long n = sysconf (_SC_NPROCESSORS_ONLN);

    return d->gpu ? one : one * (double)(n > 0 ? n : 1);
}

static double kv_of (const train_decoder_config_t *m)
{
    return m->kv_heads ? m->kv_heads : m->heads;
}

static double head_of (const train_decoder_config_t *m)
{
    return m->head_dim ? m->head_dim : (double)m->dim / m->heads;
}

/* Weights of a block's products. */
static double of_block (const train_decoder_config_t *m)
{
    double size = head_of (m), dim = m->dim;

    return dim * size * (m->heads + 2 * kv_of (m)) + m->heads * size * dim
           + 3 * dim * m->ffn;
}

/* Operations for a token: products, and attention. */
static double products (const train_decoder_config_t *m)
{
    double again = m->recompute == TRAIN_RECOMPUTE_BLOCKS ? 2 : 0;
    double each = (m->lora.rank > 0 ? 4 : 6);

    return m->layers * (each + again) * of_block (m)
           + each * (double)m->dim * m->vocab;
}

static double attention (const train_decoder_config_t *m, int seq)
{
    double forward = 2 * m->heads * head_of (m) * seq; /* half the square */
    double times = m->recompute == TRAIN_RECOMPUTE_BLOCKS ? 4.5 : 3.5;

    return m->layers * times * forward;
}

double check_flop (const train_decoder_config_t *m, int seq)
{
    return products (m) + attention (m, seq);
}

/* Inputs and outputs of the products of a block that have an adapter. */
static double adapted (const train_decoder_config_t *m)
{
    double q = m->heads * head_of (m), kv = kv_of (m) * head_of (m);
    double dim = m->dim, ffn = m->ffn;
    const double both[TRAIN_LORA_N] = {dim + q,   dim + kv,  dim + kv, q + dim,
                                       dim + ffn, dim + ffn, ffn + dim};
    double sum = 0;

    for (int k = 0; m->lora.rank > 0 && k < TRAIN_LORA_N; k++)
        if (m->lora.targets & 1 << k)
            sum += both[k];
    return sum;
}

/* Of passes of [rows]. */
static bool glu_is_within (const struct check_device *d,
                           const train_decoder_config_t *m, double rows)
{
    bool half = m->dtype == TRAIN_BF16 || m->dtype == TRAIN_F16;

    return d->sm_90a && half && m->lora.rank == 0 && m->ffn % 256 == 0
           && rows >= KERN_GEMM_GLU_ROWS;
}

/* Elements that a block reads and writes beside its products, for a token. */
static double elements (const struct check_device *d,
                        const train_decoder_config_t *m, double rows)
{
    double of_ffn = glu_is_within (d, m, rows) ? OF_FFN_WITHIN : OF_FFN;
    double n = OF_DIM * (double)m->dim + of_ffn * (double)m->ffn;

    if (m->recompute == TRAIN_RECOMPUTE_BLOCKS)
        n *= 4.0 / 3;
    return n + OF_LORA * adapted (m);
}

static double all_weights (const train_decoder_config_t *m)
{
    return m->layers * of_block (m)
           + (m->tie ? 1 : 2) * (double)m->dim * m->vocab;
}

/* What is updated: all weights, or adapters, which are few. */
static double weights (const train_decoder_config_t *m)
{
    return m->lora.rank > 0 ? 0 : all_weights (m);
}

/* Of what is offloaded, on a rank's link each way: arrays that an update reads
 * and writes; weights that passes bring. */
static double update_seconds (const train_decoder_config_t *m,
                              const struct check_step *step, int size)
{
    int bytes = step->offload ? 12 : 0;

    if (step->offload_weights && (size == 2 || !step->offload))
        bytes += size;
    return bytes * weights (m) / step->ranks / LINK;
}

static double bring_seconds (const train_decoder_config_t *m,
                             const struct check_step *step, int size)
{
    return step->offload_weights
               ? step->gathers * size * all_weights (m) / step->ranks / LINK
               : 0;
}

double check_seconds (const struct check_device *d,
                      const train_decoder_config_t *m,
                      const struct check_step *step)
{
    double tokens = step->tokens / step->ranks, s;
    double passes = step->passes > 1 ? step->passes : 1;
    bool half = m->dtype == TRAIN_BF16 || m->dtype == TRAIN_F16;
    int size = half ? 2 : 4;
    double rate = check_rate (d, m->dtype) * 1e12, brought;
    double of_attention = half && d->attention > 0 ? d->attention * 1e12 : rate;

    s = tokens * products (m) / rate
        + tokens * attention (m, step->seq) / of_attention;
    if (d->memory == 0)
        return s;
    s += tokens * m->layers * elements (d, m, tokens / passes) * size
         / d->memory;
    s += passes * m->layers * KERNELS * GAP_S;
    brought = bring_seconds (m, step, size);
    if (s < brought)
        s = brought;
    return s + weights (m) / step->ranks * OF_WEIGHT / d->memory
           + update_seconds (m, step, size);
}

static double elem_of (const train_decoder_config_t *m)
{
    return m->dtype == TRAIN_F64                             ? 8
           : m->dtype == TRAIN_BF16 || m->dtype == TRAIN_F16 ? 2
                                                             : 4;
}

/* What multiplies a token, the head with it. */
static double multiplied (const train_decoder_config_t *m)
{
    return m->layers * of_block (m) + (double)m->dim * m->vocab;
}

static double attention_forward (const train_decoder_config_t *m, int seq)
{
    return m->layers * 2 * m->heads * head_of (m) * seq;
}

double check_forward_flop (const train_decoder_config_t *m, int seq)
{
    return 2 * multiplied (m) + attention_forward (m, seq);
}

double check_forward_seconds (const struct check_device *d,
                              const train_decoder_config_t *m, int seq,
                              double tokens)
{
    bool half = elem_of (m) == 2;
    double rate = check_rate (d, m->dtype) * 1e12;
    double of_attention = half && d->attention > 0 ? d->attention * 1e12 : rate;
    double s = tokens
               * (2 * multiplied (m) / rate
                  + attention_forward (m, seq) / of_attention);

    if (d->memory > 0)
        s += tokens * m->layers * elements (d, m, tokens) / 3 * elem_of (m)
             / d->memory;
    return s;
}

/* A tied embedding comes for the head again. */
double check_gather_seconds (const struct check_device *d,
                             const train_decoder_config_t *m, int ranks)
{
    double all = m->layers * of_block (m) + 2 * (double)m->dim * m->vocab;

    if (ranks < 2 || d->wire == 0)
        return 0;
    return (m->layers + 2) * CALL_S
           + all * elem_of (m) * (ranks - 1) / ranks / d->wire;
}

double check_beside (double own, double gather, bool ahead)
{
    if (!ahead)
        return own + gather;
    return own > gather ? own : gather;
}

/* Places of a text that are kept, in the middle of its way. */
static double kept (const struct check_writing *w)
{
    return w->prompt + 0.5 * w->more;
}

double check_writing_flop (const train_decoder_config_t *m,
                           const struct check_writing *w)
{
    double token =
        2 * multiplied (m) + 4 * m->layers * m->heads * head_of (m) * kept (w);

    return w->prompts * w->prompt * check_forward_flop (m, w->prompt)
           + w->texts * w->more * token;
}

double check_writing_seconds (const struct check_device *d,
                              const train_decoder_config_t *m,
                              const struct check_writing *w)
{
    double read =
        check_forward_seconds (d, m, w->prompt, w->prompts * w->prompt);
    double at_once = w->at_once < w->texts ? w->at_once : w->texts;
    double rounds = w->texts / at_once * w->more;
    double rate = check_rate (d, m->dtype) * 1e12;
    double products_s = at_once * 2 * multiplied (m) / rate, bytes;
    double feeds = ceil (w->prompts * w->prompt / FEED);

    if (d->memory == 0)
        return check_writing_flop (m, w) / rate;
    bytes = multiplied (m) * elem_of (m) / d->memory;
    bytes = bytes > products_s ? bytes : products_s;
    bytes += at_once * kept (w) * 2 * kv_of (m) * head_of (m) * m->layers
             * elem_of (m) / d->memory;
    if (feeds < w->texts / at_once)
        feeds = ceil (w->texts / at_once);
    return check_beside (read, feeds * w->gather_s, w->ahead)
           + rounds
                 * check_beside (bytes + m->layers * LAYER_S, w->gather_s,
                                 w->ahead);
}
