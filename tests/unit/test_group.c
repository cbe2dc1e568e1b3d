/* SPDX-License-Identifier: Apache-2.0
 * test_group.c - arguments of process groups, the group of one, and the pure
 * parts: texts, layout of ranks on nodes */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include <train/group.h>

#include "comm.h"
#include "layout.h"

static void expect (train_status_t status, train_status_t want,
                    const train_error_t *err, const char *text)
{
    if (status != want || (text && !strstr (err->text, text)))
        fail_msg ("%s (%s), want %s (%s)", train_status_name (status),
                  err->text, train_status_name (want), text ? text : "");
}

static void alone (void)
{
    static const char *const names[] = {
        "RANK",         "WORLD_SIZE",   "LOCAL_RANK",    "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",  "MASTER_PORT",  "NODE_RANK",     "GROUP_RANK",
        "RV_STEP",      "SLURM_JOB_ID", "SLURM_STEP_ID", "RV_NCCL_TIMEOUT",
        "NCCL_TIMEOUT", "SLURM_PROCID", "PMIX_RANK",     "PMIX_NAMESPACE",
    };

    for (size_t i = 0; i < sizeof (names) / sizeof (*names); i++)
        unsetenv (names[i]);
    setenv ("RV_BOOT", "single", 1);
}

static void set_vars (const char *rank, const char *size, const char *port)
{
    alone ();
    setenv ("RANK", rank, 1);
    setenv ("WORLD_SIZE", size, 1);
    setenv ("LOCAL_RANK", rank, 1);
    setenv ("LOCAL_WORLD_SIZE", size, 1);
    setenv ("MASTER_ADDR", "127.0.0.1", 1);
    setenv ("MASTER_PORT", port, 1);
}

static void test_create_arguments (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts)};
    train_group_t *group = NULL;
    train_error_t err = {0};
    char name[65];

    (void)state;
    alone ();
    expect (train_group_create (NULL, NULL, &err), TRAIN_EINVAL, &err,
            "no result");
    opts.size = 3;
    expect (train_group_create (&opts, &group, &err), TRAIN_EINVAL, &err,
            "options is 3");
    opts.size = sizeof (opts);
    opts.timeout_ms = -1;
    expect (train_group_create (&opts, &group, &err), TRAIN_EINVAL, &err,
            "timeout");
    opts.timeout_ms = 0;
    opts.backend = "nccl2";
    expect (train_group_create (&opts, &group, &err), TRAIN_EINVAL, &err,
            "no backend 'nccl2'");
    opts.backend = NULL;
    memset (name, 'x', 64);
    name[64] = '\0';
    opts.name = name;
    expect (train_group_create (&opts, &group, &err), TRAIN_EINVAL, &err,
            "1 to 63");
    opts.name = "";
    expect (train_group_create (&opts, &group, NULL), TRAIN_EINVAL, &err, NULL);
    assert_null (group);
    train_group_destroy (NULL);
}

static void test_create_variables (void **state)
{
    static const struct {
        const char *name, *value, *text;
    } bad[] = {
        {"RANK", "4", "RANK='4'"},
        {"RANK", "-1", "RANK='-1'"},
        {"RANK", "1x", "RANK='1x'"},
        {"WORLD_SIZE", "0", "WORLD_SIZE='0'"},
        {"WORLD_SIZE", "99999999999999999999", "WORLD_SIZE"},
        {"LOCAL_RANK", "4", "LOCAL_RANK='4'"},
        {"LOCAL_WORLD_SIZE", "5", "LOCAL_WORLD_SIZE='5'"},
        {"MASTER_PORT", "65536", "MASTER_PORT='65536'"},
        {"MASTER_PORT", "0", "MASTER_PORT='0'"},
        {"NODE_RANK", "x", "NODE_RANK='x'"},
        {"GROUP_RANK", "-2", "GROUP_RANK='-2'"},
        {"RV_NCCL_TIMEOUT", "10m", "RV_NCCL_TIMEOUT='10m'"},
    };
    train_group_t *group = NULL;
    train_error_t err;

    (void)state;
    for (size_t i = 0; i < sizeof (bad) / sizeof (*bad); i++) {
        set_vars ("1", "4", "29500");
        setenv (bad[i].name, bad[i].value, 1);
        expect (train_group_create (NULL, &group, &err), TRAIN_EFORMAT, &err,
                bad[i].text);
        assert_non_null (strstr (err.text, "group 'world': "));
    }
    /* four were meant, and this one would train alone */
    set_vars ("1", "4", "29500");
    unsetenv ("MASTER_PORT");
    expect (train_group_create (NULL, &group, &err), TRAIN_EINVAL, &err,
            "WORLD_SIZE=4, but not all");
    assert_null (group);
}

