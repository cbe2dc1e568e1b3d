/* SPDX-License-Identifier: Apache-2.0
 * grpo_loss.c - the policy loss of a batch, on the host and on a GPU */
#include "config.h"

#include "grpo.h"

#include <stdlib.h>

#include "err.h"
#include "opts.h"

static train_status_t missing (const char *what, const char *why,
                               train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL, "grpo: there is no %s, which %s", what,
                    why);
}

static train_status_t read_batch (const train_grpo_batch_t *given,
                                  const struct kern_grpo *o,
                                  train_grpo_batch_t *ret, train_error_t *err)
{
    TRY (opts_read (ret, sizeof (*ret), given, "grpo batch", err));
    if (ret->B < 0 || ret->T < 0)
        return err_set (err, TRAIN_EINVAL, "grpo: a batch of %lld x %lld",
                        (long long)ret->B, (long long)ret->T);
    if (ret->B == 0 || ret->T == 0)
        return TRAIN_OK;
    if (!ret->logp || !ret->adv || !ret->mask)
        return missing (!ret->logp  ? "logp"
                        : !ret->adv ? "adv"
                                    : "mask",
                        "every loss takes", err);
    if (o->beta > 0 && !ret->ref)
        return missing ("ref", "beta above 0 is of", err);
    if (o->correct != GRPO_NONE && !ret->sampled)
        return missing ("sampled", "the correction is of", err);
    if (o->beta == 0)
        ret->ref = NULL;
    return TRAIN_OK;
}

/* [whole] is of all batches and ranks, so no less than this one. */
static train_status_t too_few (const char *what, double whole, double batch,
                               train_error_t *err)
{
    return err_set (err, TRAIN_EINVAL,
                    "grpo: the step has %.0f %s and this batch %.0f: give "
                    "those of all batches and ranks",
                    whole, what, batch);
}

static train_status_t read_all (const train_grpo_options_t *opts,
                                const train_grpo_whole_t *whole,
                                const train_grpo_batch_t *given,
                                struct kern_grpo *o, train_grpo_batch_t *batch,
                                train_error_t *err)
{
    TRY (grpo_rules (opts, whole, o, err));
    TRY (read_batch (given, o, batch, err));
    if (o->mean != GRPO_TOKEN_MEAN && o->rows < (double)batch->B)
        return too_few ("rows", o->rows, (double)batch->B, err);
    return TRAIN_OK;
}

size_t train_grpo_rows_bytes (int64_t B)
{
    return B > 0 ? (size_t)B * sizeof (struct kern_grpo_row) : 0;
}

train_status_t train_grpo_report (const void *rows, int64_t B,
                                  train_grpo_report_t *ret, train_error_t *err)
{
    const struct kern_grpo_row *row = rows;
    train_grpo_report_t sum = {.size = sizeof (sum)};

    for (int64_t b = 0; b < B; b++, row++) {
        sum.loss += row->loss;
        sum.policy += row->policy;
        sum.kl += row->kl;
        sum.tokens += (int64_t)row->tokens;
        sum.kl_sum += row->kl_sum;
        sum.ratio_sum += row->ratio;
        sum.correction_sum += row->correction;
        sum.clipped_low += (int64_t)row->clipped_low;
        sum.clipped_high += (int64_t)row->clipped_high;
        sum.dropped += row->dropped > 0;
    }
    return opts_give (ret, &sum, sizeof (sum), "grpo report", err);
}

static train_status_t check_tokens (const struct kern_grpo *o,
                                    const struct kern_grpo_row *rows, int64_t B,
                                    train_error_t *err)
{
    double tokens = 0;

    for (int64_t b = 0; b < B; b++)
        tokens += rows[b].tokens;
    if (o->mean == GRPO_TOKEN_MEAN && tokens > o->tokens)
        return too_few ("tokens", o->tokens, tokens, err);
    return TRAIN_OK;
}

train_status_t train_grpo_loss (const train_grpo_options_t *opts,
                                const train_grpo_whole_t *whole,
                                const train_grpo_batch_t *given,
                                float *ret_grad, train_grpo_report_t *ret,
                                train_error_t *err)
{
    struct kern_grpo o;
    struct kern_grpo_row *rows;
    train_grpo_batch_t b;
    train_status_t status;

    TRY (opts_fits (ret, "grpo report", err));
    TRY (read_all (opts, whole, given, &o, &b, err));
    rows = calloc ((size_t)b.B + 1, sizeof (*rows));
    if (!rows)
        return err_set (err, TRAIN_ENOMEM, "grpo: no memory for %lld rows",
                        (long long)b.B);
    if (b.T > 0)
        kern_grpo_f32_host (rows, ret_grad, &o, b.logp, b.old, b.ref, b.sampled,
                            b.adv, b.mask, (size_t)b.B, (size_t)b.T, NULL);
    status = check_tokens (&o, rows, b.B, err);
    if (status == TRAIN_OK)
        status = train_grpo_report (rows, b.B, ret, err);
    free (rows);
    return status;
}

train_status_t train_grpo_loss_enqueue (const train_grpo_options_t *opts,
                                        const train_grpo_whole_t *whole,
                                        const train_grpo_batch_t *given,
                                        float *ret_grad, void *ret_rows,
                                        void *stream, train_error_t *err)
{
    struct kern_grpo o;
    train_grpo_batch_t b;

    TRY (read_all (opts, whole, given, &o, &b, err));
    if (!ret_rows)
        return missing ("ret_rows", "takes the sums", err);
#if HAVE_CUDA
    kern_grpo_f32_cuda (ret_rows, ret_grad, &o, b.logp, b.old, b.ref, b.sampled,
                        b.adv, b.mask, (size_t)b.B, (size_t)b.T, stream);
    return TRAIN_OK;
#else
    (void)ret_grad;
    (void)stream;
    return err_set (err, TRAIN_ENOTSUP,
                    "grpo: this library was built without CUDA: copy the batch "
                    "to the host and call train_grpo_loss");
#endif
}
