/* SPDX-License-Identifier: Apache-2.0
 * test_cuts.c - which token is drawn of those that top k, top p, min p and a
 * repetition penalty leave: by the chances that transformers gives each
 * (tests/interop/cuts_golden.py) */
#include "config.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/decode.h"

enum { V = 24, N = 3000, SEED = 11 };

static double number (const json_t *c, const char *key)
{
    return json_number_value (json_object_get (c, key));
}

static void numbers (double *ret, const json_t *c, const char *key)
{
    const json_t *a = json_object_get (c, key);

    assert_int_equal (json_array_size (a), V);
    for (size_t v = 0; v < V; v++)
        ret[v] = json_number_value (json_array_get (a, v));
}

/* The tokens that a text had. */
static void note (uint32_t *seen, const json_t *c)
{
    const json_t *before = json_object_get (c, "before"), *id;
    size_t i;

    json_array_foreach (before, i, id)
    {
        int32_t token = (int32_t)json_integer_value (id);
        int32_t slot = 0, at = (int32_t)i;

        kern_had_host (seen, &token, &slot, &at, 1, V, NULL);
    }
}

/* May u, going through chances by id, come to id? Rounding may move a bound. */
static bool due (const double *chance, int32_t id, double u)
{
    double below = 0;

    for (int32_t v = 0; v < id; v++)
        below += chance[v];
    return chance[id] > 0 && u > below - 1e-9 && u < below + chance[id] + 1e-9;
}

static void check_case (size_t which, const json_t *c)
{
    struct kern_draw_rules rules = {.heat = 1,
                                    .repetition = number (c, "repetition"),
                                    .top_p = number (c, "top_p"),
                                    .min_p = number (c, "min_p"),
                                    .top_k = (int)number (c, "top_k"),
                                    .seed = SEED};
    double scratch[V * 3], z[V], chance[V];
    uint32_t seen[1] = {0};
    int32_t slot = 0, text = (int32_t)which;

    if (json_object_get (c, "temperature"))
        rules.heat = number (c, "temperature");
    numbers (z, c, "logits");
    numbers (chance, c, "chances");
    note (seen, c);
    for (int32_t at = 0; at < N; at++) {
        double u = draw_chance (SEED, (uint32_t)text, (uint32_t)at + 1);
        int32_t id = -1;

        kern_draw_f64_host (&id, NULL, z, &text, &at, &slot, seen, 1, V, &rules,
                            scratch, NULL);
        assert_in_range (id, 0, V - 1);
        if (!due (chance, id, u))
            fail_msg ("case %zu: %g gives token %d of chance %g", which, u, id,
                      chance[id]);
    }
}

static void test_cuts (void **state)
{
    const char *src = getenv ("top_srcdir");
    const json_t *c;
    char path[4096];
    json_t *all;
    size_t i;

    (void)state;
    snprintf (path, sizeof (path), "%s/tests/golden/cuts.json",
              src ? src : "..");
    all = json_load_file (path, 0, NULL);
    assert_true (json_array_size (all) > 12);
    json_array_foreach (all, i, c) check_case (i, c);
    json_decref (all);
}

int main (void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test (test_cuts)};

    return cmocka_run_group_tests (tests, NULL, NULL);
}
