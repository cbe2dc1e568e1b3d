/* SPDX-License-Identifier: Apache-2.0
 * test_step_again.c - when srun may be called again: it had no step */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exec/step_again.h"

#define CONFIRM "srun: error: Unable to confirm allocation for job 17: "
#define CREATE  "srun: error: Unable to create step for job 17: "

static void words (void **state)
{
    static const struct {
        const char *tail;
        int status;
        bool lost;
    } v[] = {
        {NULL, 1, false},
        {"", 1, false},
        {CONFIRM "Unable to contact slurm controller (connect failure)\n"
                 "srun: Check SLURM_JOB_ID environment variable. Expired or "
                 "invalid job 17",
         1, true},
        {CONFIRM "Socket timed out on send/recv operation", 1, true},
        {CONFIRM "Zero Bytes were transmitted or received", 1, true},
        {CONFIRM "Invalid job id specified", 1, false},
        {CREATE "Unable to contact slurm controller (connect failure)", 1,
         true},
        /* it may be there */
        {CREATE "Socket timed out on send/recv operation", 1, false},
        {CREATE "More processors requested than permitted", 1, false},
        /* of a step that runs, or ran well */
        {"srun: error: Unable to contact slurm controller", 1, false},
        {CONFIRM "Unable to contact slurm controller", 0, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof (v) / sizeof (v[0]); i++) {
        struct child_result c = {.tail = (char *)v[i].tail,
                                 .exit_status = v[i].status};

        assert_int_equal (step_lost_slurmctld (&c), v[i].lost);
        c.signal = 9;
        assert_false (step_lost_slurmctld (&c));
        c.signal = 0;
        c.exec_errno = 2;
        assert_false (step_lost_slurmctld (&c));
    }
}

int main (void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test (words)};

    return cmocka_run_group_tests (tests, NULL, NULL);
}
