/* SPDX-License-Identifier: Apache-2.0
 * test_reward_math.c - exact arithmetic, and where an expression stands */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include <train/reward.h>

#include "libtrain/reward_math.h"

static void expect (const char *text, int64_t num, int64_t den)
{
    struct rational r = {0, 0};

    if (math_eval (text, strlen (text), &r, NULL) != MATH_OK || r.num != num
        || r.den != den)
        fail_msg ("'%s' is %lld/%lld, not %lld/%lld", text, (long long)r.num,
                  (long long)r.den, (long long)num, (long long)den);
}

static void expect_not (const char *text, enum math want)
{
    struct rational r;

    if (math_eval (text, strlen (text), &r, NULL) != want)
        fail_msg ("'%s' is not refused as told", text);
}

static void test_eval (void **state)
{
    (void)state;
    expect ("12+34", 46, 1);
    expect (" 2 + 3 * 4 ", 14, 1);
    expect ("(2+3)*4", 20, 1);
    expect ("7-10", -3, 1);
    expect ("10-3-2", 5, 1);
    expect ("100/10/5", 2, 1);
    expect ("1/3+1/6", 1, 2);
    expect ("-2*-3", 6, 1);
    expect ("--2", 2, 1);
    expect ("2-(-3)", 5, 1);
    expect ("-(1/2)", -1, 2);
    expect ("0.1+0.2", 3, 10);
    expect ("0/5", 0, 1);
    expect ("1,234+1", 1235, 1);
    expect ("6 \xc3\x97 7", 42, 1);
    expect ("84 \xc3\xb7 2 \xe2\x88\x92 1", 41, 1);
    expect ("9223372036854775807", INT64_MAX, 1);
    expect ("9223372036854775807-9223372036854775807", 0, 1);
    expect ("1/9223372036854775807", 1, INT64_MAX);
}

static void test_refused (void **state)
{
    char deep[300];

    (void)state;
    expect_not ("", MATH_SYNTAX);
    expect_not ("12+", MATH_SYNTAX);
    expect_not ("+", MATH_SYNTAX);
    expect_not ("(1", MATH_SYNTAX);
    expect_not ("1)", MATH_SYNTAX);
    expect_not ("1 2", MATH_SYNTAX);
    expect_not ("1.", MATH_SYNTAX);
    expect_not (".5", MATH_SYNTAX);
    expect_not ("1.2.3", MATH_SYNTAX);
    expect_not ("1,23", MATH_SYNTAX);
    expect_not ("12+34=", MATH_SYNTAX);
    expect_not ("2**3", MATH_SYNTAX);
    expect_not ("x", MATH_SYNTAX);
    expect_not ("1/0", MATH_ZERO);
    expect_not ("1/(2-2)", MATH_ZERO);
    expect_not ("9223372036854775807+1", MATH_RANGE);
    expect_not ("9223372036854775808", MATH_RANGE);
    expect_not ("9999999999*9999999999", MATH_RANGE);
    expect_not ("1000000000000000000000000000000000000000000", MATH_RANGE);
    memset (deep, '(', sizeof (deep) - 1);
    deep[sizeof (deep) - 1] = '\0';
    expect_not (deep, MATH_RANGE);
    memset (deep, '-', sizeof (deep) - 1);
    expect_not (deep, MATH_RANGE);
}

static void expect_found (const char *text, const char *want)
{
    size_t at = 0, n = 0;
    bool found = math_find (text, strlen (text), &at, &n);

    if (!want ? found
              : !found || n != strlen (want) || memcmp (text + at, want, n))
        fail_msg ("in '%s' is '%.*s', not '%s'", text, (int)n, text + at,
                  want ? want : "nothing");
}

static void test_find (void **state)
{
    (void)state;
    expect_found ("12+34=", "12+34");
    expect_found ("What is 12 + 34?", "12 + 34");
    expect_found ("Compute (3+4)*5.", "(3+4)*5");
    expect_found ("1+1=2, and 2+3=", "2+3");
    expect_found ("1. 2+3", "2+3");
    expect_found ("1+2\n3", "1+2");
    expect_found ("6 \xc3\x97 7?", "6 \xc3\x97 7");
    expect_found ("no numbers", NULL);
    expect_found ("just 46", NULL);
    expect_found ("2026-", NULL);
    expect_found ("-5", NULL);
    expect_found ("", NULL);
    expect_found ("5/0=", "5/0");
}

static float score (train_reward_options_t o, const char *row,
                    const char *completion)
{
    train_sample_t s = {.prompt = "<user>1+1=<assistant>",
                        .completion = completion,
                        .row = row};
    train_reward_t *r = NULL;
    float reward = -7;

    o.size = sizeof (o);
    o.kind = TRAIN_REWARD_ARITHMETIC;
    assert_int_equal (train_reward_open (&o, &r, NULL), TRAIN_OK);
    assert_int_equal (train_reward_score (r, &s, 1, &reward, NULL), TRAIN_OK);
    train_reward_close (r);
    return reward;
}

#define SUM "{\"prompt\": \"12+34=\"}"
#define CHAT                                                                   \
    "{\"prompt\": [{\"role\": \"system\", \"content\": \"1+1\"},"              \
    "{\"role\": \"user\", \"content\": \"1/3 + 1/6?\"}]}"

static void test_reward (void **state)
{
    const train_reward_options_t plain = {0}, field = {.field = "answer"},
                                 mark = {.marker = "####"};

    (void)state;
    assert_true (score (plain, SUM, "46") == 1);
    assert_true (score (plain, SUM, " 46\n") == 1);
    assert_true (score (plain, SUM, "46.0") == 1);
    assert_true (score (plain, SUM, "92/2") == 1);
    assert_true (score (plain, SUM, "+46.") == 1);
    assert_true (score (plain, SUM, "45") == 0);
    assert_true (score (plain, SUM, "-46") == 0);
    assert_true (score (plain, SUM, "12+34") == 0); /* that is no result */
    assert_true (score (plain, SUM, "46 46") == 0);
    assert_true (score (plain, SUM, "") == 0);
    assert_true (score (plain, CHAT, "1/2") == 1);
    assert_true (score (plain, CHAT, "0.5") == 1);
    assert_true (score (plain, CHAT, "2") == 0);
    assert_true (score (plain, NULL, "2") == 1); /* of the sample's prompt */
    assert_true (isnan (score (plain, "{\"prompt\": \"5/0=\"}", "0")));
    assert_true (isnan (score (plain, "{\"prompt\": \"hello\"}", "0")));
    assert_true (score (field, "{\"answer\": \"2*3\"}", "6") == 1);
    assert_true (score (field, "{\"answer\": 0.1}", "1/10") == 1);
    assert_true (isnan (score (field, "{\"answer\": \"six\"}", "6")));
    assert_true (isnan (score (field, "{}", "6")));
    assert_true (score (mark, SUM, "it is #### 46") == 1);
    assert_true (score (mark, SUM, "46") == 0);
    assert_true (score ((train_reward_options_t){.marker = "\\boxed{"}, SUM,
                        "so $\\boxed{46}$.")
                 == 1);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_eval),
        cmocka_unit_test (test_refused),
        cmocka_unit_test (test_find),
        cmocka_unit_test (test_reward),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
