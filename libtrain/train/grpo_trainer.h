/* SPDX-License-Identifier: Apache-2.0
 * train/grpo_trainer.h - the loop of GRPO: ask, write, reward, learn.
 *
 * A cycle takes the next prompts of an endless shuffled sequence, writes G
 * completions of each with the weights as they are, asks for rewards, and turns
 * them into advantages over the completions of all ranks. These make [steps]
 * optimizer steps of [batch] completions each, [iterations] times over. A
 * trainer (train/trainer.h) makes the steps: clipping, schedule, skipping,
 * several ranks and checkpoints are its own.
 *
 * What is drawn is a function of (seed, cycle, completion), and sums are over
 * the whole step: so ranks and micro-batches change nothing but the rounding.
 * Completions are shared among ranks twice, for writing by whole groups where
 * ranks divide them, and for each step as the trainer shares rows.
 *
 * The first step of a cycle is on its own policy. Where a cycle is one step,
 * old log-probabilities are not made (train/grpo.h: old is NULL); else each
 * rank makes them of its rows, by the forward that trains, before the first.
 *
 * Each rank writes with whole weights. Where the model is sharded they are
 * gathered before a cycle's completions are written and go when its old
 * log-probabilities are made, before the first update; or they come by units
 * (train_grpo_gather_t), and then all ranks take part in every forward until the
 * last has no more to write.
 *
 * Of a model with adapters the blocks are copied meanwhile, or changed as they
 * come, and have them merged, rounded to its dtype; log-probabilities are made with them beside it. The
 * reference may be that model without them (train_reference_open_base).
 *
 * Calls are collective but for those marked local. One thread. */
#ifndef TRAIN_GRPO_TRAINER_H
#define TRAIN_GRPO_TRAINER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/decoder.h>
#include <train/group.h>
#include <train/grpo.h>
#include <train/reference.h>
#include <train/status.h>
#include <train/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct train_grpo_trainer train_grpo_trainer_t;

/* Where prompts come from. All calls are local and give the same on every
 * rank. */
typedef struct train_grpo_prompts {
    size_t size;   /* sizeof (train_grpo_prompts_t) */
    int64_t count; /* >= 1 */
    /* The ids of prompt [i], *ret_n >= 1 of them, living as long as the
     * trainer. */
    const int32_t *(*ids) (void *arg, int64_t i, size_t *ret_n);
    void *arg;
    uint64_t hash; /* of all: a resumed run must have it again */
} train_grpo_prompts_t;

/* A completion, with all that is known of it. */
typedef struct train_grpo_sample {
    int64_t prompt;     /* which */
    const int32_t *ids; /* (n) with what ended it: an end token, or the tokens
                           that [stops] found */
    int n;
    bool cut;             /* it came to no end, and no text stopped it */
    const float *rewards; /* (R); NULL while they are asked for */
    float advantage;
} train_grpo_sample_t;

/* Rewards of this rank's completions.
 *   ret   (n,R) to be written: NaN = none */
typedef train_status_t (*train_grpo_score_t) (
    void *arg, const train_grpo_sample_t *samples, int n, float *ret,
    train_error_t *err);

/* How weights that are sharded come to where completions are written and their
 * log-probabilities made. The results are the same bits. */
typedef enum train_grpo_gather {
    TRAIN_GRPO_GATHER_AUTO = 0,  /* whole where every rank has the room beside a
                                    cycle's cache and activations, else units */
    TRAIN_GRPO_GATHER_WHOLE = 1, /* once a cycle, into memory of their own */
    TRAIN_GRPO_GATHER_UNIT = 2,  /* a unit before its part of each forward, and
                                    the next meanwhile: no more memory than a
                                    step's, and all weights on the wire a token */
} train_grpo_gather_t;

typedef struct train_grpo_trainer_options {
    size_t size;                     /* sizeof (train_grpo_trainer_options_t) */
    train_trainer_options_t trainer; /* batch: completions of an optimizer step
                                        over all ranks */
    int group; /* G >= 2 completions of a prompt; divides batch * steps */
    int steps; /* optimizer steps that share a cycle's completions; 0 = 1 */
    int iterations;     /* times that each completion is used; 0 = 1 */
    int max_new;        /* most tokens of a completion, >= 1 */
    double temperature; /* > 0; 0 = 1 */
    int top_k;          /* as train/generate.h has the four */
    double top_p, min_p, repetition;
    bool batch_invariant; /* as train/generate.h has it */
    int at_once;          /* most completions in this rank's cache; 0 = all */
    const int32_t *ends;  /* (n_ends) ids that end a completion */
    size_t n_ends;
    /* Do these n >= 1 tokens end a completion by what they say? A function of
     * the ids alone, asked behind each token, and by every rank of all. NULL:
     * none. */
    bool (*stops) (void *arg, const int32_t *ids, int n);
    void *stops_arg;
    uint64_t stops_hash;   /* a resumed run must have it again */
    bool drop_cut;         /* completions without an end count for nothing */
    bool old_is_sampler;   /* old log-probabilities are those that the sampler
                            gave, not the forward's */
    int rewards;           /* R >= 1; 0 = 1 */
    const double *weights; /* (R) NULL = all 1 */
    train_grpo_scale_t scale;
    train_grpo_base_t base;
    train_grpo_combine_t combine;
    train_grpo_options_t loss;
    uint64_t seed;
    bool shuffle; /* prompts of each epoch in another order */
    bool mix;     /* advantages change places at random, so that nothing can be
                 learnt: a control for experiments */
    train_grpo_gather_t gather;
    int held,
        held_prompt; /* most prompts of a train_grpo_trainer_try, and tokens
                              of the longest, for gather's AUTO; 0: none */
} train_grpo_trainer_options_t;

