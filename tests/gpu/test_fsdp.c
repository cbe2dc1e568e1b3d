/* SPDX-License-Identifier: Apache-2.0
 * test_fsdp.c - every strategy on the ranks of nccl that start it, beside steps
 * of one GPU over all rows; one rank to its bits, where all trains
 *
 * usage: test_fsdp [hosts], with RANK and the like set; "hosts": rank r takes
 * GPU r, whatever its local rank. TAP by rank 0; others end with status 1 where
 * theirs differ. */
#include "config.h"

#include "tap.h"

#include <fnmatch.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"

#if HAVE_CUDA

#include <train/group.h>

#include "decoder_impl.h"
#include "fsdp.h"
#include "gpu_step.h"
#include "group_impl.h"
#include "optim.h"

#include "kernels/half.h"

#define B     2 /* rows of a rank */
#define RANKS 8
#define T     136
#define V     500
#define STEPS 4
#define SEED  7
#define LR    1e-3

static train_adamw_options_t adamw = {.size = sizeof (adamw),
                                      .beta1 = 0.9,
                                      .beta2 = 0.95,
                                      .eps = 1e-8,
                                      .weight_decay = 0.1};
static int32_t tokens[STEPS][RANKS * B * T], targets[STEPS][RANKS * B * T];
static double want[STEPS][2];
static int world, rank, device;
static bool all_same = true;

/* What trains: all, adapters, or some layers and parts of others. */
enum kind { ALL, ADAPTERS, LAYERS, N_KINDS };
static const char *const frozen[N_KINDS] = {
    [LAYERS] = "*embed*,*layers.0.*,*layers.[12].mlp*,*layers.1.*norm*"};
static enum kind kind;
static train_error_t err;

static void need (train_status_t status)
{
    if (status == TRAIN_OK)
        return;
    printf ("Bail out! %s\n", err.text);
    exit (1);
}

static train_decoder_config_t config (train_dtype_t dtype, bool gpu)
{
    train_decoder_config_t c = {.size = sizeof (c),
                                .layers = 3,
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
                                .deterministic = true};

    if (kind == ADAPTERS)
        c.lora = (train_lora_t){.rank = 8, .targets = 0x7f, .alpha = 16};
    if (gpu)
        c.device = (DLDevice){kDLCUDA, device};
    return c;
}

/* The first weights of both sides, as f32. */
static float *draw (train_dtype_t dtype, size_t *ret_n)
{
    train_decoder_config_t c = config (dtype, false);
    train_decoder_t *d;
    float *whole;

    need (train_decoder_create (&c, &d, &err));
    train_decoder_init (d, SEED);
    *ret_n = train_decoder_numel (d);
    whole = calloc (*ret_n, sizeof (*whole));
    for (size_t i = 0; i < *ret_n; i++)
        whole[i] = dtype == TRAIN_BF16
                       ? half_from_bf16 (((uint16_t *)d->weights.t.data)[i])
                       : ((float *)d->weights.t.data)[i];
    train_decoder_destroy (d);
    return whole;
}

static bool trains (const char *name)
{
    char list[100], *next = list, *pattern;

    snprintf (list, sizeof (list), "%s", frozen[kind] ? frozen[kind] : "");
    while ((pattern = strsep (&next, ",")))
        if (fnmatch (pattern, name, 0) == 0)
            return false;
    return kind != ADAPTERS || decoder_is_lora (name);
}

/* An optimizer of what trains; masters are of f32 as drawn, where not all does. */
static train_adamw_t *optimizer (train_decoder_t *d, train_dtype_t dtype)
{
    train_param_t params[128];
    size_t n = 0, numel;
    train_adamw_t *a;
    float *first;

    for (size_t i = 0; i < train_decoder_n_params (d); i++)
        if (trains (train_decoder_param (d, i)->name))
            params[n++] = *train_decoder_param (d, i);
    need (train_adamw_create (&adamw, dtype, train_decoder_numel (d), params, n,
                              &a, &err));
    if (kind == ALL)
        return a;
    first = draw (TRAIN_F32, &numel);
    need (d->ops->sync (d->stream, &err));
    need (adamw_put (a, train_decoder_weights (d), first, 0, numel, &err));
    free (first);
    return a;
}

