/* SPDX-License-Identifier: Apache-2.0
 * tap.h - the output of a GPU test: skipped whole without a GPU */
#ifndef TESTS_GPU_TAP_H
#define TESTS_GPU_TAP_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_count, tap_failed;

/* tap_skip_all - end the program: a skip, or a failure where RV_REQUIRE names
 * gpu. */
static inline void tap_skip_all (const char *reason)
{
    const char *require = getenv ("RV_REQUIRE");

    if (require && strstr (require, "gpu")) {
        printf ("1..1\nnot ok 1 - %s, but RV_REQUIRE wants a GPU\n", reason);
        exit (1);
    }
    printf ("1..0 # SKIP %s\n", reason);
    exit (0);
}

static inline void tap_ok (bool good, const char *name)
{
    tap_count++;
    tap_failed += !good;
    printf ("%sok %d - %s\n", good ? "" : "not ", tap_count, name);
    fflush (stdout); /* a checker of memory may be cut off by its limit */
}

/* tap_end - the plan; returns the exit status. */
static inline int tap_end (void)
{
    printf ("1..%d\n", tap_count);
    return tap_failed || tap_count == 0;
}

#endif
