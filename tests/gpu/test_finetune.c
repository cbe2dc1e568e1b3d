/* SPDX-License-Identifier: Apache-2.0
 * test_finetune.c - what fine-tuning asks of a decoder on a GPU, beside its host
 * twin in f64: rows of several documents, dropout, adapters; and weights rounded
 * by chance */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#include "backend.h"

#if HAVE_CUDA

#include "decoder_impl.h"
#include "elem.h"
#include "optim.h"

#include "kernels/dropout.h"

#define B 3
#define T 200
#define V 300

static int32_t tokens[B * T], targets[B * T], starts[B * T];
static double rate; /* of dropout */

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static train_decoder_config_t config (train_dtype_t dtype, bool gpu)
{
    train_decoder_config_t c = {
        .size = sizeof (c),
        .layers = 2,
        .dim = 128,
        .heads = 4,
        .kv_heads = 2,
        .head_dim = 64,
        .ffn = 192,
        .vocab = V,
        .tie = true,
        .rope_theta = 10000,
        .norm_eps = 1e-5,
        .dtype = dtype,
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

/* The mean loss; gradients are of the sum. */
static double step (train_decoder_t *m, const int32_t *documents)
{
    train_error_t err = {0};
    double loss = 0;
    int64_t n;

    train_decoder_documents (m, documents);
    need (train_decoder_dropout (m, rate, 11, 4, 7, &err), &err);
    need (train_decoder_step (m, tokens, targets, B, T, 1, &loss, &n, &err),
          &err);
    return loss / (double)n;
}

/* An arena of the GPU, malloc'ed. */
static void *bring (train_decoder_t *m, const DLTensor *t)
{
    size_t bytes = (size_t)train_tensor_bytes (t);
    void *own = malloc (bytes);
    train_error_t err = {0};

    need (m->ops->copy (own, t->data, bytes, m->stream, &err), &err);
    need (m->ops->sync (m->stream, &err), &err);
    return own;
}

/* A decoder of the host with the weights of [m], exact. */
static train_decoder_t *wide_of (train_decoder_t *m)
{
    train_decoder_config_t c = m->config;
    train_decoder_t *wide;
    double *w;
    void *own = bring (m, &m->weights.t);

    c.dtype = TRAIN_F64;
    c.device = (DLDevice){kDLCPU, 0};
    wide = make (&c);
    w = wide->weights.t.data;
    for (size_t i = 0; i < wide->numel; i++)
        w[i] = elem_get (m->config.dtype, own, i);
    free (own);
    return wide;
}

/* The worst parameter's |g - want| / |want|. */
static double worst_of (train_decoder_t *m, const train_decoder_t *wide)
{
    float *g = bring (m, &m->grads.t);
    const double *want = wide->grads.t.data;
    double worst = 0;

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        double diff = 0, norm = 0;

        if (m->config.lora.rank > 0 && !decoder_is_lora (p->name))
            continue;
        for (size_t e = p->offset; e < p->offset + p->count; e++) {
            diff += ((double)g[e] - want[e]) * ((double)g[e] - want[e]);
            norm += want[e] * want[e];
        }
        if (!(sqrt (diff / norm) <= worst))
            worst = sqrt (diff / norm);
    }
    free (g);
    return worst;
}

static void clear (train_decoder_t *m)
{
    train_error_t err = {0};

    need (m->ops->fill (m->device, m->grads.t.data, 0,
                        (size_t)train_tensor_bytes (&m->grads.t), m->stream,
                        &err),
          &err);
}

/* Adapters whose B is zero would hide what is beside it. */
static void shake (train_decoder_t *m)
{
    train_error_t err = {0};

    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];
        size_t bytes = p->count * m->kern->elem_size;
        void *own;

        if (!strstr (p->name, ".lora_B."))
            continue;
        own = malloc (bytes);
        for (size_t k = 0; k < p->count; k++)
            elem_put (m->config.dtype, own, k, 0.05 * sin ((double)(k + i)));
        need (m->ops->copy ((char *)m->weights.t.data
                                + p->offset * m->kern->elem_size,
                            own, bytes, m->stream, &err),
              &err);
        need (m->ops->sync (m->stream, &err), &err);
        free (own);
    }
}

