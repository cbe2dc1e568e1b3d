/* SPDX-License-Identifier: Apache-2.0
 * test_policy.c - log-probabilities and their backward on a GPU beside the
 * host's, and the loop of GRPO: in f32 it writes the same and learns the same */
#include "config.h"

#include "tap.h"

#if HAVE_CUDA

#include <math.h>

#include <cuda_runtime_api.h>

#include <train.h>

#include "decoder_impl.h"

enum { B = 3, T = 70, N = B * T, V = 500 };

static void need (train_status_t status, const train_error_t *err)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err->text);
    exit (1);
}

static train_decoder_t *make (train_dtype_t dtype, bool gpu, bool tie)
{
    const train_decoder_config_t c = {
        .size = sizeof (c),
        .layers = 2,
        .dim = 128,
        .heads = 4,
        .kv_heads = 2,
        .ffn = 192,
        .vocab = V,
        .tie = tie,
        .rope_theta = 10000,
        .norm_eps = 1e-5,
        .dtype = dtype,
        .deterministic = true,
        .device = {gpu ? kDLCUDA : kDLCPU, 0},
    };
    train_decoder_t *m = NULL;
    train_error_t err = {0};

    need (train_decoder_create (&c, &m, &err), &err);
    need (train_decoder_draw (m, 7, &err), &err);
    return m;
}

/* logp and entropy (2 N), then the gradient, of some slopes; [few] rows, each
 * seventh, have a target, or all but those. */
static float *run (train_dtype_t dtype, bool gpu, bool tie, bool few,
                   size_t *ret_n)
{
    train_decoder_t *m = make (dtype, gpu, tie);
    size_t numel = train_decoder_numel (m);
    float *ret = calloc (2 * N + numel, sizeof (*ret)), slopes[N];
    int32_t tokens[N], targets[N];
    train_error_t err = {0};

    for (int i = 0; i < N; i++) {
        tokens[i] = i * 37 % V;
        targets[i] = (i % 7 == 3) != few ? -1 : (i + 1) * 37 % V;
        slopes[i] = (float)sin (i);
    }
    need (
        train_decoder_logps (ret, ret + N, m, tokens, targets, B, T, 0.8, &err),
        &err);
    need (train_decoder_policy_backward (m, slopes, &err), &err);
    if (gpu)
        cudaMemcpy (ret + 2 * N, train_decoder_grads (m)->data,
                    numel * sizeof (*ret), cudaMemcpyDeviceToHost);
    else
        memcpy (ret + 2 * N, train_decoder_grads (m)->data,
                numel * sizeof (*ret));
    *ret_n = numel;
    train_decoder_destroy (m);
    return ret;
}

static bool near (const float *a, const float *b, size_t n, double room)
{
    double diff = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        diff += pow ((double)a[i] - (double)b[i], 2);
        norm += pow ((double)b[i], 2);
    }
    printf ("# %g of %g\n", sqrt (diff), sqrt (norm));
    return norm > 0 && sqrt (diff) <= room * sqrt (norm);
}

static void beside_host (train_dtype_t dtype, bool tie, bool few, double room,
                         const char *name)
{
    size_t n;
    float *host = run (TRAIN_F32, false, tie, few, &n);
    float *gpu = run (dtype, true, tie, few, &n);
    bool good = near (gpu, host, N, room) && near (gpu + N, host + N, N, room)
                && near (gpu + 2 * N, host + 2 * N, n, 10 * room);

    tap_ok (good, name);
    free (host);
    free (gpu);
}

static const int32_t prompt[4][5] = {
    {1, 2, 3, 4, 5}, {7, 8, 9, 10, 11}, {40, 30, 20, 10, 0}, {99, 1, 99, 1, 9}};

static const int32_t *ids_of (void *arg, int64_t i, size_t *ret_n)
{
    (void)arg;
    *ret_n = 5;
    return prompt[i];
}

/* More of the lower half of the vocabulary. */
static train_status_t score (void *arg, const train_grpo_sample_t *s, int n,
                             float *ret, train_error_t *err)
{
    (void)arg, (void)err;
    for (int i = 0; i < n; i++) {
        ret[i] = 0;
        for (int j = 0; j < s[i].n; j++)
            ret[i] += (float)(s[i].ids[j] < V / 2) / (float)s[i].n;
    }
    return TRAIN_OK;
}

