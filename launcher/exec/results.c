/* SPDX-License-Identifier: Apache-2.0
 * results.c - rv run --output, in the batch step */
#include "config.h"

#include "exec/results.h"

#include <stdlib.h>
#include <time.h>

#include "exec/bringback.h"
#include "exec/log.h"
#include "exec/tail.h"
#include "plan/fsio.h"

#define TOLD_MS 10000 /* Slurm kills KillWait after it told, 30 s */

/* Until when results may be brought: before Slurm kills what it told to end, or
 * the limit comes, for a job that is to be put back by then. 0: no end. */
static int64_t bring_until (const struct child_result *c,
                            const struct segment_run *seg)
{
    int64_t left = (seg->kill_at - (int64_t)time (NULL)) * 1000;

    if (c->term || seg->killed)
        return tail_now_ms () + TOLD_MS;
    if (!seg->kill_at)
        return 0;
    return tail_now_ms () + (left > TOLD_MS ? left : TOLD_MS);
}

void results_bring (const char *own, const struct segment_run *seg,
                    const struct child_result *c)
{
    const struct exec_request *q = seg->q;
    char *marker = fsio_join (seg->dir, "argv"),
         *record = fsio_join (own, "brought");
    const struct bringback b = {.from = q->work_dir,
                                .to = q->submit_dir,
                                .paths = q->outputs,
                                .marker = marker,
                                .record = record,
                                .job_id = seg->job_id,
                                .end_ms = bring_until (c, seg)};
    struct bringback_sum sum = {0};
    struct rv_error err = {0};
    int rc = RV_OK;

    if (!marker || !record)
        rc = error_set (&err, RV_ENOMEM, "out of memory");
    else if (q->work_dir && q->outputs && q->outputs[0])
        rc = bringback_run (&b, &sum, &err);
    if (rc)
        log_line (LOG_ERROR, "cannot bring results back: %s; they are in %s",
                  err.text, q->work_dir);
    else if (sum.failed || sum.late)
        log_line (LOG_WARN,
                  "not all results were brought back%s; the others are in %s",
                  sum.late ? ", for want of time" : "", q->work_dir);
    if (sum.files)
        log_line (LOG_INFO, "%u results were brought back to %s", sum.files,
                  q->submit_dir);
    free (marker);
    free (record);
}