static void beside_twin (const train_decoder_config_t *c,
                         const int32_t *documents, double bound,
                         const char *what)
{
    train_decoder_t *m = make (c), *wide;
    double loss, want, worst;
    char text[160];

    shake (m);
    wide = wide_of (m);
    loss = step (m, documents), want = step (wide, documents);
    worst = worst_of (m, wide);

    printf ("# loss %.9g, in f64 %.9g; worst gradient %.3g\n", loss, want,
            worst);
    snprintf (text, sizeof (text), "%s, recompute %d, %s: as f64 within %g",
              train_dtype_name (c->dtype), (int)c->recompute, what, bound);
    tap_ok (fabs (loss - want) <= bound * want && worst <= bound, text);
    /* with documents and without in turn: the room is made again */
    if (documents) {
        double whole = step (m, NULL), again;

        clear (m);
        again = step (m, documents);
        tap_ok (fabs (whole - want) > 1e-4 * want && again == loss
                    && worst_of (m, wide) == worst,
                "one document a row has another loss; then the same bits");
    }
    train_decoder_destroy (m);
    train_decoder_destroy (wide);
}

static void fill_batch (void)
{
    int32_t start = 0, length = 1;

    for (int32_t i = 0; i < B * T; i++) {
        int32_t t = i % T;

        if (t == 0 || t - start == length) {
            start = t;
            length = length < 128 ? length * 2 : 1;
        }
        starts[i] = start;
        tokens[i] = (int32_t)((unsigned)i * 2654435761u % V);
        targets[i] =
            i % 17 == 3 ? -1 : (int32_t)((unsigned)(i + 1) * 2654435761u % V);
    }
}

static void test_documents (void)
{
    static const struct {
        train_dtype_t dtype;
        train_recompute_t recompute;
        double bound;
    } cases[] = {{TRAIN_F32, TRAIN_RECOMPUTE_NOTHING, 1e-5},
                 {TRAIN_BF16, TRAIN_RECOMPUTE_CHEAP, 0.03},
                 {TRAIN_F16, TRAIN_RECOMPUTE_BLOCKS, 0.004}};

    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        train_decoder_config_t c = config (cases[i].dtype, true);

        c.recompute = cases[i].recompute;
        beside_twin (&c, starts, cases[i].bound, "documents");
    }
}

/* The same bits, but that a NaN may be any. */
static bool same_bits (const void *x, const void *y, size_t n,
                       train_dtype_t dtype)
{
    size_t each = dtype == TRAIN_F32 ? 4 : 2;
    bool same = true;

    for (size_t i = 0; i < n; i++)
        same &=
            (isnan (elem_get (dtype, x, i)) && isnan (elem_get (dtype, y, i)))
            || memcmp ((const char *)x + i * each, (const char *)y + i * each,
                       each)
                   == 0;
    return same;
}

