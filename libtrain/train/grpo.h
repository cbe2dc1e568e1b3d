/* SPDX-License-Identifier: Apache-2.0
 * train/grpo.h - group-relative policy optimisation: advantages, masks, losses
 * and their gradients.
 *
 * Pure functions: no state, no group, no device but where one is named; any
 * thread. A step's denominators are the caller's, over all ranks and
 * micro-batches, so that losses and gradients are sums and any split of the step
 * gives the same. Names are TRL's where TRL has the thing (huggingface/trl,
 * trl/trainer/grpo_trainer.py, 1.16); where others mean something else by a name
 * it is said here. Where TRL's code and this are given the same numbers, losses,
 * gradients, advantages and masks are the same (tests/interop/trl_check.py runs
 * TRL's beside them; grpo_torch.py there what TRL has not), but that TRL
 *   - has no bound on logp - old, and its bnpo divides by each micro-batch's own
 *     tokens;
 *   - counts a ratio of a row once where shares of clipped ratios are told, this
 *     once for each of its tokens;
 *   - has unscored completions in the number that its share without spread is of,
 *     and no spread where one of a group alone is scored, which here is none.
 * TRL's luspo, vespo, use_bias_correction_kl, top_entropy_quantile and bonus for
 * entropy are not here.
 *
 * Sources: GRPO, Shao et al. 2024, arXiv:2402.03300; Dr. GRPO, Liu et al. 2025,
 * arXiv:2503.20783; DAPO, Yu et al. 2025, arXiv:2503.14476; GSPO, Zheng et al.
 * 2025, arXiv:2507.18071; CISPO, MiniMax 2025, arXiv:2506.13585; SAPO, Gao et al.
 * 2025, arXiv:2511.20347; dual clip, Ye et al. 2020, arXiv:1912.09729; estimates
 * of KL, Schulman 2020, http://joschu.net/blog/kl-approx.html; GDPO, Liu et al.
 * 2026, arXiv:2601.05242. */
#ifndef TRAIN_GRPO_H
#define TRAIN_GRPO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <train/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- advantages ------------------------------------------------------- */

typedef enum train_grpo_scale {
    TRAIN_GRPO_SCALE_GROUP = 0, /* over the group's standard deviation */
    TRAIN_GRPO_SCALE_BATCH = 1, /* over that of all */
    TRAIN_GRPO_SCALE_NONE = 2,  /* Dr. GRPO */
} train_grpo_scale_t;

typedef enum train_grpo_base {
    TRAIN_GRPO_BASE_MEAN = 0,
    TRAIN_GRPO_BASE_OTHERS = 1, /* leave-one-out: the mean of the others */
} train_grpo_base_t;

typedef enum train_grpo_combine {
    TRAIN_GRPO_SUM_THEN_NORMALIZE = 0,
    TRAIN_GRPO_NORMALIZE_THEN_SUM = 1, /* GDPO: each reward by its group, then
                                          the weighted sum by the batch */
} train_grpo_combine_t;

typedef struct train_grpo_advantage_options {
    size_t size;           /* sizeof (train_grpo_advantage_options_t) */
    int64_t group;         /* G >= 2 completions of a prompt, side by side */
    int64_t rewards;       /* R >= 1 of each completion; 0 = 1 */
    const double *weights; /* (R), finite; NULL = all 1 */
    train_grpo_scale_t scale;
    train_grpo_base_t base;
    train_grpo_combine_t combine;
    double eps; /* > 0, added to a deviation; 0 = 1e-4 */
} train_grpo_advantage_options_t;

typedef struct train_grpo_advantage_report {
    size_t size;            /* sizeof (train_grpo_advantage_report_t) */
    double mean, deviation; /* of the weighted rewards that count; the sample
                               deviation, 0 of fewer than two */
    double zero_spread; /* share of the completions that count whose deviation,
                           of their group or with SCALE_BATCH and
                           NORMALIZE_THEN_SUM of all, is at most 1e-8 */
    int64_t counted;    /* completions that count */
} train_grpo_advantage_report_t;

/* train_grpo_advantages - how much better than its group each completion is.
 *   rewards   (n, R) host; NaN = this reward says nothing of this completion
 *   lengths   (n) tokens of each that are trained on, or NULL. A completion of
 *             none counts for nothing, as one whose rewards are all NaN: it is
 *             in no mean or deviation, and its advantage is 0
 *   n         a multiple of G: groups of all ranks together, so where a group
 *             spans ranks, or the scale is of the batch, gather rewards first
 *   ret_adv   (n) out, finite
 *   ret       NULL, or the report; its size is set
 * Means and sample deviations (n - 1) in two passes, in double. Where all that
 * count in a group have one reward, or one alone counts, their advantages are 0
 * with every option but NORMALIZE_THEN_SUM, which looks at the batch last. TRAIN_EINVAL names what is wrong: G < 2,
 * n, an option, an infinite reward. */
