/* SPDX-License-Identifier: Apache-2.0
 * test_known.c - which job a word means */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cmd_job.h"

static struct request reqs[] = {
    {.id = "20261128-070000-ffffffff", .created_at = 100},
    {.id = "20261128-070001-00000000", .created_at = 101},
    {.id = "20261128-070001-aaaaaaaa", .created_at = 101},
};

/* As known_load leaves them: by job id, newest first. */
static struct known_job jobs[] = {
    {.job_id = 9, .name = "other"},
    {.job_id = 7, .name = "train", .req = &reqs[1]},
    {.job_id = 6, .name = "train", .req = &reqs[2]},
    {.job_id = 5, .name = "tr", .req = &reqs[0]},
};

static const struct known known = {.job = jobs, .n = 4};

static void finds (void **state)
{
    static const struct {
        const char *word;
        uint32_t job_id; /* 0: none */
    } v[] = {
        {"", 0},
        {"nothing", 0},
        {"70", 0},
        {"6", 6},
        {"train", 7},
        {"tr", 5},
        {"oth", 9},
        /* two of one second: their ids' random ends tell nothing */
        {NULL, 7},
    };

    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        const struct known_job *job = NULL;
        struct rv_error err = {0};
        int status = known_find (&known, v[i].word, &job, &err);

        if (!v[i].job_id) {
            assert_int_equal (status, RV_ENOTFOUND);
            continue;
        }
        assert_int_equal (status, RV_OK);
        assert_int_equal (job->job_id, v[i].job_id);
    }
    (void)state;
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (finds),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