/* Elements from [first] on, of arrays that lie at no vector: the host's bits. */
static void drop_array (train_dtype_t dtype, size_t first, size_t n)
{
    const struct kern_ops *host = dtype == TRAIN_F32    ? &kern_ops_f32_host
                                  : dtype == TRAIN_BF16 ? &kern_ops_bf16_host
                                                        : &kern_ops_f16_host;
    const struct kern_ops *cuda = dtype == TRAIN_F32    ? &kern_ops_f32_cuda
                                  : dtype == TRAIN_BF16 ? &kern_ops_bf16_cuda
                                                        : &kern_ops_f16_cuda;
    struct kern_dropout d = {3, 1, first, 6, kern_dropout_cut (0.3)};
    size_t bytes = (n + 3) * host->elem_size;
    unsigned char *x = malloc (bytes), *y = malloc (bytes);
    train_error_t err = {0};
    char text[120];
    void *at = NULL;

    for (size_t i = 0; i < bytes; i++) /* all kinds of numbers, NaN too */
        x[i] = (unsigned char)(i * 2654435761u >> 13);
    need (backend_cuda.alloc (0, bytes, &at, &err), &err);
    need (backend_cuda.copy (at, x, bytes, NULL, &err), &err);
    cuda->dropout ((char *)at + host->elem_size, (char *)at + host->elem_size,
                   n, &d, NULL);
    need (backend_cuda.copy (y, at, bytes, NULL, &err), &err);
    need (backend_cuda.sync (NULL, &err), &err);
    host->dropout (x + host->elem_size, x + host->elem_size, n, &d, NULL);
    snprintf (text, sizeof (text), "%s: %zu dropped from %zu on, as the host",
              train_dtype_name (dtype), n, first);
    tap_ok (same_bits (x, y, n + 3, dtype), text);
    backend_cuda.free (at);
    free (x);
    free (y);
}

static void test_dropout (void)
{
    static const train_dtype_t dtypes[] = {TRAIN_F32, TRAIN_BF16, TRAIN_F16};

    for (int i = 0; i < 3; i++) {
        train_decoder_config_t c = config (dtypes[i], true);

        drop_array (dtypes[i], 0, 100001);
        drop_array (dtypes[i], 5, 3);
        drop_array (dtypes[i], ((size_t)1 << 40) + 13, 4096);
        rate = 0.3;
        c.recompute = (train_recompute_t)i;
        beside_twin (&c, NULL,
                     dtypes[i] == TRAIN_F32    ? 1e-5
                     : dtypes[i] == TRAIN_BF16 ? 0.04
                                               : 0.006,
                     "dropout");
        rate = 0;
    }
}

static void test_lora (void)
{
    static const struct {
        train_dtype_t dtype;
        train_recompute_t recompute;
        int rank;
        double bound;
    } cases[] = {{TRAIN_F32, TRAIN_RECOMPUTE_NOTHING, 8, 1e-5},
                 {TRAIN_F32, TRAIN_RECOMPUTE_BLOCKS, 5, 1e-5},
                 {TRAIN_BF16, TRAIN_RECOMPUTE_CHEAP, 16, 0.03},
                 {TRAIN_BF16, TRAIN_RECOMPUTE_NOTHING, 5, 0.03},
                 {TRAIN_F16, TRAIN_RECOMPUTE_BLOCKS, 8, 0.004}};

    for (size_t i = 0; i < sizeof (cases) / sizeof (*cases); i++) {
        train_decoder_config_t c = config (cases[i].dtype, true);
        char what[40];

        c.recompute = cases[i].recompute;
        c.lora = (train_lora_t){cases[i].rank, 0x7f, 16};
        snprintf (what, sizeof (what), "adapters of rank %d", cases[i].rank);
        beside_twin (&c, NULL, cases[i].bound, what);
    }
}

/* Adapters in a step that writes gradients without zeroing them: the same, and
 * 0 for all else. */
static void test_lora_step (void)
{
    train_decoder_config_t c = config (TRAIN_BF16, true);
    train_error_t err = {0};
    train_decoder_t *m;
    size_t bytes, bad = 0;
    float *want, *got;
    double loss;
    int64_t n;

    c.lora = (train_lora_t){8, 0x7f, 16};
    m = make (&c);
    shake (m);
    step (m, NULL);
    want = bring (m, &m->grads.t);
    bytes = (size_t)train_tensor_bytes (&m->grads.t);
    need (
        m->ops->fill (m->device, m->grads.t.data, 0x7f, bytes, m->stream, &err),
        &err);
    decoder_spend_grads (m, true);
    need (decoder_step_add (m, tokens, targets, B, T, 1, &n, &err), &err);
    need (decoder_loss_read (m, &loss, &err), &err);
    got = bring (m, &m->grads.t);
    for (size_t i = 0; i < m->n_params; i++) {
        const train_param_t *p = &m->params[i];

        for (size_t e = p->offset; e < p->offset + p->count; e++)
            if (decoder_is_lora (p->name))
                bad += memcmp (&want[e], &got[e], sizeof (*got)) != 0;
            else if (p->ndim == 2)
                bad += got[e] < 0 || got[e] > 0 || isnan (got[e]);
    }
    printf ("# %zu differ\n", bad);
    tap_ok (bad == 0,
            "adapters: gradients written anew, none of other weights");
    free (want);
    free (got);
    train_decoder_destroy (m);
}

