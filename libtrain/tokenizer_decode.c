/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_decode.c - from tokens to text, a step of the decoder at a time
 *
 * A step takes a list of strings and gives a list; at the end they are joined.
 * Without a decoder a blank stands between tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "tokenizer_impl.h"

struct list {
    struct tok_buf text;
    size_t *end; /* (n) where each string ends */
    size_t n, cap;
};

static void add (struct list *l, const char *s, size_t n)
{
    tok_buf_add (&l->text, s, n);
}

/* The string that was added to is whole. */
static void finish (struct list *l)
{
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 256;
        size_t *p = realloc (l->end, cap * sizeof (*p));

        if (!p) {
            l->text.failed = true;
            return;
        }
        l->end = p;
        l->cap = cap;
    }
    l->end[l->n++] = l->text.n;
}

static struct tok_str item (const struct list *l, size_t i)
{
    size_t from = i ? l->end[i - 1] : 0;

    return (struct tok_str){l->text.p + from, l->end[i] - from};
}

/* Bytes of each character; a token with another character is taken as it is. */
static void by_bytes (struct list *to, const struct list *from)
{
    struct tok_buf all = {0};

    for (size_t i = 0; i < from->n; i++) {
        struct tok_str x = item (from, i);
        size_t start = all.n, j, k;

        for (j = 0; j < x.n; j += k) {
            int byte = tok_byte_of (utf8_get (x.s + j, &k));
            char c = (char)byte;

            if (byte < 0)
                break;
            tok_buf_add (&all, &c, 1);
        }
        if (j < x.n) {
            all.n = start;
            tok_buf_add (&all, x.s, x.n);
        }
    }
    utf8_repair (&to->text, all.p, all.n);
    to->text.failed |= all.failed;
    finish (to);
    free (all.p);
}

/* The byte of "<0xNN>", else -1. */
static int named_byte (struct tok_str x)
{
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    const char *a, *b;

    if (x.n != 6 || memcmp (x.s, "<0x", 3) != 0 || x.s[5] != '>' || !x.s[3]
        || !x.s[4])
        return -1;
    a = strchr (digits, x.s[3]);
    b = strchr (digits, x.s[4]);
    return a && b ? (int)((a - digits) % 16 * 16 + (b - digits) % 16) : -1;
}

static void put_bytes (struct list *to, struct tok_buf *bytes)
{
    if (bytes->n == 0)
        return;
    if (utf8_valid (bytes->p, bytes->n) == bytes->n) {
        add (to, bytes->p, bytes->n);
        finish (to);
    } else {
        for (size_t i = 0; i < bytes->n; i++) {
            add (to, "\xef\xbf\xbd", 3);
            finish (to);
        }
    }
    bytes->n = 0;
}

/* A run of named bytes is text where it is UTF-8, else U+FFFD for each. */
static void by_fallback (struct list *to, const struct list *from)
{
    struct tok_buf bytes = {0};

    for (size_t i = 0; i < from->n; i++) {
        struct tok_str x = item (from, i);
        int byte = named_byte (x);
        char c = (char)byte;

        if (byte >= 0) {
            tok_buf_add (&bytes, &c, 1);
            continue;
        }
        put_bytes (to, &bytes);
        add (to, x.s, x.n);
        finish (to);
    }
    put_bytes (to, &bytes);
    to->text.failed |= bytes.failed;
    free (bytes.p);
}

static void by_fuse (struct list *to, const struct list *from)
{
    add (to, from->text.p, from->text.n);
    finish (to);
}

static void by_replace (struct list *to, const struct list *from,
                        const struct tok_str *what, const struct tok_str *by,
                        bool drop_first)
{
    for (size_t i = 0; i < from->n; i++) {
        struct tok_str x = item (from, i);
        const char *s = x.s, *end = x.s + x.n, *at;

        while ((at = memmem (s, (size_t)(end - s), what->s, what->n))) {
            add (to, s, (size_t)(at - s));
            if (i > 0 || !drop_first)
                add (to, by->s, by->n);
            s = at + what->n;
        }
        add (to, s, (size_t)(end - s));
        finish (to);
    }
}

static void by_strip (struct list *to, const struct list *from,
                      const struct tok_dec *d)
{
    size_t k = d->from.n;

    for (size_t i = 0; i < from->n; i++) {
        struct tok_str x = item (from, i);

        for (int j = 0;
             j < d->start && x.n >= k && memcmp (x.s, d->from.s, k) == 0; j++) {
            x.s += k;
            x.n -= k;
        }
        for (int j = 0; j < d->stop && x.n >= k
                        && memcmp (x.s + x.n - k, d->from.s, k) == 0;
             j++)
            x.n -= k;
        add (to, x.s, x.n);
        finish (to);
    }
}

static void run (const struct tok_dec *d, struct list *to,
                 const struct list *from)
{
    static const struct tok_str blank = {(char *)" ", 1};

    switch (d->kind) {
    case DEC_BYTES:
        by_bytes (to, from);
        break;
    case DEC_FALLBACK:
        by_fallback (to, from);
        break;
    case DEC_FUSE:
        by_fuse (to, from);
        break;
    case DEC_META:
        by_replace (to, from, &d->from, &blank, d->scheme != META_NEVER);
        break;
    case DEC_REPLACE:
        by_replace (to, from, &d->from, &d->to, false);
        break;
    case DEC_STRIP:
        by_strip (to, from, d);
        break;
    }
}

static const struct tok_added *added_of (const train_tokenizer_t *t, int32_t id)
{
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id)
            return &t->added[i];
    return NULL;
}

static train_status_t gather (const train_tokenizer_t *t, struct list *l,
                              const int32_t *ids, size_t n, bool skip,
                              train_error_t *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct tok_added *a = added_of (t, ids[i]);
        /* as the library has it (0.23): normalized where it is found so */
        const struct tok_str *x = !a              ? NULL
                                  : a->normalized ? &a->normal
                                                  : &a->content;

        if (!a && ids[i] >= 0 && (size_t)ids[i] < t->bpe.n)
            x = &t->bpe.vocab[ids[i]];
        if (!x || !x->s)
            return err_set (err, TRAIN_EINVAL,
                            "tokenizer: id %d at place %zu is no token",
                            (int)ids[i], i);
        if (a && a->special && skip)
            continue;
        if (t->n_dec == 0 && l->n > 0)
            add (l, " ", 1);
        add (l, x->s, x->n);
        finish (l);
    }
    return TRAIN_OK;
}

train_status_t tok_decode (const train_tokenizer_t *t, struct tok_buf *ret,
                           const int32_t *ids, size_t n, bool skip,
                           train_error_t *err)
{
    struct list a = {0}, b = {0};
    train_status_t status = gather (t, &a, ids, n, skip, err);

    for (size_t i = 0; status == TRAIN_OK && i < t->n_dec && a.n > 0; i++) {
        struct list swap = a;

        b.text.n = b.n = 0;
        run (&t->dec[i], &b, &a);
        b.text.failed |= a.text.failed;
        a = b;
        b = swap;
    }
    if (status == TRAIN_OK) {
        tok_buf_add (ret, a.text.p, a.text.n);
        ret->failed |= a.text.failed;
    }
    free (a.text.p);
    free (a.end);
    free (b.text.p);
    free (b.end);
    return status;
}