/* Variables of another step are left over and count for nothing. */
static void test_create_stale (void **state)
{
    train_group_t *group = NULL;
    train_error_t err;

    (void)state;
    set_vars ("1", "4", "29500");
    setenv ("RV_STEP", "7.0", 1);
    setenv ("SLURM_JOB_ID", "7", 1);
    setenv ("SLURM_STEP_ID", "1", 1);
    expect (train_group_create (NULL, &group, &err), TRAIN_OK, &err, NULL);
    assert_int_equal (train_group_size (group), 1);
    train_group_destroy (group);
}

static void try_tensors (train_group_t *group)
{
    float f[6] = {1, 2, 3, 4, 5, 6};
    int64_t shape[2] = {2, 3}, strides[2] = {1, 2};
    train_tensor_t t;
    train_error_t err;

    train_tensor_view (&t, f, TRAIN_F32, 2, shape, NULL);
    expect (train_all_reduce (NULL, &t.t, TRAIN_SUM, &err), TRAIN_EINVAL, &err,
            "no group");
    expect (train_all_reduce (group, NULL, TRAIN_SUM, &err), TRAIN_EINVAL, &err,
            "no tensor");
    expect (train_all_reduce (group, &t.t, (train_op_t)5, &err), TRAIN_EINVAL,
            &err, "unknown operation 5");
    t.t.strides = strides;
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_EINVAL, &err,
            "not compact");
    t.t.strides = NULL;
    t.t.shape = (int64_t[]){-2, -3};
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_EINVAL, &err,
            "negative size");
    t.t.shape = (int64_t[]){INT64_C (1) << 32, INT64_C (1) << 32};
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_EINVAL, &err,
            "too large");
    t.t.shape = t.shape;
    t.t.device.device_type = kDLCUDA;
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_ENOTSUP,
            &err, "this tensor is on GPU 0; backend nccl moves");
    t.t.device.device_type = kDLCPU;
    t.t.data = NULL;
    expect (train_broadcast (group, &t.t, 0, &err), TRAIN_EINVAL, &err,
            "no data");
    t.t.data = f;
    expect (train_broadcast (group, &t.t, 1, &err), TRAIN_EINVAL, &err,
            "root 1 is not one of 1");
    expect (train_broadcast (group, &t.t, -1, &err), TRAIN_EINVAL, &err,
            "root -1");
    t.t.dtype.lanes = 2;
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_ENOTSUP,
            &err, "element type");
    t.t.dtype = train_dtype_dlpack (TRAIN_I32);
    expect (train_all_reduce (group, &t.t, TRAIN_AVG, &err), TRAIN_EINVAL, &err,
            "no average of I32");
    t.t.dtype = train_dtype_dlpack (TRAIN_U8);
    expect (train_all_reduce (group, &t.t, TRAIN_SUM, &err), TRAIN_ENOTSUP,
            &err, "U8");
    expect (train_barrier (NULL, &err), TRAIN_EINVAL, &err, "no group");
}

/* Refusals before a call counts leave the group sound. */
static void test_self (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "self"};
    train_group_t *group = NULL;
    float f[3] = {1, -2, 0.5f};
    int64_t shape[1] = {3};
    train_tensor_t t;
    train_error_t err;

    (void)state;
    alone ();
    expect (train_group_create (&opts, &group, &err), TRAIN_OK, &err, NULL);
    assert_int_equal (train_group_rank (group), 0);
    assert_int_equal (train_group_size (group), 1);
    assert_int_equal (train_group_local_rank (group), 0);
    assert_int_equal (train_group_local_size (group), 1);
    assert_string_equal (train_group_backend (group), "self");
    try_tensors (group);
    train_tensor_view (&t, f, TRAIN_F32, 1, shape, NULL);
    expect (train_all_reduce (group, &t.t, TRAIN_AVG, &err), TRAIN_OK, &err,
            NULL);
    expect (train_broadcast (group, &t.t, 0, &err), TRAIN_OK, &err, NULL);
    expect (train_barrier (group, &err), TRAIN_OK, &err, NULL);
    assert_true (f[0] == 1 && f[1] == -2 && f[2] == 0.5f);
    train_group_destroy (group);
}

