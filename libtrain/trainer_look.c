/* SPDX-License-Identifier: Apache-2.0
 * trainer_look.c - make a bad step again and name its first value that is not
 * finite
 *
 * All ranks make all passes, whatever they find, so that none waits for
 * another; then the earliest finding is everyone's. */
#include <train/watch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decoder_look.h"
#include "err.h"
#include "trainer.h"

#define NEVER INT64_MAX

/* What this rank found: when, as pass and visit in one number. */
struct found {
    int64_t when;
    char text[400];
};

static void take (struct found *f, const train_trainer_t *t, int pass,
                  const struct decoder_look *look)
{
    char host[65] = "?";

    gethostname (host, sizeof (host) - 1);
    f->when = ((int64_t)pass << 32) + look->when;
    if (pass < t->passes)
        snprintf (f->text, sizeof (f->text),
                  "%s (rank %d on %s, pass %d of %d)", look->text,
                  train_group_rank (t->group), host, pass + 1, t->passes);
    else
        snprintf (f->text, sizeof (f->text),
                  "%s, once ranks and passes were added", look->text);
}

/* Where each addend is finite the sum may not be. */
static train_status_t look_at_sums (train_trainer_t *t,
                                    struct decoder_look *look,
                                    train_error_t *err)
{
    const train_shard_plan_t *plan = train_trainer_plan (t);
    const DLTensor *grads =
        t->gpu ? train_decoder_grads (t->decoder) : fsdp_grads (t->fsdp);
    train_dtype_t dtype = t->gpu ? TRAIN_F32 : fsdp_real (t->fsdp);

    for (size_t i = 0; i < train_shard_n_params (plan) && !look->found; i++) {
        train_shard_range_t r = t->gpu ? train_shard_range (plan, i, 0)
                                       : fsdp_grad_range (t->fsdp, i);
        size_t first = t->gpu ? decoder_grad_at (t->decoder, r.at) : r.at;
        const char *at =
            (const char *)grads->data + first * train_dtype_size (dtype);
        size_t bad;
        bool inf;

        if (r.count == 0 || (t->gpu && decoder_is_still (t->decoder, r.at)))
            continue;
        TRY (decoder_look_first (look, at, dtype, r.count, &bad, &inf, err));
        look->found = bad < r.count;
        snprintf (look->text, sizeof (look->text), "%s in the gradient of %s",
                  inf ? "Inf" : "NaN", train_shard_param (plan, i)->name);
    }
    return TRAIN_OK;
}

static train_status_t search (train_trainer_t *t, struct decoder_look *look,
                              struct found *f, train_error_t *err)
{
    double loss;
    int64_t n;

    TRY (t->gpu ? trainer_gpu_begin (t, err) : fsdp_begin (t->fsdp, err));
    for (int p = 0; p < t->passes; p++) {
        decoder_look_pass (look);
        TRY (trainer_pass (t, p, &loss, &n, err));
        if (look->found && f->when == NEVER)
            take (f, t, p, look);
    }
    TRY (t->gpu ? trainer_gpu_finish (t, err) : trainer_shard_finish (t, err));
    if (look->found)
        return TRAIN_OK;
    look->when = 0;
    TRY (look_at_sums (t, look, err));
    if (look->found)
        take (f, t, t->passes, look);
    return TRAIN_OK;
}

static train_status_t least (train_trainer_t *t, int64_t *value,
                             train_error_t *err)
{
    int64_t shape[1] = {1};
    train_tensor_t view;

    TRY (train_tensor_view (&view, value, TRAIN_I64, 1, shape, err));
    return train_all_reduce (t->group, &view.t, TRAIN_MIN, err);
}

/* The earliest of all ranks, and of those the lowest rank's. */
static train_status_t agree (train_trainer_t *t, const struct found *f,
                             train_error_t *err)
{
    int64_t first = f->when, rank = train_group_size (t->group);
    void *text = NULL;
    char line[480];
    size_t n;

    TRY (least (t, &first, err));
    if (f->when == first)
        rank = train_group_rank (t->group);
    TRY (least (t, &rank, err));
    TRY (train_broadcast_object (t->group, f->text, strlen (f->text) + 1,
                                 (int)rank, &text, &n, err));
    snprintf (line, sizeof (line), "step %lld: %s", (long long)t->step + 1,
              (const char *)text);
    free (text);
    free (t->nonfinite);
    t->nonfinite = strdup (line);
    return t->nonfinite ? TRAIN_OK
                        : err_set (err, TRAIN_ENOMEM, "no memory for a line");
}

static train_status_t settle (void *fsdp, train_error_t *err)
{
    return fsdp_settle (fsdp, err);
}

train_status_t trainer_look (train_trainer_t *t, train_error_t *err)
{
    struct found f = {NEVER, "loss or norm is not finite, and no value of the "
                             "same passes made again is"};
    struct decoder_look look;
    train_status_t status = decoder_look_begin (&look, t->decoder, err);

    if (t->fsdp) {
        look.settle = settle;
        look.settle_arg = t->fsdp;
    }
    if (status == TRAIN_OK)
        status = search (t, &look, &f, err);
    decoder_look_end (&look);
    return status == TRAIN_OK ? agree (t, &f, err) : status;
}

const char *train_trainer_nonfinite (const train_trainer_t *t)
{
    return t->nonfinite;
}
