/* SPDX-License-Identifier: Apache-2.0
 * decoder_cuda.c - products and attention of a decoder on a GPU: cuBLASLt and
 * cuDNN where they are, our own kernels elsewhere */
#include <math.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "decoder_impl.h"
#include "err.h"

#include "kernels/attention.h"
#include "kernels/gemm_glu.h"
#include "kernels/linear_ce.h"
#include "kernels/linear_ce_parts.h"

struct engine {
    struct gemm_lt *gemm;
    struct attention *attention;
    struct attention_shape shape;
    enum gemm_lt_dtype dtype;
    bool glu; /* SwiGLU in its products is served */
};

static void op_destroy (train_decoder_t *m)
{
    struct engine *e = m->engine;

    if (!e)
        return;
    gemm_lt_destroy (e->gemm);
    attention_destroy (e->attention);
    free (e);
    m->engine = NULL;
}

/* cuBLASLt, or where there is none the kernels that do without. A trial's
 * winner is not the same each time, so the same bits take the first candidate.
 */
static train_status_t open_gemm (const train_decoder_t *m, struct engine *e,
                                 train_error_t *err)
{
    struct gemm_lt_opts opts = {.size = sizeof (opts),
                                .deterministic = m->config.deterministic,
                                .untimed = m->config.deterministic};
    char why[GEMM_LT_WHY] = "";
    enum gemm_lt_status rc = gemm_lt_create (&e->gemm, &opts, why);

    if (rc == GEMM_LT_ENOTSUP) {
        opts.own = true;
        rc = gemm_lt_create (&e->gemm, &opts, why);
    }
    if (rc != GEMM_LT_OK)
        return err_set (err, (train_status_t)rc, "products on the GPU: %s",
                        why);
    return TRAIN_OK;
}

static enum gemm_lt_dtype dtype_of (const train_decoder_t *m)
{
    return m->config.dtype == TRAIN_F32    ? GEMM_LT_F32
           : m->config.dtype == TRAIN_BF16 ? GEMM_LT_BF16
                                           : GEMM_LT_F16;
}

static train_status_t open_engine (train_decoder_t *m, train_error_t *err)
{
    struct engine *e = calloc (1, sizeof (*e));

    if (!e)
        return err_set (err, TRAIN_ENOMEM, "no memory for a decoder");
    m->engine = e;
    e->dtype = dtype_of (m);
    e->glu = e->dtype != GEMM_LT_F32 && kern_gemm_glu_served ();
    if (!(e->attention = attention_create ()))
        return err_set (err, TRAIN_ENOMEM, "no memory for attention");
    return open_gemm (m, e, err);
}

static train_status_t need_engine (train_decoder_t *m, train_error_t *err)
{
    train_status_t status;

    if (m->engine)
        return TRAIN_OK;
    if ((status = open_engine (m, err)) != TRAIN_OK)
        op_destroy (m);
    return status;
}

static struct attention_shape shape_of (const train_decoder_t *m, int B, int T)
{
    const struct decoder_dims *d = &m->dims;

    return (struct attention_shape){
        .dtype = m->config.dtype == TRAIN_F32    ? ATTENTION_F32
                 : m->config.dtype == TRAIN_BF16 ? ATTENTION_BF16
                                                 : ATTENTION_F16,
        .B = (size_t)B,
        .T = (size_t)T,
        .H = d->H,
        .G = d->G,
        .D = d->D,
        .deterministic = m->config.deterministic,
        .grad = true,
        .documents = m->docs,
    };
}

static size_t op_foresee (const train_decoder_t *m, int B, int T)
{
    const struct attention_shape shape = shape_of (m, B, T);

    return attention_foresee (&shape, attention_hopper_here ());
}

static train_status_t op_prepare (train_decoder_t *m, int B, int T,
                                  size_t *ret_scratch, train_error_t *err)
{
    struct attention_choice choice;
    struct engine *e;

    TRY (need_engine (m, err));
    e = m->engine;
    e->shape = shape_of (m, B, T);
    if (!attention_choose (e->attention, &e->shape, &choice))
        return err_set (err, TRAIN_ENOTSUP, "attention on the GPU: %s",
                        attention_error (e->attention));
    *ret_scratch = choice.scratch_fwd > choice.scratch_bwd ? choice.scratch_fwd
                                                           : choice.scratch_bwd;
    return TRAIN_OK;
}

