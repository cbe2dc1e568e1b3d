/* SPDX-License-Identifier: Apache-2.0
 * test_decoder_units.c - units of a decoder: ranges, hooks in their order, a
 * bare decoder whose weights are there only while a unit is used, and when a
 * pass is recorded and replayed */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decoder_impl.h"
#include "err.h"

#define UNITS 4

static const int32_t tokens[10] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int32_t targets[10] = {1, 4, 1, 5, -1, 2, 6, 5, 3, 10};

static train_decoder_config_t config (train_dtype_t dtype, bool tie)
{
    return (train_decoder_config_t){
        .size = sizeof (train_decoder_config_t),
        .layers = UNITS - 2,
        .dim = 12,
        .heads = 2,
        .kv_heads = 1,
        .ffn = 7,
        .vocab = 11,
        .tie = tie,
        .rope_theta = 100.0,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .qkv_bias = true,
        .qk_norm = true,
    };
}

/* A rank's view of one pass: what was told, and weights that come and go. */
struct watch {
    train_decoder_t *whole, *bare;
    char told[512];
    int fail_at, calls;
    size_t esize;
    void *weights[UNITS], *grads[UNITS];
    int in_use;
};

static void tell (struct watch *w, const char *what, size_t unit, bool backward)
{
    size_t used = strlen (w->told);

    snprintf (w->told + used, sizeof (w->told) - used, "%s%zu%s ", what, unit,
              backward ? "'" : "");
}

static train_status_t before (void *arg, size_t unit, bool backward,
                              train_error_t *err)
{
    struct watch *w = arg;

    tell (w, "+", unit, backward);
    if (++w->calls == w->fail_at)
        return err_set (err, TRAIN_EPEER, "a hook's own error");
    assert_int_equal (++w->in_use, 1);
    if (w->bare) {
        const struct decoder_unit *u = decoder_unit (w->bare, unit);
        const char *from = train_decoder_weights (w->whole)->data;
        size_t bytes = u->count * w->esize;

        w->weights[unit] = malloc (bytes);
        memcpy (w->weights[unit], from + u->first * w->esize, bytes);
        if (!w->grads[unit])
            w->grads[unit] = calloc (u->count, w->esize);
        decoder_set_unit (w->bare, unit, w->weights[unit],
                          backward ? w->grads[unit] : NULL);
    }
    return TRAIN_OK;
}

static train_status_t after (void *arg, size_t unit, bool backward,
                             train_error_t *err)
{
    struct watch *w = arg;

    (void)err;
    tell (w, "-", unit, backward);
    w->in_use--;
    if (w->bare) {
        memset (w->weights[unit], 0xff,
                decoder_unit (w->bare, unit)->count * w->esize);
        free (w->weights[unit]);
        decoder_set_unit (w->bare, unit, NULL, NULL);
    }
    return TRAIN_OK;
}

static train_decoder_t *make (const train_decoder_config_t *c)
{
    train_decoder_t *m = NULL;

    assert_int_equal (train_decoder_create (c, &m, NULL), TRAIN_OK);
    train_decoder_init (m, 7);
    return m;
}

static train_status_t step (train_decoder_t *m, double *ret_loss,
                            train_error_t *err)
{
    int64_t n;

    return train_decoder_step (m, tokens, targets, 2, 5, 0.25, ret_loss, &n,
                               err);
}

static void test_ranges (void **state)
{
    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        train_decoder_config_t c = config (TRAIN_F32, tie);
        train_decoder_t *m = make (&c);
        size_t at = 0;

        assert_int_equal (decoder_n_units (m), UNITS);
        for (size_t u = 0; u < UNITS; u++) {
            assert_int_equal (decoder_unit (m, u)->first, at);
            at += decoder_unit (m, u)->count;
        }
        assert_int_equal (at, train_decoder_numel (m));
        assert_int_equal (decoder_unit (m, 0)->count, 11 * 12);
        assert_int_equal (decoder_unit (m, UNITS - 1)->count,
                          tie ? 12 : 12 + 11 * 12);
        assert_null (decoder_unit (m, UNITS));
        train_decoder_destroy (m);
    }
}

