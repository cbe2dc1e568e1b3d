/* SPDX-License-Identifier: Apache-2.0
 * fsdp_run.c - a training run of one device, and the same run by a rank */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "fsdp_run.h"
#include "kernels/half.h"
#include "libtrain/decoder_impl.h"

#define ROWS 5
#define T    6
#define SEED 7

const train_adamw_options_t adamw = {.size = sizeof (adamw),
                                     .beta1 = 0.9,
                                     .beta2 = 0.95,
                                     .eps = 1e-8,
                                     .weight_decay = 0.1};

struct fsdp_run run;

static int vocab (void)
{
    return run.wide ? 150 : 37;
}

static train_decoder_config_t config_of (void)
{
    return (train_decoder_config_t){.size = sizeof (train_decoder_config_t),
                                    .layers = 3,
                                    .dim = 10,
                                    .head_dim = 6,
                                    .heads = 4,
                                    .kv_heads = 2,
                                    .ffn = 13,
                                    .vocab = vocab (),
                                    .tie = run.tie,
                                    .rope_theta = 10000,
                                    .norm_eps = 1e-5,
                                    .dtype = run.dtype,
                                    .lora = {.rank = run.lora,
                                             .alpha = 2 * run.lora,
                                             .targets = run.lora ? 0x7f : 0}};
}

bool run_trains (const char *name)
{
    char list[200], *next = list, *pattern;

    if (run.lora && !decoder_is_lora (name))
        return false;
    snprintf (list, sizeof (list), "%s",
              run.opts.frozen ? run.opts.frozen : "");
    while ((pattern = strsep (&next, ",")))
        if (fnmatch (pattern, name, 0) == 0)
            return false;
    return true;
}

/* Tokens of a few rows of a step's batch: a sum with a remainder, some noise. */
static void rows_of (int step, int first, int n, int32_t *tokens,
                     int32_t *targets)
{
    for (int b = 0; b < n; b++) {
        uint32_t x = (uint32_t)(step * 131 + (first + b) * 17 + 1);

        for (int t = 0; t < T; t++) {
            tokens[b * T + t] = (int32_t)(x % (uint32_t)vocab ());
            x = x * 5 + 3 + (x >> 7);
            targets[b * T + t] =
                t == 2 ? -1 : (int32_t)(x % (uint32_t)vocab ());
        }
    }
}

#define COUNTED (ROWS * (T - 1))

train_dtype_t real (void)
{
    return run.dtype == TRAIN_F64 ? TRAIN_F64 : TRAIN_F32;
}

/* One device: weights rounded from masters where they are shorter. */
struct one {
    train_decoder_t *decoder, *masters; /* the same where they are not */
    train_adamw_t *adamw;
};

static void round_masters (const struct one *o)
{
    const float *x = train_decoder_weights (o->masters)->data;
    uint16_t *y = train_decoder_weights (o->decoder)->data;

    for (size_t i = 0; i < train_decoder_numel (o->decoder); i++)
        y[i] =
            run.dtype == TRAIN_BF16 ? half_to_bf16 (x[i]) : half_to_f16 (x[i]);
}

static struct one open_one (void)
{
    train_decoder_config_t c = config_of ();
    train_param_t params[128];
    struct one o;
    size_t n = 0;

    assert_int_equal (train_decoder_create (&c, &o.decoder, NULL), 0);
    c.dtype = real ();
    o.masters = o.decoder;
    if (real () != run.dtype)
        assert_int_equal (train_decoder_create (&c, &o.masters, NULL), 0);
    train_decoder_init (o.masters, SEED);
    for (size_t i = 0; i < train_decoder_n_params (o.decoder); i++)
        if (run_trains (train_decoder_param (o.decoder, i)->name))
            params[n++] = *train_decoder_param (o.decoder, i);
    assert_int_equal (train_adamw_create (&adamw, real (),
                                          train_decoder_numel (o.decoder),
                                          params, n, &o.adamw, NULL),
                      0);
    return o;
}

static double param_sumsq (const DLTensor *grads, const train_param_t *p)
{
    size_t size = train_dtype_size (real ());
    double norm = 0;
    train_tensor_t t;

    assert_true (view_of (&t, (char *)grads->data + p->offset * size, real (),
                          p->count));
    assert_int_equal (train_norm (&t.t, &norm, NULL), 0);
    return norm * norm;
}

static void clear_frozen (const struct one *o, DLTensor *grads)
{
    size_t size = train_dtype_size (real ());

    for (size_t i = 0; i < train_decoder_n_params (o->decoder); i++) {
        const train_param_t *p = train_decoder_param (o->decoder, i);

        if (!run_trains (p->name))
            memset ((char *)grads->data + p->offset * size, 0, p->count * size);
    }
}

