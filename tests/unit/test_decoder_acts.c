/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_acts.c - the arena of activations: what is needed at once lies
 * apart, and in the arena */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libtrain/decoder_impl.h"

#define B           2
#define T           6
#define N           ((size_t)B * T)
#define MOST        48
#define MOST_LAYERS 3

struct span {
    const char *name;
    size_t at, bytes;
    bool lent; /* in the loan, not in the arena */
};

/* Arrays that one moment of a pass needs. */
struct moment {
    const char *name;
    struct span span[MOST];
    size_t n, lent; /* bytes of the loan that nobody else has */
};

static struct decoder_dims dims;
static struct decoder_need need;
static struct decoder_acts acts;

static void needs (struct moment *m, const char *name, struct decoder_array a,
                   size_t l, size_t bytes)
{
    assert_true (m->n < MOST);
    if (bytes == 0)
        return;
    if (a.lent > 0 && (a.step == 0 || l >= acts.first))
        m->span[m->n++] = (struct span){
            name, a.lent - 1 + (l - acts.first) * a.step, bytes, true};
    else
        m->span[m->n++] = (struct span){
            name, a.at + l * (a.lent > 0 ? a.early : a.step), bytes, false};
}

#define NEEDS(m, array, bytes) needs (m, #array, acts.array, l, bytes)

/* What the backward of block [l] will read, unless it makes it again. */
static void keeps (struct moment *m, size_t l, bool norms)
{
    size_t e = need.elem, r = need.real, HD = dims.H * dims.D;

    NEEDS (m, x, N * dims.C * e);
    if (need.recompute == TRAIN_RECOMPUTE_BLOCKS && !norms)
        return;
    NEEDS (m, rstd1, N * r);
    NEEDS (m, qkv, N * dims.Q * e);
    NEEDS (m, att, N * HD * e);
    NEEDS (m, lse, N * dims.H * r);
    if (norms || need.recompute == TRAIN_RECOMPUTE_NOTHING)
        NEEDS (m, norm1, N * dims.C * e);
}

static void keeps_ffn (struct moment *m, size_t l, bool norms)
{
    size_t e = need.elem;

    if (need.recompute == TRAIN_RECOMPUTE_BLOCKS && !norms)
        return;
    NEEDS (m, mid, N * dims.C * e);
    NEEDS (m, rstd2, N * need.real);
    NEEDS (m, gate_up, N * 2 * dims.F * e);
    if (need.recompute == TRAIN_RECOMPUTE_NOTHING)
        NEEDS (m, act, N * dims.F * e);
    if (norms ? need.recompute != TRAIN_RECOMPUTE_CHEAP
              : need.recompute == TRAIN_RECOMPUTE_NOTHING)
        NEEDS (m, norm2, N * dims.C * e);
}

/* All blocks but [l] keep theirs; tables are read by all. In a backward those
 * behind it are through, and their gradients lie in what was lent. */
static void others (struct moment *m, size_t l, bool backward)
{
    m->lent = need.until ? need.until[backward ? l : dims.L] : 0;
    for (size_t k = 0; k < (backward ? l : dims.L); k++) {
        if (k == l)
            continue;
        keeps (m, k, false);
        keeps_ffn (m, k, false);
    }
    l = 0;
    NEEDS (m, cosine, T * dims.D / 2 * need.real);
    NEEDS (m, sine, T * dims.D / 2 * need.real);
    NEEDS (m, scratch, need.scratch);
    NEEDS (m, tmp, N * dims.C * need.elem);
}

static void check_moment (const struct moment *m)
{
    for (size_t i = 0; i < m->n; i++) {
        const struct span *a = &m->span[i];

        if (a->at % DECODER_ALIGN != 0
            || a->at + a->bytes > (a->lent ? m->lent : acts.bytes))
            fail_msg ("%s: %s at %zu, of %zu bytes", m->name, a->name, a->at,
                      a->bytes);
        for (size_t k = 0; k < i; k++) {
            const struct span *b = &m->span[k];

            if (a->lent == b->lent && a->at < b->at + b->bytes
                && b->at < a->at + a->bytes)
                fail_msg ("%s, recompute %d: %s and %s share memory", m->name,
                          need.recompute, a->name, b->name);
        }
    }
}

static void check_blocks (size_t l, bool backward)
{
    struct moment att = {.name = "attention"}, ffn = {.name = "feed-forward"};
    size_t e = need.elem, HD = dims.H * dims.D;
    bool backs = backward && need.recompute != TRAIN_RECOMPUTE_NOTHING;

    keeps (&att, l, true);
    NEEDS (&att, attention, need.attention);
    others (&att, l, backward);
    if (backward) {
        NEEDS (&att, dqkv, N * dims.Q * e);
        NEEDS (&att, datt, N * HD * e);
        NEEDS (&att, dx, N * dims.C * e);
    }
    check_moment (&att);
    /* of CHEAP the second norm is in the first one's place by now */
    keeps (&ffn, l, need.recompute != TRAIN_RECOMPUTE_CHEAP);
    keeps_ffn (&ffn, l, true);
    if (need.recompute == TRAIN_RECOMPUTE_CHEAP)
        NEEDS (&ffn, norm2, N * dims.C * e);
    others (&ffn, l, backward);
    if (backward)
        NEEDS (&ffn, dx, N * dims.C * e);
    if (backward && !backs)
        NEEDS (&ffn, dact, N * dims.F * e);
    else if (need.recompute != TRAIN_RECOMPUTE_NOTHING)
        NEEDS (&ffn, act, N * dims.F * e);
    check_moment (&ffn);
}

