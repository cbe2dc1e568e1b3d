/* SPDX-License-Identifier: Apache-2.0
 * decoder_acts.c - the arena of activations: what a batch keeps, and how much
 * that is
 *
 * What the backward makes again is there once for all blocks. The head and the
 * blocks are not at work at once: what they need for a while shares its place,
 * at the front. So do the last norm, which the head reads, and the gradient of
 * the stream, which comes behind it; and what attention works in and gate and up
 * of its block, which come later in the forward and are done with in the
 * backward. A loan (decoder_spent.h) takes what makes the arena smallest. */
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
    struct decoder_array ret = {a->bytes, n ? padded (count * esize) : 0, 0, 0};

    a->bytes += (n ? n : 1) * padded (count * esize);
    return ret;
}

/* One that no other block's forward or backward finds as it was left; [lent]: at
 * the front of the loan. */
static struct decoder_array borrow (struct decoder_acts *a, bool lent,
                                    size_t bytes)
{
    size_t *next = lent ? &a->ahead : &a->shared;
    struct decoder_array ret = {lent ? 0 : *next, 0, lent ? *next + 1 : 0, 0};

    *next += padded (bytes);
    return ret;
}

/* Arrays that a block's backward is the last to read, and behind them all that it
 * works in, as one: first they are counted, then those whose bit is set go to the
 * loan. Each block's own are in its room, what all share is before the rooms. The
 * first array is the stream, of which the last norm has one, too. */
#define KEPT 13
struct rooms {
    const struct decoder_need *need;
    size_t L, each[KEPT + 1]; /* bytes */
    uint32_t own;             /* one of each block */
    size_t n;
    uint32_t chosen;
    bool counted;
    size_t front, room, top; /* bytes: before the rooms, of one, of them all */
    size_t shared;           /* of those that stay in the arena */
};

static bool is_chosen (const struct rooms *r, size_t k)
{
    return r->chosen >> k & 1;
}

/* As take; or in the loan. */
static struct decoder_array keep (struct decoder_acts *a, struct rooms *r,
                                  size_t esize, size_t n, size_t count)
{
    size_t each = padded (count * esize), k = r->n++;
    struct decoder_array ret = {a->bytes, r->room, r->front + a->room + 1,
                                each};

    if (!r->counted) {
        r->each[k] = each;
        r->own |= (uint32_t)(n > 0) << k;
    }
    if (n == 0)
        return borrow (a, is_chosen (r, k), each);
    if (!is_chosen (r, k))
        return take (a, esize, n, count);
    a->room += each;
    a->bytes += a->first * each;
    return ret;
}

static size_t sum_of (const struct rooms *r, uint32_t set)
{
    size_t sum = 0;

    for (size_t k = 0; k <= r->n; k++)
        sum += set >> k & 1 ? r->each[k] : 0;
    return sum;
}

/* Do rooms for [set] fit? How much may be before them is written. */
static bool fits (struct rooms *r, uint32_t set, size_t first)
{
    size_t end, least = SIZE_MAX;

    r->room = sum_of (r, set);
    r->top = (r->L - first) * r->room + (set & 1 ? r->each[0] : 0);
    for (size_t l = 0; l <= r->L; l++) {
        end = l == r->L ? r->top : l < first ? 0 : (l + 1 - first) * r->room;
        if (end > r->need->until[l])
            return false;
        if (r->need->until[l] - end < least)
            least = r->need->until[l] - end;
    }
    r->front = least;
    return true;
}

/* Is the head's part lent? Where it is larger than [work], what is left of what
 * blocks share, and fits behind the rooms. */
static bool lends_head (const struct rooms *r, size_t front, size_t work)
{
    const struct decoder_need *need = r->need;

    return need->until && !need->whole && padded (need->head) > work
           && padded (need->head) <= need->until[r->L] - r->top - front;
}

/* What blocks and the head share of the arena. */
static size_t shared_by (const struct rooms *r, size_t front, size_t work)
{
    size_t head = r->need->whole || lends_head (r, front, work)
                      ? 0
                      : padded (r->need->head);

    return head > work ? head : work;
}

