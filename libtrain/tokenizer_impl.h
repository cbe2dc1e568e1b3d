/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_impl.h - the parts of a tokenizer, for its own files and their
 * tests. Inside libtrain only. */
#ifndef TRAIN_TOKENIZER_IMPL_H
#define TRAIN_TOKENIZER_IMPL_H

#include <jansson.h>

#include <train/tokenizer.h>

#define TOKENIZER_STEPS 16 /* of a normalizer, pre-tokenizer or decoder */

/* Bytes that grow. Failure sticks: look at [failed] once, at the end. */
struct tok_buf {
    char *p;
    size_t n, cap;
    bool failed;
};
struct tok_ids {
    int32_t *p;
    size_t n, cap;
    bool failed;
};
void tok_buf_add (struct tok_buf *buf, const char *s, size_t n);
void tok_ids_add (struct tok_ids *ids, int32_t id);

struct tok_str {
    char *s; /* NULL: there is none */
    size_t n;
};

/* Which of some strings one is: open addressing, id + 1 in a slot. */
struct tok_map {
    uint32_t *slot;
    size_t mask;
};
int32_t tok_map_find (const struct tok_map *map, const struct tok_str *strs,
                      const char *s, size_t n);

/* A pair of ids, what it becomes, and when: lower ranks first. */
struct tok_merge {
    uint64_t pair; /* left << 32 | right; TOK_NO_PAIR: the slot is empty */
    uint32_t rank;
    int32_t id;
};
#define TOK_NO_PAIR UINT64_MAX
#define TOK_NO_RANK UINT32_MAX

#define TOK_CACHE     ((size_t)1 << 15)
#define TOK_CACHE_KEY 24
#define TOK_CACHE_IDS 9
struct tok_cached {
    char key[TOK_CACHE_KEY];
    uint8_t size, n; /* size 0: empty */
    uint8_t pad[2];
    int32_t ids[TOK_CACHE_IDS];
};

struct tok_symbol {
    int32_t id, prev, next; /* id -1: merged away */
};
struct tok_candidate {
    uint64_t key; /* rank << 32 | place */
    int32_t id;
};

struct tok_bpe {
    struct tok_str *vocab; /* (n) as the file writes them, by id */
    struct tok_str *bytes; /* (n) byte-level: the bytes of each, else NULL */
    size_t n;
    struct tok_map map, map_bytes;
    struct tok_merge *merges; /* (mask + 1) */
    size_t mask;
    int shift;
    int32_t of_byte[256]; /* byte-level: of the byte; else of "<0xNN>" */
    int32_t unk;          /* -1: none */
    bool byte_level, byte_fallback, fuse_unk, ignore_merges;
    int lost; /* byte-level: a byte that has no token, and 1; 0: none yet */
    struct tok_cached *cache; /* (TOK_CACHE) */
    struct tok_symbol *symbols;
    struct tok_candidate *heap;
    size_t symbols_cap, heap_cap, heap_n;
};

struct tok_added {
    struct tok_str content, normal; /* as written; through the normalizer */
    int32_t id;
    bool special, lstrip, rstrip, normalized;
};

/* Added tokens that are looked for at once: by first byte, longest first. */
struct tok_level {
    uint32_t *order;
    uint32_t start[257];
};

enum tok_norm_kind { NORM_NFC, NORM_PREPEND, NORM_REPLACE };
struct tok_norm {
    enum tok_norm_kind kind;
    struct tok_str from, to; /* prepend: to */
};

/* The length of the piece that [s] begins with, of n >= 1 bytes. */
typedef size_t (*tok_scan_fn) (const uint8_t *classes, const char *s, size_t n);

enum tok_pre_kind { PRE_BYTES, PRE_DIGITS, PRE_META, PRE_SPLIT };
enum tok_scheme { META_ALWAYS, META_FIRST, META_NEVER };
struct tok_pre {
    enum tok_pre_kind kind;
    bool prefix, each, split; /* bytes; digits; metaspace */
    enum tok_scheme scheme;
    struct tok_str mark;
    tok_scan_fn scan; /* NULL: the text as a whole */
};

enum tok_dec_kind {
    DEC_BYTES,
    DEC_FALLBACK,
    DEC_FUSE,
    DEC_META,
    DEC_REPLACE,
    DEC_STRIP
};
struct tok_dec {
    enum tok_dec_kind kind;
    struct tok_str from, to;
    int start, stop;
    enum tok_scheme scheme;
};

