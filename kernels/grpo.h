/* SPDX-License-Identifier: Apache-2.0
 * grpo.h - policy loss of rows of tokens and its gradient to log-probabilities.
 *
 * The options' meaning, formulas and sources are in train/grpo.h, which checks
 * what is not checked here. */
#ifndef KERN_GRPO_H
#define KERN_GRPO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum kern_grpo_term { GRPO_CLIP, GRPO_CAP, GRPO_CAP_BOTH, GRPO_SOFT };
enum kern_grpo_mean { GRPO_ROW_MEAN, GRPO_TOKEN_MEAN, GRPO_CONSTANT };
enum kern_grpo_kl { GRPO_K1, GRPO_K2, GRPO_K3 };
enum kern_grpo_correct {
    GRPO_NONE,
    GRPO_TOKEN_TRUNCATE,
    GRPO_TOKEN_MASK,
    GRPO_ROW_TRUNCATE,
    GRPO_ROW_MASK
};

struct kern_grpo {
    int term, mean, by_row, kl, kl_straight, correct;
    double low, high;             /* clip at 1 - low and 1 + high */
    double cap;                   /* of GRPO_CAP */
    double two_sided, dual;       /* 0 = off */
    double soft_pos, soft_neg;    /* of GRPO_SOFT */
    double beta;                  /* of KL; 0 = none */
    double least, most;           /* of the correction */
    double off_policy;            /* < 0 = off */
    double rows, tokens, longest; /* of the whole step */
};

/* What a row adds to the sums of a step; in double, so that the order of rows
 * is the only thing that a split changes. */
struct kern_grpo_row {
    double loss, policy, kl; /* with the step's denominators; kl without beta */
    double tokens;           /* that count */
    double kl_sum, ratio, correction; /* sums over them */
    double clipped_low, clipped_high; /* so many of them */
    double dropped;                   /* 1 = off policy */
};

/* kern_grpo_<f32|f64>_<host|cuda> - see train_grpo_loss.
 *   rows     (B) out
 *   grad     (B, T) out: d loss / d logp; 0 where the mask is 0. May be NULL
 *   logp     (B, T)
 *   old, ref, sampled   (B, T) or NULL
 *   adv      (B)
 *   mask     (B, T) 0 or 1: what counts. Values are read there alone */
#define GRPO_KERNEL(name, real)                                                \
    void name (struct kern_grpo_row *rows, real *grad,                         \
               const struct kern_grpo *o, const real *logp, const real *old,   \
               const real *ref, const real *sampled, const real *adv,          \
               const uint8_t *mask, size_t B, size_t T, void *stream)
GRPO_KERNEL (kern_grpo_f32_host, float);
GRPO_KERNEL (kern_grpo_f64_host, double);
GRPO_KERNEL (kern_grpo_f32_cuda, float);

#ifdef __cplusplus
}
#endif
#endif
