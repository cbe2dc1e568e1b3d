/* SPDX-License-Identifier: Apache-2.0
 * test_gres.c - gres text of nodes, jobs and TRES */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plan/gres.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void bad_arguments (void **state)
{
    struct gres_list list = {.n = 3};
    struct rv_error err = {0};

    assert_int_equal (gres_parse ("gpu:1", NULL, &err), RV_EINVAL);
    assert_int_equal (gres_parse (NULL, &list, &err), RV_EINVAL);
    assert_int_equal (list.n, 0);
    assert_int_equal (gres_count (NULL, "a100"), 0);
    assert_int_equal (gres_count (&list, NULL), 0);
    assert_false (gres_is_mig (NULL));
    gres_fini (NULL);
    gres_fini (&list);
    (void)state;
}

static void reads (void **state)
{
    static const struct {
        const char *text;
        size_t n;
        struct gres_entry entry[3];
    } v[] = {
        {"", 0, {{"", "", 0}}},
        {"(null)", 0, {{"", "", 0}}},
        {"none", 0, {{"", "", 0}}},
        {"gpu", 1, {{"gpu", "", 1}}},
        {"gpu:4", 1, {{"gpu", "", 4}}},
        {"gpu:3090:2", 1, {{"gpu", "3090", 2}}},
        {"gpu:0", 1, {{"gpu", "", 0}}},
        {"gpu:a100", 1, {{"gpu", "a100", 1}}},
        {"gpu:a100:4(S:0-1)", 1, {{"gpu", "a100", 4}}},
        {"gpu:a100:2,gpu:1g.10gb:4",
         2,
         {{"gpu", "a100", 2}, {"gpu", "1g.10gb", 4}}},
        {"gres/gpu=4", 1, {{"gpu", "", 4}}},
        {"gres/gpu:a100=2", 1, {{"gpu", "a100", 2}}},
        {"gres:gpu:a100:2", 1, {{"gpu", "a100", 2}}},
        {"gpu:a100:2(IDX:0-1)", 1, {{"gpu", "a100", 2}}},
        {"gpu:a100:2(IDX:0,3),gpu:h100:1(IDX:4)",
         2,
         {{"gpu", "a100", 2}, {"gpu", "h100", 1}}},
        {"gpu:a100:0(IDX:N/A)", 1, {{"gpu", "a100", 0}}},
        {"gpu(S:0)", 1, {{"gpu", "", 1}}},
        {"gpu:2K", 1, {{"gpu", "", 2048}}},
        {"bw:lustre:no_consume:4G", 1, {{"bw", "lustre", 4ULL << 30}}},
        {"license:no_consume", 1, {{"license", "", 1}}},
        {"cpu=8,mem=16G,gres/gpu=4",
         3,
         {{"cpu", "", 8}, {"mem", "", 16ULL << 30}, {"gpu", "", 4}}},
        {"gpu:1g.10gb+me:1", 1, {{"gpu", "1g.10gb+me", 1}}},
        {"gpu:18446744073709551615", 1, {{"gpu", "", UINT64_MAX}}},
        {"gpu:nvidia_a100-sxm4-80gb:8",
         1,
         {{"gpu", "nvidia_a100-sxm4-80gb", 8}}},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct gres_list list;

        if (gres_parse (v[i].text, &list, &err) != 0)
            fail_msg ("%s", err.text);
        if (list.n != v[i].n)
            fail_msg ("'%s' gave %zu entries", v[i].text, list.n);
        for (size_t k = 0; k < list.n; k++) {
            assert_string_equal (list.entry[k].name, v[i].entry[k].name);
            assert_string_equal (list.entry[k].type, v[i].entry[k].type);
            assert_true (list.entry[k].count == v[i].entry[k].count);
        }
        gres_fini (&list);
        assert_null (list.entry);
    }
    (void)state;
}

static void refuses (void **state)
{
    static const char *const v[] = {
        ",",
        "gpu:1,",
        "gpu:1,,gpu:2",
        ":4",
        "gpu:",
        "gpu::4",
        "gpu:4:",
        "gpu:a100:4:5",
        "gpu:a100:b:4",
        "gpu=",
        "gpu=a100",
        "gpu=4:a100",
        "gpu:a 100:4",
        " gpu:4",
        "gpu:-4",
        "gpu:4(S:0",
        "gpu:4S:0)",
        "gpu:4((S:0))",
        "gpu:4(S:0)x",
        "gpu:a100:4(",
        "gres/",
        "gres/gres/gpu:1",
        "gpu:18446744073709551616",
        "gpu:99999999999999999P",
        ("gpu:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:"
         "1"),
        "gpu\n:4",
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};
        struct gres_list list = {.n = 1};

        if (gres_parse (v[i], &list, &err) != RV_EINVAL)
            fail_msg ("'%s' was taken", v[i]);
        assert_non_null (strstr (err.text, "gres '"));
        assert_int_equal (list.n, 0);
        assert_null (list.entry);
    }
    (void)state;
}

static void names_the_entry (void **state)
{
    struct gres_list list;
    struct rv_error err;

    gres_parse ("gpu:a100:2,gpu:b:c:d,gpu:1", &list, &err);
    assert_string_equal (err.text, "gres 'gpu:b:c:d' is malformed; expected "
                                   "text such as gpu:a100:4");
    (void)state;
}

static void mig (void **state)
{
    static const char *const yes[] = {
        "1g.10gb",
        "2G.20GB",
        "a100_1g.10gb",
        "nvidia_a100_1g.10gb",
        "1c.3g.20gb",
        "1g.10gb+me",
        "7g.80gb",
        "1g.12gb+me.all",
        "nvidia_a100-sxm4-80gb_1c.2g.20gb",
    };
    static const char *const no[] = {
        "",
        "a100",
        "1g",
        "1g.10",
        "g.10gb",
        "1g10gb",
        "1g.10gbx",
        "x1g.10gb",
        "1g.10gb+",
        "1c.1g",
        "_",
        "h100-80gb",
        "nvidia_a100-sxm4-80gb",
        "1c.1c.1g.10gb",
    };

    for (size_t i = 0; i < LENGTH (yes); i++) {
        if (!gres_is_mig (yes[i]))
            fail_msg ("'%s' is a profile", yes[i]);
    }
    for (size_t i = 0; i < LENGTH (no); i++) {
        if (gres_is_mig (no[i]))
            fail_msg ("'%s' is no profile", no[i]);
    }
    (void)state;
}

static void counts (void **state)
{
    static const struct {
        const char *type;
        uint64_t want;
    } v[] = {
        {NULL, 7},   {"", 7},     {"a100", 4},    {"A100", 4},
        {"h100", 1}, {"v100", 0}, {"1g.10gb", 9}, {"1G.10GB", 9},
    };
    struct gres_list list;

    assert_int_equal (
        gres_parse ("gpu:a100:4,gpu:1g.10gb:9,gpu:h100:1,gpu:2,shard:a100:50",
                    &list, NULL),
        0);
    for (size_t i = 0; i < LENGTH (v); i++)
        assert_int_equal (gres_count (&list, v[i].type), v[i].want);
    gres_fini (&list);
    gres_parse ("gpu:18446744073709551615,gpu:2", &list, NULL);
    assert_true (gres_count (&list, NULL) == UINT64_MAX);
    gres_fini (&list);
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (reads),
        cmocka_unit_test (refuses),       cmocka_unit_test (names_the_entry),
        cmocka_unit_test (mig),           cmocka_unit_test (counts),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
