/* SPDX-License-Identifier: Apache-2.0
 * test_envfile.c - NAME=VALUE text: what is read, refused and written */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plan/envfile.h"

static int parse (const char *text, struct envfile *env, struct rv_error *err)
{
    return envfile_parse (text, strlen (text), "f", env, err);
}

static const struct {
    const char *text, *where;
} bad[] = {
    {"A", "f:1: "},
    {"A =b", "f:1: "},
    {"=b", "f:1: "},
    {"1A=b", "f:1: "},
    {"\xef\xbb\xbf"
     "A=b",
     "f:1: "},
    {"A-B=c", "f:1: "},
    {"export A", "f:1: "},
    {"A=b\nA=c", "f:2: 'A' stands twice"},
    {"\n\nA=\"b", "f:3: "},
    {"A='b\n\n", "f:1: "},
    {"A=\"b\" c", "f:1: "},
    {"A='b'c", "f:1: "},
    {"A=b # c", "f:1: "},
    {"A=#c", "f:1: "},
    {"A=b\\n", "f:1: "},
    {"A=it's", "f:1: "},
    {"A=\"\n\\q\"", "f:2: "},
    {"A=\"\\", "f:1: "},
    {"B=1\nSLURM_CONF=x", "f:2: 'SLURM_CONF'"},
    {"RV_X=1", "f:1: 'RV_X'"},
    {"PMIX_RANK=1", "f:1: "},
    {"RANK=1", "f:1: 'RANK'"},
    {"CUDA_VISIBLE_DEVICES=", "f:1: "},
};

static void refused (void **state)
{
    struct envfile env = {0};

    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        struct rv_error err = {0};

        if (!parse (bad[i].text, &env, &err)
            || strncmp (err.text, bad[i].where, strlen (bad[i].where)))
            fail_msg ("'%s': '%s'", bad[i].text, err.text);
        assert_int_equal (parse (bad[i].text, &env, NULL), err.code);
        assert_null (env.var);
    }
    assert_int_equal (envfile_parse ("A=b\0", 4, "f", &env, NULL), RV_EFORMAT);
    (void)state;
}

static const struct {
    const char *text, *value; /* of A */
} good[] = {
    {"A=", ""},
    {"A=\"\"", ""},
    {"A=''", ""},
    {"A=b", "b"},
    {"  export \t A= b c \r\nB=x", "b c"},
    {"export=1\nA=2", "2"},
    {"# A=1\n\nA=a#b,c=d;$(e)`f`${g}", "a#b,c=d;$(e)`f`${g}"},
    {"A='a\nb\\n\"$(x)' # c", "a\nb\\n\"$(x)"},
    {"A=\"a\nb'\\n\\r\\t\\\"\\\\\\$\\`$(x)\"", "a\nb'\n\r\t\"\\$`$(x)"},
    {"B='\n\n'\nA=\xff\xfe", "\xff\xfe"},
    {"RANKS=1\nA=1", "1"},
};

static void read_as_meant (void **state)
{
    for (size_t i = 0; i < sizeof (good) / sizeof (good[0]); i++) {
        struct rv_error err = {0};
        struct envfile env = {0};

        if (parse (good[i].text, &env, &err))
            fail_msg ("'%s': %s", good[i].text, err.text);
        assert_string_equal (envfile_find (&env, "A"), good[i].value);
        envfile_fini (&env);
    }
    (void)state;
}

/* Each byte but NUL, alone and between others, comes back. */
static void any_byte (void **state)
{
    for (int c = 1; c < 256; c++) {
        char value[] = {(char)c, 'x', (char)c, (char)c, '\0'};
        struct envfile env = {0}, again = {0};
        size_t len = 0;
        char *text;

        assert_int_equal (envfile_set (&env, "A", value, NULL), 0);
        assert_int_equal (envfile_set (&env, "B", "", NULL), 0);
        text = envfile_format (&env, &len);
        assert_int_equal (envfile_parse (text, len, "f", &again, NULL), 0);
        assert_int_equal (again.n, 2);
        assert_string_equal (envfile_find (&again, "A"), value);
        assert_string_equal (envfile_find (&again, "B"), "");
        envfile_wipe (text, len);
        envfile_fini (&env);
        envfile_fini (&again);
    }
    (void)state;
}

static void change (void **state)
{
    struct envfile env = {0};

    assert_int_equal (envfile_unset (&env, "A", NULL), RV_ENOTFOUND);
    assert_int_equal (envfile_set (&env, "", "x", NULL), RV_EINVAL);
    assert_int_equal (envfile_set (&env, "A=B", "x", NULL), RV_EINVAL);
    assert_int_equal (envfile_set (&env, "A", "1", NULL), 0);
    assert_int_equal (envfile_set (&env, "B", "2", NULL), 0);
    assert_int_equal (envfile_set (&env, "C", "3", NULL), 0);
    assert_int_equal (envfile_set (&env, "A", "4", NULL), 0);
    assert_int_equal (env.n, 3);
    assert_string_equal (env.var[0].value, "4");
    assert_int_equal (envfile_unset (&env, "B", NULL), 0);
    assert_int_equal (env.n, 2);
    assert_null (envfile_find (&env, "B"));
    assert_string_equal (envfile_find (&env, "C"), "3");
    envfile_fini (&env);
    envfile_fini (NULL);
    (void)state;
}

/* execve(2) takes no longer pair: refused here, not in the job. */
static void too_long (void **state)
{
    size_t max = ENVFILE_PAIR_MAX - 3; /* "A=" and the NUL */
    char *value = malloc (max + 2);
    struct envfile env = {0};

    assert_non_null (value);
    memset (value, 'x', max + 1);
    value[max + 1] = '\0';
    assert_int_equal (envfile_set (&env, "A", "old", NULL), 0);
    assert_int_equal (envfile_set (&env, "A", value, NULL), RV_EINVAL);
    assert_string_equal (envfile_find (&env, "A"), "old");
    value[max] = '\0';
    assert_int_equal (envfile_set (&env, "A", value, NULL), 0);
    free (value);
    envfile_fini (&env);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),  cmocka_unit_test (read_as_meant),
        cmocka_unit_test (any_byte), cmocka_unit_test (change),
        cmocka_unit_test (too_long),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
