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
#include "libtrain/reference_parts.h"

/* A kind that remembers what it was asked and fills all places. */
struct made {
    int32_t ids[64], prompt[8], total[8];
    int calls, closed;
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

/* One that takes [limit] tokens at once, and after [falls] answers fewer. A place
 * is worth what its id is. */
struct narrow {
    int limit, falls, least, calls, refused, widest;
};

static train_status_t narrow_ask (void *self, const struct reference_rows *r,
                                  bool *ret_large, train_error_t *err)
{
    struct narrow *n = self;

    if (n->falls > 0 && n->calls == n->falls)
        n->limit = n->least;
    if (r->B * r->T > n->limit) {
        n->refused++;
        *ret_large = true;
        return err_set (err, TRAIN_EINVAL, "%d rows of %d", r->B, r->T);
    }
    n->calls++;
    n->widest = r->T > n->widest ? r->T : n->widest;
    for (int b = 0; b < r->B; b++) {
        assert_int_equal (r->prompt_len[b] + 1, r->total_len[b]);
        assert_in_range (r->total_len[b], 2, r->T);
        for (int t = 0; t < r->T; t++)
            r->ret[b * r->T + t] =
                t < r->total_len[b] ? (float)r->ids[b * r->T + t] : 0;
    }
    return TRAIN_OK;
}

enum { PART_ROWS = 7, PART_T = 10 };

/* Seven texts of 2 to 8 tokens in rows of 10, asked of one that begins with
 * [limit]. */
static train_status_t ask_in_parts (struct narrow *n, size_t *most,
                                    train_error_t *err)
{
    static const int32_t total[PART_ROWS] = {8, 2, 2, 2, 5, 8, 3};
    int32_t ids[PART_ROWS * PART_T] = {0}, prompt[PART_ROWS];
    float ret[PART_ROWS * PART_T];
    const struct reference_rows rows = {ids,       prompt, total,
                                        PART_ROWS, PART_T, ret};
    train_status_t status;

    for (int b = 0; b < PART_ROWS; b++) {
        prompt[b] = total[b] - 1;
        for (int t = 0; t < total[b]; t++)
            ids[b * PART_T + t] = 100 * b + t;
    }
    for (size_t i = 0; i < PART_ROWS * PART_T; i++)
        ret[i] = -1;
    status = reference_in_parts (&rows, most, narrow_ask, n, err);
    for (int i = 0; status == TRAIN_OK && i < PART_ROWS * PART_T; i++) {
        bool text = i % PART_T < total[i / PART_T];
        float want = text ? (float)ids[i] : 0;

        assert_float_equal (ret[i], want, 0);
    }
    return status;
}

static void test_parts (void **state)
{
    struct narrow whole = {.limit = 70}, told = {.limit = 16};
    struct narrow untold = {.limit = 16}, falls = {.limit = 16, 2, 8};
    train_error_t err = {0};
    size_t most = 0;

    (void)state;
    assert_int_equal (ask_in_parts (&whole, &most, &err), TRAIN_OK);
    assert_int_equal (whole.calls, 1);
    assert_int_equal (most, 0);
    most = 16; /* 8 2; 2 2 5; 8 3 */
    assert_int_equal (ask_in_parts (&told, &most, &err), TRAIN_OK);
    assert_int_equal (told.calls, 3);
    assert_int_equal (told.refused, 0);
    assert_int_equal (told.widest, 8);
    most = 0; /* 70, then at most 35 (8 2 2 2), then 16 */
    assert_int_equal (ask_in_parts (&untold, &most, &err), TRAIN_OK);
    assert_int_equal (untold.refused, 2);
    assert_int_equal (most, 16);
    most = 16;
    assert_int_equal (ask_in_parts (&falls, &most, &err), TRAIN_OK);
    assert_in_range (falls.refused, 1, 3);
}

/* A row that is too large by itself; and a failure that is another. */
static void test_parts_fail (void **state)
{
    struct narrow small = {.limit = 7};
    train_error_t err = {0};
    size_t most = 0;

    (void)state;
    assert_int_equal (ask_in_parts (&small, &most, &err), TRAIN_EINVAL);
    assert_string_equal (err.text, "1 rows of 8");
    small = (struct narrow){.limit = 7};
    most = 7;
    assert_int_equal (ask_in_parts (&small, &most, &err), TRAIN_EINVAL);
    assert_int_equal (small.refused, 1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_asked),      cmocka_unit_test (test_refused),
        cmocka_unit_test (test_failure),    cmocka_unit_test (test_parts),
        cmocka_unit_test (test_parts_fail),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