/* What a step was. Means are over completions or tokens of all ranks. */
typedef struct train_grpo_metrics {
    size_t size;          /* sizeof (train_grpo_metrics_t) */
    train_metrics_t base; /* its loss is GRPO's; tokens are those trained on */
    int64_t cycle;        /* from 1 */
    /* Of the cycle's completions. */
    double reward, reward_std; /* weighted; sample deviation; NaN where none of
                                  them has a reward that counts */
    double zero_spread; /* share that no other of its group differs from */
    double length, length_min, length_max; /* tokens */
    double cut;                            /* share without an end */
    int64_t none;                          /* completions without a reward */
    /* Of this step's. */
    double kl, entropy, ratio;  /* means of tokens; kl 0 without beta */
    double clip_low, clip_high; /* shares of tokens */
    /* Seconds of this rank; the first three in a cycle's first step alone. */
    double rollout_s, reward_s, logps_s, update_s;
    int64_t rollout_tokens; /* written by all ranks in this step */
    /* Of this step's. */
    double correction; /* mean of tokens of loss.correct's weight; 1 without */
    int64_t dropped;   /* completions that off_policy_mask took out */
} train_grpo_metrics_t;

/* One reward of a cycle's completions, without its weight. Those that count have
 * tokens that are trained on. */
typedef struct train_grpo_spread {
    int64_t n; /* that count and that it says something of */
    double mean,
        deviation; /* of these, a sample's, 0 of one alone; NaN of none */
} train_grpo_spread_t;

/* train_grpo_trainer_create - see train_trainer_create.
 *   prompts, opts   copied; what they point to is borrowed, as is the rest
 *   reference       with loss.beta above 0, of the same vocabulary; else NULL
 *   score           asked for rewards, with [score_arg]
 *   decoder         bare with a strategy that shards, as a trainer's
 * TRAIN_EINVAL names what is wrong, as dropout; TRAIN_EMISMATCH; TRAIN_ENOTSUP:
 * F16 or a loss scale on a GPU. */
train_status_t train_grpo_trainer_create (
    const train_grpo_trainer_options_t *opts, train_group_t *group,
    const train_grpo_prompts_t *prompts, train_grpo_score_t score,
    void *score_arg, train_decoder_t *decoder, train_reference_t *reference,
    train_grpo_trainer_t **ret_trainer, train_error_t *err);
void train_grpo_trainer_destroy (train_grpo_trainer_t *trainer); /* local */

/* train_grpo_trainer_base - the trainer that makes the steps: to draw weights,
 * save and load. Its step is not to be called; its position counts completions.
 * Local. */
train_trainer_t *train_grpo_trainer_base (train_grpo_trainer_t *trainer);

/* train_grpo_trainer_gather - which of the two it is, UNIT or WHOLE, which is also
 * that of weights that are not sharded. Local. */
train_grpo_gather_t train_grpo_trainer_gather (
    const train_grpo_trainer_t *trainer);

/* train_grpo_trainer_step - one optimizer step, and before the first of a cycle
 * the cycle's completions. As train_trainer_step; TRAIN_ENOMEM where whole
 * weights of a sharded model do not fit beside the shards; TRAIN_EABORTED where a
 * rank's [score] or reference was told to end (train/reward.h, reference.h):
 * nothing was updated, and the trainer may be saved. */
train_status_t train_grpo_trainer_step (train_grpo_trainer_t *trainer,
                                        bool stop, train_grpo_metrics_t *ret,
                                        train_error_t *err);

/* train_grpo_trainer_between - no cycle is begun. A checkpoint in mid-cycle has
 * its completions and all that was made of them beside the model, so a run goes
 * on from any step bit for bit. Local. */
bool train_grpo_trainer_between (const train_grpo_trainer_t *trainer);

/* train_grpo_trainer_samples - the completions of the last cycle, of all ranks.
 *   ret_n   how many; 0 before the first
 * Lives until the next step. Local. */
const train_grpo_sample_t *train_grpo_trainer_samples (
    const train_grpo_trainer_t *trainer, int *ret_n);

/* train_grpo_trainer_rewards - each reward by itself, over the completions of the
 * last cycle, of all ranks.
 *   ret   (R) written
 * TRAIN_ESTATE: there was no cycle yet; TRAIN_ENOMEM. Local. */
train_status_t train_grpo_trainer_rewards (const train_grpo_trainer_t *trainer,
                                           train_grpo_spread_t *ret,
                                           train_error_t *err);

/* train_grpo_trainer_try - completions of prompts that are not trained on, with
 * their rewards: what the policy is worth now.
 *   prompts       as above; the first [n] of them
 *   temperature   0: the likeliest tokens
 *   ret_reward    mean of the weighted rewards that are there */
train_status_t train_grpo_trainer_try (train_grpo_trainer_t *trainer,
                                       const train_grpo_prompts_t *prompts,
                                       int64_t n, double temperature,
                                       train_grpo_score_t score, void *arg,
                                       double *ret_reward, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
