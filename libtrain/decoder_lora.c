/* SPDX-License-Identifier: Apache-2.0
 * decoder_lora.c - adapters of low rank beside the products of a block
 *
 * A product y = x W^T gets scale (x A^T) B^T on top; q, k, v and gate, up are
 * columns of fused ones. x A^T is made again in the backward: it is narrow.
 * (Hu et al. 2021, arXiv:2106.09685.) */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "decoder_impl.h"
#include "err.h"

#define ACT(name) decoder_act (m, m->layout.name, 0)

static const struct {
    const char *name, *full; /* as PEFT has them; as the parameter's name */
    enum decoder_product product;
} target[TRAIN_LORA_N] = {
    {"q_proj", "self_attn.q_proj", DECODER_QKV},
    {"k_proj", "self_attn.k_proj", DECODER_QKV},
    {"v_proj", "self_attn.v_proj", DECODER_QKV},
    {"o_proj", "self_attn.o_proj", DECODER_OUT},
    {"gate_proj", "mlp.gate_proj", DECODER_GATE_UP},
    {"up_proj", "mlp.up_proj", DECODER_GATE_UP},
    {"down_proj", "mlp.down_proj", DECODER_DOWN},
};

const char *train_lora_target (int k)
{
    return k >= 0 && k < TRAIN_LORA_N ? target[k].name : NULL;
}

const char *decoder_lora_module (int k)
{
    return target[k].full;
}

train_status_t train_lora_targets (const char *list, int *ret,
                                   train_error_t *err)
{
    char *copy = strdup (list ? list : ""), *next = copy, *word;
    train_status_t status = TRAIN_OK;
    int set = 0;

    if (!copy)
        return err_set (err, TRAIN_ENOMEM, "no memory for a list of targets");
    while (status == TRAIN_OK && (word = strsep (&next, ","))) {
        int before = set;

        word += strspn (word, " \t");
        word[strcspn (word, " \t")] = '\0';
        for (int k = 0; k < TRAIN_LORA_N; k++)
            if (fnmatch (word, target[k].name, 0) == 0
                || strcmp (word, "all-linear") == 0)
                set |= 1 << k;
        if (set == before && *word)
            status = err_set (err, TRAIN_EINVAL,
                              "lora target '%s' fits none of q_proj, k_proj, "
                              "v_proj, o_proj, gate_proj, up_proj, down_proj, "
                              "or is there already",
                              word);
    }
    if (status == TRAIN_OK && !set)
        status = err_set (err, TRAIN_EINVAL,
                          "lora: the list of targets is "
                          "empty; q_proj, v_proj would do");
    free (copy);
    if (status == TRAIN_OK)
        *ret = set;
    return status;
}

train_status_t decoder_lora_check (const train_decoder_config_t *c,
                                   train_error_t *err)
{
    const train_lora_t *o = &c->lora;

    if (o->rank == 0)
        return o->targets || o->alpha > 0 || o->alpha < 0
                   ? err_set (err, TRAIN_EINVAL,
                              "model lora has targets or alpha, and rank 0")
                   : TRAIN_OK;
    if (o->rank < 0 || o->rank > 4096)
        return err_set (err, TRAIN_EINVAL,
                        "model lora rank is %d: must be in 0..4096", o->rank);
    if (!(o->alpha > 0 && o->alpha < 1e6))
        return err_set (err, TRAIN_EINVAL,
                        "model lora alpha is %g: must be above 0, below 1e6",
                        o->alpha);
    if (o->targets <= 0 || o->targets >= 1 << TRAIN_LORA_N)
        return err_set (err, TRAIN_EINVAL,
                        "model lora targets are %d: train_lora_targets makes "
                        "them",
                        o->targets);
    return TRAIN_OK;
}

struct decoder_lora decoder_lora_of (const struct decoder_dims *d, int k)
{
    size_t q = d->H * d->D, kv = d->G * d->D;
    const struct decoder_lora all[TRAIN_LORA_N] = {
        {d->C, q, d->Q, 0},        {d->C, kv, d->Q, q},
        {d->C, kv, d->Q, q + kv},  {q, d->C, d->C, 0},
        {d->C, d->F, 2 * d->F, 0}, {d->C, d->F, 2 * d->F, d->F},
        {d->F, d->C, d->C, 0},
    };

    return all[k];
}

