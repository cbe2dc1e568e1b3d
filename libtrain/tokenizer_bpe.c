/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_bpe.c - byte pair encoding of one piece
 *
 * Merges are done by rank, of equal ones the leftmost first. Few symbols are
 * looked through each time; of many a heap keeps the pairs, and an entry whose
 * symbols have changed since is dropped when it comes up. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tokenizer_impl.h"

#define FEW 32

static const struct tok_merge *find (const struct tok_bpe *b, int32_t left,
                                     int32_t right)
{
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)(pair * UINT64_C (0x9e3779b97f4a7c15) >> b->shift);

    for (;; at = (at + 1) & b->mask) {
        if (b->merges[at].pair == pair)
            return &b->merges[at];
        if (b->merges[at].pair == TOK_NO_PAIR)
            return NULL;
    }
}

static uint32_t rank_of (const struct tok_bpe *b, const int32_t *id,
                         int32_t *becomes)
{
    const struct tok_merge *m = find (b, id[0], id[1]);

    *becomes = m ? m->id : -1;
    return m ? m->rank : TOK_NO_RANK;
}

/* Merge id (n), n <= FEW, in place. Returns how many are left. */
static size_t merge_few (const struct tok_bpe *b, int32_t *id, size_t n)
{
    uint32_t rank[FEW];
    int32_t becomes[FEW];

    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of (b, id + i, &becomes[i]);
    while (n > 1) {
        size_t best = 0;

        for (size_t i = 1; i + 1 < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == TOK_NO_RANK)
            break;
        id[best] = becomes[best];
        n--;
        for (size_t i = best + 1; i < n; i++)
            id[i] = id[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++) {
            rank[i] = rank[i + 1];
            becomes[i] = becomes[i + 1];
        }
        if (best + 1 < n)
            rank[best] = rank_of (b, id + best, &becomes[best]);
        if (best > 0)
            rank[best - 1] = rank_of (b, id + best - 1, &becomes[best - 1]);
    }
    return n;
}

static void sift_down (struct tok_candidate *h, size_t n, size_t i)
{
    struct tok_candidate x = h[i];

    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && h[c + 1].key < h[c].key)
            c++;
        if (x.key <= h[c].key)
            break;
        h[i] = h[c];
    }
    h[i] = x;
}

