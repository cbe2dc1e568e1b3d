/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_acts.c - the arena of activations: what is needed at once lies
 * apart, and in the arena */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "libtrain/decoder_impl.h"

#define B    2
#define T    6
#define N    ((size_t)B * T)
#define MOST 48

struct span {
    const char *name;
    size_t at, bytes;
};

/* Arrays that one moment of a pass needs. */
struct moment {
    const char *name;
    struct span span[MOST];
    size_t n;
};

static struct decoder_dims dims;
static struct decoder_need need;
static struct decoder_acts acts;

static void needs (struct moment *m, const char *name, struct decoder_array a,
                   size_t l, size_t bytes)
{
    assert_true (m->n < MOST);
    if (bytes > 0 && a.lent == 0)
        m->span[m->n++] = (struct span){name, a.at + l * a.step, bytes};
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

/* All blocks but [l] keep theirs; tables are read by all. */
static void others (struct moment *m, size_t l)
{
    for (size_t k = 0; k < dims.L; k++) {
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

        if (a->at % DECODER_ALIGN != 0 || a->at + a->bytes > acts.bytes)
            fail_msg ("%s: %s at %zu, of %zu bytes", m->name, a->name, a->at,
                      a->bytes);
        for (size_t k = 0; k < i; k++) {
            const struct span *b = &m->span[k];

            if (a->at < b->at + b->bytes && b->at < a->at + a->bytes)
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
    others (&att, l);
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
    others (&ffn, l);
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

    others (&head, l);
    NEEDS (&head, x, N * dims.C * e);
    l = 0;
    NEEDS (&head, norm_f, N * dims.C * e);
    NEEDS (&head, rstd_f, N * need.real);
    NEEDS (&head, logits, need.whole ? N * dims.V * e : need.head);
    check_moment (&head);
    others (&norm, dims.L);
    NEEDS (&norm, dx, N * dims.C * e);
    NEEDS (&norm, rstd_f, N * need.real);
    check_moment (&norm);
}

/* The head's place wider and narrower than what blocks share, attention's than
 * gate and up. */
static void test_apart (void **state)
{
    (void)state;
    dims = (struct decoder_dims){.L = 3,
                                 .C = 128,
                                 .H = 4,
                                 .G = 2,
                                 .D = 32,
                                 .Q = 256,
                                 .F = 320,
                                 .V = 500};
    for (int i = 0; i < 48; i++) {
        need = (struct decoder_need){
            .elem = i % 2 ? 2 : 4,
            .real = 4,
            .recompute = i / 2 % 3,
            .whole = i / 6 % 2,
            .attention = i / 12 % 2 ? 50000 : 1000,
            .scratch = 700,
            .roomless = dims.L + 1,
            .lend = i / 24 ? 20000 : 0,
        };
        need.head = need.whole ? 0 : i % 4 == 1 ? 90000 : 600;
        assert_int_equal (decoder_acts_layout (&dims, &need, B, T, &acts, NULL),
                          TRAIN_OK);
        for (size_t l = 0; l < dims.L; l++) {
            check_blocks (l, false);
            check_blocks (l, true);
        }
        check_head ();
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_apart),
    };

    return cmocka_run_group_tests_name ("decoder_acts", tests, NULL, NULL);
}