static void test_order (void **state)
{
    static const char *const want[2] = {
        "+0 -0 +1 -1 +2 -2 +3 -3 "
        "+3' -3' +2' -2' +1' -1' +0' -0' ",
        "+0 -0 +1 -1 +2 -2 +3 -3 +0 -0 "
        "+0' -0' +3' -3' +2' -2' +1' -1' +0' -0' ",
    };

    (void)state;
    for (int tie = 0; tie < 2; tie++) {
        train_decoder_config_t c = config (TRAIN_F32, tie);
        struct watch w = {.whole = make (&c)};
        struct decoder_hooks hooks = {before, after, &w};
        train_error_t err = {0};
        double loss;

        decoder_set_hooks (w.whole, &hooks);
        assert_int_equal (step (w.whole, &loss, &err), TRAIN_OK);
        assert_string_equal (w.told, want[tie]);
        for (int at = 1; at <= 8; at++) {
            w.fail_at = at;
            w.calls = w.in_use = 0;
            assert_int_equal (step (w.whole, &loss, &err), TRAIN_EPEER);
            assert_string_equal (err.text, "a hook's own error");
            assert_int_equal (w.calls, at);
        }
        decoder_set_hooks (w.whole, NULL);
        assert_int_equal (step (w.whole, &loss, &err), TRAIN_OK);
        assert_int_equal (w.calls, 8);
        train_decoder_destroy (w.whole);
    }
}

struct waiter {
    struct watch *watch;
    int waits, calls; /* the hooks' when it was last waited */
    bool lost;
};

static train_status_t wait_for_ranks (void *arg, train_error_t *err)
{
    struct waiter *waiter = arg;

    waiter->waits++;
    waiter->calls = waiter->watch->calls;
    return waiter->lost ? err_set (err, TRAIN_EPEER, "a rank that ended")
                        : TRAIN_OK;
}

/* Of another shape than the passes under way: what these wait for is waited for
 * by who knows ranks, before anything of them is changed. */
static void test_wait (void **state)
{
    train_decoder_config_t c = config (TRAIN_F32, false);
    struct watch w = {.whole = make (&c)};
    struct waiter waiter = {.watch = &w};
    struct decoder_hooks hooks = {before, after, &w};
    train_error_t err = {0};
    double loss;
    int64_t n;

    (void)state;
    decoder_set_hooks (w.whole, &hooks);
    decoder_set_wait (w.whole, wait_for_ranks, &waiter);
    assert_int_equal (step (w.whole, &loss, &err), TRAIN_OK);
    assert_int_equal (step (w.whole, &loss, &err), TRAIN_OK);
    assert_int_equal (waiter.waits, 0);
    waiter.lost = true;
    assert_int_equal (train_decoder_step (w.whole, tokens, targets, 1, 5, 0.25,
                                          &loss, &n, &err),
                      TRAIN_EPEER);
    assert_string_equal (err.text, "a rank that ended");
    assert_int_equal (waiter.calls, w.calls);
    waiter.lost = false;
    assert_int_equal (train_decoder_step (w.whole, tokens, targets, 1, 5, 0.25,
                                          &loss, &n, &err),
                      TRAIN_OK);
    assert_int_equal (waiter.waits, 2);
    decoder_set_wait (w.whole, NULL, NULL);
    assert_int_equal (step (w.whole, &loss, &err), TRAIN_OK);
    assert_int_equal (waiter.waits, 2);
    train_decoder_destroy (w.whole);
}

