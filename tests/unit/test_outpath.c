/* SPDX-License-Identifier: Apache-2.0
 * test_outpath.c - the words of rv run --output */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/outpath.h"

static void refuses (void **state)
{
    static const struct {
        const char *list, *says;
    } v[] = {
        {"", "empty"},           {"a,", "empty"},
        {",a", "empty"},         {"a,,b", "empty"},
        {"/etc", "below"},       {"~/x", "below"},
        {"//", "below"},         {"..", "leads out"},
        {"../a", "leads out"},   {"a/..", "leads out"},
        {"a/../b", "leads out"}, {"a/b/../../..", "leads out"},
        {"./..", "leads out"},   {"a,b/../../c", "leads out"},
        {"**", "whole"},         {"a/**/b", "whole"},
    };
    char **list = NULL, name[300];
    size_t n = 0;

    (void)state;
    assert_int_equal (outpath_parse ("keep", &list, &n, NULL), RV_OK);
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct rv_error err = {0};

        if (outpath_parse (v[i].list, &list, &n, &err) != RV_EINVAL
            || !strstr (err.text, v[i].says))
            fail_msg ("'%s': %s", v[i].list, err.text);
        assert_int_equal (n, 1);
        assert_null (list[1]);
    }
    memset (name, 'x', sizeof (name) - 1);
    name[sizeof (name) - 1] = '\0';
    assert_int_equal (outpath_parse (name, &list, &n, NULL), RV_EINVAL);
    assert_string_equal (list[0], "keep");
    outpath_free (list);
    outpath_free (NULL);
}

static void cleans (void **state)
{
    static const struct {
        const char *in, *out;
    } v[] = {
        {"a", "a"},
        {"./a", "a"},
        {"a/", "a"},
        {"a//b///", "a/b"},
        {".", "."},
        {"./", "."},
        {"././.", "."},
        {"..a", "..a"},
        {"a..", "a.."},
        {"...", "..."},
        {"a/.../b", "a/.../b"},
        {"*", "*"},
        {"a b\n", "a b\n"},
        {"~", "~"},
        {"\xff", "\xff"},
        {".git", ".git"},
        {"a/./b", "a/b"},
        {"-x", "-x"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char **list = NULL;
        size_t n = 0;

        assert_int_equal (outpath_parse (v[i].in, &list, &n, NULL), RV_OK);
        assert_int_equal (n, 1);
        assert_string_equal (list[0], v[i].out);
        assert_int_equal (outpath_parse ("x,y/z", &list, &n, NULL), RV_OK);
        assert_int_equal (n, 3);
        assert_string_equal (list[2], "y/z");
        assert_null (list[3]);
        outpath_free (list);
    }
}

static void matches (void **state)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } v[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a/b", "a", true},
        {"a/b", "a/b", false},
        {"*", "a", true},
        {"*", ".a", false},
        {".*", ".a", true},
        {"*.csv", "x.csv", true},
        {"*.csv", "x.csv.gz", false},
        {"?", "\n", true},
        {"[a-c]1/x", "b1", true},
        {"[!a]", "a", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"[", "[", true},
        {"", "", true},
    };
    char name[300];

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        if (outpath_match (v[i].pattern, v[i].name) != v[i].match)
            fail_msg ("'%s' and '%s'", v[i].pattern, v[i].name);
    memset (name, 'x', sizeof (name) - 1);
    name[sizeof (name) - 1] = '\0';
    assert_false (outpath_match (name, name));
    assert_string_equal (outpath_rest ("a/b/c"), "b/c");
    assert_null (outpath_rest ("a"));
}

static void below (void **state)
{
    static const struct {
        const char *prefix, *path, *out;
    } v[] = {
        {"", "a", "a"},
        {"", "", ""},
        {"", ".", ""},
        {"p", "a", "p/a"},
        {"p", "../a", "a"},
        {"p/q", "../../a/./b/", "a/b"},
        {"p", "..", ""},
        {"p", "../..", NULL},
        {"", "..", NULL},
        {"", "a/../..", NULL},
        {"p", "/etc", NULL},
        {"", "../p/a", NULL},
        {"p", "../../p/a", NULL},
        {"p", "a/../b", "p/b"},
        {"p..", "..x", "p../..x"},
        {"p", "//a", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        char *got = outpath_below (v[i].prefix, v[i].path);

        if (!got != !v[i].out || (got && strcmp (got, v[i].out)))
            fail_msg ("'%s' '%s': '%s'", v[i].prefix, v[i].path,
                      got ? got : "NULL");
        free (got);
    }
}

/* Words of the parts that matter, thousands of them: what is accepted never
 * leads out, and is clean; what is refused leaves the list. */
static void never_out (void **state)
{
    static const char *const part[] = {"..", ".", "/", "a",  "*",  ",",
                                       "~",  "[", "]", "\\", "..a"};
    uint32_t seed = 12345;

    (void)state;
    for (int i = 0; i < 50000; i++) {
        char word[64] = "", **list = NULL;
        size_t n = 0;

        for (int k = 0; k < 8; k++) {
            seed = seed * 1664525 + 1013904223;
            strncat (word, part[(seed >> 16) % 11], 4);
        }
        if (outpath_parse (word, &list, &n, NULL) != RV_OK) {
            assert_int_equal (n, 0);
            free (list);
            continue;
        }
        for (size_t k = 0; k < n; k++) {
            assert_true (list[k][0] && list[k][0] != '/');
            for (const char *p = list[k]; p; p = outpath_rest (p)) {
                assert_true (*p && *p != '/');
                assert_false (!strncmp (p, "..", 2) && (!p[2] || p[2] == '/'));
            }
        }
        outpath_free (list);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refuses),   cmocka_unit_test (cleans),
        cmocka_unit_test (matches),   cmocka_unit_test (below),
        cmocka_unit_test (never_out),
    };

    cmocka_set_message_output (CM_OUTPUT_TAP);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
