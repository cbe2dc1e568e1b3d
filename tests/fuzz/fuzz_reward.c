/* SPDX-License-Identifier: Apache-2.0
 * fuzz_reward.c - what a reward's program writes: the first byte says in how
 * large pieces it comes, which changes nothing; a line is a reward or is refused */
#include "config.h"

#include <math.h>

#include "libtrain/reward_wire.h"

#include "fuzz.h"

static void check_line (const char *line, size_t n)
{
    train_error_t err = {0};
    float reward = -7;

    if (wire_reply (line, n, 7, &reward, &err) == TRAIN_OK)
        FUZZ_CHECK (isnan (reward) || isfinite (reward));
    else
        FUZZ_CHECK (err.code == TRAIN_EFORMAT && err.text[0] && reward == -7);
}

/* The first line of [text] in pieces of [step]; how many bytes it has, with its
 * newline. 0: there is no whole line. */
static size_t take (const char *text, size_t size, size_t step, char **ret)
{
    struct wire_line line = {0};
    size_t n = 0;

    *ret = NULL;
    for (size_t i = 0; i < size; i += step) {
        size_t k = size - i < step ? size - i : step;
        enum wire_take got = wire_take (&line, text + i, k);

        FUZZ_CHECK (got != WIRE_HUGE && got != WIRE_NO_MEMORY);
        if (got == WIRE_MORE)
            continue;
        n = line.n;
        FUZZ_CHECK (got == (n == i + k ? WIRE_LINE : WIRE_BEHIND));
        break;
    }
    *ret = line.p;
    return n;
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    size_t step = size > 0 && data[0] > 0 ? data[0] : 1;
    char *text = fuzz_text (data, size), *a, *b;
    size_t n = take (text, size, size, &a), m = take (text, size, step, &b);

    FUZZ_CHECK (n == m && (n == 0 || memcmp (a, b, n) == 0));
    if (n > 0)
        check_line (a, n - 1);
    free (a);
    free (b);
    check_line (text, size);
    if (size > 1)
        check_line (text + 1, size - 1);
    free (text);
    return 0;
}
