/* SPDX-License-Identifier: Apache-2.0
 * test_scaler.c - the loss scale beside PyTorch's rules, and over ranks */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <train/scaler.h>

#include "group_ranks.h"

static train_scaler_t *make (train_scaler_options_t o)
{
    train_scaler_t *s = NULL;
    train_error_t err = {0};

    o.size = sizeof (o);
    if (train_scaler_create (&o, &s, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return s;
}

/* A step whose only gradient is [g]; what update says. */
static train_status_t one (train_scaler_t *s, float g, train_error_t *err)
{
    train_tensor_t t;
    DLTensor *list[1] = {&t.t};
    bool found;

    assert_true (view_of (&t, &g, TRAIN_F32, 1));
    assert_int_equal (train_scaler_unscale (s, NULL, list, 1, &found, err),
                      TRAIN_OK);
    return train_scaler_update (s, err);
}

/* By the rule of PyTorch's _amp_update_scale_, worked out by hand: growth 2,
 * backoff 0.5, interval 3; one letter a step, x = found. */
static void test_grow_and_shrink (void **state)
{
    static const char steps[] = "ooooxooxxooooooo";
    static const float want[] = {65536, 65536, 131072, 131072, 65536, 65536,
                                 65536, 32768, 16384,  16384,  16384, 32768,
                                 32768, 32768, 65536,  65536};
    train_scaler_t *s = make ((train_scaler_options_t){.interval = 3});

    (void)state;
    for (size_t i = 0; steps[i]; i++) {
        assert_int_equal (one (s, steps[i] == 'x' ? INFINITY : 1, NULL),
                          TRAIN_OK);
        assert_true (train_scaler_scale (s) == want[i]);
    }
    train_scaler_destroy (s);
}

/* The first of two such steps is forgiven, until it grows. */
static void test_hysteresis (void **state)
{
    static const char steps[] = "xoxxooxox";
    static const float want[] = {64, 64, 32, 16, 16, 32, 32, 32, 16};
    train_scaler_t *s = make (
        (train_scaler_options_t){.init = 64, .interval = 2, .hysteresis = 2});

    (void)state;
    for (size_t i = 0; steps[i]; i++) {
        assert_int_equal (one (s, steps[i] == 'x' ? NAN : 1, NULL), TRAIN_OK);
        if (train_scaler_scale (s) != want[i])
            fail_msg ("step %zu: %g", i, train_scaler_scale (s));
    }
    train_scaler_destroy (s);
}

static void test_values (void **state)
{
    float f[] = {3e-8f, -65536, 0, 1e38f, 3.1415927f};
    double d[] = {1e300, 1};
    const float inverse = (float)(1 / 48.0);
    float want[5];
    train_tensor_t tf, td;
    DLTensor *list[2] = {&tf.t, &td.t};
    train_scaler_t *s = make ((train_scaler_options_t){.init = 48});
    bool found = true;

    (void)state;
    for (int i = 0; i < 5; i++)
        want[i] = f[i] * inverse;
    assert_true (view_of (&tf, f, TRAIN_F32, 5));
    assert_true (view_of (&td, d, TRAIN_F64, 2));
    assert_int_equal (train_scaler_unscale (s, NULL, list, 2, &found, NULL),
                      TRAIN_OK);
    assert_false (found);
    assert_memory_equal (f, want, sizeof (f));
    assert_true (d[0] == 1e300 * inverse && d[1] == inverse);
    train_scaler_cancel (s);
    d[1] = NAN; /* in the last place of the last tensor */
    assert_int_equal (train_scaler_unscale (s, NULL, list, 2, &found, NULL),
                      TRAIN_OK);
    assert_true (found);
    train_scaler_destroy (s);
}

/* At the floor it stays; the tenth step there is an error, and one good step
 * begins the count anew. */
static void test_floor (void **state)
{
    train_scaler_t *s =
        make ((train_scaler_options_t){.init = 4, .patience = 3});
    train_error_t err = {0};

    (void)state;
    for (int i = 0; i < 2; i++) /* 4, 2, 1 */
        assert_int_equal (one (s, NAN, NULL), TRAIN_OK);
    assert_true (train_scaler_scale (s) == 1);
    for (int round = 0; round < 2; round++) {
        assert_int_equal (one (s, NAN, NULL), TRAIN_OK);
        assert_int_equal (one (s, NAN, NULL), TRAIN_OK);
        assert_int_equal (one (s, 1, NULL), TRAIN_OK);
    }
    assert_int_equal (one (s, NAN, NULL), TRAIN_OK);
    assert_int_equal (one (s, NAN, NULL), TRAIN_OK);
    assert_int_equal (one (s, NAN, &err), TRAIN_ENONFINITE);
    assert_non_null (strstr (err.text, "3 steps in a row"));
    assert_true (train_scaler_scale (s) == 1);
    train_scaler_destroy (s);
}

/* It never becomes Inf. */
static void test_ceiling (void **state)
{
    train_scaler_t *s =
        make ((train_scaler_options_t){.init = 2e38, .interval = 1});

    (void)state;
    for (int i = 0; i < 5; i++)
        assert_int_equal (one (s, 1, NULL), TRAIN_OK);
    assert_true (train_scaler_scale (s) == 2e38f);
    train_scaler_destroy (s);
}

static void test_order (void **state)
{
    train_scaler_t *s = make ((train_scaler_options_t){.interval = 1});
    train_scaler_state_t v, w = {.size = sizeof (w), .scale = 8, .budget = 1};
    train_error_t err = {0};
    bool found;

    (void)state;
    assert_int_equal (train_scaler_update (s, &err), TRAIN_ESTATE);
    assert_int_equal (train_scaler_unscale (s, NULL, NULL, 0, &found, NULL),
                      TRAIN_OK);
    assert_int_equal (train_scaler_unscale (s, NULL, NULL, 0, &found, &err),
                      TRAIN_ESTATE);
    assert_non_null (strstr (err.text, "train_scaler_cancel"));
    assert_int_equal (train_scaler_set (s, &w, NULL), TRAIN_ESTATE);
    train_scaler_cancel (s);
    assert_int_equal (train_scaler_update (s, NULL), TRAIN_ESTATE);
    assert_true (train_scaler_scale (s) == 65536);
    assert_int_equal (train_scaler_set (s, &w, NULL), TRAIN_OK);
    assert_int_equal (one (s, 1, NULL), TRAIN_OK);
    train_scaler_get (s, &v);
    assert_true (v.scale == 16 && v.good == 0 && v.budget == 1 && v.stuck == 0);
    train_scaler_destroy (s);
}

static void refuse (train_scaler_options_t o, const char *word)
{
    train_scaler_t *s = NULL;
    train_error_t err = {0};

    o.size = sizeof (o);
    assert_int_equal (train_scaler_create (&o, &s, &err), TRAIN_EINVAL);
    assert_null (s);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
}

#define REFUSE(field, value)                                                   \
    refuse ((train_scaler_options_t){.field = (value)}, #field)

static void test_refused (void **state)
{
    train_scaler_t *s = make ((train_scaler_options_t){0});
    train_scaler_state_t v = {.size = sizeof (v), .scale = 0, .budget = 1};
    uint16_t half = 0;
    train_tensor_t t;
    DLTensor *list[1] = {&t.t};
    train_error_t err = {0};
    bool found = false;

    (void)state;
    REFUSE (init, -1);
    REFUSE (init, (double)INFINITY);
    REFUSE (init, 1e39);
    REFUSE (init, 0.5); /* below the floor */
    REFUSE (growth, 1);
    REFUSE (growth, (double)NAN);
    REFUSE (backoff, 1);
    REFUSE (backoff, -0.5);
    REFUSE (interval, -1);
    REFUSE (hysteresis, -1);
    REFUSE (patience, -1);
    assert_true (view_of (&t, &half, TRAIN_F16, 1));
    assert_int_equal (train_scaler_unscale (s, NULL, list, 1, &found, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "widen"));
    assert_int_equal (train_scaler_set (s, &v, NULL), TRAIN_EINVAL);
    v.scale = 1, v.budget = 0;
    assert_int_equal (train_scaler_set (s, &v, NULL), TRAIN_EINVAL);
    train_scaler_destroy (s);
    train_scaler_destroy (NULL);
}

/* facebookresearch/fairscale#180, pytorch/pytorch#115710: Inf in one rank's
 * shard alone. All skip, and have one scale. */
static void ranks (struct job *job, int rank, train_group_t *group)
{
    train_scaler_t *s = NULL;
    struct seen *seen = &job->shared->seen[rank];

    seen->status = train_scaler_create (NULL, &s, &seen->err);
    for (int step = 0; step < 6 && seen->status == TRAIN_OK; step++) {
        float g[3] = {1, 2, step % 3 == rank ? -INFINITY : 3};
        train_tensor_t t;
        DLTensor *list[1] = {&t.t};
        bool found = false;

        view_of (&t, g, TRAIN_F32, 3);
        seen->status =
            train_scaler_unscale (s, group, list, 1, &found, &seen->err);
        if (seen->status == TRAIN_OK)
            seen->status = train_scaler_update (s, &seen->err);
        if (!found)
            note (job, rank, "not told", step, 0, 0);
    }
    if (seen->status == TRAIN_OK && train_scaler_scale (s) != 1024)
        note (job, rank, "another scale", 0, 0, (size_t)train_scaler_scale (s));
    train_scaler_destroy (s);
}

static void test_ranks (void **state)
{
    struct job job = {.layout = "aab", .body = ranks};

    (void)state;
    run_job (&job);
    want_ok (&job);
    free_job (&job);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_grow_and_shrink),
        cmocka_unit_test (test_hysteresis),
        cmocka_unit_test (test_values),
        cmocka_unit_test (test_floor),
        cmocka_unit_test (test_ceiling),
        cmocka_unit_test (test_order),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_ranks),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
