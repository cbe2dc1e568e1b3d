/* SPDX-License-Identifier: Apache-2.0
 * test_reference.c - what every kind of reference is given and gives */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "libtrain/err.h"
#include "libtrain/reference.h"

/* A kind that remembers what it was asked and fills all places. */
struct made {
    int32_t ids[64], prompt[8], total[8];
    int B, T, calls, closed;
    double temperature;
    train_status_t status;
};

static train_status_t made_logps (void *self, const int32_t *ids,
                                  const int32_t *prompt_len,
                                  const int32_t *total_len, int B, int T,
                                  double temperature, float *ret,
                                  train_error_t *err)
{
    struct made *m = self;

    m->calls++;
    m->B = B;
    m->T = T;
    m->temperature = temperature;
    memcpy (m->ids, ids, (size_t)(B * T) * sizeof (*ids));
    memcpy (m->prompt, prompt_len, (size_t)B * sizeof (*prompt_len));
    memcpy (m->total, total_len, (size_t)B * sizeof (*total_len));
    for (int i = 0; i < B * T; i++)
        ret[i] = -1 - (float)i;
    return m->status == TRAIN_OK ? TRAIN_OK
                                 : err_set (err, m->status, "made to fail");
}

static void made_close (void *self)
{
    ((struct made *)self)->closed++;
}

static const struct reference_ops made_ops = {
    .name = "made", .logps = made_logps, .close = made_close};

static void test_asked (void **state)
{
    static const int32_t ids[] = {1, 2, 3, 4, -7, 5, 6, 7, 900, 900};
    static const int32_t prompt[] = {2, 0}, total[] = {4, 3};
    static const float want[] = {0, 0, -3, -4, 0, 0, -7, -8, 0, 0};
    static const int32_t given[] = {1, 2, 3, 4, 0, 5, 6, 7, 0, 0};
    struct made m = {0};
    train_reference_t *r = NULL;
    float ret[10];

    (void)state;
    assert_int_equal (reference_new (&made_ops, &m, 10, &r, NULL), TRAIN_OK);
    assert_int_equal (
        train_reference_logps (r, ids, prompt, total, 2, 5, 0.5, ret, NULL),
        TRAIN_OK);
    assert_memory_equal (ret, want, sizeof (want));
    assert_memory_equal (m.ids, given, sizeof (given));
    assert_memory_equal (m.prompt, prompt, sizeof (prompt));
    assert_memory_equal (m.total, total, sizeof (total));
    assert_true (m.temperature == 0.5);

    /* Without prompts all but the first are asked for. */
    assert_int_equal (
        train_reference_logps (r, ids, NULL, total, 2, 5, 1, ret, NULL),
        TRAIN_OK);
    assert_true (ret[0] == 0 && ret[1] == -2 && ret[4] == 0);
    train_reference_close (r);
    assert_int_equal (m.closed, 1);
    train_reference_close (NULL);
}

static void refused (train_reference_t *r, const int32_t *ids, int32_t prompt,
                     int32_t total, int B, int T, double temperature,
                     const char *says)
{
    float ret[4] = {7, 7, 7, 7};
    train_error_t err = {0};

    assert_int_equal (train_reference_logps (r, ids, &prompt, &total, B, T,
                                             temperature, ret, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, says));
    assert_true (ret[0] == 7);
}

static void test_refused (void **state)
{
    static const int32_t ids[] = {1, 2, 10, -1};
    struct made m = {0};
    train_reference_t *r = NULL;

    (void)state;
    assert_int_equal (reference_new (&made_ops, &m, 10, &r, NULL), TRAIN_OK);
    refused (r, ids, 0, 2, 0, 4, 1, "0 x 4");
    refused (r, ids, 0, 2, 1, 0, 1, "1 x 0");
    refused (r, ids, 0, 2, 65536, 65536, 1, "65536 x 65536");
    refused (r, ids, 0, 2, 1, 4, 0, "temperature");
    refused (r, ids, 0, 2, 1, 4, NAN, "temperature");
    refused (r, ids, 0, 2, 1, 4, INFINITY, "temperature");
    refused (r, ids, 0, 5, 1, 4, 1, "row 0");
    refused (r, ids, 3, 2, 1, 4, 1, "row 0");
    refused (r, ids, -1, 2, 1, 4, 1, "row 0");
    refused (r, ids, 0, 3, 1, 4, 1, "has 10 at 2");
    refused (r, ids + 1, 0, 3, 1, 3, 1, "has 10 at 1");
    refused (r, ids + 3, 0, 1, 1, 1, 1, "has -1 at 0");
    assert_int_equal (m.calls, 0);
    train_reference_close (r);
}

static void test_failure (void **state)
{
    static const int32_t ids[] = {1, 2}, total[] = {2};
    struct made m = {.status = TRAIN_ETIMEDOUT};
    train_reference_t *r = NULL;
    train_error_t err = {0};
    float ret[2];

    (void)state;
    assert_int_equal (reference_new (&made_ops, &m, 0, &r, NULL), TRAIN_OK);
    assert_int_equal (
        train_reference_logps (r, ids, NULL, total, 1, 2, 1, ret, &err),
        TRAIN_ETIMEDOUT);
    assert_string_equal (err.text, "made to fail");
    train_reference_close (r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_asked),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_failure),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
