/* SPDX-License-Identifier: Apache-2.0
 * test_chain.c - the words of a submission that goes on behind another */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "chain.h"
#include "submit.h"

#define N(a)  (sizeof (a) / sizeof ((a)[0]))
#define WORDS 10

static void test_bad (void **state)
{
    static const char *const bad[] = {
        "{}", "{\"schema\": \"rv.job/1\"}",
        "{\"schema\": \"rv.job/1\", \"sbatch_argv\": [\"sbatch\"]}",
        "{\"schema\": \"rv.job/1\", \"sbatch_argv\": [\"sbatch\", 3]}",
        "{\"schema\": \"rv.job/2\", \"sbatch_argv\": [\"sbatch\", \"x\"]}"};
    const struct chain c = {.job_id = 7, .first = 7, .submitted = 7};

    (void)state;
    for (size_t i = 0; i < N (bad); i++) {
        json_t *job = json_loads (bad[i], 0, NULL);
        struct rv_error err = {0};
        char **argv = NULL;

        assert_int_equal (chain_argv (&c, job, &argv, &err), RV_EFORMAT);
        assert_null (argv);
        json_decref (job);
    }
}

static const struct {
    struct chain c;
    const char *had[WORDS], *want[WORDS];
} rows[] = {
    {{.job_id = 7, .first = 7, .submitted = 7},
     {"sbatch", "--gres=gpu:2", "--output=/l/n-%j.batch.out", "/r/job.sh"},
     {"sbatch", "--gres=gpu:2", "--output=/l/n-7.batch.out",
      "--dependency=afterany:7", "/r/job.sh"}},
    /* The third of a chain writes where the first did. */
    {{.job_id = 9, .first = 7, .submitted = 9},
     {"sbatch", "--error=/l%%j/n-7.err", "--dependency=afterany:7", "job"},
     {"sbatch", "--error=/l%%j/n-7.err", "--dependency=afterany:9", "job"}},
    /* What the user excluded stays excluded. */
    {{.job_id = 9, .first = 7, .submitted = 9, .exclude = "n3"},
     {"sbatch", "--exclude=n1,n2", "--begin=now+1hour", "job"},
     {"sbatch", "--dependency=afterany:9", "--exclude=n1,n2,n3", "job"}},
    {{.job_id = 9, .first = 7, .submitted = 9},
     {"sbatch", "--exclude=n1", "job"},
     {"sbatch", "--dependency=afterany:9", "--exclude=n1", "job"}},
    /* One task of an array, under the array's submission. */
    {{.job_id = 13, .first = 13, .submitted = 12, .task = "4"},
     {"sbatch", "--array=0-7%2", "--output=/l/n-%A_%a.out", "job"},
     {"sbatch", "--output=/l/n-12_%a.out", "--dependency=afterany:13",
      "--array=4", "job"}},
};

static void test_words (void **state)
{
    (void)state;
    for (size_t i = 0; i < N (rows); i++) {
        json_t *words = json_array (), *job;
        struct rv_error err = {0};
        char **argv = NULL;

        for (size_t k = 0; rows[i].had[k]; k++)
            json_array_append_new (words, json_string (rows[i].had[k]));
        job = json_pack ("{s:s, s:o, s:o}", "schema", "rv.job/1", "continues",
                         json_null (), "sbatch_argv", words);
        assert_int_equal (chain_argv (&rows[i].c, job, &argv, &err), 0);
        for (size_t k = 0; rows[i].want[k] || argv[k]; k++) {
            assert_non_null (rows[i].want[k]);
            assert_non_null (argv[k]);
            assert_string_equal (argv[k], rows[i].want[k]);
        }
        submit_argv_free (argv);
        json_decref (job);
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_bad),
        cmocka_unit_test (test_words),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