static train_status_t of_gemm (enum gemm_lt_status rc, const char *why,
                               train_error_t *err)
{
    if (rc == GEMM_LT_OK)
        return TRAIN_OK;
    return err_set (err, (train_status_t)rc, "product on the GPU: %s", why);
}

static train_status_t op_linear (train_decoder_t *m, void *y, const void *x,
                                 const void *w, size_t N, size_t in, size_t out,
                                 train_error_t *err)
{
    struct engine *e = m->engine;
    char why[GEMM_LT_WHY] = "";

    return of_gemm (gemm_lt_fwd (e->gemm, y, x, w, NULL, e->dtype, N, in, out,
                                 m->stream, why),
                    why, err);
}

static train_status_t op_linear_dx (train_decoder_t *m, void *dx,
                                    const void *dy, const void *w, size_t N,
                                    size_t in, size_t out, train_error_t *err)
{
    struct engine *e = m->engine;
    char why[GEMM_LT_WHY] = "";

    return of_gemm (
        gemm_lt_dx (e->gemm, dx, dy, w, e->dtype, N, in, out, m->stream, why),
        why, err);
}

static train_status_t op_linear_dw (train_decoder_t *m, void *dw,
                                    const void *dy, const void *x, size_t N,
                                    size_t in, size_t out, train_error_t *err)
{
    struct engine *e = m->engine;
    char why[GEMM_LT_WHY] = "";

    return of_gemm (gemm_lt_dw (e->gemm, dw, GEMM_LT_F32, !m->spent, dy, x,
                                e->dtype, N, in, out, m->stream, why),
                    why, err);
}

/* Of what was enqueued, if anything was. */
static train_status_t of_glu (bool done, bool *ret_done, train_error_t *err)
{
    cudaError_t e = done ? cudaGetLastError () : cudaSuccess;

    *ret_done = done;
    if (e == cudaSuccess)
        return TRAIN_OK;
    return err_set (err, TRAIN_EDEVICE, "product with SwiGLU on the GPU: %s",
                    cudaGetErrorString (e));
}

static bool has_glu (const train_decoder_t *m, size_t N)
{
    const struct engine *e = m->engine;

    return e->glu && N >= KERN_GEMM_GLU_ROWS
           && kern_gemm_glu_fits (N, m->dims.C, m->dims.F);
}

static train_status_t op_glu (train_decoder_t *m, void *act, void *gate_up,
                              const void *x, const void *w, size_t N,
                              bool *ret_done, train_error_t *err)
{
    const struct engine *e = m->engine;
    size_t C = m->dims.C, F = m->dims.F;
    bool done = has_glu (m, N);

    if (done && e->dtype == GEMM_LT_BF16)
        done = kern_gemm_glu_fwd_bf16_cuda (act, gate_up, x, w, N, C, F,
                                            m->stream);
    else if (done)
        done =
            kern_gemm_glu_fwd_f16_cuda (act, gate_up, x, w, N, C, F, m->stream);
    return of_glu (done, ret_done, err);
}

static train_status_t op_glu_bwd (train_decoder_t *m, void *gate_up, void *act,
                                  const void *dy, const void *w, size_t N,
                                  bool *ret_done, train_error_t *err)
{
    const struct engine *e = m->engine;
    size_t C = m->dims.C, F = m->dims.F;
    bool done = has_glu (m, N);

    if (done && e->dtype == GEMM_LT_BF16)
        done = kern_gemm_glu_bwd_bf16_cuda (gate_up, act, dy, w, gate_up, N, C,
                                            F, m->stream);
    else if (done)
        done = kern_gemm_glu_bwd_f16_cuda (gate_up, act, dy, w, gate_up, N, C,
                                           F, m->stream);
    return of_glu (done, ret_done, err);
}

static double scale_of (const train_decoder_t *m)
{
    return 1.0 / sqrt ((double)m->dims.D);
}

static train_status_t of_attention (const struct engine *e, bool ok,
                                    train_error_t *err)
{
    if (ok)
        return TRAIN_OK;
    return err_set (err, TRAIN_EDEVICE, "attention on the GPU: %s",
                    attention_error (e->attention));
}

static train_status_t op_attention (train_decoder_t *m, void *y, void *lse,
                                    const void *qkv, void *scratch,
                                    train_error_t *err)
{
    struct engine *e = m->engine;

    e->shape.starts = m->starts;
    return of_attention (e,
                         attention_fwd (e->attention, &e->shape, y, lse, qkv,
                                        scale_of (m), scratch, m->stream),
                         err);
}

