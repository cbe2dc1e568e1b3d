/* SPDX-License-Identifier: Apache-2.0
 * fsdp_fit_pass.c - places in one memory for the weights and the gradients of a
 * pass's stays
 *
 * What is there at once differs from stay to stay: an embedding's gradients are
 * there beside one block's and no weights, a head's weights beside its gradients
 * alone. Pieces are placed in the order in which they come, weights as low as they
 * can be, gradients as high, and where one finds no place the piece before it takes
 * its next. The memory is halved towards the least that this succeeds in. */
#include <stdint.h>
#include <stdlib.h>

#include "fsdp_fit.h"

#define LINE   ((size_t)256)
#define ROUNDS 14

/* Weights or gradients of a stay: when they come, and how long they lie there. */
struct piece {
    size_t bytes, at;
    size_t from;  /* comes */
    size_t until; /* is used, or being written */
    size_t rests; /* as a piece that does not wait for a reduction finds it */
    size_t *ret;  /* where [at] goes; NULL: nowhere */
    size_t met;   /* the first piece before it that it meets, or itself */
    bool grads;
};

struct fit {
    struct piece *pieces;
    size_t n;
    bool behind;
    size_t memory;
    size_t tries; /* that are left */
};

static size_t padded (size_t n)
{
    return (n + LINE - 1) / LINE * LINE;
}

/* Is [q] there yet when [p] comes, which is later? */
static bool meets (const struct fit *f, const struct piece *q,
                   const struct piece *p)
{
    bool waits = f->behind && !p->grads;

    return (waits ? q->until : q->rests) > p->from;
}

static void add (struct fit *f, size_t bytes, size_t from, size_t until,
                 size_t rests, size_t *ret)
{
    f->pieces[f->n++] = (struct piece){.bytes = padded (bytes),
                                       .from = from,
                                       .until = until,
                                       .rests = rests,
                                       .ret = ret,
                                       .grads = rests > until};
}

/* Times are thirds of a stay: its gradients come, its weights, it ends. */
static void add_weights (struct fit *f, const struct fsdp_pass *p, size_t stay,
                         size_t step, size_t first, size_t last, size_t *ret)
{
    size_t from = step > first + p->ahead ? step - p->ahead : first;

    add (f, p->weights[stay], 3 * from + 1, 3 * last + 2, 3 * last + 2, ret);
}

/* In the order of their coming: of what is fetched ahead the nearer is first. */
static void list (struct fit *f, const struct fsdp_pass *p, size_t *forth,
                  size_t *back, size_t *grads)
{
    size_t n = p->n, next = 2;

    for (size_t i = 0; i < n; i++)
        add_weights (f, p, i, i, 0, i + 1 < n ? i : n,
                     forth ? &forth[i] : NULL);
    for (size_t i = n; i-- > 0;) {
        size_t step = 2 * n - 1 - i;

        add (f, p->grads[i], 3 * step, 3 * step + 2, 3 * step + 6,
             grads ? &grads[i] : NULL);
        for (; next <= n && next <= n - i + p->ahead; next++)
            if (next < n || !p->bare)
                add_weights (f, p, n - next, n + next - 1, n, n + next - 1,
                             back ? &back[n - next] : NULL);
    }
}

/* Of the pieces before [k] those that it meets are apart from [at]. */
static bool is_free (const struct fit *f, size_t k, size_t at)
{
    const struct piece *p = &f->pieces[k];

    if (at > f->memory || p->bytes > f->memory - at)
        return false;
    for (size_t i = p->met; i < k; i++) {
        const struct piece *q = &f->pieces[i];

        if (meets (f, q, p) && at < q->at + q->bytes && q->at < at + p->bytes)
            return false;
    }
    return true;
}

/* The next of two places: lower ones are better, of gradients higher ones. */
static bool is_better (const struct piece *p, size_t a, size_t b)
{
    return p->grads ? a > b : a < b;
}

/* The best place for piece [k] that is worse than [past], at an end of the memory
 * or of a piece that it meets. [first]: any. */
static bool find (const struct fit *f, size_t k, bool first, size_t past,
                  size_t *ret)
{
    const struct piece *p = &f->pieces[k];
    bool found = false;

    for (size_t i = 2 * p->met; i < 2 * k + 2; i++) {
        const struct piece *q = &f->pieces[i / 2];
        size_t at = i % 2 ? f->memory - p->bytes : 0;

        if (i < 2 * k) {
            if (!meets (f, q, p))
                continue;
            at = i % 2 ? q->at + q->bytes : q->at - p->bytes;
        }
        if ((!first && !is_better (p, past, at))
            || (found && !is_better (p, at, *ret)) || !is_free (f, k, at))
            continue;
        *ret = at;
        found = true;
    }
    return found;
}

static bool place (struct fit *f, size_t k)
{
    struct piece *p = &f->pieces[k];
    bool first = true;

    if (k == f->n)
        return true;
    for (size_t at = 0; f->tries > 0 && find (f, k, first, at, &at);) {
        f->tries--;
        p->at = at;
        if (place (f, k + 1))
            return true;
        first = false;
    }
    return false;
}

/* Who meets whom; returns the most that is there at once, which no memory is less
 * than. */
static size_t meet_all (struct fit *f)
{
    size_t least = 0;

    for (size_t k = 0; k < f->n; k++) {
        struct piece *p = &f->pieces[k];
        size_t sum = p->bytes;

        p->met = k;
        for (size_t i = k; i-- > 0;)
            if (meets (f, &f->pieces[i], p)) {
                sum += f->pieces[i].bytes;
                p->met = i;
            }
        least = sum > least ? sum : least;
    }
    return least;
}

/* What needs no search: weights by themselves, behind them gradients. */
static size_t beside (const struct fsdp_pass *p, size_t *forth, size_t *back,
                      size_t *grads)
{
    size_t weights = fsdp_fit (p->weights, p->n, p->ahead, forth);
    size_t total = weights + fsdp_fit (p->grads, p->n, 1, grads);

    for (size_t i = 0; forth && i < p->n; i++) {
        back[i] = forth[i];
        grads[i] += weights;
    }
    return total;
}

static size_t search (struct fit *f, size_t most)
{
    size_t least = meet_all (f);

    for (int i = 0; i < ROUNDS && least < most; i++) {
        f->memory = i ? padded (least + (most - least) / 2) : least;
        if (f->memory >= most)
            break;
        f->tries = 4 * f->n + 500;
        if (!place (f, 0)) {
            least = f->memory + LINE;
            continue;
        }
        most = f->memory;
        for (size_t k = 0; k < f->n; k++)
            if (f->pieces[k].ret)
                *f->pieces[k].ret = f->pieces[k].at;
    }
    return most;
}

size_t fsdp_fit_pass (const struct fsdp_pass *p, size_t *forth, size_t *back,
                      size_t *grads)
{
    struct fit f = {.behind = p->behind};
    size_t total;

    if (!(f.pieces = calloc (3 * p->n, sizeof (*f.pieces))))
        return 0;
    total = beside (p, forth, back, grads);
    list (&f, p, forth, back, grads);
    total = search (&f, total);
    if (back)
        back[p->n - 1] = forth[p->n - 1];
    free (f.pieces);
    return total;
}