static train_grpo_trainer_options_t options (int micro)
{
    return (train_grpo_trainer_options_t){
        .size = sizeof (train_grpo_trainer_options_t),
        .trainer = {.size = sizeof (train_trainer_options_t),
                    .batch = 32,
                    .micro_batch = micro,
                    .clip = 1,
                    .adamw = {.size = sizeof (train_adamw_options_t),
                              .beta1 = 0.9,
                              .beta2 = 0.99,
                              .eps = 1e-8},
                    .schedule = {.size = sizeof (train_schedule_t),
                                 .kind = TRAIN_SCHEDULE_CONSTANT,
                                 .lr = 0.001,
                                 .steps = 1000}},
        .group = 8,
        .iterations = 2,
        .max_new = 12,
        .loss = {.size = sizeof (train_grpo_options_t),
                 .kind = TRAIN_GRPO,
                 .beta = 0.01},
        .seed = 5,
    };
}

static void steps (train_dtype_t dtype, bool gpu, int micro, int n,
                   train_grpo_metrics_t *ret)
{
    const train_grpo_prompts_t prompts = {
        .size = sizeof (prompts), .count = 4, .ids = ids_of};
    train_grpo_trainer_options_t o = options (micro);
    train_decoder_t *m = make (dtype, gpu, true);
    train_reference_t *ref = NULL;
    train_grpo_trainer_t *t = NULL;
    train_group_t *group = NULL;
    train_error_t err = {0};

    need (train_group_create (NULL, &group, &err), &err);
    need (train_reference_open_copy (m, &ref, &err), &err);
    need (train_grpo_trainer_create (&o, group, &prompts, score, NULL, m, ref,
                                     &t, &err),
          &err);
    for (int i = 0; i < n; i++) {
        ret[i].size = sizeof (*ret);
        need (train_grpo_trainer_step (t, false, &ret[i], &err), &err);
        if (i < 4)
            printf ("# %s step %d: loss %g norm %g reward %g kl %g entropy %g "
                    "ratio %g\n",
                    gpu ? "gpu" : "host", i + 1, ret[i].base.loss,
                    ret[i].base.grad_norm, ret[i].reward, ret[i].kl,
                    ret[i].entropy, ret[i].ratio);
    }
    need (train_reference_check (ref, &err), &err);
    train_grpo_trainer_destroy (t);
    train_reference_close (ref);
    train_decoder_destroy (m);
    train_group_destroy (group);
}

static bool like (double a, double b, double room)
{
    return fabs (a - b) <= room * (fabs (b) + 0.01);
}

static bool alike (const train_grpo_metrics_t *a, const train_grpo_metrics_t *b)
{
    return like (a->base.loss, b->base.loss, 1e-3)
           && like (a->base.grad_norm, b->base.grad_norm, 1e-3)
           && like (a->reward, b->reward, 1e-6) && like (a->kl, b->kl, 1e-3)
           && like (a->entropy, b->entropy, 1e-4)
           && like (a->ratio, b->ratio, 1e-4);
}

static void test_loop (void)
{
    train_grpo_metrics_t host[4], gpu[60];
    bool good = true;

    steps (TRAIN_F32, false, 0, 4, host);
    for (int micro = 0; micro <= 5; micro += 5) {
        steps (TRAIN_F32, true, micro, 4, gpu);
        for (int i = 0; i < 4; i++)
            good &= alike (&gpu[i], &host[i]);
    }
    tap_ok (good, "the loop in f32 is the host's, in one pass and in seven");
    steps (TRAIN_BF16, true, 0, 60, gpu);
    printf ("# reward %g at first, %g at last\n", gpu[0].reward,
            gpu[59].reward);
    tap_ok (gpu[59].reward > gpu[0].reward + 0.2, "in bf16 it learns");
}

int main (void)
{
    int n = 0;

    if (cudaGetDeviceCount (&n) != cudaSuccess || n == 0)
        tap_skip_all ("no GPU");
    beside_host (TRAIN_F32, true, false, 1e-4, "f32, a tied head");
    beside_host (TRAIN_F32, false, false, 1e-4, "f32, its own head");
    beside_host (TRAIN_BF16, true, false, 2e-2, "bf16");
    beside_host (TRAIN_F16, true, false, 5e-3, "f16");
    beside_host (TRAIN_F32, true, true, 1e-4, "f32, few rows");
    beside_host (TRAIN_BF16, false, true, 2e-2, "bf16, few rows");
    beside_host (TRAIN_F16, true, true, 5e-3, "f16, few rows");
    test_loop ();
    return tap_end ();
}

#else

int main (void)
{
    tap_skip_all ("built without CUDA");
    return 0;
}

#endif
