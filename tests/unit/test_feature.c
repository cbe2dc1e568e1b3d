/* SPDX-License-Identifier: Apache-2.0
 * test_feature.c - node features and sbatch -C over them */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/feature.h"

static void nothing_is_no_wish (void **state)
{
    (void)state;
    assert_true (feature_match (NULL, NULL));
    assert_true (feature_match ("", "a"));
    assert_false (feature_match ("a", NULL));
    assert_false (feature_match ("a", ""));
    assert_false (feature_list_has (NULL, "a", 1));
    assert_false (feature_list_has ("a", "a", 0));
    assert_false (feature_is_word (NULL));
    assert_false (feature_is_word (""));
}

static const struct {
    const char *expr, *features;
    bool match;
} vectors[] = {
    {"a", "a", true},
    {"a", "b,a", true},
    {"a", "ab,ba", false},
    {"A", "a", false},
    {"a&b", "a,b", true},
    {"a&b", "a", false},
    {"a,b", "b", false},
    {"a,b", "b,a", true},
    {"a|b", "b", true},
    {"a|b", "c", false},
    {"[a|b]", "b", true},
    {"[a|b]", "c", false},
    {"[a|b]&c", "a", false},
    {"[a|b]&c", "c,a", true},
    {"(a|b)&c", "c", false},
    {"c&(a|b)", "c,b", true},
    /* and before or */
    {"a&b|c", "c", true},
    {"c|a&b", "a", false},
    {"c|a&b", "b,a", true},
    /* a number of nodes is not asked of each */
    {"a*2", "b", true},
    {"[a*2&b*1]", "c", true},
    {"a*2&b", "c", false},
    /* not for us to judge */
    {"a&", "b", true},
    {"[a", "b", true},
    {"a]", "b", true},
    {"((((((((((a))))))))))", "b", true},
    {"|", "b", true},
};

static void expressions (void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof (vectors) / sizeof (vectors[0]); i++)
        if (feature_match (vectors[i].expr, vectors[i].features)
            != vectors[i].match)
            fail_msg ("%s over %s", vectors[i].expr, vectors[i].features);
}

static void words (void **state)
{
    (void)state;
    assert_true (feature_is_word ("a100-80"));
    assert_false (feature_is_word ("a|b"));
    assert_false (feature_is_word ("[a]"));
    assert_false (feature_is_word ("a*2"));
    assert_true (feature_list_has ("gpu,big", "big", 3));
    assert_false (feature_list_has ("gpu,bigger", "big", 3));
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (nothing_is_no_wish),
        cmocka_unit_test (expressions),
        cmocka_unit_test (words),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
