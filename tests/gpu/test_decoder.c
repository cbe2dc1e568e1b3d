/* SPDX-License-Identifier: Apache-2.0
 * test_decoder.c - a decoder's step on a GPU beside its host twin, and the same
 * bits twice where that is asked for */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#include "backend.h"

#if HAVE_CUDA

#include "decoder_impl.h"
#include "gpu_step.h"

#include "kernels/half.h"

#define B    2
#define MANY 16 /* sequences, of rows enough for SwiGLU in its products */
#define T    136
#define V    500

static int32_t tokens[MANY * T], targets[MANY * T];

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static train_decoder_config_t config (train_dtype_t dtype, bool gpu, bool more)
{
    train_decoder_config_t c = {
        .size = sizeof (c),
        .layers = 3,
        .dim = 128,
        .heads = 4,
        .kv_heads = more ? 2 : 4,
        .head_dim = 64,
        .ffn = more ? 256 : 192, /* with SwiGLU in its products, and not */
        .vocab = V,
        .tie = more,
        .rope_theta = 10000,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .qkv_bias = more,
        .qk_norm = more,
        .deterministic = true,
    };

    if (gpu)
        c.device = (DLDevice){kDLCUDA, 0};
    return c;
}

static train_decoder_t *make (const train_decoder_config_t *c)
{
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    need (train_decoder_create (c, &m, &err), &err);
    need (train_decoder_draw (m, 5, &err), &err);
    return m;
}

static int sequences (const train_decoder_t *m)
{
    return m->config.qk_norm ? MANY : B;
}

/* Of the sum, not the mean: f16 keeps no gradient that is so much smaller. */
static double step (train_decoder_t *m)
{
    train_error_t err = {0};
    double loss = 0;
    int64_t n;

    need (train_decoder_step (m, tokens, targets, sequences (m), T, 1, &loss,
                              &n, &err),
          &err);
    return loss / (double)n;
}

/* An arena of either place, malloc'ed. */
static void *bring (train_decoder_t *m, const DLTensor *t)
{
    size_t bytes = (size_t)train_tensor_bytes (t);
    void *own = malloc (bytes);
    train_error_t err = {0};

    need (m->ops->copy (own, t->data, bytes, m->stream, &err), &err);
    need (m->ops->sync (m->stream, &err), &err);
    return own;
}

/* The worst tensor's |g - want| / |want|. */
static double worst_of (const train_decoder_t *m, const float *g,
                        const double *want, const char **ret_name)
{
    double worst = 0;

    for (size_t i = 0; i < train_decoder_n_params (m); i++) {
        const train_param_t *p = train_decoder_param (m, i);
        double diff = 0, norm = 0;

        /* softmax takes off what a bias of keys adds: rounding alone is left */
        if (strstr (p->name, "k_proj.bias"))
            continue;
        for (size_t e = p->offset; e < p->offset + p->count; e++) {
            diff += ((double)g[e] - want[e]) * ((double)g[e] - want[e]);
            norm += want[e] * want[e];
        }
        if (!(sqrt (diff / norm) <= worst)) {
            worst = sqrt (diff / norm);
            *ret_name = p->name;
        }
    }
    return worst;
}

/* The twin in f64 has the weights of [m], exact. */
static train_decoder_t *wide_of (train_decoder_t *m, bool more)
{
    train_decoder_config_t c = config (TRAIN_F64, false, more);
    train_decoder_t *wide = make (&c);
    double *w = wide->weights.t.data;
    void *own = bring (m, &m->weights.t);

    for (size_t i = 0; i < wide->numel; i++)
        w[i] = m->config.dtype == TRAIN_F32
                   ? (double)((float *)own)[i]
                   : (double)(m->config.dtype == TRAIN_BF16
                                  ? half_from_bf16 (((uint16_t *)own)[i])
                                  : half_from_f16 (((uint16_t *)own)[i]));
    free (own);
    return wide;
}

static void beside_twin (train_dtype_t dtype, bool more, int recompute,
                         double bound)
{
    train_decoder_config_t c = config (dtype, true, more);
    train_decoder_t *m, *wide;
    const char *name = "";
    double loss, right, worst;
    char text[160];
    float *g;

    c.recompute = (train_recompute_t)recompute;
    m = make (&c);
    wide = wide_of (m, more);
    loss = step (m);
    right = step (wide);
    g = bring (m, &m->grads.t);
    worst = worst_of (m, g, wide->grads.t.data, &name);
    printf ("# loss %.9g, in f64 %.9g; worst gradient %.3g (%s)\n", loss, right,
            worst, name);
    snprintf (text, sizeof (text),
              "%s%s, recompute %d: loss and gradients beside f64 within %g",
              train_dtype_name (dtype), more ? ", Qwen's options, tied" : "",
              recompute, bound);
    tap_ok (fabs (loss - right) <= bound * right && worst <= bound, text);
    free (g);
    train_decoder_destroy (m);
    train_decoder_destroy (wide);
}

struct run {
    train_decoder_t *m;
    train_adamw_t *a;
    struct gpu_step *s;
    double loss;
};

static void begin (struct run *r, const train_decoder_config_t *c)
{
    train_adamw_options_t o = {.size = sizeof (o),
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .device = c->device};
    train_error_t err = {0};

    r->m = make (c);
    need (train_adamw_create (&o, c->dtype, r->m->numel, r->m->params,
                              r->m->n_params, &r->a, &err),
          &err);
    need (gpu_step_create (r->m, r->a, &r->s, &err), &err);
}

