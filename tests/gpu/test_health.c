/* SPDX-License-Identifier: Apache-2.0
 * test_health.c - the health check's questions to a real NVML
 *
 * Its declarations are written by hand, so that no header of NVIDIA's is
 * needed: a wrong one shows here as a card without a name, with ECC errors it
 * does not have, or with processes that are not there. */
#include "config.h"

#include "tap.h"

#include <string.h>
#include <time.h>

#include "spank/health_nvml.h"

static void print_cb (void *arg, enum health_level level, const char *text)
{
    unsigned *n_bad = arg;

    *n_bad += level == HEALTH_BAD;
    printf ("# %s: %s\n", level == HEALTH_BAD ? "bad" : "note", text);
}

static double now_s (void)
{
    struct timespec t;

    clock_gettime (CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main (void)
{
    static struct health_gpu gpus[HEALTH_GPUS];
    struct rv_error err = {0};
    unsigned n_bad = 0, mine = 0, named = 0;
    double start = now_s ();
    size_t n = 0;

    if (health_nvml_read (NULL, "0-255", NULL, gpus, &n, &err))
        tap_skip_all (err.text);
    printf ("# %.3f s\n", now_s () - start);
    for (size_t i = 0; i < n; i++) {
        unsigned domain, bus, device;

        printf ("# %s, %s, %llu uncorrected, %u processes of others\n",
                gpus[i].bus, gpus[i].mine ? "whole" : "cut by MIG",
                (unsigned long long)gpus[i].uncorrected, gpus[i].n_left);
        mine += gpus[i].mine;
        named +=
            sscanf (gpus[i].bus, "%8x:%2x:%2x.0", &domain, &bus, &device) == 3;
        health_judge_gpu (&gpus[i], print_cb, &n_bad);
    }
    tap_ok (n > 0, "NVML has cards");
    tap_ok (named == n, "each has a bus");
    tap_ok (mine > 0, "a whole one is the job's");
    tap_ok (n_bad == 0, "and all are well");
    return tap_end ();
}
