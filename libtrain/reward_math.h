/* SPDX-License-Identifier: Apache-2.0
 * reward_math.h - exact arithmetic of what stands in a text. Inside libtrain
 * only.
 *
 * Numbers are 12, 1,234, 0.5 (as 1/2); operators + - * / and the signs
 * U+00D7, U+00F7, U+2212, brackets, blanks between. Fractions of 64-bit
 * numbers, exact or refused. Nothing recurses deeper than 64 brackets and
 * signs. */
#ifndef TRAIN_REWARD_MATH_H
#define TRAIN_REWARD_MATH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lowest terms: den >= 1, and 0 is 0/1. */
struct rational {
    int64_t num, den;
};

enum math {
    MATH_OK,
    MATH_SYNTAX, /* no expression, or something behind it */
    MATH_RANGE,  /* past 64 bits, or too deep */
    MATH_ZERO,   /* a division by 0 */
};

/* math_eval - the value of an expression, the whole of [text] (n bytes).
 *   ret_ops   written: how many operators between two operands; NULL = not
 *             wanted */
enum math math_eval (const char *text, size_t n, struct rational *ret,
                     int *ret_ops);

/* math_number - a number or a fraction a/b, with a sign or without. */
enum math math_number (const char *text, size_t n, struct rational *ret);

/* math_find - the last expression with an operator in a text: "12 + 34" of
 * "What is 12 + 34?". A candidate is a run of at most 1000 of its characters,
 * from its begin or from behind a blank on, to its end. False: none. */
bool math_find (const char *text, size_t n, size_t *ret_at, size_t *ret_n);

static inline bool math_equal (struct rational a, struct rational b)
{
    return a.num == b.num && a.den == b.den;
}

#endif
