/* SPDX-License-Identifier: Apache-2.0
 * test_run_slurm.c - which words of sbatch rv run hands on, and which it keeps */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "run_slurm.h"

static const struct {
    const char *name, *value;
    int code;
    const char *says;
} bad[] = {
    {"clusters", "x", RV_ENOTSUP, "one cluster"},
    {"exclude", "", RV_EINVAL, "--exclude"},
    {"exclude", "a\nb", RV_EINVAL, "--exclude"},
    {"slurm", "", RV_EINVAL, "--slurm"},
    {"slurm", "nice=1", RV_EINVAL, "one option"},
    {"slurm", "-", RV_EINVAL, "one option"},
    {"slurm", "--", RV_EINVAL, "one option"},
    {"slurm", "--=x", RV_EINVAL, "one option"},
    {"slurm", "--nice\n#", RV_EINVAL, "--slurm"},
    {"slurm", "-M", RV_ENOTSUP, "one cluster"},
    {"slurm", "--clusters=x", RV_ENOTSUP, "one cluster"},
    {"slurm", "--clu=x", RV_ENOTSUP, "one cluster"},
    {"slurm", "-N2", RV_EINVAL, "--nodes"},
    {"slurm", "-n", RV_EINVAL, "-g"},
    {"slurm", "--nodes=2", RV_EINVAL, "--nodes"},
    {"slurm", "--nod=2", RV_EINVAL, "--nodes"},
    {"slurm", "--wrap=x", RV_EINVAL, "the command"},
    {"slurm", "--gres=gpu:1", RV_EINVAL, "-g"},
    {"slurm", "--test-only", RV_EINVAL, "--dry-run"},
    {"slurm", "-o/dev/null", RV_EINVAL, "rv logs"},
    {"slurm", "--array=1-2", RV_EINVAL, "--array"},
};

static void refused (void **state)
{
    for (size_t i = 0; i < sizeof (bad) / sizeof (bad[0]); i++) {
        struct rv_error err = {0};
        struct run_slurm s = {0};
        int rc = run_slurm_add (&s, bad[i].name, bad[i].value, &err);

        if (rc != bad[i].code || !strstr (err.text, bad[i].says))
            fail_msg ("--%s=%s gave %d '%s'", bad[i].name, bad[i].value, rc,
                      err.text);
        assert_int_equal (s.n, 0);
    }
    (void)state;
}

static void has_words (const struct run_slurm *s, bool step, const char *mounts,
                       const char *const *want)
{
    char **words = run_slurm_words (s, step, mounts);
    size_t i;

    assert_non_null (words);
    for (i = 0; words[i]; i++) {
        assert_non_null (want[i]);
        assert_string_equal (words[i], want[i]);
        free (words[i]);
    }
    assert_null (want[i]);
    free (words);
}

static void add (struct run_slurm *s, const char *name, const char *value)
{
    assert_int_equal (run_slurm_add (s, name, value, NULL), RV_OK);
}

static void handed_on (void **state)
{
    static const char *const batch[] = {"--exclude=n[1-2],n 3",
                                        "--exclusive",
                                        "--exclusive=user",
                                        "--nice=100",
                                        "-H",
                                        "--hold",
                                        "--mail-type=END",
                                        "--array=0-3%2",
                                        NULL};
    static const char *const none[] = {NULL};
    static const char *const step[] = {"--container-image=a,b:1",
                                       "--no-container-mount-home",
                                       "--container-mounts=/s:/s,/e:/e", NULL};
    static const char *const joined[] = {
        "--container-image=a,b:1", "--no-container-mount-home",
        "--container-mounts=/d:/d:ro,/s:/s,/e:/e", NULL};
    static const char *const mounts = "/s:/s,/e:/e";
    struct run_slurm s = {0};

    has_words (&s, true, mounts, none);
    add (&s, "exclude", "n[1-2],n 3");
    add (&s, "exclusive", NULL);
    add (&s, "exclusive", "user");
    add (&s, "slurm", "--nice=100");
    add (&s, "slurm", "-H");
    add (&s, "slurm", "--hold");
    add (&s, "mail-type", "END");
    assert_false (s.array);
    add (&s, "array", "0-3%2");
    assert_true (s.array);
    add (&s, "constraint", "a|b");
    assert_string_equal (s.constraint, "a|b");
    has_words (&s, true, mounts, none);
    add (&s, "container-image", "a,b:1");
    add (&s, "no-container-mount-home", NULL);
    has_words (&s, false, mounts, batch);
    has_words (&s, true, mounts, step);
    add (&s, "container-mounts", "/d:/d:ro");
    has_words (&s, true, mounts, joined);
    (void)state;
}

static void not_without_end (void **state)
{
    struct run_slurm s = {0};

    for (int i = 0; i < RUN_SLURM_MAX; i++)
        add (&s, "slurm", "--hold");
    assert_int_equal (run_slurm_add (&s, "slurm", "--hold", NULL), RV_EINVAL);
    (void)state;
}

static void constraints (void **state)
{
    static const struct {
        const char *site, *user, *want; /* NULL: refused */
    } v[] = {
        {NULL, NULL, ""},      {"a", NULL, "a"},      {NULL, "a|b", "a|b"},
        {"a", "b&c", "a&b&c"}, {"a|b", "a|b", "a|b"}, {"a|b", "c", NULL},
        {"a", "[b|c]", NULL},  {"a", "b*2", NULL},
    };
    char buf[16];

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        int rc = run_slurm_constraint (v[i].site, v[i].user, buf, sizeof (buf),
                                       NULL);

        assert_int_equal (rc, v[i].want ? RV_OK : RV_EINVAL);
        if (v[i].want)
            assert_string_equal (buf, v[i].want);
    }
    assert_int_equal (
        run_slurm_constraint ("a234567", "b2345678", buf, sizeof (buf), NULL),
        RV_EINVAL);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (handed_on),
        cmocka_unit_test (not_without_end),
        cmocka_unit_test (constraints),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
