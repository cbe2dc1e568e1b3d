/* SPDX-License-Identifier: Apache-2.0
 * eval.c - open what is evaluated, say so, and tell when */
#include "eval.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "libtrain/err.h"
#include "sft.h"

struct eval {
    const struct settings *set; /* borrowed */
    train_data_t *data;         /* NULL: what [data] holds out */
};

static train_status_t open_files (struct eval *e, train_error_t *err)
{
    train_data_options_t options = settings_eval_data (e->set);
    int64_t wanted = e->set->eval.samples;
    bool rows = e->set->task == TASK_SFT;
    train_status_t status =
        rows ? sft_open (e->set, "eval", options.files, 0, false, &e->data, err)
             : train_data_open (&options, &e->data, err);
    const char *key = "files";
    char where[256];

    if (status == TRAIN_OK && wanted > train_data_n_samples (e->data)) {
        key = "samples";
        status = err_set (
            err, TRAIN_EINVAL,
            "[eval] files have %" PRId64 " samples of %d tokens, not %" PRId64,
            train_data_n_samples (e->data), train_data_seq (e->data), wanted);
    } else if (rows)
        return status;
    if (status != TRAIN_OK)
        err_prefix (
            err, status, "%s",
            settings_where (e->set, "eval", key, where, sizeof (where)));
    return status;
}

train_status_t eval_open (struct eval **ret, const struct settings *set,
                          train_error_t *err)
{
    struct eval *e;
    train_status_t status = TRAIN_OK;

    *ret = NULL;
    if (set->eval.every == 0)
        return TRAIN_OK;
    if (!(e = calloc (1, sizeof (*e))))
        return err_set (err, TRAIN_ENOMEM, "no memory");
    e->set = set;
    if (set->eval.files)
        status = open_files (e, err);
    if (status != TRAIN_OK)
        eval_close (e);
    else
        *ret = e;
    return status;
}

void eval_close (struct eval *e)
{
    if (!e)
        return;
    train_data_close (e->data);
    free (e);
}

void eval_say (const struct eval *e)
{
    int64_t n;

    if (!e)
        return;
    n = e->set->eval.samples;
    if (e->data && n == 0)
        n = train_data_n_samples (e->data);
    printf ("eval: every %" PRId64 " steps, %" PRId64 " samples of %" PRId64
            " tokens%s\n",
            e->set->eval.every, n, e->set->seq,
            e->data ? " of other files" : ", held out");
}

bool eval_due (const struct eval *e, int64_t step)
{
    return e && (step % e->set->eval.every == 0 || step == e->set->steps);
}

train_status_t eval_run (struct eval *e, train_trainer_t *trainer,
                         train_eval_t *ret, train_error_t *err)
{
    train_eval_options_t options = settings_eval_options (e->set, e->data);

    return train_trainer_eval (trainer, &options, ret, err);
}
