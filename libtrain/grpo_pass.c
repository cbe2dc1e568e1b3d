/* SPDX-License-Identifier: Apache-2.0
 * grpo_pass.c - one forward and backward of completions: log-probabilities, the
 * loss where they lie, its gradient back through the decoder
 *
 * Row layout: place [p] of a row says token p + 1 of prompt and completion, so
 * completion token j of a prompt of n stands at n - 1 + j. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "grpo_run.h"

#define ALIGN 256

/* Arrays of a pass in t->work, as offsets. [real] ones are the kernels'. */
struct room {
    size_t logp, entropy, dlogp;   /* (N) real */
    size_t flogp, fgrad;           /* (N) float: of f64 alone */
    size_t old, ref, sampled, adv; /* (N) (N) (N) (B) float */
    size_t mask, rows;             /* (N) bytes; sums */
    size_t bytes;
};

static size_t take (struct room *r, size_t bytes)
{
    size_t at = r->bytes;

    r->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static struct room room_of (const train_decoder_t *m, int B, int T)
{
    size_t N = (size_t)B * (size_t)T, real = m->kern->real_size;
    size_t wide = real == sizeof (float) ? 0 : N * sizeof (float);
    struct room r = {0};

    r.logp = take (&r, N * real);
    r.entropy = take (&r, N * real);
    r.dlogp = take (&r, N * real);
    r.flogp = take (&r, wide);
    r.fgrad = take (&r, wide);
    r.rows = take (&r, train_grpo_rows_bytes (B));
    r.old = take (&r, N * sizeof (float));
    r.ref = take (&r, N * sizeof (float));
    r.sampled = take (&r, N * sizeof (float));
    r.adv = take (&r, (size_t)B * sizeof (float));
    r.mask = take (&r, N);
    if (wide == 0) { /* they are the same */
        r.flogp = r.logp;
        r.fgrad = r.dlogp;
    }
    return r;
}

size_t grpo_work_bytes (const train_decoder_t *m, int B, int T)
{
    return room_of (m, B, T).bytes;
}

void grpo_work_fini (train_grpo_trainer_t *t)
{
    const struct backend_ops *ops = t->decoder->ops;
    struct grpo_work *w = &t->work;

    if (w->host && w->host != w->device)
        ops->unpin (w->host, w->bytes);
    if (w->device)
        ops->free (w->device);
    free (w->tokens);
    free (w->targets);
    *w = (struct grpo_work){0};
}

static train_status_t grow (train_grpo_trainer_t *t, size_t bytes, size_t N,
                            train_error_t *err)
{
    struct grpo_work *w = &t->work;
    const train_decoder_t *m = t->decoder;
    void *device = NULL, *host = NULL;

    if (bytes <= w->bytes && N <= w->n_tokens)
        return TRAIN_OK;
    grpo_work_fini (t);
    w->tokens = calloc (N, sizeof (*w->tokens));
    w->targets = calloc (N, sizeof (*w->targets));
    if (!w->tokens || !w->targets)
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu tokens", N);
    w->n_tokens = N;
    TRY (m->ops->alloc (m->device, bytes, &device, err));
    w->device = device;
    if (m->gpu)
        TRY (m->ops->pin (m->device, bytes, &host, err));
    w->host = m->gpu ? host : device;
    w->bytes = bytes;
    return TRAIN_OK;
}

/* What a pass is about. */
struct batch {
    int first, B, T; /* texts first..first + B - 1 */
    struct room at;
    int64_t tokens; /* that count */
};

int grpo_wide (const train_grpo_trainer_t *t, int k)
{
    return t->texts.n_prompt[k] + t->texts.n[k];
}

/* Tokens, and as targets those that are trained on. */
static int64_t fill_row (const train_grpo_trainer_t *t, int k, int T,
                         int32_t *tokens, int32_t *targets)
{
    const struct grpo_texts *x = &t->texts;
    const int32_t *ids = x->ids + (size_t)k * (size_t)x->L;
    const uint8_t *mask = t->mask + (size_t)k * (size_t)x->L;
    int P = x->n_prompt[k];
    int64_t counted = 0;

    memset (tokens, 0, (size_t)T * sizeof (*tokens));
    for (int p = 0; p < T; p++)
        targets[p] = -1;
    for (int p = 0; p < P && p < T; p++)
        tokens[p] = x->prompt[k][p];
    for (int j = 0; j < x->n[k]; j++) {
        if (P + j < T)
            tokens[P + j] = ids[j];
        if (mask[j])
            targets[P - 1 + j] = ids[j];
        counted += mask[j] != 0;
    }
    return counted;
}

/* The forward; with [later] log-probabilities come with the backward. */
static train_status_t start (train_grpo_trainer_t *t, int first, int B,
                             bool later, struct batch *b, train_error_t *err)
{
    train_decoder_t *m = t->decoder;
    int T = 1;

    for (int k = first; k < first + B; k++)
        if (grpo_wide (t, k) - 1 > T)
            T = grpo_wide (t, k) - 1;
    if (m->gpu)
        T = (T + GRPO_GPU_STEP - 1) / GRPO_GPU_STEP * GRPO_GPU_STEP;
    *b = (struct batch){first, B, T, room_of (m, B, T), 0};
    TRY (grow (t, b->at.bytes, (size_t)B * (size_t)T, err));
    for (int i = 0; i < B; i++)
        b->tokens +=
            fill_row (t, first + i, T, t->work.tokens + (size_t)i * (size_t)T,
                      t->work.targets + (size_t)i * (size_t)T);
    TRY (decoder_prepare (m, B, T, err));
    TRY (decoder_take_ids (m, t->work.tokens, t->work.targets, NULL, err));
    return decoder_logps (m, later ? NULL : t->work.device + b->at.logp,
                          t->work.device + b->at.entropy, t->o.temperature,
                          err);
}

/* From (M,L) of completions to (B,T) of rows. */
static void spread (const train_grpo_trainer_t *t, const struct batch *b,
                    const float *from, float *to)
{
    const struct grpo_texts *x = &t->texts;

    memset (to, 0, (size_t)b->B * (size_t)b->T * sizeof (*to));
    for (int i = 0; i < b->B; i++) {
        int k = b->first + i;

        memcpy (to + (size_t)i * (size_t)b->T + x->n_prompt[k] - 1,
                from + (size_t)k * (size_t)x->L,
                (size_t)x->n[k] * sizeof (*to));
    }
}

/* And back. */
static void collect (const train_grpo_trainer_t *t, const struct batch *b,
                     const float *from, float *to)
{
    const struct grpo_texts *x = &t->texts;

    for (int i = 0; i < b->B; i++) {
        int k = b->first + i;

        memcpy (to + (size_t)k * (size_t)x->L,
                from + (size_t)i * (size_t)b->T + x->n_prompt[k] - 1,
                (size_t)x->n[k] * sizeof (*to));
    }
}

/* float of kernels' [real] on the host, and back, where they differ. */
static void narrow (float *to, const double *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

static void widen (double *to, const float *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (double)from[i];
}

static float *floats (const train_grpo_trainer_t *t, size_t at)
{
    return (float *)(void *)(t->work.host + at);
}

static double *doubles (const train_grpo_trainer_t *t, size_t at)
{
    return (double *)(void *)(t->work.host + at);
}

static bool is_wide (const train_grpo_trainer_t *t)
{
    return t->decoder->kern->real_size != sizeof (float);
}

static void fill_rest (train_grpo_trainer_t *t, const struct batch *b)
{
    struct grpo_work *w = &t->work;
    size_t N = (size_t)b->B * (size_t)b->T;

    if (t->old)
        spread (t, b, t->old, floats (t, b->at.old));
    if (t->ref)
        spread (t, b, t->ref, floats (t, b->at.ref));
    spread (t, b, t->texts.sampled, floats (t, b->at.sampled));
    memcpy (w->host + b->at.adv, t->adv + b->first,
            (size_t)b->B * sizeof (float));
    for (size_t i = 0; i < N; i++)
        w->host[b->at.mask + i] = w->targets[i] >= 0;
}

static struct train_grpo_whole whole_of (const train_grpo_trainer_t *t)
{
    struct grpo_place p = grpo_place (t, train_trainer_steps (t->trainer));
    struct train_grpo_whole w = {
        .size = sizeof (w),
        .rows = t->o.trainer.batch,
        .longest = t->o.max_new,
    };

    for (int k = p.row; k < p.row + t->o.trainer.batch; k++)
        w.tokens += t->lengths[k];
    return w;
}

static train_grpo_batch_t view (const train_grpo_trainer_t *t,
                                const struct batch *b)
{
    char *at = t->work.device;

    return (train_grpo_batch_t){
        .size = sizeof (train_grpo_batch_t),
        .B = b->B,
        .T = b->T,
        .logp = (float *)(void *)(at + b->at.flogp),
        .old = t->old ? (float *)(void *)(at + b->at.old) : NULL,
        .ref = t->ref ? (float *)(void *)(at + b->at.ref) : NULL,
        .sampled = (float *)(void *)(at + b->at.sampled),
        .adv = (float *)(void *)(at + b->at.adv),
        .mask = (uint8_t *)(at + b->at.mask),
    };
}

static void add (train_grpo_trainer_t *t, const struct batch *b,
                 const train_grpo_report_t *r)
{
    size_t N = (size_t)b->B * (size_t)b->T;
    train_grpo_report_t *sum = &t->report;

    for (size_t i = 0; i < N; i++)
        t->entropy += is_wide (t) ? doubles (t, b->at.entropy)[i]
                                  : (double)floats (t, b->at.entropy)[i];
    sum->loss += r->loss;
    sum->policy += r->policy;
    sum->kl += r->kl;
    sum->tokens += r->tokens;
    sum->kl_sum += r->kl_sum;
    sum->ratio_sum += r->ratio_sum;
    sum->correction_sum += r->correction_sum;
    sum->clipped_low += r->clipped_low;
    sum->clipped_high += r->clipped_high;
    sum->dropped += r->dropped;
}

/* Does the gradient over log-probabilities not hang on them? On its own policy
 * the ratio is 1 whatever they are. */
static bool is_blind (const train_grpo_trainer_t *t)
{
    const train_grpo_options_t *l = &t->o.loss;

    return !t->old && !t->ref && l->correct == TRAIN_GRPO_UNCORRECTED
           && !l->off_policy_mask && l->kind != TRAIN_GRPO_CISPO
           && l->kind != TRAIN_GRPO_CISPO_CLIP;
}

static train_status_t backward (train_grpo_trainer_t *t, const struct batch *b,
                                train_error_t *err)
{
    char *at = t->work.device;

    return decoder_logps_bwd (t->decoder, at + b->at.dlogp, at + b->at.logp,
                              at + b->at.entropy, err);
}

/* Ranks may be waited for, with the group's deadline. */
static train_status_t settle (const train_grpo_trainer_t *t, train_error_t *err)
{
    const train_decoder_t *m = t->decoder;

    if (t->trainer->fsdp)
        return fsdp_settle (t->trainer->fsdp, err);
    return m->ops->sync (m->stream, err);
}

static train_status_t loss_on_gpu (train_grpo_trainer_t *t,
                                   const struct batch *b,
                                   const train_grpo_whole_t *whole,
                                   train_error_t *err)
{
    train_decoder_t *m = t->decoder;
    struct grpo_work *w = &t->work;
    train_grpo_batch_t batch = view (t, b);
    train_grpo_report_t report = {.size = sizeof (report)};

    if (is_blind (t))
        TRY (m->ops->fill (m->device, w->device, 0, b->at.entropy, m->stream,
                           err));
    TRY (m->ops->copy (w->device + b->at.old, w->host + b->at.old,
                       b->at.bytes - b->at.old, m->stream, err));
    TRY (train_grpo_loss_enqueue (&t->o.loss, whole, &batch,
                                  (float *)(void *)(w->device + b->at.fgrad),
                                  w->device + b->at.rows, m->stream, err));
    TRY (backward (t, b, err));
    TRY (m->ops->copy (w->host, w->device, b->at.old, m->stream, err));
    TRY (settle (t, err));
    TRY (train_grpo_report (w->host + b->at.rows, b->B, &report, err));
    add (t, b, &report);
    return TRAIN_OK;
}

static train_status_t loss_on_host (train_grpo_trainer_t *t,
                                    const struct batch *b,
                                    const train_grpo_whole_t *whole,
                                    double scale, train_error_t *err)
{
    size_t N = (size_t)b->B * (size_t)b->T;
    train_grpo_batch_t batch = view (t, b);
    train_grpo_report_t report = {.size = sizeof (report)};
    float *grad = floats (t, b->at.fgrad);

    if (is_blind (t))
        memset (t->work.host, 0, b->at.entropy);
    if (is_wide (t))
        narrow (floats (t, b->at.flogp), doubles (t, b->at.logp), N);
    TRY (train_grpo_loss (&t->o.loss, whole, &batch, grad, &report, err));
    for (size_t i = 0; i < N && scale != 1; i++)
        grad[i] *= (float)scale;
    if (is_wide (t))
        widen (doubles (t, b->at.dlogp), grad, N);
    TRY (backward (t, b, err));
    add (t, b, &report);
    return TRAIN_OK;
}

static train_status_t pass (train_grpo_trainer_t *t, int first, int n,
                            double scale, int64_t *counted, train_error_t *err)
{
    struct train_grpo_whole whole = whole_of (t);
    struct batch b;

    TRY (start (t, first, n, is_blind (t), &b, err));
    fill_rest (t, &b);
    *counted += b.tokens;
    t->trainer->slow.now += (int64_t)b.B * b.T;
    return t->decoder->gpu ? loss_on_gpu (t, &b, &whole, err)
                           : loss_on_host (t, &b, &whole, scale, err);
}

void grpo_count_anew (train_grpo_trainer_t *t)
{
    t->report = (train_grpo_report_t){.size = sizeof (t->report)};
    t->entropy = 0;
}

train_status_t grpo_pass (void *arg, int first, int n, double scale,
                          int64_t *counted, train_error_t *err)
{
    train_grpo_trainer_t *t = arg;
    struct grpo_place p = grpo_place (t, train_trainer_steps (t->trainer));
    int before = t->decoder->ops->enter (t->decoder->device);
    train_status_t status;

    if (first == t->trainer->first) /* trainer_look makes all passes again */
        grpo_count_anew (t);
    status = pass (t, p.row + first, n, scale, counted, err);
    t->decoder->ops->leave (before);
    return status;
}

train_status_t grpo_old (train_grpo_trainer_t *t, int first, int n,
                         train_error_t *err)
{
    train_decoder_t *m = t->decoder;
    struct batch b;

    TRY (decoder_meet (m, 1, err));
    TRY (start (t, first, n, false, &b, err));
    if (m->gpu)
        TRY (m->ops->copy (t->work.host, t->work.device, b.at.old, m->stream,
                           err));
    TRY (decoder_wait (m, err));
    if (is_wide (t))
        narrow (floats (t, b.at.flogp), doubles (t, b.at.logp),
                (size_t)b.B * (size_t)b.T);
    collect (t, &b, floats (t, b.at.flogp), t->old);
    return TRAIN_OK;
}
