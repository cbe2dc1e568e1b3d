/* SPDX-License-Identifier: Apache-2.0
 * fuzz_logps.c - bodies of a reference server: behind 'a' one that is asked,
 * behind anything else an answer; what is taken is whole, and written again is
 * the same */
#include "config.h"

#include <math.h>

#include "fuzz.h"

#include "libtrain/logps_wire.h"

enum { VOCAB = 256, ROWS = 2, LONG = 3 };

static void check_ask (const struct logps_ask *a)
{
    FUZZ_CHECK (a->B >= 1 && a->T >= 1 && a->ids);
    FUZZ_CHECK (a->temperature > 0 && isfinite (a->temperature));
    for (int b = 0; b < a->B; b++) {
        const int32_t *ids = a->ids + (size_t)b * (size_t)a->T;

        FUZZ_CHECK (a->prompt_len[b] >= 0 && a->prompt_len[b] <= a->total_len[b]
                    && a->total_len[b] <= a->T);
        for (int t = 0; t < a->total_len[b]; t++)
            FUZZ_CHECK (ids[t] >= 0 && ids[t] < VOCAB);
    }
}

static void again (const struct logps_ask *a)
{
    struct logps_ask b = {0};
    size_t n = 0, ids = (size_t)a->B * (size_t)a->T;
    char *body = NULL;

    FUZZ_CHECK (logps_write_ask (a, &body, &n, NULL) == TRAIN_OK);
    FUZZ_CHECK (n <= logps_body_most (ids));
    FUZZ_CHECK (logps_read_ask (body, n, VOCAB, &b, NULL) == TRAIN_OK);
    FUZZ_CHECK (a->B == b.B && a->T == b.T && a->temperature == b.temperature);
    FUZZ_CHECK (memcmp (a->ids, b.ids, (ids + 2 * (size_t)a->B) * 4) == 0);
    logps_free_ask (&b);
    free (body);
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    struct logps_ask a = {0};
    train_error_t err = {0};
    char model[LOGPS_MODEL] = "";
    float logps[ROWS * LONG];
    char *body;

    if (size == 0)
        return 0;
    body = fuzz_text (data + 1, size - 1); /* of its own, and aligned */
    if (data[0] != 'a') {
        if (logps_read_answer (body, size - 1, ROWS, LONG, logps, model, &err)
            != TRAIN_OK)
            FUZZ_CHECK (err.text[0]);
        else
            FUZZ_CHECK (strlen (model) < sizeof (model));
    } else if (logps_read_ask (body, size - 1, VOCAB, &a, &err) == TRAIN_OK) {
        check_ask (&a);
        again (&a);
        logps_free_ask (&a);
    } else {
        FUZZ_CHECK (err.text[0] && !a.ids);
    }
    free (body);
    return 0;
}
