/* SPDX-License-Identifier: Apache-2.0
 * test_shard.c - shard plans beside a list of elements laid out by hand
 *
 * Each element of a model has a number of its own. The expected shards are
 * filled element by element; the plan's ranges and moves must give the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <train/shard.h>

#define MOST  512 /* elements of a shard here */
#define RANKS 9

#define N_OF(a) (sizeof (a) / sizeof (*(a)))

/* Zero-size, tied, of one element, in units that are left out (5 to 8). */
static const train_shard_param_t odd[] = {
    {"embed", 21, 0, -1, false}, {"b0.q", 10, 1, -1, false},
    {"b0.n", 1, 1, -1, false},   {"b0.none", 0, 1, -1, false},
    {"b1.q", 13, 2, -1, false},  {"b1.n", 3, 2, -1, false},
    {"empty", 0, 3, -1, false},  {"last", 7, 4, -1, false},
    {"head", 21, 4, 0, false},   {"far", 2, 9, -1, false},
};

/* The same parameters in another order and other units, and untied. */
static const train_shard_param_t other[] = {
    {"far", 2, 0, -1, false},    {"b1.q", 13, 0, -1, false},
    {"head", 21, 1, -1, false},  {"b0.n", 1, 1, -1, false},
    {"empty", 0, 1, -1, false},  {"b0.q", 10, 2, -1, false},
    {"embed", 21, 3, -1, false}, {"b1.n", 3, 3, -1, false},
    {"last", 7, 4, -1, false},   {"b0.none", 0, 5, -1, false},
};

static train_shard_layout_t layout_of (int world, size_t size, size_t align)
{
    return (train_shard_layout_t){.size = sizeof (train_shard_layout_t),
                                  .world = world,
                                  .wrap =
                                      size ? TRAIN_WRAP_SIZE : TRAIN_WRAP_UNIT,
                                  .least = size,
                                  .align = align};
}

