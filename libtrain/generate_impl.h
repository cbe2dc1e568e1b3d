/* SPDX-License-Identifier: Apache-2.0
 * generate_impl.h - the cache of keys and values, and the draw, for
 * generate.c and its test. Inside libtrain only. */
#ifndef TRAIN_GENERATE_IMPL_H
#define TRAIN_GENERATE_IMPL_H

#include <train/generate.h>

#include "decoder_impl.h"

#include "kernels/decode_draw.h"

/* Most steps that are taken without the host, calls of kv_steps that are not waited
 * for, and sizes of steps whose graphs are kept. */
#define KV_STEPS  8
#define KV_AHEAD  2
#define KV_GRAPHS 12
#define KV_LISTS  8 /* of kv_texts */

struct kv_graph {
    size_t rows; /* 0: unused */
    bool warm;   /* such a step has been run */
    void *graph; /* NULL: not recorded */
};

struct kv_cache {
    train_decoder_t *m;
    size_t slots, T, rows, wants;
    void *room, *pinned; /* that all below lies in, but for stop_at and seen */
    size_t pinned_bytes;
    void *k, *v;         /* (L,S,G,T,D) */
    void *cosine, *sine; /* (T,D/2) */
    void *scratch;       /* of attention and draws on the host */
    void *x, *x2, *norm, *qkv, *att, *tmp, *raw, *gate_up, *act, *rstd;
    float *squares; /* (rows,up to C/16), of decode_product.h */
    void *norms;    /* (L+1,C) of blocks' first norms and the last, where a
                              unit's are gone when another is there; or NULL */
    void *picked, *logits; /* (wants,C), (wants,V) */
    void *ids_at,
        *drawn_at; /* int32, where the kernels are: (4 rows + 4 wants),
                              (2 wants): ids and the bits of their logp */
    int32_t *pairs_at, *host_pairs; /* (3 slots): from, to, n */
    int32_t *host_ids, *host_drawn; /* pinned */
    void *host_logits;              /* where the others are on a GPU */
    /* Steps: (KV_LISTS,slots) of texts, where the kernels are and pinned; what they
       tell, (2,slots,KV_STEPS), pinned; stop ids. */
    int32_t *texts_at, *host_texts, *told, *stop_at;
    size_t n_stop;
    void *done[KV_AHEAD]; /* events behind the last calls of kv_steps */
    size_t begun, waited; /* such calls */
    struct kv_graph graphs[KV_GRAPHS];
    struct kern_draw_rules rules;
    uint32_t *seen; /* (slots,kern_seen_words (V)), with repetition alone */
    bool same;      /* results do not hang on the batch */
    bool own;       /* products of few rows are our own kernel's */
};

/* kv_create - room for texts in [slots] slots, each of up to [T] tokens.
 *   rows, wants   most tokens of a feed, and of them whose logits are wanted
 * TRAIN_ENOTSUP: rope is dynamic; TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t kv_create (train_decoder_t *decoder, size_t slots, size_t T,
                          size_t rows, size_t wants, struct kv_cache **ret,
                          train_error_t *err);
void kv_destroy (struct kv_cache *cache); /* NULL is fine */

/* kv_feed_rows - tokens of a feed where [all] are in the prompts, of [slots] texts.
 * kv_foresee - bytes that kv_create and kv_rules take of a device, by arithmetic.
 *   decoder      of its layout alone; [gpu]: it is to be on one
 *   repetition   seen tokens are kept
 *   ret_kept     of them, keys and values */
size_t kv_feed_rows (bool gpu, size_t all, size_t slots);
size_t kv_foresee (train_decoder_t *decoder, bool gpu, size_t slots, size_t T,
                   size_t rows, bool repetition, size_t *ret_kept);

/* What a feed is of; host memory of the cache, to be written by the caller. */
struct kv_rows {
    int32_t *tokens; /* (N) in the vocabulary */
    int32_t *slot;   /* (N) */
    int32_t *at;     /* (N) where in its text: in rising order within a text,
                      behind all that was fed before; -1: no token */
    int32_t *last;   /* (M) rows whose logits are wanted */
    int32_t *text;   /* (M) for draws: which text */
    int32_t *pos;    /* (M) and at[last[i]] */
    int32_t *from;   /* (M) and whose tokens are discouraged: a slot */
    int32_t *lead, *shared; /* as of attend_fwd; NULL here */
    int32_t *starts;        /* (N) of a feed of whole texts the rows that they
                               begin at; or NULL; not the caller's */
};

struct kv_rows kv_rows (struct kv_cache *cache, size_t N, size_t M);

/* kv_feed - forward of N rows; their keys and values are kept. [steps]: kv_record for
 * so many rows while that runs; 0: not.
 * TRAIN_ESTATE of decoder_enter, TRAIN_EDEVICE. */
