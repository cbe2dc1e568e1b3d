/* SPDX-License-Identifier: Apache-2.0
 * fuzz_hf.c - Hugging Face's config.json: what is read makes a decoder whose
 * angles are numbers */
#include "config.h"

#include <math.h>

#include "decoder_impl.h"
#include "fuzz.h"
#include "hf_impl.h"

static void check_model (const train_hf_model_t *m)
{
    const train_decoder_config_t *c = &m->decoder;
    int half = c->head_dim / 2;

    FUZZ_CHECK (m->size == sizeof (*m) && m->positions >= 1);
    FUZZ_CHECK (c->head_dim >= 2 && c->head_dim % 2 == 0);
    FUZZ_CHECK (decoder_check (c, NULL) == TRAIN_OK);
    FUZZ_CHECK (isfinite (decoder_rope_scale (c)));
    for (int j = 0; j < half && j < 64; j++) {
        double rate = decoder_rope_rate (c, 4096, (size_t)j);

        FUZZ_CHECK (isfinite (rate) && rate >= 0);
    }
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *text = fuzz_text (data, size);
    train_hf_model_t m = {0};
    train_error_t err = {0};

    if (hf_parse (text, size, &m, &err) == TRAIN_OK)
        check_model (&m);
    else
        FUZZ_CHECK (m.size == 0 && err.text[0] && err.code != TRAIN_OK);
    free (text);
    return 0;
}
