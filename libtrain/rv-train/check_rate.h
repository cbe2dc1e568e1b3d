/* SPDX-License-Identifier: Apache-2.0
 * check_rate.h - devices that rv-train check knows, and the time of a step. */
#ifndef RV_TRAIN_CHECK_RATE_H
#define RV_TRAIN_CHECK_RATE_H

#include <stdbool.h>
#include <stddef.h>

#include <train.h>

/* Of a process that trains, beside its arrays: context, kernels, cuBLASLt with
 * 32 MiB of workspace, cuDNN. An H200's (driver 580, CUDA 13), measured. */
#define CHECK_CUDA_BYTES ((size_t)526 << 20)

struct check_device {
    const char *name;
    bool gpu;
    double half, single; /* TFLOP/s of products, as training reaches them */
    double attention;    /* of 16-bit attention, over half the square; 0: as
                            products */
    bool sm_90a;         /* see kernels/attention.h */
    double memory;       /* bytes a second, read and written; 0: not counted */
    size_t bytes;        /* of its memory; 0: not known */
    double wire;         /* bytes a second that come from the other GPUs of its
                            node; 0: not counted */
    const char *basis;   /* where the rates are from: a word or some */
};

/* A step of [tokens], of all ranks together. */
struct check_step {
    int seq, ranks;
    double tokens;
    bool offload;
    double passes; /* 0 = 1 */
    bool offload_weights;
    double gathers; /* of each weight, where the model is sharded */
};

/* check_device_find - by name: cpu, a100, h100, h200. TRAIN_EINVAL lists them;
 * TRAIN_ENOTSUP: a GPU, and the build knows nothing of its layouts. */
train_status_t check_device_find (const char *name,
                                  const struct check_device **ret,
                                  train_error_t *err);
/* check_rate - TFLOP/s of a rank's products in [dtype]. */
double check_rate (const struct check_device *device, train_dtype_t dtype);

/* check_flop - operations of forward and backward for one token of a sequence of
 * [seq]: six for each weight that multiplies it (Kaplan and others 2020,
 * "Scaling laws for neural language models", 2.1), four where it is frozen beside
 * adapters, attention over half the sequence, and what is made again. */
double check_flop (const train_decoder_config_t *model, int seq);

/* check_seconds - of a step: products and attention at the device's rates; what
 * blocks read and write between them, AdamW's arrays, and what is offloaded, at
 * those of memory and link; a gap a kernel. Weights that are offloaded come beside
 * the passes, which take longer where the link does. Ranks share the tokens evenly, and
 * what they send each other is not counted: it goes on beside the passes. */
double check_seconds (const struct check_device *device,
                      const train_decoder_config_t *model,
                      const struct check_step *step);

/* check_forward_seconds - of a forward alone, of a rank's [tokens] in sequences of
 * [seq], with the head's. check_forward_flop - operations for one token. */
double check_forward_flop (const train_decoder_config_t *model, int seq);
double check_forward_seconds (const struct check_device *device,
                              const train_decoder_config_t *model, int seq,
                              double tokens);

/* What a rank writes in a cycle. */
struct check_writing {
    double texts;    /* completions */
    double prompts;  /* each read once */
    double at_once;  /* texts that are written together */
    int prompt;      /* tokens of each */
    int more;        /* tokens of each completion */
    double gather_s; /* weights come anew for each forward, in so long; 0: they
                        are there */
    bool ahead;      /* while the unit before is multiplied */
};

/* check_gather_seconds - until all units of a model that is cut over [ranks] of a
 * node have come to each of them, one by one; 0: of one rank, or not counted. */
double check_gather_seconds (const struct check_device *device,
                             const train_decoder_config_t *model, int ranks);
/* check_beside - [own] seconds and [gather], one beside the other if [ahead]. */
double check_beside (double own, double gather, bool ahead);

/* check_writing_seconds - prompts are read as a forward; then each token of the
 * texts that are written together takes, of a GPU, the time in which the weights
 * and what is kept of the texts are read, or the products' if that is longer, and
 * some for each layer; where weights are gathered for it, that if it is longer, too.
 * check_writing_flop - operations of all of it. */
double check_writing_flop (const train_decoder_config_t *model,
                           const struct check_writing *writing);
double check_writing_seconds (const struct check_device *device,
                              const train_decoder_config_t *model,
                              const struct check_writing *writing);

#endif
