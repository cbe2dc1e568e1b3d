/* SPDX-License-Identifier: Apache-2.0
 * test_mig.c - profiles of MIG slices: refused ones first */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plan/mig.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void malformed (void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"4", "'4' is not a MIG profile; write 1g.10gb or 1g.10gb:4"},
        {"a100", "'a100' is not a MIG profile"},
        {"a100:2", "'a100' is not a MIG profile"},
        {":2", "no profile"},
        {"1g.10gb:", "'' is no number of slices"},
        {"1g.10gb:0", "'0' is no number of slices from 1 to 1000000"},
        {"1g.10gb:-1", "'-1' is no number"},
        {"1g.10gb:2x", "'2x' is no number"},
        {"1g.10gb:1:1", "'1:1' is no number"},
        {"1g.10gb:1000001", "is no number"},
        {"gpu:1g.10gb", "'gpu' is not a MIG profile"},
        {" 1g.10gb", "is not a MIG profile"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa_1g.10gb",
         "no profile"},
    };

    (void)state;
    assert_int_equal (mig_parse ("1g.10gb", NULL, NULL), RV_EINVAL);
    for (size_t i = 0; i < LENGTH (bad); i++) {
        struct mig_request req = {.count = 77};
        struct rv_error err = {0};

        assert_int_equal (mig_parse (bad[i].text, &req, &err), RV_EINVAL);
        if (!strstr (err.text, bad[i].says))
            fail_msg ("'%s': '%s' lacks '%s'", bad[i].text, err.text,
                      bad[i].says);
        assert_int_equal (req.count, 77);
        assert_int_equal (mig_parse (bad[i].text, &req, NULL), RV_EINVAL);
    }
}

static void parsed (void **state)
{
    static const struct {
        const char *text, *profile;
        uint32_t count;
    } good[] = {
        {NULL, "", 1},
        {"", "", 1},
        {"1g.10gb", "1g.10gb", 1},
        {"1G.10GB:7", "1G.10GB", 7},
        {"a100_1g.10gb:2", "a100_1g.10gb", 2},
        {"nvidia_a100-sxm4-80gb_1c.3g.40gb", "nvidia_a100-sxm4-80gb_1c.3g.40gb",
         1},
        {"1g.10gb+me:1000000", "1g.10gb+me", 1000000},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH (good); i++) {
        struct mig_request req;

        assert_int_equal (mig_parse (good[i].text, &req, NULL), RV_OK);
        assert_string_equal (req.profile, good[i].profile);
        assert_int_equal (req.count, good[i].count);
    }
}

static void profiles (void **state)
{
    (void)state;
    assert_null (mig_profile (NULL));
    assert_null (mig_profile ("a100"));
    assert_null (mig_profile ("1g.10gb_a100"));
    assert_string_equal (mig_profile ("1g.10gb"), "1g.10gb");
    assert_string_equal (mig_profile ("nvidia_a100_1c.3g.20gb"), "1c.3g.20gb");
}

static void matches (void **state)
{
    static const struct {
        const char *want, *have;
        bool yes;
    } pair[] = {
        {"1g.10gb", "1g.10gb", true},
        {"1G.10Gb", "nvidia_a100_1g.10gb", true},
        {"a100_1g.10gb", "1g.10gb", true},
        {"a100_1g.10gb", "nvidia_a100_1g.10gb", true},
        {"nvidia_a100_1g.10gb", "a100_1g.10gb", true},
        {"A100_1g.10gb", "nvidia_a100-sxm4-80gb_1g.10gb", true},
        {"a100_1g.10gb", "h100_1g.10gb", false},
        {"a10_1g.10gb", "a100_1g.10gb", false},
        {"1g.10gb", "1g.5gb", false},
        {"1g.10gb", "1g.10gb+me", false},
        {"3g.20gb", "1c.3g.20gb", false},
        {"1g.10gb", "a100", false},
        {"a100", "a100_1g.10gb", false},
        {"", "1g.10gb", false},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH (pair); i++)
        if (mig_match (pair[i].want, pair[i].have) != pair[i].yes)
            fail_msg ("'%s' and '%s'", pair[i].want, pair[i].have);
}

static const struct node_offer cluster[] = {
    {"gpu:a100:2,gpu:nvidia_a100_1g.10gb:7(S:0)", 3},
    {"gpu:nvidia_a100_1g.10gb:2,gpu:nvidia_a100_3g.40gb:1", 2},
    {"gpu:h100_1g.10gb:4", 1},
    {"gpu:a100:8", 9},
    {NULL, 1},
};

