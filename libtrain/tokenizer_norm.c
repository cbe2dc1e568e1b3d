/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_norm.c - normalizers: one text becomes another */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

static void replace (const struct tok_norm *step, struct tok_buf *ret,
                     const char *s, size_t n)
{
    const char *end = s + n, *at;

    while ((at = memmem (s, (size_t)(end - s), step->from.s, step->from.n))) {
        tok_buf_add (ret, s, (size_t)(at - s));
        tok_buf_add (ret, step->to.s, step->to.n);
        s = at + step->from.n;
    }
    tok_buf_add (ret, s, (size_t)(end - s));
}

static void one (const struct tok_norm *step, struct tok_buf *ret,
                 const char *s, size_t n)
{
    switch (step->kind) {
    case NORM_NFC:
        unicode_nfc (ret, s, n);
        break;
    case NORM_PREPEND:
        if (n > 0)
            tok_buf_add (ret, step->to.s, step->to.n);
        tok_buf_add (ret, s, n);
        break;
    case NORM_REPLACE:
        replace (step, ret, s, n);
        break;
    }
}

void tok_normalize (const train_tokenizer_t *t, struct tok_buf *ret,
                    const char *s, size_t n)
{
    struct tok_buf turn[2] = {0};

    for (size_t i = 0; i < t->n_norm; i++) {
        struct tok_buf *to = i + 1 == t->n_norm ? ret : &turn[i % 2];

        to->n = to == ret ? to->n : 0;
        one (&t->norm[i], to, s, n);
        ret->failed |= to->failed;
        s = to->p;
        n = to->n;
    }
    if (t->n_norm == 0)
        tok_buf_add (ret, s, n);
    free (turn[0].p);
    free (turn[1].p);
}
