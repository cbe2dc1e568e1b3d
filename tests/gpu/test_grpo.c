/* SPDX-License-Identifier: Apache-2.0
 * test_grpo.c - the policy loss of rows on a GPU beside the host's */
#include "config.h"

#include "tap.h"

#include <math.h>
#include <stdint.h>

#include <train/grpo.h>

#include "backend.h"

#if HAVE_CUDA

enum { ROWS = 37, LONG = 301, ALL = ROWS * LONG };

static train_error_t err;
static float logp[ALL], old[ALL], ref[ALL], sampled[ALL], adv[ROWS];
static uint8_t mask[ALL];
static train_grpo_whole_t whole = {
    .size = sizeof (whole), .rows = ROWS, .longest = LONG};

static void need (train_status_t status)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err.text);
    exit (1);
}

static float noise (void)
{
    static uint32_t x = 2463534242u;

    x ^= x << 13;
    x ^= x >> 17;
    x ^= x << 5;
    return (float)(x % 100003u) / 50001.5f - 1;
}

/* Lengths from none to all; NaN wherever nobody may look. */
static void make (void)
{
    for (int i = 0; i < ALL; i++) {
        int b = i / LONG, length = b == ROWS - 1 ? LONG : b * 8;

        mask[i] = i % LONG < length;
        whole.tokens += mask[i];
        logp[i] = mask[i] ? -3 + 2 * noise () : (float)NAN;
        old[i] = logp[i] + 0.3f * noise ();
        ref[i] = logp[i] + 0.7f * noise ();
        sampled[i] = old[i] + 0.02f * noise ();
    }
    for (int b = 0; b < ROWS; b++)
        adv[b] = 2 * noise ();
    sampled[LONG] = (float)NAN;
}

static void *on_gpu (const void *from, size_t n)
{
    void *to = NULL;

    need (backend_cuda.alloc (0, n, &to, &err));
    need (backend_cuda.copy (to, from, n, NULL, &err));
    return to;
}

static void by_gpu (const train_grpo_options_t *o, const train_grpo_batch_t *b,
                    float *grad, train_grpo_report_t *report)
{
    size_t bytes = train_grpo_rows_bytes (ROWS);
    float *to = on_gpu (grad, sizeof (logp));
    void *rows = malloc (bytes), *sums = on_gpu (rows, bytes);

    need (train_grpo_loss_enqueue (o, &whole, b, to, sums, NULL, &err));
    need (backend_cuda.copy (grad, to, sizeof (logp), NULL, &err));
    need (backend_cuda.copy (rows, sums, bytes, NULL, &err));
    need (backend_cuda.sync (NULL, &err));
    need (train_grpo_report (rows, ROWS, report, &err));
    backend_cuda.free (to);
    backend_cuda.free (sums);
    free (rows);
}

static bool near_to (double a, double b, double bound)
{
    return fabs (a - b) <= bound * fmax (1e-3, fabs (b));
}

/* Sums go in another order, and exp is another: a few ulps of double, one of
 * float where the gradient is rounded. */
static bool same (const float *g, const float *h, const train_grpo_report_t *a,
                  const train_grpo_report_t *b)
{
    double off = 0, length = 0;

    for (int i = 0; i < ALL; i++) {
        if (!mask[i] && h[i] != 0)
            return false;
        off += pow ((double)g[i] - (double)h[i], 2);
        length += pow ((double)g[i], 2);
    }
    return length > 0 && sqrt (off / length) < 1e-7
           && near_to (b->loss, a->loss, 1e-11)
           && near_to (b->kl_sum, a->kl_sum, 1e-11)
           && near_to (b->ratio_sum, a->ratio_sum, 1e-11)
           && near_to (b->correction_sum, a->correction_sum, 1e-11)
           && a->tokens == b->tokens && a->clipped_low == b->clipped_low
           && a->clipped_high == b->clipped_high && a->dropped == b->dropped;
}

static void kind (int k, const train_grpo_batch_t *host,
                  const train_grpo_batch_t *gpu)
{
    static float g[ALL], h[ALL], again[ALL];
    train_grpo_options_t o = {.size = sizeof (o),
                              .kind = (train_grpo_kind_t)(k % 8),
                              .sequence_ratio = k >= 8,
                              .beta = k % 3 * 0.05,
                              .kl = (train_grpo_kl_t)(k % 3),
                              .correct = (train_grpo_correct_t)(k % 5),
                              .off_policy_mask = k % 2 == 0};
    train_grpo_report_t a = {.size = sizeof (a)}, b = a, c = a;
    char name[80];

    memset (h, 0xff, sizeof (h));
    need (train_grpo_loss (&o, &whole, host, g, &a, &err));
    by_gpu (&o, gpu, h, &b);
    by_gpu (&o, gpu, again, &c);
    snprintf (name, sizeof (name), "kind %d%s, correction %d: the host's",
              k % 8, k >= 8 ? " by rows" : "", k % 5);
    tap_ok (same (g, h, &a, &b) && memcmp (h, again, sizeof (h)) == 0
                && b.loss == c.loss,
            name);
}

int main (void)
{
    train_grpo_batch_t host = {.size = sizeof (host), .B = ROWS, .T = LONG};
    const struct backend_ops *ops = NULL;
    train_grpo_batch_t gpu;

    if (backend_find ("cuda", &ops, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    make ();
    host.logp = logp;
    host.old = old;
    host.ref = ref;
    host.sampled = sampled;
    host.adv = adv;
    host.mask = mask;
    gpu = host;
    gpu.logp = on_gpu (logp, sizeof (logp));
    gpu.old = on_gpu (old, sizeof (old));
    gpu.ref = on_gpu (ref, sizeof (ref));
    gpu.sampled = on_gpu (sampled, sizeof (sampled));
    gpu.adv = on_gpu (adv, sizeof (adv));
    gpu.mask = on_gpu (mask, sizeof (mask));
    for (int k = 0; k < 16; k++)
        kind (k, &host, &gpu);
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
}

#endif