static void sift_up (struct tok_candidate *h, size_t i)
{
    struct tok_candidate x = h[i];

    for (; i > 0 && x.key < h[(i - 1) / 2].key; i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = x;
}

/* Add the pair at symbol [left], where it is one; the heap has room: each merge
 * takes one entry out and puts at most two in. */
static bool offer (struct tok_bpe *b, int32_t left)
{
    const struct tok_symbol *s = b->symbols;
    const struct tok_merge *m;

    if (left < 0 || s[left].next < 0
        || !(m = find (b, s[left].id, s[s[left].next].id)))
        return false;
    b->heap[b->heap_n++] =
        (struct tok_candidate){(uint64_t)m->rank << 32 | (uint32_t)left, m->id};
    return true;
}

static void join (struct tok_bpe *b, int32_t left, int32_t id)
{
    struct tok_symbol *s = b->symbols;
    int32_t right = s[left].next;

    s[left].id = id;
    s[left].next = s[right].next;
    s[right].id = -1;
    if (s[left].next >= 0)
        s[s[left].next].prev = left;
    if (offer (b, s[left].prev))
        sift_up (b->heap, b->heap_n - 1);
    if (offer (b, left))
        sift_up (b->heap, b->heap_n - 1);
}

static void merge_many (struct tok_bpe *b, size_t n)
{
    struct tok_symbol *s = b->symbols;

    b->heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = (int32_t)i - 1;
        s[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++)
        offer (b, (int32_t)i);
    for (size_t i = b->heap_n / 2; i-- > 0;)
        sift_down (b->heap, b->heap_n, i);
    while (b->heap_n > 0) {
        struct tok_candidate top = b->heap[0];
        int32_t left = (int32_t)(uint32_t)top.key;
        const struct tok_merge *m;

        b->heap[0] = b->heap[--b->heap_n];
        if (b->heap_n > 0)
            sift_down (b->heap, b->heap_n, 0);
        if (s[left].id < 0 || s[left].next < 0)
            continue;
        m = find (b, s[left].id, s[s[left].next].id);
        if (m && m->id == top.id)
            join (b, left, top.id);
    }
}

static bool room (struct tok_bpe *b, size_t n)
{
    void *p;

    if (n > b->symbols_cap) {
        if (!(p = realloc (b->symbols, n * sizeof (*b->symbols))))
            return false;
        b->symbols = p;
        b->symbols_cap = n;
    }
    /* n - 1 at first, one more for each merge */
    if (2 * n > b->heap_cap) {
        if (!(p = realloc (b->heap, 2 * n * sizeof (*b->heap))))
            return false;
        b->heap = p;
        b->heap_cap = 2 * n;
    }
    return true;
}

/* Symbols as they are found; those without a token become unk. As Hugging Face
 * has it, an unk is put when the next token comes, bytes are put at once. */
struct feed {
    struct tok_bpe *b;
    int32_t few[FEW];
    size_t n;
    bool many, unk;
};

static void put (struct feed *f, int32_t id)
{
    if (f->many)
        f->b->symbols[f->n++].id = id;
    else
        f->few[f->n++] = id;
}

static void put_unk (struct feed *f)
{
    if (f->unk)
        put (f, f->b->unk);
    f->unk = false;
}

static void put_missing (struct feed *f, const char *s, size_t k)
{
    const struct tok_bpe *b = f->b;
    bool bytes = b->byte_fallback;

    for (size_t i = 0; i < k; i++)
        bytes = bytes && b->of_byte[(uint8_t)s[i]] >= 0;
    if (bytes) {
        for (size_t i = 0; i < k; i++)
            put (f, b->of_byte[(uint8_t)s[i]]);
    } else if (b->unk >= 0) {
        if (!b->fuse_unk)
            put_unk (f);
        f->unk = true;
    }
}

static void feed (struct feed *f, const char *s, size_t n)
{
    const struct tok_bpe *b = f->b;

    for (size_t i = 0, k; i < n; i += k) {
        int32_t id;

        if (b->byte_level) {
            k = 1;
            id = b->of_byte[(uint8_t)s[i]];
        } else {
            utf8_get (s + i, &k);
            id = tok_map_find (&b->map, b->vocab, s + i, k);
        }
        if (id >= 0) {
            put_unk (f);
            put (f, id);
        } else if (b->byte_level && (b->unk < 0 || b->byte_fallback))
            f->b->lost = (uint8_t)s[i] + 1;
        else
            put_missing (f, s + i, b->byte_level ? 0 : k);
    }
    put_unk (f);
}

static void encode (struct tok_bpe *b, struct tok_ids *out, const char *s,
                    size_t n)
{
    struct feed f = {.b = b, .many = n > FEW};

    if (b->ignore_merges) {
        int32_t id = b->byte_level
                         ? tok_map_find (&b->map_bytes, b->bytes, s, n)
                         : tok_map_find (&b->map, b->vocab, s, n);

        if (id >= 0) {
            tok_ids_add (out, id);
            return;
        }
    }
    if (f.many && !room (b, n)) {
        out->failed = true;
        return;
    }
    feed (&f, s, n);
    if (!f.many) {
        f.n = merge_few (b, f.few, f.n);
        for (size_t i = 0; i < f.n; i++)
            tok_ids_add (out, f.few[i]);
        return;
    }
    merge_many (b, f.n);
    for (int32_t i = f.n > 0 ? 0 : -1; i >= 0; i = b->symbols[i].next)
        tok_ids_add (out, b->symbols[i].id);
}

void tok_bpe_piece (struct tok_bpe *b, struct tok_ids *out, const char *s,
                    size_t n)
{
    struct tok_cached *c;
    size_t from = out->n;

    if (n > TOK_CACHE_KEY) {
        encode (b, out, s, n);
        return;
    }
    c = &b->cache[XXH3_64bits (s, n) & (TOK_CACHE - 1)];
    if (c->size == n && memcmp (c->key, s, n) == 0) {
        for (size_t i = 0; i < c->n; i++)
            tok_ids_add (out, c->ids[i]);
        return;
    }
    encode (b, out, s, n);
    if (out->failed || b->lost || out->n - from > TOK_CACHE_IDS)
        return;
    c->size = (uint8_t)n;
    c->n = (uint8_t)(out->n - from);
    memcpy (c->key, s, n);
    for (size_t i = 0; i < c->n; i++)
        c->ids[i] = out->p[from + i];
}