static void check_head (void)
{
    struct moment head = {.name = "head"}, norm = {.name = "last norm"};
    size_t l = dims.L, e = need.elem;

    others (&head, l, false);
    NEEDS (&head, x, N * dims.C * e);
    l = 0;
    NEEDS (&head, norm_f, N * dims.C * e);
    NEEDS (&head, rstd_f, N * need.real);
    NEEDS (&head, logits, need.whole ? N * dims.V * e : need.head);
    check_moment (&head);
    others (&norm, dims.L, false);
    NEEDS (&norm, dx, N * dims.C * e);
    NEEDS (&norm, rstd_f, N * need.real);
    check_moment (&norm);
}

static void check_layout (void)
{
    assert_int_equal (decoder_acts_layout (&dims, &need, B, T, &acts, NULL),
                      TRAIN_OK);
    for (size_t l = 0; l < dims.L; l++) {
        check_blocks (l, false);
        check_blocks (l, true);
    }
    check_head ();
}

/* The head's place wider and narrower than what blocks share, attention's than
 * gate and up. */
static struct decoder_need need_of (int i)
{
    struct decoder_need ret = {
        .elem = i % 2 ? 2 : 4,
        .real = 4,
        .recompute = i / 2 % 3,
        .whole = i / 6 % 2,
        .attention = i / 12 % 2 ? 50000 : 1000,
        .scratch = 700,
    };

    ret.head = ret.whole ? 0 : i % 4 == 1 ? 90000 : 600;
    return ret;
}

static void test_apart (void **state)
{
    (void)state;
    for (int i = 0; i < 24; i++) {
        need = need_of (i);
        check_layout ();
        assert_int_equal (acts.lent, 0);
    }
}

/* Loans of an embedding and blocks of all sizes, also where the first block has
 * none, the last norm much, or one block nearly nothing or two none: the arena is never
 * larger for them, and smaller where there is enough. */
static void test_lent (void **state)
{
    static const size_t sizes[] = {0, 300, 3000, 9000, 20000, 60000, 200000};
    size_t until[MOST_LAYERS + 1];

    (void)state;
    for (int k = 0; k < 24 * 7 * 7 * 5; k++) {
        size_t embed = sizes[k / 24 % 7], block = sizes[k / 168 % 7], without;
        int kind = k / 1176;

        for (size_t l = 0; l <= dims.L; l++)
            until[l] = embed + (kind == 1 ? l : l + 1) * block;
        until[dims.L] += kind == 2 ? 100000 : 0;
        if (kind == 3)
            until[1] = until[0];
        if (kind == 4)
            until[0] = until[1] = 0;
        need = need_of (k % 24);
        check_layout ();
        without = acts.bytes;
        need.until = until;
        check_layout ();
        assert_true (acts.bytes <= without);
        assert_true (acts.lent <= until[dims.L]);
        if (block >= 9000 && (kind != 1 || embed == 0 || embed >= 9000))
            assert_true (acts.bytes < without);
    }
}

/* Blocks made again: the stream in each one's room, what they share in the
 * embedding's gradients and what the first block's room leaves, the head's part
 * behind. */
static void test_embedding_lends (void **state)
{
    const size_t stream = N * dims.C * 2;
    const size_t front =
        4 * stream + 3 * 256; /* with statistics, such as lse */
    size_t until[MOST_LAYERS + 1], without;

    (void)state;
    for (size_t l = 0; l <= dims.L; l++)
        until[l] = front + stream + l * (stream + 100);
    need = need_of (1);
    need.recompute = TRAIN_RECOMPUTE_BLOCKS;
    need.head = 600;
    check_layout ();
    without = acts.bytes;
    need.until = until;
    check_layout ();
    assert_int_equal (without - acts.bytes, (dims.L + 1) * stream + front);
    need.head = 1 << 20;
    check_layout ();
    assert_true (acts.bytes > 1 << 20); /* it is nowhere else */
    until[dims.L] += 1 << 21;
    check_layout ();
    assert_true (acts.bytes < without - dims.L * stream);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_apart),
        cmocka_unit_test (test_lent),
        cmocka_unit_test (test_embedding_lends),
    };

    dims = (struct decoder_dims){.L = MOST_LAYERS,
                                 .C = 128,
                                 .H = 4,
                                 .G = 2,
                                 .D = 32,
                                 .Q = 256,
                                 .F = 320,
                                 .V = 500};
    return cmocka_run_group_tests_name ("decoder_acts", tests, NULL, NULL);
}
