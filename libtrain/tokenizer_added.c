/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_added.c - find added tokens in text; what is between goes on
 *
 * First those that the normalizer does not touch, in the text as it came; then,
 * in each part between them, the others, behind the normalizer. At one place
 * the longest counts. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tokenizer_impl.h"

static const struct tok_str *text_of (const struct tok_added *a)
{
    return a->normalized ? &a->normal : &a->content;
}

static int by_text (const void *a, const void *b, void *arg)
{
    const struct tok_added *added = arg;
    const struct tok_str *x = text_of (&added[*(const uint32_t *)a]);
    const struct tok_str *y = text_of (&added[*(const uint32_t *)b]);

    if (*x->s != *y->s)
        return (uint8_t)*x->s < (uint8_t)*y->s ? -1 : 1;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

static train_status_t order_level (train_tokenizer_t *t, bool normalized,
                                   train_error_t *err)
{
    struct tok_level *level = &t->level[normalized];
    uint32_t n = 0;

    if (!(level->order = calloc (t->n_added + 1, sizeof (*level->order))))
        return err_set (err, TRAIN_ENOMEM, "no memory for added tokens");
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].normalized == normalized && text_of (&t->added[i])->n)
            level->order[n++] = (uint32_t)i;
    qsort_r (level->order, n, sizeof (*level->order), by_text, t->added);
    for (uint32_t i = 0; i < n; i++)
        level->start[(uint8_t)*text_of (&t->added[level->order[i]])->s + 1]++;
    for (int c = 0; c < 256; c++)
        level->start[c + 1] += level->start[c];
    return TRAIN_OK;
}

train_status_t tok_added_order (train_tokenizer_t *t, train_error_t *err)
{
    TRY (order_level (t, false, err));
    return order_level (t, true, err);
}

static const struct tok_added *token_at (const train_tokenizer_t *t, int l,
                                         const char *s, size_t n)
{
    const struct tok_level *level = &t->level[l];
    uint32_t end = level->start[(uint8_t)*s + 1];

    for (uint32_t i = level->start[(uint8_t)*s]; i < end; i++) {
        const struct tok_added *a = &t->added[level->order[i]];
        const struct tok_str *text = text_of (a);

        if (text->n <= n && memcmp (text->s, s, text->n) == 0)
            return a;
    }
    return NULL;
}

static bool space_at (const train_tokenizer_t *t, const char *s, size_t *k)
{
    return unicode_class (t->classes, utf8_get (s, k)) == UNICODE_SPACE;
}

/* Where white space before [at] begins, not below [least]. */
static size_t strip_left (const train_tokenizer_t *t, const char *s, size_t at,
                          size_t least)
{
    while (at > least) {
        size_t i = at - 1, k;

        while (i > least && ((uint8_t)s[i] & 0xc0) == 0x80)
            i--;
        if (!space_at (t, s + i, &k))
            break;
        at = i;
    }
    return at;
}

static size_t strip_right (const train_tokenizer_t *t, const char *s, size_t at,
                           size_t n)
{
    size_t k;

    while (at < n && space_at (t, s + at, &k))
        at += k;
    return at;
}

static void between (train_tokenizer_t *t, int l, const char *s, size_t n,
                     bool first);

static void cut (train_tokenizer_t *t, int l, const char *s, size_t n,
                 bool first)
{
    size_t done = 0, i = 0;

    while (i < n) {
        const struct tok_added *a = token_at (t, l, s + i, n - i);
        size_t start = i, stop;

        if (!a) {
            i++;
            continue;
        }
        i += text_of (a)->n;
        stop = a->rstrip ? strip_right (t, s, i, n) : i;
        if (a->lstrip)
            start = start > done ? strip_left (t, s, start, done) : done;
        if (start > done)
            between (t, l, s + done, start - done, first && done == 0);
        if (stop <= start) /* all of it is white space of the one before */
            continue;
        tok_ids_add (&t->out, a->id);
        done = stop;
    }
    if (done < n)
        between (t, l, s + done, n - done, first && done == 0);
}

static void between (train_tokenizer_t *t, int l, const char *s, size_t n,
                     bool first)
{
    struct tok_buf normal = {0};

    if (l == 1) {
        tok_split (t, 0, s, n, first);
        return;
    }
    if (t->n_norm == 0) {
        cut (t, 1, s, n, first);
        return;
    }
    tok_normalize (t, &normal, s, n);
    t->out.failed |= normal.failed;
    if (!normal.failed)
        cut (t, 1, normal.p, normal.n, first);
    free (normal.p);
}

void tok_encode_text (train_tokenizer_t *t, const char *s, size_t n)
{
    cut (t, 0, s, n, true);
}