size_t decoder_lora_widest (const struct decoder_dims *d)
{
    size_t most = 0;

    for (int k = 0; k < TRAIN_LORA_N; k++) {
        struct decoder_lora o = decoder_lora_of (d, k);

        if (!(d->lora.targets & 1 << k))
            continue;
        most = o.in > most ? o.in : most;
        most = o.out > most ? o.out : most;
    }
    return most;
}

static double scale_of (const struct decoder_dims *d)
{
    return d->lora.alpha / d->lora.rank;
}

static bool serves (const train_decoder_t *m, int k, enum decoder_product p)
{
    return !m->plain && target[k].product == p && m->dims.lora.targets & 1 << k;
}

train_status_t decoder_lora_fwd (train_decoder_t *m, size_t l,
                                 enum decoder_product p, void *y, const void *x,
                                 train_error_t *err)
{
    const struct decoder_dims *d = &m->dims;
    size_t N = (size_t)m->B * (size_t)m->T, R = (size_t)d->lora.rank;

    for (int k = 0; k < TRAIN_LORA_N; k++) {
        const struct decoder_block *b = &m->blocks[l];
        struct decoder_lora o;

        if (!serves (m, k, p))
            continue;
        o = decoder_lora_of (d, k);
        TRY (m->work->linear (m, ACT (lora_u), x,
                              decoder_weight (m, l + 1, b->lora_a[k]), N, o.in,
                              R, err));
        TRY (m->work->linear (m, ACT (lora_wide), ACT (lora_u),
                              decoder_weight (m, l + 1, b->lora_b[k]), N, R,
                              o.out, err));
        m->kern->cols_add (y, ACT (lora_wide), N, o.out, o.pitch, o.col,
                           scale_of (d), m->stream);
    }
    return TRAIN_OK;
}

/* A matrix that is frozen has no gradient. */
static train_status_t add_dw (train_decoder_t *m, void *dw, const void *dy,
                              const void *x, size_t N, size_t in, size_t out,
                              train_error_t *err)
{
    return dw ? m->work->linear_dw (m, dw, dy, x, N, in, out, err) : TRAIN_OK;
}

/* Of one adapter; its part of [dy] is in lora_wide, times the scale. */
static train_status_t one_bwd (train_decoder_t *m, size_t l, int k, void *dx,
                               const void *x, train_error_t *err)
{
    const struct decoder_block *b = &m->blocks[l];
    const void *A = decoder_weight (m, l + 1, b->lora_a[k]);
    const void *B = decoder_weight (m, l + 1, b->lora_b[k]);
    void *dA = decoder_grad (m, l + 1, b->lora_a[k]);
    void *dB = decoder_grad (m, l + 1, b->lora_b[k]);
    struct decoder_lora o = decoder_lora_of (&m->dims, k);
    size_t N = (size_t)m->B * (size_t)m->T, R = (size_t)m->dims.lora.rank;

    if (dB)
        TRY (m->work->linear (m, ACT (lora_u), x, A, N, o.in, R, err));
    TRY (add_dw (m, dB, ACT (lora_wide), ACT (lora_u), N, R, o.out, err));
    TRY (m->work->linear_dx (m, ACT (lora_du), ACT (lora_wide), B, N, R, o.out,
                             err));
    TRY (add_dw (m, dA, ACT (lora_du), x, N, o.in, R, err));
    TRY (m->work->linear_dx (m, ACT (lora_wide), ACT (lora_du), A, N, o.in, R,
                             err));
    m->kern->cols_add (dx, ACT (lora_wide), N, o.in, o.in, 0, 1, m->stream);
    return TRAIN_OK;
}

train_status_t decoder_lora_bwd (train_decoder_t *m, size_t l,
                                 enum decoder_product p, void *dx,
                                 const void *dy, const void *x,
                                 train_error_t *err)
{
    size_t N = (size_t)m->B * (size_t)m->T;

    for (int k = 0; k < TRAIN_LORA_N; k++) {
        struct decoder_lora o;

        if (!serves (m, k, p))
            continue;
        o = decoder_lora_of (&m->dims, k);
        m->kern->cols_take (ACT (lora_wide), dy, N, o.out, o.pitch, o.col,
                            scale_of (&m->dims), m->stream);
        TRY (one_bwd (m, l, k, dx, x, err));
    }
    return TRAIN_OK;
}

bool decoder_is_lora (const char *name)
{
    return strstr (name, ".lora_A.") || strstr (name, ".lora_B.");
}

bool decoder_waits (const char *name)
{
    return strstr (name, ".lora_A.") != NULL;
}
