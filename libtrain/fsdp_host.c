/* SPDX-License-Identifier: Apache-2.0
 * fsdp_host.c - the engine's collectives on the host: works of a group, whose
 * buffers nobody touches until they are waited for */
#include "err.h"
#include "fsdp_impl.h"
#include "kernels/kernels.h"

static train_status_t op_open (struct fsdp *f, train_error_t *err)
{
    (void)f, (void)err;
    return TRAIN_OK;
}

static void op_close (struct fsdp *f)
{
    (void)f;
}

static train_status_t op_wait (struct fsdp *f, struct fsdp_work *w,
                               train_error_t *err)
{
    train_work_t *work = w->work;

    (void)f;
    *w = (struct fsdp_work){0}; /* the wait frees it, also when it fails */
    return work ? train_work_wait (work, -1, err) : TRAIN_OK;
}

/* A group's works come in their order; what is filled here does not. */
static train_status_t op_gather (struct fsdp *f, size_t u, size_t r,
                                 DLTensor *in, DLTensor *out,
                                 train_error_t *err)
{
    struct fsdp_work *w = &f->flats[r].gather;

    w->on = true;
    if (fsdp_in_place (f, r) && r > f->units[u].first)
        TRY (op_wait (f, &f->flats[r - 1].gather, err));
    if (fsdp_in_place (f, r))
        TRY (fsdp_fill_block (f, r, in->data, NULL, err));
    return train_all_gather_async (f->group, in, out, &w->work, err);
}

/* The flat unit's whole gradients become one block, in the middle of themselves.
 */
static train_status_t op_scatter (struct fsdp *f, size_t r, char *whole,
                                  char *wire, struct fsdp_work *w,
                                  train_error_t *err)
{
    size_t n = f->flats[r].plan->chunk;
    size_t size = train_dtype_size (f->opts.reduce);
    train_tensor_t in, out;

    if (wire) {
        kern_cast_f32_bf16_host ((uint16_t *)(void *)wire,
                                 (const float *)(void *)whole, n * f->world,
                                 NULL);
        whole = wire;
    }
    TRY (fsdp_view (f, &in, whole, f->opts.reduce, n * f->world, err));
    TRY (fsdp_view (f, &out, whole + (size_t)f->rank * n * size, f->opts.reduce,
                    n, err));
    w->on = true;
    return train_reduce_scatter_async (f->group, &in.t, &out.t, TRAIN_SUM,
                                       &w->work, err);
}

/* This rank's block of the reduced gradients joins the shard's. */
static void add_block (const struct fsdp *f, size_t r, const char *whole)
{
    const train_shard_unit_t *plan = f->flats[r].plan;
    size_t n = plan->chunk, block = (size_t)f->rank * n;

    if (f->opts.reduce == TRAIN_BF16) {
        kern_accumulate_bf16_host (
            (float *)f->grads.t.data + plan->at,
            (const uint16_t *)(const void *)whole + block, n, NULL);
    } else if (f->dtype == TRAIN_F64) {
        const double *from = (const double *)(const void *)whole + block;
        double *to = (double *)f->grads.t.data + plan->at;

        for (size_t i = 0; i < n; i++)
            to[i] += from[i];
    } else {
        kern_accumulate_f32_host ((float *)f->grads.t.data + plan->at,
                                  (const float *)(const void *)whole + block, n,
                                  NULL);
    }
}

static train_status_t op_joined (struct fsdp *f, size_t r, char *whole,
                                 char *wire, struct fsdp_work *w,
                                 train_error_t *err)
{
    bool on = w->on;

    TRY (op_wait (f, w, err));
    if (on)
        add_block (f, r, wire ? wire : whole);
    return TRAIN_OK;
}

static train_status_t op_sum (struct fsdp *f, DLTensor *t, struct fsdp_work *w,
                              train_error_t *err)
{
    w->on = true;
    return train_all_reduce_async (f->group, t, TRAIN_SUM, &w->work, err);
}

static void op_drain (struct fsdp *f)
{
    for (size_t r = 0; r < f->n_flats; r++) {
        if (f->flats)
            op_wait (f, &f->flats[r].gather, NULL);
        if (f->works)
            op_wait (f, &f->works[r], NULL);
    }
    for (size_t i = 0; i < FSDP_N_GRADS; i++)
        for (size_t k = 0; f->room[i].works && k < f->most_flats; k++)
            op_wait (f, &f->room[i].works[k], NULL);
    op_wait (f, &f->whole, NULL);
}

const struct fsdp_way fsdp_way_host = {
    .open = op_open,
    .close = op_close,
    .gather = op_gather,
    .wait = op_wait,
    .scatter = op_scatter,
    .joined = op_joined,
    .sum = op_sum,
    .drain = op_drain,
};
