/* SPDX-License-Identifier: Apache-2.0
 * test_schedule.c - refusals, and tables of rates worked out by hand */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include <train/schedule.h>

static const train_schedule_t good = {
    .size = sizeof (train_schedule_t),
    .kind = TRAIN_SCHEDULE_COSINE,
    .lr = 1.0,
    .min_lr = 0.1,
    .warmup = 4,
    .steps = 12,
};

static void refuse (train_schedule_t s, const char *word)
{
    train_error_t err = {0};

    assert_int_equal (train_schedule_check (&s, &err), TRAIN_EINVAL);
    assert_int_equal (err.code, TRAIN_EINVAL);
    assert_non_null (strstr (err.text, word));
    assert_int_equal (train_schedule_check (&s, NULL), TRAIN_EINVAL);
}

#define REFUSE(field, value, word)                                             \
    do {                                                                       \
        train_schedule_t s_ = good;                                            \
        s_.field = (value);                                                    \
        refuse (s_, word);                                                     \
    } while (0)

static void test_bad_arguments (void **state)
{
    (void)state;
    assert_int_equal (train_schedule_check (NULL, NULL), TRAIN_EINVAL);
    REFUSE (size, 3, "size");
    REFUSE (kind, (train_schedule_kind_t)7, "kind 7");
    REFUSE (lr, 0.0, "lr");
    REFUSE (lr, -1.0, "lr");
    REFUSE (lr, (double)NAN, "lr");
    REFUSE (lr, (double)INFINITY, "lr");
    REFUSE (min_lr, 1.5, "min_lr");
    REFUSE (min_lr, -0.1, "min_lr");
    REFUSE (min_lr, (double)NAN, "min_lr");
    REFUSE (steps, 0, "steps");
    REFUSE (warmup, -1, "warmup");
    REFUSE (warmup, 13, "warmup");
    assert_int_equal (train_schedule_check (&good, NULL), TRAIN_OK);
}

static void test_tables (void **state)
{
    /* 12 steps, 4 of them warmup: p = (s - 4) / 8 */
    static const struct {
        train_schedule_kind_t kind;
        int64_t step;
        double lr;
    } t[] = {
        {TRAIN_SCHEDULE_CONSTANT, -5, 0.25},
        {TRAIN_SCHEDULE_CONSTANT, 0, 0.25},
        {TRAIN_SCHEDULE_CONSTANT, 3, 1.0},
        {TRAIN_SCHEDULE_CONSTANT, 4, 1.0},
        {TRAIN_SCHEDULE_CONSTANT, 99, 1.0},
        {TRAIN_SCHEDULE_LINEAR, 1, 0.5},
        {TRAIN_SCHEDULE_LINEAR, 4, 1.0},
        {TRAIN_SCHEDULE_LINEAR, 6, 0.775},
        {TRAIN_SCHEDULE_LINEAR, 11, 0.2125},
        {TRAIN_SCHEDULE_LINEAR, 12, 0.1},
        {TRAIN_SCHEDULE_LINEAR, 1000, 0.1},
        {TRAIN_SCHEDULE_COSINE, 2, 0.75},
        {TRAIN_SCHEDULE_COSINE, 4, 1.0},
        {TRAIN_SCHEDULE_COSINE, 6, 0.86819805153394638},
        {TRAIN_SCHEDULE_COSINE, 8, 0.55},
        {TRAIN_SCHEDULE_COSINE, 10, 0.23180194846605361},
        {TRAIN_SCHEDULE_COSINE, 12, 0.1},
        {TRAIN_SCHEDULE_COSINE, INT64_MAX, 0.1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (t) / sizeof (*t); i++) {
        train_schedule_t s = good;

        s.kind = t[i].kind;
        assert_true (fabs (train_schedule_lr (&s, t[i].step) - t[i].lr)
                     < 1e-15);
    }
}

/* No warmup starts at the top; warmup as long as the run never divides by 0. */
static void test_edges (void **state)
{
    train_schedule_t s = good;

    (void)state;
    s.warmup = 0;
    assert_true (train_schedule_lr (&s, 0) == 1.0);
    s.warmup = s.steps;
    assert_int_equal (train_schedule_check (&s, NULL), TRAIN_OK);
    assert_true (train_schedule_lr (&s, 11) == 1.0);
    assert_true (train_schedule_lr (&s, 12) == 0.1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad_arguments),
        cmocka_unit_test (test_tables),
        cmocka_unit_test (test_edges),
    };

    return cmocka_run_group_tests_name ("schedule", tests, NULL, NULL);
}
