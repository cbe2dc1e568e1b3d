/* SPDX-License-Identifier: Apache-2.0
 * decoder_acts.c - the arena of activations: what a batch keeps, and how much
 * that is
 *
 * What the backward makes again is there once for all blocks. The head and the
 * blocks are not at work at once: what they need for a while shares its place,
 * at the front. So do the last norm, which the head reads, and the gradient of
 * the stream, which comes behind it; and what attention works in and gate and up
 * of its block, which come later in the forward and are done with in the
 * backward. Rooms (decoder_spent.h) take those of the arrays that fill them
 * best. */
#include <limits.h>

#include "decoder_impl.h"
#include "err.h"

static size_t padded (size_t bytes)
{
    return (bytes + DECODER_ALIGN - 1) & ~(DECODER_ALIGN - 1);
}

/* [n] arrays of [count] elements; [n] 0: one, which all share. */
static struct decoder_array take (struct decoder_acts *a, size_t esize,
                                  size_t n, size_t count)
{
    struct decoder_array ret = {a->bytes, n ? padded (count * esize) : 0, 0};

    a->bytes += (n ? n : 1) * padded (count * esize);
    return ret;
}

/* One that no other block's forward or backward finds as it was left. */
static struct decoder_array borrow (struct decoder_acts *a, size_t bytes)
{
    struct decoder_array ret = {a->shared, 0, 0};

    a->shared += padded (bytes);
    return ret;
}

/* Arrays that a block's backward is the last to read: first they are counted,
 * then those whose bit is set go to the rooms. */
#define KEPT 13
struct rooms {
    const struct decoder_need *need;
    size_t each[KEPT]; /* bytes; 0: not of every block */
    size_t n;
    uint32_t chosen;
    bool counted;
};

/* As take; or in the rooms. */
static struct decoder_array keep (struct decoder_acts *a, struct rooms *r,
                                  size_t esize, size_t n, size_t count)
{
    size_t each = padded (count * esize), k = r->n++;
    struct decoder_array ret = {a->bytes, 0, a->lent + 1};

    if (!r->counted)
        r->each[k] = n ? each : 0;
    if (n == 0)
        return borrow (a, each);
    if (!(r->chosen >> k & 1))
        return take (a, esize, n, count);
    a->lent += each;
    if (r->need->roomless < n)
        a->bytes += each;
    return ret;
}

/* Which of the arrays leave the least of a room empty: of equals the first. */
static void choose (struct rooms *r)
{
    size_t most = 0;

    for (uint32_t set = 1; set < 1u << r->n; set++) {
        size_t sum = 0;

        for (size_t k = 0; k < r->n; k++)
            sum += set >> k & 1 ? r->each[k] : 0;
        if (sum <= most || sum > r->need->lend)
            continue;
        most = sum;
        r->chosen = set;
    }
    r->counted = true;
    r->n = 0;
}

/* Does every product below stay in range? Generous in each term. */
static train_status_t check (const struct decoder_dims *d,
                             const struct decoder_need *need, int B, int T,
                             train_error_t *err)
{
    size_t N, row, esize = need->elem > need->real ? need->elem : need->real;
    size_t heads = d->H + d->G;

    if (B < 1 || T < 1)
        return err_set (err, TRAIN_EINVAL,
                        "batch of %d sequences of %d tokens: both must be at "
                        "least 1",
                        B, T);
    N = (size_t)B * (size_t)T;
    row = 2 * (size_t)d->lora.rank + decoder_lora_widest (d)
          + (d->L + 1)
                * (5 * d->C + d->Q + d->H * d->D + d->H + 4 * d->F + 4
                   + heads * (d->D + 1))
          + 8 * d->C + d->V + 2 * d->Q + 2 * d->H * d->D + 4 * d->F + 2 * d->D
          + 512;
    if (N > INT_MAX || N > SIZE_MAX / 8 / esize / row)
        return err_set (err, TRAIN_EINVAL,
                        "batch of %d sequences of %d tokens is too large", B,
                        T);
    return TRAIN_OK;
}

static void lay_blocks (struct decoder_acts *a, const struct decoder_dims *d,
                        struct rooms *rooms, size_t N)
{
    const struct decoder_need *need = rooms->need;
    size_t e = need->elem, r = need->real, L = d->L;
    size_t kept = need->recompute == TRAIN_RECOMPUTE_BLOCKS ? 0 : L;
    bool all = need->recompute == TRAIN_RECOMPUTE_NOTHING;
    size_t heads = d->norm ? d->H + d->G : 0;