/* Each refused before it counts, so that the group stays sound. */
static void try_pairs (train_group_t *group)
{
    float f[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    int64_t n[2] = {3, 4};
    train_tensor_t a, b, other, more, near;
    train_error_t err;

    train_tensor_view (&a, f, TRAIN_F32, 1, n, NULL);
    train_tensor_view (&b, f + 4, TRAIN_F32, 1, n, NULL);
    train_tensor_view (&other, f + 4, TRAIN_I32, 1, n, NULL);
    train_tensor_view (&more, f + 4, TRAIN_F32, 1, n + 1, NULL);
    train_tensor_view (&near, f + 1, TRAIN_F32, 1, n, NULL);
    expect (train_all_gather (NULL, &a.t, &b.t, &err), TRAIN_EINVAL, &err,
            "no group");
    expect (train_all_gather (group, &a.t, NULL, &err), TRAIN_EINVAL, &err,
            "no tensor");
    expect (train_all_gather (group, &a.t, &other.t, &err), TRAIN_EINVAL, &err,
            "F32 and I32");
    expect (train_all_gather (group, &a.t, &more.t, &err), TRAIN_EINVAL, &err,
            "3 elements for each of 1 ranks");
    expect (train_all_gather (group, &a.t, &near.t, &err), TRAIN_EINVAL, &err,
            "overlap");
    expect (train_reduce_scatter (group, &a.t, &b.t, (train_op_t)9, &err),
            TRAIN_EINVAL, &err, "unknown operation 9");
    expect (train_reduce (group, &a.t, TRAIN_SUM, 1, &err), TRAIN_EINVAL, &err,
            "root 1 is not one of 1");
    expect (train_all_to_all (group, &a.t, &more.t, &err), TRAIN_EINVAL, &err,
            "3 F32 and 4 F32");
    expect (train_all_to_all (group, &a.t, &near.t, &err), TRAIN_EINVAL, &err,
            "overlap");
    expect (train_gather (group, &a.t, NULL, 0, &err), TRAIN_EINVAL, &err,
            "no tensor");
    expect (train_scatter (group, &b.t, &a.t, -1, &err), TRAIN_EINVAL, &err,
            "root -1");
    expect (train_send_recv (group, &a.t, 0, 1, &err), TRAIN_EINVAL, &err,
            "receiver: root 1");
}

static void try_objects (train_group_t *group)
{
    size_t len = 9;
    void *got = NULL;
    train_error_t err;

    expect (train_broadcast_object (group, NULL, 3, 0, &got, &len, &err),
            TRAIN_EINVAL, &err, "no data");
    expect (train_broadcast_object (group, "abc", 3, 0, NULL, &len, &err),
            TRAIN_EINVAL, &err, "no result");
    expect (train_gather_object (group, "abc", 3, -2, &got, &len, &err),
            TRAIN_EINVAL, &err, "root -2");
    expect (train_broadcast_object (group, "abc", 3, 0, &got, &len, &err),
            TRAIN_OK, &err, NULL);
    assert_int_equal (len, 3);
    assert_memory_equal (got, "abc", 3);
    free (got);
    got = NULL;
    expect (train_gather_object (group, "wxyz", 4, -1, &got, &len, &err),
            TRAIN_OK, &err, NULL);
    assert_int_equal (len, 4);
    assert_memory_equal (got, "wxyz", 4);
    free (got);
}

static void test_self_collect (void **state)
{
    train_group_t *group = NULL;
    float f[6] = {1, 2, 3, 0, 0, 0};
    int64_t n[1] = {3};
    train_tensor_t a, b;
    train_error_t err;

    (void)state;
    alone ();
    expect (train_group_create (NULL, &group, &err), TRAIN_OK, &err, NULL);
    try_pairs (group);
    try_objects (group);
    train_tensor_view (&a, f, TRAIN_F32, 1, n, NULL);
    train_tensor_view (&b, f + 3, TRAIN_F32, 1, n, NULL);
    expect (train_all_to_all (group, &a.t, &b.t, &err), TRAIN_OK, &err, NULL);
    assert_memory_equal (f, f + 3, 3 * sizeof (*f));
    expect (train_all_to_all (group, &b.t, &b.t, &err), TRAIN_OK, &err, NULL);
    expect (train_reduce_scatter (group, &a.t, &a.t, TRAIN_PROD, &err),
            TRAIN_OK, &err, NULL);
    assert_memory_equal (f, f + 3, 3 * sizeof (*f));
    train_group_destroy (group);
}

static void test_describe (void **state)
{
    static const struct {
        struct comm_call call;
        const char *text;
    } cases[] = {
        {{.kind = COMM_BARRIER}, "barrier"},
        {{.kind = COMM_BROADCAST, .count = 3, .dtype = TRAIN_U8, .root = 2},
         "broadcast (3 U8 from rank 2)"},
        {{.kind = COMM_ALL_REDUCE,
          .count = 9,
          .dtype = TRAIN_BF16,
          .op = TRAIN_AVG},
         "all_reduce (average of 9 BF16)"},
        {{.kind = COMM_ALL_REDUCE, .op = 77, .dtype = 99},
         "all_reduce (unknown of 0 unknown)"},
        {{.kind = COMM_OBJECTS, .root = -1}, "gather_object (to every rank)"},
        {{.kind = 99}, "unknown call 99"},
    };
    char text[96], small[10];

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        comm_describe (&cases[i].call, text, sizeof (text));
        assert_string_equal (text, cases[i].text);
    }
    comm_describe (&cases[1].call, small, sizeof (small));
    assert_string_equal (small, "broadcast");
}

