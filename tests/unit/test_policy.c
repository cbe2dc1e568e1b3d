/* SPDX-License-Identifier: Apache-2.0
 * test_policy.c - log-probabilities against a log-softmax of the logits, and the
 * gradient through them against central differences in f64 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <train/optim.h>
#include <train/policy.h>

#include "decoder_impl.h"

enum { B = 2, T = 5, N = B * T, V = 11 };
#define HEAT 0.7

static const int32_t tokens[N] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
static const int32_t targets[N] = {-1, 4, 1, 5, -1, 2, 6, 5, 3, -1};

static train_decoder_t *make (train_dtype_t dtype, bool tie,
                              train_recompute_t recompute)
{
    const train_decoder_config_t c = {
        .size = sizeof (c),
        .layers = 2,
        .dim = 12,
        .heads = 2,
        .kv_heads = 1,
        .ffn = 7,
        .vocab = V,
        .tie = tie,
        .rope_theta = 100,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .recompute = recompute,
    };
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    if (train_decoder_create (&c, &m, &err) != TRAIN_OK)
        fail_msg ("%s", err.text);
    return m;
}

/* Weights of a policy that prefers some tokens, all but the rounding alike. */
static void fill (train_decoder_t *m)
{
    train_decoder_t *wide =
        make (TRAIN_F64, m->config.tie, m->config.recompute);
    double *w = train_decoder_weights (wide)->data;
    void *to = train_decoder_weights (m)->data;

    train_decoder_init (wide, 7);
    for (size_t i = 0; i < train_decoder_numel (m); i++) {
        float f;
        uint32_t bits;

        w[i] *= (w[i] == 1.0 ? 1 : 15) * (1 + 0.1 * sin ((double)i));
        f = (float)w[i];
        memcpy (&bits, &f, sizeof (bits));
        if (m->config.dtype == TRAIN_F64)
            ((double *)to)[i] = w[i];
        else if (m->config.dtype == TRAIN_F32)
            ((float *)to)[i] = f;
        else
            ((uint16_t *)to)[i] =
                (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    train_decoder_destroy (wide);
}

/* What the two calls compute, from whole logits. */
static void by_logits (train_decoder_t *m, double *logp, double *entropy)
{
    double logits[N * V], loss;
    int64_t n;

    assert_int_equal (train_decoder_forward (m, logits, tokens, targets, B, T,
                                             &loss, &n, NULL),
                      TRAIN_OK);
    for (int r = 0; r < N; r++) {
        double sum = 0, nats = 0;

        for (int v = 0; v < V; v++)
            sum += exp (logits[r * V + v] / HEAT);
        for (int v = 0; v < V; v++) {
            double l = logits[r * V + v] / HEAT - log (sum);

            nats -= exp (l) * l;
            if (v == targets[r])
                logp[r] = l;
        }
        entropy[r] = targets[r] < 0 ? 0 : nats;
        logp[r] = targets[r] < 0 ? 0 : logp[r];
    }
}

static void test_values (void **state)
{
    train_decoder_t *m = make (TRAIN_F64, true, TRAIN_RECOMPUTE_NOTHING);
    double want[N], nats[N];
    float logp[N], entropy[N];

    (void)state;
    fill (m);
    by_logits (m, want, nats);
    assert_int_equal (train_decoder_logps (logp, entropy, m, tokens, targets, B,
                                           T, HEAT, NULL),
                      TRAIN_OK);
    for (int r = 0; r < N; r++)
        if (fabs ((double)logp[r] - want[r]) > 2e-6
            || fabs ((double)entropy[r] - nats[r]) > 2e-6)
            fail_msg ("row %d: %g of %g, entropy %g of %g", r, (double)logp[r],
                      want[r], (double)entropy[r], nats[r]);
    train_decoder_destroy (m);
}

static void check_logps (train_decoder_t *m, const double *want)
{
    float logp[N];

    assert_int_equal (
        train_decoder_logps (logp, NULL, m, tokens, targets, B, T, HEAT, NULL),
        TRAIN_OK);
    for (int r = 0; r < N; r++)
        if (!(fabs ((double)logp[r] - want[r]) <= 2e-6))
            fail_msg ("row %d: %g of %g", r, (double)logp[r], want[r]);
}

/* Of documents as every pass is, whatever the pass before was of. */
static void test_documents (void **state)
{
    static const int32_t starts[N] = {0, 0, 0, 3, 3, 0, 1, 1, 1, 1},
                         other[N] = {0, 0, 2, 2, 2, 0, 0, 0, 0, 4};
    train_decoder_t *m = make (TRAIN_F64, true, TRAIN_RECOMPUTE_NOTHING);
    double whole[N], cut[N], nats[N];
    int32_t wrong[N] = {1};
    float logp[N];
    train_error_t err = {0};

    (void)state;
    fill (m);
    by_logits (m, whole, nats);
    train_decoder_documents (m, starts);
    by_logits (m, cut, nats);
    assert_true (fabs (cut[8] - whole[8]) > 1e-3);
    train_decoder_documents (m, other);
    check_logps (m, (by_logits (m, whole, nats), whole));
    train_decoder_documents (m, starts);
    check_logps (m, cut);
    train_decoder_documents (m, NULL);
    by_logits (m, whole, nats);
    train_decoder_documents (m, starts);
    check_logps (m, cut);
    train_decoder_documents (m, NULL);
    check_logps (m, whole);
    train_decoder_documents (m, wrong);
    assert_int_equal (
        train_decoder_logps (logp, NULL, m, tokens, targets, B, T, HEAT, &err),
        TRAIN_EINVAL);
    assert_non_null (strstr (err.text, "document of sequence 0, position 0"));
    train_decoder_destroy (m);
}

/* A loss that is no sum of log-probabilities: each has a slope of its own. */
static double loss_of (train_decoder_t *m, double *slopes)
{
    double logp[N], entropy[N], loss = 0;

    assert_int_equal (decoder_prepare (m, B, T, NULL), TRAIN_OK);
    assert_int_equal (decoder_take_ids (m, tokens, targets, NULL, NULL),
                      TRAIN_OK);
    assert_int_equal (decoder_logps (m, logp, entropy, HEAT, NULL), TRAIN_OK);
    for (int r = 0; r < N; r++) {
        loss += (targets[r] < 0 ? 0 : r - 4.5) * sin (logp[r]);
        if (slopes)
            slopes[r] = targets[r] < 0 ? NAN : (r - 4.5) * cos (logp[r]);
    }
    return loss;
}

static void check_param (train_decoder_t *m, const train_param_t *p)
{
    const double h = 1e-5;
    double *w = train_decoder_weights (m)->data;
    double *g = train_decoder_grads (m)->data, diff = 0, norm = 0;

    for (size_t e = p->offset; e < p->offset + p->count; e++) {
        double keep = w[e], up, want;

        w[e] = keep + h;
        up = loss_of (m, NULL);
        w[e] = keep - h;
        want = (up - loss_of (m, NULL)) / (2 * h);
        w[e] = keep;
        diff += (g[e] - want) * (g[e] - want);
        norm += want * want;
    }
    /* h^2 of the third derivative and 1e-16 / h of the loss, with room */
    if (!(sqrt (diff) <= 2e-7 * sqrt (norm)) || norm == 0)
        fail_msg ("%s: error %g of %g", p->name, sqrt (diff), sqrt (norm));
}

static void check_gradient (bool tie, train_recompute_t recompute)
{
    train_decoder_t *m = make (TRAIN_F64, tie, recompute);
    double slopes[N], work[N];

    fill (m);
    loss_of (m, slopes);
    assert_int_equal (decoder_logps_bwd (m, slopes, work, NULL, NULL),
                      TRAIN_OK);
    for (size_t i = 0; i < train_decoder_n_params (m); i++)
        check_param (m, train_decoder_param (m, i));
    train_decoder_destroy (m);
}

static void test_gradient (void **state)
{
    (void)state;
    check_gradient (true, TRAIN_RECOMPUTE_NOTHING);
    check_gradient (false, TRAIN_RECOMPUTE_CHEAP);
    check_gradient (true, TRAIN_RECOMPUTE_BLOCKS);
}

/* The public way, whose floats alone make the difference. */
static double *gradient (train_dtype_t dtype, float *logp)
{
    train_decoder_t *m = make (dtype, true, TRAIN_RECOMPUTE_NOTHING);
    double *ret = calloc (train_decoder_numel (m), sizeof (*ret));
    float slopes[N];
    const void *g = train_decoder_grads (m)->data;

    assert_non_null (ret);
    fill (m);
    for (int twice = 0; twice < 2; twice++) { /* the second is added */
        assert_int_equal (train_decoder_logps (logp, NULL, m, tokens, targets,
                                               B, T, HEAT, NULL),
                          TRAIN_OK);
        for (int r = 0; r < N; r++)
            slopes[r] = targets[r] < 0 ? NAN : (float)(r - 4.5) * 0.5f;
        assert_int_equal (train_decoder_policy_backward (m, slopes, NULL),
                          TRAIN_OK);
    }
    for (size_t i = 0; i < train_decoder_numel (m); i++)
        ret[i] = dtype == TRAIN_F64 ? ((const double *)g)[i]
                                    : (double)((const float *)g)[i];
    train_decoder_destroy (m);
    return ret;
}

static void test_dtypes (void **state)
{
    static const struct {
        train_dtype_t dtype;
        double logp, grad; /* 2^-24 and 2^-9 times the depth of sums */
    } kinds[] = {{TRAIN_F32, 1e-5, 1e-5}, {TRAIN_BF16, 0.2, 0.05}};
    size_t numel;
    float want_logp[N], logp[N];
    double *want = gradient (TRAIN_F64, want_logp);
    train_decoder_t *m = make (TRAIN_F64, true, TRAIN_RECOMPUTE_NOTHING);

    (void)state;
    numel = train_decoder_numel (m);
    train_decoder_destroy (m);
    for (size_t k = 0; k < 2; k++) {
        double *got = gradient (kinds[k].dtype, logp), diff = 0, norm = 0;

        for (int r = 0; r < N; r++)
            assert_true (fabs ((double)(logp[r] - want_logp[r]))
                         <= kinds[k].logp);
        for (size_t i = 0; i < numel; i++) {
            diff += (got[i] - want[i]) * (got[i] - want[i]);
            norm += want[i] * want[i];
        }
        if (!(sqrt (diff) <= kinds[k].grad * sqrt (norm)) || norm == 0)
            fail_msg ("dtype %d: error %g of %g", kinds[k].dtype, sqrt (diff),
                      sqrt (norm));
        free (got);
    }
    free (want);
}

static struct kern_ops counting;
static const struct kern_ops *own;
static size_t head_rows;

static void matmul (void *y, const void *x, const void *w, size_t n, size_t in,
                    size_t out, void *stream)
{
    head_rows += out == V ? n : 0;
    own->matmul_fwd (y, x, w, n, in, out, stream);
}

/* Norm of the gradient of a pass of [dtype] whose targets are [aims]. */
static double head_of (train_dtype_t dtype, const int32_t *aims,
                       size_t *ret_rows)
{
    train_decoder_t *m = make (dtype, false, TRAIN_RECOMPUTE_NOTHING);
    float logp[N], slopes[N];
    double norm = -1;

    fill (m);
    own = m->kern;
    counting = *own;
    counting.matmul_fwd = matmul;
    m->kern = &counting;
    head_rows = 0;
    assert_int_equal (
        train_decoder_logps (logp, NULL, m, tokens, aims, B, T, HEAT, NULL),
        TRAIN_OK);
    *ret_rows = head_rows;
    for (int r = 0; r < N; r++) {
        assert_true (aims[r] >= 0 ? logp[r] < 0 : logp[r] == 0);
        slopes[r] = 1;
    }
    assert_int_equal (train_decoder_policy_backward (m, slopes, NULL),
                      TRAIN_OK);
    assert_int_equal (train_norm (train_decoder_grads (m), &norm, NULL),
                      TRAIN_OK);
    m->kern = own;
    train_decoder_destroy (m);
    return norm;
}

/* The head is of rows with a target alone: none, some, all. */
static void test_rows (void **state)
{
    static const train_dtype_t dtypes[] = {TRAIN_F64, TRAIN_F32, TRAIN_BF16};
    int32_t none[N], all[N];
    size_t rows;

    (void)state;
    for (int r = 0; r < N; r++) {
        none[r] = -1;
        all[r] = targets[r] < 0 ? 2 : targets[r];
    }
    for (int i = 0; i < 3; i++) {
        assert_true (head_of (dtypes[i], none, &rows) == 0);
        assert_int_equal (rows, 0);
        assert_true (head_of (dtypes[i], targets, &rows) > 0);
        assert_int_equal (rows, 7);
        assert_true (head_of (dtypes[i], all, &rows) > 0);
        assert_int_equal (rows, N);
    }
}

static void test_refusals (void **state)
{
    train_decoder_t *m = make (TRAIN_F32, true, TRAIN_RECOMPUTE_NOTHING);
    float logp[N], slopes[N] = {0};
    train_error_t err = {0};
    double loss;
    int64_t n;

    (void)state;
    fill (m);
    assert_int_equal (train_decoder_policy_backward (m, slopes, &err),
                      TRAIN_ESTATE);
    assert_int_equal (
        train_decoder_logps (logp, NULL, m, tokens, targets, B, T, 0, &err),
        TRAIN_EINVAL);
    assert_string_equal (err.text, "logps: temperature 0 is not above 0");
    assert_int_equal (
        train_decoder_logps (logp, NULL, m, tokens, targets, B, T, 1, &err),
        TRAIN_OK);
    assert_int_equal (
        train_decoder_forward (m, NULL, tokens, targets, B, T, &loss, &n, &err),
        TRAIN_OK);
    assert_int_equal (train_decoder_policy_backward (m, slopes, &err),
                      TRAIN_ESTATE);
    assert_string_equal (err.text,
                         "policy: no log-probabilities were made right before");
    train_decoder_destroy (m);
}

/* Rows to the front and back through a room of [most] of them; [pad]: more rows
 * than have a target, as on a GPU. */
static void move_rows (train_decoder_t *m, size_t most, size_t pad)
{
    int32_t numbers[3 * N];
    int64_t x[2 * N], room[2 * N];
    const size_t bytes = 2 * sizeof (*x);
    size_t k = 0;

    for (int i = 0; i < 2 * N; i++)
        x[i] = 100 + i;
    decoder_front_fill (numbers, targets, N, 7 + pad);
    decoder_front_use (m, 7 + pad, numbers);
    m->front.room = (char *)room;
    m->front.room_bytes = most * bytes;
    assert_int_equal (decoder_front (m, x, bytes, NULL), TRAIN_OK);
    for (int i = 0; i < N; i++)
        if (targets[i] >= 0) {
            assert_int_equal (m->front.targets[k], targets[i]);
            assert_int_equal (x[2 * k], 100 + 2 * i);
            assert_int_equal (x[2 * k++ + 1], 101 + 2 * i);
        }
    for (; k < 7 + pad; k++)
        assert_true (m->front.targets[k] == -1 && x[2 * k] == 0);
    assert_int_equal (decoder_back (m, x, bytes, NULL), TRAIN_OK);
    for (int i = 0; i < 2 * N; i++)
        assert_int_equal (x[i], targets[i / 2] < 0 ? 0 : 100 + i);
}

static void test_pieces (void **state)
{
    train_decoder_t *m = make (TRAIN_F32, true, TRAIN_RECOMPUTE_NOTHING);

    (void)state;
    m->B = B;
    m->T = T;
    for (size_t most = 1; most <= N; most++)
        for (size_t pad = 0; pad < 3; pad++)
            move_rows (m, most, pad);
    train_decoder_destroy (m);
}

int main (void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test (test_values),   cmocka_unit_test (test_documents),
        cmocka_unit_test (test_gradient), cmocka_unit_test (test_dtypes),
        cmocka_unit_test (test_rows),     cmocka_unit_test (test_refusals),
        cmocka_unit_test (test_pieces),
    };

    return cmocka_run_group_tests (tests, NULL, NULL);
}