/* How much smaller the arena is by rooms that fit, with as much before them as
 * there may be, and by [most] less what blocks and the head share. */
static size_t gain (const struct rooms *r, size_t work, size_t most)
{
    size_t less = r->front < work ? r->front : work;

    return r->top + most - shared_by (r, less, work - less);
}

/* Which of the arrays: of equals the first. */
static void choose_rooms (struct rooms *r, size_t first)
{
    uint32_t all = (1u << r->n) - 1, best = 0;
    size_t work = sum_of (r, (all ^ r->own) | 1u << r->n), most = 0;
    size_t whole = work + padded (r->need->head);

    for (uint32_t set = 0; set <= all; set++) {
        size_t now;

        if (set & ~r->own || !fits (r, set, first))
            continue;
        now = gain (r, work, whole);
        if (now > most) {
            most = now;
            best = set;
        }
    }
    fits (r, best, first);
    r->chosen = best;
}

/* And of what blocks share, as much as there is room for before them. */
static void choose_front (struct rooms *r)
{
    uint32_t all = (2u << r->n) - 1, best = 0;
    size_t most = 0;

    for (uint32_t set = 1; set <= all; set++) {
        size_t sum = set & r->own ? SIZE_MAX : sum_of (r, set);

        if (sum <= most || sum > r->front)
            continue;
        most = sum;
        best = set;
    }
    r->front = most;
    r->chosen |= best;
    r->shared = sum_of (r, all & ~r->own) - most;
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

/* What lives no longer than a block's half, behind what blocks share. */
static void lay_work (struct decoder_acts *a, const struct decoder_dims *d,
                      const struct rooms *rooms, size_t N)
{
    const struct decoder_need *need = rooms->need;
    bool lent = is_chosen (rooms, rooms->n);
    size_t e = need->elem, *next = lent ? &a->ahead : &a->shared;
    size_t start = *next, end;

    a->dact =
        borrow (a, lent, N * d->F * e); /* gone before attention's begin */
    if (need->recompute != TRAIN_RECOMPUTE_NOTHING && d->lora.rank == 0)
        a->act = a->dact; /* made again in its gradient's place */
    end = *next;
    *next = start;
    a->dqkv = borrow (a, lent, N * d->Q * e);
    a->datt = borrow (a, lent, N * d->H * d->D * e);
    if (end > *next)
        *next = end;
}

/* The blocks that have none are the first. */
static size_t without_room (const struct decoder_need *need, size_t L)
{
    size_t first = 0;

    while (need->until && first < L && need->until[first] == 0)
        first++;
    return first;
}

/* Once to count what is shared, and for the loan. The head's part lies over what
 * blocks share. */
static void choose (struct rooms *r, const struct decoder_dims *d, size_t N)
{
    struct decoder_acts counted = {0};
    size_t kept;

    lay_blocks (&counted, d, r, N);
    kept = counted.shared;
    lay_work (&counted, d, r, N);
    r->each[r->n] = counted.shared - kept;
    r->counted = true;
    r->shared = counted.shared;
    if (!r->need->until)
        return;
    choose_rooms (r, without_room (r->need, d->L));
    choose_front (r);
}

static void take_blocks (struct decoder_acts *a, const struct decoder_dims *d,
                         const struct decoder_need *need, size_t N)
{
    struct rooms r = {.need = need, .L = d->L};

    choose (&r, d, N);
    r.n = 0;
    a->lends = need->until != NULL;
    a->first = without_room (need, d->L);
    a->lent = r.front + r.top;
    a->bytes = shared_by (&r, r.front, r.shared);
    lay_blocks (a, d, &r, N);
    lay_work (a, d, &r, N);
    if (lends_head (&r, r.front, r.shared)) {
        a->logits = (struct decoder_array){0, 0, a->lent + 1, 0};
        a->lent += padded (need->head);
    }
    a->shared = a->ahead = a->room = 0;
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
    a.rest = a.bytes;
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
    /* last: decoder_rope puts them at the end of what the arena has */
    a.cosine = take (&a, need->real, 0, (size_t)T * d->D / 2);
    a.sine = take (&a, need->real, 0, (size_t)T * d->D / 2);
    *ret = a;
    return TRAIN_OK;
}