static train_status_t op_attention_bwd (train_decoder_t *m, void *dqkv,
                                        const void *dy, const void *y,
                                        const void *lse, const void *qkv,
                                        void *scratch, train_error_t *err)
{
    struct engine *e = m->engine;

    e->shape.starts = m->starts;
    return of_attention (e,
                         attention_bwd (e->attention, &e->shape, dqkv, dy, y,
                                        lse, qkv, scale_of (m), scratch,
                                        m->stream),
                         err);
}

static size_t op_head_scratch (const train_decoder_t *m, size_t N)
{
    return linear_ce_scratch (dtype_of (m), N, m->dims.C, m->dims.V);
}

static train_status_t op_head_loss (train_decoder_t *m, void *dh, void *dw,
                                    const void *w, double scale,
                                    train_error_t *err)
{
    struct engine *e = m->engine;
    char why[GEMM_LT_WHY] = "";

    return of_gemm (
        linear_ce (e->gemm, m->sum, NULL, dh, dw,
                   decoder_act (m, m->layout.norm_f, 0), w, m->targets,
                   e->dtype, (size_t)m->B * (size_t)m->T, m->dims.C, m->dims.V,
                   scale, NULL, decoder_act (m, m->layout.logits, 0), m->stream,
                   why),
        why, err);
}

static train_status_t op_logits_loss (train_decoder_t *m, void *logits,
                                      train_error_t *err)
{
    float *logp = decoder_act (m, m->layout.logits, 0);
    size_t N = (size_t)m->B * (size_t)m->T;

    (void)err;
    m->kern->logprob (logits, logp, NULL, m->targets, NULL, N, m->dims.V, 1,
                      m->stream);
    linear_ce_sum (m->sum, NULL, logp, m->targets, N, m->stream);
    return TRAIN_OK;
}

static train_status_t op_head_logprob (train_decoder_t *m, void *logp,
                                       void *entropy, void *dh, void *dw,
                                       const void *w, const int32_t *targets,
                                       const void *dlogp, size_t N,
                                       double inv_t, train_error_t *err)
{
    struct engine *e = m->engine;
    char why[GEMM_LT_WHY] = "";

    return of_gemm (
        linear_logprob (e->gemm, logp, entropy, dh, dw,
                        decoder_act (m, m->layout.norm_f, 0), w, targets, dlogp,
                        e->dtype, N, m->dims.C, m->dims.V, inv_t,
                        decoder_act (m, m->layout.logits, 0), m->stream, why),
        why, err);
}

static train_status_t op_choices (const train_decoder_t *m, void **ret,
                                  size_t *ret_bytes, train_error_t *err)
{
    const struct engine *e = m->engine;
    size_t bytes;

    if (!e) /* no pass was made */
        return TRAIN_OK;
    bytes = gemm_lt_choices_save (e->gemm, NULL, 0);
    if (!(*ret = malloc (bytes)))
        return err_set (err, TRAIN_ENOMEM, "no memory for %zu bytes of choices",
                        bytes);
    *ret_bytes = gemm_lt_choices_save (e->gemm, *ret, bytes);
    return TRAIN_OK;
}

static train_status_t op_take_choices (train_decoder_t *m, const void *from,
                                       size_t bytes, train_error_t *err)
{
    struct engine *e;
    char why[GEMM_LT_WHY] = "";
    enum gemm_lt_status rc;

    TRY (need_engine (m, err));
    e = m->engine;
    rc = gemm_lt_choices_load (e->gemm, from, bytes, why);
    return rc == GEMM_LT_OK ? TRAIN_OK
                            : err_set (err, (train_status_t)rc, "%s", why);
}

const struct decoder_work decoder_work_cuda = {
    .prepare = op_prepare,
    .foresee = op_foresee,
    .destroy = op_destroy,
    .linear = op_linear,
    .linear_dx = op_linear_dx,
    .linear_dw = op_linear_dw,
    .glu = op_glu,
    .glu_bwd = op_glu_bwd,
    .attention = op_attention,
    .attention_bwd = op_attention_bwd,
    .head_scratch = op_head_scratch,
    .head_loss = op_head_loss,
    .logits_loss = op_logits_loss,
    .head_logprob = op_head_logprob,
    .choices = op_choices,
    .take_choices = op_take_choices,
};