static train_shard_plan_t *plan_of (const train_shard_param_t *params, size_t n,
                                    int world, size_t size, size_t align)
{
    train_shard_layout_t o = layout_of (world, size, align);
    train_shard_plan_t *plan = NULL;
    train_error_t err = {0};

    if (train_shard_plan_create (&o, params, n, &plan, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return plan;
}

/* Element e of what [name] stores; -1 is padding. A tied one has no numbers of
 * its own: ask for the other. */
static int number_of (const char *name, size_t e)
{
    for (size_t i = 0; i < N_OF (odd); i++)
        if (strcmp (odd[i].name, name) == 0)
            return (int)(1000 * i + e);
    fail_msg ("no %s", name);
    return 0;
}

/* The shards as they should be: flat units by the policy, cut by hand. */
static size_t fill (const train_shard_param_t *params, size_t n, int world,
                    size_t size, size_t align, int shard[][MOST])
{
    size_t at = 0, i = 0;

    while (i < n) {
        int flat[MOST], unit = params[i].unit;
        size_t count = 0, chunk = 0;

        for (; i < n; i++) {
            if (params[i].unit != unit && (!size || count >= size))
                break;
            unit = params[i].unit;
            for (size_t e = 0; e < params[i].count && params[i].tied < 0; e++)
                flat[count++] = number_of (params[i].name, e);
        }
        while (chunk * (size_t)world < count)
            chunk++;
        while (chunk % align)
            chunk++;
        for (int r = 0; r < world; r++)
            for (size_t k = 0; k < chunk; k++) {
                size_t from = (size_t)r * chunk + k;

                shard[r][at + k] = from < count ? flat[from] : -1;
            }
        at += chunk;
    }
    return at;
}

static void check_param (const train_shard_plan_t *plan, size_t i, int world,
                         int shard[][MOST], char seen[][MOST])
{
    const train_shard_param_t *p = train_shard_param (plan, i);
    const train_shard_param_t *own =
        p->tied < 0 ? p : train_shard_param (plan, (size_t)p->tied);
    size_t next = 0;

    for (int r = 0; r < world; r++) {
        train_shard_range_t g = train_shard_range (plan, i, r);

        assert_true (g.at + g.count <= train_shard_size (plan));
        assert_true (g.begin + g.count <= p->count);
        if (g.count)
            assert_int_equal (g.begin, next);
        for (size_t k = 0; k < g.count; k++) {
            assert_int_equal (shard[r][g.at + k],
                              number_of (own->name, g.begin + k));
            if (p->tied < 0)
                seen[r][g.at + k]++;
        }
        next += g.count;
    }
    assert_int_equal (next, p->count);
}

static void check_units (const train_shard_plan_t *plan, int world)
{
    size_t at = 0, count = 0, param = 0;

    for (size_t i = 0; i < train_shard_n_units (plan); i++) {
        const train_shard_unit_t *u = train_shard_unit (plan, i);

        assert_int_equal (u->at, at);
        assert_int_equal (u->param, param);
        assert_true (u->chunk * (size_t)world >= u->count);
        assert_int_equal (train_shard_unit_of (plan, u->first), i);
        assert_int_equal (train_shard_unit_of (plan, u->last), i);
        at += u->chunk;
        count += u->count;
        param += u->n_params;
    }
    assert_int_equal (at, train_shard_size (plan));
    assert_int_equal (count, train_shard_numel (plan));
    assert_int_equal (param, train_shard_n_params (plan));
    assert_null (train_shard_unit (plan, train_shard_n_units (plan)));
}

static void check_plan (const train_shard_param_t *params, size_t n, int world,
                        size_t size, size_t align)
{
    static int shard[RANKS][MOST];
    static char seen[RANKS][MOST];
    train_shard_plan_t *plan = plan_of (params, n, world, size, align);
    size_t all = fill (params, n, world, size, align, shard);

    memset (seen, 0, sizeof (seen));
    assert_int_equal (train_shard_size (plan), all);
    check_units (plan, world);
    for (size_t i = 0; i < n; i++)
        check_param (plan, i, world, shard, seen);
    for (int r = 0; r < world; r++) /* each element once, padding never */
        for (size_t k = 0; k < all; k++)
            assert_int_equal (seen[r][k], shard[r][k] >= 0);
    train_shard_plan_destroy (plan);
}

static void test_all_layouts (void **state)
{
    (void)state;
    for (int world = 1; world <= RANKS; world++)
        for (size_t size = 0; size <= 90; size += 1 + size / 8)
            for (size_t align = 1; align <= 4; align++) {
                check_plan (odd, N_OF (odd), world, size, align);
                check_plan (other, N_OF (other), world, size, align);
                check_plan (odd, 1, world, size, align);
                check_plan (odd, 0, world, size, align);
            }
}

/* Facts that other libraries agree on: torch.chunk of 10 and 5 over 4. */
static void test_chunks (void **state)
{
    static const train_shard_param_t ten = {"x", 10, 0, -1, false},
                                     five = {"x", 5, 0, -1, false};
    static const size_t want[2][4] = {{3, 3, 3, 1}, {2, 2, 1, 0}};

    (void)state;
    for (int i = 0; i < 2; i++) {
        train_shard_plan_t *plan = plan_of (i ? &five : &ten, 1, 4, 0, 1);

        for (int r = 0; r < 4; r++)
            assert_int_equal (train_shard_range (plan, 0, r).count, want[i][r]);
        train_shard_plan_destroy (plan);
    }
}

static void check_moves (const train_shard_plan_t *from,
                         const train_shard_plan_t *to, int world,
                         int old[][MOST], int new[][MOST])
{
    for (int r = 0; r < world; r++) {
        int got[MOST];
        train_shard_move_t *m = NULL;
        size_t n = 0, next = 0;
        train_error_t err = {0};

        memset (got, 0xff, sizeof (got));
        if (train_shard_moves (from, to, r, &m, &n, &err) != TRAIN_OK)
            fail_msg ("%s", err.text);
        for (size_t i = 0; i < n; i++) {
            assert_true (m[i].count > 0 && m[i].to_at >= next);
            next = m[i].to_at + m[i].count;
            memcpy (got + m[i].to_at, old[m[i].from_rank] + m[i].from_at,
                    m[i].count * sizeof (*got));
            assert_true (train_shard_range (to, m[i].param, r).begin
                         <= m[i].begin);
        }
        free (m);
        assert_memory_equal (got, new[r],
                             train_shard_size (to) * sizeof (*got));
    }
}

/* Every world and wrap to every other; the tied model to its own. */
static void test_moves (void **state)
{
    static int old[RANKS][MOST], new[RANKS][MOST];
    static const size_t sizes[] = {0, 12, 30, 500};

    (void)state;
    for (int a = 1; a <= 6; a++)
        for (int b = 1; b <= 6; b++)
            for (size_t i = 0; i < 4; i++)
                for (size_t k = 0; k < 4; k++) {
                    train_shard_plan_t *from =
                        plan_of (odd, N_OF (odd), a, sizes[i], 1 + i);
                    train_shard_plan_t *to =
                        plan_of (odd, N_OF (odd), b, sizes[k], 1 + k % 3);

                    fill (odd, N_OF (odd), a, sizes[i], 1 + i, old);
                    fill (odd, N_OF (odd), b, sizes[k], 1 + k % 3, new);
                    check_moves (from, to, b, old, new);
                    train_shard_plan_destroy (from);
                    train_shard_plan_destroy (to);
                }
}

/* The numbers of a tied parameter are the other's: untied it gets a copy. */
static void test_moves_reordered (void **state)
{
    static int old[RANKS][MOST], new[RANKS][MOST];

    (void)state;
    for (int a = 1; a <= 5; a++)
        for (int b = 1; b <= 5; b++) {
            train_shard_plan_t *from = plan_of (odd, N_OF (odd), a, 11, 1);
            train_shard_plan_t *to = plan_of (other, N_OF (other), b, 0, 2);

            fill (odd, N_OF (odd), a, 11, 1, old);
            fill (other, N_OF (other), b, 0, 2, new);
            for (int r = 0; r < b; r++)
                for (size_t k = 0; k < MOST; k++)
                    if (new[r][k] >= 8000 && new[r][k] < 9000)
                        new[r][k] -= 8000; /* head is embed */
            check_moves (from, to, b, old, new);
            train_shard_plan_destroy (from);
            train_shard_plan_destroy (to);
        }
}

static void refuse (const train_shard_layout_t *o,
                    const train_shard_param_t *params, size_t n,
                    const char *word)
{
    train_shard_plan_t *plan = NULL;
    train_error_t err = {0};

    assert_int_equal (train_shard_plan_create (o, params, n, &plan, &err),
                      TRAIN_EINVAL);
    assert_null (plan);
    if (!strstr (err.text, word))
        fail_msg ("'%s' does not say '%s'", err.text, word);
}

/* What is still lies behind what is not, in flat units of their own, and bundles
 * are what the policy joins without it. */
static void test_still (void **state)
{
    static const train_shard_param_t p[] = {
        {"embed", 21, 0, -1, true}, {"b0.q", 10, 1, -1, true},
        {"b0.n", 1, 1, -1, false},  {"b0.a", 6, 1, -1, false},
        {"b1.n", 3, 2, -1, false},  {"b1.q", 13, 2, -1, true},
        {"b1.a", 4, 2, -1, false},  {"head", 21, 3, 0, true},
        {"norm", 7, 3, -1, true},
    };
    /* of each flat unit at least = 1 or 20 */
    static const struct {
        size_t count, bundle;
        bool still;
    } want[2][6] = {
        {{21, 0, true},
         {10, 1, true},
         {7, 1, false},
         {3, 2, false},
         {13, 2, true},
         {4, 2, false}},
        {{21, 0, true},
         {10, 1, true},
         {10, 1, false},
         {13, 1, true},
         {4, 1, false},
         {7, 2, true}},
    };

    (void)state;
    for (int size = 0; size < 2; size++) {
        train_shard_plan_t *plan = plan_of (p, N_OF (p), 3, 20 * size, 1);
        size_t moving = train_shard_moving (plan), sum[2] = {0, 0};

        for (size_t i = 0; i < train_shard_n_units (plan); i++) {
            const train_shard_unit_t *u = train_shard_unit (plan, i);

            if (i < 6) {
                assert_int_equal (u->count, want[size][i].count);
                assert_int_equal (u->bundle, want[size][i].bundle);
                assert_int_equal (u->still, want[size][i].still);
            }
            assert_int_equal (u->at, sum[u->still] + (u->still ? moving : 0));
            sum[u->still] += u->chunk;
        }
        assert_int_equal (sum[false], moving);
        assert_int_equal (sum[true] + moving, train_shard_size (plan));
        for (size_t i = 0; i < N_OF (p); i++)
            for (int r = 0; r < 3 && p[i].tied < 0; r++) {
                train_shard_range_t g = train_shard_range (plan, i, r);

                assert_true (g.count == 0
                             || (p[i].still ? g.at >= moving
                                            : g.at + g.count <= moving));
            }
        train_shard_plan_destroy (plan);
    }
}

static void test_refused (void **state)
{
    train_shard_layout_t good = layout_of (2, 0, 1), o = good;
    const train_shard_param_t twice[] = {{"a", 1, 0, -1, false},
                                         {"a", 1, 0, -1, false}};
    const train_shard_param_t order[] = {{"a", 1, 1, -1, false},
                                         {"b", 1, 0, -1, false}};
    const train_shard_param_t below[] = {{"a", 1, -1, -1, false}};
    const train_shard_param_t later[] = {{"a", 1, 0, 1, false},
                                         {"b", 1, 0, -1, false}};
    const train_shard_param_t chain[] = {
        {"a", 1, 0, -1, false}, {"b", 1, 0, 0, false}, {"c", 1, 0, 1, false}};
    const train_shard_param_t sizes[] = {{"a", 1, 0, -1, false},
                                         {"b", 2, 0, 0, false}};
    const train_shard_param_t huge[] = {{"a", SIZE_MAX, 0, -1, false}};
    const train_shard_param_t sum[] = {{"a", (size_t)1 << 44, 0, -1, false},
                                       {"b", 1, 0, -1, false}};
    const train_shard_param_t unnamed[] = {{NULL, 1, 0, -1, false}};

    (void)state;
    refuse (NULL, odd, 1, "layout");
    refuse (&good, NULL, 1, "NULL");
    o.world = 0, refuse (&o, odd, 1, "world 0"), o = good;
    o.wrap = (train_wrap_t)7, refuse (&o, odd, 1, "policy 7"), o = good;
    o.wrap = TRAIN_WRAP_SIZE, refuse (&o, odd, 1, "least"), o = good;
    o.align = SIZE_MAX, refuse (&o, odd, 1, "align"), o = good;
    o.size = 0, refuse (&o, odd, 1, "size");
    refuse (&good, twice, 2, "two parameters are called a");
    refuse (&good, order, 2, "b is of unit 0");
    refuse (&good, below, 1, "unit -1");
    refuse (&good, later, 2, "not before it");
    refuse (&good, chain, 3, "itself tied");
    refuse (&good, sizes, 2, "another size");
    refuse (&good, huge, 1, "more than");
    refuse (&good, sum, 2, "with b");
    refuse (&good, unnamed, 1, "no name");
    train_shard_plan_destroy (NULL);
}

static void test_moves_refused (void **state)
{
    static const train_shard_param_t grown = {"far", 3, 0, -1, false};
    static const train_shard_param_t unknown = {"new", 3, 0, -1, false};
    train_shard_plan_t *from = plan_of (odd, N_OF (odd), 2, 0, 1);
    train_shard_plan_t *a = plan_of (&grown, 1, 2, 0, 1);
    train_shard_plan_t *b = plan_of (&unknown, 1, 2, 0, 1);
    train_shard_move_t *m = NULL;
    train_error_t err = {0};
    size_t n = 0;

    (void)state;
    assert_int_equal (train_shard_moves (from, a, 0, &m, &n, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "far has 2 elements"));
    assert_int_equal (train_shard_moves (from, b, 0, &m, &n, &err),
                      TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "new is not in"));
    assert_int_equal (train_shard_moves (from, from, 2, &m, &n, &err),
                      TRAIN_EINVAL);
    assert_int_equal (train_shard_moves (from, NULL, 0, &m, &n, NULL),
                      TRAIN_EINVAL);
    assert_null (m);
    train_shard_plan_destroy (from);
    train_shard_plan_destroy (a);
    train_shard_plan_destroy (b);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_all_layouts),
        cmocka_unit_test (test_chunks),
        cmocka_unit_test (test_still),
        cmocka_unit_test (test_moves),
        cmocka_unit_test (test_moves_reordered),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_moves_refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