static int resolve (const char *text, const struct mig_rule *rules, size_t n,
                    struct mig_choice *ret, struct rv_error *err)
{
    struct mig_request req;

    assert_int_equal (mig_parse (text, &req, NULL), RV_OK);
    return mig_resolve (&req, cluster, LENGTH (cluster), rules, n, ret, err);
}

static void resolved (void **state)
{
    static const struct mig_rule rules[] = {
        {"7g.80gb", "", 1, NULL},
        {"3g.40gb", "", 2, "mig"},
        {"1g.10gb", "h100_1g.10gb", -1, NULL},
    };
    static const struct {
        const char *text, *type;
        uint64_t total;
        uint32_t per_node;
        int rule, n_rules;
    } good[] = {
        {"a100_1g.10gb:25", "nvidia_a100_1g.10gb", 25, 7, -1, 0},
        {"NVIDIA_A100_1G.10GB", "nvidia_a100_1g.10gb", 25, 7, -1, 3},
        {"h100_1g.10gb:4", "h100_1g.10gb", 4, 4, 2, 3},
        {"3g.40gb:2", "nvidia_a100_3g.40gb", 2, 1, 1, 3},
        {"", "nvidia_a100_3g.40gb", 2, 1, 1, 3},
        {"1g.10gb", "h100_1g.10gb", 4, 4, 2, 3},
    };

    (void)state;
    for (size_t i = 0; i < LENGTH (good); i++) {
        struct mig_choice c = {0};
        struct rv_error err = {0};

        if (resolve (good[i].text, rules, (size_t)good[i].n_rules, &c, &err))
            fail_msg ("'%s': %s", good[i].text, err.text);
        assert_string_equal (c.type, good[i].type);
        assert_int_equal (c.total, good[i].total);
        assert_int_equal (c.per_node, good[i].per_node);
        assert_ptr_equal (c.rule,
                          good[i].rule < 0 ? NULL : &rules[good[i].rule]);
    }
}

static void refused (void **state)
{
    static const struct mig_rule rules[] = {{"3g.40gb", "", 1, NULL}};
    static const struct {
        const char *text;
        int code, n_rules;
        const char *says;
    } bad[] = {
        {"1g.11gb", RV_ENOTFOUND, 0,
         "no slices of profile '1g.11gb'; the cluster has nvidia_a100_1g.10gb, "
         "h100_1g.10gb, "
         "nvidia_a100_3g.40gb"},
        {"1g.10gb", RV_EINVAL, 0,
         "'1g.10gb' fits several types of slices; name one of"},
        {"", RV_EINVAL, 0, "rv.conf names no profile that the nodes have"},
        {"3g.40gb:3", RV_EINVAL, 0,
         "3 slices of type nvidia_a100_3g.40gb are more than there are; the "
         "cluster has 2"},
        {"3g.40gb:2", RV_EINVAL, 1, "more than the 1 that the site allows"},
    };
    struct mig_choice c = {.total = 77};
    struct mig_request req = {"1g.10gb", 1};
    struct rv_error err = {0};

    (void)state;
    for (size_t i = 0; i < LENGTH (bad); i++) {
        assert_int_equal (
            resolve (bad[i].text, rules, (size_t)bad[i].n_rules, &c, &err),
            bad[i].code);
        if (!strstr (err.text, bad[i].says))
            fail_msg ("'%s': '%s'", bad[i].text, err.text);
        assert_int_equal (c.total, 77);
    }
    assert_int_equal (mig_resolve (&req, NULL, 0, NULL, 0, &c, &err),
                      RV_ENOTFOUND);
    assert_string_equal (err.text, "the cluster has no MIG slices; ask for "
                                   "whole GPUs instead");
    assert_int_equal (mig_resolve (NULL, NULL, 0, NULL, 0, &c, NULL),
                      RV_EINVAL);
    assert_int_equal (mig_resolve (&req, NULL, 1, NULL, 0, &c, NULL),
                      RV_EINVAL);
    req.count = 0;
    assert_int_equal (mig_resolve (&req, cluster, 1, NULL, 0, &c, NULL),
                      RV_EINVAL);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (malformed), cmocka_unit_test (parsed),
        cmocka_unit_test (profiles),  cmocka_unit_test (matches),
        cmocka_unit_test (resolved),  cmocka_unit_test (refused),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