static void one_step (const struct one *o, int s)
{
    DLTensor *grads = train_decoder_grads (o->decoder);
    int32_t tokens[ROWS * T], targets[ROWS * T];
    int64_t n;

    if (o->masters != o->decoder)
        round_masters (o);
    memset (grads->data, 0, train_tensor_bytes (grads));
    rows_of (s, 0, ROWS, tokens, targets);
    assert_int_equal (train_decoder_step (o->decoder, tokens, targets, ROWS, T,
                                          1.0 / COUNTED, &run.want[s], &n,
                                          NULL),
                      0);
    run.want[s] /= COUNTED;
    clear_frozen (o, grads);
    assert_int_equal (train_norm (grads, &run.norm[s], NULL), 0);
    for (size_t i = 0; i < train_decoder_n_params (o->decoder); i++)
        run.part[i] = param_sumsq (grads, train_decoder_param (o->decoder, i));
    assert_int_equal (
        train_adamw_step (o->adamw, train_decoder_weights (o->masters), grads,
                          0.01, train_clip_scale (run.norm[s], 1), NULL),
        0);
}

static void reference (void)
{
    struct one o = open_one ();
    double norm = 0;

    for (int s = 0; s < run.steps; s++)
        one_step (&o, s);
    assert_int_equal (
        train_norm (train_decoder_weights (o.masters), &norm, NULL), 0);
    run.weights = norm * norm;
    train_adamw_destroy (o.adamw);
    if (o.masters != o.decoder)
        train_decoder_destroy (o.masters);
    train_decoder_destroy (o.decoder);
}

train_status_t open_rank (struct rank *r, train_error_t *err)
{
    train_decoder_config_t c = config_of ();
    bool sharded = run.opts.strategy >= TRAIN_SHARD_GRAD_OP;
    int size = train_group_size (r->group), rank = train_group_rank (r->group);
    int most = (ROWS + size - 1) / size;
    train_status_t status = sharded
                                ? decoder_create_bare (&c, &r->decoder, err)
                                : train_decoder_create (&c, &r->decoder, err);

    r->first = rank * ROWS / size;
    r->rows = (rank + 1) * ROWS / size - r->first;
    if (run.uneven && size > 1) {
        r->first = rank > 0 ? (rank - 1) * ROWS / (size - 1) : 0;
        r->rows = rank > 0 ? rank * ROWS / (size - 1) - r->first : 0;
        most = (ROWS + size - 2) / (size - 1);
    }
    r->micro = run.micro ? run.micro : ROWS;
    r->passes = (most + r->micro - 1) / r->micro;
    if (status == TRAIN_OK && run.to_gpu)
        run.to_gpu (r);
    if (status == TRAIN_OK)
        status =
            fsdp_of_decoder (&run.opts, r->group, r->decoder, &r->fsdp, err);
    if (status == TRAIN_OK && run.hook)
        run.hook (r);
    if (status == TRAIN_OK)
        status = fsdp_adamw (r->fsdp, r->decoder, &adamw, &r->adamw, err);
    if (status == TRAIN_OK)
        status =
            fsdp_init_decoder (r->fsdp, r->decoder, NULL, SEED, r->adamw, err);
    return status;
}

void close_rank (struct rank *r)
{
    train_adamw_destroy (r->adamw);
    fsdp_destroy (r->fsdp);
    train_decoder_destroy (r->decoder);
}

static train_status_t pass (struct rank *r, int step, int p, double *loss,
                            train_error_t *err)
{
    int at = p * r->micro, n = r->rows - at;
    int32_t tokens[ROWS * T], targets[ROWS * T];
    int64_t counted = 0;
    double sum = 0;
    train_status_t status;

    status = fsdp_pass (r->fsdp, p + 1 == r->passes, err);
    if (status != TRAIN_OK)
        return status;
    if (n <= 0)
        return fsdp_empty_pass (r->fsdp, err);
    if (n > r->micro)
        n = r->micro;
    rows_of (step, r->first + at, n, tokens, targets);
    if (run.to_gpu) /* the loss stays there */
        return decoder_step_add (r->decoder, tokens, targets, n, T,
                                 1.0 / COUNTED, &counted, err);
    status = train_decoder_step (r->decoder, tokens, targets, n, T,
                                 1.0 / COUNTED, &sum, &counted, err);
    *loss += sum;
    return status;
}

