/* SPDX-License-Identifier: Apache-2.0
 * test_comm_mpi.c - the backend mpi where MPI did not start the ranks, or is
 * not built in; tests/interop/mpi_check.py has the rest */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>

#include "group_ranks.h"

#if HAVE_MPI
#define WHY  "backend mpi: MPI did not start this program"
#define WHAT "start it with mpirun or srun --mpi=pmix"
#else
#define WHY  "backend mpi: this libtrain was built without MPI"
#define WHAT "./configure --with-mpi where mpicc is"
#endif

static void no_body (struct job *job, int rank, train_group_t *group)
{
    (void)group;
    note (job, rank, "there is a group", 0, 0, 0);
}

/* One rank, one node, two nodes: the same answer, on every rank. */
static void test_refused (void **state)
{
    static const char *const layouts[] = {"a", "aaa", "abb"};

    (void)state;
    for (size_t i = 0; i < sizeof (layouts) / sizeof (*layouts); i++) {
        struct job job = {
            .layout = layouts[i], .body = no_body, .backend = "mpi"};

        run_job (&job);
        want (&job, "", TRAIN_ENOTSUP, WHY);
        want (&job, "", TRAIN_ENOTSUP, WHAT);
        free_job (&job);
    }
}

static void test_unknown (void **state)
{
    train_group_options_t opts = {.size = sizeof (opts), .backend = "MPI"};
    train_group_t *group = NULL;
    train_error_t err;

    (void)state;
    assert_int_equal (train_group_create (&opts, &group, &err), TRAIN_EINVAL);
    assert_string_equal (err.text, "group: no backend 'MPI'; there are self, "
                                   "host, nccl and mpi");
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_unknown),
        cmocka_unit_test (test_refused),
    };
    static const char *const started[] = {"PMIX_NAMESPACE", "PMI_RANK",
                                          "PMI_FD", "PMI_PORT",
                                          "OMPI_COMM_WORLD_SIZE"};

    for (size_t i = 0; i < sizeof (started) / sizeof (*started); i++)
        unsetenv (started[i]);
    return cmocka_run_group_tests (tests, NULL, NULL);
}
