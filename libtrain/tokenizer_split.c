/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_split.c - cut text into the pieces that merges stay within
 *
 * The patterns that models use, as scanners by hand: at each place the first
 * alternative that matches, as long as it can. With behaviour Isolated every
 * match is a piece, and these patterns leave nothing between. */
#include "config.h"

#include <string.h>

#include "tokenizer_impl.h"

#define REST "(?!\\S)|\\s+"
#define GPT2                                                                   \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| "                            \
    "?[^\\s\\p{L}\\p{N}]+|\\s+" REST
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define WORDS        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+"
#define LLAMA3       CONTRACTIONS WORDS "\\p{N}{1,3}|" SIGNS REST
#define QWEN2        CONTRACTIONS WORDS "\\p{N}|" SIGNS REST

struct place {
    const uint8_t *classes;
    const char *s;
    size_t n;
};

/* The class at [i], -1 behind the end; *k the bytes of the character. */
static inline int look (const struct place *p, size_t i, size_t *k)
{
    if (i >= p->n)
        return -1;
    return unicode_class (p->classes, utf8_get (p->s + i, k));
}

/* Where the run of characters of [class] that [i] begins ends; at most [most]. */
static inline size_t run_of (const struct place *p, size_t i, int class,
                             size_t most)
{
    size_t k;

    while (most-- > 0 && look (p, i, &k) == class)
        i += k;
    return i;
}

static inline bool newline (char c)
{
    return c == '\r' || c == '\n';
}

/* Bytes of 's 't 'm 'd 're 've 'll at [s], else 0.
 *   fold   either case; U+017F, the long s, is an s then */
static size_t contraction (const char *s, size_t n, bool fold)
{
    char a, b;

    if (n < 2 || s[0] != '\'')
        return 0;
    if (fold && n >= 3 && memcmp (s + 1, "\xc5\xbf", 2) == 0)
        return 3;
    a = fold && s[1] >= 'A' && s[1] <= 'Z' ? (char)(s[1] + 32) : s[1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (n < 3)
        return 0;
    b = fold && s[2] >= 'A' && s[2] <= 'Z' ? (char)(s[2] + 32) : s[2];
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e')
        || (a == 'l' && b == 'l'))
        return 3;
    return 0;
}

/* \s+(?!\S)|\s+ on white space that begins at 0: all of it at the end of the
 * text, else all but its last character, which is the next piece's. */
static size_t space (const struct place *p)
{
    size_t end = 0, before = 0, k;

    while (look (p, end, &k) == UNICODE_SPACE) {
        before = end;
        end += k;
    }
    return end == p->n || before == 0 ? end : before;
}

size_t tok_scan_gpt2 (const uint8_t *classes, const char *s, size_t n)
{
    struct place p = {classes, s, n};
    size_t k = 0, from = s[0] == ' ', end = contraction (s, n, false);
    int class;

    if (end)
        return end;
    class = look (&p, from, &k);
    if (class >= 0 && class != UNICODE_SPACE)
        return run_of (&p, from + k, class, SIZE_MAX);
    return space (&p);
}

/* \s*[\r\n]+ on white space: through its last end of a line, 0 if none. */
static size_t lines (const struct place *p)
{
    size_t end = 0, last = 0, k;

    while (look (p, end, &k) == UNICODE_SPACE) {
        if (newline (p->s[end]))
            last = end + 1;
        end += k;
    }
    return last;
}

static size_t scan_lines (const uint8_t *classes, const char *s, size_t n,
                          size_t digits)
{
    struct place p = {classes, s, n};
    size_t k = 0, next = 0, end = contraction (s, n, true);
    int class;

    if (end)
        return end;
    class = look (&p, 0, &k);
    if (class == UNICODE_LETTER)
        return run_of (&p, k, UNICODE_LETTER, SIZE_MAX);
    if (class == UNICODE_NUMBER)
        return run_of (&p, 0, UNICODE_NUMBER, digits);
    if (!newline (s[0]) && look (&p, k, &next) == UNICODE_LETTER)
        return run_of (&p, k + next, UNICODE_LETTER, SIZE_MAX);
    if (class == UNICODE_OTHER
        || (s[0] == ' ' && look (&p, 1, &next) == UNICODE_OTHER)) {
        end = run_of (&p, s[0] == ' ', UNICODE_OTHER, SIZE_MAX);
        while (end < n && newline (s[end]))
            end++;
        return end;
    }
    return (end = lines (&p)) ? end : space (&p);
}