    a->x = keep (a, rooms, e, L + 1, N * d->C);
    a->norm1 = keep (a, rooms, e, all ? L : 0, N * d->C);
    a->rstd1 = keep (a, rooms, r, kept, N);
    a->qkv = keep (a, rooms, e, kept, N * d->Q);
    a->att = keep (a, rooms, e, kept, N * d->H * d->D);
    a->lse = keep (a, rooms, r, kept, N * d->H);
    a->raw = keep (a, rooms, e, kept, N * heads * d->D);
    a->rstd_qk = keep (a, rooms, r, kept, N * heads);
    a->mid = keep (a, rooms, e, kept, N * d->C);
    a->norm2 = need->recompute == TRAIN_RECOMPUTE_CHEAP
                   ? a->norm1 /* not needed at once */
                   : keep (a, rooms, e, all ? L : 0, N * d->C);
    a->rstd2 = keep (a, rooms, r, kept, N);
    a->gate_up = keep (a, rooms, e, kept, N * 2 * d->F);
    if (all || d->lora.rank > 0)
        a->act = keep (a, rooms, e, all ? L : 0, N * d->F);
}

/* What lives no longer than a block's half, or than the head's part: behind what
 * blocks share, and over it. Returns the end of it all. */
static size_t lay_work (struct decoder_acts *a, const struct decoder_dims *d,
                        const struct decoder_need *need, size_t N)
{
    size_t e = need->elem, start = a->shared, end;

    a->dact = borrow (a, N * d->F * e); /* gone before attention's begin */
    if (need->recompute != TRAIN_RECOMPUTE_NOTHING && d->lora.rank == 0)
        a->act = a->dact; /* made again in its gradient's place */
    end = a->shared;
    a->shared = start;
    a->dqkv = borrow (a, N * d->Q * e);
    a->datt = borrow (a, N * d->H * d->D * e);
    end = a->shared > end ? a->shared : end;
    if (need->whole)
        return end;
    a->logits = (struct decoder_array){0};
    return padded (need->head) > end ? padded (need->head) : end;
}

/* Once to count what is shared, and for the rooms. */
static void take_blocks (struct decoder_acts *a, const struct decoder_dims *d,
                         const struct decoder_need *need, size_t N)
{
    struct rooms rooms = {.need = need};
    struct decoder_acts counted = *a;

    lay_blocks (&counted, d, &rooms, N);
    choose (&rooms);
    a->lend = need->lend;
    a->bytes = lay_work (&counted, d, need, N);
    lay_blocks (a, d, &rooms, N);
    lay_work (a, d, need, N);
    a->shared = 0;
}

static void take_head (struct decoder_acts *a, const struct decoder_dims *d,
                       const struct decoder_need *need, size_t N)
{
    a->whole = need->whole;
    a->dx = take (a, need->elem, 0, N * d->C);
    a->norm_f = a->dx;
    a->rstd_f = take (a, need->real, 0, N);
    a->tmp = take (a, need->elem, 0, N * d->C);
    if (need->whole)
        a->logits = take (a, need->elem, 0, N * d->V);
}

/* What attention works in. */
static void take_attention (struct decoder_acts *a,
                            const struct decoder_dims *d,
                            const struct decoder_need *need, size_t N)
{
    a->apart = need->attention > N * 2 * d->F * need->elem;
    a->attention = a->apart ? take (a, 1, 0, need->attention) : a->gate_up;
}

train_status_t decoder_acts_layout (const struct decoder_dims *d,
                                    const struct decoder_need *need, int B,
                                    int T, struct decoder_acts *ret,
                                    train_error_t *err)
{
    struct decoder_acts a = {0};
    size_t N;

    TRY (check (d, need, B, T, err));
    N = (size_t)B * (size_t)T;
    take_blocks (&a, d, need, N);
    take_head (&a, d, need, N);
    take_attention (&a, d, need, N);
    a.cosine = take (&a, need->real, 0, (size_t)T * d->D / 2);
    a.sine = take (&a, need->real, 0, (size_t)T * d->D / 2);
    if (need->docs) {
        a.doc_cosine = take (&a, need->real, 0, N * d->D / 2);
        a.doc_sine = take (&a, need->real, 0, N * d->D / 2);
        a.starts = take (&a, sizeof (int32_t), 0, need->gpu ? N : 0);
    }
    a.lora_u = take (&a, need->elem, 0, N * (size_t)d->lora.rank);
    a.lora_du = take (&a, need->elem, 0, N * (size_t)d->lora.rank);
    a.lora_wide = take (&a, need->elem, 0, N * decoder_lora_widest (d));
    a.tokens = take (&a, sizeof (int32_t), 0, need->gpu ? N : 0);
    a.targets = take (&a, sizeof (int32_t), 0, need->gpu ? N : 0);
    a.front = take (&a, sizeof (int32_t), 0, need->gpu ? 4 * N : 0);
    a.scratch = take (&a, 1, 0, need->scratch);
    *ret = a;
    return TRAIN_OK;
}