static bool in_text (const void *arg, int rank)
{
    return ((const char *)arg)[rank] == 'x';
}

static void test_ranks (void **state)
{
    static const char *const cases[][2] = {
        {"....", "no rank"},   {"x...", "rank 0"},      {"...x", "rank 3"},
        {"xx..", "ranks 0-1"}, {"x.xx", "ranks 0,2-3"}, {"xxxx", "ranks 0-3"},
    };
    char text[160], every_other[2000];

    (void)state;
    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        comm_ranks (in_text, cases[i][0], 4, text, sizeof (text));
        assert_string_equal (text, cases[i][1]);
    }
    for (int i = 0; i < 2000; i++)
        every_other[i] = i % 2 ? 'x' : '.';
    comm_ranks (in_text, every_other, 2000, text, sizeof (text));
    assert_non_null (strstr (text, "ranks 1,3,5,"));
    assert_string_equal (text + strlen (text) - 4, ",...");
}

static void test_compare (void **state)
{
    struct comm_call calls[6];
    train_error_t err;

    (void)state;
    for (int r = 0; r < 6; r++)
        calls[r] =
            (struct comm_call){.seq = 8, .count = 8, .kind = COMM_ALL_REDUCE};
    expect (comm_compare (calls, 6, "g", &err), TRAIN_OK, &err, NULL);
    calls[2].count = 9;
    expect (comm_compare (calls, 6, "g", &err), TRAIN_EMISMATCH, &err,
            "group 'g' disagree at its call 7: ranks 0-1,3-5 called all_reduce "
            "(sum of 8 F32); rank 2 called all_reduce (sum of 9 F32)");
    for (int r = 0; r < 6; r++)
        calls[r].count = (uint64_t)r;
    expect (comm_compare (calls, 6, "g", &err), TRAIN_EMISMATCH, &err,
            "(sum of 3 F32); and others");
    calls[0] = calls[1];
    calls[0].seq = 6;
    expect (comm_compare (calls, 2, "g", &err), TRAIN_EMISMATCH, &err, NULL);
}

/* [text] has the key of each rank's node: "aabb". */
static void check_layout (const char *text, const int *local_size,
                          const int *want, train_status_t status)
{
    struct layout_in in[8] = {0};
    int node_of[8], nodes = 0, n = (int)strlen (text);
    train_error_t err;

    for (int r = 0; r < n; r++)
        in[r] = (struct layout_in){text[r], local_size[r]};
    expect (layout_nodes (in, n, node_of, &nodes, &err), status, &err,
            status == TRAIN_OK ? NULL : "set NODE_RANK");
    for (int r = 0; status == TRAIN_OK && r < n; r++)
        assert_int_equal (node_of[r], want[r]);
}

static void test_layout (void **state)
{
    int node_of[5] = {0, 1, 1, 0, 0}, local_rank, local_size;
    struct layout_run *runs;

    (void)state;
    check_layout ("a", (int[]){1}, (int[]){0}, TRAIN_OK);
    check_layout ("aabb", (int[]){2, 2, 2, 2}, (int[]){0, 0, 1, 1}, TRAIN_OK);
    check_layout ("baab", (int[]){2, 2, 2, 2}, (int[]){0, 1, 1, 0}, TRAIN_OK);
    check_layout ("cbbac", (int[]){2, 2, 2, 1, 2}, (int[]){0, 1, 1, 2, 0},
                  TRAIN_OK);
    check_layout ("aab", (int[]){2, 2, 2}, NULL, TRAIN_EMISMATCH);
    check_layout ("aaa", (int[]){2, 3, 3}, NULL, TRAIN_EMISMATCH);
    layout_local (node_of, 5, 3, &local_rank, &local_size);
    assert_int_equal (local_rank, 1);
    assert_int_equal (local_size, 3);
    assert_int_equal (layout_runs (node_of, 5, &runs), 3);
    assert_int_equal (runs[1].node, 1);
    assert_int_equal (runs[1].first, 1);
    assert_int_equal (runs[1].count, 2);
    assert_int_equal (runs[2].first, 3);
    free (runs);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_create_arguments),
        cmocka_unit_test (test_create_variables),
        cmocka_unit_test (test_create_stale),
        cmocka_unit_test (test_self),
        cmocka_unit_test (test_self_collect),
        cmocka_unit_test (test_describe),
        cmocka_unit_test (test_ranks),
        cmocka_unit_test (test_compare),
        cmocka_unit_test (test_layout),
    };

    return cmocka_run_group_tests_name ("group", tests, NULL, NULL);
}