static size_t scan_llama3 (const uint8_t *classes, const char *s, size_t n)
{
    return scan_lines (classes, s, n, 3);
}

static size_t scan_qwen2 (const uint8_t *classes, const char *s, size_t n)
{
    return scan_lines (classes, s, n, 1);
}

tok_scan_fn tok_scan_of (const char *regex)
{
    static const struct {
        const char *regex;
        tok_scan_fn scan;
    } known[] = {
        {GPT2, tok_scan_gpt2}, {LLAMA3, scan_llama3}, {QWEN2, scan_qwen2}};

    for (size_t i = 0; i < sizeof (known) / sizeof (*known); i++)
        if (strcmp (regex, known[i].regex) == 0)
            return known[i].scan;
    return NULL;
}

/* Numbers each alone, or a run of them, and what stands between. */
static size_t scan_digits (const uint8_t *classes, const char *s, size_t n,
                           bool each)
{
    struct place p = {classes, s, n};
    bool number;
    size_t end = 0, k;

    number = look (&p, 0, &end) == UNICODE_NUMBER;
    if (number && each)
        return end;
    while (end < n && (look (&p, end, &k) == UNICODE_NUMBER) == number)
        end += k;
    return end;
}

/* A mark begins a piece. */
static size_t scan_mark (const struct tok_str *mark, const char *s, size_t n)
{
    const char *at =
        n > mark->n ? memmem (s + 1, n - 1, mark->s, mark->n) : NULL;

    return at ? (size_t)(at - s) : n;
}

static bool begins (const char *s, size_t n, const char *with, size_t n_with)
{
    return n >= n_with && memcmp (s, with, n_with) == 0;
}

/* The text with marks for its spaces, and one before it. */
static void put_marks (struct tok_buf *buf, const struct tok_pre *pre,
                       const char *s, size_t n, bool first)
{
    bool has = begins (s, n, " ", 1) || begins (s, n, pre->mark.s, pre->mark.n);

    buf->n = 0;
    if (!has
        && (pre->scheme == META_ALWAYS || (pre->scheme == META_FIRST && first)))
        tok_buf_add (buf, pre->mark.s, pre->mark.n);
    for (size_t i = 0; i < n;) {
        const char *at = memchr (s + i, ' ', n - i);
        size_t end = at ? (size_t)(at - s) : n;

        tok_buf_add (buf, s + i, end - i);
        if (at)
            tok_buf_add (buf, pre->mark.s, pre->mark.n);
        i = end + (at != NULL);
    }
}

static size_t scan (const train_tokenizer_t *t, const struct tok_pre *pre,
                    const char *s, size_t n)
{
    switch (pre->kind) {
    case PRE_DIGITS:
        return scan_digits (t->classes, s, n, pre->each);
    case PRE_META:
        return pre->split ? scan_mark (&pre->mark, s, n) : n;
    case PRE_BYTES:
    case PRE_SPLIT:
        break;
    }
    return pre->scan ? pre->scan (t->classes, s, n) : n;
}

void tok_split (train_tokenizer_t *t, size_t step, const char *s, size_t n,
                bool first)
{
    const struct tok_pre *pre = &t->pre[step];
    struct tok_buf own = {0};
    size_t at = 0, k;

    if (step == t->n_pre) {
        if (n > 0)
            tok_bpe_piece (&t->bpe, &t->out, s, n);
        return;
    }
    if (n > 0 && pre->kind == PRE_META) {
        put_marks (&own, pre, s, n, first);
    } else if (n > 0 && pre->kind == PRE_BYTES && pre->prefix && s[0] != ' ') {
        tok_buf_add (&own, " ", 1);
        tok_buf_add (&own, s, n);
    }
    t->out.failed |= own.failed;
    if (own.p) {
        s = own.p;
        n = own.n;
    }
    for (; at < n; at += k) {
        k = scan (t, pre, s + at, n - at);
        if (step + 1 == t->n_pre)
            tok_bpe_piece (&t->bpe, &t->out, s + at, k);
        else
            tok_split (t, step + 1, s + at, k, first && at == 0);
    }
    free (own.p);
}