struct train_tokenizer {
    bool plain; /* bytes: nothing else is used */
    uint64_t hash;
    int32_t vocab;
    struct tok_bpe bpe;
    struct tok_added *added;
    size_t n_added;
    struct tok_level level[2]; /* before the normalizer, and behind it */
    struct tok_norm norm[TOKENIZER_STEPS];
    struct tok_pre pre[TOKENIZER_STEPS];
    struct tok_dec dec[TOKENIZER_STEPS];
    size_t n_norm, n_pre, n_dec;
    int32_t *before, *after; /* of the post-processor */
    size_t n_before, n_after;
    uint8_t *classes;   /* two bits a code point */
    struct tok_ids out; /* of the call that runs */
};

/* unicode.c */
enum { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };
#define UNICODE_CLASS_BYTES (0x110000 / 4)
void unicode_classes (uint8_t *classes); /* (UNICODE_CLASS_BYTES) written */
static inline int unicode_class (const uint8_t *classes, uint32_t c)
{
    return classes[c >> 2] >> (c & 3) * 2 & 3;
}
/* utf8_get - the character that [s], valid UTF-8, begins with.
 * utf8_put - 1 to 4 bytes of a character. Returns how many.
 * utf8_valid - how many bytes from the start are whole characters.
 * utf8_repair - add [s] with U+FFFD for each longest part of a character that
 *   ends too early (Unicode 3.9, "U+FFFD substitution of maximal subparts").
 *   Returns how many. */
static inline uint32_t utf8_get (const char *s, size_t *ret_size)
{
    const uint8_t *p = (const uint8_t *)s;

    if (p[0] < 0x80) {
        *ret_size = 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *ret_size = 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *ret_size = 3;
        return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *ret_size = 4;
    return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6
           | (p[3] & 0x3fu);
}
size_t utf8_put (char s[4], uint32_t c);
size_t utf8_valid (const char *s, size_t n);
size_t utf8_repair (struct tok_buf *buf, const char *s, size_t n);
/* unicode_nfc - add the normal form C of [s], valid UTF-8. */
void unicode_nfc (struct tok_buf *buf, const char *s, size_t n);

/* tokenizer_split.c: NULL where the pattern is none that is known */
tok_scan_fn tok_scan_of (const char *regex);
size_t tok_scan_gpt2 (const uint8_t *classes, const char *s, size_t n);
/* Pieces of [s] to the model, from step [step] of the pre-tokenizer on.
 *   first   [s] begins the text */
void tok_split (train_tokenizer_t *t, size_t step, const char *s, size_t n,
                bool first);

/* tokenizer_norm.c: add the normal form of [s] */
void tok_normalize (const train_tokenizer_t *t, struct tok_buf *ret,
                    const char *s, size_t n);
/* tokenizer_added.c: order what is in t->added (TRAIN_ENOMEM); and the text,
 * cut at added tokens */
train_status_t tok_added_order (train_tokenizer_t *t, train_error_t *err);
void tok_encode_text (train_tokenizer_t *t, const char *s, size_t n);

/* tokenizer_bpe.c: ids of a piece, n >= 1 bytes, added to t->out */
void tok_bpe_piece (struct tok_bpe *bpe, struct tok_ids *out, const char *s,
                    size_t n);
void tok_bpe_free (struct tok_bpe *bpe);
/* tokenizer_vocab.c: "model". bpe->byte_level is set. */
train_status_t tok_bpe_read (struct tok_bpe *bpe, const json_t *model,
                             train_error_t *err);
/* The byte that a character of a byte-level token stands for, or -1 (GPT-2's
 * bytes_to_unicode, back). */
int tok_byte_of (uint32_t c);

/* tokenizer_decode.c: add the text. TRAIN_EINVAL: an id that is no token. */
train_status_t tok_decode (const train_tokenizer_t *t, struct tok_buf *ret,
                           const int32_t *ids, size_t n, bool skip,
                           train_error_t *err);

/* tokenizer_json.c: all but the model; bpe.byte_level is written.
 * tokenizer_json_added.c: "added_tokens", "post_processor"; the model is read. */
train_status_t tok_read_steps (train_tokenizer_t *t, const json_t *root,
                               train_error_t *err);
train_status_t tok_read_added (train_tokenizer_t *t, const json_t *root,
                               train_error_t *err);
/* A copy of a JSON string; TRAIN_EFORMAT names [path].[key]. */
train_status_t tok_string (const json_t *object, const char *key,
                           const char *path, struct tok_str *ret,
                           train_error_t *err);
train_status_t tok_bool (const json_t *object, const char *key, int fallback,
                         const char *path, bool *ret, train_error_t *err);

#endif