/* Gradients of what is frozen are in no norm. */
static void clear_frozen (train_decoder_t *d)
{
    float *grads = train_decoder_grads (d)->data;

    need (decoder_settle_grads (d, &err));
    for (size_t i = 0; i < train_decoder_n_params (d); i++) {
        const train_param_t *p = train_decoder_param (d, i);

        if (!trains (p->name))
            need (d->ops->fill (d->device, grads + p->offset, 0,
                                p->count * sizeof (*grads), d->stream, &err));
    }
}

static void one_gpu (train_dtype_t dtype)
{
    train_decoder_config_t c = config (dtype, true);
    struct gpu_step_report report;
    struct gpu_step *step;
    train_adamw_t *a;
    train_decoder_t *d;
    int64_t n;

    need (train_decoder_create (&c, &d, &err));
    train_decoder_init (d, SEED);
    a = optimizer (d, dtype);
    need (gpu_step_create (d, a, &step, &err));
    for (int s = 0; s < STEPS; s++) {
        gpu_step_begin (step, 1);
        need (decoder_step_add (d, tokens[s], targets[s], world * B, T,
                                1.0 / (world * B * T), &n, &err));
        if (kind != ALL)
            clear_frozen (d);
        need (gpu_step_end (step, LR, 1, 1, &report, &err));
        want[s][0] = report.loss;
        want[s][1] = report.norm;
    }
    gpu_step_destroy (step);
    train_adamw_destroy (a);
    train_decoder_destroy (d);
}

/* One rank makes the very calls of one GPU, but for the norm's order. More add
 * in another order, and what steps have made of that grows. */
static bool is_near (int step, train_dtype_t dtype, double x, double y)
{
    double bound = dtype == TRAIN_F32 ? 1e-6 : 2e-3;

    if (world == 1 && kind == ALL)
        bound = 1e-12;
    else if (step > 0)
        bound *= 10;
    return fabs (x - y) <= bound * fabs (y);
}

/* Weights of both sides are the same at first: rounded ones from one rank, or
 * what each draws. */
static void begin (struct fsdp *f, train_decoder_t *d, train_dtype_t dtype,
                   train_adamw_t *a)
{
    train_tensor_t whole;
    size_t numel;
    float *first = draw (dtype, &numel);
    int64_t shape[1] = {(int64_t)numel};

    need (train_tensor_view (&whole, first, TRAIN_F32, 1, shape, &err));
    if (kind == ALL)
        need (fsdp_take (f, fsdp_weights (f), &whole.t, 0, &err));
    else
        need (fsdp_init_decoder (f, d, NULL, SEED, a, &err));
    fsdp_updated (f);
    free (first);
}

/* Gradients are of what trains alone; each flat unit has a last element. */
static bool is_small (struct fsdp *f, const train_decoder_t *d)
{
    size_t n = 0, units = train_shard_n_units (fsdp_plan (f));
    size_t ranks = fsdp_is_sharded (f) ? (size_t)world : 1;

    for (size_t i = 0; i < train_decoder_n_params (d); i++)
        n += trains (train_decoder_param (d, i)->name)
                 ? train_decoder_param (d, i)->count
                 : 0;
    return kind == ALL
           || (size_t)train_tensor_numel (fsdp_grads (f)) <= n / ranks + units;
}

