/* SPDX-License-Identifier: Apache-2.0
 * trainer_eval.c - the loss of samples that are not trained on
 *
 * A pass has the same rows whatever the number of ranks, and its loss is kept
 * apart until all are there: what each rank adds to the others' is zero, so the
 * order of the sum is that of the passes. A rank without a pass of its own
 * makes another's again, so that all visit the units of a sharded model. */
#include <train/watch.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <train/trace.h>

#include "data_impl.h"
#include "decoder_spent.h"
#include "err.h"
#include "opts.h"
#include "sock.h"
#include "trainer.h"

struct eval {
    const train_data_t *data;
    bool held; /* its samples that are held out */
    int64_t samples, passes;
    int rows, seq;
    int32_t *tokens, *targets; /* (rows, seq) */
    int32_t *starts;           /* as these, with documents; else NULL */
    double *sums;              /* (passes) losses, then (passes) tokens */
};

static train_status_t count_samples (struct eval *e, int64_t wanted,
                                     train_error_t *err)
{
    int64_t there =
        e->held ? train_data_held (e->data) : train_data_n_samples (e->data);

    if (wanted < 0 || wanted > there || there == 0)
        return err_set (err, TRAIN_EINVAL,
                        "evaluation: %lld samples of %lld that %s",
                        (long long)wanted, (long long)there,
                        e->held ? "are held out" : "the data has");
    e->samples = wanted ? wanted : there;
    e->passes = (e->samples + e->rows - 1) / e->rows;
    return TRAIN_OK;
}

static train_status_t prepare (struct eval *e, const train_trainer_t *t,
                               const train_eval_options_t *opts,
                               train_error_t *err)
{
    train_eval_options_t o;
    size_t n;

    TRY (opts_read (&o, sizeof (o), opts, "evaluation", err));
    if (o.rows < 0)
        return err_set (err, TRAIN_EINVAL, "evaluation: rows %d is below 0",
                        o.rows);
    *e = (struct eval){.data = o.data ? o.data : t->data, .held = !o.data};
    e->rows = o.rows ? o.rows : 1;
    e->seq = train_data_seq (e->data);
    TRY (count_samples (e, o.samples, err));
    n = (size_t)e->rows * (size_t)e->seq;
    e->tokens = calloc (n, sizeof (*e->tokens));
    e->targets = calloc (n, sizeof (*e->targets));
    e->sums = calloc (2 * (size_t)e->passes, sizeof (*e->sums));
    if (train_data_is_documents (e->data))
        e->starts = calloc (n, sizeof (*e->starts));
    if (!e->tokens || !e->targets || !e->sums
        || (train_data_is_documents (e->data) && !e->starts))
        return err_set (err, TRAIN_ENOMEM,
                        "no memory to evaluate %d samples of %d tokens",
                        e->rows, e->seq);
    return TRAIN_OK;
}

/* Rows behind the last sample do not count. */
static train_status_t take_rows (const struct eval *e, int64_t pass,
                                 train_error_t *err)
{
    for (int i = 0; i < e->rows; i++) {
        int64_t s = pass * e->rows + i;
        int32_t *tokens = e->tokens + (size_t)i * (size_t)e->seq;
        int32_t *targets = e->targets + (size_t)i * (size_t)e->seq;

        int64_t position = e->held ? -1 - s : s;
        int32_t *starts =
            e->starts ? e->starts + (size_t)i * (size_t)e->seq : NULL;

        if (s < e->samples) {
            train_data_get (e->data, position, tokens, targets);
            TRY (data_check (e->data, position, tokens, targets, err));
            if (starts)
                train_data_starts_at (e->data, position, tokens, starts);
        } else {
            for (int j = 0; j < e->seq; j++) {
                tokens[j] = 0;
                targets[j] = -1;
                if (starts)
                    starts[j] = 0;
            }
        }
    }
    return TRAIN_OK;
}

/* Between steps nobody reads gradients: where a step lends activations their
 * memory an evaluation does, else it would need more than the step. */
static void lend (train_trainer_t *t, bool on)
{
    if (t->gpu || fsdp_lends (t->fsdp))
        decoder_spend_grads (t->decoder, on && t->passes == 1);
}

static train_status_t run_pass (train_trainer_t *t, struct eval *e,
                                int64_t pass, bool mine, train_error_t *err)
{
    double loss;
    int64_t n;

    if (!t->gpu)
        TRY (fsdp_pass (t->fsdp, false, err));
    lend (t, true);
    TRY (take_rows (e, pass, err));
    train_decoder_documents (t->decoder, e->starts);
    TRY (train_decoder_dropout (t->decoder, 0, 0, 0, 0, err));
    if (trainer_shard_serves (t))
        TRY (trainer_shard_forward (t, e->tokens, e->targets, e->rows, e->seq,
                                    &loss, &n, err));
    else
        TRY (train_decoder_forward (t->decoder, NULL, e->tokens, e->targets,
                                    e->rows, e->seq, &loss, &n, err));
    if (!mine)
        return TRAIN_OK;
    e->sums[pass] = loss;
    e->sums[e->passes + pass] = (double)n;
    return TRAIN_OK;
}

static train_status_t run_passes (train_trainer_t *t, struct eval *e,
                                  train_error_t *err)
{
    int64_t size = train_group_size (t->group);
    int64_t rank = train_group_rank (t->group);

    for (int64_t first = 0; first < e->passes; first += size) {
        int64_t pass = first + rank;
        bool mine = pass < e->passes;

        TRY (run_pass (t, e, mine ? pass : first, mine, err));
    }
    return t->gpu ? TRAIN_OK : fsdp_drop (t->fsdp, err);
}

static train_status_t add_up (train_trainer_t *t, const struct eval *e,
                              train_eval_t *ret, train_error_t *err)
{
    int64_t shape[1] = {2 * e->passes};
    double loss = 0, tokens = 0;
    train_tensor_t view;

    TRY (train_tensor_view (&view, e->sums, TRAIN_F64, 1, shape, err));
    TRY (train_all_reduce (t->group, &view.t, TRAIN_SUM, err));
    for (int64_t p = 0; p < e->passes; p++) {
        loss += e->sums[p];
        tokens += e->sums[e->passes + p];
    }
    ret->loss = tokens > 0 ? loss / tokens : NAN;
    ret->samples = e->samples;
    ret->tokens = (int64_t)tokens;
    return TRAIN_OK;
}

train_status_t train_trainer_eval (train_trainer_t *t,
                                   const train_eval_options_t *opts,
                                   train_eval_t *ret_eval, train_error_t *err)
{
    double begin = clock_s ();
    train_span_t span = train_trace_begin ("step", "evaluation");
    train_eval_t got = {0};
    struct eval e = {0};
    train_status_t status = prepare (&e, t, opts, err);

    if (status == TRAIN_OK)
        status = run_passes (t, &e, err);
    if (status == TRAIN_OK)
        status = add_up (t, &e, &got, err);
    lend (t, false);
    train_trace_end (&span, NULL, NULL, 0);
    train_decoder_documents (t->decoder, NULL);
    free (e.starts);
    free (e.tokens);
    free (e.targets);
    free (e.sums);
    if (status != TRAIN_OK)
        return trainer_name_saved (t, status, err);
    got.eval_s = clock_s () - begin;
    *ret_eval = got;
    return TRAIN_OK;
}