train_status_t train_grpo_advantages (
    const train_grpo_advantage_options_t *opts, const float *rewards,
    const int64_t *lengths, int64_t n, float *ret_adv,
    train_grpo_advantage_report_t *ret, train_error_t *err);

/* ---- masks ------------------------------------------------------------ */

/* train_grpo_mask - which tokens of completions are trained on: those up to and
 * with the first end token.
 *   ids        (B, T) host, padded with anything behind the completion
 *   lengths    (B) tokens of each that were sampled, 0 to T
 *   ends       (n) ids that end a completion
 *   drop_cut   a completion without an end token was cut off: it counts for
 *              nothing (TRL's mask_truncated_completions)
 *   ret_mask   (B, T) out, 0 or 1
 *   ret_lengths  (B) out: the ones in each row; NULL if not wanted. What is
 *              divided by is counted from these, so that both sides of a mean
 *              leave out the same (huggingface/trl#6369)
 * TRAIN_EINVAL names the row whose length is no length. */
train_status_t train_grpo_mask (const int32_t *ids, const int64_t *lengths,
                                int64_t B, int64_t T, const int32_t *ends,
                                int64_t n, bool drop_cut, uint8_t *ret_mask,
                                int64_t *ret_lengths, train_error_t *err);

/* ---- losses ----------------------------------------------------------- */

/* A = advantage, r = exp (logp - old) of a token, or of a row exp of its mean;
 * both within exp (+-20), where they stand still and the gradient is 0. */
typedef enum train_grpo_kind {
    /* -min (r A, clip (r, 1 - low, 1 + high) A), and then */
    TRAIN_GRPO = 0,      /* mean of rows of the mean of their tokens */
    TRAIN_GRPO_BNPO = 1, /* over the tokens of the step. (TRL divides by those
                               of each micro-batch, which hangs on the split:
                               give its tokens times the number of
                               micro-batches to have that) */
    TRAIN_GRPO_DR = 2,   /* over rows * longest */
    TRAIN_GRPO_DAPO = 3, /* over the tokens of the step */
    TRAIN_GRPO_GSPO = 4, /* r of a row; mean of rows */
    /* -min (r, cap) A logp, r not differentiated; over the tokens: TRL's, where
       the cap is a ratio (5 in ScaleRL, arXiv:2510.13786) */
    TRAIN_GRPO_CISPO = 5,
    /* -clip (r, 1 - low, 1 + high) A logp, r not differentiated; over the
       tokens: what verl calls cispo */
    TRAIN_GRPO_CISPO_CLIP = 6,
    /* -A 4 / tau sigmoid (tau (r - 1)); mean of rows of the mean of tokens */
    TRAIN_GRPO_SAPO = 7,
} train_grpo_kind_t;

typedef enum train_grpo_kl {
    TRAIN_GRPO_K3 =
        0, /* e^d - d - 1, d = ref - logp; it stands still above 20 */
    TRAIN_GRPO_K2 = 1, /* d^2 / 2 */
    TRAIN_GRPO_K1 = 2, /* -d. Its own gradient is that of no KL: its mean under
                          the policy is 0; see kl_gradient */
} train_grpo_kl_t;

typedef enum train_grpo_correct {
    TRAIN_GRPO_UNCORRECTED = 0,
    TRAIN_GRPO_TOKEN_TRUNCATE = 1, /* the weight stays within least and most */
    TRAIN_GRPO_TOKEN_MASK = 2,     /* outside of them it is 0 */
    TRAIN_GRPO_SEQUENCE_TRUNCATE = 3, /* one weight a row: exp of the sum */
    TRAIN_GRPO_SEQUENCE_MASK = 4,
} train_grpo_correct_t;