static train_status_t finish_on_gpu (struct rank *r, double ret[2],
                                     train_error_t *err)
{
    const struct fsdp_update update = {0.01, 1, 1};
    const double own[2] = {r->rows, 1};
    struct fsdp_report report = {0};
    train_status_t status =
        fsdp_finish (r->fsdp, r->adamw, &update, own, 2, &report, err);

    ret[0] = report.loss / COUNTED;
    ret[1] = report.norm;
    if (status == TRAIN_OK
        && (report.skipped || report.sums[0] != ROWS
            || report.sums[1] != train_group_size (r->group)))
        ret[0] = -1;
    return status;
}

train_status_t rank_step (struct rank *r, int s, double ret[2],
                          train_error_t *err)
{
    train_status_t status = fsdp_begin (r->fsdp, err);
    train_tensor_t t;

    ret[0] = 0;
    for (int p = 0; p < r->passes && status == TRAIN_OK; p++)
        status = pass (r, s, p, &ret[0], err);
    if (status == TRAIN_OK && run.to_gpu)
        return finish_on_gpu (r, ret, err);
    if (status == TRAIN_OK)
        status = fsdp_end (r->fsdp, err);
    if (status != TRAIN_OK)
        return status;
    ret[0] /= COUNTED;
    ret[1] = fsdp_sumsq (r->fsdp);
    if (!view_of (&t, ret, TRAIN_F64, 2))
        return TRAIN_EINVAL;
    status = train_all_reduce (r->group, &t.t, TRAIN_SUM, err);
    ret[1] = sqrt (ret[1]);
    if (status == TRAIN_OK)
        status = train_adamw_step (r->adamw, fsdp_weights (r->fsdp),
                                   fsdp_grads (r->fsdp), 0.01,
                                   train_clip_scale (ret[1], 1), err);
    fsdp_updated (r->fsdp);
    return status;
}

bool near (double a, double b, double bound)
{
    return fabs (a - b) <= bound * fabs (b);
}

const char *const worlds[] = {"a", "aa", "aba", "aabb"};

struct fsdp_options opts_of (train_strategy_t strategy, size_t least,
                             int prefetch, bool no_sync)
{
    return (struct fsdp_options){.strategy = strategy,
                                 .wrap =
                                     least ? TRAIN_WRAP_SIZE : TRAIN_WRAP_UNIT,
                                 .least = least,
                                 .prefetch = prefetch,
                                 .no_sync = no_sync,
                                 .reduce = real ()};
}

void prepare (train_dtype_t dtype, bool tie, int steps, double bound)
{
    run.dtype = dtype;
    run.tie = tie;
    run.steps = steps;
    run.bound = bound;
    reference ();
}

void check_unused (struct job *job, int rank, struct rank *r)
{
    char names[400] = "x";
    train_error_t err = {0};

    if (fsdp_unused (r->fsdp, names, sizeof (names), &err) != TRAIN_OK)
        note (job, rank, err.text, 0, 0, 0);
    else if (names[0])
        note (job, rank, names, 0, 0, 0);
}

/* A norm of gradients, small differences of what is large beside them, drifts by
 * as much as 1e-10 in 50 steps of double: how far hangs on the order in which the
 * CPU's BLAS adds. */
train_status_t step_agrees (struct job *job, int rank, struct rank *r, int s,
                            train_error_t *err)
{
    double got[2], room = run.dtype == TRAIN_F64 ? 1e-9 : 100 * run.bound;
    train_status_t status = rank_step (r, s, got, err);
    char text[160];

    if (status != TRAIN_OK
        || (near (got[0], run.want[s], run.bound)
            && near (got[1], run.norm[s], room)))
        return status;
    snprintf (text, sizeof (text),
              "step %d: loss %.17g, not %.17g; norm %.17g, not %.17g", s,
              got[0], run.want[s], got[1], run.norm[s]);
    note (job, rank, text, 0, 0, 0);
    return status;
}

void run_ranks (const char *layout, rank_f body, const char *backend)
{
    struct job job = {.layout = layout, .body = body, .backend = backend};

    run_job (&job);
    for (int r = 0; r < job.size; r++)
        if (job.shared->seen[r].note[0] || job.shared->seen[r].status)
            fail_msg ("%s rank %d, strategy %d, wrap %zu, prefetch %d, micro "
                      "%d, tie %d, no_sync %d: %s %s",
                      layout, r, run.opts.strategy, run.opts.least,
                      run.opts.prefetch, run.micro, run.tie, run.opts.no_sync,
                      job.shared->seen[r].note, job.shared->seen[r].err.text);
    want_ok (&job);
    free_job (&job);
}

void open_only (struct job *job, int rank, train_group_t *group)
{
    struct seen *seen = &job->shared->seen[rank];
    struct rank r = {.group = group};

    seen->status = open_rank (&r, &seen->err);
    close_rank (&r);
}
