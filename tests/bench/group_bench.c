/* SPDX-License-Identifier: Apache-2.0
 * group_bench.c - all-reduce of the group backend host, by size
 *
 *   group_bench [BYTES...]      in a job, or with RANK and the like set
 *
 * Rank 0 prints one line a size: bytes, median microseconds of a call, GB/s
 * (bytes of the tensor by that time), and the microseconds when the calls are
 * those of a learnt step (train_step_begin). */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <train/group.h>

#define ROUNDS 15

static double now_us (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value (const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int fail (const train_error_t *err)
{
    fprintf (stderr, "group_bench: %s\n", err->text);
    return 1;
}

/* A row of calls, as a step or not; microseconds each, negative on failure. */
static double row (train_group_t *group, DLTensor *t, int n, bool step)
{
    train_error_t err;
    double start;

    if (train_barrier (group, &err) != TRAIN_OK)
        return -fail (&err);
    start = now_us ();
    if (step && train_step_begin (group, &err) != TRAIN_OK)
        return -fail (&err);
    for (int k = 0; k < n; k++) {
        if (train_all_reduce (group, t, TRAIN_AVG, &err) != TRAIN_OK)
            return -fail (&err);
    }
    if (step && train_step_end (group, &err) != TRAIN_OK)
        return -fail (&err);
    return (now_us () - start) / n;
}

static int measure (train_group_t *group, float *data, size_t bytes)
{
    int64_t shape[1] = {(int64_t)(bytes / sizeof (*data))};
    int inner = bytes < 65536 ? 20 : 1;
    double us[2][ROUNDS];
    train_tensor_t t;

    train_tensor_view (&t, data, TRAIN_F32, 1, shape, NULL);
    for (int i = -2; i < ROUNDS; i++) {
        for (int step = 0; step < 2; step++) {
            double took = row (group, &t.t, inner, step);

            if (took < 0)
                return 1;
            if (i >= 0)
                us[step][i] = took;
        }
    }
    for (int step = 0; step < 2; step++)
        qsort (us[step], ROUNDS, sizeof (**us), by_value);
    if (train_group_rank (group) == 0)
        printf ("%zu %.1f %.3f %.1f\n", bytes, us[0][ROUNDS / 2],
                (double)bytes / us[0][ROUNDS / 2] / 1e3, us[1][ROUNDS / 2]);
    fflush (stdout);
    return 0;
}

int main (int argc, char **argv)
{
    static char *defaults[] = {"",      "4",       "4096",     "8192",
                               "65536", "1048576", "16777216", "67108864"};
    train_group_options_t opts = {.size = sizeof (opts), .backend = "host"};
    train_group_t *group = NULL;
    train_error_t err;
    int rc = 0;

    if (argc < 2) {
        argv = defaults;
        argc = (int)(sizeof (defaults) / sizeof (*defaults));
    }
    if (train_group_create (&opts, &group, &err) != TRAIN_OK)
        return fail (&err);
    for (int i = 1; i < argc && rc == 0; i++) {
        size_t bytes = strtoul (argv[i], NULL, 10) / 4 * 4;
        float *data = calloc (bytes + 4, 1);

        if (!data)
            return 1;
        memset (data, 0, bytes);
        rc = measure (group, data, bytes);
        free (data);
    }
    train_group_destroy (group);
    return rc;
}
