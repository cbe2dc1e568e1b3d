/* SPDX-License-Identifier: Apache-2.0
 * fuzz_math.c - expressions: a value is in lowest terms and reads back as
 * itself, and what is found in a text is an expression */
#include "config.h"

#include "libtrain/reward_math.h"

#include "fuzz.h"

static int64_t gcd (int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t c = a % b;

        a = b;
        b = c;
    }
    return a < 0 ? -a : a;
}

static void check_value (struct rational r)
{
    struct rational back;
    char text[64];

    FUZZ_CHECK (r.den >= 1 && gcd (r.num, r.den) == 1);
    snprintf (text, sizeof (text), "%lld/%lld", (long long)r.num,
              (long long)r.den);
    FUZZ_CHECK (math_number (text, strlen (text), &back) == MATH_OK
                && math_equal (r, back));
    FUZZ_CHECK (math_eval (text, strlen (text), &back, NULL) == MATH_OK
                && math_equal (r, back));
}

int LLVMFuzzerTestOneInput (const uint8_t *data, size_t size)
{
    char *text = fuzz_text (data, size);
    struct rational r, s;
    size_t at, n;
    int ops = 0;
    enum math got = math_eval (text, size, &r, &ops);

    if (got == MATH_OK)
        check_value (r);
    if (math_number (text, size, &s) == MATH_OK) {
        check_value (s);
        FUZZ_CHECK (got == MATH_OK && math_equal (r, s));
    }
    if (math_find (text, size, &at, &n)) {
        FUZZ_CHECK (n > 0 && at + n <= size);
        got = math_eval (text + at, n, &r, &ops);
        FUZZ_CHECK (got != MATH_SYNTAX && (got != MATH_OK || ops > 0));
    }
    free (text);
    return 0;
}