/* [far]: weights are in the host's memory; 2: beside the optimizer's state. */
static void sharded (train_group_t *group, train_dtype_t dtype, int strategy,
                     int prefetch, int far, bool late)
{
    struct fsdp_options o = {.strategy = (train_strategy_t)strategy,
                             .prefetch = prefetch,
                             .offload = far > 1,
                             .offload_weights = far > 0,
                             .round_late = late,
                             .frozen = frozen[kind],
                             .reduce = TRAIN_F32};
    const struct fsdp_update update = {LR, 1, 1};
    train_decoder_config_t c = config (dtype, true);
    struct fsdp_report report = {0};
    train_decoder_t *d;
    train_adamw_t *a;
    struct fsdp *f;
    double own = 3;
    int64_t n;
    bool same;
    char name[120];

    need (strategy >= TRAIN_SHARD_GRAD_OP
              ? decoder_create_bare (&c, &d, &err)
              : train_decoder_create (&c, &d, &err));
    need (fsdp_of_decoder (&o, group, d, &f, &err));
    need (fsdp_adamw (f, d, &adamw, &a, &err));
    begin (f, d, dtype, a);
    same = is_small (f, d);
    for (int s = 0; s < STEPS; s++) {
        need (fsdp_begin (f, &err));
        need (fsdp_pass (f, true, &err));
        need (decoder_step_add (d, tokens[s] + rank * B * T,
                                targets[s] + rank * B * T, B, T,
                                1.0 / (world * B * T), &n, &err));
        need (fsdp_finish (f, a, &update, &own, 1, &report, &err));
        same &= is_near (s, dtype, report.loss, want[s][0])
                && is_near (s, dtype, report.norm, want[s][1])
                && report.sums[0] == own * world;
        if (!same)
            printf ("# step %d: loss %.17g, not %.17g; norm %.17g, not %.17g\n",
                    s, report.loss, want[s][0], report.norm, want[s][1]);
    }
    snprintf (name, sizeof (name),
              "%s, %s trains, strategy %d, prefetch %d, far %d, late %d, ranks "
              "%d: the losses of one GPU",
              train_dtype_name (dtype),
              kind == ALL        ? "all"
              : kind == ADAPTERS ? "an adapter"
                                 : "a layer",
              strategy, prefetch, far, late, world);
    all_same &= same;
    if (rank == 0)
        tap_ok (same, name);
    train_adamw_destroy (a);
    fsdp_destroy (f);
    train_decoder_destroy (d);
}

static void fill_ids (void)
{
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < RANKS * B * T; i++) {
            tokens[s][i] = (i * 31 + s * 17 + i / 7) % V;
            targets[s][i] = (i * 13 + s * 5 + 1) % V;
        }
}

static void every_strategy (train_group_t *group, train_dtype_t dtype)
{
    one_gpu (dtype);
    for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
        for (int p = 0; p < (s == TRAIN_FULL_SHARD ? 3 : 1); p++)
            sharded (group, dtype, s, p, 0, false);
    for (int i = 0; i < 6; i++)
        sharded (group, dtype, i % 2 ? TRAIN_FULL_SHARD : TRAIN_SHARD_GRAD_OP,
                 i / 2, 1 + i % 2, false);
    sharded (group, dtype, TRAIN_FULL_SHARD, 1, 1, false);
}

static void some_frozen (train_group_t *group, train_dtype_t dtype)
{
    for (kind = ADAPTERS; kind < N_KINDS; kind++) {
        one_gpu (dtype);
        for (int s = TRAIN_NO_SHARD; s <= TRAIN_FULL_SHARD; s++)
            sharded (group, dtype, s, s % 2, 0, false);
        sharded (group, dtype, TRAIN_FULL_SHARD, 2, 0, dtype == TRAIN_BF16);
    }
    kind = ALL;
}

int main (int argc, char **argv)
{
    train_group_options_t o = {.size = sizeof (o), .backend = "nccl"};
    train_group_t *group = NULL;
    char name[16];

    if (argc > 1 && strcmp (argv[1], "hosts") == 0 && getenv ("RANK")) {
        snprintf (name, sizeof (name), "cuda:%.8s", getenv ("RANK"));
        o.device = name;
    }
    if (backend_cuda.probe (NULL, &err) != TRAIN_OK
        || train_group_create (&o, &group, &err) != TRAIN_OK)
        tap_skip_all (err.text);
    world = train_group_size (group);
    rank = train_group_rank (group);
    device = group->where.device;
    adamw.device = (DLDevice){kDLCUDA, device};
    if (world > RANKS)
        tap_skip_all ("more than 8 ranks");
    fill_ids ();
    every_strategy (group, TRAIN_F32);
    every_strategy (group, TRAIN_BF16);
    some_frozen (group, TRAIN_F32);
    some_frozen (group, TRAIN_BF16);
    train_group_destroy (group);
    return rank == 0 ? tap_end () : !all_same;
}
#else
int main (void)
{
    tap_skip_all ("libtrain was built without CUDA");
}
#endif