/* What AdamW writes on a GPU is what the host's kernel makes of its masters, at
 * offsets that are no vector's. */
static void test_rounding (void)
{
    enum { MANY = 100003, SKIP = 3 };
    train_adamw_options_t o = {.size = sizeof (o),
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .device = {kDLCUDA, 0},
                               .stochastic = true,
                               .seed = 12345678901};
    const train_param_t params[2] = {{.count = 501, .decay = true},
                                     {.offset = 504, .count = MANY - 504}};
    const uint64_t first[2] = {SKIP, (uint64_t)1 << 33};
    const uint32_t key[2] = {(uint32_t)o.seed, (uint32_t)(o.seed >> 32)};
    train_error_t err = {0};
    train_decoder_config_t c = config (TRAIN_F32, true);
    train_decoder_t *m = make (&c); /* weights and gradients of some size */
    int64_t shape[1] = {MANY};
    train_adamw_t *a = NULL;
    train_tensor_t w, g;
    uint16_t *copy = malloc (MANY * 2), *again = malloc (MANY * 2);
    float *p = malloc (MANY * sizeof (*p));
    void *at = NULL;
    bool good;

    need (backend_cuda.alloc (0, MANY * 2, &at, &err), &err);
    need (backend_cuda.fill (0, at, 0, MANY * 2, NULL, &err), &err);
    step (m, NULL);
    need (train_tensor_view (&w, m->weights.t.data, TRAIN_F32, 1, shape, &err),
          &err);
    need (train_tensor_view (&g, m->grads.t.data, TRAIN_F32, 1, shape, &err),
          &err);
    w.t.device = g.t.device = o.device;
    need (adamw_create_at (&o, TRAIN_F32, MANY, params, first, 2, false, &a,
                           &err),
          &err);
    need (adamw_enqueue_copy (a, &w.t, at, &g.t, 1e-3, NULL, NULL, &err), &err);
    need (backend_cuda.copy (copy, at, MANY * 2, NULL, &err), &err);
    need (backend_cuda.copy (p, w.t.data, MANY * sizeof (*p), NULL, &err),
          &err);
    need (backend_cuda.sync (NULL, &err), &err);
    memset (again, 0, MANY * 2);
    flat_host.round (again, p, 501, 1, first[0], key, NULL);
    flat_host.round (again + 504, p + 504, MANY - 504, 1, first[1], key, NULL);
    good = memcmp (copy, again, MANY * 2) == 0;
    tap_ok (good, "stochastic rounding: AdamW's copy has the host's bits");
    need (backend_cuda.fill (0, at, 0, MANY * 2, NULL, &err), &err);
    train_adamw_set_updates (a, 1);
    adamw_round (a, w.t.data, at, NULL);
    need (backend_cuda.copy (copy, at, MANY * 2, NULL, &err), &err);
    need (backend_cuda.sync (NULL, &err), &err);
    tap_ok (memcmp (copy, again, MANY * 2) == 0,
            "and so has the one made again from the masters");
    backend_cuda.free (at);
    train_adamw_destroy (a);
    train_decoder_destroy (m);
    free (copy);
    free (again);
    free (p);
}

int main (void)
{
    train_error_t err = {0};

    if (backend_cuda.probe (NULL, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    fill_batch ();
    test_documents ();
    test_dropout ();
    test_lora ();
    test_lora_step ();
    test_rounding ();
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("libtrain was built without CUDA");
}

#endif
