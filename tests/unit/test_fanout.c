/* SPDX-License-Identifier: Apache-2.0
 * test_fanout.c - which strategies get a job of their own */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plan/fanout.h"

#define NOW 1000000

static struct strategy_partition part[4];
static struct strategy_rule rule[4];
static struct plans_item items[PLANS_MAX];
static struct plans plans;
static struct fanout f;

/* A strategy for [nodes] that starts in [wait] seconds and may get each type of
 * [types], "ab" being the first two. */
static struct plans_item *add (const char *types, uint32_t nodes, int64_t wait,
                               int64_t time_s)
{
    struct plans_item *item = &items[plans.n++];

    *item = (struct plans_item){.plan = {.gpus = 4,
                                         .nodes = nodes,
                                         .gpus_per_node = 4 / nodes,
                                         .time_s = time_s},
                                .known = PLANS_AT,
                                .start_s = NOW + wait};
    for (; *types; types++) {
        int t = *types - 'a';

        item->member[item->n_members++] =
            (struct plans_member){&part[t], &rule[t], "x"};
    }
    return item;
}

static int setup (void **state)
{
    (void)state;
    memset (items, 0, sizeof (items));
    plans = (struct plans){.item = items};
    return 0;
}

/* Which are submitted, and in whose place others: "02+1". */
static const char *chosen (unsigned most, int room, const char *never)
{
    static char text[2 * PLANS_MAX + 2];
    const struct fanout_wish wish = {
        .most = most, .room = room, .never = never};
    size_t at = 0;

    fanout_choose (&plans, &wish, &f);
    for (size_t i = 0; i < f.n + f.n_spare; i++) {
        if (i == f.n)
            text[at++] = '+';
        text[at++] = (char)('0' + f.order[i]);
    }
    text[at] = '\0';
    for (size_t i = 0; i < plans.n; i++) {
        bool submit = memchr (text, (char)('0' + i), strcspn (text, "+"));

        assert_int_equal (f.fate[i] == FANOUT_SUBMIT, submit);
        assert_int_equal (f.why[i][0] == '\0', submit);
    }
    assert_int_equal (f.alone[0] != '\0', f.n < 2 && plans.n > 0);
    return text;
}

static void one_strategy (void **state)
{
    (void)state;
    assert_string_equal (chosen (4, -1, NULL), "");
    add ("a", 1, 600, 3600);
    assert_string_equal (chosen (4, -1, NULL), "0");
    assert_string_equal (f.alone, "one job says all that there is");
}

static void several (void **state)
{
    (void)state;
    add ("a", 1, 600, 3600);
    add ("b", 1, 600, 3600);
    add ("c", 1, 900, 3600);
    add ("d", 2, 900, 7200);
    assert_string_equal (chosen (4, -1, NULL), "0123");
    /* at most so many; the others stand in for one that is refused */
    assert_string_equal (chosen (2, -1, NULL), "01+23");
    assert_string_equal (f.why[2], "2 jobs are enough (fanout)");
    assert_string_equal (chosen (1, -1, NULL), "0");
    assert_string_equal (f.alone, "fanout is off");
    assert_string_equal (chosen (0, -1, NULL), "0");
    /* limits of submitted jobs */
    assert_string_equal (chosen (4, 3, NULL), "012+3");
    assert_string_equal (f.why[3], "the limit of submitted jobs");
    assert_string_equal (chosen (4, 9, NULL), "0123");
    assert_string_equal (chosen (4, 1, NULL), "0+123");
    assert_string_equal (f.alone, "the limit of submitted jobs leaves no room");
    /* no room is for sbatch to say */
    assert_string_equal (chosen (4, 0, NULL), "0+123");
    /* what must be one job is that one, or none */
    assert_string_equal (chosen (4, -1, "--array"), "0");
    assert_string_equal (f.alone, "--array");
}

static void starts_now (void **state)
{
    (void)state;
    add ("a", 1, 0, 3600)->fits_now = true;
    add ("b", 1, 0, 3600)->fits_now = true;
    assert_string_equal (chosen (4, -1, NULL), "0+1");
    assert_string_equal (f.alone, "the first can start now");
    /* not where jobs are hidden */
    items[0].known = items[1].known = PLANS_UNKNOWN;
    assert_string_equal (chosen (4, -1, NULL), "01");
}

static void no_gpu (void **state)
{
    (void)state;
    add ("a", 1, 600, 3600);
    add ("b", 1, 600, 3600);
    items[0].plan.gpus = items[1].plan.gpus = 0;
    assert_string_equal (chosen (4, -1, NULL), "0+1");
    assert_string_equal (f.alone, "it asks for no GPU");
}

static void one_job_says_it (void **state)
{
    (void)state;
    /* either type, or the first alone, which is cheaper */
    add ("ab", 1, 600, 3600);
    add ("a", 1, 900, 3600);
    assert_string_equal (chosen (4, -1, NULL), "0+1");
    assert_string_equal (f.why[1], "1 may start there too");
    assert_string_equal (f.alone, "the first job is as good as any");
    /* on more nodes it is another job, and so is a shorter limit */
    add ("a", 2, 900, 3600);
    add ("a", 1, 900, 1800);
    assert_string_equal (chosen (4, -1, NULL), "023+1");
    /* a longer one is not: what waits for less starts first */
    items[3].plan.time_s = 7200;
    assert_string_equal (chosen (4, -1, NULL), "02+13");
    items[3].plan.time_s = STRATEGY_UNLIMITED;
    assert_string_equal (chosen (4, -1, NULL), "02+13");
    items[0].plan.time_s = STRATEGY_UNLIMITED;
    assert_string_equal (chosen (4, -1, NULL), "012+3");
    /* one that Slurm may shorten serves for it */
    items[0].plan.time_s = 3600;
    items[0].plan.time_min_s = 600;
    items[3].plan.time_s = 1800;
    assert_string_equal (chosen (4, -1, NULL), "02+13");
}

static void never_starts (void **state)
{
    (void)state;
    add ("a", 1, 600, 3600);
    add ("b", 1, 0, 3600)->known = PLANS_NEVER;
    add ("c", 1, 0, 3600)->known = PLANS_UNKNOWN;
    assert_string_equal (chosen (4, -1, NULL), "02");
    assert_string_equal (f.why[1], "not foreseen to start");
    assert_int_equal (f.fate[1], FANOUT_LEAVE);
    /* as good as the others where none is */
    items[0].known = items[2].known = PLANS_NEVER;
    assert_string_equal (chosen (4, -1, NULL), "012");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup (one_strategy, setup),
        cmocka_unit_test_setup (several, setup),
        cmocka_unit_test_setup (starts_now, setup),
        cmocka_unit_test_setup (no_gpu, setup),
        cmocka_unit_test_setup (one_job_says_it, setup),
        cmocka_unit_test_setup (never_starts, setup),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