/* The same bits as from arenas: losses and each gradient. */
static void check_bare (train_dtype_t dtype, bool tie)
{
    train_decoder_config_t c = config (dtype, tie);
    struct watch w = {.whole = make (&c), .esize = train_dtype_size (dtype)};
    struct decoder_hooks hooks = {before, after, &w};
    train_error_t err = {0};
    double want, loss;

    assert_int_equal (step (w.whole, &want, &err), TRAIN_OK);
    assert_int_equal (decoder_create_bare (&c, &w.bare, &err), TRAIN_OK);
    assert_null (train_decoder_weights (w.bare)->data);
    assert_int_equal (step (w.bare, &loss, &err), TRAIN_ESTATE);
    decoder_set_hooks (w.bare, &hooks);
    if (step (w.bare, &loss, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    assert_true (loss == want);
    for (size_t u = 0; u < UNITS; u++) {
        const struct decoder_unit *unit = decoder_unit (w.bare, u);
        const char *g = train_decoder_grads (w.whole)->data;

        assert_memory_equal (w.grads[u], g + unit->first * w.esize,
                             unit->count * w.esize);
        free (w.grads[u]);
    }
    train_decoder_destroy (w.bare);
    train_decoder_destroy (w.whole);
}

static void test_bare (void **state)
{
    (void)state;
    check_bare (TRAIN_F32, true);
    check_bare (TRAIN_F32, false);
    check_bare (TRAIN_F64, true);
    check_bare (TRAIN_F64, false);
}

/* Drawn unit by unit, the weights are the whole's. */
static void test_init (void **state)
{
    train_decoder_config_t c = config (TRAIN_F64, false);
    train_decoder_t *whole = make (&c), *bare = NULL;
    const double *w = train_decoder_weights (whole)->data;

    (void)state;
    assert_int_equal (decoder_create_bare (&c, &bare, NULL), TRAIN_OK);
    for (size_t u = 0; u < UNITS; u++) {
        const struct decoder_unit *unit = decoder_unit (bare, u);
        double *own = malloc (unit->count * sizeof (*own));

        memset (own, 0xff, unit->count * sizeof (*own));
        decoder_init_unit (bare, u, 7, own);
        assert_memory_equal (own, w + unit->first, unit->count * sizeof (*own));
        free (own);
    }
    train_decoder_destroy (bare);
    train_decoder_destroy (whole);
}

/* A GPU's graphs in name alone: what is recorded is done at once. */
static struct {
    int begun, launched, destroyed;
} graphs;

static train_status_t begin (void *stream, int device, train_error_t *err)
{
    (void)stream, (void)device, (void)err;
    graphs.begun++;
    return TRAIN_OK;
}

static train_status_t end (void *stream, int device, void **ret,
                           train_error_t *err)
{
    (void)stream, (void)device, (void)err;
    *ret = &graphs;
    return TRAIN_OK;
}

static train_status_t launch (void *graph, void *stream, int device,
                              train_error_t *err)
{
    (void)stream, (void)device, (void)err;
    graphs.launched += graph == &graphs;
    return TRAIN_OK;
}

static void destroy (void *graph)
{
    graphs.destroyed += graph == &graphs;
}

static const struct backend_graph counted = {
    .begin = begin, .end = end, .launch = launch, .destroy = destroy};

static void pass (train_decoder_t *m, int T, double scale, int begun,
                  int launched, int destroyed)
{
    int64_t n;

    assert_int_equal (
        decoder_step_add (m, tokens, targets, 1, T, scale, &n, NULL), TRAIN_OK);
    assert_int_equal (graphs.begun, begun);
    assert_int_equal (graphs.launched, launched);
    assert_int_equal (graphs.destroyed, destroyed);
}

static void test_replay (void **state)
{
    train_decoder_config_t c = config (TRAIN_F32, true);
    train_decoder_t *m = make (&c);
    struct backend_ops ops = *m->ops;
    train_error_t err = {0};

    (void)state;
    assert_int_equal (decoder_set_replay (m, true, &err), TRAIN_ENOTSUP);
    assert_non_null (strstr (err.text, "need a GPU"));
    ops.graph = &counted;
    m->ops = &ops;
    pass (m, 4, 1, 0, 0, 0); /* off */
    pass (m, 4, 1, 0, 0, 0);
    assert_int_equal (decoder_set_replay (m, true, NULL), TRAIN_OK);
    pass (m, 4, 1, 0, 0, 0);
    pass (m, 4, 1, 1, 1, 0);
    pass (m, 4, 1, 1, 2, 0);
    pass (m, 4, 0.5, 1, 2, 1); /* another scale, another shape, a unit moved */
    pass (m, 4, 0.5, 2, 3, 1);
    pass (m, 3, 0.5, 2, 3, 2);
    pass (m, 3, 0.5, 3, 4, 2);
    decoder_set_unit (m, 1, NULL, NULL);
    assert_int_equal (graphs.destroyed, 3);
    pass (m, 3, 0.5, 3, 4, 3);
    pass (m, 3, 0.5, 4, 5, 3);
    train_decoder_destroy (m);
    assert_int_equal (graphs.destroyed, 4);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_ranges), cmocka_unit_test (test_order),
        cmocka_unit_test (test_bare),   cmocka_unit_test (test_init),
        cmocka_unit_test (test_replay), cmocka_unit_test (test_wait),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
