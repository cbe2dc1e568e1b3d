/* SPDX-License-Identifier: Apache-2.0
 * grpo_run.h - what the parts of the GRPO loop share. Inside libtrain only; the
 * public side is train/grpo_trainer.h.
 *
 * Legend: M completions of a cycle, all ranks together; L most tokens of one. */
#ifndef TRAIN_GRPO_RUN_H
#define TRAIN_GRPO_RUN_H

#include <train/grpo_trainer.h>

#include "decoder_impl.h"
#include "trainer.h"

#define GRPO_KEPT 10 /* arrays of a cycle in a checkpoint */
#define GRPO_SAID 8  /* numbers that metrics have of it */

/* Completions of prompts, of all ranks once they are gathered. */
struct grpo_texts {
    int M, L;
    int64_t *which;              /* (M) prompt */
    const int32_t **prompt;      /* (M) ids of it, borrowed */
    int32_t *n_prompt;           /* (M) */
    int32_t *ids;                /* (M,L) 0 behind the text */
    int32_t *n;                  /* (M) */
    float *sampled;              /* (M,L) log-probs as the sampler has them */
    float *rewards;              /* (M,R) */
    train_grpo_sample_t *sample; /* (M) */
};

/* What a text is written with. */
struct grpo_pen {
    uint64_t seed;
    double temperature;
    int group;
};

/* Arrays of one pass of (rows, T), where the kernels are. */
struct grpo_work {
    size_t bytes;
    char *device, *host; /* the same layout, [host] pinned on a GPU */
    int32_t *tokens, *targets;
    size_t n_tokens;
};

struct train_grpo_trainer {
    train_grpo_trainer_options_t o;
    train_group_t *group;
    train_grpo_prompts_t prompts;
    train_grpo_score_t score;
    void *score_arg;
    train_decoder_t *decoder;
    train_reference_t *reference;
    train_trainer_t *trainer;
    bool unit;        /* weights come by units where no step is made */
    void *merge_room; /* for a unit's adapters meanwhile */
    struct grpo_texts texts;
    int64_t made;     /* cycles of which [texts] has the last; 0: none */
    float *adv;       /* (M) */
    uint8_t *mask;    /* (M,L) what is trained on */
    int64_t *lengths; /* (M) so many tokens */
    float *old, *ref; /* (M,L) of this rank's rows of each step, and where a
                         cycle is more than one, of all; or NULL */
    int32_t *lens;    /* room for a pass */
    struct grpo_work work;
    train_grpo_report_t report; /* of this rank's passes of the step */
    double entropy;             /* sum over tokens */
    train_grpo_metrics_t m;     /* of the cycle */
    double said[GRPO_SAID];     /* room for its numbers in a checkpoint */
    int64_t referred[2];        /* of reference_hash, for a checkpoint */
};

/* Where is step [step] in its cycle? */
struct grpo_place {
    int64_t cycle; /* from 0 */
    int at;        /* step of the cycle: 0 is the first */
    int row;       /* first of its batch among the texts */
};
struct grpo_place grpo_place (const train_grpo_trainer_t *t, int64_t step);

double grpo_now (void);

/* grpo_choose - how units of a sharded policy come where no step is made, of
 * texts of at most [T] tokens: t->unit. Collective.
 * grpo_need - bytes of the device that such a policy takes beside what there is
 * when it has been opened, were it to come whole. Local.
 * grpo_whole - all ranks have the weights of a sharded policy whole until
 * grpo_whole_end; nothing where they are, or come by units. Collective.
 * TRAIN_ENOMEM says what for. grpo_whole_end also after a failure. */
train_status_t grpo_choose (train_grpo_trainer_t *t, int T, train_error_t *err);
size_t grpo_need (const train_grpo_trainer_t *t, int T);
train_status_t grpo_whole (train_grpo_trainer_t *t, train_error_t *err);
void grpo_whole_end (train_grpo_trainer_t *t);

