/* SPDX-License-Identifier: Apache-2.0
 * metrics.h - the file of metrics: one JSON object a line, one line a step.
 *
 *   {"step":1,"loss":5.54,"grad_norm":1.2,"lr":0.001,"tok_per_s":51200.0,
 *    "step_s":0.04,"tokens":2048,"skipped":false,"mem_bytes":31457280,
 *    "loss_scale":null,"eval_loss":null}
 * Numbers have all their digits, so that equal bits are equal text; what is
 * not finite is null. Each line is one write, so readers see whole lines. */
#ifndef RV_TRAIN_METRICS_H
#define RV_TRAIN_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include <train.h>

#include "plan/error.h"

struct metrics;

/* metrics_open - the file of a run that stands at [step].
 * Lines of later steps, and a last one without its end, are cut off: a run
 * that resumes there writes them again, and the file reads as that of a run
 * that never stopped. At step 0 the file begins anew.
 *   path   its folder is made if needed
 * RV_EFORMAT when the file does not begin as one of ours does: nothing is cut
 * then. RV_EIO. */
int metrics_open (struct metrics **ret, const char *path, int64_t step,
                  struct rv_error *err);
void metrics_close (struct metrics *metrics); /* NULL is fine */

/* A file that takes no more (a full disk) ends no run: lines are kept, 16 MiB of
 * them, and written before the next one, from where the first was cut.
 *
 * metrics_news - [text] is to be said: lines are kept since the last call, or none
 * are any more. False: neither.
 * metrics_end - write what is kept. RV_EIO: how many lines are lost, and why. */
bool metrics_news (struct metrics *metrics, char *text, size_t size);
int metrics_end (struct metrics *metrics, struct rv_error *err);

/* metrics_write - add a step's line. RV_ENOMEM.
 *   eval   NULL: none after this step */
int metrics_write (struct metrics *metrics, const train_metrics_t *m,
                   const train_eval_t *eval, double tok_per_s,
                   int64_t mem_bytes, struct rv_error *err);

/* metrics_put - a line of another kind, "\n" included, which begins with
 * {"step":N as all do. RV_ENOMEM. */
int metrics_put (struct metrics *metrics, const char *line, size_t n,
                 struct rv_error *err);

#endif
