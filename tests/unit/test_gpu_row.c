/* SPDX-License-Identifier: Apache-2.0
 * test_gpu_row.c - what nvidia-smi says, and bars */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_row.h"

static void refused (void **state)
{
    static const char *const v[] = {
        "",
        "0:",
        "0, A, 1, 2, 3, 4, 5, 6",
        "x: 0, A, 1, 2, 3, 4, 5, 6",
        "0: 0, A, 1, 2, 3, 4, 5",
        "0: 0, A, 1, 2, 3, 4, 5, 6, 7",
        "0: 0, A, 1 %, 2, 3, 4, 5, 6",
        "0: 0, A, -1, 2, 3, 4, 5, 6",
        "0: 0, A, nan, 2, 3, 4, 5, 6",
        "0: 0, A, , 2, 3, 4, 5, 6",
        "0: No devices were found",
        "0: NVIDIA-SMI has failed because it couldn't communicate, at all",
    };
    struct gpu_row row = {.index = 77};
    struct rv_error err;

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        assert_int_equal (gpu_row_parse (v[i], &row, &err), RV_EFORMAT);
        assert_int_equal (row.index, 77);
    }
    (void)state;
}

static void read_as_meant (void **state)
{
    struct gpu_row row;

    assert_int_equal (
        gpu_row_parse (
            "12: 3, NVIDIA H100 80GB HBM3, 35, 1024, 81559, 41, 60.12, 700.00",
            &row, NULL),
        RV_OK);
    assert_int_equal (row.task, 12);
    assert_int_equal (row.index, 3);
    assert_string_equal (row.name, "NVIDIA H100 80GB HBM3");
    assert_true (row.util == 35 && row.mem_used == 1024);
    assert_true (row.mem_total == 81559 && row.temp == 41);
    assert_true (row.power_draw == 60.12 && row.power_most == 700);
    assert_int_equal (gpu_row_parse ("0: 0, A, [N/A], 2, 3, [Not Supported], "
                                     "[Unknown Error], 6",
                                     &row, NULL),
                      RV_OK);
    assert_true (row.util == -1 && row.temp == -1 && row.power_draw == -1);
    (void)state;
}

static void bars (void **state)
{
    static const struct {
        double part, whole;
        const char *want;
    } v[] = {
        {0, 100, "[----------]"},   {4, 100, "[----------]"},
        {5, 100, "[#---------]"},   {50, 100, "[#####-----]"},
        {100, 100, "[##########]"}, {300, 100, "[##########]"},
        {-1, 100, "            "},  {1, -1, "            "},
        {0, 0, "            "},
    };
    char buf[32];

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++)
        assert_string_equal (
            gpu_row_bar (v[i].part, v[i].whole, 10, buf, sizeof (buf)),
            v[i].want);
    assert_string_equal (gpu_row_bar (1, 1, 10, buf, 6), "[###]");
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (refused),
        cmocka_unit_test (read_as_meant),
        cmocka_unit_test (bars),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
