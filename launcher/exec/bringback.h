/* SPDX-License-Identifier: Apache-2.0
 * bringback.h - results of a job out of the copy that it ran in, to the folder
 * that it was submitted from (rv run --snapshot --output). */
#ifndef RV_EXEC_BRINGBACK_H
#define RV_EXEC_BRINGBACK_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/error.h"

struct bringback {
    const char *from;   /* the working folder in the copy */
    const char *to;     /* the submitting folder; must exist */
    char *const *paths; /* of outpath_parse, NULL-terminated */
    const char *marker; /* a file written when the copy was complete */
    const char *record; /* file of what this job brought before; may be absent.
                           Rewritten */
    uint32_t job_id;    /* names temporary files, and what is put beside */
    int64_t end_ms;     /* monotonic: no file is begun after it; 0 = no end */
};

struct bringback_sum {
    uint32_t files;  /* brought now, links too */
    uint64_t bytes;  /* of them */
    uint32_t beside; /* of [files]: what was there had changed since the
                        submission and stays; the result is NAME.rv-JOB */
    uint32_t failed; /* could not be brought; each is logged */
    bool late;       /* end_ms came first */
};

/* bringback_run - bring what the job made or changed (status changed after
 * [marker] was written) and a path matches; a folder comes whole.
 *   sum   written on success
 * Each file appears whole or not at all: temporary file beside, then rename.
 * Nothing is written outside of [to], and no link is followed, on either side;
 * one that a path matches comes as a link. RV_EIO where a folder or the marker
 * cannot be opened. Logs warnings, at most ten. Calls of one job must not
 * overlap. */
int bringback_run (const struct bringback *b, struct bringback_sum *sum,
                   struct rv_error *err);

#endif