/* Forwards that are no pass of the trainer's engine. */
struct grpo_alone {
    struct decoder_hooks hooks; /* the engine's */
    struct decoder_together together;
    struct decoder_merged merged;
    bool merges, each;
};

/* grpo_alone - such may be made until grpo_back: the engine's hooks are away, as
 * the weights are whole, or others bring units. [merge]: without adapters, which
 * the weights have in them.
 * grpo_back - after a failure, too; returns [status], or what another rank's
 * forwards ended with. Collective, both, where units come one by one. */
train_status_t grpo_alone (train_grpo_trainer_t *t, bool merge,
                           struct grpo_alone *ret, train_error_t *err);
train_status_t grpo_back (train_grpo_trainer_t *t, struct grpo_alone *alone,
                          train_status_t status, train_error_t *err);

/* grpo_texts_init - room for [M]. grpo_texts_fini - after a failure, too. */
train_status_t grpo_texts_init (struct grpo_texts *x, int M, int L, int R,
                                train_error_t *err);
void grpo_texts_fini (struct grpo_texts *x);
/* grpo_texts_ask - take prompt [i] for text [k]. */
train_status_t grpo_texts_ask (struct grpo_texts *x, int k,
                               const train_grpo_prompts_t *prompts, int64_t i,
                               train_error_t *err);
/* grpo_texts_write - write all, each rank its share; grpo_texts_score - and have
 * them rewarded. Both gather. Collective. */
train_status_t grpo_texts_write (train_grpo_trainer_t *t, struct grpo_texts *x,
                                 const struct grpo_pen *pen,
                                 train_error_t *err);
train_status_t grpo_texts_score (train_grpo_trainer_t *t, struct grpo_texts *x,
                                 int R, train_grpo_score_t score, void *arg,
                                 train_error_t *err);
/* grpo_texts_tell - fill [sample] of texts that are all there. */
void grpo_texts_tell (const train_grpo_trainer_t *t, struct grpo_texts *x,
                      int R);
/* grpo_sum - sums of the ranks' arrays in their place. */
train_status_t grpo_sum (train_grpo_trainer_t *t, void *data,
                         train_dtype_t dtype, int64_t n, train_error_t *err);

/* grpo_cycle - the texts of cycle [cycle] and what they are worth; its part of
 * t->m. Collective. */
train_status_t grpo_cycle (train_grpo_trainer_t *t, int64_t cycle,
                           train_error_t *err);

/* grpo_beside, grpo_loaded - the trainer_source's. */
size_t grpo_beside (void *arg, train_ckpt_piece_t ret[TRAINER_BESIDE]);
train_status_t grpo_loaded (void *arg, const char *path, train_error_t *err);

/* On a GPU each length of rows is a plan of attention: they are multiples. */
#define GRPO_GPU_STEP 64

/* grpo_work_fini - give room back.
 * grpo_work_bytes - of the arrays of a pass of (B,T), where the kernels are.
 * grpo_logps - t->old and t->ref of this rank's rows of all steps of the cycle,
 * as far as they are wanted. Collective.
 * grpo_wide - tokens of prompt and completion [k].
 * grpo_old - t->old of [n] rows from [first] on, as the policy is now.
 * grpo_count_anew - no pass of the step has been reported.
 * grpo_pass - the trainer_source's. */
void grpo_work_fini (train_grpo_trainer_t *t);
size_t grpo_work_bytes (const train_decoder_t *m, int B, int T);
int grpo_wide (const train_grpo_trainer_t *t, int k);
train_status_t grpo_old (train_grpo_trainer_t *t, int first, int n,
                         train_error_t *err);
void grpo_count_anew (train_grpo_trainer_t *t);
train_status_t grpo_logps (train_grpo_trainer_t *t, train_error_t *err);
train_status_t grpo_pass (void *arg, int first, int n, double scale,
                          int64_t *counted, train_error_t *err);

#endif
