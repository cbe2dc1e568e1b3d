/* SPDX-License-Identifier: Apache-2.0
 * run_files.c - rank 0's files of lines: open them, and say what they do not take */
#include "config.h"

#include "run_impl.h"

#include <stdio.h>

#include "libtrain/err.h"
#include "libtrain/trainer.h"
#include "metrics.h"

train_status_t run_open_file (const struct run *r, const char *path,
                              struct metrics **ret, train_error_t *err)
{
    struct rv_error e = {0};
    train_status_t status = TRAIN_OK;

    if (r->first && path
        && metrics_open (ret, path, train_trainer_steps (r->trainer), &e)
               != RV_OK)
        status = err_from (err, &e);
    return trainer_agree (r->group, status, err);
}

void run_say_file (struct run *r, struct metrics *file)
{
    char text[512];

    if (!file || !metrics_news (file, text, sizeof (text)))
        return;
    progress_clear (&r->progress);
    fprintf (stderr, "rv-train: %s\n", text);
}

train_status_t run_end_file (const struct run *r, struct metrics *file,
                             bool stopped, train_error_t *err)
{
    struct rv_error e = {0};

    if (!file || metrics_end (file, &e) == RV_OK)
        return TRAIN_OK;
    if (!stopped)
        return err_set (err, TRAIN_EIO, "%s; all steps are made%s", e.text,
                        r->saved >= 0 ? ", and the checkpoint is written" : "");
    fprintf (stderr, "rv-train: %s\n", e.text);
    return TRAIN_OK;
}