typedef struct train_grpo_options {
    size_t size; /* sizeof (train_grpo_options_t) */
    train_grpo_kind_t kind;
    bool sequence_ratio; /* r of a row with any kind */
    double low, high;    /* >= 0, low < 1; low 0 = 0.2, high 0 = low */
    double cap;          /* of CISPO, > 0; 0 = 5 */
    double delta;        /* two-sided clip: r A with at most this r; 0 = none;
                            else above 1 + high (INTELLECT-2, arXiv:2505.07291) */
    double dual; /* dual clip: at most -dual A where A < 0; 0 = none; else
                            above 1 */
    double tau_positive, tau_negative; /* of SAPO, > 0; 0 = 1 and 1.05 */
    double beta; /* of KL, >= 0; 0 = no reference is needed */
    train_grpo_kl_t kl;
    bool kl_gradient; /* the gradient is K2's, that of the KL, whatever is
                         estimated (verl's k1+, k3+) */
    train_grpo_correct_t correct; /* what the sampler's arithmetic changed */
    double least, most;           /* of its weight, least <= most; most 0 = 3 */
    bool off_policy_mask; /* no policy term for rows with A < 0 whose mean of
                             sampled - logp is above off_policy (DeepSeek-V3.2,
                             arXiv:2512.02556) */
    double off_policy;    /* >= 0 */
} train_grpo_options_t;

/* Over all ranks and micro-batches of the step. 0 where there is none. */
typedef struct train_grpo_whole {
    size_t size;     /* sizeof (train_grpo_whole_t) */
    int64_t rows;    /* completions, those without a token too */
    int64_t tokens;  /* that count */
    int64_t longest; /* completion that could be: of TRAIN_GRPO_DR alone */
} train_grpo_whole_t;

typedef struct train_grpo_batch {
    size_t size; /* sizeof (train_grpo_batch_t) */
    int64_t B, T;
    const float *logp;    /* (B, T) of the policy, at the temperature of the
                             sampling */
    const float *old;     /* (B, T) before the step; NULL: it is the first, and
                             old is logp (its value is not 0, nor its gradient;
                             huggingface/trl#2703) */
    const float *ref;     /* (B, T) of the reference; with beta alone */
    const float *sampled; /* (B, T) as the sampler says; NaN = it says nothing.
                             With a correction, or instead of old for off_policy */
    const float *adv;     /* (B) */
    const uint8_t *mask;  /* (B, T) 0 or 1; values elsewhere are not read */
} train_grpo_batch_t;

/* Sums of a batch, to be added over batches and ranks. */
typedef struct train_grpo_report {
    size_t size; /* sizeof (train_grpo_report_t) */
    double loss; /* the batch's part of the step's: policy + beta * kl */
    double policy, kl;
    int64_t tokens; /* that count; the sums below are over them */
    double kl_sum, ratio_sum, correction_sum;
    int64_t clipped_low; /* A < 0 and r < 1 - low; 0 of CISPO and SAPO */
    int64_t
        clipped_high; /* A > 0 and r > 1 + high, of CISPO r > cap; 0 of SAPO */
    int64_t dropped;  /* rows that off_policy_mask took out */
} train_grpo_report_t;

/* train_grpo_loss - the loss of a batch and its gradient, on the host.
 *   ret_grad   (B, T) out: d loss / d logp; 0 where the mask is 0. NULL if not
 *              wanted. Hand it to the log-probabilities' backward
 *   ret        the report; its size is set
 * Where nothing counts all is 0. TRAIN_EINVAL names the option or the input that
 * is missing or wrong. Not a finite number: it is in the report and the
 * gradient. */
train_status_t train_grpo_loss (const train_grpo_options_t *opts,
                                const train_grpo_whole_t *whole,
                                const train_grpo_batch_t *batch,
                                float *ret_grad, train_grpo_report_t *ret,
                                train_error_t *err);

/* train_grpo_loss_enqueue - the same on a GPU: the pointers of [batch] and
 * ret_grad are of the current device.
 *   ret_rows   (train_grpo_rows_bytes (B)) device memory, aligned to 8; when the
 *              stream is through, copy it to the host for train_grpo_report
 *   stream     a cudaStream_t; what is enqueued there before is seen
 * TRAIN_ENOTSUP: this library was built without CUDA; else as train_grpo_loss. */
train_status_t train_grpo_loss_enqueue (const train_grpo_options_t *opts,
                                        const train_grpo_whole_t *whole,
                                        const train_grpo_batch_t *batch,
                                        float *ret_grad, void *ret_rows,
                                        void *stream, train_error_t *err);
size_t train_grpo_rows_bytes (int64_t B);

/* train_grpo_report - the sums of rows, in their order.
 *   rows   host memory, as train_grpo_loss_enqueue wrote it
 * TRAIN_EINVAL: the size of [ret] is not set. */
train_status_t train_grpo_report (const void *rows, int64_t B,
                                  train_grpo_report_t *ret, train_error_t *err);

#ifdef __cplusplus
}
#endif
#endif
