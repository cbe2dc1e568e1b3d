/* SPDX-License-Identifier: Apache-2.0
 * oom.c - write the table of a rank's memory, and which settings need less
 *
 * It is one write: ranks that fail together share a terminal. */
#include "oom.h"

#include <stdio.h>

#include "libtrain/backend.h"
#include "libtrain/mem_table.h"

#include "kernels/attention.h"

struct text {
    char data[4096];
    size_t used;
};

#define ADD(t, ...)                                                            \
    do {                                                                       \
        if ((t)->used < sizeof ((t)->data))                                    \
            (t)->used += (size_t)snprintf ((t)->data + (t)->used,              \
                                           sizeof ((t)->data) - (t)->used,     \
                                           __VA_ARGS__);                       \
    } while (0)

/* Those of the device, or with [host] of the host's memory beside it; returns
 * their bytes. */
static size_t add_rows (struct text *t, const struct mem_row *rows, size_t n,
                        bool host)
{
    size_t sum = 0;

    for (size_t i = 0; i < n; i++) {
        if (rows[i].host != host)
            continue;
        ADD (t, "  %-36s %-5s %16zu bytes\n", rows[i].what, rows[i].dtype,
             rows[i].bytes);
        sum += rows[i].bytes;
    }
    return sum;
}

static bool any_host (const struct mem_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (rows[i].host)
            return true;
    return false;
}

static void add_table (struct text *t, const struct settings *set, int seq,
                       const struct mem_row *rows, size_t n)
{
    size_t sum;

    ADD (t, "rv-train: what a rank holds:\n");
    if (set->task == TASK_GRPO)
        ADD (t,
             "  (rows of %d tokens, the longest prompt and "
             "grpo.max_completion_length=%d; beside it the cache of what is "
             "written, and a reference)\n",
             seq, (int)set->grpo.max_new);
    sum = add_rows (t, rows, n, false);
    ADD (t, "  %-36s %-5s %16zu bytes (%.2f GiB)\n", "all", "", sum,
         (double)sum / (1 << 30));
    if (!any_host (rows, n))
        return;
    ADD (t, "rv-train: and of the host's memory:\n");
    add_rows (t, rows, n, true);
}

/* Could masters be rounded as they are gathered? */
static bool keeps_rounded (const struct settings *set)
{
    bool sharded = set->strategy == TRAIN_SHARD_GRAD_OP
                   || set->strategy == TRAIN_FULL_SHARD;
    bool half = set->param == BF16 || set->param == FP16;

    return sharded && half && !set->round_late && !set->offload
           && !set->offload_weights && !set->stochastic_rounding;
}

static void add_offload (struct text *t, const struct settings *set)
{
    /* Of no host: auto would not say which is meant. */
    const char *cuda = set->device == DEVICE_AUTO ? "run.device=cuda " : "";

    if (!set->offload)
        ADD (t, "  %s%sshard.offload=on: moments and masters in host memory\n",
             cuda, set->round_late ? "shard.round_late=off " : "");
    if (!set->offload_weights && !set->round_late)
        ADD (t,
             "  %sshard.strategy=full shard.offload_weights=on: a rank's part "
             "of the weights in host memory\n",
             cuda);
}

static void add_hints (struct text *t, const struct settings *set, int world,
                       const train_trainer_options_t *o, bool gpu)
{
    int pass = mem_pass (o, world);

    ADD (t, "rv-train: what would need less:\n");
    if (pass > 1)
        ADD (t, "  data.micro_batch=%d: activations of %d rows, not %d\n",
             pass / 2, pass / 2, pass);
    if (set->task != TASK_GRPO && set->eval.every > 0
        && set->micro_batch > pass)
        ADD (t,
             "  data.micro_batch=%d: evaluations in passes of %d rows, not "
             "%d\n",
             pass, pass, (int)set->micro_batch);
    if (set->tune.recompute != TRAIN_RECOMPUTE_BLOCKS)
        ADD (t, "  model.recompute=blocks: of a block's activations one array "
                "is kept\n");
    if (set->param == FP32 || set->param == FP64)
        ADD (t, "  precision.param=bf16: activations in 2 bytes, not %d\n",
             set->param == FP64 ? 8 : 4);
    if (set->strategy != TRAIN_FULL_SHARD && world > 1)
        ADD (t,
             "  shard.strategy=full: weights, gradients and moments shared "
             "by %d ranks\n",
             world);
    if (gpu)
        add_offload (t, set);
    if (keeps_rounded (set))
        ADD (t, "  shard.round_late=on: no rounded weights beside masters\n");
    if (set->task == TASK_GRPO && set->strategy == TRAIN_FULL_SHARD
        && set->grpo.gather != TRAIN_GRPO_GATHER_UNIT)
        ADD (t, "  grpo.gather=unit: completions are written without the whole "
                "policy\n");
    if (set->task == TASK_GRPO)
        ADD (t, "  grpo.at_once, lower: fewer texts in the cache at a time\n");
    if (world == 1)
        ADD (t, "  more ranks with shard.strategy=full, which share weights, "
                "gradients and moments\n");
    ADD (t, "  a smaller %s or model\n",
         set->task != TASK_GRPO
             ? "data.seq"
             : "grpo.max_completion_length, shorter prompts");
}

/* Of the GPU that this rank trains on. */
static bool is_sm_90a (const train_decoder_config_t *model)
{
    const struct backend_ops *ops;
    bool is;
    int before;

    if (model->device.device_type != kDLCUDA
        || backend_find ("cuda", &ops, NULL) != TRAIN_OK)
        return false;
    before = ops->enter (model->device.device_id);
    is = attention_hopper_here ();
    ops->leave (before);
    return is;
}

void oom_say (const struct settings *set, const train_decoder_config_t *model,
              int world, int seq)
{
    train_trainer_options_t options = settings_trainer (set);
    struct mem_row rows[MEM_ROWS];
    struct text t = {.used = 0};
    size_t n;

    if (mem_table (model, is_sm_90a (model), &options, world, seq,
                   set->tune.documents, rows, &n, NULL)
        != TRAIN_OK)
        return;
    add_table (&t, set, seq, rows, n);
    add_hints (&t, set, world, &options, model->device.device_type == kDLCUDA);
    fputs (t.data, stderr);
}