static void steps (struct run *r, int n)
{
    struct gpu_step_report report = {0};
    train_error_t err = {0};
    int64_t counted;
    int b = sequences (r->m);

    for (int i = 0; i < n; i++) {
        gpu_step_begin (r->s, 1);
        need (decoder_step_add (r->m, tokens, targets, b, T, 1.0 / (b * T),
                                &counted, &err),
              &err);
        need (gpu_step_end (r->s, 1e-3, 1, 1, &report, &err), &err);
    }
    r->loss = report.loss;
}

static void end (struct run *r)
{
    gpu_step_destroy (r->s);
    train_adamw_destroy (r->a);
    train_decoder_destroy (r->m);
}

/* All that a run goes on from, to another. */
static void hand_over (struct run *to, struct run *from)
{
    DLTensor *dst[4] = {&to->m->weights.t, train_adamw_m (to->a),
                        train_adamw_v (to->a), train_adamw_masters (to->a)};
    DLTensor *src[4] = {&from->m->weights.t, train_adamw_m (from->a),
                        train_adamw_v (from->a), train_adamw_masters (from->a)};
    train_error_t err = {0};

    for (int i = 0; i < 4; i++)
        if (src[i])
            need (to->m->ops->copy (dst[i]->data, src[i]->data,
                                    (size_t)train_tensor_bytes (src[i]),
                                    to->m->stream, &err),
                  &err);
    need (to->m->ops->sync (to->m->stream, &err), &err);
    train_adamw_set_masters (to->a);
    train_adamw_set_updates (to->a, train_adamw_updates (from->a));
}

static void same_bits (train_dtype_t dtype, bool more)
{
    train_decoder_config_t c = config (dtype, true, more);
    struct run whole = {0}, one = {0}, two = {0};
    char text[128];
    void *w, *v;
    bool same;

    begin (&whole, &c);
    steps (&whole, 10);
    begin (&one, &c);
    steps (&one, 5);
    begin (&two, &c);
    hand_over (&two, &one);
    steps (&two, 5);
    w = bring (whole.m, &whole.m->weights.t);
    v = bring (two.m, &two.m->weights.t);
    same = memcmp (w, v, (size_t)train_tensor_bytes (&whole.m->weights.t)) == 0;
    snprintf (text, sizeof (text), "%s%s: 5 + 5 steps are 10, bit for bit",
              train_dtype_name (dtype), more ? ", Qwen's options" : "");
    tap_ok (same && whole.loss == two.loss, text);
    snprintf (text, sizeof (text), "%s: the loss falls (%.3f to %.3f)",
              train_dtype_name (dtype), one.loss, two.loss);
    tap_ok (two.loss < one.loss, text);
    free (w);
    free (v);
    end (&whole);
    end (&one);
    end (&two);
}

/* Four passes of one scale, of another, of the first: nothing is replayed that
 * was recorded for another. */
static void replayed (train_dtype_t dtype)
{
    train_decoder_config_t c = config (dtype, true, true);
    train_decoder_t *m[2] = {make (&c), make (&c)};
    train_error_t err = {0};
    double loss[2] = {0};
    char text[128];
    void *g[2];
    bool launched;
    int64_t n;

    need (decoder_set_replay (m[1], true, &err), &err);
    for (int i = 0; i < 12; i++) {
        double scale = i / 4 == 1 ? 0.5 : 1;

        for (int k = 0; k < 2; k++) {
            tokens[0] = i;
            need (decoder_step_add (m[k], tokens, targets, sequences (m[k]), T,
                                    scale, &n, &err),
                  &err);
        }
    }
    launched = m[1]->replay.graph && !m[0]->replay.graph;
    for (int k = 0; k < 2; k++) {
        need (decoder_loss_read (m[k], &loss[k], &err), &err);
        g[k] = bring (m[k], &m[k]->grads.t);
    }
    snprintf (text, sizeof (text), "%s: passes of a graph are the same",
              train_dtype_name (dtype));
    tap_ok (
        launched && loss[0] == loss[1]
            && memcmp (g[0], g[1], (size_t)train_tensor_bytes (&m[0]->grads.t))
                   == 0,
        text);
    for (int k = 0; k < 2; k++) {
        free (g[k]);
        train_decoder_destroy (m[k]);
    }
}

int main (void)
{
    train_error_t err = {0};

    if (backend_cuda.probe (NULL, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    for (int i = 0; i < MANY * T; i++) {
        tokens[i] = (int32_t)((unsigned)i * 2654435761u % V);
        targets[i] =
            i % 17 == 3 ? -1 : (int32_t)((unsigned)(i + 1) * 2654435761u % V);
    }
    beside_twin (TRAIN_F32, false, 0, 1e-5);
    beside_twin (TRAIN_F32, true, 0, 1e-5);
    beside_twin (TRAIN_F32, true, 2, 1e-5);
    beside_twin (TRAIN_BF16, false, 0, 0.03);
    beside_twin (TRAIN_BF16, true, 0, 0.03);
    beside_twin (TRAIN_BF16, true, 1, 0.03);
    beside_twin (TRAIN_BF16, true, 2, 0.03);
    beside_twin (TRAIN_F16, false, 0, 0.004);
    beside_twin (TRAIN_F16, true, 1, 0.004);
    same_bits (TRAIN_F32, false);
    same_bits (TRAIN_BF16, false);
    same_bits (TRAIN_BF16, true);
    replayed (TRAIN_F32);
    replayed (TRAIN_BF16);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("libtrain was built without CUDA");
}

#endif
