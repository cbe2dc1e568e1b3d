/* SPDX-License-Identifier: Apache-2.0
 * unicode.c - UTF-8, classes of characters, normal form C
 *
 * Normal form C as Unicode Standard Annex 15 has it: canonical parts, marks in
 * the order of their combining classes, composed again. */
#include <stdlib.h>
#include <string.h>

#include "tokenizer_impl.h"

struct unicode_range {
    uint32_t first, last;
    int value;
};
struct unicode_parts {
    uint32_t c, a, b; /* b 0: a alone */
};
struct unicode_pair {
    uint32_t b, a, c; /* a and then b are c; by b, then a */
};
#include "unicode_class.inc"
#include "unicode_nfc.inc"

#define LENGTH(a) (sizeof (a) / sizeof (*(a)))

void unicode_classes (uint8_t *classes)
{
    memset (classes, 0, UNICODE_CLASS_BYTES);
    for (size_t i = 0; i < LENGTH (class_ranges); i++) {
        const struct unicode_range *r = &class_ranges[i];

        for (uint32_t c = r->first; c <= r->last; c++)
            classes[c >> 2] =
                (uint8_t)(classes[c >> 2] | r->value << (c & 3) * 2);
    }
}

size_t utf8_put (char s[4], uint32_t c)
{
    if (c < 0x80) {
        s[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        s[0] = (char)(0xc0 | c >> 6);
        s[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        s[0] = (char)(0xe0 | c >> 12);
        s[1] = (char)(0x80 | (c >> 6 & 0x3f));
        s[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    s[0] = (char)(0xf0 | c >> 18);
    s[1] = (char)(0x80 | (c >> 12 & 0x3f));
    s[2] = (char)(0x80 | (c >> 6 & 0x3f));
    s[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

/* Bytes of the character at [p], or minus the bytes of its part that could
 * begin one (at least 1). */
static int step (const uint8_t *p, const uint8_t *end)
{
    uint8_t low = 0x80, high = 0xbf;
    int n, i;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return -1;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    for (i = 1; i < n; i++) {
        if (p + i >= end || p[i] < low || p[i] > high)
            return -i;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

size_t utf8_valid (const char *s, size_t n)
{
    const uint8_t *p = (const uint8_t *)s, *end = p + n;
    uint64_t word;

    while (p < end) {
        int k;

        while (end - p >= 8) {
            memcpy (&word, p, 8);
            if (word & UINT64_C (0x8080808080808080))
                break;
            p += 8;
        }
        if (p >= end || (k = step (p, end)) < 0)
            break;
        p += k;
    }
    return (size_t)(p - (const uint8_t *)s);
}

size_t utf8_repair (struct tok_buf *buf, const char *s, size_t n)
{
    const char *end = s + n;
    size_t bad = 0;

    while (s < end) {
        size_t good = utf8_valid (s, (size_t)(end - s));

        tok_buf_add (buf, s, good);
        s += good;
        if (s == end)
            break;
        tok_buf_add (buf, "\xef\xbf\xbd", 3);
        s += -step ((const uint8_t *)s, (const uint8_t *)end);
        bad++;
    }
    return bad;
}

static int by_char (const void *key, const void *item)
{
    uint32_t a = *(const uint32_t *)key;
    uint32_t b = ((const struct unicode_parts *)item)->c;

    return a < b ? -1 : a > b;
}

static int by_pair (const void *key, const void *item)
{
    const struct unicode_pair *x = key, *y = item;

    if (x->b != y->b)
        return x->b < y->b ? -1 : 1;
    return x->a < y->a ? -1 : x->a > y->a;
}

static int by_range (const void *key, const void *item)
{
    uint32_t c = *(const uint32_t *)key;
    const struct unicode_range *r = item;

    return c < r->first ? -1 : c > r->last;
}

static int combining_class (uint32_t c)
{
    const struct unicode_range *r;

    if (c < 0x300)
        return 0;
    r = bsearch (&c, combining, LENGTH (combining), sizeof (*combining),
                 by_range);
    return r ? r->value : 0;
}

/* Hangul syllables are arithmetic. */
enum {
    SYLLABLE = 0xac00,
    N_SYLLABLES = 11172,
    LEAD = 0x1100,
    N_LEADS = 19,
    VOWEL = 0x1161,
    N_VOWELS = 21,
    TAIL = 0x11a7,
    N_TAILS = 28
};

#define PARTS_MAX 4 /* of one character, in any version so far */

static int parts_of (uint32_t c, uint32_t out[PARTS_MAX])
{
    const struct unicode_parts *p;
    uint32_t i = c - SYLLABLE;
    int n;

    if (i < N_SYLLABLES) {
        out[0] = LEAD + i / (N_VOWELS * N_TAILS);
        out[1] = VOWEL + i / N_TAILS % N_VOWELS;
        out[2] = TAIL + i % N_TAILS;
        return i % N_TAILS ? 3 : 2;
    }
    p = c < 0xc0 ? NULL
                 : bsearch (&c, canonical, LENGTH (canonical),
                            sizeof (*canonical), by_char);
    if (!p) {
        out[0] = c;
        return 1;
    }
    n = parts_of (p->a, out);
    if (p->b)
        out[n++] = p->b; /* the second part never has parts */
    return n;
}

/* What a and b are together, 0 if they stay apart. */
static uint32_t together (uint32_t a, uint32_t b)
{
    struct unicode_pair key;
    const struct unicode_pair *p;

    if (a - LEAD < N_LEADS && b - VOWEL < N_VOWELS)
        return SYLLABLE + ((a - LEAD) * N_VOWELS + b - VOWEL) * N_TAILS;
    if (a - SYLLABLE < N_SYLLABLES && (a - SYLLABLE) % N_TAILS == 0
        && b - TAIL - 1 < N_TAILS - 1)
        return a + b - TAIL;
    key.a = a;
    key.b = b;
    p = b < 0x300
            ? NULL
            : bsearch (&key, pairs, LENGTH (pairs), sizeof (*pairs), by_pair);
    return p ? p->c : 0;
}

struct chars {
    uint32_t *p;
    size_t n, cap;
};

static bool push (struct chars *x, uint32_t c)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 64;
        uint32_t *p = realloc (x->p, cap * sizeof (*p));

        if (!p)
            return false;
        x->p = p;
        x->cap = cap;
    }
    x->p[x->n++] = c;
    return true;
}

/* Insertion: runs of marks are short in text, but not in an attack, so that a
 * run is sorted by counting above some length. */
static void order (uint32_t *p, size_t n)
{
    size_t count[256] = {0}, sum = 0;
    uint32_t *copy;

    if (n > 64 && (copy = malloc (n * sizeof (*copy)))) {
        memcpy (copy, p, n * sizeof (*copy));
        for (size_t i = 0; i < n; i++)
            count[combining_class (p[i])]++;
        for (int k = 0; k < 256; k++) {
            size_t here = count[k];

            count[k] = sum;
            sum += here;
        }
        for (size_t i = 0; i < n; i++)
            p[count[combining_class (copy[i])]++] = copy[i];
        free (copy);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        uint32_t c = p[i];
        size_t j = i;

        for (; j > 0 && combining_class (p[j - 1]) > combining_class (c); j--)
            p[j] = p[j - 1];
        p[j] = c;
    }
}

static void order_all (struct chars *x)
{
    for (size_t i = 0; i < x->n;) {
        size_t from = i;

        while (i < x->n && combining_class (x->p[i]) > 0)
            i++;
        if (i - from > 1)
            order (x->p + from, i - from);
        if (i == from)
            i++;
    }
}

static void compose (struct chars *x)
{
    size_t out = 0, base = SIZE_MAX;
    int last = -1; /* class of the last mark that stayed since [base] */

    for (size_t i = 0; i < x->n; i++) {
        uint32_t c = x->p[i], joined = 0;
        int class = combining_class (c);

        if (base != SIZE_MAX && last < class)
            joined = together (x->p[base], c);
        if (joined) {
            x->p[base] = joined;
            continue;
        }
        if (class == 0) {
            base = out;
            last = -1;
        } else
            last = class;
        x->p[out++] = c;
    }
    x->n = out;
}

/* From one character below U+0300 to the next: those join with nothing before
 * them. */
static void segment (struct tok_buf *buf, struct chars *x, const char *s,
                     size_t n)
{
    char out[4];

    x->n = 0;
    for (size_t i = 0, k; i < n; i += k) {
        uint32_t part[PARTS_MAX];
        int count = parts_of (utf8_get (s + i, &k), part);

        for (int j = 0; j < count; j++)
            if (!push (x, part[j]))
                buf->failed = true;
    }
    order_all (x);
    compose (x);
    for (size_t i = 0; i < x->n; i++)
        tok_buf_add (buf, out, utf8_put (out, x->p[i]));
}

void unicode_nfc (struct tok_buf *buf, const char *s, size_t n)
{
    struct chars x = {0};
    size_t from = 0;

    while (from < n) {
        size_t i = from, start;

        /* bytes from 0xcc on begin characters of U+0300 and above */
        while (i < n && (uint8_t)s[i] < 0xcc)
            i++;
        start = i;
        while (start > from && i < n && ((uint8_t)s[--start] & 0xc0) == 0x80)
            ;
        if (i == n)
            start = n;
        tok_buf_add (buf, s + from, start - from);
        while (i < n
               && ((uint8_t)s[i] >= 0xcc || ((uint8_t)s[i] & 0xc0) == 0x80))
            i++;
        if (start < i)
            segment (buf, &x, s + start, i - start);
        from = i;
    }
    free (x.p);
}
