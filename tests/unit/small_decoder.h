/* SPDX-License-Identifier: Apache-2.0
 * small_decoder.h - a decoder that tests differentiate number by number. Behind
 * cmocka.h. */
#ifndef SMALL_DECODER_H
#define SMALL_DECODER_H

#include <train/decoder.h>

/* Widths that no vector length divides. */
static const train_decoder_config_t small = {
    .size = sizeof (small),
    .layers = 2,
    .dim = 12,
    .heads = 2,
    .kv_heads = 1,
    .ffn = 7,
    .vocab = 11,
    .tie = true,
    .rope_theta = 100.0,
    .norm_eps = 1e-5,
    .dtype = TRAIN_F64,
};

static inline train_decoder_t *decoder_of (const train_decoder_config_t *config)
{
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (train_decoder_create (config, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return m;
}

#endif
