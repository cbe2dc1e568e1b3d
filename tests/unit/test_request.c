/* SPDX-License-Identifier: Apache-2.0
 * test_request.c - GPU requests, what a cluster can meet, nearest names */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "plan/request.h"

#define LENGTH(a) (sizeof (a) / sizeof ((a)[0]))

static void bad_arguments (void **state)
{
    struct gpu_request req = {.count = 1};
    struct rv_error err = {0};

    assert_int_equal (request_parse_gpu (NULL, &req, &err), RV_EINVAL);
    assert_int_equal (request_parse_gpu ("1", NULL, &err), RV_EINVAL);
    assert_int_equal (request_check_gpu (NULL, NULL, 0, &err), RV_EINVAL);
    assert_int_equal (request_check_gpu (&req, NULL, 1, &err), RV_EINVAL);
    req.count = 0;
    assert_int_equal (request_check_gpu (&req, NULL, 0, &err), RV_EINVAL);
    assert_null (name_nearest (NULL, (const char *[]){"a"}, 1));
    assert_null (name_nearest ("a", NULL, 1));
    assert_null (name_nearest ("a", (const char *[]){NULL, ""}, 2));
    (void)state;
}

static void parses (void **state)
{
    static const struct {
        const char *text;
        struct gpu_request want;
    } v[] = {
        {"1", {"", 1}},
        {"4", {"", 4}},
        {"a100:4", {"a100", 4}},
        {"1g.10gb:2", {"1g.10gb", 2}},
        {"1g.10gb+me:1", {"1g.10gb+me", 1}},
        {"3090:2", {"3090", 2}},
        {"H100-80_x:1000000", {"H100-80_x", 1000000}},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct gpu_request got = {"x", 9};
        struct rv_error err = {0};

        if (request_parse_gpu (v[i].text, &got, &err) != 0)
            fail_msg ("%s", err.text);
        assert_string_equal (got.type, v[i].want.type);
        assert_int_equal (got.count, v[i].want.count);
    }
    (void)state;
}

static void refuses (void **state)
{
    static const char *const v[][2] = {
        {"", "write 4 or a100:4"},
        {"0", "from 1 to 1000000"},
        {"-1", "from 1"},
        {"1000001", "from 1 to 1000000"},
        {"4x", "write 4x:1"},
        {" 4", "from 1"},
        {"a100", "write a100:1"},
        {"a100:", "the count"},
        {"a100:0", "the count"},
        {"a100:x", "the count"},
        {"a100:4:2", "the count"},
        {":4", "no type"},
        {"a 100:4", "no type"},
        {"a,b:4", "no type"},
        {"gpu:a100:4", "stands alone"},
        {"gpu:4", "stands alone"},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa:1",
         "no type"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct gpu_request got = {"x", 9};
        struct rv_error err = {0};

        if (request_parse_gpu (v[i][0], &got, &err) != RV_EINVAL)
            fail_msg ("'%s' was taken", v[i][0]);
        if (!strstr (err.text, v[i][1]))
            fail_msg ("%s", err.text);
        assert_int_equal (got.count, 9);
    }
    (void)state;
}

static void checks (void **state)
{
    static const struct node_offer offers[] = {
        {"gpu:a100:4(S:0-1)", 2},
        {"gpu:h100:8,gpu:1g.10gb:7", 1},
        {"(null)", 10},
        {NULL, 1},
        {"gpu:A100:1,shard:100", 3},
    };
    static const struct {
        struct gpu_request req;
        int want;
        const char *text;
    } v[] = {
        {{"a100", 11}, 0, ""},
        {{"A100", 1}, 0, ""},
        {{"", 19}, 0, ""},
        {{"1g.10gb", 7}, 0, ""},
        {{"a100", 12},
         RV_EINVAL,
         "12 GPUs of type a100 are more than there are; the cluster has 11"},
        {{"", 20},
         RV_EINVAL,
         "20 GPUs are more than there are; the cluster has 19"},
        {{"h10", 1},
         RV_ENOTFOUND,
         "no GPUs of type 'h10'; the cluster has h100, a100, 1g.10gb"},
        {{"v", 1},
         RV_ENOTFOUND,
         "no GPUs of type 'v'; the cluster has a100, h100, 1g.10gb"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};

        assert_int_equal (
            request_check_gpu (&v[i].req, offers, LENGTH (offers), &err),
            v[i].want);
        assert_string_equal (err.text, v[i].text);
    }
    (void)state;
}

static void odd_clusters (void **state)
{
    static const struct {
        struct gpu_request req;
        struct node_offer offer;
        int want;
        const char *text;
    } v[] = {
        {{"", 1}, {"", 5}, RV_ENOTFOUND, "the cluster has no GPUs"},
        {{"a100", 1}, {"gpu:0", 5}, RV_ENOTFOUND, "the cluster has no GPUs"},
        {{"", 1},
         {"gpu:1g.10gb:2", 1},
         RV_ENOTFOUND,
         "the cluster has no GPUs; its slices are 1g.10gb"},
        {{"a100", 1},
         {"gpu:4", 1},
         RV_ENOTFOUND,
         "no GPUs of type 'a100': those of the cluster have no type; ask for a "
         "count alone"},
        {{"", 4}, {"gpu:4", 1}, 0, ""},
        {{"", 4}, {"gpu:18446744073709551615", 2}, 0, ""},
        {{"", 4},
         {"gpu::", 1},
         RV_EINVAL,
         "gres 'gpu::' is malformed; expected text such as gpu:a100:4"},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        struct rv_error err = {0};

        assert_int_equal (request_check_gpu (&v[i].req, &v[i].offer, 1, &err),
                          v[i].want);
        assert_string_equal (err.text, v[i].text);
    }
    assert_int_equal (request_check_gpu (&v[0].req, NULL, 0, NULL),
                      RV_ENOTFOUND);
    (void)state;
}

static void nearest (void **state)
{
    static const char *const names[] = {
        "gpus", "time", "type", "partition", "nccl_timeout", "mem", "lr",
    };
    static const char *const v[][2] = {
        {"gpu", "gpus"},
        {"GPUS", "gpus"},
        {"tiem", "time"},
        {"typ", "type"},
        {"patrition", "partition"},
        {"part", "partition"},
        {"nccl-timeout", "nccl_timeout"},
        {"nccl", "nccl_timeout"},
        {"memory", "mem"},
        {"rl", "lr"},
        {"walltime", NULL},
        {"x", NULL},
        {"", NULL},
        {"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
         NULL},
    };

    for (size_t i = 0; i < LENGTH (v); i++) {
        const char *got = name_nearest (v[i][0], names, LENGTH (names));

        if ((got == NULL) != (v[i][1] == NULL)
            || (got && strcmp (got, v[i][1]) != 0))
            fail_msg ("'%s' gave '%s'", v[i][0], got ? got : "nothing");
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (bad_arguments), cmocka_unit_test (parses),
        cmocka_unit_test (refuses),       cmocka_unit_test (checks),
        cmocka_unit_test (odd_clusters),  cmocka_unit_test (nearest),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
