/* SPDX-License-Identifier: Apache-2.0
 * test_hostlist.c - node lists, both good and malformed */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "plan/hostlist.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void bad_arguments (void **state)
{
    struct hostlist list = {.n = 3};
    struct rv_error err = {0};

    assert_int_equal (hostlist_parse ("a", NULL, &err), RV_EINVAL);
    assert_int_equal (hostlist_parse (NULL, &list, &err), RV_EINVAL);
    assert_int_equal (list.n, 0);
    assert_int_equal (hostlist_parse ("", &list, NULL), RV_EINVAL);
    hostlist_fini (NULL);
    hostlist_fini (&list);
    (void)state;
}

static void finds (void **state)
{
    static const struct {
        const char *word;
        size_t at;
    } v[] = {
        {"n3", 0},  {"1", 2},  {"n2", 3},
        {"0", 0},   {"3", 3},  {"2", 1}, /* a name goes before an index */
        {"4", 4},   {"-1", 4}, {"", 4},
        {" 1", 4},  {"1x", 4}, {"n", 4},
        {"n33", 4}, {"+0", 4}, {"99999999999999999999", 4},
    };
    struct hostlist list;

    assert_int_equal (hostlist_parse ("n3,2,1,n2", &list, NULL), 0);
    for (size_t i = 0; i < LENGTH (v); i++)
        assert_int_equal (hostlist_find (&list, v[i].word), v[i].at);
    hostlist_fini (&list);
    assert_int_equal (hostlist_find (&list, "0"), 0); /* none */
    (void)state;
}

/* The hosts with one space between them. */
static char *joined (const struct hostlist *list)
{
    size_t size = 1;
    char *out, *p;

    for (size_t i = 0; i < list->n; i++)
        size += strlen (list->host[i]) + 1;
    p = out = malloc (size);
    for (size_t i = 0; i < list->n; i++) {
        p = stpcpy (p, list->host[i]);
        *p++ = ' ';
    }
    p[list->n ? -1 : 0] = '\0';
    return out;
}

/* Each row is what slurm_hostlist_create of Slurm 22.05 gives too, but for the
 * one with a suffix, which newer releases take. */
static void expands (void **state)
{
    static const char *const v[][2] = {
        {"n1", "n1"},
        {"n[1-3]", "n1 n2 n3"},
        {"n[1-3,05],gpu-a1", "n1 n2 n3 n05 gpu-a1"},
        {"n[01-10]", "n01 n02 n03 n04 n05 n06 n07 n08 n09 n10"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[099-101]", "n099 n100 n101"},
        {"n[9-011]", "n9 n10 n11"},
        {"n[001,02,3]", "n001 n02 n3"},
        {"n[3,1,2]", "n3 n1 n2"},
        {"n[1,1],n1", "n1 n1 n1"},
        {"x[1-2]y[3-4]", "x1y3 x1y4 x2y3 x2y4"},
        {"n[1-2][3-4]", "n13 n14 n23 n24"},
        {"n[01-02]m[3,1]", "n01m3 n01m1 n02m3 n02m1"},
        {"[1-3]", "1 2 3"},
        {"a,b_c,d.e-f", "a b_c d.e-f"},
        {"n[1-2]-ib.x", "n1-ib.x n2-ib.x"},
        {"n[0-0]", "n0"},
        {"n[999999999999999999]", "n999999999999999999"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct hostlist list;
        char *got;

        if (hostlist_parse (v[i][0], &list, &err) != 0)
            fail_msg ("%s", err.text);
        got = joined (&list);
        assert_string_equal (got, v[i][1]);
        free (got);
        hostlist_fini (&list);
        assert_null (list.host);
    }
    (void)state;
}

static void refuses (void **state)
{
    static const struct {
        const char *text, *position;
    } v[] = {
        {",", "position 1"},
        {"a,", "position 3"},
        {"a,,b", "position 3"},
        {"a b", "position 2"},
        {"n[", "position 3"},
        {"n[1", "position 4"},
        {"n[1-2", "position 6"},
        {"n]", "position 2"},
        {"n[]", "position 3"},
        {"n[1-]", "position 5"},
        {"n[-1]", "position 3"},
        {"n[1,]", "position 5"},
        {"n[1,,2]", "position 5"},
        {"n[5-3]", "position 3"},
        {"n[a-c]", "position 3"},
        {"n[1-2-3]", "position 6"},
        {"n[1 ]", "position 4"},
        {"n[1[2]]", "position 4"},
        {"n[1-2]]", "position 7"},
        {"(null)", "position 1"},
        {"n1;rm", "position 3"},
        {"n\n", "position 2"},
        {"n[1-70000]", "position 11"},
        {"n[1-65536],m", "position 13"},
        {"n[1-300][1-300]", "position 16"},
        {"n[1-2][5-3]", "position 8"},
        {"n[1234567890123456789]", "position 21"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct hostlist list = {.n = 1};

        if (hostlist_parse (v[i].text, &list, &err) != RV_EINVAL)
            fail_msg ("'%s' was taken", v[i].text);
        if (!strstr (err.text, v[i].position))
            fail_msg ("%s", err.text);
        assert_int_equal (list.n, 0);
        assert_null (list.host);
        assert_int_equal (hostlist_parse (v[i].text, &list, NULL), RV_EINVAL);
    }
    (void)state;
}

static void limits (void **state)
{
    struct hostlist list;
    char text[300], name[260];

    assert_int_equal (hostlist_parse ("n[0-65535]", &list, NULL), 0);
    assert_int_equal (list.n, HOSTLIST_MAX);
    assert_string_equal (list.host[65535], "n65535");
    hostlist_fini (&list);

    memset (name, 'n', sizeof (name));
    name[255] = '\0';
    assert_int_equal (hostlist_parse (name, &list, NULL), 0);
    hostlist_fini (&list);
    name[255] = 'n';
    name[256] = '\0';
    assert_int_equal (hostlist_parse (name, &list, NULL), RV_EINVAL);

    memset (text, 'n', 254);
    strncpy (text + 254, "[9-10]", sizeof (text) - 254);
    assert_int_equal (hostlist_parse (text, &list, NULL), RV_EINVAL);
    memcpy (text + 254, "[8-9]", 6);
    assert_int_equal (hostlist_parse (text, &list, NULL), 0);
    assert_int_equal (list.n, 2);
    hostlist_fini (&list);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (finds),
        cmocka_unit_test (expands),       cmocka_unit_test (refuses),
        cmocka_unit_test (limits),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