train_status_t kv_feed (struct kv_cache *cache, size_t N, size_t M,
                        size_t steps, train_error_t *err);

/* kv_logits - of the last feed: (M,V) of the decoder's dtype in host memory
 * that lives in the cache until the next feed. kv_draw - a token by each of
 * them, as kv_rules said; -1 where one is no number, something undefined where
 * pos is -1; and the logarithm of its chance. They live as long. */
struct kv_drawn {
    const int32_t *ids; /* (M) */
    const float *logp;  /* (M) */
};

train_status_t kv_logits (struct kv_cache *cache, size_t M, const void **ret,
                          train_error_t *err);
train_status_t kv_draw (struct kv_cache *cache, size_t N, size_t M,
                        struct kv_drawn *ret, train_error_t *err);

/* What steps are of; host memory of the cache, written by the caller while no step
 * is under way. */
struct kv_texts {
    int32_t *tokens, *slot, *at; /* (N) as of kv_rows, slots all different; at
                                    -1: no text */
    int32_t *text;               /* (N) for draws */
    int32_t *end;                /* (N) where its last token may stand */
    int32_t *count;              /* (N) 0 */
    int32_t *lead, *shared;      /* (N) as of attend_fwd */
};

struct kv_texts kv_texts (struct kv_cache *cache, size_t N);

/* kv_rules - how tokens are drawn from now on, and which of them end texts.
 * Before the first feed where it says repetition.
 * TRAIN_ENOMEM, TRAIN_EDEVICE. */
train_status_t kv_rules (struct kv_cache *cache,
                         const train_generate_options_t *opts,
                         train_error_t *err);

/* kv_send - the N texts that steps are of from now on, as the caller wrote them.
 * kv_end - text [i] of them has no more steps than those that kv_steps has begun
 * and one.
 * kv_steps - begin to feed and draw [n] times, at most KV_STEPS, each token drawn
 * being the next to be fed. A text that has ended draws no more: at a stop token,
 * at [end], or at -1 for logits that are no number. On a GPU a second step of the
 * same N is recorded as a graph, which the later ones launch; kv_record makes that
 * of another N beforehand, while steps are under way, where it can.
 * kv_told - wait for the oldest call of kv_steps that was not waited for.
 *   ret   ids and logp (N,KV_STEPS), of step s since kv_send in column s modulo
 *         KV_STEPS, until as many more have been begun
 * At most KV_AHEAD calls may wait, or one where kv_alone is false: the passes need
 * other ranks, or visit units. */
train_status_t kv_send (struct kv_cache *cache, size_t N, train_error_t *err);
train_status_t kv_end (struct kv_cache *cache, size_t N, size_t i,
                       train_error_t *err);
train_status_t kv_steps (struct kv_cache *cache, size_t N, int n,
                         train_error_t *err);
train_status_t kv_told (struct kv_cache *cache, size_t N, struct kv_drawn *ret,
                        train_error_t *err);
train_status_t kv_record (struct kv_cache *cache, size_t N, train_error_t *err);
bool kv_alone (const struct kv_cache *cache);

/* Parts of a feed, for the steps. kv_block - one block for N rows, whose x is in
 * and out; [alone]: all are of different slots, and the last of them.
 * kv_begin - kv_embed where kv_few holds and kv_alone, after [advance] or NULL.
 * kv_head - logits of M rows, r->last; NULL: of all. kv_few - are the products of N
 * rows our own? */
bool kv_few (const struct kv_cache *cache, size_t N);
train_status_t kv_embed (struct kv_cache *cache, const int32_t *tokens,
                         size_t N, train_error_t *err);
void kv_begin (struct kv_cache *cache, const int32_t *tokens, size_t N,
               const struct kern_advance *advance);
train_status_t kv_block (struct kv_cache *cache, size_t l,
                         const struct kv_rows *rows, size_t N, bool alone,
                         train_error_t *err);
train_status_t kv_head (struct kv_cache *cache, const struct kv_rows *rows,
                        size_t N, size_t M, train_error_t *err);
void kv_drop_graphs (struct kv_cache *cache);
/* kv_keep_norms - fill c->norms by a forward's visits. */
train_status_t kv_keep_norms (struct kv_cache *cache, train_error_t *err);
/* generate_bytes - that train_generate takes of the device for [B] texts, of
 * prompts of at most [prompt] tokens, and [more] behind each. */
size_t generate_bytes (train_decoder_t *decoder, int B, int at_once, int prompt,
                       int more, bool repetition);

/* kv_share - copy the first n tokens of slots to others, for P <= slots pairs;
 * no slot is both. TRAIN_EDEVICE. */
struct kv_pairs {
    int32_t *from, *to, *n; /* (P) of the cache, written by the caller */
};

struct kv_pairs kv_pairs (struct kv_cache *cache);
train_status_t kv_share (struct kv_cache *cache, size_t P, train_error_t *err);

#endif
