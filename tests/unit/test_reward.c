/* SPDX-License-Identifier: Apache-2.0
 * test_reward.c - rewards by a rule, and what opening refuses */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <train/reward.h>

static train_reward_t *open_reward (const train_reward_options_t *o)
{
    train_reward_t *r = NULL;
    train_error_t err = {0};

    if (train_reward_open (o, &r, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return r;
}

static float one (train_reward_t *r, const char *completion, const char *row)
{
    train_sample_t s = {.prompt = "p", .completion = completion, .row = row};
    train_error_t err = {0};
    float reward = -7;

    if (train_reward_score (r, &s, 1, &reward, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return reward;
}

static void expect (train_reward_t *r, const char *completion, const char *row,
                    float want)
{
    float got = one (r, completion, row);

    if (isnan (want) ? !isnan (got) : !(fabsf (got - want) < 1e-6f))
        fail_msg ("'%s' of %s is %g, not %g", completion, row, (double)got,
                  (double)want);
}

static void expect_refused (const train_reward_options_t *o, const char *why)
{
    train_reward_t *r = NULL;
    train_error_t err = {0};

    assert_int_equal (train_reward_open (o, &r, &err), TRAIN_EINVAL);
    assert_null (r);
    if (!strstr (err.text, why))
        fail_msg ("'%s' lacks '%s'", err.text, why);
}

static void test_exact (void **state)
{
    train_reward_options_t o = {.size = sizeof (o)};
    train_reward_t *r = open_reward (&o);
    train_reward_report_t report = {.size = sizeof (report)};

    (void)state;
    expect (r, "46", "{\"answer\": \"46\"}", 1);
    expect (r, " 46\n", "{\"answer\": \"46 \"}", 1);
    expect (r, "46", "{\"answer\": 46}", 1);
    expect (r, "0.1", "{\"answer\": 0.1}", 1);
    expect (r, "4", "{\"answer\": 46}", 0);
    expect (r, "466", "{\"answer\": 46}", 0);
    expect (r, "", "{\"answer\": 46}", 0);
    expect (r, "", "{\"answer\": \"\"}", 1);
    expect (r, "46", "{\"answer\": null}", NAN);
    expect (r, "46", "{\"other\": 46}", NAN);
    expect (r, "46", NULL, NAN);
    assert_int_equal (train_reward_report (r, &report, NULL), TRAIN_OK);
    assert_int_equal (report.scored, 8);
    assert_int_equal (report.nothing, 3);
    train_reward_close (r);
}

static void test_marker (void **state)
{
    train_reward_options_t o = {
        .size = sizeof (o), .field = "solution", .marker = "####"};
    train_reward_t *r = open_reward (&o);

    (void)state;
    expect (r, "so #### 46\nand more", "{\"solution\": \"46\"}", 1);
    expect (r, "#### 45 no, #### 46 ", "{\"solution\": \"a\\n#### 46\"}", 1);
    expect (r, "#### 46 #### 45", "{\"solution\": \"46\"}", 0);
    expect (r, "46", "{\"solution\": \"46\"}", 0);
    expect (r, "####\n46", "{\"solution\": \"46\"}", 0);
    expect (r, "#####46", "{\"solution\": 46}", 1);
    train_reward_close (r);
}

static void test_regex (void **state)
{
    train_reward_options_t o = {.size = sizeof (o),
                                .kind = TRAIN_REWARD_REGEX,
                                .pattern = "<a>([0-9]+)</a>$"};
    train_reward_t *r = open_reward (&o);

    (void)state;
    expect (r, "it is <a>46</a>", "{}", 1);
    expect (r, "it is <a>46</a>.", "{}", 0);
    expect (r, "<a>x</a>", "{}", 0);
    train_reward_close (r);
    o.field = "answer";
    r = open_reward (&o);
    expect (r, "<a>46</a>", "{\"answer\": 46}", 1);
    expect (r, "<a>45</a>", "{\"answer\": 46}", 0);
    expect (r, "46", "{\"answer\": 46}", 0);
    expect (r, "<a>46</a>", "{}", NAN);
    train_reward_close (r);
    o.pattern = "(x)|y"; /* a group that has no part in the match */
    r = open_reward (&o);
    expect (r, "y", "{\"answer\": \"\"}", 0);
    train_reward_close (r);
}

static void test_length (void **state)
{
    train_reward_options_t o = {
        .size = sizeof (o), .kind = TRAIN_REWARD_LENGTH, .min = 2, .max = 4};
    train_reward_t *r = open_reward (&o);

    (void)state;
    expect (r, "a", "{}", 0);
    expect (r, "ab", "{}", 1);
    expect (r, "\xc3\xa4\xc3\xb6\xc3\xbc\xe2\x82\xac", "{}", 1);
    expect (r, "abcde", "{}", 0);
    train_reward_close (r);
    o.soft = 4;
    r = open_reward (&o);
    expect (r, "", "{}", 0.5f);
    expect (r, "abcde", "{}", 0.75f);
    expect (r, "abcdefg", "{}", 0.25f);
    expect (r, "abcdefgh", "{}", 0);
    expect (r, "abcdefghijk", "{}", 0);
    train_reward_close (r);
}

/* A model may write a byte 0, and what is behind it counts. */
static void test_bytes (void **state)
{
    train_reward_options_t o = {.size = sizeof (o)};
    train_reward_t *r = open_reward (&o);
    train_sample_t s = {.completion = "46\0"
                                      "7",
                        .completion_size = 4,
                        .row = "{\"answer\": 46}"};
    float reward;

    (void)state;
    assert_int_equal (train_reward_score (r, &s, 1, &reward, NULL), 0);
    assert_true (reward == 0);
    s.completion_size = 2;
    assert_int_equal (train_reward_score (r, &s, 1, &reward, NULL), 0);
    assert_true (reward == 1);
    expect (r, "\xff", "{\"answer\": \"\xef\xbf\xbd\"}", 1);
    train_reward_close (r);
}

static void test_refused (void **state)
{
    train_reward_options_t o = {.size = sizeof (o), .name = "fmt"};
    train_sample_t s[2] = {{.completion = "x", .row = "{}"},
                           {.completion = "x", .row = "[1]"}};
    train_error_t err = {0};
    float reward[2] = {5, 6};
    train_reward_t *r;

    (void)state;
    o.marker = "";
    expect_refused (&o, "fmt: marker is empty");
    o = (train_reward_options_t){.size = sizeof (o),
                                 .kind = TRAIN_REWARD_REGEX};
    expect_refused (&o, "pattern is not set");
    o.pattern = "(";
    expect_refused (&o, "pattern '('");
    o.pattern = "a";
    o.field = "answer";
    expect_refused (&o, "no group");
    o = (train_reward_options_t){.size = sizeof (o),
                                 .kind = TRAIN_REWARD_LENGTH};
    expect_refused (&o, "neither min nor max");
    o.min = 3;
    o.max = 2;
    expect_refused (&o, "min 3, max 2");
    o.kind = (train_reward_kind_t)99;
    expect_refused (&o, "kind 99");
    o = (train_reward_options_t){.size = sizeof (o)};
    r = open_reward (&o);
    assert_int_equal (train_reward_score (r, s, 2, reward, &err), TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "sample 1: is no JSON object"));
    assert_true (reward[0] == 5 && reward[1] == 6);
    train_reward_close (r);
}

/* Nothing is started before there is a sample; what cannot be is told before. */
static void test_later (void **state)
{
    train_reward_options_t o = {
        .size = sizeof (o),
        .name = "judge",
        .kind = TRAIN_REWARD_PROGRAM,
        .program =
            "sh -c 'read x; echo \"{\\\"id\\\":0,\\\"reward\\\":0.5}\"; cat'",
        .later = true};
    static const char *const none[] = {"/nowhere/score", "no-such-judge", "''"};
    static const char *const bad[] = {"/tmp", "/proc/version"};
    train_sample_t s = {.completion = "46"};
    train_reward_report_t report = {.size = sizeof (report)};
    train_reward_t *r = NULL;
    train_error_t err = {0};
    float got = 0;

    (void)state;
    assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_OK);
    assert_int_equal (train_reward_report (r, &report, &err), TRAIN_OK);
    assert_int_equal (report.started, 0);
    assert_int_equal (waitpid (-1, NULL, WNOHANG), -1);
    assert_int_equal (train_reward_score (r, &s, 1, &got, &err), TRAIN_OK);
    assert_true (got == 0.5F);
    train_reward_close (r);
    r = NULL;
    for (size_t i = 0; i < sizeof (none) / sizeof (*none); i++) {
        o.program = none[i];
        assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_ENOTFOUND);
        assert_non_null (strstr (err.text, "judge: cannot start '"));
    }
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        o.program = bad[i];
        assert_int_equal (train_reward_open (&o, &r, &err), TRAIN_EIO);
    }
    assert_null (r);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_exact), cmocka_unit_test (test_marker),
        cmocka_unit_test (test_regex), cmocka_unit_test (test_length),
        cmocka_unit_test (test_bytes), cmocka_unit_test (test_refused),
        cmocka_unit_test (test_later),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
